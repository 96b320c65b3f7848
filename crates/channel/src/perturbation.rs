//! `eyrie verify` delays and hastens messages on purpose: what a program sends and prints must not
//! hang on when messages come, but through outcomes that are recorded.
//!
//! A message that is there is overlooked for some looks, most not at all, some for many; and some
//! calls of MPI look for all that has come, though they need not. Which, follows from a seed, the
//! rank, and how many messages and calls there were: another seed is another course of things.

use eyrie_ledger::reader::Entry;

/// Looks for which a message is overlooked at most, as a power of two.
const MOST_LOOKS_LOG2: u64 = 12;

/// A rank's moods.
pub(crate) struct Perturbation {
    state: u64,
    /// By source: the entry that was looked at last, and for how many looks it is overlooked.
    held: Vec<(u64, u32)>,
}

impl Perturbation {
    /// `None`: nothing is done on purpose.
    pub fn new(seed: u32, rank: u32, ranks: u32) -> Option<Perturbation> {
        let state = (u64::from(seed) << 32 | u64::from(rank)) ^ 0x9E37_79B9_7F4A_7C15;
        let perturbation = Perturbation { state, held: vec![(u64::MAX, 0); ranks as usize] };
        (seed != 0).then_some(perturbation)
    }

    fn draw(&mut self) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.state;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    /// Whether what is there of `src` at position `at` is overlooked this time.
    pub fn overlooks(&mut self, src: u32, at: u64, entry: &Entry) -> bool {
        if !entry.is_first() {
            return false;
        }
        if self.held[src as usize].0 != at {
            let (draw, long) = (self.draw(), self.draw());
            // Half of them not at all; the longer the more seldom.
            let looks = match draw & 1 {
                0 => 0,
                _ => long >> 32 & ((1 << (1 + long % MOST_LOOKS_LOG2)) - 1),
            };
            self.held[src as usize] = (at, looks as u32);
        }
        let left = &mut self.held[src as usize].1;
        let overlooks = *left > 0;
        *left = left.saturating_sub(1);
        overlooks
    }

    /// Whether the call that begins looks for everything.
    pub fn is_eager(&mut self) -> bool {
        self.draw() & 3 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_course_and_none_is_none() {
        assert!(Perturbation::new(0, 1, 2).is_none());
        let course = |seed, rank| {
            let mut whim = Perturbation::new(seed, rank, 2).unwrap();
            (0..64).map(|_| whim.is_eager()).collect::<Vec<_>>()
        };
        assert_eq!(course(7, 1), course(7, 1));
        assert_ne!(course(7, 1), course(8, 1));
        assert_ne!(course(7, 1), course(7, 0));
    }
}
