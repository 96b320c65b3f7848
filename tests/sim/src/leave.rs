//! Nodes that leave: what they do that are told so, and what must not go with them.

use crate::types::*;
use crate::world::{VAULT_BEARS, World};
use eyrie_protocol::membership::Member;
use eyrie_protocol::replicas::Answer;
use eyrie_protocol::vacated::Vacated;

impl World {
    /// Fewer nodes bear less.
    pub fn bear_less(&mut self) {
        let stay = self.controller.planner.takers().len() as u64;
        let most = if self.controller.planner.vaults() { self.truth.bears } else { 1 };
        let least = self.truth.bears - most.min(stay.saturating_sub(1));
        self.truth.deaths = self.truth.deaths.max(least);
    }

    /// If all is whole, as many nodes may be lost from now on as is to be survived.
    pub fn count_anew(&mut self) {
        if self.is_whole() {
            let members = self.controller.planner.takers().len() as u64;
            let most = if self.controller.planner.vaults() { VAULT_BEARS } else { 1 };
            let most = most.min(self.truth.bears);
            self.truth.deaths = self.truth.bears - most.min(members.saturating_sub(1));
        }
    }

    /// A node hears who leaves.
    pub fn hear_leaving(&mut self, at: Member, round: u64, members: &[Member]) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let all = node.members.clone();
        node.gate.set_leaving(members, &all);
        if self.mutated(Mutation::LeavesUnguarded) {
            return self.tell(at, FromNode::Guarded { round });
        }
        self.leave(at, FromNode::Guarded { round });
    }

    /// The ranks of a node stand for good: their processes end.
    pub fn vacate(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let procs = std::mem::take(&mut node.procs);
        node.orders.clear();
        let homes = (0u32..).zip(&node.homes).filter(|(_, home)| **home == Some(at));
        node.vacated = Vacated::all(homes.map(|(rank, _)| rank));
        for (rank, proc) in procs.into_iter().filter(|(_, p)| !p.done) {
            self.stood.insert(rank, proc.state.at);
        }
    }

    /// A rank goes on that stood.
    pub fn rank_goes_on(&mut self, at: Member, rank: u32) {
        if !self.mutated(Mutation::HeldLater) {
            self.hold_no_more(at, rank);
        }
        let Some(proc) = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank)) else {
            return;
        };
        if std::mem::take(&mut proc.held) {
            proc.waits = false;
            let incarnation = proc.incarnation;
            self.at(5, Event::Step { at, rank, incarnation });
        }
    }

    /// A node that leaves knows the outcomes of its own ranks.
    pub fn own_answer(&self, at: Member, ranks: &[u32], answer: &mut Answer) {
        let Some(node) = self.nodes.get(&at) else { return };
        let recorded = |rank| node.segment.det.get(&rank).cloned().unwrap_or_default();
        node.vacated.answer(at, ranks, recorded, answer);
    }

    /// The same, when these stayed as it was dismissed. A turn of the controller may go on
    /// after that, and images may count by then that are no matter of the node.
    pub fn check_left_to(&mut self, gone: Member, stay: &[Member], vaults: bool) {
        let in_step = |of: &Member, with: &Member| {
            let answer = self.nodes.get(of).map(|n| n.replicas.answer(&[]));
            answer.is_none_or(|a| a.in_step.contains(with))
        };
        let knows = stay.len() > 1 && !self.together;
        for own in stay.iter().filter(|m| knows && self.nodes.contains_key(m)) {
            if !stay.iter().any(|m| m != own && in_step(m, own)) {
                return self.fail(format!("{gone} goes, and nobody else knows {own}"));
            }
        }
        for rank in 0..self.ranks() {
            let kept = self.controller.retention[rank as usize].newest_first();
            let kept: Vec<u32> = kept.map(|k| k.generation).filter(|g| *g > 0).collect();
            for generation in kept {
                let image = (rank, generation);
                let has =
                    |m: &&Member| self.nodes.get(m).is_none_or(|n| n.disk.contains_key(&image));
                let is_there = self.nodes.get(&gone).is_some_and(|n| n.disk.contains_key(&image));
                let copies = stay.iter().filter(has).count() >= 2.min(stay.len());
                // What only the vault has is brought nowhere.
                let only_given = self.is_only_given(&image);
                let safe = match vaults {
                    true => self.is_given(&image),
                    false => copies || only_given,
                };
                if vaults && self.thins(&image, gone) {
                    self.fail(format!("{gone} goes, and guards image {generation} of rank {rank}"));
                }
                if !safe && is_there {
                    self.fail(format!(
                        "{gone} goes, and image {generation} of rank {rank} with it"
                    ));
                }
            }
        }
    }

    /// Whether an image of ranks that go back together is kept by fewer than at first when a node
    /// goes, though it could be brought into the vault anew.
    fn thins(&self, image: &(u32, u32), without: Member) -> bool {
        let has = |n: &crate::node::Node| n.disk.get(image).is_some_and(|stored| !stored.bad);
        let guards = self.vault.get(image).is_some_and(|(_, members)| members.contains(&without));
        self.together && guards && self.nodes.values().any(has)
    }

    /// A rank that left its node starts where it stood, if nothing else has happened.
    pub fn check_nothing_again(&mut self, rank: u32, from: usize) {
        if let Some(stood) = self.stood.remove(&rank)
            && stood != from
            && self.report.faults + self.report.unfit == 0
        {
            self.fail(format!("rank {rank} stood at {stood} and begins at {from} again"));
        }
    }
}
