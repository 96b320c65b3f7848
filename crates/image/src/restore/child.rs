//! A process while it is being made: killed and collected unless it is finished.

use crate::kernel::ptrace::{Listed, Tracee};
use crate::kernel::stops::reap;
use crate::restore::threads::{self, Made};

/// A process while it is being made; killed and reaped unless it is finished.
pub(crate) struct Child {
    pub tracee: Tracee,
    /// Its other threads.
    pub others: Vec<Made>,
    pub finished: bool,
    /// It has ended, and its parent knows.
    pub ended: bool,
    _listed: Listed,
}

impl Child {
    pub fn new(pid: libc::pid_t) -> Child {
        let tracee = Tracee(pid);
        Child { tracee, others: vec![], finished: false, ended: false, _listed: Listed::new(pid) }
    }

    /// Its threads, the first one first.
    pub fn threads(&self) -> Vec<Tracee> {
        let others = self.others.iter().map(|made| made.tracee);
        std::iter::once(self.tracee).chain(others).collect()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.ended {
            // If its parent was killed too, it may be ours to collect now.
            let mut status = 0;
            let options = libc::__WALL | libc::WNOHANG;
            // SAFETY: asks about one process and writes to a live integer.
            unsafe { libc::waitpid(self.tracee.0, &raw mut status, options) };
        } else if !self.finished {
            // SAFETY: our own child, not reaped yet.
            unsafe { libc::kill(self.tracee.0, libc::SIGKILL) };
            threads::collect_killed(self.tracee.0);
            reap(self.tracee.0);
        }
    }
}
