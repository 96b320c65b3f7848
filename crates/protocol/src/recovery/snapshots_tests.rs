//! Steps of a planner whose ranks have snapshots. Long histories are those of `tests/sim`.

use super::super::{Guard, Input, Rule, VAULT, tests::ordered};
use super::*;
use crate::recovery::testing::planner;
use crate::replicas::Answer;
use crate::units::Extent;

fn member(node: u32, epoch: u64) -> Member {
    Member { node, epoch }
}

/// A rank on each of four nodes, all running.
fn running() -> Planner {
    let mut p = planner(Extent::Rank, (0..4).collect());
    for node in 0..4 {
        p.step(Input::Joined { member: member(node, 1), spare: false });
    }
    p.start();
    run_all(&mut p, 1);
    p
}

fn run_all(p: &mut Planner, incarnation: u32) {
    for rank in 0..4 {
        p.step(Input::Starting { rank, incarnation });
        p.step(Input::Restored { rank, incarnation });
    }
    assert!(p.placed());
}

/// Each rank has an image of this generation, on its node and on the next.
fn images(p: &mut Planner, incarnation: u32, generation: u32) {
    let epoch = p.members()[0].epoch;
    for rank in 0..4 {
        let at = [rank, (rank + 1) % 4].map(|node| member(node, epoch)).into();
        let todo = p.step(Input::Stored { rank, incarnation, generation, at });
        assert_eq!(todo, [Action::Complete { rank, generation }]);
    }
}

/// With a snapshot, whose images were copied once more.
fn pinned() -> Planner {
    let mut p = running();
    images(&mut p, 1, 3);
    let todo = p.step(Input::Pin { generation: 3 });
    assert_eq!(todo.len(), 4);
    for rank in 0..4 {
        let to = member((rank + 2) % 4, 1);
        let copy = |a: &Action| {
            matches!(a, Action::Copy { rank: r, generation: 3, to: t, .. }
            if (*r, *t) == (rank, to))
        };
        assert!(todo.iter().any(copy), "{todo:?}");
        p.step(Input::Stored { rank, incarnation: 0, generation: 3, at: vec![to] });
    }
    p
}

/// The same, with newer images, for which retention has let those of the snapshot go.
fn retired() -> Planner {
    let mut p = pinned();
    images(&mut p, 1, 4);
    images(&mut p, 1, 5);
    for rank in 0..4 {
        p.step(Input::Dropped { rank, generation: 3 });
    }
    p
}

fn back(p: &mut Planner, nodes: &[u32], epoch: u64) -> Vec<Action> {
    let members: Vec<Member> = nodes.iter().map(|n| member(*n, epoch)).collect();
    assert!(p.has_snapshot(3, &members));
    p.step(Input::Return { generation: 3, members })
}

#[test]
fn all_return_to_where_retention_has_nothing_any_more() {
    let mut p = pinned();
    for generation in 4..6 {
        images(&mut p, 1, generation);
        for rank in 0..4 {
            p.step(Input::Dropped { rank, generation: generation - 2 });
        }
    }
    for rank in 0..4 {
        p.step(Input::Dropped { rank, generation: 3 });
    }
    assert_eq!(p.holders(0, 3).count(), 0);
    let todo = back(&mut p, &[0, 1, 2, 3], 2);
    let all: Vec<_> = (0..4).map(|rank| (rank, 3, rank, None)).collect();
    assert_eq!(ordered(&todo), all);
    run_all(&mut p, 2);
    // Whoever dies now comes back alone, from there; what came later counts no more.
    let late = Input::Stored { rank: 0, incarnation: 1, generation: 6, at: vec![member(0, 2)] };
    assert_eq!(p.step(late), [Action::Discard { rank: 0, generation: 6 }]);
    let todo = p.step(Input::RankDied { rank: 2, incarnation: 2 });
    let alone = |a: &Action| {
        matches!(a, Action::Restore { rank: 2, generation: 3, incarnation: 3, words: None, .. })
    };
    assert!(todo.iter().any(alone) && todo.len() == 2, "{todo:?}");
}

#[test]
fn a_home_and_its_partner_may_be_lost_together() {
    let mut p = retired();
    p.step(Input::NodeDied { member: member(1, 1) });
    let todo = p.step(Input::NodeDied { member: member(2, 1) });
    assert!(!todo.iter().any(|a| matches!(a, Action::Unpinned { .. })), "{todo:?}");
    let answer = |from| Input::Answered { from, round: 2, answer: Answer::default() };
    p.step(answer(member(0, 1)));
    let todo = p.step(answer(member(3, 1)));
    assert!(matches!(todo[..], [Action::RollBack { .. }]), "{todo:?}");
    let todo = ordered(&back(&mut p, &[0, 3], 2));
    assert_eq!(todo.len(), 4);
    let of = |rank| todo.iter().find(|o| o.0 == rank).copied();
    assert_eq!(of(0), Some((0, 3, 0, None)));
    // Its third copy is the one that is left.
    assert_eq!(of(1).map(|o| (o.1, o.3.unwrap_or(o.2))), Some((3, 3)));
}

#[test]
fn one_that_is_lost_is_told_once_and_nobody_returns_to_it() {
    let mut p = pinned();
    for at in [1, 2] {
        let bad = member(at, 1);
        p.step(Input::ImageBad { rank: 1, incarnation: 1, generation: 3, at: bad });
    }
    let at = member(3, 1);
    let todo = p.step(Input::ImageBad { rank: 1, incarnation: 1, generation: 3, at });
    let told = Action::Unpinned { generation: 3, rank: 1 };
    assert_eq!(todo.iter().filter(|a| **a == told).count(), 1, "{todo:?}");
    assert!(!p.has_snapshot(3, p.members()));
    assert!(p.ranks.iter().all(|r| r.pinned.is_empty()));
    // Nor is one of which an image does not count.
    let told = Action::Unpinned { generation: 9, rank: 0 };
    assert!(p.step(Input::Pin { generation: 9 }).contains(&told));
}

#[test]
fn what_is_let_go_is_copied_no_more() {
    let mut p = retired();
    p.step(Input::Unpin { generation: 3 });
    let todo = p.step(Input::NodeDied { member: member(3, 1) });
    let of_it = |a: &Action| matches!(a, Action::Copy { generation: 3, .. });
    assert!(!todo.iter().any(of_it), "{todo:?}");
}

#[test]
fn nodes_that_are_lost_while_all_are_killed_have_nothing() {
    let mut p = pinned();
    let left = |nodes: &[u32]| nodes.iter().map(|n| member(*n, 2)).collect::<Vec<_>>();
    assert!(p.has_snapshot(3, &left(&[0, 3])));
    assert_eq!(p.lacks_on(3, &left(&[0])), Some(1));
    // A node that came with a number that was there before is not the one that held anything.
    p.step(Input::NodeDied { member: member(3, 1) });
    p.step(Input::Joined { member: member(3, 5), spare: false });
    assert_eq!(p.lacks_on(3, &left(&[3])), Some(0));
}

#[test]
fn in_a_vault_a_snapshot_is_guarded_as_long_as_it_is_kept() {
    let mut p = planner(Extent::Rank, (0..4).collect()).with_rule(Rule::Vault { least: 3 });
    for node in 0..4 {
        p.step(Input::Joined { member: member(node, 1), spare: false });
    }
    p.start();
    run_all(&mut p, 1);
    let guards = |nodes: &[u32], epoch| {
        let members = nodes.iter().map(|n| member(*n, epoch)).collect();
        vec![Guard { members, tolerates: 2 }]
    };
    for generation in 3..6 {
        for rank in 0..4 {
            let at = vec![member(rank, 1)];
            assert_eq!(p.step(Input::Stored { rank, incarnation: 1, generation, at }), []);
            let guards = guards(&[0, 1, 2, 3], 1);
            let todo = p.step(Input::Vaulted { rank, generation, guards });
            assert_eq!(todo, [Action::Complete { rank, generation }]);
        }
        if generation == 3 {
            assert_eq!(p.step(Input::Pin { generation }), [], "nothing is copied");
        }
    }
    (0..4).for_each(|rank| drop(p.step(Input::Dropped { rank, generation: 3 })));
    // What a node guarded is to be guarded anew where a node has it.
    p.step(Input::NodeDied { member: member(1, 1) });
    let again = |p: &Planner| p.unguarded().iter().map(|u| (u.0, u.1)).collect::<BTreeSet<_>>();
    assert!(again(&p).contains(&(0, 3)) && !again(&p).contains(&(1, 3)), "{:?}", again(&p));
    let todo = p.step(Input::NodeDied { member: member(2, 1) });
    assert!(!todo.iter().any(|a| matches!(a, Action::Unpinned { .. })), "{todo:?}");
    // Two are gone, which it bears: all return to it.
    let todo = ordered(&back(&mut p, &[0, 3], 2));
    let of = |rank| todo.iter().find(|o| o.0 == rank).map(|o| (o.1, o.3));
    assert_eq!([of(0), of(3)], [Some((3, None)); 2], "{todo:?}");
    assert_eq!([of(1), of(2)], [Some((3, Some(VAULT.node))); 2], "{todo:?}");
    // It holds for the nodes' new epochs: with one more gone nobody has those of ranks 1 and 2.
    assert_eq!(p.lacks_on(3, &[member(0, 2), member(3, 2)]), None);
    p.step(Input::NodeDied { member: member(3, 2) });
    assert!(p.lacks_on(3, &[member(0, 2)]).is_some());
}

/// Each node's ranks become a unit; all go on from the snapshot.
#[test]
fn ranks_go_on_from_a_snapshot_as_larger_units() {
    let mut p = pinned();
    let of: Vec<u32> = (0..4).collect();
    p.step(Input::Regroup { of: of.clone(), on_nodes: true, map: of });
    assert!(p.stays_on_a_node());
    // What is said of them until then is of what they were.
    assert_eq!(p.step(Input::RankDied { rank: 1, incarnation: 1 }), []);
    let from = |todo: &[Action]| -> Vec<(u32, u32)> {
        let order = |a: &Action| match a {
            Action::Restore { rank, generation, .. } => Some((*rank, *generation)),
            _ => None,
        };
        todo.iter().filter_map(order).collect()
    };
    let members: Vec<Member> = (0..4).map(|node| member(node, 2)).collect();
    let todo = p.step(Input::Return { generation: 3, members });
    assert_eq!(from(&todo), [(0, 3), (1, 3), (2, 3), (3, 3)]);
    run_all(&mut p, 2);
    // It is the set that a unit comes back from, until it has another.
    let todo = p.step(Input::RankDied { rank: 2, incarnation: 2 });
    assert_eq!(from(&todo), [(2, 3)]);
}

#[test]
fn units_that_are_units_do_not_change() {
    let mut p = planner(Extent::Node, vec![0, 0, 1, 1]);
    let before = p.units.clone();
    p.step(Input::Regroup { of: vec![0; 4], on_nodes: true, map: vec![0; 4] });
    assert_eq!(p.units, before);
    let mut p = planner(Extent::Rank, vec![0, 0, 1, 1]);
    p.step(Input::Regroup { of: vec![0; 3], on_nodes: true, map: vec![0; 3] });
    assert!(p.units.are_ranks(), "of other ranks than there are");
}
