//! Checkpoints of all ranks of a job whose ranks come back alone (`--fallback-every`).
//!
//! Kept true: a node that gives its part of such a checkpoint up lets go who stands, has those
//! that do not yet be checkpointed by themselves, and says so if nobody else does. A run in which
//! all ranks return to a snapshot is over with that: what they do then is not modelled.

use crate::program;
use crate::real::Happens;
use crate::real::host::Simulation;
use crate::types::{Event, Mutation};
use crate::world::World;
use eyrie_control::FromNode;
use eyrie_protocol::membership::Member;
use std::collections::BTreeSet;

/// Once in so many times that ranks are to stand a controller dies, or a node leaves its part.
const STRUCK: u64 = 4;

impl World {
    /// How far ranks of a node have sent, by the slots that others have received in: where none
    /// goes on from a snapshot as far as can be.
    pub fn have_sent(&self, at: Member) -> Vec<(u32, Vec<u64>)> {
        if !self.fallback {
            return Vec::new();
        }
        if self.shares {
            let procs = self.nodes.get(&at).into_iter().flat_map(|n| &n.procs);
            let kinds = procs.flat_map(|(rank, proc)| [(*rank, proc, 0u8), (*rank, proc, 1)]);
            let upto = kinds.map(|(rank, proc, kind)| {
                let to = (0..self.ranks()).map(|to| proc.state.sent[program::slot(to, kind)]);
                (program::slot(rank, kind) as u32, to.collect())
            });
            return upto.collect();
        }
        let slots = self.ranks_at(at).into_iter().flat_map(|rank| [rank * 2, rank * 2 + 1]);
        slots.map(|slot| (slot, vec![u64::MAX; self.ranks() as usize])).collect()
    }

    /// A node gives its part of a checkpoint up: who stands goes on without an image, and who does
    /// not stand yet has one by itself.
    pub fn take_alone(
        &mut self,
        at: Member,
        generation: u32,
        parts: &[(u32, Option<Member>)],
        left: &BTreeSet<u32>,
    ) {
        for &(rank, partner) in parts {
            let proc = self.nodes.get(&at).and_then(|n| n.procs.get(&rank));
            match proc.filter(|p| !p.done && left.contains(&rank)) {
                Some(_) => self.capture(at, rank, generation, partner, false),
                None => {
                    let start = proc.map_or(0, |p| p.incarnation);
                    self.tell_spoilt(at, rank, generation, start);
                }
            }
        }
    }

    /// Not all ranks of a node that stand are where what is recorded of them ends, if they are to
    /// go on from there: it gives its part up.
    pub fn stands_behind(&mut self, at: Member, generation: u32, ranks: &[u32]) -> bool {
        let node = self.nodes.get(&at).filter(|_| self.shares && self.fallback);
        let behind = node.and_then(|n| ranks.iter().copied().find(|r| n.is_behind(*r)));
        let Some(rank) = behind.filter(|_| !self.mutated(Mutation::StandsBehind)) else {
            return false;
        };
        self.give_up_snapshot(at, generation, rank);
        let result = Err(format!("rank {rank} repeats itself"));
        self.tell_real(at, FromNode::Stands { generation, result, sent: Vec::new() });
        true
    }

    /// A node does not know whether its controller leads: nobody here waits for it.
    pub fn leave_together(&mut self, at: Member) {
        let taking = self.nodes.get(&at).and_then(|n| n.taken_together());
        let Some((generation, rank)) = taking else { return };
        self.trace(|| format!("FAULT {at} leaves checkpoint {generation} of all"));
        self.give_up_snapshot(at, generation, rank);
        // It may be known by what its ranks do alone.
        if self.random.one_in(2) {
            let result = Err(String::from("another controller may lead by now"));
            self.tell_real(at, FromNode::Stands { generation, result, sent: Vec::new() });
        }
    }
}

impl Simulation {
    /// All ranks are to stand: now and then somebody dies who takes part, or leaves it.
    pub(super) fn strike_together(&mut self, at: Member) {
        if !self.setup.fallback || !self.world.random.one_in(STRUCK) {
            return;
        }
        let after = self.world.random.below(150);
        self.world.at(after, Event::Real(Happens::Leave { member: at }));
        self.fault_nearby(2);
    }

    /// Whether all ranks have returned to a snapshot.
    pub(super) fn has_returned(&self) -> bool {
        self.setup.fallback && self.rollbacks > 0
    }
}
