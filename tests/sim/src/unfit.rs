//! Nodes that are there and well, and that ranks cannot be brought back at for a while: the disk is
//! full, no process can be started.

use crate::random::Random;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Input;
use std::collections::BTreeMap;

/// When which nodes are so; with chances of its own, so that all else is as it is without.
#[derive(Clone)]
pub struct Unfit {
    random: Random,
    /// Whether that comes in this run.
    comes: bool,
    until: BTreeMap<Member, (Time, Stumble)>,
}

impl Unfit {
    pub fn new(seed: u64) -> Unfit {
        let mut random = Random::new(!seed);
        let comes = random.one_in(3);
        Unfit { random, comes, until: BTreeMap::new() }
    }

    /// It does not.
    pub fn never(&mut self) {
        self.comes = false;
    }
}

impl World {
    /// Whether a rank that is ordered at a node now does not come there.
    pub fn stumbles(&mut self, at: Member, incarnation: u32) -> Option<Stumble> {
        if !self.unfit.comes || incarnation == 1 {
            return None;
        }
        let now = self.now;
        let unfit = &mut self.unfit;
        if !unfit.until.contains_key(&at) && unfit.random.one_in(4) {
            let why = if unfit.random.one_in(2) { Stumble::NoImage } else { Stumble::NoStart };
            unfit.until.insert(at, (now + 200 + unfit.random.below(3000), why));
        }
        unfit.until.get(&at).filter(|u| u.0 > now).map(|u| u.1)
    }

    /// Tells a node to bring a rank back, which comes there or not.
    pub fn order_at(&mut self, at: Member, order: RestoreOrder) {
        let (rank, incarnation) = (order.rank, order.incarnation);
        let stumble = self.stumbles(at, incarnation);
        let told = order.told;
        self.say_to(at, ToNode::Restore(RestoreOrder { stumble, ..order }));
        if told {
            self.planner(Input::Starting { rank, incarnation });
        }
    }

    /// A node has what a rank is to be brought back from: it is told to start it.
    pub fn found(&mut self, at: Member, rank: u32, generation: u32, incarnation: u32) {
        // Another order may be on its way.
        if self.controller.planner.incarnation(rank) != incarnation {
            return;
        }
        if generation > 0 {
            // Where it came from may die.
            self.planner(Input::Stored { rank, incarnation, generation, at: vec![at] });
        }
        if self.dies_here_again(rank) {
            return self.planner(Input::Evicted { rank, incarnation });
        }
        if !self.mutated(Mutation::StartsUntold) {
            self.planner(Input::Starting { rank, incarnation });
        }
        self.say_to(at, ToNode::Start { rank, incarnation });
    }

    /// Whether a rank has died where it is to start now so often that it is to go elsewhere.
    fn dies_here_again(&mut self, rank: u32) -> bool {
        let may = self.unfit.comes && self.controller.planner.may_leave(rank);
        may && self.unfit.random.one_in(6)
    }

    /// The rank is brought back elsewhere: what is recorded of it here is told who asks.
    pub fn yield_rank(&mut self, at: Member, rank: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.orders.remove(&rank);
        node.vacated.yields(rank);
    }

    /// The node may do so.
    pub fn start_told(&mut self, at: Member, rank: u32, incarnation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let Some((order, _)) = node.orders.get_mut(&rank) else { return };
        if order.incarnation == incarnation {
            order.told = true;
            // From here on it is read where it was found; if it is damaged by now, that is said.
            order.from = None;
            self.try_order(at, rank);
        }
    }

    /// The node says so after a while.
    pub fn stumble(&mut self, at: Member, order: &RestoreOrder) {
        let (rank, incarnation) = (order.rank, order.incarnation);
        let after = 50 + self.unfit.random.below(400);
        self.trace(|| format!("{at} cannot have rank {rank} now: {:?}", order.stumble));
        self.report.unfit += 1;
        self.at(after, Event::Unfit { at, rank, incarnation });
    }

    /// A node has said so.
    pub fn unfit(&mut self, rank: u32, incarnation: u32, at: Member) {
        let planner = &self.controller.planner;
        if !self.mutated(Mutation::PlaceForImage) || planner.incarnation(rank) != incarnation {
            return self.planner(Input::Unfit { rank, incarnation, at });
        }
        let kept = &self.controller.retention[rank as usize];
        let Some(generation) = kept.newest().map(|k| k.generation) else { return };
        let holders: Vec<Member> = planner.holders(rank, generation).collect();
        if holders.is_empty() {
            return self.planner(Input::Unfit { rank, incarnation, at });
        }
        for at in holders {
            self.planner(Input::ImageBad { rank, incarnation, generation, at });
        }
    }
}
