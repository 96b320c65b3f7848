//! A process that may become a rank and waits, outside of MPI, until something is for it: a place
//! for programs that others start, which runs them as its children, one after the other.
//!
//! Kept true: it only looks. Nothing is consumed, acknowledged or recorded, so the program that it
//! runs reads its streams from where the one before it ended, like any other; and it is
//! checkpointed, moved and brought back like a script that runs programs.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use eyrie_ledger::reader::Reader;
use eyrie_ledger::segment::{STATE_LEFT, STATE_RUNNING, STATE_STARTED, Segment};

use crate::join::{Named, OpenError};
use crate::waiting::{self, Nap};

pub struct Dormant {
    /// For ever: it ends with this process.
    seg: &'static Segment,
    rank: u32,
}

impl Dormant {
    /// What the environment says.
    pub fn from_env() -> Result<Dormant, OpenError> {
        let named = Named::from_env()?.ok_or(OpenError::Environment("EYRIE_RANK"))?;
        let seg: &'static Segment = Box::leak(Box::new(named.segment(false)?));
        if named.rank >= seg.geometry().ranks {
            return Err(OpenError::Environment("EYRIE_RANK"));
        }
        Ok(Dormant::of(seg, named.rank))
    }

    /// The same in a segment that is known.
    pub fn of(seg: &'static Segment, rank: u32) -> Dormant {
        Dormant { seg, rank }
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    pub fn size(&self) -> u32 {
        self.seg.geometry().ranks
    }

    /// Whether a process of this rank was there before.
    pub fn has_begun_before(&self) -> bool {
        self.seg.rank(self.rank).incarnation.load(Acquire) > 1
    }

    /// Who of the job has ended: `GONE_*`.
    pub fn gone(&self) -> u32 {
        self.seg.header().gone.load(Acquire)
    }

    /// Number of the rank's program that calls `MPI_Init` next, while none is in MPI (`join`).
    pub fn next_world(&self) -> u32 {
        let ctl = self.seg.rank(self.rank);
        match ctl.state.load(Acquire) {
            STATE_STARTED => 0,
            _ => ctl.world.load(Acquire) + 1,
        }
    }

    /// A program that has ended by itself and is not collected yet has left MPI, if it was in it.
    pub fn note_exit(&self, pid: u32) {
        let ctl = self.seg.rank(self.rank);
        if ctl.pid.load(Acquire) == pid {
            let _ = ctl.state.compare_exchange(STATE_RUNNING, STATE_LEFT, AcqRel, Acquire);
        }
    }

    /// The `n`-th message of `src` for the rank's program number `world`, when all of it is there.
    pub fn message(&self, src: u32, world: u32, n: usize) -> Option<Vec<u8>> {
        let mut reader = Reader::new(self.seg, src, self.rank);
        reader.follow();
        let (mut before, mut bytes) = (0, Vec::new());
        loop {
            let entry = reader.peek().ok()??;
            if entry.world() == world {
                if before == n {
                    // SAFETY: the entry is published, and stays, as this rank has not read so far.
                    let part =
                        unsafe { std::slice::from_raw_parts(entry.payload, entry.frag as usize) };
                    bytes.extend_from_slice(part);
                }
                if entry.is_last() {
                    if before == n {
                        return Some(bytes);
                    }
                    before += 1;
                }
            }
            reader.pass(&entry);
        }
    }

    /// Whether anybody has sent anything.
    pub fn is_spoken_to(&self) -> bool {
        (0..self.size()).any(|src| {
            let first = Reader::new(self.seg, src, self.rank).peek();
            !matches!(first, Ok(None))
        })
    }

    /// Waits until `look` finds something. Whoever sends rings this rank's bell.
    pub fn wait<T>(&self, mut look: impl FnMut(&Dormant) -> Option<T>) -> T {
        let ctl = self.seg.rank(self.rank);
        loop {
            let seen = waiting::arm(ctl);
            let found = look(self);
            if found.is_none() {
                waiting::sleep(ctl, seen, Nap::Long);
            }
            waiting::disarm(ctl);
            if let Some(found) = found {
                return found;
            }
        }
    }
}

/// How many of a job's ranks are there for programs that others start.
pub(crate) fn room_of(seg: &Segment) -> u32 {
    let (room, ranks) = (seg.header().room.load(Relaxed), seg.geometry().ranks);
    if room < ranks { room } else { 0 }
}
