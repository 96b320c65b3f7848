//! What an endpoint tells of ranks that are lost and not brought back (`--on-failure report`).

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::Endpoint;
use crate::presence::ring_daemon;
use crate::single_copy;

impl Endpoint {
    /// Whether they are told here, and not brought back.
    pub fn reports_failures(&self) -> bool {
        self.seg.reports_failures()
    }

    /// How many are lost.
    #[inline]
    pub fn failures(&self) -> u32 {
        self.seg.failures()
    }

    pub fn is_failed(&self, rank: u32) -> bool {
        self.seg.is_failed(rank)
    }

    /// Whether a rank that is lost does not come back, and nothing is repeated.
    pub fn loses_for_good(&self) -> bool {
        !self.seg.header().recording().protects()
    }

    /// What is logged for `dst` just now is not read in this process's memory any more.
    pub fn hide(&self, dst: u32) {
        single_copy::withdraw(self.seg.channel(self.rank, dst), self.spin.looks());
    }

    /// Tells of any rank whether it is lost, for who does not have this at hand.
    pub fn lost_ranks(&self) -> impl Fn(u32) -> bool + use<> {
        let (seg, size) = (self.seg, self.size);
        move |rank| rank < size && seg.is_failed(rank)
    }

    /// Nothing more is sent to a lost rank, and nobody reads what was: its room is free again.
    pub fn abandon(&mut self, dst: u32) {
        if !self.is_far(dst) {
            let sent = self.log.position(dst);
            self.seg.channel(self.rank, dst).trim.fetch_max(sent, AcqRel);
        }
    }

    /// The program has handled that so many ranks are lost.
    pub fn handled(&self, failures: u32) {
        if self.ctl.handled.load(Relaxed) < failures {
            self.ctl.handled.store(failures, Release);
            ring_daemon(self.seg.header());
        }
    }
}
