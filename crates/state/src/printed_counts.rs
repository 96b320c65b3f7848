//! How much of each rank's output was printed, in a file that outlives daemon and command: a word
//! for each stream. `docs/formats/state.md`.
//!
//! Kept true: a word that is damaged counts as none, so that no output is swallowed.

use eyrie_control::Stream;

/// Bytes of a word.
pub const WORD_BYTES: u64 = 8;
/// The check lies above the count.
const COUNT_BITS: u32 = 48;

/// Where the word of a stream is.
pub fn place(rank: u32, stream: Stream) -> u64 {
    (u64::from(rank) * 2 + stream as u64) * WORD_BYTES
}

/// The word at that place for so many bytes.
pub fn word(at: u64, count: u64) -> [u8; WORD_BYTES as usize] {
    let count = count & ((1 << COUNT_BITS) - 1);
    (check(at, count) << COUNT_BITS | count).to_le_bytes()
}

/// How many bytes a word at that place says; none if it is damaged, or not there yet.
pub fn count(at: u64, word: [u8; WORD_BYTES as usize]) -> Option<u64> {
    let word = u64::from_le_bytes(word);
    let count = word & ((1 << COUNT_BITS) - 1);
    (word != 0 && word >> COUNT_BITS == check(at, count)).then_some(count)
}

/// The same, of a file's bytes.
pub fn counted(bytes: &[u8], rank: u32, stream: Stream) -> u64 {
    let at = place(rank, stream);
    let word = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.first_chunk());
    word.and_then(|word| count(at, *word)).unwrap_or(0)
}

/// Never 0: that is where nothing was written.
fn check(at: u64, count: u64) -> u64 {
    let both = [at.to_le_bytes(), count.to_le_bytes()].concat();
    xxhash_rust::xxh3::xxh3_64(&both) >> COUNT_BITS | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_word_counts_as_none() {
        let mut bytes = Vec::new();
        for (rank, number) in [(0, 5), (1, 1 << 40)] {
            for stream in [Stream::Stdout, Stream::Stderr] {
                bytes.extend(word(place(rank, stream), number + stream as u64));
            }
        }
        assert_eq!(counted(&bytes, 0, Stream::Stderr), 6);
        assert_eq!(counted(&bytes, 1, Stream::Stdout), 1 << 40);
        assert_eq!(counted(&bytes, 2, Stream::Stdout), 0);
        assert_eq!(counted(&bytes[..30], 1, Stream::Stderr), 0);
        for at in 16..24 {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let found = counted(&damaged, 1, Stream::Stdout);
                assert_eq!(found, 0, "bit {bit} of byte {at}");
                assert_eq!(counted(&damaged, 0, Stream::Stdout), 5);
            }
        }
        assert_eq!(counted(&[0; 16], 0, Stream::Stderr), 0);
        // That of another stream.
        let other: Vec<u8> = bytes[16..24].iter().chain(&bytes[8..]).copied().collect();
        assert_eq!(counted(&other, 0, Stream::Stdout), 0);
    }
}
