//! The records of a controller's journal: each whole and under a checksum, or cut off.
//!
//! Pure: bytes in and out; `docs/formats/journal.md` has them. Kept true: what is read is what was
//! written, up to the first record that is not whole; nothing behind that counts, as nothing that
//! followed it had an effect.

/// Bytes before the content of a record.
const HEADER_BYTES: usize = 12;
/// A length that is not believed.
const MAX_BYTES: u32 = 1 << 30;

/// A record as it is appended. None: it is too long.
pub fn frame(content: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(content.len()).ok().filter(|n| *n <= MAX_BYTES)?;
    let mut bytes = Vec::with_capacity(HEADER_BYTES + content.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&checksum(content).to_le_bytes());
    bytes.extend_from_slice(content);
    Some(bytes)
}

/// The contents of all whole records, and how many bytes these take.
pub fn read(bytes: &[u8]) -> (Vec<&[u8]>, usize) {
    let (mut records, mut at) = (Vec::new(), 0);
    while let Some(content) = record(&bytes[at..]) {
        at += HEADER_BYTES + content.len();
        records.push(content);
    }
    (records, at)
}

/// The content of the record at the beginning.
fn record(bytes: &[u8]) -> Option<&[u8]> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let number = |part: &[u8]| part.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let length = number(&header[..4]) as usize;
    let content = rest.get(..length)?;
    // Bytes that are all zero are no record.
    (length > 0 && number(&header[4..]) == checksum(content)).then_some(content)
}

fn checksum(content: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Vec<u8>, [usize; 4]) {
        let mut bytes = Vec::new();
        let mut ends = [0; 4];
        for (n, content) in ["first", "second one", "3"].into_iter().enumerate() {
            bytes.extend(frame(content.as_bytes()).unwrap());
            ends[n + 1] = bytes.len();
        }
        (bytes, ends)
    }

    #[test]
    fn a_torn_tail_is_cut_off() {
        let (bytes, ends) = three();
        for cut in 0..=bytes.len() {
            let whole = ends.iter().rposition(|end| *end <= cut).unwrap();
            let (records, length) = read(&bytes[..cut]);
            assert_eq!((records.len(), length), (whole, ends[whole]), "cut at {cut}");
        }
        let mut padded = bytes[..ends[2]].to_vec();
        padded.extend([0; 64]);
        assert_eq!(read(&padded).1, ends[2]);
    }

    #[test]
    fn damage_ends_what_counts() {
        let (bytes, ends) = three();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x20;
            let (records, length) = read(&damaged);
            let whole = ends.iter().rposition(|end| *end <= at).unwrap();
            assert_eq!((records.len(), length), (whole, ends[whole]), "byte {at}");
        }
    }
}
