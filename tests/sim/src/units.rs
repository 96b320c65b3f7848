//! Recovery units in the simulation: sets of a unit's images, killing those who go back, and what
//! ranks of a unit pass each other.
//!
//! Real: the planner, and what says when ranks of several nodes go on (`sets`). Modelled: how ranks
//! come to stand.

use crate::program::Channel;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::{Member, Neighbours};
use eyrie_protocol::recovery::{Input, Planner};
use eyrie_protocol::sets::{self, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// A set that is being taken at a node.
#[derive(Clone)]
pub struct Set {
    generation: u32,
    parts: Vec<(u32, Option<Member>)>,
    /// Ranks that do not stand yet.
    left: BTreeSet<u32>,
    /// A mutation: images of ranks that went on at once.
    early: BTreeMap<u32, Image>,
    /// They stand from then on.
    hold: bool,
    /// All stand, and this is kept when those of other nodes do, too.
    kept: Vec<(u32, Option<Member>, Image)>,
}

impl Set {
    /// Whether it is the one of that number that this rank is in.
    fn is(&self, generation: u32, rank: u32) -> bool {
        self.generation == generation && self.parts.iter().any(|p| p.0 == rank)
    }
}

impl World {
    /// The planner and the scheduler are those of a job whose units are nodes.
    pub fn unite(&mut self) {
        if !self.mutated(Mutation::OnlyTheDead) {
            self.controller.planner = Planner::by_node(self.units.clone());
        }
        self.begin_units();
    }

    /// The same where clusters are: there are two.
    pub fn unite_clusters(&mut self, map: Vec<u32>, nodes: u32) {
        let of = (0..nodes).map(|node| node * 2 / nodes).collect();
        self.neighbours = Neighbours::new(2, of, self.random.one_in(2));
        self.units = map.iter().map(|node| self.neighbours.cluster(*node)).collect();
        self.controller.planner = Planner::by_cluster(map, self.neighbours.clone());
        self.begin_units();
    }

    fn begin_units(&mut self) {
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
    pub fn begin_set(
        &mut self,
        at: Member,
        generation: u32,
        parts: Vec<(u32, Option<Member>)>,
        hold: bool,
    ) {
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
        let first = parts.first().map_or(0, |p| p.0);
        node.capturing.extend(parts.iter().map(|part| (part.0, generation)));
        node.sets.push(Set { generation, parts, left, early, hold, kept: Vec::new() });
        self.end_set_if_all_stand(at, generation, first);
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
            None => return self.give_up_set(at, generation, rank),
        }
        self.end_set_if_all_stand(at, generation, rank);
    }

    /// Of units of one node the sets may have the same number.
    fn end_set_if_all_stand(&mut self, at: Member, generation: u32, rank: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let whole = |s: &Set| s.is(generation, rank) && s.left.is_empty() && s.kept.is_empty();
        let Some(index) = node.sets.iter().position(whole) else { return };
        let stands = |r: &u32| node.procs.get(r).is_some_and(|p| p.stands);
        let set = &node.sets[index];
        if !set.parts.iter().all(|p| set.early.contains_key(&p.0) || stands(&p.0)) {
            return self.give_up_set(at, generation, rank);
        }
        let mut set = node.sets.remove(index);
        let mut images = Vec::new();
        for &(rank, partner) in &set.parts {
            let image = set.early.remove(&rank).or_else(|| self.image_of(at, rank));
            images.extend(image.map(|image| (rank, partner, image)));
        }
        if self.neighbours.are_known() && !self.mutated(Mutation::NodeGoesOn) {
            // Those of other nodes may not stand yet.
            set.kept = images;
            let unit = self.slot(set.parts[0].0);
            if let Some(node) = self.node(at) {
                node.sets.push(set);
            }
            return self.tell(at, FromNode::SetStands { unit, generation });
        }
        self.keep_set(at, &set, images);
    }

    /// What was sent by then is kept: all go on, and what they kept is written.
    fn keep_set(&mut self, at: Member, set: &Set, images: Vec<(u32, Option<Member>, Image)>) {
        let generation = set.generation;
        for (rank, partner, image) in images {
            self.write(at, (rank, generation), partner, image);
            let proc = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank));
            if let Some(proc) = proc.filter(|_| set.hold) {
                proc.held = true;
            }
        }
        self.unit_goes_on(at, set);
    }

    /// The ranks of all nodes stand, or there is no set.
    pub fn go_on_set(&mut self, at: Member, unit: u32, generation: u32, keep: bool) {
        let of = |s: &Set| s.generation == generation && self.slot(s.parts[0].0) == unit;
        let Some(index) = self.nodes.get(&at).and_then(|n| n.sets.iter().position(of)) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let mut set = node.sets.remove(index);
        let images = std::mem::take(&mut set.kept);
        match keep {
            true => self.keep_set(at, &set, images),
            false => self.unit_goes_on(at, &set),
        }
    }

    /// A rank that was to stand from its part of a set on is not to any more.
    pub fn hold_no_more(&mut self, at: Member, rank: u32) {
        let sets = self.nodes.get_mut(&at).map(|n| &mut n.sets);
        let of = |s: &&mut Set| s.parts.iter().any(|p| p.0 == rank);
        sets.into_iter().flatten().filter(of).for_each(|s| s.hold = false);
    }

    fn give_up_set(&mut self, at: Member, generation: u32, rank: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let this = |s: &Set| s.is(generation, rank);
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
            if !proc.halted && std::mem::take(&mut proc.would_go_on) {
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
        let stood = proc.filter(|p| !p.done).map(|p| p.state.at);
        self.stood.extend(stood.map(|at| (rank, at)));
        if proc.is_some() {
            node.procs.remove(&rank);
        }
        // Of one that has ended that is told already.
        if !done {
            self.tell(at, FromNode::RankDied { rank, incarnation });
        }
    }

    /// A unit comes back, some of it here: nothing of what its ranks passed each other is needed.
    pub fn gather(&mut self, at: Member, ranks: &[u32], life: u32) {
        for &rank in ranks {
            let live = |n: &crate::node::Node| n.procs.get(&rank).is_some_and(|p| !p.done);
            let members = self.controller.planner.members();
            // Elsewhere it may have come back already, where they are several.
            let there = |m: &&Member| **m == at || !self.neighbours.are_known();
            if members.iter().filter(there).any(|m| self.nodes.get(m).is_some_and(live)) {
                return self.fail(format!("rank {rank} lives while its unit goes back"));
            }
        }
        let stale = self.mutated(Mutation::StaleNeeds);
        let unit = self.slot(ranks[0]);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let of = |rank: &u32| ranks.contains(rank);
        let inner = |c: &Channel| of(&c.0) && of(&c.1);
        node.procs.retain(|rank, _| !of(rank));
        node.segment.streams.retain(|c, _| !inner(c));
        node.lives.insert(unit, life);
        for peer in node.peers.values_mut() {
            peer.told.retain(|c, _| !inner(c));
            if !stale {
                peer.next.retain(|c, _| !inner(c));
            }
        }
        let peers: Vec<Member> = node.peers.keys().copied().collect();
        for (peer, from) in peers.iter().flat_map(|p| ranks.iter().map(move |r| (*p, *r))) {
            self.tell_peer(at, peer, PeerMsg::Open { from, inner: true });
        }
    }

    /// How often a rank's unit went back, as far as a node has heard.
    pub fn life(&self, at: Member, rank: u32) -> u32 {
        let lives = self.nodes.get(&at).map(|n| &n.lives);
        lives.and_then(|l| l.get(&self.slot(rank))).copied().unwrap_or(0)
    }

    /// A node asks from where on channels from a rank are wanted.
    pub fn opened(&mut self, at: Member, from: u32, inner: bool) {
        let local = self.nodes.get(&at).map(|n| n.procs.keys().copied().collect::<Vec<u32>>());
        let mut local = local.unwrap_or_default();
        local.retain(|to| self.is_inner((from, *to, 0)) == inner);
        for to in local {
            self.want(at, to, Some(from));
        }
    }

    /// Whether something of a channel within a unit was said before that went back, or before the
    /// receiver said since then where it goes on.
    pub fn says_nothing(&self, at: Member, peer: Member, said: &PeerMsg) -> bool {
        let stale = self.mutated(Mutation::StaleNeeds);
        match *said {
            PeerMsg::Have { channel, life, .. } => {
                self.is_inner(channel) && !stale && life != self.life(at, channel.1)
            }
            PeerMsg::Taken { channel, .. } => {
                let peer = self.nodes.get(&at).and_then(|n| n.peers.get(&peer));
                self.is_inner(channel) && peer.is_none_or(|p| !p.next.contains_key(&channel))
            }
            _ => false,
        }
    }

    // ---- at the controller

    /// A rank's unit goes back.
    pub fn order_kill(&mut self, rank: u32, incarnation: u32) {
        if let Some(at) = self.controller.planner.home(rank) {
            self.rank_down(rank);
            self.say_to(at, ToNode::Kill { rank, incarnation });
        }
    }

    /// What the scheduler counts: a unit or a rank.
    pub fn slot(&self, rank: u32) -> u32 {
        self.units.get(rank as usize).copied().unwrap_or(rank)
    }

    /// The ranks that are checkpointed together.
    pub fn ranks_of(&self, slot: u32) -> Vec<u32> {
        (0..self.ranks()).filter(|r| self.slot(*r) == slot).collect()
    }

    /// Orders a set of a unit. False: not all of its ranks run.
    pub fn order_set(&mut self, unit: u32, hold: bool) -> bool {
        let ranks = self.ranks_of(unit);
        let live = |r: &u32| self.controller.live.contains(r);
        if ranks.is_empty() || !ranks.iter().all(live) {
            return false;
        }
        let mut parts: BTreeMap<Member, Vec<(u32, Option<Member>)>> = BTreeMap::new();
        let mut homes = BTreeMap::new();
        let mut generation = 0;
        for rank in ranks {
            let Some(at) = self.controller.planner.home(rank) else { return false };
            generation = self.controller.retention[rank as usize].begin();
            self.controller.capturing.insert(rank, generation);
            let partner = self.controller.planner.partner(rank);
            let partner = partner.filter(|_| hold || self.random.one_in(3));
            parts.entry(at).or_default().push((rank, partner));
            homes.insert(rank, at.node);
            if hold {
                self.hold(rank, generation);
            }
        }
        self.trace(|| format!("set {generation} of unit {unit}"));
        let set = (sets::Set::new(generation, homes), parts.keys().copied().collect());
        self.controller.sets.insert(unit, set);
        for (at, parts) in parts {
            let mates = self.mutated(Mutation::MatesGoOn);
            let hold = hold && (!mates || self.controller.planner.leaves(&at).is_some());
            self.say_to(at, ToNode::Set { generation, parts, hold });
        }
        self.fault_nearby(12);
        true
    }

    /// The ranks of a unit on one node stand.
    pub fn set_stands(&mut self, node: Member, unit: u32, generation: u32) {
        let Some((set, _)) = self.controller.sets.get_mut(&unit) else { return };
        if set.generation() == generation {
            let verdict = set.stands(node.node, Ok(Vec::new()));
            self.tell_verdict(unit, verdict);
        }
    }

    /// Tells the nodes of a set what becomes of it.
    fn tell_verdict(&mut self, unit: u32, verdict: Option<Verdict>) {
        let Some(verdict) = verdict.filter(|_| self.neighbours.are_known()) else { return };
        let Some((set, nodes)) = self.controller.sets.remove(&unit) else { return };
        let (generation, keep) = (set.generation(), verdict == Verdict::Keep);
        for at in nodes {
            self.say_to(at, ToNode::GoOnSet { unit, generation, keep });
        }
        self.fault_nearby(12);
    }

    /// Of a set one image will not be: there is no set.
    pub fn void_set(&mut self, rank: u32) {
        let unit = self.slot(rank);
        let capturing = |r: u32| self.controller.capturing.get(&r).copied();
        let ranks = self.ranks_of(unit);
        let Some(generation) = ranks.iter().find_map(|r| capturing(*r)) else { return };
        let set = self.controller.sets.get_mut(&unit);
        let verdict = set.and_then(|s| s.0.part(rank, Err(String::from("void"))));
        self.tell_verdict(unit, verdict);
        for rank in ranks {
            self.capture_over(rank, generation);
            if !self.mutated(Mutation::VoidHeld) {
                self.stands(rank, generation, false);
            }
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
