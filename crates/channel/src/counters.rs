//! What a rank has done, waited for and holds, in numbers for tools (MPI_T).
//!
//! Kept true: what the rank counts itself (`Counters`) lies in its own memory, so that it goes back
//! with the program and is counted again in a replay; what else there is lies in the segment. All
//! are atomics, which another thread of the rank may read at any time.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use eyrie_ledger::clock;
use eyrie_ledger::recording::Recording;
use eyrie_ledger::segment::{RankCtl, Segment};

use crate::endpoint::Endpoint;

/// Bytes of a word of the determinant log.
const WORD_BYTES: u64 = 8;

/// What a rank counts itself. Only its thread in MPI writes.
#[derive(Default)]
pub struct Counters {
    sent: AtomicU64,
    bytes_sent: AtomicU64,
    received: AtomicU64,
    bytes_received: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
}

/// Adds to a number that nobody else writes; returns what it comes to.
#[inline]
fn add(counter: &AtomicU64, more: u64) -> u64 {
    let sum = counter.load(Relaxed).wrapping_add(more);
    counter.store(sum, Relaxed);
    sum
}

impl Counters {
    #[inline]
    pub(crate) fn sent(&self, bytes: u64) {
        add(&self.sent, 1);
        add(&self.bytes_sent, bytes);
    }

    /// Of a message whose payload lies elsewhere.
    pub(crate) fn sent_beside(&self, bytes: u64) {
        add(&self.bytes_sent, bytes);
    }

    /// Messages that were received with this one.
    #[inline]
    pub(crate) fn received(&self, bytes: u64) -> u64 {
        add(&self.bytes_received, bytes);
        add(&self.received, 1)
    }

    /// It was waited from then (`clock::now`) until now.
    #[cold]
    pub fn waited_since(&self, begun_ns: u64) {
        add(&self.waits, 1);
        add(&self.waited_ns, clock::now().saturating_sub(begun_ns));
    }
}

/// A number that a tool may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gauge {
    MessagesSent,
    BytesSent,
    MessagesReceived,
    BytesReceived,
    Waits,
    WaitedNs,
    /// Messages that were taken ahead of the links.
    Early,
    LogBytes,
    LogSizeBytes,
    DeterminantBytes,
    /// Number of the rank's newest checkpoint, 0: none.
    Checkpoint,
    /// How often the rank came back.
    Recoveries,
    /// Sends and outcomes that the present process has repeated.
    Repeated,
    /// 1 while the rank repeats itself.
    IsRepeating,
    Rank,
    Ranks,
    Node,
    Cores,
    ChunkBytes,
    /// Who takes early messages (`datagram::Wish`).
    EarlyWish,
}

/// All numbers of a rank.
#[derive(Clone)]
pub struct Gauges {
    seg: &'static Segment,
    ctl: &'static RankCtl,
    rank: u32,
    own: Arc<Counters>,
}

impl Gauges {
    pub fn get(&self, gauge: Gauge) -> u64 {
        let (own, ctl, geo) = (&self.own, self.ctl, self.seg.geometry());
        let chunk_bytes = u64::from(geo.chunk_bytes);
        match gauge {
            Gauge::MessagesSent => own.sent.load(Relaxed),
            Gauge::BytesSent => own.bytes_sent.load(Relaxed),
            Gauge::MessagesReceived => own.received.load(Relaxed),
            Gauge::BytesReceived => own.bytes_received.load(Relaxed),
            Gauge::Waits => own.waits.load(Relaxed),
            Gauge::WaitedNs => own.waited_ns.load(Relaxed),
            Gauge::Early => ctl.early_taken.load(Relaxed),
            Gauge::LogBytes => ctl.chunks_used.load(Relaxed).saturating_mul(chunk_bytes),
            Gauge::LogSizeBytes => u64::from(geo.pool_chunks) * chunk_bytes,
            Gauge::DeterminantBytes => ctl.det_tail.load(Acquire).saturating_mul(WORD_BYTES),
            Gauge::Checkpoint => ctl.checkpoint.load(Relaxed),
            Gauge::Recoveries => u64::from(ctl.incarnation.load(Relaxed).saturating_sub(1)),
            Gauge::Repeated => ctl.replayed.load(Relaxed),
            Gauge::IsRepeating => u64::from(ctl.replaying.load(Relaxed)),
            Gauge::Rank => u64::from(self.rank),
            Gauge::Ranks => u64::from(geo.ranks),
            Gauge::Node => u64::from(ctl.home.load(Relaxed)),
            Gauge::Cores => u64::from(self.seg.header().cores.load(Relaxed)),
            Gauge::ChunkBytes => chunk_bytes,
            Gauge::EarlyWish => u64::from(self.seg.header().early.load(Relaxed)),
        }
    }

    /// What the job records and keeps.
    pub fn recording(&self) -> Recording {
        self.seg.header().recording()
    }
}

impl Endpoint {
    pub fn gauges(&self) -> Gauges {
        let (seg, ctl, rank) = self.own_place();
        Gauges { seg, ctl, rank, own: Arc::clone(self.counters()) }
    }
}
