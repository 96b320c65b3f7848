//! Recovery units in the simulation: snapshots of a unit's images, killing those who go back, and
//! what ranks of a unit pass each other.
//!
//! Real: the planner, and what says when ranks of several nodes go on (`snapshots`). Modelled: how
//! ranks come to stand.

use crate::program::Channel;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::coordinated_snapshot::{self, Verdict};
use eyrie_protocol::membership::{Member, Neighbours};
use eyrie_protocol::recovery::{Input, Planner};
use eyrie_protocol::units::{Extent, Units};
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot that is being taken at a node.
#[derive(Clone)]
pub struct Snapshot {
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

impl Snapshot {
    /// Whether it is the one of that number that this rank is in.
    fn is(&self, generation: u32, rank: u32) -> bool {
        self.generation == generation && self.parts.iter().any(|p| p.0 == rank)
    }
}

impl crate::node::Node {
    /// What is being taken of several ranks: its number, and one of them.
    pub fn taken_together(&self) -> Option<(u32, u32)> {
        self.snapshots.first().and_then(|s| Some((s.generation, s.parts.first()?.0)))
    }
}

impl World {
    /// The planner and the scheduler are those of a job whose units are nodes.
    pub fn unite(&mut self) {
        if !self.mutated(Mutation::OnlyTheDead) {
            let units = Units::new(Extent::Node, &self.units, |node| node);
            self.controller.planner = Planner::new(units, self.units.clone());
        }
        self.begin_units();
    }

    /// The same where clusters are: there are two.
    pub fn unite_clusters(&mut self, map: Vec<u32>, nodes: u32) {
        let of = (0..nodes).map(|node| node * 2 / nodes).collect();
        self.neighbours = Neighbours::new(2, of, self.random.one_in(2));
        let units = Units::new(Extent::Cluster, &map, |node| self.neighbours.cluster(node));
        self.units = units.by_rank().to_vec();
        let planner = Planner::new(units, map);
        self.controller.planner = planner.with_neighbours(self.neighbours.clone());
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
    pub fn begin_snapshot(
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
        node.snapshots.push(Snapshot { generation, parts, left, early, hold, kept: Vec::new() });
        self.end_snapshot_if_all_stand(at, generation, first);
    }

    /// A rank stands.
    pub fn stand(&mut self, at: Member, rank: u32, generation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let this = |s: &&mut Snapshot| s.generation == generation && s.left.contains(&rank);
        let Some(snapshot) = node.snapshots.iter_mut().find(this) else { return };
        snapshot.left.remove(&rank);
        match node.procs.get_mut(&rank).filter(|p| !p.done) {
            Some(proc) => proc.stands = true,
            // Without it there is no snapshot.
            None => return self.give_up_snapshot(at, generation, rank),
        }
        self.end_snapshot_if_all_stand(at, generation, rank);
    }

    /// Of units of one node the snapshots may have the same number.
    fn end_snapshot_if_all_stand(&mut self, at: Member, generation: u32, rank: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let whole = |s: &Snapshot| s.is(generation, rank) && s.left.is_empty() && s.kept.is_empty();
        let Some(index) = node.snapshots.iter().position(whole) else { return };
        let stands = |r: &u32| node.procs.get(r).is_some_and(|p| p.stands);
        let snapshot = &node.snapshots[index];
        if !snapshot.parts.iter().all(|p| snapshot.early.contains_key(&p.0) || stands(&p.0)) {
            return self.give_up_snapshot(at, generation, rank);
        }
        let mut snapshot = node.snapshots.remove(index);
        let mut images = Vec::new();
        for &(rank, partner) in &snapshot.parts {
            let image = snapshot.early.remove(&rank).or_else(|| self.image_of(at, rank));
            images.extend(image.map(|image| (rank, partner, image)));
        }
        if self.is_spread() && !self.mutated(Mutation::NodeGoesOn) {
            // Those of other nodes may not stand yet.
            snapshot.kept = images;
            let unit = self.slot(snapshot.parts[0].0);
            if let Some(node) = self.node(at) {
                node.snapshots.push(snapshot);
            }
            return self.tell(at, FromNode::SnapshotStands { unit, generation });
        }
        self.keep_snapshot(at, &snapshot, images);
    }

    /// What was sent by then is kept: all go on, and what they kept is written.
    fn keep_snapshot(
        &mut self,
        at: Member,
        snapshot: &Snapshot,
        images: Vec<(u32, Option<Member>, Image)>,
    ) {
        let generation = snapshot.generation;
        let lets_go = self.mutated(Mutation::NotHeld);
        for (rank, partner, image) in images {
            if self.real && !self.lives_on(at, rank, image.incarnation) {
                // It died while it stood.
                self.tell_spoilt(at, rank, generation, image.incarnation);
                continue;
            }
            self.write(at, (rank, generation), partner, image);
            let proc = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank));
            if let Some(proc) = proc.filter(|_| snapshot.hold && !lets_go) {
                proc.held = true;
            }
        }
        self.unit_goes_on(at, snapshot);
    }

    /// The ranks of all nodes stand, or there is no snapshot.
    pub fn go_on_snapshot(&mut self, at: Member, unit: u32, generation: u32, keep: bool) {
        let of = |s: &Snapshot| s.generation == generation && self.slot(s.parts[0].0) == unit;
        let Some(index) = self.nodes.get(&at).and_then(|n| n.snapshots.iter().position(of)) else {
            return;
        };
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let mut snapshot = node.snapshots.remove(index);
        let images = std::mem::take(&mut snapshot.kept);
        match keep {
            true => self.keep_snapshot(at, &snapshot, images),
            false => {
                self.unit_goes_on(at, &snapshot);
                self.tell_given_up(at, &snapshot);
            }
        }
    }

    /// The real controller hears how each part of a snapshot came out.
    fn tell_given_up(&mut self, at: Member, snapshot: &Snapshot) {
        if self.fallback {
            return self.take_alone(at, snapshot.generation, &snapshot.parts, &snapshot.left);
        }
        for (rank, _) in snapshot.parts.iter().filter(|_| self.real).copied().collect::<Vec<_>>() {
            let start = self.nodes.get(&at).and_then(|n| n.procs.get(&rank));
            let start = start.map_or(0, |p| p.incarnation);
            self.tell_spoilt(at, rank, snapshot.generation, start);
        }
    }

    /// The unit of the snapshot of this number that is being taken at a node.
    pub fn snapshot_at(&self, at: Member, generation: u32) -> Option<u32> {
        let all = &self.nodes.get(&at)?.snapshots;
        let this = all.iter().find(|s| s.generation == generation)?;
        Some(self.slot(this.parts.first()?.0))
    }

    /// A rank that was to stand from its part of a snapshot on is not to any more.
    pub fn hold_no_more(&mut self, at: Member, rank: u32) {
        let snapshots = self.nodes.get_mut(&at).map(|n| &mut n.snapshots);
        let of = |s: &&mut Snapshot| s.parts.iter().any(|p| p.0 == rank);
        snapshots.into_iter().flatten().filter(of).for_each(|s| s.hold = false);
    }

    pub fn give_up_snapshot(&mut self, at: Member, generation: u32, rank: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let this = |s: &Snapshot| s.is(generation, rank);
        let Some(index) = node.snapshots.iter().position(this) else { return };
        let snapshot = node.snapshots.remove(index);
        self.unit_goes_on(at, &snapshot);
        if self.real {
            return self.tell_given_up(at, &snapshot);
        }
        let rank = snapshot.parts[0].0;
        self.tell(at, FromNode::NoCheckpoint { rank });
    }

    fn unit_goes_on(&mut self, at: Member, snapshot: &Snapshot) {
        for (rank, _) in &snapshot.parts {
            let Some(node) = self.nodes.get_mut(&at) else { return };
            let Some(proc) = node.procs.get_mut(rank) else { continue };
            proc.stands = false;
            if !proc.suspended && std::mem::take(&mut proc.would_go_on) {
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
            let there = |m: &&Member| **m == at || !self.is_spread();
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

    /// Orders a snapshot of a unit. False: not all of its ranks run.
    pub fn order_snapshot(&mut self, unit: u32, hold: bool) -> bool {
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
        let snapshot = (
            coordinated_snapshot::CoordinatedSnapshot::new(generation, homes),
            parts.keys().copied().collect(),
        );
        self.controller.snapshots.insert(unit, snapshot);
        for (at, parts) in parts {
            let mates = self.mutated(Mutation::MatesGoOn);
            let hold = hold && (!mates || self.controller.planner.leaves(&at).is_some());
            self.say_to(at, ToNode::Snapshot { generation, parts, hold });
        }
        self.fault_nearby(12);
        true
    }

    /// The ranks of a unit on one node stand.
    pub fn unit_stands(&mut self, node: Member, unit: u32, generation: u32) {
        let Some((snapshot, _)) = self.controller.snapshots.get_mut(&unit) else { return };
        if snapshot.generation() == generation {
            let verdict = snapshot.stands(node.node, Ok(Vec::new()));
            self.tell_verdict(unit, verdict);
        }
    }

    /// Tells the nodes of a snapshot what becomes of it.
    fn tell_verdict(&mut self, unit: u32, verdict: Option<Verdict>) {
        let Some(verdict) = verdict.filter(|_| self.is_spread()) else { return };
        let Some((snapshot, nodes)) = self.controller.snapshots.remove(&unit) else { return };
        let (generation, keep) = (snapshot.generation(), verdict == Verdict::Keep);
        for at in nodes {
            self.say_to(at, ToNode::GoOnSnapshot { unit, generation, keep });
        }
        self.fault_nearby(12);
    }

    /// Of a snapshot one image will not be: there is no snapshot.
    pub fn void_snapshot(&mut self, rank: u32) {
        let unit = self.slot(rank);
        let capturing = |r: u32| self.controller.capturing.get(&r).copied();
        let ranks = self.ranks_of(unit);
        let Some(generation) = ranks.iter().find_map(|r| capturing(*r)) else { return };
        let snapshot = self.controller.snapshots.get_mut(&unit);
        let verdict = snapshot.and_then(|s| s.0.part(rank, Err(String::from("void"))));
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
        // The real controller numbers the starts of all ranks together.
        let first = if self.real { self.ranks() } else { 1 };
        if !self.units.is_empty() && incarnation > first && !hurt {
            self.fail(format!("rank {rank} goes back, and nothing of its unit was lost"));
        }
    }
}
