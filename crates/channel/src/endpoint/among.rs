//! An endpoint that several threads of its rank use in turn: what a wait is made of while others
//! may be inside.

use eyrie_ledger::segment::RankCtl;

use super::{Endpoint, PREPARE_AFTER};
use crate::datagram::DatagramPath;
use crate::waiting::{self, Nap, Round};

/// What a thread sleeps on that looks for messages, without touching the endpoint.
#[derive(Clone, Copy)]
pub struct Bed {
    ctl: &'static RankCtl,
    seen: u32,
    nap: Nap,
}

impl Bed {
    pub fn sleep(self) {
        waiting::sleep(self.ctl, self.seen, self.nap);
    }
}

impl Endpoint {
    /// The incarnation that the state here belongs to.
    pub fn incarnation(&self) -> u32 {
        self.incarnation
    }

    /// Out of the library in the middle of a call; see `Presence`.
    pub fn step_aside(&mut self, waits: bool) -> u32 {
        self.presence.step_aside(waits)
    }

    pub fn step_back(&mut self, depth: u32) {
        self.presence.step_back(depth);
    }

    /// From now on several threads are here, of which the calling one is the main one.
    pub fn share(&mut self) {
        self.presence.mark.share();
    }

    /// See `Mark`.
    #[inline]
    pub fn arm(&mut self) {
        self.presence.mark.arm();
    }

    /// What to do in this round of waiting.
    pub fn round(&mut self, idle: u32) -> Round {
        if idle >= PREPARE_AFTER && self.log.prepare() {
            return Round::Look;
        }
        self.spin.round(idle)
    }

    /// A moment of waiting, with nobody else inside.
    pub fn spin_once(&mut self) {
        self.presence.waiting(std::hint::spin_loop);
    }

    /// Announces that this thread is about to sleep; the caller looks once more, then sleeps, or
    /// says `disarm`.
    pub fn lie_down(&mut self, idle: u32, short: bool) -> Bed {
        self.naps = self.naps(idle);
        if let Some(path) = &mut self.datagrams {
            path.flush(self.seg);
        }
        let hears = self.datagrams.as_ref().is_some_and(DatagramPath::hears);
        let nap = match (short, hears) {
            (_, true) => Nap::Brief(self.naps),
            (true, false) => Nap::Short,
            (false, false) => Nap::Long,
        };
        Bed { ctl: self.ctl, seen: waiting::arm(self.ctl), nap }
    }

    /// Wakes the thread of this rank that looks for messages.
    pub fn wake_own(&self) {
        self.ctl.wake();
    }

    /// Whether a fruitless poll gives the core away.
    pub fn yields_when_polled(&self, fruitless: u32) -> bool {
        self.spin.is_scarce() || fruitless.is_multiple_of(super::course::POLLS)
    }
}
