//! A shared file pointer as each rank of the file knows it, and what one asks for (`shared`).

use crate::error::{Res, class};
use crate::info::Info;

/// With the value `false` for a file that has no shared pointer: nobody keeps it then.
pub(super) const HINT: &[u8] = b"eyrie_shared_pointer";

/// What a rank asks the keeper for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    /// Views and seeks so far, and where the last one has set the pointer.
    count: i64,
    set_to: i64,
    /// How many etypes the pointer moves on.
    by: i64,
}

const ASKED_BYTES: usize = 24;

impl Asked {
    pub(super) fn bytes(self) -> Vec<u8> {
        [self.count, self.set_to, self.by].map(i64::to_ne_bytes).concat()
    }

    pub(super) fn parse(from: &[u8]) -> Res<Asked> {
        let whole = from.len() == ASKED_BYTES;
        let [count, set_to, by] = from.as_chunks().0 else { return Err(class::INTERN) };
        let [count, set_to, by] = [count, set_to, by].map(|word| i64::from_ne_bytes(*word));
        if whole { Ok(Asked { count, set_to, by }) } else { Err(class::INTERN) }
    }
}

/// The shared pointer of a file, in etypes, as one rank knows it.
pub(super) struct Pointer {
    count: i64,
    set_to: i64,
    /// With the keeper: the count that it has met, and the pointer itself.
    kept: (i64, i64),
}

impl Pointer {
    pub(super) fn new(set_to: i64) -> Pointer {
        Pointer { count: 0, set_to, kept: (0, set_to) }
    }

    /// All ranks have agreed that it is there now.
    pub(super) fn set(&mut self, to: i64) {
        self.count += 1;
        self.set_to = to;
    }

    pub(super) fn asked(&self, by: i64) -> Asked {
        Asked { count: self.count, set_to: self.set_to, by }
    }

    /// Moves it; returns where it was.
    pub(super) fn moved(&mut self, asked: Asked) -> i64 {
        if asked.count > self.kept.0 {
            self.kept = (asked.count, asked.set_to);
        }
        let at = self.kept.1;
        self.kept.1 = at.saturating_add(asked.by);
        at
    }
}

/// Whether the hints leave a file its shared pointer.
pub(super) fn wanted(hints: Option<&Info>) -> bool {
    hints.and_then(|info| info.get(HINT)).is_none_or(|value| value != b"false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_survives_the_way() {
        let asked = Asked { count: 3, set_to: -1, by: 1 << 40 };
        assert_eq!(Asked::parse(&asked.bytes()), Ok(asked));
        for bytes in [0, 8, 23, 25, 32] {
            assert_eq!(Asked::parse(&vec![0; bytes]), Err(class::INTERN));
        }
    }

    #[test]
    fn the_keeper_learns_of_a_seek_from_whoever_asks_first() {
        let (mut keeper, mut other) = (Pointer::new(7), Pointer::new(7));
        assert_eq!(keeper.moved(other.asked(5)), 7);
        other.set(100);
        assert_eq!(keeper.moved(other.asked(1)), 100);
        keeper.set(100);
        assert_eq!(keeper.moved(keeper.asked(1)), 101);
        assert_eq!(keeper.moved(other.asked(0)), 102);
    }
}
