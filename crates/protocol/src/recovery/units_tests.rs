//! Steps of a planner whose recovery units are nodes. Long histories are those of `tests/sim`.

use super::super::Input;
use super::*;
use crate::replicas::{Answer, Words};

fn member(node: u32) -> Member {
    Member { node, epoch: 1 }
}

/// Ranks 0 and 1 on node 0, 2 and 3 on node 1, node 2 a spare, all running.
fn running() -> Planner {
    let mut p = Planner::by_node(vec![0, 0, 1, 1]);
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
    todo.contains(&Action::Gather { at: member(at), ranks: ranks.to_vec() })
}

#[test]
fn a_set_of_a_unit_counts_as_a_whole_and_others_do_not_matter() {
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
    let answer = Answer { held, in_step: vec![member(1)] };
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
fn without_one_image_the_whole_set_is_of_no_use() {
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
