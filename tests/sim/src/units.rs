//! Recovery units at simulated nodes: snapshots of a unit's images, and what ranks of a unit pass
//! each other.

use crate::program::Channel;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;
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
    /// Whether a channel is between two ranks of one recovery unit.
    pub fn is_inner(&self, (from, to, _): Channel) -> bool {
        let unit = self.units.get(from as usize);
        unit.is_some() && unit == self.units.get(to as usize)
    }

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
        let ranks: Vec<u32> = snapshot.parts.iter().map(|p| p.0).collect();
        if self.stands_behind(at, generation, &ranks) {
            return;
        }
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let mut snapshot = node.snapshots.remove(index);
        let mut images = Vec::new();
        for &(rank, partner) in &snapshot.parts {
            let image = snapshot.early.remove(&rank).or_else(|| self.image_of(at, rank));
            images.extend(image.map(|image| (rank, partner, image)));
        }
        if self.is_spread() {
            // Those of other nodes may not stand yet.
            snapshot.kept = images;
            if self.mutated(Mutation::NodeGoesOn) {
                self.unit_goes_on(at, &snapshot);
            }
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
            if !self.lives_on(at, rank, image.incarnation) {
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

    /// The controller hears how each part of a snapshot came out.
    fn tell_given_up(&mut self, at: Member, snapshot: &Snapshot) {
        if self.fallback {
            return self.take_alone(at, snapshot.generation, &snapshot.parts, &snapshot.left);
        }
        for &(rank, _) in &snapshot.parts {
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
        self.tell_given_up(at, &snapshot);
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

    /// What the scheduler counts: a unit or a rank.
    pub fn slot(&self, rank: u32) -> u32 {
        self.units.get(rank as usize).copied().unwrap_or(rank)
    }

    /// The ranks that are checkpointed together.
    pub fn ranks_of(&self, slot: u32) -> Vec<u32> {
        (0..self.ranks()).filter(|r| self.slot(*r) == slot).collect()
    }

    /// A rank of a unit is brought back: something of its unit must have been lost.
    pub fn check_hurt(&mut self, rank: u32, incarnation: u32) {
        let unit = self.slot(rank);
        let hurt = self.truth.hurt.contains(&unit) || self.report.roll_backs > 0;
        // The controller numbers the starts of all ranks together.
        let first = self.ranks();
        if !self.units.is_empty() && incarnation > first && !hurt {
            self.fail(format!("rank {rank} goes back, and nothing of its unit was lost"));
        }
    }
}
