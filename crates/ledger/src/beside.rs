//! Two MPI programs of a rank at once: what the one that is a job of its own leaves in the rank's
//! control block for the daemon.
//!
//! Kept true: the daemon reads whole notes only; who writes one waits a short time for the one
//! before to be read, and no longer.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, fence};

/// Bytes of a program's name that are kept, as the kernel keeps them.
const NAME_BYTES: usize = 16;

/// What tells programs apart: hashes of its file's name, and of the words it was called with.
pub type ProgramId = [u32; 2];

/// The note. 40 bytes.
#[repr(C)]
pub struct Beside {
    /// Grows by two with each note; odd while one is written.
    turn: AtomicU32,
    /// The last one that the daemon has read.
    read: AtomicU32,
    rank: [AtomicU32; 2],
    alone: [AtomicU32; 2],
    name: [AtomicU32; NAME_BYTES / 4],
}

/// The program that is the rank, the one that is not, and what that one is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub rank: ProgramId,
    pub alone: ProgramId,
    pub name: String,
}

impl Beside {
    /// Whether the last note was read.
    pub fn is_read(&self) -> bool {
        self.turn.load(Acquire) == self.read.load(Acquire)
    }

    /// Leaves a note, if nobody else is just doing that.
    pub fn leave(&self, note: &Note) -> bool {
        let turn = self.turn.load(Relaxed);
        let odd = turn.wrapping_add(1);
        if !turn.is_multiple_of(2)
            || self.turn.compare_exchange(turn, odd, AcqRel, Relaxed).is_err()
        {
            return false;
        }
        let words = note.rank.into_iter().chain(note.alone);
        self.rank.iter().chain(&self.alone).zip(words).for_each(|(at, word)| {
            at.store(word, Relaxed);
        });
        let mut name = [0; NAME_BYTES];
        let length = note.name.len().min(NAME_BYTES);
        name[..length].copy_from_slice(&note.name.as_bytes()[..length]);
        for (at, word) in self.name.iter().zip(name.as_chunks::<4>().0) {
            at.store(u32::from_le_bytes(*word), Relaxed);
        }
        self.turn.store(turn.wrapping_add(2), Release);
        true
    }

    /// The note that was not read yet.
    pub fn take(&self) -> Option<Note> {
        let turn = self.turn.load(Acquire);
        if !turn.is_multiple_of(2) || turn == self.read.load(Relaxed) {
            return None;
        }
        let of = |words: &[AtomicU32; 2]| [0, 1].map(|n| words[n].load(Relaxed));
        let name = self.name.iter().flat_map(|word| word.load(Relaxed).to_le_bytes());
        let name = name.take_while(|byte| *byte != 0).collect::<Vec<_>>();
        let (rank, alone) = (of(&self.rank), of(&self.alone));
        let name = String::from_utf8_lossy(&name).into_owned();
        // Written over meanwhile: the next look has it.
        fence(Acquire);
        let is_whole = self.turn.load(Relaxed) == turn;
        self.read.store(turn, Release);
        is_whole.then_some(Note { rank, alone, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Beside {
        let two = || [const { AtomicU32::new(0) }; 2];
        let name = [const { AtomicU32::new(0) }; NAME_BYTES / 4];
        Beside { turn: 0.into(), read: 0.into(), rank: two(), alone: two(), name }
    }

    #[test]
    fn a_note_is_read_once_and_whole() {
        let beside = empty();
        assert!(beside.is_read() && beside.take().is_none());
        let note = Note { rank: [1, 2], alone: [3, u32::MAX], name: "sixteen-letters!".into() };
        assert!(beside.leave(&note) && !beside.is_read());
        assert_eq!(beside.take(), Some(note.clone()));
        assert!(beside.is_read() && beside.take().is_none());
        let note = Note { name: "b".into(), ..note };
        assert!(beside.leave(&note));
        assert_eq!(beside.take(), Some(note));
    }

    #[test]
    fn nobody_writes_into_a_note_that_is_being_written() {
        let beside = empty();
        beside.turn.store(1, Relaxed);
        let note = Note { rank: [1, 2], alone: [3, 4], name: "a".into() };
        assert!(!beside.leave(&note) && beside.take().is_none());
    }
}
