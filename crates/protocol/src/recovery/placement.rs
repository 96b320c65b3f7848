//! Where ranks are brought to, and copies of images.
//!
//! Kept true: both go to nodes that stay, as far as there are any; no copy is ordered twice. None
//! is ordered of a rank that has no home, or whose home fetches what it comes back from: that is
//! the copy that is missing, and what is waited for.

use super::{Action, Phase, Planner, vault};
use crate::membership::Member;
use std::collections::BTreeMap;

impl Planner {
    pub(super) fn place(&self, index: usize) -> Option<Member> {
        self.place_among(index, &BTreeMap::new())
    }

    /// A spare that stands in for the same dead node, a free spare, or the node with fewest ranks
    /// (of these, one that holds an image), among those that stay and are fit. Of equals it is the
    /// one that is preferred, if that was said. `soon`: where other ranks are going to be.
    pub(super) fn place_among(&self, index: usize, soon: &BTreeMap<u32, Member>) -> Option<Member> {
        let old = self.ranks[index].home;
        if let Some(to) = self.wish(index as u32) {
            return Some(to);
        }
        let at = |r: u32| soon.get(&r).copied().or_else(|| self.home(r));
        let load = |m: &Member| (0..self.ranks.len() as u32).filter(|r| at(*r) == Some(*m)).count();
        let comes = |m: Member| {
            (0u32..).zip(&self.ranks).filter(move |(n, r)| {
                let restoring = matches!(r.phase, Phase::Restoring { at, .. } if at == m);
                restoring || soon.get(n) == Some(&m)
            })
        };
        let free = |m: &&Member| {
            let same = || comes(**m).all(|(_, r)| r.home == old);
            self.spares.contains(*m) && (load(m) == 0 || same())
        };
        let keepers = self.fit_in_cluster(index, self.takers());
        let named = self.preferred(index as u32).iter();
        let mut named = named.filter_map(|node| keepers.iter().find(|m| m.node == *node));
        if let Some(spare) = named.find(free).or_else(|| keepers.iter().find(free)) {
            return Some(*spare);
        }
        let turn = |m: &Member| self.preferences.turn(index as u32, m.node);
        let newest = self.ranks[index].committed.values().next_back();
        let holds = |m: &Member| newest.is_some_and(|holders| holders.contains(m));
        keepers.into_iter().min_by_key(|m| (load(m), turn(m), !holds(m), m.node))
    }

    /// Those of these members that are fit for a rank, or if none is all; of these those that are
    /// in its cluster, if it is to stay there.
    pub(super) fn fit_in_cluster(&self, index: usize, all: Vec<Member>) -> Vec<Member> {
        let (unfit, fit): (Vec<Member>, Vec<Member>) =
            all.into_iter().partition(|m| self.is_unfit(index as u32, m));
        self.in_cluster(index, if fit.is_empty() { unfit } else { fit })
    }

    /// Orders the copies of images that are missing.
    pub(super) fn copy_more(&mut self, todo: &mut Vec<Action>) {
        let waits = self.are_on_the_way();
        for index in 0..self.ranks.len() as u32 {
            let rank = &self.ranks[index as usize];
            let home = match rank.phase {
                Phase::Fetching | Phase::Fetched | Phase::Restoring { from: Some(_), .. } => {
                    continue;
                }
                Phase::Restoring { at, .. } | Phase::Falling { at } | Phase::Down { at } => at,
                _ => rank.home,
            };
            let (targets, enough, least) = self.shelves(index, home);
            for (&generation, holders) in rank.everywhere() {
                // The archive and the vault give, if asked, and bring nothing.
                let Some(&from) = holders.first().filter(|m| vault::is_node(m)) else { continue };
                let coming = |m: &Member| self.copying.contains_key(&(index, generation, *m));
                let has = |m: &Member| holders.contains(m) || coming(m);
                let stays = |m: &Member| self.leaves(m).is_none();
                let stranded = !waits && self.is_stranded(rank, generation, holders);
                let stay = least.max(usize::from(stranded));
                let there = self.members.iter().filter(|m| has(m)).count();
                let safe = self.members.iter().filter(|m| has(m) && stays(m)).count();
                let wanted = enough + self.extra(rank, generation);
                let missing = wanted.saturating_sub(there).max(stay.saturating_sub(safe));
                let mut to: Vec<Member> = Vec::new();
                for target in targets.iter().filter(|m| !has(m)) {
                    if to.len() < missing && !to.contains(target) {
                        to.push(*target);
                    }
                }
                for to in to {
                    self.copying.insert((index, generation, to), from);
                    todo.push(Action::Copy { rank: index, generation, from, to });
                }
            }
        }
    }
}
