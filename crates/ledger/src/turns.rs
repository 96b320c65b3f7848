//! What the door records of a rank's threads (MPI_THREAD_MULTIPLE): which of them went on when.
//!
//! A thread's course is counted in *steps*: calls of the program that begin and end, messages,
//! receives and outcomes (`core::threads`). A turn is a run of steps of one thread. When another
//! thread is to make the next step, that is recorded before it does: who, and how many steps the
//! turn before had. The last turn of a log is open; in a replay it lasts until everything else that
//! is recorded or in the rank's log was repeated.
//!
//! Threads are known by numbers, in the order of their first steps, and are found again in a replay
//! by a key that says how they came to be.

use std::collections::{HashMap, VecDeque};

use super::{Door, KIND_SHIFT, VALUE, comes_after};

/// Another thread goes on: its number, above it the turn's own; then the steps of the turn before.
pub(super) const K_TURN: u64 = 19;
/// A thread gets its number; then its key.
pub(super) const K_THREAD: u64 = 20;
const THREAD_BITS: u32 = 24;

/// That another thread goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// How many there were up to this one, in the low bits of the count.
    pub number: u32,
    pub thread: u32,
    /// Steps of the turn that ends.
    pub before: u64,
}

impl Turn {
    /// Turns are counted, and threads are numbered, in these bits.
    pub const NUMBERS: u32 = (1 << THREAD_BITS) - 1;

    /// Whether it comes after turn number `last`.
    fn is_after(self, last: u32) -> bool {
        comes_after(self.number, last, Turn::NUMBERS)
    }
}

/// What a door knows of them.
#[derive(Default)]
pub(super) struct Turns {
    /// What is still to come, in order.
    due: VecDeque<Turn>,
    /// Numbers of threads that have not come yet, by their keys.
    named: HashMap<u64, u32>,
}

impl Turns {
    pub fn forget(&mut self) {
        self.due.clear();
        self.named.clear();
    }

    pub fn are_over(&self) -> bool {
        self.due.is_empty()
    }
}

/// Whether a word is of these kinds.
pub(super) const fn is_of_threads(kind: u64) -> bool {
    matches!(kind, K_TURN | K_THREAD)
}

impl Door {
    /// Reads what begins at this word.
    pub(super) fn read_turn(&mut self, at: u64) {
        let (word, more) = (self.word(at), self.word(at + 1));
        let low = word as u32 & Turn::NUMBERS;
        if word >> KIND_SHIFT == K_THREAD {
            self.turns.named.insert(more, low);
        } else {
            let number = ((word & VALUE) >> THREAD_BITS) as u32;
            self.turns.due.push_back(Turn { number, thread: low, before: more });
        }
    }

    /// Whether steps of threads are recorded at all.
    pub fn records(&self) -> bool {
        self.on
    }

    /// In a replay: the turn that comes next.
    pub fn next_turn(&self) -> Option<Turn> {
        self.turns.due.front().copied()
    }

    /// It has come.
    pub fn begin_turn(&mut self) {
        if self.turns.due.pop_front().is_some() {
            self.events += 1;
            self.note_replayed();
            self.moved(self.pos);
        }
    }

    /// Records that another thread goes on.
    pub fn record_turn(&mut self, turn: Turn) {
        if self.on {
            self.close_run();
            let number = u64::from(turn.number & Turn::NUMBERS) << THREAD_BITS;
            let head = K_TURN << KIND_SHIFT | number | u64::from(turn.thread & Turn::NUMBERS);
            self.push(&[head, turn.before]);
        }
    }

    /// In a replay: the number that the thread of this key was given.
    pub fn thread_of(&mut self, key: u64) -> Option<u32> {
        self.turns.named.remove(&key)
    }

    /// Above the numbers of all threads that are known to come.
    pub fn threads_named(&self) -> u32 {
        self.turns.named.values().max().map_or(0, |number| number + 1)
    }

    /// Records that a thread was given a number.
    pub fn record_thread(&mut self, number: u32, key: u64) {
        if self.on {
            self.close_run();
            self.push(&[K_THREAD << KIND_SHIFT | u64::from(number & Turn::NUMBERS), key]);
        }
    }

    /// After `rebuild`: turns count that come after number `last`, and threads that are not `known`
    /// by then.
    pub fn forget_turns_up_to(&mut self, last: u32, known: u32) {
        self.turns.due.retain(|turn| turn.is_after(last));
        self.turns.named.retain(|_, number| *number >= known);
        if !self.replaying() {
            self.moved(self.pos);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Call, Door, Outcome, Verdict};
    use super::Turn;
    use crate::segment::{FT_LOGGED, Geometry, Segment};

    fn segment() -> &'static Segment {
        let geo = Geometry { ranks: 1, chunk_bytes: 4096, pool_chunks: 8, det_words: 1 << 18 };
        let (_, seg) = Segment::create("t", geo, FT_LOGGED, 2).unwrap();
        Box::leak(Box::new(seg))
    }

    fn turn(number: u32, thread: u32, before: u64) -> Turn {
        Turn { number, thread, before }
    }

    #[test]
    fn turns_come_again_in_their_order() {
        let seg = segment();
        let mut door = Door::new(seg, 0);
        let long = u64::from(u32::MAX) * 9;
        door.record_thread(1, 77);
        door.record_turn(turn(1, 1, long));
        door.fruitless();
        door.record_turn(turn(2, 0, 1));
        door.record(Call::Test, &Outcome::One(0));

        let mut again = Door::new(seg, 0);
        assert!(again.replaying());
        assert_eq!((again.thread_of(77), again.thread_of(77)), (Some(1), None));
        assert_eq!(again.next_turn(), Some(turn(1, 1, long)));
        again.begin_turn();
        assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Fruitless);
        assert_eq!(again.next_turn(), Some(turn(2, 0, 1)));
        again.begin_turn();
        assert_eq!(again.next_turn(), None);
        assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Forced(Outcome::One(0)));
        assert!(!again.replaying());
    }

    #[test]
    fn what_an_image_has_does_not_come_again() {
        let seg = segment();
        let mut door = Door::new(seg, 0);
        door.record_thread(1, 5);
        door.record_turn(turn(Turn::NUMBERS, 1, 3));
        door.record_thread(2, 6);
        door.record_turn(turn(0, 2, 4));
        let mut again = Door::new(seg, 0);
        // Numbers go round.
        again.forget_turns_up_to(Turn::NUMBERS, 2);
        assert_eq!(again.next_turn(), Some(turn(0, 2, 4)));
        assert_eq!((again.thread_of(5), again.thread_of(6)), (None, Some(2)));
        again.begin_turn();
        assert!(!again.replaying());
    }
}
