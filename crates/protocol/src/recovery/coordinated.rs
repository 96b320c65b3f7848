//! All ranks are one recovery unit (`--ft coordinated`): whoever dies, all go back to the newest
//! coordinated snapshot. And what such snapshots have in common in units of any size: they count,
//! and are given up, as a whole.
//!
//! Kept true: all ranks of a unit come from one snapshot; it counts when every image of it is as
//! safe as it is to be (on two nodes, or in the vault), and is gone back to as long as each can be
//! had, of a node or of the vault; the beginning is always there.

use super::{Action, Phase, Planner, Rank, vault};
use crate::membership::Member;
use crate::replicas::Words;
use std::collections::BTreeMap;

/// Who holds images for a member's predecessor: storage outlives the epoch of its node.
fn renewed(holder: Member, members: &[Member]) -> Option<Member> {
    if !vault::is_node(&holder) {
        return Some(holder);
    }
    members.iter().copied().find(|m| m.node == holder.node)
}

impl Rank {
    /// Of those that were there `before` these are left, and have new epochs.
    fn renew(&mut self, before: &[Member], members: &[Member]) {
        for holders in self.committed.values_mut().chain(self.pinned.values_mut()) {
            *holders = holders.iter().filter_map(|h| renewed(*h, members)).collect();
        }
        for guard in self.guards.values_mut().flatten() {
            guard.renew(before, members);
        }
        self.weaken(members);
    }
}

/// The newest snapshot of which an image of each rank is left.
fn newest_whole(ranks: &[Rank]) -> u32 {
    let has = |r: &Rank, g: u32| r.committed.get(&g).is_some_and(|holders| !holders.is_empty());
    let mut all = ranks.first().into_iter().flat_map(|r| r.committed.keys().rev().copied());
    all.find(|g| ranks.iter().all(|r| has(r, *g))).unwrap_or(0)
}

impl Planner {
    /// The snapshot that all ranks came from last, if they are one unit; 0: the program's
    /// beginning.
    pub fn snapshot(&self) -> u32 {
        let one = self.snapshots.get(&0).filter(|_| self.units.are_one());
        one.copied().unwrap_or(0)
    }

    /// Whether these nodes, or the archive, have a snapshot that all ranks can come back from.
    pub fn has_whole(&self, members: &[Member]) -> bool {
        self.newest_whole_on(members) > 0
    }

    /// The newest of those; 0: there is none.
    pub fn newest_whole_on(&self, members: &[Member]) -> u32 {
        newest_whole(&self.renewed(members))
    }

    /// All ranks as they are when only these nodes are left, with new epochs.
    pub(super) fn renewed(&self, members: &[Member]) -> Vec<Rank> {
        let mut later = self.ranks.clone();
        later.iter_mut().for_each(|r| r.renew(&self.members, members));
        later
    }

    /// All are going back, whoever ordered that.
    pub(super) fn go_back(&mut self) {
        if self.units.are_one() {
            self.rolling_back = true;
            self.copying.clear();
        }
    }

    /// No process is left: brings all ranks back from the newest snapshot of which every image is
    /// there. Nodes have new epochs.
    pub(super) fn back(&mut self, members: Vec<Member>, todo: &mut Vec<Action>) {
        self.ranks.iter_mut().for_each(|r| r.renew(&self.members, &members));
        self.settle_on(members);
        if self.members.is_empty() {
            return todo.push(Action::Lost);
        }
        todo.push(Action::Members(self.members.clone()));
        let snapshot = newest_whole(&self.ranks);
        self.snapshots.insert(0, snapshot);
        for index in 0..self.ranks.len() {
            self.forget_later(index, snapshot, todo);
        }
        // Those who have lost their node look for the least load among the others.
        self.bring_all_back(todo);
    }

    /// What a rank has of snapshots after the one that is gone back to will never be of use.
    fn forget_later(&mut self, index: usize, snapshot: u32, todo: &mut Vec<Action>) {
        let rank = &mut self.ranks[index];
        rank.phase = Phase::Fetching;
        // There is nothing recorded of it, and that is all of it.
        rank.words = Some(Words::default());
        for generation in rank.committed.split_off(&(snapshot + 1)).into_keys() {
            rank.given_up = rank.given_up.max(generation);
            todo.push(Action::Damaged { rank: index as u32, generation });
        }
        rank.guards.retain(|generation, _| *generation <= snapshot);
        rank.unsound.retain(|generation| *generation <= snapshot);
        rank.committed.entry(snapshot).or_default();
    }

    /// All ranks.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.ranks.len()).collect()
    }

    /// This snapshot of these ranks will never be whole.
    pub(super) fn void(&mut self, of: &[usize], generation: u32, todo: &mut Vec<Action>) {
        self.copying.retain(|c, _| c.1 != generation || !of.contains(&(c.0 as usize)));
        for &index in of {
            let rank = &mut self.ranks[index];
            rank.given_up = rank.given_up.max(generation);
            if rank.pending.remove(&generation).is_some() {
                rank.forget_guards(generation);
                todo.push(Action::Discard { rank: index as u32, generation });
            }
        }
    }

    /// A snapshot of a unit, which these ranks are, begins to count when each image of it is as
    /// safe as it is to be.
    pub(super) fn complete_safe(&mut self, of: &[usize], todo: &mut Vec<Action>) {
        let whole = |r: &Rank, g: u32| r.pending.get(&g).is_some_and(|h| self.is_safe(h));
        let begun = of.first().into_iter().flat_map(|r| self.ranks[*r].pending.keys().copied());
        let all = |g: &u32| of.iter().all(|r| whole(&self.ranks[*r], *g));
        let ripe: Vec<u32> = begun.filter(all).collect();
        for generation in ripe {
            for &index in of {
                let (rank, number) = (&mut self.ranks[index], index as u32);
                let later = rank.pending.split_off(&generation);
                let older: BTreeMap<_, _> = std::mem::replace(&mut rank.pending, later);
                for older in older.into_keys() {
                    todo.push(Action::Discard { rank: number, generation: older });
                }
                let holders = rank.pending.remove(&generation).unwrap_or_default();
                rank.committed.insert(generation, holders);
                self.unfit.remove(&number);
                todo.push(Action::Complete { rank: number, generation });
            }
        }
    }
}

#[cfg(test)]
#[path = "coordinated_tests.rs"]
mod tests;
