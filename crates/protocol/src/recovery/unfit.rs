//! Ranks that cannot be brought back where they were ordered, though nothing is known against their
//! images: a full disk there, no process that can be started, no way to who has the image.
//!
//! Kept true: no copy of an image counts less for that. A rank of which nothing is at that node yet
//! is ordered at another one, and comes to one that it was sent away from only when there is no
//! other; with each attempt the next one that has its image is asked. All others are ordered there
//! again: their outcomes and logs are there. How long is waited before is not decided here.
//! One that dies where it is time and again leaves that node as it would if that were to go,
//! though others stay there; until an image of it counts it does not come back to it if it can be
//! elsewhere.

use super::{Action, Phase, Planner, VAULT};
use crate::membership::Member;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// At no more nodes than these a rank is tried that cannot run where it is to.
const MOST_TRIED: usize = 4;

/// What was tried to bring a rank back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Tried {
    times: usize,
    /// Where that cannot be.
    at: BTreeSet<Member>,
    /// It ran there, and died: that it runs elsewhere says nothing of there.
    lasting: bool,
}

impl Tried {
    /// Which of so many is asked for the image.
    pub fn source(&self, holders: usize) -> usize {
        self.times % holders.max(1)
    }
}

impl Planner {
    /// The node that a rank was ordered at cannot have it now.
    pub(super) fn unfit(
        &mut self,
        index: usize,
        incarnation: u32,
        here: Member,
        todo: &mut Vec<Action>,
    ) {
        let rank = &self.ranks[index];
        let told = rank.told == rank.incarnation;
        let (ordered, falls) = match rank.phase {
            Phase::Restoring { at, .. } => (at == here, false),
            Phase::Falling { at } => (at == here, true),
            _ => return,
        };
        if !ordered || rank.incarnation != incarnation {
            return;
        }
        if self.units.are_one() && told {
            return self.roll_back(format!("rank {index} cannot be started on {here}"), todo);
        }
        if let Some(unit) = self.unit_of(index).filter(|_| told || falls) {
            // Its mates may have sent it something already.
            return self.mate_died(index, unit, todo);
        }
        let at = self.elsewhere(index, here).unwrap_or(here);
        self.restore_at(index, at, todo);
    }

    /// Another place for a rank that cannot come back here, if nothing of it is here.
    fn elsewhere(&mut self, index: usize, here: Member) -> Option<Member> {
        let number = index as u32;
        let tried = self.unfit.entry(number).or_default();
        tried.times += 1;
        let rank = &self.ranks[index];
        if !self.units.are_ranks() || rank.words.is_none() || rank.ran == here {
            return None;
        }
        tried.at.insert(here);
        let all = self.takers().iter().all(|m| self.is_unfit(number, m));
        if all && let Some(tried) = self.unfit.get_mut(&number) {
            // The others are tried again.
            tried.at = BTreeSet::from([here]);
        }
        self.place(index)
    }

    /// A rank that has died here time and again, and of which no process is left, is brought back
    /// elsewhere, with all that is recorded of it here. It stays if nobody else takes it.
    pub(super) fn evicted(&mut self, index: usize, incarnation: u32, todo: &mut Vec<Action>) {
        let (number, rank) = (index as u32, &self.ranks[index]);
        let Phase::Restoring { at, .. } = rank.phase else { return };
        if rank.incarnation != incarnation || rank.told == incarnation {
            return;
        }
        if !self.may_leave(number) {
            return self.restore_at(index, at, todo);
        }
        let tried = self.unfit.entry(number).or_default();
        tried.lasting = true;
        tried.at.insert(at);
        let all = self.takers().iter().all(|m| self.is_unfit(number, m));
        if all && let Some(tried) = self.unfit.get_mut(&number) {
            // The others are tried again.
            tried.at = BTreeSet::from([at]);
        }
        if self.ranks[index].ran == at {
            self.ranks[index].phase = Phase::Fetching;
            todo.push(Action::Yield { at, rank: number });
            return self.query(todo);
        }
        // What it takes is known.
        match self.place(index) {
            Some(at) => self.restore_at(index, at, todo),
            None => todo.push(Action::Lost),
        }
    }

    /// Whether a rank that comes back alone may come back at another node than it is to.
    pub fn may_leave(&self, rank: u32) -> bool {
        let home = self.home(rank);
        let stays = self.leaving().next().is_none() && self.wish(rank).is_none();
        self.units.are_ranks() && stays && self.takers().iter().any(|m| Some(*m) != home)
    }

    /// Whether a rank that cannot run where it is to may be brought to a node at which that is not
    /// known yet.
    pub fn may_try(&self, rank: u32) -> bool {
        let home = self.home(rank);
        let tried = self.unfit.get(&rank).map_or(0, |tried| tried.at.len());
        let other = |m: &Member| Some(*m) != home && !self.is_unfit(rank, m);
        self.may_leave(rank) && tried + 1 < MOST_TRIED && self.takers().iter().any(other)
    }

    /// It runs.
    pub(super) fn forget_unfit(&mut self, rank: u32) {
        self.unfit.retain(|r, tried| *r != rank || tried.lasting);
    }

    /// Whether a rank could not be brought back at this node, and may be at others.
    pub(super) fn is_unfit(&self, rank: u32, at: &Member) -> bool {
        self.unfit.get(&rank).is_some_and(|tried| tried.at.contains(at))
    }

    /// A rank that is being brought its image from a node that is gone is ordered anew.
    pub(super) fn refetch_lost_sources(&mut self, gone: Member, todo: &mut Vec<Action>) {
        for rank in 0..self.ranks.len() {
            let rank_now = &self.ranks[rank];
            if let Phase::Restoring { at, generation, from: Some(from) } = rank_now.phase
                && (from == gone || (from == VAULT && !rank_now.guards.contains_key(&generation)))
            {
                self.restore_at(rank, at, todo);
            }
        }
    }
}

#[cfg(test)]
#[path = "unfit_tests.rs"]
mod tests;
