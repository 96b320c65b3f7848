//! What an endpoint tells about memory that ranks have in common: who may have any with this one,
//! and where it is.

use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release};

use eyrie_ledger::windows::MappedArena;

use super::Endpoint;
use crate::presence::ring_daemon;

/// Why two ranks cannot have memory in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apart {
    /// They are on different nodes.
    Nodes,
    /// One may come back without the other.
    Units,
    /// Files may not be that long, or the job is not run by Eyrie.
    Room,
}

impl Endpoint {
    /// Whether a rank has its home on this node now.
    pub fn is_here(&self, rank: u32) -> bool {
        self.node_of(rank) == self.seg.node()
    }

    /// Whether the rank has come back, or begun anew.
    pub fn is_back(&self) -> bool {
        self.incarnation > 1
    }

    /// Whether nothing of what a rank does is recorded: it is never repeated.
    pub fn is_unrecorded(&self) -> bool {
        let recording = self.seg.header().recording();
        !recording.outcomes() && !recording.chains()
    }

    /// Whether the job has one node, or none of its ranks ever comes back.
    pub fn stays_whole(&self) -> bool {
        !self.linked || !self.seg.header().recording().protects()
    }

    /// Why this rank and another one cannot have memory in common, if they cannot.
    pub fn apart_from(&self, peer: u32) -> Option<Apart> {
        if !self.is_here(peer) {
            return Some(Apart::Nodes);
        }
        if !self.seg.has_arenas() {
            return Some(Apart::Room);
        }
        let recording = self.seg.header().recording();
        let inner = || self.seg.channel(self.rank, peer).inner.load(Relaxed) != 0;
        (!self.is_unrecorded() && (recording.chains() || !inner())).then_some(Apart::Units)
    }

    /// Whether ranks become one unit where they are to have memory in common
    /// ([`Endpoint::wants_unit_with`]).
    pub fn grows_units(&self) -> bool {
        self.seg.grows_units()
    }

    /// This rank waits to be one recovery unit with another one, as they are to have memory in
    /// common; none: it does not any more.
    pub fn wants_unit_with(&self, peer: Option<u32>) {
        let word = peer.map_or(0, |peer| peer + 1);
        if self.ctl.shares.swap(word, Release) != word && peer.is_some() {
            ring_daemon(self.seg.header());
        }
    }

    /// Bytes of the memory that a rank has to give.
    pub fn arena_bytes(&self) -> u64 {
        self.seg.geometry().arena_bytes()
    }

    /// Maps a part of what a rank has to give.
    pub fn map_arena(&self, rank: u32, offset: u64, bytes: u64) -> io::Result<MappedArena> {
        self.seg.map_arena(rank, offset, bytes)
    }
}
