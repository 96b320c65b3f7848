//! Steps of a planner whose ranks go back together. Long histories are those of `tests/sim`.

use super::super::{Input, Saved};
use super::*;

fn member(node: u32, epoch: u64) -> Member {
    Member { node, epoch }
}

/// Ranks 0 and 1 on nodes 0 and 1, node 2 a spare, all running.
fn running() -> Planner {
    let mut p = Planner::together(vec![0, 1]);
    for node in 0..3 {
        p.step(Input::Joined { member: member(node, 1), spare: node == 2 });
    }
    p.start();
    run_all(&mut p, 1);
    p
}

fn run_all(p: &mut Planner, incarnation: u32) {
    for rank in 0..2 {
        p.step(Input::Starting { rank, incarnation });
        p.step(Input::Restored { rank, incarnation });
    }
    assert!(p.placed());
}

/// The image of a rank lies on its node and on the next.
fn stored(
    p: &mut Planner,
    rank: u32,
    incarnation: u32,
    generation: u32,
    at: &[u32],
) -> Vec<Action> {
    let epoch = p.members()[0].epoch;
    let at = at.iter().map(|n| member(*n, epoch)).collect();
    p.step(Input::Stored { rank, incarnation, generation, at })
}

fn set(p: &mut Planner, incarnation: u32, generation: u32) {
    assert_eq!(stored(p, 0, incarnation, generation, &[0, 1]), []);
    let todo = stored(p, 1, incarnation, generation, &[1, 2]);
    let complete = |rank| Action::Complete { rank, generation };
    assert_eq!(todo, [complete(0), complete(1)]);
}

/// Rank, generation, home and source of those that are ordered.
fn ordered(todo: &[Action]) -> Vec<(u32, u32, u32, Option<u32>)> {
    let order = |a: &Action| match a {
        Action::Restore { rank, generation, at, from, words, .. } => {
            assert_eq!(*words, Some(Words::default()));
            Some((*rank, *generation, at.node, from.map(|m| m.node)))
        }
        _ => None,
    };
    todo.iter().filter_map(order).collect()
}

fn all_down(p: &mut Planner, nodes: &[u32], epoch: u64) -> Vec<Action> {
    let members = nodes.iter().map(|n| member(*n, epoch)).collect();
    p.step(Input::AllDown { members })
}

fn rolls_back(todo: &[Action]) -> bool {
    matches!(todo.last(), Some(Action::RollBack { .. }))
}

#[test]
fn a_set_counts_as_a_whole() {
    let mut p = running();
    set(&mut p, 1, 1);
    assert!(rolls_back(&p.step(Input::RankDied { rank: 0, incarnation: 1 })));
    // Nothing more is to be done until no process is left.
    assert_eq!(p.step(Input::Tick), []);
    assert_eq!(ordered(&all_down(&mut p, &[0, 1, 2], 2)), [(0, 1, 0, None), (1, 1, 1, None)]);
    assert_eq!(p.set(), 1);
}

#[test]
fn what_is_not_whole_is_passed_over() {
    let mut p = running();
    set(&mut p, 1, 1);
    stored(&mut p, 0, 1, 2, &[0, 1]);
    p.step(Input::GoBack);
    let todo = all_down(&mut p, &[0, 1, 2], 2);
    assert!(todo.contains(&Action::Discard { rank: 0, generation: 2 }));
    assert_eq!(ordered(&todo), [(0, 1, 0, None), (1, 1, 1, None)]);
    // Too late for what is thrown away.
    run_all(&mut p, 2);
    let late = stored(&mut p, 1, 1, 2, &[1, 2]);
    assert_eq!(late, [Action::Discard { rank: 1, generation: 2 }]);
    set(&mut p, 2, 3);
}

#[test]
fn a_set_that_is_given_up_is_thrown_away() {
    let mut p = running();
    stored(&mut p, 0, 1, 1, &[0, 1]);
    let discard = |rank| Action::Discard { rank, generation: 1 };
    assert_eq!(p.step(Input::Void { generation: 1 }), [discard(0)]);
    assert_eq!(stored(&mut p, 1, 1, 1, &[1, 2]), [discard(1)]);
    set(&mut p, 1, 2);
}

#[test]
fn the_ranks_of_a_lost_node_come_to_a_spare_with_all_others() {
    let mut p = running();
    set(&mut p, 1, 1);
    assert!(rolls_back(&p.step(Input::NodeDied { member: member(1, 1) })));
    let todo = all_down(&mut p, &[0, 2], 2);
    assert_eq!(ordered(&todo), [(0, 1, 0, None), (1, 1, 2, None)]);
    // Their second copies are made again.
    run_all(&mut p, 2);
    let todo = p.step(Input::Tick);
    let copies = todo.iter().filter(|a| matches!(a, Action::Copy { .. })).count();
    assert_eq!(copies, 2, "{todo:?}");
}

#[test]
fn without_a_whole_set_all_begin_again() {
    let mut p = running();
    set(&mut p, 1, 1);
    // Both who have the image of rank 0 die.
    p.step(Input::NodeDied { member: member(0, 1) });
    p.step(Input::NodeDied { member: member(1, 1) });
    let todo = all_down(&mut p, &[2], 2);
    assert_eq!(ordered(&todo), [(0, 0, 2, None), (1, 0, 2, None)]);
    assert!(todo.contains(&Action::Damaged { rank: 1, generation: 1 }));
    assert_eq!(p.set(), 0);
}

#[test]
fn it_is_told_before_whether_a_whole_set_is_left() {
    let mut p = running();
    let later = |nodes: &[u32]| nodes.iter().map(|n| member(*n, 2)).collect::<Vec<_>>();
    assert!(!p.has_set(&later(&[0, 1, 2])));
    set(&mut p, 1, 1);
    for (nodes, has) in [(&[0, 2][..], true), (&[1], true), (&[0], false), (&[2], false)] {
        assert_eq!(p.has_set(&later(nodes)), has, "{nodes:?}");
    }
    // What the archive has is there on any nodes.
    let saved = |_| Saved { generation: 1, words: Words::default(), incarnation: 1 };
    p.restart(later(&[2]), (0..2).map(saved).collect());
    assert!(p.has_set(&later(&[0])));
    p.leave_archive();
    assert!(!p.has_set(&later(&[0])));
}

#[test]
fn a_bad_image_is_fetched_elsewhere_and_then_the_set_is_given_up() {
    let mut p = running();
    set(&mut p, 1, 1);
    set(&mut p, 1, 2);
    p.step(Input::GoBack);
    all_down(&mut p, &[0, 1, 2], 2);
    let bad = |node, incarnation| Input::ImageBad {
        rank: 0,
        incarnation,
        generation: 2,
        at: member(node, 2),
    };
    assert_eq!(ordered(&p.step(bad(0, 2))), [(0, 2, 0, Some(1))]);
    assert!(rolls_back(&p.step(bad(1, 3))));
    let todo = all_down(&mut p, &[0, 1, 2], 3);
    assert_eq!(ordered(&todo), [(0, 1, 0, None), (1, 1, 1, None)]);
    assert!(todo.contains(&Action::Damaged { rank: 1, generation: 2 }));
}

#[test]
fn a_node_without_ranks_dies_and_nobody_goes_back() {
    let mut p = running();
    set(&mut p, 1, 1);
    let todo = p.step(Input::NodeDied { member: member(2, 1) });
    assert!(!rolls_back(&todo) && p.placed());
    let (from, to) = (member(1, 1), member(0, 1));
    assert!(todo.contains(&Action::Copy { rank: 1, generation: 1, from, to }));
}

#[test]
fn who_dies_while_all_go_back_sends_all_back_again() {
    let mut p = running();
    set(&mut p, 1, 1);
    p.step(Input::GoBack);
    all_down(&mut p, &[0, 1, 2], 2);
    assert!(rolls_back(&p.step(Input::NodeDied { member: member(0, 2) })));
    // One more, before the others are down: these hear that nobody waits for it.
    let members = Action::Members(vec![member(1, 2)]);
    assert_eq!(p.step(Input::NodeDied { member: member(2, 2) }), [members]);
    let todo = all_down(&mut p, &[1], 3);
    assert_eq!(ordered(&todo), [(1, 1, 1, None), (0, 1, 1, None)]);
}
