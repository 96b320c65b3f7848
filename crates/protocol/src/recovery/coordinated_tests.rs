//! Steps of a planner whose ranks go back together. Long histories are those of `tests/sim`.

use super::super::{Input, Saved, tests::ordered};
use super::*;
use crate::recovery::testing::planner;
use crate::units::Extent;

fn member(node: u32, epoch: u64) -> Member {
    Member { node, epoch }
}

/// Ranks 0 and 1 on nodes 0 and 1, node 2 a spare, all running.
fn running() -> Planner {
    let mut p = planner(Extent::Job, vec![0, 1]);
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

fn snapshot(p: &mut Planner, incarnation: u32, generation: u32) {
    assert_eq!(stored(p, 0, incarnation, generation, &[0, 1]), []);
    let todo = stored(p, 1, incarnation, generation, &[1, 2]);
    let complete = |rank| Action::Complete { rank, generation };
    assert_eq!(todo, [complete(0), complete(1)]);
}

fn all_down(p: &mut Planner, nodes: &[u32], epoch: u64) -> Vec<Action> {
    let members = nodes.iter().map(|n| member(*n, epoch)).collect();
    p.step(Input::AllDown { members })
}

fn rolls_back(todo: &[Action]) -> bool {
    matches!(todo.last(), Some(Action::RollBack { .. }))
}

#[test]
fn a_snapshot_counts_as_a_whole() {
    let mut p = running();
    snapshot(&mut p, 1, 1);
    assert!(rolls_back(&p.step(Input::RankDied { rank: 0, incarnation: 1 })));
    // Nothing more is to be done until no process is left.
    assert_eq!(p.step(Input::Tick), []);
    assert_eq!(ordered(&all_down(&mut p, &[0, 1, 2], 2)), [(0, 1, 0, None), (1, 1, 1, None)]);
    assert_eq!(p.snapshot(), 1);
}

/// It can be saved as it is (`eyrie suspend --swap`).
#[test]
fn all_rest_with_a_snapshot_whose_images_are_at_home() {
    let mut p = running();
    snapshot(&mut p, 1, 1);
    assert!(p.rests());
    p.step(Input::GoBack);
    assert!(!p.rests());
    all_down(&mut p, &[0, 1, 2], 2);
    assert!(p.rests() && !p.placed());
    // One that has lost its node waits for its image.
    all_down(&mut p, &[0, 2], 3);
    assert_eq!(p.home(1).map(|m| m.node), Some(2));
    assert!(p.rests(), "a copy of it was there");
    let mut p = running();
    snapshot(&mut p, 1, 1);
    p.step(Input::GoBack);
    all_down(&mut p, &[1, 2], 2);
    assert!(p.home(0).is_some_and(|m| m.node == 2) && !p.rests());
}

#[test]
fn what_is_not_whole_is_passed_over() {
    let mut p = running();
    snapshot(&mut p, 1, 1);
    stored(&mut p, 0, 1, 2, &[0, 1]);
    p.step(Input::GoBack);
    let todo = all_down(&mut p, &[0, 1, 2], 2);
    assert!(todo.contains(&Action::Discard { rank: 0, generation: 2 }));
    assert_eq!(ordered(&todo), [(0, 1, 0, None), (1, 1, 1, None)]);
    // Too late for what is thrown away.
    run_all(&mut p, 2);
    let late = stored(&mut p, 1, 1, 2, &[1, 2]);
    assert_eq!(late, [Action::Discard { rank: 1, generation: 2 }]);
    snapshot(&mut p, 2, 3);
}

#[test]
fn a_snapshot_that_is_given_up_is_thrown_away() {
    let mut p = running();
    stored(&mut p, 0, 1, 1, &[0, 1]);
    let discard = |rank| Action::Discard { rank, generation: 1 };
    assert_eq!(p.step(Input::Void { generation: 1 }), [discard(0)]);
    assert_eq!(stored(&mut p, 1, 1, 1, &[1, 2]), [discard(1)]);
    snapshot(&mut p, 1, 2);
}

#[test]
fn the_ranks_of_a_lost_node_come_to_a_spare_with_all_others() {
    let mut p = running();
    snapshot(&mut p, 1, 1);
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
fn without_a_whole_snapshot_all_begin_again() {
    let mut p = running();
    snapshot(&mut p, 1, 1);
    // Both who have the image of rank 0 die.
    p.step(Input::NodeDied { member: member(0, 1) });
    p.step(Input::NodeDied { member: member(1, 1) });
    let todo = all_down(&mut p, &[2], 2);
    assert_eq!(ordered(&todo), [(0, 0, 2, None), (1, 0, 2, None)]);
    assert!(todo.contains(&Action::Damaged { rank: 1, generation: 1 }));
    assert_eq!(p.snapshot(), 0);
}

#[test]
fn it_is_told_before_whether_a_whole_snapshot_is_left() {
    let mut p = running();
    let later = |nodes: &[u32]| nodes.iter().map(|n| member(*n, 2)).collect::<Vec<_>>();
    assert!(!p.has_whole(&later(&[0, 1, 2])));
    snapshot(&mut p, 1, 1);
    for (nodes, has) in [(&[0, 2][..], true), (&[1], true), (&[0], false), (&[2], false)] {
        assert_eq!(p.has_whole(&later(nodes)), has, "{nodes:?}");
    }
    // What the archive has is there on any nodes.
    let saved = |_| Saved { generation: 1, words: Words::default(), incarnation: 1 };
    p.restart(later(&[2]), (0..2).map(saved).collect());
    assert!(p.has_whole(&later(&[0])));
    p.leave_archive();
    assert!(!p.has_whole(&later(&[0])));
}

#[test]
fn a_bad_image_is_fetched_elsewhere_and_then_the_snapshot_is_given_up() {
    let mut p = running();
    snapshot(&mut p, 1, 1);
    snapshot(&mut p, 1, 2);
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
    snapshot(&mut p, 1, 1);
    let todo = p.step(Input::NodeDied { member: member(2, 1) });
    assert!(!rolls_back(&todo) && p.placed());
    let (from, to) = (member(1, 1), member(0, 1));
    assert!(todo.contains(&Action::Copy { rank: 1, generation: 1, from, to }));
}

#[test]
fn who_dies_while_all_go_back_sends_all_back_again() {
    let mut p = running();
    snapshot(&mut p, 1, 1);
    p.step(Input::GoBack);
    all_down(&mut p, &[0, 1, 2], 2);
    assert!(rolls_back(&p.step(Input::NodeDied { member: member(0, 2) })));
    // One more, before the others are down: these hear that nobody waits for it.
    let members = Action::Members(vec![member(1, 2)]);
    assert_eq!(p.step(Input::NodeDied { member: member(2, 2) }), [members]);
    let todo = all_down(&mut p, &[1], 3);
    assert_eq!(ordered(&todo), [(1, 1, 1, None), (0, 1, 1, None)]);
}

#[test]
fn a_node_may_stay_as_long_as_ranks_are_going_back() {
    for stays in [false, true] {
        let mut p = running();
        snapshot(&mut p, 1, 1);
        let members = vec![member(1, 1)];
        let todo = p.step(Input::Leave { members, wishes: BTreeMap::new() });
        let round = todo.iter().find_map(|a| match a {
            Action::Leaving { round, .. } => Some(*round),
            _ => None,
        });
        let round = round.unwrap();
        for node in 0..3 {
            p.step(Input::Guarded { from: member(node, 1), round });
        }
        assert!(rolls_back(&p.step(Input::Stands { member: member(1, 1) })));
        if stays {
            // The nodes may have begun anew already.
            assert_eq!(p.step(Input::Stay { member: member(1, 2) }), []);
        }
        let todo = all_down(&mut p, &[0, 1, 2], 2);
        let home = if stays { 1 } else { 2 };
        assert_eq!(ordered(&todo), [(0, 1, 0, None), (1, 1, home, None)]);
        assert_eq!(p.leaving().next().is_none(), stays);
    }
}

const NODES: u32 = 6;
const BORNE: usize = 2;

fn guard(p: &Planner) -> Vec<vault::Guard> {
    vec![vault::Guard { members: p.members().to_vec(), tolerates: BORNE }]
}

fn vaulted(p: &mut Planner, rank: u32, generation: u32) -> Vec<Action> {
    let guards = guard(p);
    p.step(Input::Vaulted { rank, generation, guards })
}

/// Ranks 0 and 1 on nodes 0 and 1 of six, with snapshot 1 in a vault that bears two losses.
fn vaulting() -> Planner {
    let p = planner(Extent::Job, vec![0, 1]);
    let mut p = p.with_rule(vault::Rule::Vault { least: BORNE + 1 });
    for node in 0..NODES {
        p.step(Input::Joined { member: member(node, 1), spare: false });
    }
    p.start();
    run_all(&mut p, 1);
    assert_eq!(stored(&mut p, 0, 1, 1, &[0]), []);
    assert_eq!(stored(&mut p, 1, 1, 1, &[1]), []);
    assert_eq!(vaulted(&mut p, 1, 1), [], "the other image is not in it");
    let complete = |rank| Action::Complete { rank, generation: 1 };
    assert_eq!(vaulted(&mut p, 0, 1), [complete(0), complete(1)]);
    assert!(p.unguarded().is_empty());
    p
}

/// These are lost at once, and all go back.
fn lose(p: &mut Planner, lost: &[u32], epoch: u64) -> Vec<Action> {
    let dead: Vec<Member> =
        p.members().iter().copied().filter(|m| lost.contains(&m.node)).collect();
    for member in dead {
        p.step(Input::NodeDied { member });
    }
    p.step(Input::GoBack);
    let left: Vec<u32> = p.members().iter().map(|m| m.node).collect();
    all_down(p, &left, epoch)
}

#[test]
fn any_set_of_lost_nodes_is_borne_by_the_vault_and_none_beyond() {
    for set in 1u32..(1 << NODES) - 1 {
        let lost: Vec<u32> = (0..NODES).filter(|node| set & 1 << node != 0).collect();
        let mut p = vaulting();
        let later = (0..NODES).filter(|n| !lost.contains(n)).map(|n| member(n, 2));
        let told = p.has_whole(&later.collect::<Vec<_>>());
        let todo = lose(&mut p, &lost, 2);
        let at_home = |rank: &u32| !lost.contains(rank);
        let borne = lost.len() <= BORNE || (0..2).all(|r| at_home(&r));
        assert_eq!((p.snapshot(), told), (u32::from(borne), borne), "{lost:?}");
        let from = |rank| ordered(&todo).iter().find(|o| o.0 == rank).unwrap().3;
        for rank in (0..2).filter(|_| borne) {
            let vault = (!at_home(&rank)).then_some(vault::VAULT.node);
            assert_eq!(from(rank), vault, "{lost:?}: rank {rank}");
        }
    }
}

#[test]
fn who_is_lost_before_it_is_guarded_anew_counts_with_those_before() {
    for anew in [false, true] {
        let mut p = vaulting();
        lose(&mut p, &[4, 5], 2);
        run_all(&mut p, 2);
        assert_eq!(p.unguarded().len(), 2, "the nodes are there in new epochs");
        if anew {
            (0..2).for_each(|rank| assert_eq!(vaulted(&mut p, rank, 1), []));
            assert!(p.unguarded().is_empty());
        }
        lose(&mut p, &[0], 3);
        assert_eq!(p.snapshot(), u32::from(anew));
    }
}

#[test]
fn an_image_that_turns_out_bad_before_the_vault_has_it_takes_its_snapshot_with_it() {
    let mut p = vaulting();
    assert_eq!(stored(&mut p, 0, 1, 2, &[0]), []);
    assert_eq!(stored(&mut p, 1, 1, 2, &[1]), []);
    let at = member(0, 1);
    let bad = p.step(Input::ImageBad { rank: 0, incarnation: 0, generation: 2, at });
    let discard = |rank| Action::Discard { rank, generation: 2 };
    assert_eq!(bad, [discard(0), discard(1)]);
    assert_eq!(vaulted(&mut p, 1, 2), []);
    // Of one that counts there is the vault.
    p.step(Input::ImageBad { rank: 0, incarnation: 0, generation: 1, at });
    assert_eq!(ordered(&lose(&mut p, &[5], 2))[0], (0, 1, 0, Some(vault::VAULT.node)));
}
