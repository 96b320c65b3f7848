//! Snapshots of ranks that come back alone (`--fallback-every`): images of all of them of one
//! moment. To the newest one all return together when one of them cannot be brought back alone.
//!
//! Kept true: what is in a snapshot stays, whatever retention gives up, until the snapshot is let
//! go, and nobody comes back alone from what retention has given up; one of which no copy of an
//! image is left, and the vault cannot give it, is none any more, and that is told; each image of
//! it lies on one node more than others, if there is one: a home and its partner that are lost
//! together are what snapshots are for. What goes to the vault is guarded there as others are.

use super::{ARCHIVE, Action, COPIES, Phase, Planner, Rank};
use crate::membership::Member;
use crate::replicas::Words;
use std::collections::{BTreeMap, BTreeSet};

impl Planner {
    /// Whether these nodes have an image of each rank of this snapshot.
    pub fn has_snapshot(&self, generation: u32, members: &[Member]) -> bool {
        self.lacks_on(generation, members).is_none()
    }

    /// A rank of whose image in this snapshot these nodes have none.
    pub fn lacks_on(&self, generation: u32, members: &[Member]) -> Option<u32> {
        let has = |r: &Rank| r.pinned.get(&generation).is_some_and(|h| !h.is_empty());
        (0u32..).zip(&self.renewed(members)).find(|(_, r)| !has(r)).map(|(rank, _)| rank)
    }

    /// All ranks have an image of this generation that counts, and these are of one moment.
    pub(super) fn pin(&mut self, generation: u32, todo: &mut Vec<Action>) {
        let holders = |r: &Rank| r.committed.get(&generation).filter(|h| !h.is_empty()).cloned();
        for rank in &mut self.ranks {
            rank.pinned.insert(generation, holders(rank).unwrap_or_default());
        }
        self.lose_snapshots(todo);
        self.balance(todo);
    }

    /// Nobody returns to this snapshot any more.
    pub(super) fn unpin(&mut self, generation: u32) {
        for rank in &mut self.ranks {
            rank.pinned.remove(&generation);
            if !rank.everywhere().any(|(g, _)| *g == generation) {
                rank.forget_guards(generation);
            }
        }
        let ranks = &self.ranks;
        self.copying.retain(|c, _| {
            let rank = &ranks[c.0 as usize];
            c.1 != generation
                || rank.committed.contains_key(&generation)
                || rank.pending.contains_key(&generation)
        });
    }

    /// Those of which no copy of an image is left are none any more.
    pub(super) fn lose_snapshots(&mut self, todo: &mut Vec<Action>) {
        let mut lost = BTreeMap::new();
        for (rank, r) in (0u32..).zip(&self.ranks) {
            for generation in r.pinned.iter().filter(|p| p.1.is_empty()).map(|p| *p.0) {
                lost.entry(generation).or_insert(rank);
            }
        }
        for (generation, rank) in lost {
            self.unpin(generation);
            todo.push(Action::Unpinned { generation, rank });
        }
    }

    /// How many nodes more are to have an image than those that make it safe.
    pub(super) fn extra(&self, rank: &Rank, generation: u32) -> usize {
        let copies = !self.vaults() && self.enough() >= COPIES;
        usize::from(rank.pinned.contains_key(&generation) && copies)
    }

    /// No process is left: all ranks return to this snapshot. Nodes have new epochs.
    pub(super) fn return_all(
        &mut self,
        generation: u32,
        members: Vec<Member>,
        todo: &mut Vec<Action>,
    ) {
        self.ranks = self.renewed(&members);
        self.settle_on(members);
        if self.members.is_empty() {
            return todo.push(Action::Lost);
        }
        todo.push(Action::Members(self.members.clone()));
        self.ranks.iter_mut().for_each(|rank| rank.go_back_to(generation));
        self.units_return(generation);
        self.bring_all_back(todo);
    }

    /// Brings all ranks back where they were, as far as that is there, and elsewhere.
    pub(super) fn bring_all_back(&mut self, todo: &mut Vec<Action>) {
        let live = |p: &Planner, home: Member| {
            let there = p.members.iter().copied().find(|m| m.node == home.node);
            there.filter(|m| p.leaves(m).is_none())
        };
        let (stay, go): (Vec<usize>, Vec<usize>) =
            (0..self.ranks.len()).partition(|r| live(self, self.ranks[*r].home).is_some());
        let mut places = BTreeMap::new();
        for index in stay.into_iter().chain(go) {
            let at = live(self, self.ranks[index].home);
            let at = at.or_else(|| self.beside_mates(index, &places));
            let Some(at) = at.or_else(|| self.place(index)) else {
                return todo.push(Action::Lost);
            };
            places.insert(index as u32, at);
            self.restore_at(index, at, todo);
        }
    }
}

impl Rank {
    /// Everywhere an image may be, each generation once.
    pub(super) fn everywhere(&self) -> impl Iterator<Item = (&u32, &BTreeSet<Member>)> {
        let pinned = self.pinned.iter().filter(|p| !self.committed.contains_key(p.0));
        self.committed.iter().chain(&self.pending).chain(pinned)
    }

    /// Of what came after this generation nothing counts any more, nor what was recorded.
    fn go_back_to(&mut self, generation: u32) {
        let newest = self.committed.keys().chain(self.pending.keys()).copied().max();
        self.given_up = self.given_up.max(newest.unwrap_or(0));
        self.phase = Phase::Fetching;
        // There is nothing recorded of it, and that is all of it.
        (self.words, self.ran) = (Some(Words::default()), ARCHIVE);
        self.pinned.retain(|g, _| *g <= generation);
        let holders = self.pinned.get(&generation).cloned().unwrap_or_default();
        self.committed = BTreeMap::from([(generation, holders)]);
        self.pending.clear();
        self.guards.retain(|g, _| *g == generation);
        self.unsound.retain(|g| *g == generation);
    }
}

#[cfg(test)]
#[path = "snapshots_tests.rs"]
mod tests;
