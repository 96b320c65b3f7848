//! What the door records of windows (MPI 5.0 chapter 12): that an operation which another rank sent
//! was applied to memory of this one, at which place of its course.
//!
//! What the rank sends or prints follows from no application that came later. So it is recorded,
//! too, how far it has come since the last one: a word that grows in place, as the log's last.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{Door, KIND_SHIFT, VALUE, comes_after};

/// An operation of another rank was applied to memory of this one: by its source, then the place,
/// then its number above the context that it came in.
pub(super) const K_APPLIED: u64 = 17;
pub(super) const APPLIED_WORDS: u64 = 3;
const SOURCE_BITS: u32 = 20;
/// Nothing more is applied before the rank is past this place of its course.
pub(super) const K_PASSED: u64 = 18;
/// That an operation for a window was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Where in the rank's course: calls of the program and messages that it has begun.
    pub place: u64,
    /// How many were applied up to this one, in the low bits of the count.
    pub number: u32,
    /// World rank of whose operation it is, and the context that it came in.
    pub source: u32,
    pub ctx: u32,
}

impl Applied {
    /// Numbers are counted in these bits.
    pub const NUMBERS: u32 = (1 << 28) - 1;

    /// Whether it comes after number `last`.
    fn is_after(self, last: u32) -> bool {
        comes_after(self.number, last, Applied::NUMBERS)
    }
}

/// What a door knows of them.
#[derive(Default)]
pub(super) struct Applications {
    /// What is still to be applied, in order.
    pub due: VecDeque<Applied>,
    /// The last place that was passed, and where in the log it is growing.
    passed: u64,
    pub growing: Option<u64>,
    /// Something was recorded in the call that is under way.
    pub told: bool,
}

impl Applications {
    /// The rank's next program has a course of its own.
    pub fn begin_program(&mut self) {
        (self.passed, self.growing) = (0, None);
    }
}

/// Whether a word is of these kinds.
pub(super) const fn is_of_windows(kind: u64) -> bool {
    matches!(kind, K_APPLIED | K_PASSED)
}

impl Door {
    /// After a restore: the place may have grown since.
    pub(super) fn read_passed(&mut self) {
        if let Some(word) = self.windows.growing.map(|at| self.word(at))
            && word >> KIND_SHIFT == K_PASSED
        {
            self.windows.passed = self.windows.passed.max(word & VALUE);
        }
    }

    /// Reads what begins at this word; the log ends at `tail`.
    pub(super) fn read_application(&mut self, at: u64, tail: u64) {
        let word = self.word(at);
        if word >> KIND_SHIFT == K_PASSED {
            self.windows.passed = self.windows.passed.max(word & VALUE);
        } else if tail - at >= APPLIED_WORDS {
            self.windows.due.push_back(Applied {
                place: self.word(at + 1),
                number: (word >> SOURCE_BITS) as u32 & Applied::NUMBERS,
                source: word as u32 & ((1 << SOURCE_BITS) - 1),
                ctx: self.word(at + 2) as u32,
            });
        }
    }

    /// Whether operations are still to be applied as they were.
    #[inline]
    pub fn has_applied(&self) -> bool {
        !self.windows.due.is_empty()
    }

    /// In a replay: the operation that is to be applied at this place of the rank's course, or was
    /// before.
    pub fn ask_applied(&mut self, place: u64) -> Option<Applied> {
        let next = self.windows.due.front().copied().filter(|a| a.place <= place)?;
        self.windows.due.pop_front();
        self.events += 1;
        self.note_replayed();
        self.moved(self.pos);
        Some(next)
    }

    /// Records that an operation is applied.
    pub fn record_applied(&mut self, what: Applied) {
        if self.on {
            self.close_run();
            let number = u64::from(what.number) << SOURCE_BITS;
            let head = K_APPLIED << KIND_SHIFT | number | u64::from(what.source);
            self.push(&[head, what.place, what.ctx.into()]);
        }
    }

    /// The place up to which nothing is applied but what is recorded.
    #[inline]
    pub fn passed(&self) -> u64 {
        self.windows.passed
    }

    /// A call of the program begins.
    #[inline]
    pub fn call_begins(&mut self) {
        self.windows.told = false;
    }

    /// A call ends at this place. What was recorded in it says so already.
    pub fn call_ends(&mut self, place: u64) {
        if !self.windows.told {
            self.pass(place);
        }
    }

    /// Records that the rank passes this place, where nothing more is applied.
    pub fn pass(&mut self, place: u64) {
        if !self.on || place <= self.windows.passed || self.replaying() {
            return;
        }
        self.windows.passed = place;
        let word = K_PASSED << KIND_SHIFT | (place & VALUE);
        let tail = self.ctl.det_tail.load(Relaxed);
        match self.windows.growing {
            Some(at) if at + 1 == tail => self.seg.det(self.rank, at).store(word, Release),
            _ => {
                self.close_run();
                self.windows.growing = Some(tail);
                self.push(&[word]);
            }
        }
    }

    /// After `rebuild`: those count that come after number `last`.
    pub fn forget_applied_up_to(&mut self, last: u32) {
        self.windows.due.retain(|a| a.is_after(last));
        if !self.replaying() {
            self.moved(self.pos);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Door, Verdict};
    use super::Applied;
    use crate::segment::{FT_LOGGED, Geometry, Segment};
    use std::sync::atomic::Ordering::Relaxed;

    fn segment() -> &'static Segment {
        let geo = Geometry { ranks: 1, chunk_bytes: 4096, pool_chunks: 8, det_words: 1 << 18 };
        let (_, seg) = Segment::create("t", geo, FT_LOGGED, 2).unwrap();
        Box::leak(Box::new(seg))
    }

    fn applied(place: u64, number: u32) -> Applied {
        Applied { place, number, source: 3, ctx: 0x8000_0010 }
    }

    #[test]
    fn applications_are_dictated_at_their_places() {
        let seg = segment();
        let mut door = Door::new(seg, 0);
        door.pass(4);
        door.record_applied(applied(7, 1));
        door.record_applied(applied(9, 2));
        door.pass(9);
        let tail = seg.rank(0).det_tail.load(Relaxed);
        door.pass(12);
        assert_eq!(seg.rank(0).det_tail.load(Relaxed), tail, "the word grows");

        let mut again = Door::new(seg, 0);
        assert!(again.replaying() && again.has_applied());
        assert_eq!(again.ask_applied(6), None);
        assert_eq!(again.ask_applied(7), Some(applied(7, 1)));
        assert_eq!(again.ask_applied(8), None);
        assert_eq!(again.ask_applied(9), Some(applied(9, 2)));
        assert_eq!((again.has_applied(), again.replaying(), again.passed()), (false, false, 12));
        assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Live);
    }

    #[test]
    fn what_an_image_has_is_not_dictated_again() {
        let seg = segment();
        let mut door = Door::new(seg, 0);
        door.record_applied(applied(7, Applied::NUMBERS));
        door.record_applied(applied(7, 0));
        let mut again = Door::new(seg, 0);
        // Numbers go round.
        again.forget_applied_up_to(Applied::NUMBERS);
        assert_eq!(again.ask_applied(7), Some(applied(7, 0)));
        assert!(!again.replaying());
    }

    #[test]
    fn a_call_that_has_recorded_something_says_no_more_at_its_end() {
        let seg = segment();
        let mut door = Door::new(seg, 0);
        door.call_begins();
        door.fruitless();
        door.call_ends(5);
        assert_eq!(door.passed(), 0);
        door.call_begins();
        door.fruitless();
        assert_eq!(seg.rank(0).det_tail.load(Relaxed), 1, "polls are one word");
        door.call_begins();
        door.call_ends(7);
        assert_eq!((door.passed(), seg.rank(0).det_tail.load(Relaxed)), (7, 2));
    }
}
