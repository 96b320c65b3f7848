//! What an endpoint tells about the course of things: whether it may be repeated or is disturbed on
//! purpose, who may wait for whom, and what becomes of the core meanwhile.

use std::sync::atomic::Ordering::Relaxed;

use eyrie_ledger::reader::Entry;

use super::Endpoint;
use crate::waiting::{self, Nap};
use crate::whim::Whim;

/// Fruitless polls between two looks at whether others want the core.
const POLLS: u32 = 64;

impl Endpoint {
    /// The program calls this function: for reports.
    #[inline]
    pub fn called(&mut self, name: &'static str) {
        self.log.called(name);
    }

    /// Flags of a message that this function sends.
    #[inline]
    pub fn call_bits(&self) -> u32 {
        self.log.call_bits()
    }

    /// Whether messages are delayed and hastened on purpose.
    #[inline]
    pub fn is_whimsical(&self) -> bool {
        self.whim.is_some()
    }

    /// Whether the entry that `peek` returned is overlooked for now.
    #[cold]
    pub fn overlooks(&mut self, src: u32, entry: &Entry) -> bool {
        let at = self.rx[src as usize].reader.pos;
        self.whim.as_mut().is_some_and(|whim| whim.overlooks(src, at, entry))
    }

    /// Whether the call that begins is to look for all that has come.
    #[inline]
    pub fn is_eager(&mut self) -> bool {
        self.whim.as_mut().is_some_and(Whim::is_eager)
    }

    /// Whether this rank may have to repeat itself: outcomes are recorded.
    #[inline]
    pub fn is_repeatable(&self) -> bool {
        self.repeatable
    }

    /// Whether what this rank has taken note of from `src`, from position `start` on, and not taken
    /// out of the log, may be why `src` waits. Nobody tells of senders on other nodes: what is much
    /// of their log counts if this rank has waited for `long`.
    pub fn holds_up(&self, src: u32, start: u64, long: bool) -> bool {
        if !self.is_far(src) {
            return self.peers[src as usize].pressure.load(Relaxed) != 0;
        }
        let geo = self.seg.geometry();
        let pool = u64::from(geo.pool_chunks) * u64::from(geo.chunk_bytes);
        long && self.front(src).saturating_sub(start) >= pool / (2 * u64::from(geo.ranks))
    }

    /// Whether there are other nodes.
    pub fn is_linked(&self) -> bool {
        self.linked
    }

    /// Sleeps in a row that `idle` rounds of waiting are.
    pub fn naps(&self, idle: u32) -> u32 {
        idle.saturating_sub(self.patience.rounds())
    }

    /// Gives the core to somebody else, and sees how long he takes.
    pub(super) fn yield_core(&mut self) {
        let begun = waiting::now();
        self.presence.waiting(waiting::yield_core);
        self.patience.yielded(begun, waiting::now());
    }

    /// Gives the core away after a fruitless poll, each time when ranks outnumber the cores.
    pub fn polled(&mut self, fruitless: u32) {
        let looks = fruitless % POLLS == POLLS - 1;
        if looks {
            self.patience.look_around();
        }
        if !looks && (self.patience.is_crowded() || !self.patience.is_scarce()) {
            return;
        }
        if self.patience.is_crowded() { self.doze() } else { self.yield_core() }
    }

    /// Sleeps until something comes, or for a moment: it may have come just before.
    #[cold]
    fn doze(&mut self) {
        let (ctl, seen) = (self.ctl, waiting::arm(self.ctl));
        self.presence.waiting(|| waiting::sleep(ctl, seen, Nap::Brief(0)));
        waiting::disarm(ctl);
    }

    /// Asks for log space, of the daemon and of the ranks of this node, who may keep what they have
    /// not taken yet.
    pub fn press_all(&mut self) {
        if self.ctl.pressure.load(Relaxed) == 0 {
            self.press(true);
            for peer in self.peers.iter().filter(|p| !std::ptr::eq(**p, self.ctl)) {
                let _elsewhere = !waiting::ring(peer);
            }
        }
    }
}
