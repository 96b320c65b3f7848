//! Steps of a planner whose recovery units are nodes. Long histories are those of `tests/sim`.

use super::super::{Guard, Input, Rule, VAULT};
use super::*;
use crate::membership::Neighbours;
use crate::recovery::testing::{in_clusters, planner};
use crate::replicas::{Answer, Words};

fn member(node: u32) -> Member {
    Member { node, epoch: 1 }
}

/// Ranks 0 and 1 on node 0, 2 and 3 on node 1, node 2 a spare, all running.
fn running() -> Planner {
    let mut p = planner(Extent::Node, vec![0, 0, 1, 1]);
    for node in 0..3 {
        p.step(Input::Joined { member: member(node), spare: node == 2 });
    }
    p.start();
    run(&mut p, &[0, 1, 2, 3], 1);
    assert!(p.placed());
    p
}

fn run(p: &mut Planner, ranks: &[u32], incarnation: u32) {
    for &rank in ranks {
        p.step(Input::Starting { rank, incarnation });
        p.step(Input::Restored { rank, incarnation });
    }
}

fn stored(p: &mut Planner, rank: u32, incarnation: u32, generation: u32) -> Vec<Action> {
    let at = vec![p.home(rank).unwrap(), member(2)];
    p.step(Input::Stored { rank, incarnation, generation, at })
}

fn died(p: &mut Planner, rank: u32, incarnation: u32) -> Vec<Action> {
    p.step(Input::RankDied { rank, incarnation })
}

fn killed(todo: &[Action]) -> Vec<u32> {
    let kill = |a: &Action| match a {
        Action::Kill { rank, .. } => Some(*rank),
        _ => None,
    };
    todo.iter().filter_map(kill).collect()
}

/// Rank, generation and home of those that are ordered.
fn ordered(todo: &[Action]) -> Vec<(u32, u32, u32)> {
    let order = |a: &Action| match a {
        Action::Restore { rank, generation, at, .. } => Some((*rank, *generation, at.node)),
        _ => None,
    };
    todo.iter().filter_map(order).collect()
}

fn gathers(todo: &[Action], at: u32, ranks: &[u32]) -> bool {
    let there = |a: &Action| match a {
        Action::Gather { at: place, ranks: all, .. } => place.node == at && all == ranks,
        _ => false,
    };
    todo.iter().any(there)
}

#[test]
fn a_snapshot_of_a_unit_counts_as_a_whole_and_others_do_not_matter() {
    let mut p = running();
    assert_eq!(stored(&mut p, 0, 1, 1), []);
    let complete = |rank| Action::Complete { rank, generation: 1 };
    assert_eq!(stored(&mut p, 1, 1, 1), [complete(0), complete(1)]);
    let void = Input::VoidUnit { unit: 1, generation: 5 };
    assert_eq!(stored(&mut p, 2, 1, 5), []);
    assert_eq!(p.step(void), [Action::Discard { rank: 2, generation: 5 }]);
    assert_eq!(stored(&mut p, 3, 1, 5), [Action::Discard { rank: 3, generation: 5 }]);
    assert_eq!(stored(&mut p, 0, 1, 2), [], "the other unit is not meant");
}

#[test]
fn a_snapshot_that_is_being_copied_when_a_later_one_is_given_up_counts() {
    let mut p = planner(Extent::Node, vec![0, 0, 1, 1]);
    for node in 0..3 {
        p.step(Input::Joined { member: member(node), spare: false });
    }
    p.start();
    run(&mut p, &[0, 1, 2, 3], 1);
    let one =
        |rank, node| Input::Stored { rank, incarnation: 1, generation: 1, at: vec![member(node)] };
    p.step(one(2, 1));
    p.step(one(3, 1));
    assert_eq!(p.step(Input::VoidUnit { unit: 1, generation: 2 }), []);
    assert_eq!(p.step(one(2, 2)), [], "it is not thrown away");
    let complete = |rank| Action::Complete { rank, generation: 1 };
    assert_eq!(p.step(one(3, 2)), [complete(2), complete(3)]);
}

#[test]
fn when_a_rank_dies_its_unit_goes_back_when_none_is_left() {
    let mut p = running();
    stored(&mut p, 0, 1, 1);
    stored(&mut p, 1, 1, 1);
    assert_eq!(killed(&died(&mut p, 1, 1)), [0]);
    assert!(!p.placed());
    let todo = died(&mut p, 0, 1);
    assert!(gathers(&todo, 0, &[0, 1]));
    assert_eq!(ordered(&todo), [(0, 1, 0), (1, 1, 0)]);
    assert!(todo.iter().all(|a| !matches!(a, Action::Restore { words: Some(_), .. })));
}

#[test]
fn one_that_has_ended_is_run_again_with_its_unit() {
    let mut p = running();
    p.step(Input::RankDone { rank: 3 });
    let todo = died(&mut p, 2, 1);
    assert_eq!(ordered(&todo), [(2, 0, 1), (3, 0, 1)]);
    // One that ends while it is being killed.
    run(&mut p, &[2, 3], 2);
    assert_eq!(killed(&died(&mut p, 2, 2)), [3]);
    assert_eq!(ordered(&p.step(Input::RankDone { rank: 3 })), [(2, 0, 1), (3, 0, 1)]);
}

#[test]
fn who_is_being_brought_back_goes_back_again() {
    let mut p = running();
    died(&mut p, 0, 1);
    died(&mut p, 1, 1);
    // One was told to start, the other not yet.
    p.step(Input::Starting { rank: 0, incarnation: 2 });
    p.step(Input::Restored { rank: 0, incarnation: 2 });
    let todo = died(&mut p, 0, 2);
    assert_eq!(killed(&todo), [1]);
    assert_eq!(ordered(&todo), [(0, 0, 0), (1, 0, 0)], "nobody is waited for");
    // Both were, and one of them is heard of only now.
    for rank in 0..2 {
        p.step(Input::Starting { rank, incarnation: 3 });
    }
    p.step(Input::Restored { rank: 0, incarnation: 3 });
    assert_eq!(killed(&died(&mut p, 0, 3)), [1]);
    assert_eq!(killed(&p.step(Input::Restored { rank: 1, incarnation: 3 })), [1]);
    assert_eq!(ordered(&died(&mut p, 1, 3)).len(), 2);
}

#[test]
fn a_unit_moves_as_a_whole() {
    let mut p = running();
    let todo = p.step(Input::NodeDied { member: member(1) });
    assert!(todo.iter().any(|a| matches!(a, Action::Query { ranks, .. } if *ranks == [2, 3])));
    let words = Words { first: 0, words: vec![1 << 56] };
    let held = [(2, words.clone()), (3, words)].into();
    let answer = Answer { held, in_step: vec![member(1)], partly: false };
    p.step(Input::Answered { from: member(0), round: 1, answer });
    let last = Input::Answered { from: member(2), round: 1, answer: Answer::default() };
    let todo = p.step(last);
    assert!(gathers(&todo, 2, &[2, 3]));
    assert_eq!(ordered(&todo), [(2, 0, 2), (3, 0, 2)]);
    // The spare dies, too: together they come to the node that is left.
    p.step(Input::NodeDied { member: member(2) });
    let answer = Answer { in_step: vec![member(1)], ..Answer::default() };
    let todo = p.step(Input::Answered { from: member(0), round: 2, answer });
    assert!(gathers(&todo, 0, &[2, 3]));
    assert_eq!(ordered(&todo), [(2, 0, 0), (3, 0, 0)]);
    assert!(todo.iter().all(|a| !matches!(a, Action::Restore { words: None, .. })));
}

#[test]
fn without_one_image_the_whole_snapshot_is_of_no_use() {
    let mut p = running();
    for generation in 1..=2 {
        stored(&mut p, 0, 1, generation);
        stored(&mut p, 1, 1, generation);
    }
    died(&mut p, 0, 1);
    assert_eq!(ordered(&died(&mut p, 1, 1)), [(0, 2, 0), (1, 2, 0)]);
    p.step(Input::Starting { rank: 0, incarnation: 2 });
    let bad = |at| Input::ImageBad { rank: 1, incarnation: 2, generation: 2, at };
    // Another copy is left, then none: who runs already goes back with it.
    assert_eq!(ordered(&p.step(bad(member(0)))), [(1, 2, 0)]);
    let bad = Input::ImageBad { rank: 1, incarnation: 3, generation: 2, at: member(2) };
    let todo = p.step(bad);
    assert_eq!(killed(&todo), [0, 1]);
    let damaged = |rank| Action::Damaged { rank, generation: 2 };
    assert!(todo.contains(&damaged(0)) && todo.contains(&damaged(1)));
    assert_eq!(ordered(&died(&mut p, 0, 2)), [(0, 1, 0), (1, 1, 0)]);
}

#[test]
fn a_snapshot_in_the_vault_counts_as_a_whole_and_outlives_its_node() {
    let mut p = planner(Extent::Node, vec![0, 0, 1, 1]).with_rule(Rule::Vault { least: 2 });
    for node in 0..4 {
        p.step(Input::Joined { member: member(node), spare: node == 3 });
    }
    p.start();
    run(&mut p, &[0, 1, 2, 3], 1);
    for rank in 0..2 {
        let at = vec![member(0)];
        let todo = p.step(Input::Stored { rank, incarnation: 1, generation: 1, at });
        assert_eq!(todo, [], "it is in no vault");
    }
    let vaulted = |rank| {
        let guards = vec![Guard { members: (0..4).map(member).collect(), tolerates: 1 }];
        Input::Vaulted { rank, generation: 1, guards }
    };
    assert_eq!(p.step(vaulted(1)), []);
    let complete = |rank| Action::Complete { rank, generation: 1 };
    assert_eq!(p.step(vaulted(0)), [complete(0), complete(1)]);
    p.step(Input::NodeDied { member: member(0) });
    let todo = answered(&mut p, &[0]);
    assert_eq!(ordered(&todo), [(0, 1, 3), (1, 1, 3)]);
    let read = |a: &&Action| matches!(a, Action::Restore { from: Some(VAULT), .. });
    assert_eq!(todo.iter().filter(read).count(), 2);
    // One more, and too much is gone: the snapshot of both is of no use.
    p.step(Input::NodeDied { member: member(2) });
    assert_eq!(ordered(&todo).len(), 2);
    assert_eq!(p.snapshot_of(0), Some(0), "they begin again");
}

/// Ranks 0 and 1 on nodes 0 and 1 of the first cluster, 2 and 3 on nodes 2 and 3 of the second;
/// node 4 a spare of the first, node 5 one of the second.
fn clustered(outside: bool) -> Planner {
    let neighbours = Neighbours::new(2, vec![0, 0, 1, 1, 0, 1], outside);
    let mut p = in_clusters(vec![0, 1, 2, 3], neighbours);
    for node in 0..6 {
        p.step(Input::Joined { member: member(node), spare: node > 3 });
    }
    p.start();
    run(&mut p, &[0, 1, 2, 3], 1);
    p
}

/// All nodes answer what they hold, in step with these; returns what is ordered then.
fn answered(p: &mut Planner, in_step: &[u32]) -> Vec<Action> {
    let answer =
        Answer { in_step: in_step.iter().map(|n| member(*n)).collect(), ..Answer::default() };
    let round = p.round;
    let members = p.members().to_vec();
    let all =
        members.into_iter().map(|from| Input::Answered { from, round, answer: answer.clone() });
    all.collect::<Vec<_>>().into_iter().flat_map(|input| p.step(input)).collect()
}

#[test]
fn copies_are_in_the_cluster_or_in_another() {
    let partner = |p: &Planner, rank| p.partner(rank).unwrap().node;
    let inside = clustered(false);
    assert_eq!([0, 1, 2, 3].map(|r| partner(&inside, r)), [1, 4, 3, 5]);
    let outside = clustered(true);
    assert_eq!([0, 1, 2, 3].map(|r| partner(&outside, r)), [2, 2, 4, 4]);
}

#[test]
fn a_snapshot_over_nodes_counts_when_all_of_it_is_stored() {
    let mut p = clustered(false);
    let at = |nodes: [u32; 2]| nodes.map(member).to_vec();
    let part = |rank, at| Input::Stored { rank, incarnation: 1, generation: 1, at };
    assert_eq!(p.step(part(0, at([0, 1]))), []);
    let complete = |rank| Action::Complete { rank, generation: 1 };
    assert_eq!(p.step(part(1, at([1, 4]))), [complete(0), complete(1)]);
}

#[test]
fn a_unit_over_nodes_waits_for_those_that_live_and_for_what_is_known_of_the_dead() {
    let mut p = clustered(false);
    let todo = p.step(Input::NodeDied { member: member(1) });
    assert_eq!(killed(&todo), [0], "the other cluster is not touched");
    assert!(todo.iter().any(|a| matches!(a, Action::Query { ranks, .. } if *ranks == [1])));
    assert_eq!(ordered(&answered(&mut p, &[1])), [], "rank 0 may run still");
    let todo = died(&mut p, 0, 1);
    assert_eq!(ordered(&todo), [(0, 0, 0), (1, 0, 4)], "to the spare of the cluster");
    assert!(gathers(&todo, 0, &[0, 1]) && gathers(&todo, 4, &[0, 1]));
    let lives = |a: &Action| matches!(a, Action::Gather { life, .. } if *life != 1);
    assert!(!todo.iter().any(lives));
    // The other way round: the processes end first.
    run(&mut p, &[0, 1], 2);
    let todo = p.step(Input::NodeDied { member: member(0) });
    assert_eq!(killed(&todo), [1]);
    assert_eq!(ordered(&died(&mut p, 1, 2)), []);
    let todo = answered(&mut p, &[0]);
    assert_eq!(ordered(&todo), [(0, 0, 4), (1, 0, 4)], "they share the cluster's last node");
    assert!(todo.iter().any(|a| matches!(a, Action::Gather { life: 2, .. })));
}

#[test]
fn a_lost_cluster_comes_back_in_another_if_that_has_what_it_takes() {
    let mut p = clustered(true);
    for node in [1, 4, 0] {
        p.step(Input::NodeDied { member: member(node) });
    }
    let todo = answered(&mut p, &[0, 1]);
    assert_eq!(ordered(&todo), [(0, 0, 5), (1, 0, 2)], "a spare, then who has fewest");
    let mut p = clustered(false);
    for node in [1, 4, 0] {
        p.step(Input::NodeDied { member: member(node) });
    }
    let todo = answered(&mut p, &[]);
    let why =
        |a: &Action| matches!(a, Action::RollBack { why } if why.contains("--copies outside"));
    assert!(todo.iter().any(why), "{todo:?}");
}

/// Ranks 0 and 1 are in the cluster of nodes 0 and 1, 2 and 3 in that of nodes 2 and 3.
#[test]
fn a_unit_moves_as_a_whole_when_a_node_of_it_leaves() {
    let neighbours = Neighbours::new(2, vec![0, 0, 1, 1], false);
    let mut p = in_clusters(vec![0, 1, 2, 3], neighbours);
    for node in 0..4 {
        p.step(Input::Joined { member: member(node), spare: false });
    }
    p.start();
    run(&mut p, &[0, 1, 2, 3], 1);
    let going = member(3);
    p.step(Input::Leave { members: vec![going], wishes: BTreeMap::new() });
    assert_eq!(p.partner(3), Some(member(2)), "the other node of its cluster");
    for (rank, at) in [(2, [2, 0]), (3, [3, 2])] {
        let at = at.map(member).into();
        p.step(Input::Stored { rank, incarnation: 1, generation: 1, at });
    }
    p.step(Input::Stands { member: going });
    let mut todo = Vec::new();
    for from in (0..4).map(member) {
        todo.extend(p.step(Input::Guarded { from, round: 1 }));
    }
    assert!(todo.contains(&Action::Vacate { member: going }));
    assert_eq!(killed(&todo), [2], "its mate stands on a node that stays");
    assert_eq!(ordered(&died(&mut p, 2, 1)), [], "the outcomes of the other are not known");
    let mut todo = Vec::new();
    for from in (0..4).map(member) {
        let answer = Answer { in_step: vec![going], ..Answer::default() };
        todo.extend(p.step(Input::Answered { from, round: 1, answer }));
    }
    assert_eq!(ordered(&todo), [(2, 1, 2), (3, 1, 2)]);
    assert!(gathers(&todo, 2, &[2, 3]));
}
