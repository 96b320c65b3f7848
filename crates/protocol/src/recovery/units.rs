//! Recovery units of some ranks, but not all: those that begin on a node (`--ft node`) or in a
//! cluster (`--ft cluster`), or any others.
//!
//! What they pass each other is not retained, so none of them can be brought back alone. What they
//! send to others is logged, and the outcomes of all of them are, so nobody else goes back, and
//! what they send again is what it was.
//!
//! Kept true: all ranks of a unit that is a node live on one node; those of a cluster stay in it as
//! long as a node of it lives; they are brought back when no process of any of them is left and the
//! outcomes of all of them are known, all from one snapshot, which is given up as a whole when of
//! one image no copy is left. Each time a unit goes back its nodes hear a greater number (`life`):
//! what was said of streams within it under a smaller one says nothing any more.

use super::{Action, Phase, Planner, Rank};
use crate::membership::Member;
use crate::units::{Extent, Units};
use std::collections::{BTreeMap, BTreeSet};

impl Planner {
    /// Ranks that came back alone are units from now on, before they begin anew or go on from a
    /// snapshot. The log is with the senders: routers are nodes as any other.
    pub(super) fn regroup(&mut self, of: Vec<u32>, on_nodes: bool, map: Vec<u32>) {
        let fits = of.len() == self.map.len() && map.len() == of.len();
        if !self.units.are_ranks() || !fits {
            return;
        }
        self.units = if on_nodes { Units::on_nodes(of) } else { Units::in_clusters(of) };
        self.map = map;
        // What is said of ranks and images until all begin is of what is forgotten then.
        self.rolling_back = true;
        self.awaited.clear();
        self.copying.clear();
    }

    /// All ranks begin; no node has heard that any unit went back.
    pub(super) fn forget_returns(&mut self) {
        self.snapshots.clear();
        self.lives.clear();
    }

    /// All ranks come from this snapshot, and nothing later.
    pub(super) fn units_return(&mut self, generation: u32) {
        self.forget_returns();
        if self.units.are_groups() {
            let all = self.units.all().into_iter().map(|unit| (unit, generation));
            self.snapshots.extend(all);
        }
    }

    /// The same where a rank comes from this image.
    pub(super) fn begin_from(&mut self, index: usize, generation: u32) {
        if self.units.are_one() {
            self.snapshots.entry(0).or_insert(generation);
        } else if let Some(unit) = self.unit_of(index) {
            self.snapshots.insert(unit, generation);
        }
    }

    /// The unit of a rank that comes back with some others, but not with all.
    pub(super) fn unit_of(&self, index: usize) -> Option<u32> {
        self.units.are_groups().then(|| self.units.of(index))
    }

    /// All such units.
    fn all_units(&self) -> BTreeSet<u32> {
        (0..self.ranks.len()).filter_map(|index| self.unit_of(index)).collect()
    }

    /// The snapshot that a rank has to come from, if it may not come from any other.
    pub(super) fn snapshot_of(&self, index: usize) -> Option<u32> {
        let last = self.snapshots.get(&self.units.of(index)).copied().unwrap_or(0);
        (!self.units.are_ranks()).then_some(last)
    }

    /// Those of these members that are in the cluster of a rank, if its cluster is its unit and has
    /// any; else all.
    pub(super) fn in_cluster(&self, index: usize, all: Vec<Member>) -> Vec<Member> {
        if self.units.extent() != Extent::Cluster {
            return all;
        }
        let (cluster, of) = (|m: &Member| self.neighbours.cluster(m.node), self.units.of(index));
        let own: Vec<Member> = all.iter().copied().filter(|m| cluster(m) == of).collect();
        if own.is_empty() { all } else { own }
    }

    /// Where a rank may begin whose node is not there, and which of them is its turn: a unit that
    /// is a node stays on one.
    pub(super) fn begins_among(&self, index: usize, all: &[Member]) -> (Vec<Member>, usize) {
        let turn = if self.stays_on_a_node() { self.units.of(index) as usize } else { index };
        (self.in_cluster(index, all.to_vec()), turn)
    }

    /// Whether all ranks of a unit live on one node, and there may be several.
    pub fn stays_on_a_node(&self) -> bool {
        self.units.extent() == Extent::Node
    }

    /// Where a rank goes of whose unit others go there (`soon`), if the unit lives on one node.
    pub(super) fn beside_mates(
        &self,
        index: usize,
        soon: &BTreeMap<u32, Member>,
    ) -> Option<Member> {
        let mate = |rank: &u32| self.units.is_inner(*rank as usize, index);
        let mut mates = soon.iter().filter(|s| self.stays_on_a_node() && mate(s.0));
        mates.next().map(|s| *s.1)
    }

    /// What to say of a loss if no node of its cluster is left.
    pub(super) fn whole_cluster(&self, lost: Member) -> &'static str {
        let neighbours = &self.neighbours;
        let cluster = |m: &Member| neighbours.cluster(m.node);
        let alive = self.members.iter().any(|m| cluster(m) == cluster(&lost));
        if alive || neighbours.are_outside() || !neighbours.are_known() {
            return "";
        }
        ": no node of its cluster is left, and copies were inside of it (`--copies outside` has \
         them in another cluster)"
    }

    /// No copy of an image that counts is left.
    pub(super) fn lose_image(&mut self, index: usize, generation: u32, todo: &mut Vec<Action>) {
        if let Some(unit) = self.unit_of(index) {
            return self.lose_snapshot(unit, generation, todo);
        }
        let rank = &mut self.ranks[index];
        rank.committed.remove(&generation);
        rank.given_up = rank.given_up.max(generation);
        todo.push(Action::Damaged { rank: index as u32, generation });
    }

    /// A rank has ended well.
    pub(super) fn rank_done(&mut self, index: usize, todo: &mut Vec<Action>) {
        let rank = &mut self.ranks[index];
        match rank.phase {
            Phase::Up => rank.phase = Phase::Done,
            Phase::Falling { at } => {
                rank.phase = Phase::Down { at };
                self.unit_rises(self.units.of(index), todo);
            }
            _ => {}
        }
    }

    /// The process of a rank of a unit has ended, of a fault or because it was killed.
    pub(super) fn mate_died(&mut self, index: usize, unit: u32, todo: &mut Vec<Action>) {
        let rank = &mut self.ranks[index];
        let at = match rank.phase {
            Phase::Up => rank.home,
            Phase::Restoring { at, .. } | Phase::Falling { at } => at,
            _ => return,
        };
        rank.phase = Phase::Down { at };
        self.unit_falls(unit, todo);
    }

    /// All ranks of a unit go back, as soon as no process of them is left.
    pub(super) fn unit_falls(&mut self, unit: u32, todo: &mut Vec<Action>) {
        for index in self.units.ranks_of(unit) {
            let rank = &mut self.ranks[index];
            rank.phase = match rank.phase {
                Phase::Up => Phase::Falling { at: rank.home },
                Phase::Done => Phase::Down { at: rank.home },
                Phase::Restoring { at, .. } if rank.told == rank.incarnation => {
                    Phase::Falling { at }
                }
                Phase::Restoring { at, .. } => Phase::Down { at },
                _ => continue,
            };
            let (rank, incarnation) = (index as u32, rank.incarnation);
            todo.push(Action::Kill { rank, incarnation });
        }
        self.unit_rises(unit, todo);
    }

    /// A node is lost: the units that had ranks on it go back.
    pub(super) fn units_fall(&mut self, todo: &mut Vec<Action>) {
        let lost = |r: &usize| self.ranks[*r].phase == Phase::Fetching;
        let (all, hurt) = (self.all_units(), |u: &u32| self.units.ranks_of(*u).iter().any(lost));
        let fall: Vec<u32> = all.into_iter().filter(hurt).collect();
        fall.into_iter().for_each(|unit| self.unit_falls(unit, todo));
    }

    /// Brings a unit back if no process of it is left, and the outcomes of all of it are known.
    pub(super) fn unit_rises(&mut self, unit: u32, todo: &mut Vec<Action>) {
        let phase = |r: &usize| self.ranks[*r].phase;
        let waits = |r: &usize| matches!(phase(r), Phase::Down { .. } | Phase::Fetched);
        let ranks = self.units.ranks_of(unit);
        let ready = ranks.iter().all(|r| waits(r) || phase(r) == Phase::Released);
        if ready && ranks.iter().any(waits) {
            self.restore_unit(unit, todo);
        }
    }

    /// The outcomes of all ranks whose node is gone are known: their units come back.
    pub(super) fn place_units(&mut self, todo: &mut Vec<Action>) {
        for rank in self.ranks.iter_mut().filter(|r| r.phase == Phase::Fetching) {
            rank.phase = Phase::Fetched;
        }
        for unit in self.all_units() {
            self.unit_rises(unit, todo);
            if self.rolling_back {
                return;
            }
        }
    }

    fn restore_unit(&mut self, unit: u32, todo: &mut Vec<Action>) {
        let ranks = self.units.ranks_of(unit);
        let has = |r: &Rank, g: u32| g == 0 || r.committed.get(&g).is_some_and(|h| !h.is_empty());
        let all = |g: &u32| ranks.iter().all(|r| has(&self.ranks[*r], *g));
        let known = ranks.first().into_iter().flat_map(|r| self.ranks[*r].committed.keys().rev());
        let Some(snapshot) = known.copied().find(all) else {
            let began = if self.stays_on_a_node() { "on node" } else { "in cluster" };
            let why = format!("no set of images of the ranks that began {began} {unit} is left");
            return self.roll_back(why, todo);
        };
        let Some(places) = self.places_of(&ranks) else { return todo.push(Action::Lost) };
        self.snapshots.insert(unit, snapshot);
        let life = self.lives.entry(unit).or_default();
        *life += 1;
        let (life, ranks): (u32, Vec<u32>) = (*life, ranks.iter().map(|r| *r as u32).collect());
        for at in places.values().copied().collect::<BTreeSet<Member>>() {
            todo.push(Action::Gather { at, ranks: ranks.clone(), life });
        }
        for (index, at) in places {
            self.restore_at(index as usize, at, todo);
        }
    }

    /// Where the ranks of a unit come back: where they were, or if that is lost where `place` says;
    /// of a unit that is a node all on one.
    fn places_of(&self, ranks: &[usize]) -> Option<BTreeMap<u32, Member>> {
        let mut places = BTreeMap::new();
        for &index in ranks {
            let one = places.values().next().filter(|_| self.stays_on_a_node());
            let at = match self.ranks[index].phase {
                Phase::Released => continue,
                Phase::Down { at } => at,
                _ => one.copied().or_else(|| self.place_among(index, &places))?,
            };
            places.insert(index as u32, at);
        }
        Some(places)
    }

    /// A rank of a falling unit was started before that was known.
    pub(super) fn started_falling(&mut self, index: usize, at: Member, todo: &mut Vec<Action>) {
        let rank = &mut self.ranks[index];
        // What it records from now on is in the segment there.
        (rank.home, rank.words) = (at, None);
        self.spares.remove(&at);
        let (rank, incarnation) = (index as u32, rank.incarnation);
        todo.push(Action::Kill { rank, incarnation });
    }

    /// Of an image that counts no copy is left: its snapshot is of no use to the others either. Who
    /// is being brought back from it goes back to the one before, with all others.
    fn lose_snapshot(&mut self, unit: u32, generation: u32, todo: &mut Vec<Action>) {
        let ranks = self.units.ranks_of(unit);
        for &index in &ranks {
            let rank = &mut self.ranks[index];
            rank.given_up = rank.given_up.max(generation);
            if rank.committed.remove(&generation).is_some() {
                todo.push(Action::Damaged { rank: index as u32, generation });
            }
        }
        self.copying.retain(|c, _| c.1 != generation || !ranks.contains(&(c.0 as usize)));
        let comes = |r: &usize| {
            let phase = self.ranks[*r].phase;
            matches!(phase, Phase::Restoring { generation: wanted, .. } if wanted == generation)
        };
        if ranks.iter().any(comes) {
            self.unit_falls(unit, todo);
        }
    }
}

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;
