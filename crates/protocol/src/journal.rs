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

/// Whether what follows the whole records was no record that its writer could not finish: what was
/// in it had effects, and so had what comes behind. A torn record ends before its length says.
pub fn is_damaged(tail: &[u8]) -> bool {
    let Some((header, rest)) = tail.split_at_checked(HEADER_BYTES) else { return false };
    if tail.iter().all(|byte| *byte == 0) {
        return false;
    }
    let (length, sum) = (number(&header[..4]) as usize, number(&header[4..]));
    if length <= rest.len() || sum == checksum(rest) {
        return true;
    }
    // The length itself may be wrong: then the last record of all is whole.
    (1..tail.len()).any(|at| {
        let after = &tail[at..];
        after.len() > HEADER_BYTES
            && number(&after[..4]) as usize == after.len() - HEADER_BYTES
            && record(after).is_some()
    })
}

/// The content of the record at the beginning.
fn record(bytes: &[u8]) -> Option<&[u8]> {
    let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
    let length = number(&header[..4]) as usize;
    let content = rest.get(..length)?;
    // Bytes that are all zero are no record.
    (length > 0 && number(&header[4..]) == checksum(content)).then_some(content)
}

fn number(part: &[u8]) -> u64 {
    part.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b))
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

    /// Each byte of each record: it is not taken for a record that was not finished, which would
    /// let a job go on from an older state.
    #[test]
    fn damage_is_told_from_a_torn_tail() {
        let (bytes, ends) = three();
        let tail = |bytes: &[u8]| is_damaged(&bytes[read(bytes).1..]);
        for cut in 0..=bytes.len() {
            assert!(!tail(&bytes[..cut]), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x20, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                assert!(tail(&damaged), "byte {at}, {flip:#x}");
            }
            // A region that is zero, up to the end of the record or beyond.
            for end in at + 1..=bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at..end].fill(0);
                let is_clean = damaged == bytes || ends.contains(&at) && end == bytes.len();
                assert_eq!(tail(&damaged), !is_clean, "zero from {at} to {end}");
            }
            // What somebody wrote behind it cuts nothing off.
            let mut longer = bytes.clone();
            longer.extend_from_slice(&bytes[..at.min(HEADER_BYTES - 1)]);
            assert_eq!(read(&longer).1, bytes.len());
        }
    }
}
