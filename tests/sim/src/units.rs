//! Recovery units in the simulation: sets of a unit's images, killing those who go back, and what
//! ranks of a unit pass each other.
//!
//! Real: the planner. Modelled: how ranks come to stand.

use crate::program::Channel;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Input;
use eyrie_protocol::recovery::Planner;
use std::collections::{BTreeMap, BTreeSet};

/// A set that is being taken at a node.
pub struct Set {
    generation: u32,
    parts: Vec<(u32, Option<Member>)>,
    /// Ranks that do not stand yet.
    left: BTreeSet<u32>,
    /// A mutation: images of ranks that went on at once.
    early: BTreeMap<u32, Image>,
}

impl World {
    /// The planner and the scheduler are those of a job whose units are nodes.
    pub fn unite(&mut self) {
        if !self.mutated(Mutation::OnlyTheDead) {
            self.controller.planner = Planner::by_node(self.units.clone());
        }
        self.controller.units = self.units.clone();
        self.controller.every = 150 + self.random.below(300);
        self.renew_scheduler();
    }

    /// Whether a channel is between two ranks of one recovery unit.
    pub fn is_inner(&self, (from, to, _): Channel) -> bool {
        let unit = self.units.get(from as usize);
        unit.is_some() && unit == self.units.get(to as usize)
    }

    // ---- at a node

    /// All ranks of a unit are to stand.
    pub fn begin_set(&mut self, at: Member, generation: u32, parts: Vec<(u32, Option<Member>)>) {
        let mut left: BTreeSet<u32> = parts.iter().map(|p| p.0).collect();
        let mut early = BTreeMap::new();
        if let (true, Some(first)) = (self.mutated(Mutation::OneGoesOn), parts.first()) {
            early.extend(self.image_of(at, first.0).map(|image| (first.0, image)));
            left.remove(&first.0);
        }
        for &rank in &left {
            let after = self.random.below(100);
            self.at(after, Event::Stand { at, rank, generation });
        }
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.sets.push(Set { generation, parts, left, early });
        self.end_set_if_all_stand(at, generation);
    }

    /// A rank stands.
    pub fn stand(&mut self, at: Member, rank: u32, generation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let this = |s: &&mut Set| s.generation == generation && s.left.contains(&rank);
        let Some(set) = node.sets.iter_mut().find(this) else { return };
        set.left.remove(&rank);
        match node.procs.get_mut(&rank).filter(|p| !p.done) {
            Some(proc) => proc.stands = true,
            // Without it there is no set.
            None => return self.give_up_set(at, generation),
        }
        self.end_set_if_all_stand(at, generation);
    }

    fn end_set_if_all_stand(&mut self, at: Member, generation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let whole = |s: &Set| s.generation == generation && s.left.is_empty();
        let Some(index) = node.sets.iter().position(whole) else { return };
        let stands = |r: &u32| node.procs.get(r).is_some_and(|p| p.stands);
        let set = &node.sets[index];
        if !set.parts.iter().all(|p| set.early.contains_key(&p.0) || stands(&p.0)) {
            return self.give_up_set(at, generation);
        }
        let mut set = node.sets.remove(index);
        let mut images = Vec::new();
        for &(rank, partner) in &set.parts {
            let image = set.early.remove(&rank).or_else(|| self.image_of(at, rank));
            images.extend(image.map(|image| (rank, partner, image)));
        }
        // What was sent by then is kept: all go on, and what they kept is written.
        for (rank, partner, image) in images {
            self.write(at, (rank, generation), partner, image);
        }
        self.unit_goes_on(at, &set);
    }

    fn give_up_set(&mut self, at: Member, generation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let this = |s: &Set| s.generation == generation;
        let Some(index) = node.sets.iter().position(this) else { return };
        let set = node.sets.remove(index);
        self.unit_goes_on(at, &set);
        let rank = set.parts[0].0;
        self.tell(at, FromNode::NoCheckpoint { rank });
    }

    fn unit_goes_on(&mut self, at: Member, set: &Set) {
        for (rank, _) in &set.parts {
            let Some(node) = self.nodes.get_mut(&at) else { return };
            let Some(proc) = node.procs.get_mut(rank) else { continue };
            proc.stands = false;
            if std::mem::take(&mut proc.would_go_on) {
                let (rank, incarnation) = (*rank, proc.incarnation);
                let after = 1 + self.random.below(10);
                self.at(after, Event::Step { at, rank, incarnation });
            }
        }
    }

    /// Its unit goes back.
    pub fn kill(&mut self, at: Member, rank: u32, incarnation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.orders.retain(|r, o| *r != rank || o.0.incarnation > incarnation);
        let proc = node.procs.get(&rank).filter(|p| p.incarnation <= incarnation);
        let done = proc.is_some_and(|p| p.done);
        if proc.is_some() {
            node.procs.remove(&rank);
        }
        // Of one that has ended that is told already.
        if !done {
            self.tell(at, FromNode::RankDied { rank, incarnation });
        }
    }

    /// A unit comes back here: nothing of what its ranks passed each other is needed.
    pub fn gather(&mut self, at: Member, ranks: &[u32]) {
        for &rank in ranks {
            let live = |n: &crate::node::Node| n.procs.get(&rank).is_some_and(|p| !p.done);
            let members = self.controller.planner.members();
            if members.iter().any(|m| self.nodes.get(m).is_some_and(live)) {
                return self.fail(format!("rank {rank} lives while its unit goes back"));
            }
        }
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let of = |rank: &u32| ranks.contains(rank);
        node.procs.retain(|rank, _| !of(rank));
        node.segment.streams.retain(|c, _| !(of(&c.0) && of(&c.1)));
    }

    // ---- at the controller

    /// What the scheduler counts: a unit or a rank.
    pub fn slot(&self, rank: u32) -> u32 {
        self.units.get(rank as usize).copied().unwrap_or(rank)
    }

    /// The ranks that are checkpointed together.
    pub fn ranks_of(&self, slot: u32) -> Vec<u32> {
        (0..self.ranks()).filter(|r| self.slot(*r) == slot).collect()
    }

    /// Orders a set of a unit. False: not all of its ranks run.
    pub fn order_set(&mut self, unit: u32) -> bool {
        let ranks = self.ranks_of(unit);
        let home = ranks.first().and_then(|r| self.controller.planner.home(*r));
        let live = |r: &u32| self.controller.live.contains(r);
        let Some(at) = home.filter(|_| ranks.iter().all(live)) else { return false };
        let mut parts = Vec::new();
        let mut generation = 0;
        for rank in ranks {
            generation = self.controller.retention[rank as usize].begin();
            self.controller.capturing.insert(rank, generation);
            let partner = self.controller.planner.partner(rank);
            parts.push((rank, partner.filter(|_| self.random.one_in(3))));
        }
        self.trace(|| format!("set {generation} of unit {unit}"));
        self.say_to(at, ToNode::Set { generation, parts });
        self.fault_nearby(12);
        true
    }

    /// Of a set one image will not be: there is no set.
    pub fn void_set(&mut self, rank: u32) {
        let unit = self.slot(rank);
        let capturing = |r: u32| self.controller.capturing.get(&r).copied();
        let ranks = self.ranks_of(unit);
        let Some(generation) = ranks.iter().find_map(|r| capturing(*r)) else { return };
        for rank in ranks {
            self.capture_over(rank, generation);
        }
        self.planner(Input::VoidUnit { unit, generation });
    }

    /// A rank of a unit is brought back: something of its unit must have been lost.
    pub fn check_hurt(&mut self, rank: u32, incarnation: u32) {
        let unit = self.slot(rank);
        let hurt = self.truth.hurt.contains(&unit) || self.report.roll_backs > 0;
        if !self.units.is_empty() && incarnation > 1 && !hurt {
            self.fail(format!("rank {rank} goes back, and nothing of its unit was lost"));
        }
    }
}
