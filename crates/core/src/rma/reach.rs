//! Where the memory of a window's ranks is, as this rank reaches it, and what it has given out of
//! its own arena.

use std::collections::BTreeMap;

use eyrie_ledger::windows::MappedArena;

/// Parts of an arena begin at multiples of this; the first page of each is ours.
pub(super) const PAGE: u64 = 4096;

/// What this rank has given out of its arena: where, and how much.
#[derive(Default)]
pub(super) struct Arena(BTreeMap<u64, u64>);

impl Arena {
    /// A free place of so many bytes.
    pub(super) fn take(&mut self, bytes: u64, all: u64) -> Option<u64> {
        let bytes = bytes.checked_next_multiple_of(PAGE)?;
        let mut at = 0u64;
        for (start, len) in &self.0 {
            if start - at >= bytes {
                break;
            }
            at = start + len;
        }
        if at.checked_add(bytes)? > all {
            return None;
        }
        self.0.insert(at, bytes);
        Some(at)
    }

    pub(super) fn give_back(&mut self, at: u64) {
        self.0.remove(&at);
    }
}

/// Memory that goes with a window.
pub(super) enum Room {
    /// The program has it.
    Programs,
    /// Of this process alone.
    Own { _words: Vec<u128> },
    /// The last of these parts is of this rank's arena, if `own` says where.
    Mapped { parts: Vec<MappedArena>, own: Option<u64> },
}

/// The memory of a window's ranks, as this one reaches it.
pub(super) struct Reach {
    pub room: Room,
    /// Where each rank's begins; null: it cannot be reached.
    pub bases: Vec<*mut u8>,
    /// A word beside each, by which operations that are not atomic by themselves exclude each
    /// other.
    pub locks: Vec<*mut u8>,
}

impl Reach {
    /// Of memory that this rank alone has.
    pub(super) fn own(ranks: u32, rank: u32, base: *mut u8, room: Room) -> Reach {
        let mut bases = vec![std::ptr::null_mut(); ranks as usize];
        bases[rank as usize] = base;
        Reach { room, bases, locks: Vec::new() }
    }

    /// Whether several ranks map it.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.room, Room::Mapped { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;

    #[test]
    fn a_part_is_given_out_once_until_it_is_given_back() {
        let mut arena = Arena::default();
        let all = 10 * 4096;
        assert_eq!(arena.take(1, all), Some(0));
        assert_eq!(arena.take(8192, all), Some(4096));
        assert_eq!(arena.take(4096, all), Some(3 * 4096));
        arena.give_back(4096);
        assert_eq!(arena.take(3 * 4096, all), Some(4 * 4096));
        assert_eq!(arena.take(4097, all), Some(4096));
        assert_eq!(arena.take(4 * 4096, all), None);
        assert_eq!(arena.take(u64::MAX, all), None);
        assert_eq!(arena.take(3 * 4096, all), Some(7 * 4096));
    }
}
