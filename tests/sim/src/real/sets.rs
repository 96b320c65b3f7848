//! Checkpoints of several ranks at a simulated node that the real controller leads, and coming back
//! from them; routers that stand for a checkpoint.

use crate::world::World;
use eyrie_control as control;
use eyrie_control::cross_node_sockets::{NodeEnds, Rejoin, RejoinStep, Rejoined};
use eyrie_control::node::SetPart;
use eyrie_protocol::membership::Member;
use std::net::{IpAddr, Ipv4Addr};

impl World {
    pub fn obey_set(&mut self, at: Member, order: control::ToNode) {
        use control::ToNode as To;
        match order {
            To::CheckpointSet { parts, generation, hold, .. } => {
                self.order_set(at, generation, &parts, hold);
            }
            To::GoOn { generation, keep } => {
                if let Some(unit) = self.snapshot_at(at, generation) {
                    self.go_on_snapshot(at, unit, generation, keep);
                }
            }
            To::ReadFar { generation, .. } => {
                self.tell_real(at, control::FromNode::HasRead { generation, result: Ok(()) });
            }
            To::Rejoin(Rejoin { generation, turn, step }) => {
                let result = Ok(rejoined(&step));
                self.tell_real(at, control::FromNode::Rejoined { generation, turn, result });
            }
            To::Gather { ranks, life } => self.gather(at, &ranks, life),
            To::Pause { rank, generation } => self.pause(at, rank, generation),
            To::Resume { rank, generation } => {
                self.node(at).into_iter().for_each(|n| _ = n.standing.resume(rank, generation));
            }
            _ => {}
        }
    }

    /// Whether this process of a rank is there and has not ended.
    pub fn lives_on(&self, at: Member, rank: u32, incarnation: u32) -> bool {
        let proc = self.nodes.get(&at).and_then(|n| n.procs.get(&rank));
        proc.is_some_and(|p| p.incarnation == incarnation && !p.done)
    }

    /// The ranks of a node that are checkpointed together are to stand.
    fn order_set(&mut self, at: Member, generation: u32, parts: &[SetPart], hold: bool) {
        let runs = |p: &SetPart| self.lives_on(at, p.rank, p.start as u32);
        if !parts.iter().all(runs) && !self.fallback {
            for part in parts {
                self.tell_spoilt(at, part.rank, generation, part.start as u32);
            }
            return;
        }
        // One that is gone is found to be so when the image is to go there.
        let gone = |node| Member { node, epoch: 0 };
        let partner = |node| self.known_member(at, node).unwrap_or_else(|| gone(node));
        let partners: Vec<_> = parts.iter().map(|p| (p.rank, p.partner.map(partner))).collect();
        let taking = parts.iter().map(|p| (p.rank, generation));
        self.node(at).into_iter().for_each(|n| n.real.taking.extend(taking.clone()));
        self.begin_snapshot(at, generation, partners, hold);
    }

    /// All ranks that stand go on.
    pub fn all_go_on(&mut self, at: Member) {
        let held = |n: &crate::node::Node| n.procs.keys().copied().collect();
        let ranks: Vec<u32> = self.nodes.get(&at).map(held).unwrap_or_default();
        ranks.into_iter().for_each(|rank| self.rank_goes_on(at, rank));
    }

    /// Where ranks stood that go back, in case that is because some of them leave their nodes.
    pub fn note_stood(&mut self, at: Member, ranks: &[u32]) {
        let Some(node) = self.nodes.get(&at).filter(|_| !self.units.is_empty()) else { return };
        let killed = node.procs.iter().filter(|(rank, p)| ranks.contains(rank) && !p.done);
        let stood: Vec<(u32, usize)> = killed.map(|(rank, p)| (*rank, p.state.at)).collect();
        self.stood.extend(stood);
    }

    /// Something of the units of these ranks is lost, or moves.
    pub fn hurt(&mut self, ranks: impl IntoIterator<Item = u32>) {
        let units: Vec<u32> = ranks.into_iter().map(|rank| self.slot(rank)).collect();
        self.truth.hurt.extend(units);
    }

    /// Ranks that are on a node, as it or the controller knows.
    pub fn ranks_at(&self, at: Member) -> Vec<u32> {
        let planner = &self.controller.planner;
        let home = |rank: &u32| planner.home(*rank).is_some_and(|m| m.node == at.node);
        let node = self.nodes.get(&at);
        let there = node.into_iter().flat_map(|n| n.procs.keys().chain(n.orders.keys())).copied();
        there.chain((0..self.ranks()).filter(home)).collect()
    }
}

/// Ranks here have no connections of their own.
fn rejoined(step: &RejoinStep) -> Rejoined {
    match step {
        RejoinStep::Look { .. } => {
            let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
            Rejoined::NodeEnds(NodeEnds { network: Vec::new(), here, ends: Vec::new() })
        }
        RejoinStep::Join { .. } => Rejoined::Joined { failed: Vec::new() },
        RejoinStep::Settle => Rejoined::Settled,
    }
}
