//! A job that was saved as a whole is brought back: an archive, which is no node, holds of every
//! rank an image with its log, and all of its determinants.
//!
//! Kept true: what the archive holds is not given up before every rank runs and every image lies
//! on as many nodes as it is to; until then all can go back to it as they else do to the beginning.

use super::{Action, Phase, Planner, Rank};
use crate::membership::Member;
use crate::replicas::Words;
use std::collections::{BTreeMap, BTreeSet};

/// Stands for the archive among the holders of an image. Never a live member, and the last of all.
pub const ARCHIVE: Member = Member { node: u32::MAX, epoch: 0 };

/// What the archive has of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Its image; 0: the program's beginning.
    pub generation: u32,
    pub words: Words,
    /// Incarnations that it has had.
    pub incarnation: u32,
}

impl Planner {
    /// Brings all ranks to these nodes from what was saved of them. No process of them is left.
    pub fn restart(&mut self, members: Vec<Member>, saved: Vec<Saved>) -> Vec<Action> {
        let mut todo = Vec::new();
        self.settle_on(members);
        if self.members.is_empty() {
            return vec![Action::Lost];
        }
        todo.push(Action::Members(self.members.clone()));
        let before: Vec<u32> = self.ranks.iter().map(|r| r.incarnation).collect();
        self.ranks.clear();
        self.forget_returns();
        for (rank, saved) in saved.into_iter().enumerate() {
            let incarnation =
                before.get(rank).map_or(saved.incarnation, |b| saved.incarnation.max(*b));
            let Some(home) = self.mapped(rank) else { return vec![Action::Lost] };
            self.begin_from(rank, saved.generation);
            let holders = (saved.generation > 0).then_some(ARCHIVE).into_iter().collect();
            self.ranks.push(Rank {
                incarnation,
                home,
                // What is recorded of it is all there is.
                ran: ARCHIVE,
                phase: Phase::Fetching,
                words: Some(saved.words),
                committed: BTreeMap::from([(saved.generation, holders)]),
                pending: BTreeMap::new(),
                pinned: BTreeMap::new(),
                guards: BTreeMap::new(),
                unsound: BTreeSet::new(),
                given_up: 0,
                told: 0,
            });
        }
        for rank in 0..self.ranks.len() {
            let at = self.ranks[rank].home;
            self.restore_at(rank, at, &mut todo);
        }
        todo
    }

    /// Whether every rank has its place.
    pub fn placed(&self) -> bool {
        let at_home = [Phase::Up, Phase::Done, Phase::Released];
        let placed = |r: &Rank| at_home.contains(&r.phase);
        !self.rolling_back && self.ranks.iter().all(placed)
    }

    /// Whether every rank has its place, or is to come back where it was, with all that it takes.
    pub fn rests(&self) -> bool {
        let waits = |r: &Rank| match r.phase {
            Phase::Up | Phase::Done | Phase::Released => true,
            // Nothing but images is there.
            Phase::Restoring { from, .. } if self.units.are_one() => from.is_none(),
            Phase::Restoring { at, .. } => at == r.home && r.words.is_none(),
            _ => false,
        };
        !self.rolling_back && self.ranks.iter().all(waits)
    }

    /// Whether nothing hangs on the archive any more.
    pub fn outgrew_archive(&self) -> bool {
        let whole =
            |r: &Rank| r.committed.iter().all(|(g, holders)| *g == 0 || self.is_safe(holders));
        self.placed() && self.ranks.iter().all(whole)
    }

    /// The archive is given up.
    pub fn leave_archive(&mut self) {
        for holders in self.ranks.iter_mut().flat_map(|r| r.committed.values_mut()) {
            holders.remove(&ARCHIVE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Input;
    use super::*;
    use crate::recovery::testing::planner;
    use crate::replicas::Answer;
    use crate::units::Extent;

    fn member(node: u32) -> Member {
        Member { node, epoch: 7 }
    }

    fn words(word: u64) -> Words {
        Words { first: 3, words: vec![word] }
    }

    /// Two ranks, one with an image and one without, that were saved, come to two nodes of three.
    fn restarted() -> (Planner, Vec<Action>) {
        let members: Vec<Member> = (0..3).map(member).collect();
        let mut p = planner(Extent::Rank, vec![0, 1]);
        for &member in &members {
            p.step(Input::Joined { member, spare: member.node == 2 });
        }
        let saved = [(4, 8), (0, 9)].map(|(generation, word)| Saved {
            generation,
            words: words(word),
            incarnation: 5,
        });
        let todo = p.restart(members, saved.into());
        (p, todo)
    }

    fn ordered(todo: &[Action]) -> Vec<(u32, u32, u32, Option<Member>)> {
        let order = |a: &Action| match a {
            Action::Restore { rank, incarnation, at, from, .. } => {
                Some((*rank, *incarnation, at.node, *from))
            }
            _ => None,
        };
        todo.iter().filter_map(order).collect()
    }

    #[test]
    fn ranks_come_from_the_archive() {
        let (p, todo) = restarted();
        assert_eq!(ordered(&todo), [(0, 6, 0, Some(ARCHIVE)), (1, 6, 1, None)]);
        assert!(todo.iter().any(|a| matches!(a, Action::Restore { rank: 1, words: Some(w), .. }
            if *w == words(9))));
        assert!(!p.placed() && !p.outgrew_archive());
    }

    #[test]
    fn a_unit_comes_from_its_set_and_goes_back_to_it() {
        let members: Vec<Member> = (0..2).map(member).collect();
        let mut p = planner(Extent::Node, vec![0, 0, 1]);
        for &member in &members {
            p.step(Input::Joined { member, spare: false });
        }
        let saved =
            [4, 4, 6].map(|generation| Saved { generation, words: words(8), incarnation: 5 });
        let from = Some(ARCHIVE);
        let todo = p.restart(members, saved.into());
        assert_eq!(ordered(&todo), [(0, 6, 0, from), (1, 6, 0, from), (2, 6, 1, from)]);
        let generations = todo.iter().filter_map(|a| match a {
            Action::Restore { generation, .. } => Some(*generation),
            _ => None,
        });
        assert_eq!(generations.collect::<Vec<_>>(), [4, 4, 6]);
        // One of them dies before the other was told to start: both come from there again.
        p.step(Input::Starting { rank: 0, incarnation: 6 });
        let todo = p.step(Input::RankDied { rank: 0, incarnation: 6 });
        assert_eq!(ordered(&todo), [(0, 7, 0, from), (1, 7, 0, from)]);
    }

    #[test]
    fn a_home_that_is_lost_on_the_way_takes_nothing_with_it() {
        let (mut p, _) = restarted();
        p.step(Input::NodeDied { member: member(0) });
        let answer = |from| Input::Answered { from, round: 1, answer: Answer::default() };
        assert_eq!(ordered(&p.step(answer(member(1)))), []);
        let todo = p.step(answer(member(2)));
        assert_eq!(ordered(&todo), [(0, 7, 2, Some(ARCHIVE))]);
    }

    #[test]
    fn a_rank_rests_where_its_image_and_log_are() {
        let (mut p, _) = restarted();
        assert!(!p.rests(), "what is recorded of them is on the way");
        for rank in 0..2 {
            let at = vec![member(rank)];
            p.step(Input::Stored { rank, incarnation: 6, generation: 4, at });
            p.step(Input::Starting { rank, incarnation: 6 });
            p.step(Input::Restored { rank, incarnation: 6 });
        }
        assert!(p.rests() && p.placed());
        for rank in 0..2 {
            p.step(Input::RankDied { rank, incarnation: 6 });
        }
        assert!(p.rests() && !p.placed());
        // What is recorded of the ranks is asked for, and they come back elsewhere.
        p.step(Input::NodeDied { member: member(1) });
        assert!(!p.rests());
        for from in [member(0), member(2)] {
            p.step(Input::Answered { from, round: 1, answer: Answer::default() });
        }
        assert!(!p.rests());
    }

    #[test]
    fn the_archive_is_needed_until_each_image_is_on_two_nodes() {
        let (mut p, _) = restarted();
        for (rank, generation) in [(0, 4), (1, 0)] {
            if generation > 0 {
                let at = vec![member(0)];
                let todo = p.step(Input::Stored { rank, incarnation: 6, generation, at });
                let (from, to) = (member(0), member(1));
                assert_eq!(todo, [Action::Copy { rank, generation, from, to }]);
            }
            p.step(Input::Starting { rank, incarnation: 6 });
            p.step(Input::Restored { rank, incarnation: 6 });
        }
        assert!(p.placed() && !p.outgrew_archive());
        let at = vec![member(1)];
        p.step(Input::Stored { rank: 0, incarnation: 6, generation: 4, at });
        assert!(p.outgrew_archive());
        p.leave_archive();
        assert_eq!(p.holders(0, 4).collect::<Vec<_>>(), [member(0), member(1)]);
    }
}
