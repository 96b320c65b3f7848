//! What becomes of images: copies that cannot be used, and those that are there.
//!
//! Kept true: an image counts only for the incarnation that it is of and those after it; of one
//! that was given up nothing counts any more, but as a part of a snapshot.

use super::{Action, Phase, Planner, VAULT};
use crate::membership::Member;
use std::collections::BTreeSet;

impl Planner {
    /// The copy of an image that lies at `bad` cannot be used.
    pub(super) fn image_bad(
        &mut self,
        index: usize,
        incarnation: u32,
        generation: u32,
        bad: Member,
        todo: &mut Vec<Action>,
    ) {
        let rank = &mut self.ranks[index];
        let number = index as u32;
        self.copying.retain(|c, from| (c.0, c.1, *from) != (number, generation, bad));
        if bad == VAULT {
            rank.unguard(generation);
        }
        let gone = |holders: &mut BTreeSet<Member>| {
            holders.remove(&bad);
            holders.is_empty() && generation > 0
        };
        if rank.committed.get_mut(&generation).is_some_and(gone) {
            self.lose_image(index, generation, todo);
        } else if rank.pending.get_mut(&generation).is_some_and(gone) {
            self.void(&self.units.ranks_of(self.units.of(index)), generation, todo);
        }
        if self.ranks[index].pinned.get_mut(&generation).is_some_and(gone) {
            self.lose_snapshots(todo);
        }
        let rank = &self.ranks[index];
        if let Phase::Restoring { at, generation: wanted, .. } = rank.phase
            && (rank.incarnation, wanted) == (incarnation, generation)
        {
            self.restore_at(index, at, todo);
        }
        if !self.rolling_back {
            self.balance(todo);
        }
    }

    /// An image lies at these.
    pub(super) fn stored(
        &mut self,
        rank: u32,
        incarnation: u32,
        generation: u32,
        at: &[Member],
        todo: &mut Vec<Action>,
    ) {
        for at in at {
            self.copying.remove(&(rank, generation, *at));
        }
        let live: Vec<Member> = at.iter().copied().filter(|m| self.members.contains(m)).collect();
        if live.is_empty() {
            return;
        }
        let r = &mut self.ranks[rank as usize];
        if let Phase::Restoring { at, generation: wanted, from } = &mut r.phase
            && (*wanted, r.incarnation) == (generation, incarnation)
            && live.contains(at)
        {
            // Who was to fetch it has it: where it came from may die.
            *from = None;
        }
        let pinned = r.pinned.get_mut(&generation).map(|holders| holders.extend(live.clone()));
        if let Some(holders) = r.committed.get_mut(&generation) {
            holders.extend(live);
        } else if let Some(holders) = r.pending.get_mut(&generation) {
            // Also if a later one was given up since: this one was not.
            holders.extend(live);
        } else if r.incarnation == incarnation
            && r.given_up < generation
            && r.committed.keys().next_back().is_none_or(|newest| *newest < generation)
        {
            r.pending.entry(generation).or_default().extend(live);
        } else if pinned.is_none() {
            return todo.push(Action::Discard { rank, generation });
        }
        self.balance(todo);
    }
}
