//! Nodes on which it costs least to have ranks, as whoever knows the network says before they have
//! to be placed.
//!
//! Pure. Kept true: they only decide among nodes that are as good otherwise: no rank goes to a node
//! for them that is gone, leaves or cannot have it, none to one with ranks while a spare is free.
//! Without any, all is as if there were none.

use crate::membership::Member;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// By rank: numbers of nodes, best first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Preferences(BTreeMap<u32, Vec<u32>>);

impl Preferences {
    /// For these ranks; what was said of others stays.
    pub fn set(&mut self, nodes: BTreeMap<u32, Vec<u32>>) {
        self.0.extend(nodes);
    }

    /// A rank runs.
    pub fn forget(&mut self, rank: u32) {
        self.0.remove(&rank);
    }

    /// When a node's turn is for a rank. All others, without any all nodes, have the last one.
    /// Few nodes are named for a rank.
    pub fn turn(&self, rank: u32, node: u32) -> usize {
        let named = self.0.get(&rank);
        let found = named.and_then(|nodes| nodes.iter().position(|n| *n == node));
        found.unwrap_or(usize::MAX)
    }

    /// The nodes that were named for a rank.
    pub fn of(&self, rank: u32) -> &[u32] {
        self.0.get(&rank).map_or(&[], Vec::as_slice)
    }
}

impl super::Planner {
    /// The nodes on which it costs least to have a rank that is to come back, best first; none, if
    /// nobody has said.
    pub fn preferred(&self, rank: u32) -> &[u32] {
        self.preferences.of(rank)
    }

    /// The members that a rank can be placed among, of those that `stays` says: as if all others
    /// were gone.
    pub fn takers_for(&self, rank: u32, stays: impl Fn(&Member) -> bool) -> Vec<Member> {
        let all = self.takers().into_iter().filter(stays).collect();
        self.fit_in_cluster(rank as usize, all)
    }

    /// Whether a member is a spare that no rank has run on.
    pub fn is_spare(&self, member: &Member) -> bool {
        self.spares.contains(member)
    }
}

#[cfg(test)]
mod tests {
    use crate::membership::Member;
    use crate::recovery::testing::planner;
    use crate::recovery::{Action, Input, Planner};
    use crate::replicas::Answer;
    use crate::units::Extent;
    use std::collections::BTreeMap;

    fn member(node: u32) -> Member {
        Member { node, epoch: 1 }
    }

    /// Ranks 0 and 1 on node 0, 2 on node 1; nodes from 2 on are spare.
    fn begun(extent: Extent, nodes: u32) -> Planner {
        let mut p = planner(extent, vec![0, 0, 1]);
        for node in 0..nodes {
            p.step(Input::Joined { member: member(node), spare: node > 1 });
        }
        p.start();
        runs(&mut p);
        p
    }

    fn runs(p: &mut Planner) {
        for rank in 0..3 {
            let incarnation = p.incarnation(rank);
            p.step(Input::Starting { rank, incarnation });
            p.step(Input::Restored { rank, incarnation });
        }
    }

    fn prefers(p: &mut Planner, ranks: &[u32], nodes: &[u32]) {
        let nodes: BTreeMap<u32, Vec<u32>> =
            ranks.iter().map(|rank| (*rank, nodes.to_vec())).collect();
        assert_eq!(p.step(Input::Prefer { nodes }), []);
    }

    /// Where ranks are ordered when these nodes have died.
    fn after(p: &mut Planner, lost: &[u32]) -> Vec<(u32, u32)> {
        let mut todo = Vec::new();
        for node in lost {
            todo.extend(p.step(Input::NodeDied { member: member(*node) }));
        }
        let rounds = todo.iter().filter_map(|a| match a {
            Action::Query { round, .. } => Some(*round),
            _ => None,
        });
        let round = rounds.max().unwrap_or(0);
        for from in p.members().to_vec() {
            let answer = Answer { in_step: vec![member(0), member(1)], ..Answer::default() };
            todo.extend(p.step(Input::Answered { from, round, answer }));
        }
        let placed = |a: Action| match a {
            Action::Restore { rank, at, .. } => Some((rank, at.node)),
            _ => None,
        };
        todo.into_iter().filter_map(placed).collect()
    }

    #[test]
    fn of_free_spares_the_one_is_taken_that_is_preferred() {
        let mut p = begun(Extent::Rank, 5);
        assert_eq!(after(&mut p, &[0]), [(0, 2), (1, 2)], "nobody has said anything");
        let mut p = begun(Extent::Rank, 5);
        prefers(&mut p, &[0, 1], &[4, 3, 2]);
        assert_eq!(after(&mut p, &[0]), [(0, 4), (1, 4)]);
        // They run: what was preferred was of that loss.
        runs(&mut p);
        assert_eq!(p.preferred(0), &[] as &[u32]);
    }

    #[test]
    fn ranks_of_two_nodes_do_not_share_a_spare_that_both_prefer() {
        let mut p = begun(Extent::Rank, 5);
        prefers(&mut p, &[0, 1, 2], &[3, 4, 2]);
        assert_eq!(after(&mut p, &[0, 1]), [(0, 3), (1, 3), (2, 4)]);
    }

    #[test]
    fn no_rank_goes_where_it_would_not_go_without() {
        // To one that has ranks, while a spare is free; to one that is gone, or unknown.
        let mut p = begun(Extent::Rank, 4);
        prefers(&mut p, &[0, 1], &[1, 3, 2, 77]);
        assert_eq!(after(&mut p, &[3, 0]), [(0, 2), (1, 2)]);
        // To one with more ranks than another.
        let mut p = begun(Extent::Rank, 3);
        prefers(&mut p, &[2], &[0, 2]);
        assert_eq!(after(&mut p, &[1]), [(2, 2)]);
    }

    #[test]
    fn without_spares_it_decides_among_those_with_as_many_ranks() {
        let mut p = planner(Extent::Rank, vec![0, 1, 2]);
        for node in 0..3 {
            p.step(Input::Joined { member: member(node), spare: false });
        }
        p.start();
        runs(&mut p);
        prefers(&mut p, &[0], &[2, 1]);
        assert_eq!(after(&mut p, &[0]), [(0, 2)]);
    }

    #[test]
    fn all_that_go_back_together_do_so_as_well() {
        let mut p = begun(Extent::Job, 5);
        prefers(&mut p, &[0, 1], &[4, 3, 2]);
        p.step(Input::NodeDied { member: member(0) });
        let members = (1..5).map(|node| Member { node, epoch: 9 }).collect();
        let todo = p.step(Input::AllDown { members });
        let at = |wanted: u32| {
            todo.iter().find_map(|a| match a {
                Action::Restore { rank, at, .. } if *rank == wanted => Some(at.node),
                _ => None,
            })
        };
        assert_eq!([0, 1, 2].map(at), [Some(4), Some(4), Some(1)]);
    }
}
