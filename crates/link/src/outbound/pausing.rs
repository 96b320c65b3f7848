//! The pause of what goes to a rank that this node routes for, around a checkpoint of it
//! (`protocol::router_pause`).
//!
//! Kept true: a mark goes on the connection behind every piece that was sent to its rank, and no
//! piece behind the mark, until the rank is let go.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use eyrie_protocol::link::wire::{Backward, Forward};
use eyrie_protocol::router_pause::RouterPauses;

use super::{Outbound, Then};

/// What this node has been told to stop.
#[derive(Default)]
pub(super) struct Pausing {
    standing: RouterPauses,
    /// For each rank: since when, and what is to be done when its mark is answered.
    begun: BTreeMap<u32, (Instant, Option<Then>)>,
    /// What is to be done now.
    settled: Vec<Then>,
    /// Pauses that are over, and how long they took together.
    over: (u64, Duration),
}

impl Pausing {
    /// What is to be done as marks were answered.
    pub fn settled(&mut self) -> Vec<Then> {
        std::mem::take(&mut self.settled)
    }

    pub fn over(&self) -> (u64, Duration) {
        self.over
    }
}

impl Outbound {
    /// Sends nothing more to `rank`; does `then` when its node has all that was sent.
    pub fn pause(&mut self, rank: u32, generation: u32, then: Then) {
        let routed = rank < self.ranks() && self.paths.routes(rank);
        if routed && self.pausing.standing.pause(rank, generation) {
            self.pausing.begun.insert(rank, (Instant::now(), Some(then)));
            self.peers.values_mut().for_each(|peer| peer.sender.hold(rank));
        }
    }

    /// The checkpoint of `rank` is over, or the rank goes on at least.
    pub fn resume(&mut self, rank: u32, generation: u32) {
        if self.pausing.standing.resume(rank, generation) {
            self.go_on(rank);
        }
    }

    /// The process that was to be checkpointed is not to be reached from here any more.
    pub(super) fn forget_pause(&mut self, rank: u32) {
        if self.pausing.standing.forget(rank) {
            self.go_on(rank);
        }
    }

    fn go_on(&mut self, rank: u32) {
        if let Some((since, _)) = self.pausing.begun.remove(&rank) {
            self.pausing.over.0 += 1;
            self.pausing.over.1 += since.elapsed();
        }
        self.peers.values_mut().for_each(|peer| peer.sender.let_go(rank));
        self.look_at_streams_to(rank);
    }

    /// Whether a mark is to go to a node.
    pub(super) fn has_mark_for(&self, node: u32) -> bool {
        self.pausing.standing.unmarked().any(|rank| self.paths.home(rank) == node)
    }

    /// A connection to a node was made: the marks on the one before are lost.
    pub(super) fn marks_lost(&mut self, node: u32) {
        let paths = &self.paths;
        self.pausing.standing.reconnected(|rank| paths.home(rank) == node);
    }

    /// Puts marks on the connections, behind all that was sent so far. Whether there were any.
    pub(super) fn send_marks(&mut self) -> bool {
        let mut sent = false;
        for rank in self.pausing.standing.unmarked().collect::<Vec<_>>() {
            let peer = self.peers.get(&self.paths.home(rank));
            let Some(connection) = peer.and_then(|p| p.connection.as_ref()) else { continue };
            if let Some(generation) = self.pausing.standing.mark(rank) {
                connection.push(|out| Forward::Mark { rank, generation }.encode(out, 0));
                sent = true;
            }
        }
        sent
    }

    /// Takes what a rank's node says of a pause, on the connection that stands. False: it says
    /// something else.
    pub(super) fn hear_of_pause(&mut self, node: u32, answer: Backward) -> bool {
        let (Backward::Marked { rank, .. } | Backward::GoOn { rank, .. }) = answer else {
            return false;
        };
        if rank >= self.ranks() || self.paths.home(rank) != node {
            return true;
        }
        match answer {
            Backward::Marked { generation, .. }
                if self.pausing.standing.answered(rank, generation) =>
            {
                let begun = self.pausing.begun.get_mut(&rank);
                self.pausing.settled.extend(begun.and_then(|b| b.1.take()));
            }
            Backward::GoOn { generation, .. } => self.resume(rank, generation),
            _ => {}
        }
        true
    }
}
