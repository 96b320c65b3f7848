//! Whether a rank repeats itself.
//!
//! Kept true: a rank counts as repeating itself as long as an outcome is recorded that it was not
//! told yet, or its log has an entry that it has not sent again, and no longer: the call in which
//! the last of these is given out says so when it returns, as the rank may not call MPI again for
//! long. What it had received counts only where that is recorded: messages that it will ask for by
//! name are in the logs, and nobody else depends on when it takes them.

use std::sync::atomic::Ordering::{Relaxed, Release};

use eyrie_ledger::replay_end;

use super::Endpoint;
use crate::presence::ring_daemon;

impl Endpoint {
    /// Whether the rank is repeating itself.
    pub fn replaying(&self) -> bool {
        self.replaying
    }

    /// When this life of the rank began, in ns since 1970 by the clock of files.
    pub fn begun(&self) -> u64 {
        self.ctl.begun.load(Relaxed)
    }

    /// The program has opened a file (`told::file_number`) to write to what is in it.
    pub fn note_opened(&self, file: u64) {
        self.ctl.opened.add(file);
    }

    /// Whether another rank may have. Of those of other nodes nothing is known: `shared`: they may
    /// see the file, too.
    pub fn is_opened_by_others(&self, file: u64, shared: bool) -> bool {
        let own = self.rank();
        let mut others = (0..self.seg.geometry().ranks).filter(|rank| *rank != own);
        others
            .any(|rank| self.seg.rank(rank).opened.may_have(file) || shared && !self.is_here(rank))
    }

    fn repeats(&self) -> bool {
        self.door.replaying() || self.log.is_behind()
    }

    /// Says in the segment whether the rank is repeating itself.
    pub fn begin_replay(&mut self) {
        self.replaying = self.repeats();
        self.ctl.replaying.store(u32::from(self.replaying), Release);
    }

    /// Notices the end of a replay. True when the door has just become free.
    #[inline]
    pub fn end_replay(&mut self) -> bool {
        if !self.replaying || self.repeats() {
            return false;
        }
        self.tell_end();
        self.replaying = false;
        true
    }

    /// Says in the segment that the replay is over, if it is. What follows from that in this
    /// process is left to the next call of MPI, as this may be the end of one from a signal's
    /// handler.
    #[cold]
    pub(super) fn tell_end(&self) {
        if !self.repeats() && self.ctl.replaying.load(Relaxed) != 0 {
            self.ctl.replaying.store(0, Release);
            ring_daemon(self.seg.header());
        }
    }

    /// Whether this rank is run again without any other.
    pub fn alone(&self) -> bool {
        self.seg.header().recording().is_replay()
    }

    /// Stops for good: what is waited for is not in the log.
    pub fn end_of_log(&self, why: &str) -> ! {
        replay_end::end_of_log(self.seg, self.ctl, why)
    }
}
