//! Which files a rank has opened to write to what is in them (a Bloom filter, in its control
//! block): another rank that repeats itself empties no file again in which that may have written.
//!
//! Kept true: a file that was added is found; one that was not is found seldom.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const WORDS: usize = 32;
const BITS: u32 = (WORDS * 64).ilog2();
pub const OPENED_BYTES: usize = WORDS * 8;

/// Files by `told::file_number`.
#[repr(C)]
pub struct OpenedFiles([AtomicU64; WORDS]);

impl OpenedFiles {
    fn bits(file: u64) -> [(usize, u64); 2] {
        let hash = file.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        [64 - BITS, 64 - 2 * BITS].map(|shift| {
            let bit = (hash >> shift) as usize % (WORDS * 64);
            (bit / 64, 1 << (bit % 64))
        })
    }

    pub fn add(&self, file: u64) {
        for (word, bit) in OpenedFiles::bits(file) {
            self.0[word].fetch_or(bit, Relaxed);
        }
    }

    pub fn may_have(&self, file: u64) -> bool {
        OpenedFiles::bits(file).iter().all(|(word, bit)| self.0[*word].load(Relaxed) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::door::file_number;

    #[test]
    fn what_was_added_is_found_and_others_seldom() {
        let files = OpenedFiles([const { AtomicU64::new(0) }; WORDS]);
        let number = |ino| file_number(0xfd01, ino);
        assert!(!files.may_have(number(1)));
        (1000..1050).for_each(|ino| files.add(number(ino)));
        assert!((1000..1050).all(|ino| files.may_have(number(ino))));
        let found = (2000..12000).filter(|ino| files.may_have(number(*ino))).count();
        assert!(found < 100, "{found} of 10000");
    }
}
