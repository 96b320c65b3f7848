//! What an endpoint tells about the course of things: whether it may be repeated or is disturbed on
//! purpose, who may wait for whom, and what becomes of the core meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread;
use std::time::Duration;

use eyrie_ledger::door::{self, Told, What};
use eyrie_ledger::reader::Entry;
use eyrie_ledger::segment::{RankCtl, Segment};

use super::Endpoint;
use crate::counters::Counters;
use crate::dormant::room_of;
use crate::perturbation::Perturbation;
use crate::waiting::{self, Nap};

/// Fruitless polls between two looks at whether others want the core.
pub(super) const POLLS: u32 = 64;
/// How often the core is given away until it is slept instead, for what other nodes hold.
const YIELDS: u32 = 200;
/// Between two looks then.
const LOOKS: Duration = Duration::from_micros(50);
/// Rounds between two calls of the thread that brings it to them: it may have been busy.
const HASTENINGS: u32 = 100;

impl Endpoint {
    /// What this rank counts; it goes back with the program.
    #[inline]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// The job's segment, this rank's part of it, and its number.
    pub(crate) fn own_place(&self) -> (&'static Segment, &'static RankCtl, u32) {
        (self.seg, self.ctl, self.rank)
    }

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
    pub fn is_perturbed(&self) -> bool {
        self.perturbation.is_some()
    }

    /// Whether the entry that `peek` returned is overlooked for now.
    #[cold]
    pub fn overlooks(&mut self, src: u32, entry: &Entry) -> bool {
        let at = self.rx[src as usize].reader.pos;
        self.perturbation.as_mut().is_some_and(|whim| whim.overlooks(src, at, entry))
    }

    /// Whether the call that begins is to look for all that has come.
    #[inline]
    pub fn is_eager(&mut self) -> bool {
        self.perturbation.as_mut().is_some_and(Perturbation::is_eager)
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

    /// What is sent to `dst` from now on is for its program of that number. All programs of a job
    /// have the same number, but for those that ranks have started.
    pub fn address(&mut self, dst: u32, world: u32) {
        self.log.address(dst, world);
    }

    /// Number of the program of a rank that this one speaks to; its own for itself.
    pub fn addressed(&self, rank: u32) -> u32 {
        if rank == self.rank { self.world } else { self.log.addressed(rank) }
    }

    /// How many of the job's ranks, the last ones, are there for programs that others start.
    pub fn room(&self) -> u32 {
        room_of(self.seg)
    }

    /// Who has ended of a job with such ranks: `GONE_*`.
    pub fn gone(&self) -> u32 {
        self.seg.header().gone.load(Acquire)
    }

    /// Whether there are other nodes.
    pub fn is_linked(&self) -> bool {
        self.linked
    }

    /// Waits until other nodes hold all that the ranks of this node have recorded, if any do.
    /// Nothing is received meanwhile: what a replay does not wait for, must not happen here.
    pub fn await_held(&self) {
        if !self.linked {
            return;
        }
        let recorded = self.seg.recorded();
        let mut rounds = 0;
        while !self.seg.are_held(&recorded) {
            if rounds % HASTENINGS == 0 {
                self.seg.hasten_links();
            }
            rounds += 1;
            if rounds < YIELDS { waiting::yield_core() } else { thread::sleep(LOOKS) }
        }
    }

    /// What of these kinds the C library told a rank of this node ([`door::told`]).
    pub fn told(&self, rank: u32, kinds: &[What], found: impl FnMut(Told<'_>)) {
        door::told(self.seg, rank, kinds, found);
    }

    /// Sleeps in a row that `idle` rounds of waiting are.
    pub fn naps(&self, idle: u32) -> u32 {
        idle.saturating_sub(self.spin.rounds())
    }

    /// Gives the core to somebody else, and sees how long he takes.
    pub(super) fn yield_core(&mut self) {
        let begun = waiting::now();
        self.presence.waiting(waiting::yield_core);
        self.spin.yielded(begun, waiting::now());
    }

    /// Gives the core away after a fruitless poll, each time when ranks outnumber the cores.
    pub fn polled(&mut self, fruitless: u32) {
        let looks = fruitless % POLLS == POLLS - 1;
        if looks {
            self.spin.look_around();
        }
        if !looks && (self.spin.is_crowded() || !self.spin.is_scarce()) {
            return;
        }
        if self.spin.is_crowded() { self.doze() } else { self.yield_core() }
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
