//! Where the rank is, for the daemon that wants to freeze it.
//!
//! Kept true: whenever `RankCtl::lib` is not `LIB_IN`, the library's private state agrees with the
//! segment, so that the process may be frozen there. A freeze wanted while inside is put off: the
//! library parks at the next safe point (leaving, or the waiting place).

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::compiler_fence;
use std::time::Duration;

use eyrie_ledger::segment::{JobHeader, LIB_IN, LIB_OUT, LIB_PARKED, LIB_WAIT, RankCtl};

use crate::alive::Mark;
use crate::waiting::{futex_wait, futex_wake};

/// Bumps the daemon's bell: something in the segment wants its attention.
pub fn ring_daemon(header: &JobHeader) {
    header.bell.fetch_add(1, Release);
    futex_wake(&header.bell);
}

/// The presence word of this process's rank.
pub struct Presence {
    ctl: &'static RankCtl,
    header: &'static JobHeader,
    depth: u32,
    pub mark: Mark,
}

impl Presence {
    pub fn new(ctl: &'static RankCtl, header: &'static JobHeader) -> Self {
        Presence { ctl, header, depth: 0, mark: Mark::new(ctl) }
    }

    /// Into the library. Calls nest (callbacks of the program may call MPI).
    #[inline]
    pub fn enter(&mut self) {
        self.depth += 1;
        self.set(LIB_IN);
    }

    /// Out of the library; parks if the daemon asked for it meanwhile.
    #[inline]
    pub fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        if self.depth == 0 {
            self.set(LIB_OUT);
            if self.ctl.freeze_req.load(Relaxed) != 0 {
                self.park();
                self.set(LIB_OUT);
            }
        }
    }

    /// Runs `wait`, which touches no state of the library, as a safe point.
    #[inline]
    pub fn waiting(&mut self, wait: impl FnOnce()) {
        if self.ctl.freeze_req.load(Relaxed) != 0 {
            self.park();
        }
        self.set(LIB_WAIT);
        wait();
        self.set(LIB_IN);
    }

    /// Out of the library in the middle of a call, so that other threads may be in it: a safe
    /// point.
    /// `waits`: as far as is known all threads wait. How deep this thread is inside.
    pub fn step_aside(&mut self, waits: bool) -> u32 {
        if self.ctl.freeze_req.load(Relaxed) != 0 {
            self.park();
        }
        self.set(if waits { LIB_WAIT } else { LIB_OUT });
        std::mem::take(&mut self.depth)
    }

    /// Inside again, so deep.
    pub fn step_back(&mut self, depth: u32) {
        self.depth = depth;
        self.set(LIB_IN);
    }

    #[inline]
    fn set(&self, place: u32) {
        // The daemon looks only while this process is stopped: program order is enough, but in both
        // directions: nothing of the library's may move out of the stretch marked as inside.
        compiler_fence(SeqCst);
        self.ctl.lib.store(place, Relaxed);
        compiler_fence(SeqCst);
    }

    #[cold]
    fn park(&self) {
        self.set(LIB_PARKED);
        ring_daemon(self.header);
        while self.ctl.freeze_req.load(Acquire) != 0 {
            futex_wait(&self.ctl.freeze_req, 1, Duration::from_secs(1));
        }
        self.set(LIB_IN);
    }
}
