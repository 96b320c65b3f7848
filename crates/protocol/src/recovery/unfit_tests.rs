//! Ranks that cannot be brought back where they were ordered.

use super::super::*;
use crate::recovery::testing::planner;
use crate::replicas::{Answer, Words};
use crate::units::{Extent, LogAt};

fn member(node: u32) -> Member {
    Member { node, epoch: u64::from(node) + 1 }
}

/// Ranks 0 and 1 on nodes 0 and 1, nodes 2 and 3 without any; image 1 of rank 0 lies on 0 and 1.
fn running(mut p: Planner) -> Planner {
    for node in 0..4 {
        p.step(Input::Joined { member: member(node), spare: false });
    }
    p.start();
    for rank in 0..2 {
        p.step(Input::Restored { rank, incarnation: 1 });
    }
    let at = vec![member(0), member(1)];
    p.step(Input::Stored { rank: 0, incarnation: 1, generation: 1, at });
    p
}

/// Node 0 dies; what it recorded of rank 0 is known.
fn lose_node_0(p: &mut Planner) -> Vec<Action> {
    p.step(Input::NodeDied { member: member(0) });
    let held = BTreeMap::from([(0, Words { first: 0, words: vec![7] })]);
    let answer = Answer { held, in_step: vec![member(0)], partly: false };
    let from = |node| Input::Answered { from: member(node), round: 1, answer: answer.clone() };
    (1..4).flat_map(|node| p.step(from(node))).collect()
}

/// Where rank 0 is ordered, under which number, and who has its image.
fn order(todo: &[Action]) -> Option<(u32, u32, Option<u32>)> {
    todo.iter().find_map(|a| match a {
        Action::Restore { rank: 0, incarnation, at, generation: 1, from, words: Some(_) } => {
            Some((at.node, *incarnation, from.map(|m| m.node)))
        }
        _ => None,
    })
}

fn unfit(p: &mut Planner, incarnation: u32, at: u32) -> Vec<Action> {
    p.step(Input::Unfit { rank: 0, incarnation, at: member(at) })
}

#[test]
fn a_rank_comes_to_another_node() {
    let mut p = running(planner(Extent::Rank, vec![0, 1]));
    assert_eq!(order(&lose_node_0(&mut p)), Some((2, 2, Some(1))));
    assert_eq!(order(&unfit(&mut p, 2, 2)), Some((3, 3, Some(1))));
    // That is over.
    assert_eq!(unfit(&mut p, 2, 2), []);
    // The one with a rank, then the others once more.
    assert_eq!(order(&unfit(&mut p, 3, 3)).map(|o| (o.0, o.2)), Some((1, None)));
    assert_eq!(order(&unfit(&mut p, 4, 1)).map(|o| o.0), Some(2));
    assert_eq!(order(&unfit(&mut p, 5, 2)).map(|o| o.0), Some(3));
    // It runs: all is forgotten.
    p.step(Input::Starting { rank: 0, incarnation: 6 });
    p.step(Input::Restored { rank: 0, incarnation: 6 });
    assert_eq!(p.home(0), Some(member(3)));
    assert!(p.holders(0, 1).any(|m| m == member(1)) && p.unfit.is_empty());
}

#[test]
fn a_rank_that_was_to_start_stays() {
    let mut p = running(planner(Extent::Rank, vec![0, 1]));
    lose_node_0(&mut p);
    p.step(Input::Starting { rank: 0, incarnation: 2 });
    assert_eq!(order(&unfit(&mut p, 2, 2)).map(|o| (o.0, o.1)), Some((2, 3)));
}

#[test]
fn the_last_node_is_tried_again() {
    let mut p = running(planner(Extent::Rank, vec![0, 1]));
    lose_node_0(&mut p);
    unfit(&mut p, 2, 2);
    for node in [2, 3] {
        p.step(Input::NodeDied { member: member(node) });
    }
    let answer = Answer { held: BTreeMap::new(), in_step: vec![member(0)], partly: false };
    let todo = p.step(Input::Answered { from: member(1), round: p.round, answer });
    let (at, incarnation, _) = order(&todo).unwrap();
    assert_eq!(at, 1);
    assert_eq!(order(&unfit(&mut p, incarnation, 1)).map(|o| o.0), Some(1));
}

#[test]
fn a_unit_that_was_to_start_goes_back_where_it_is() {
    let mut p = running(planner(Extent::Node, vec![0, 0]));
    p.step(Input::RankDied { rank: 0, incarnation: 1 });
    p.step(Input::RankDied { rank: 1, incarnation: 1 });
    let incarnation = p.incarnation(0);
    for rank in 0..2 {
        p.step(Input::Starting { rank, incarnation });
    }
    p.step(Input::Restored { rank: 1, incarnation });
    let todo = p.step(Input::Unfit { rank: 0, incarnation, at: member(0) });
    assert!(todo.contains(&Action::Kill { rank: 1, incarnation }), "{todo:?}");
    let todo = p.step(Input::RankDied { rank: 1, incarnation });
    let restores = |a: &&Action| matches!(a, Action::Restore { at, .. } if *at == member(0));
    assert_eq!(todo.iter().filter(restores).count(), 2, "{todo:?}");
}

#[test]
fn ranks_that_go_back_together_do_so_again() {
    let mut p = running(planner(Extent::Job, vec![0, 1]));
    p.step(Input::GoBack);
    let todo = p.step(Input::AllDown { members: (1..4).map(member).collect() });
    let to = |todo: &[Action]| {
        todo.iter().find_map(|a| match a {
            Action::Restore { rank: 0, at, incarnation, .. } => Some((*at, *incarnation)),
            _ => None,
        })
    };
    let (at, incarnation) = to(&todo).unwrap();
    // Before all were told to start it alone is tried again there.
    let todo = p.step(Input::Unfit { rank: 0, incarnation, at });
    let (again, incarnation) = to(&todo).unwrap();
    assert_eq!(again, at);
    p.step(Input::Starting { rank: 0, incarnation });
    let todo = p.step(Input::Unfit { rank: 0, incarnation, at });
    assert!(matches!(todo[..], [Action::RollBack { .. }]), "{todo:?}");
}

#[test]
fn a_rank_that_dies_again_and_again_leaves_its_node() {
    let mut p = running(planner(Extent::Rank, vec![0, 1]));
    let todo = p.step(Input::RankDied { rank: 0, incarnation: 1 });
    assert!(todo.iter().any(|a| matches!(a, Action::Restore { rank: 0, incarnation: 2, .. })));
    let todo = p.step(Input::Evicted { rank: 0, incarnation: 2 });
    assert_eq!(todo[0], Action::Yield { at: member(0), rank: 0 });
    assert_eq!(todo.iter().filter(|a| matches!(a, Action::Query { .. })).count(), 4, "{todo:?}");
    // Its node tells what is recorded there, and the others what they hold.
    let held = BTreeMap::from([(0, Words { first: 0, words: vec![7, 8] })]);
    let own = Answer { held, in_step: vec![member(0)], partly: false };
    let answer = |node: u32| Input::Answered {
        from: member(node),
        round: 1,
        answer: if node == 0 { own.clone() } else { Answer::default() },
    };
    let todo: Vec<Action> = (0..4).flat_map(|node| p.step(answer(node))).collect();
    assert_eq!(order(&todo), Some((2, 3, Some(0))));
    let words = |a: &Action| {
        matches!(a, Action::Restore { words: Some(w), .. }
        if w.words == [7, 8])
    };
    assert!(todo.iter().any(words));
    p.step(Input::Starting { rank: 0, incarnation: 3 });
    p.step(Input::Restored { rank: 0, incarnation: 3 });
    assert_eq!(p.home(0), Some(member(2)));
    // There as well: it comes to the next one, not to where it was.
    p.step(Input::RankDied { rank: 0, incarnation: 3 });
    p.step(Input::Evicted { rank: 0, incarnation: 4 });
    let round = p.round;
    let own = Answer { held: BTreeMap::new(), in_step: vec![member(2)], partly: false };
    let from = |node| Input::Answered { from: member(node), round, answer: own.clone() };
    let todo: Vec<Action> = (0..4).flat_map(|node| p.step(from(node))).collect();
    assert_eq!(order(&todo).map(|o| o.0), Some(3));
    p.step(Input::Starting { rank: 0, incarnation: 5 });
    p.step(Input::Restored { rank: 0, incarnation: 5 });
    // An image counts: it got on, and all is forgotten.
    let at = vec![member(3), member(0)];
    p.step(Input::Stored { rank: 0, incarnation: 5, generation: 2, at });
    assert!(p.unfit.is_empty());
}

#[test]
fn a_rank_with_a_router_leaves_its_node_too_and_comes_to_no_router() {
    let routed = planner(Extent::Rank, vec![0, 1]).logged_at(LogAt::routers([2]));
    let mut p = running(routed);
    p.step(Input::RankDied { rank: 0, incarnation: 1 });
    let todo = p.step(Input::Evicted { rank: 0, incarnation: 2 });
    assert_eq!(todo[0], Action::Yield { at: member(0), rank: 0 });
    let held = BTreeMap::from([(0, Words { first: 0, words: vec![7] })]);
    let own = Answer { held, in_step: vec![member(0)], partly: false };
    let from = |node| Input::Answered { from: member(node), round: 1, answer: own.clone() };
    let todo: Vec<Action> = (0..4).flat_map(|node| p.step(from(node))).collect();
    assert_eq!(order(&todo), Some((3, 3, Some(0))));
}

#[test]
fn a_rank_stays_where_nobody_else_takes_it() {
    let mut p = running(planner(Extent::Rank, vec![0, 1]));
    for node in 1..4 {
        p.step(Input::NodeDied { member: member(node) });
    }
    p.step(Input::RankDied { rank: 0, incarnation: 1 });
    assert!(!p.may_leave(0));
    let todo = p.step(Input::Evicted { rank: 0, incarnation: 2 });
    let here = |a: &Action| {
        matches!(a, Action::Restore { rank: 0, incarnation: 3, at, .. }
        if *at == member(0))
    };
    assert!(todo.iter().any(here), "{todo:?}");
    // One that was told to start meanwhile is not touched, nor is an earlier one.
    p.step(Input::Starting { rank: 0, incarnation: 3 });
    assert_eq!(p.step(Input::Evicted { rank: 0, incarnation: 3 }), []);
    assert_eq!(p.step(Input::Evicted { rank: 0, incarnation: 2 }), []);
}

#[test]
fn nobody_of_a_unit_leaves_alone() {
    let p = running(planner(Extent::Node, vec![0, 0]));
    assert!(!p.may_leave(0));
    assert!(!running(planner(Extent::Job, vec![0, 1])).may_leave(0));
}

#[test]
fn a_rank_without_a_program_is_tried_at_some_nodes_and_at_each_once() {
    for (nodes, tried) in [(2, 2), (3, 3), (4, 4), (9, 4)] {
        let mut p = planner(Extent::Rank, vec![0, 1]);
        for node in 0..nodes {
            p.step(Input::Joined { member: member(node), spare: false });
        }
        p.start();
        let mut homes = vec![0];
        while p.may_try(0) {
            let (home, incarnation) = (p.home(0).unwrap(), p.incarnation(0));
            p.step(Input::Starting { rank: 0, incarnation });
            p.step(Input::RankDied { rank: 0, incarnation });
            p.step(Input::Evicted { rank: 0, incarnation: incarnation + 1 });
            let round = p.round;
            let held = Answer { held: BTreeMap::new(), in_step: vec![home], partly: false };
            for node in 0..nodes {
                p.step(Input::Answered { from: member(node), round, answer: held.clone() });
            }
            homes.push(p.home(0).unwrap().node);
        }
        let all: std::collections::BTreeSet<u32> = homes.iter().copied().collect();
        assert_eq!((homes.len(), all.len()), (tried, tried), "{homes:?}");
    }
}
