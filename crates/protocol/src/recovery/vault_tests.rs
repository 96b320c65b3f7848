//! Which sets of lost nodes are borne, and what follows of the others.

use super::super::Input;
use super::*;
use crate::recovery::testing::planner;
use crate::replicas::Answer;
use crate::units::Extent;

const NODES: u32 = 6;
const TOLERATES: usize = 2;

fn member(node: u32) -> Member {
    Member { node, epoch: 1 }
}

fn guard(nodes: impl IntoIterator<Item = u32>) -> Guard {
    Guard { members: nodes.into_iter().map(member).collect(), tolerates: TOLERATES }
}

/// A rank on each of six nodes, with image 1 at home and in no vault yet.
fn with_images() -> Planner {
    let mut p =
        planner(Extent::Rank, (0..NODES).collect()).with_rule(Rule::Vault { least: TOLERATES + 1 });
    for node in 0..NODES {
        p.step(Input::Joined { member: member(node), spare: false });
    }
    p.start();
    for rank in 0..NODES {
        p.step(Input::Starting { rank, incarnation: 1 });
        p.step(Input::Restored { rank, incarnation: 1 });
        let at = vec![member(rank)];
        let todo = p.step(Input::Stored { rank, incarnation: 1, generation: 1, at });
        assert_eq!(todo, [], "neither copied nor counted");
    }
    p
}

fn vaulted(p: &mut Planner, rank: u32, guards: Vec<Guard>) -> Vec<Action> {
    p.step(Input::Vaulted { rank, generation: 1, guards })
}

/// As it is when image 1 counts and the beginning is kept no more.
fn safe() -> Planner {
    let mut p = with_images();
    assert_eq!(p.unguarded().len(), NODES as usize);
    for rank in 0..NODES {
        let todo = vaulted(&mut p, rank, vec![guard(0..NODES)]);
        assert_eq!(todo, [Action::Complete { rank, generation: 1 }]);
        p.step(Input::Dropped { rank, generation: 0 });
    }
    assert!(p.unguarded().is_empty() && p.settled());
    p
}

/// Loses these at once; those that are left hold all outcomes.
fn lose(p: &mut Planner, lost: &[u32]) -> Vec<Action> {
    let mut todo = Vec::new();
    for node in lost {
        todo.extend(p.step(Input::NodeDied { member: member(*node) }));
    }
    let round = todo.iter().rev().find_map(|a| match a {
        Action::Query { round, .. } => Some(*round),
        _ => None,
    });
    let in_step: Vec<Member> = (0..NODES).map(member).collect();
    for from in p.members().to_vec() {
        let answer = Answer { in_step: in_step.clone(), ..Answer::default() };
        let round = round.unwrap_or(0);
        todo.extend(p.step(Input::Answered { from, round, answer }));
    }
    todo
}

fn rolls_back(todo: &[Action]) -> bool {
    todo.iter().any(|a| matches!(a, Action::RollBack { .. }))
}

#[test]
fn any_set_of_lost_nodes_is_borne_up_to_m_and_none_beyond() {
    for set in 1u32..1 << NODES {
        let lost: Vec<u32> = (0..NODES).filter(|node| set & 1 << node != 0).collect();
        if lost.len() == NODES as usize {
            continue;
        }
        let mut p = safe();
        let todo = lose(&mut p, &lost);
        let borne = lost.len() <= TOLERATES;
        assert_eq!(rolls_back(&todo), !borne, "{lost:?}: {todo:?}");
        if !borne {
            continue;
        }
        for rank in &lost {
            let back = |a: &&Action| {
                matches!(a, Action::Restore { rank: r, from: Some(VAULT), generation: 1, .. }
                    if r == rank)
            };
            assert_eq!(todo.iter().filter(back).count(), 1, "{lost:?}: rank {rank}");
        }
    }
}

#[test]
fn an_image_of_several_files_needs_all_their_guards() {
    let mut p = with_images();
    let guards = vec![guard([0, 1, 2, 3]), guard([2, 3, 4, 5])];
    assert_eq!(vaulted(&mut p, 2, guards).len(), 1);
    p.step(Input::Dropped { rank: 2, generation: 0 });
    let holders = |p: &Planner| p.holders(2, 1).collect::<Vec<_>>();
    lose(&mut p, &[0, 1]);
    assert_eq!(holders(&p), [member(2), VAULT]);
    assert!(p.unguarded().contains(&(2, 1, member(2))), "it is to be stored anew");
    assert!(!rolls_back(&lose(&mut p, &[3])), "the others have their beginning");
    assert_eq!(holders(&p), [member(2)], "three of the first four are gone");
}

#[test]
fn a_loss_in_the_midst_of_reading_is_borne_or_leads_elsewhere() {
    let mut p = safe();
    lose(&mut p, &[0]);
    let round_of = |p: &Planner| p.holders(0, 1).collect::<Vec<_>>();
    assert_eq!(round_of(&p), [VAULT]);
    assert!(!rolls_back(&lose(&mut p, &[1])), "the second is borne");
    // The third takes what is being read away, and nothing else is left of it.
    assert_eq!(p.lost_images(), []);
    assert!(rolls_back(&lose(&mut p, &[2])));
    assert_eq!(p.lost_images(), [(0, 1), (1, 1), (2, 1)], "the others have theirs");
}

#[test]
fn what_is_damaged_beyond_mending_is_brought_in_anew_by_who_has_it() {
    let mut p = safe();
    assert_eq!(p.step(Input::Unsound { rank: 2, generation: 1 }), []);
    assert_eq!(p.unguarded(), [(2, 1, member(2))]);
    assert!(!p.settled(), "a node that leaves waits for it");
    vaulted(&mut p, 2, vec![guard(0..NODES)]);
    assert!(p.unguarded().is_empty() && p.settled());
    // Where nobody else has it what is left of it may do: it is tried, and not given up before.
    lose(&mut p, &[2]);
    vaulted(&mut p, 2, vec![guard([0, 1, 3, 4, 5])]);
    p.step(Input::Unsound { rank: 2, generation: 1 });
    assert!(!p.unguarded().iter().any(|u| u.0 == 2), "no node has it");
    assert_eq!(p.holders(2, 1).collect::<Vec<_>>(), [VAULT]);
    // What the vault never had, or has no more, is no matter.
    p.step(Input::Dropped { rank: 3, generation: 1 });
    assert_eq!(p.step(Input::Unsound { rank: 3, generation: 1 }), []);
}

#[test]
fn a_guard_that_is_gone_already_guards_nothing() {
    let mut p = with_images();
    lose(&mut p, &[0, 1]);
    assert_eq!(vaulted(&mut p, 5, vec![guard([0, 1, 4, 5])]).len(), 1, "two of four are borne");
    let three = Guard { tolerates: 1, ..guard([0, 1, 4, 5]) };
    assert_eq!(vaulted(&mut p, 4, vec![three]), []);
}

#[test]
fn with_too_few_nodes_images_are_copied() {
    let mut p = safe();
    lose(&mut p, &[0, 1]);
    let todo = lose(&mut p, &[2, 3]);
    // What the vault had is gone with the fourth, if not with the third.
    assert!(rolls_back(&todo));
    let mut p = planner(Extent::Rank, vec![0]).with_rule(Rule::Vault { least: 3 });
    for node in 0..2 {
        p.step(Input::Joined { member: member(node), spare: false });
    }
    p.start();
    p.step(Input::Restored { rank: 0, incarnation: 1 });
    assert_eq!(p.partner(0), Some(member(1)));
    let at = vec![member(0)];
    let todo = p.step(Input::Stored { rank: 0, incarnation: 1, generation: 1, at });
    let (from, to) = (member(0), member(1));
    assert_eq!(todo, [Action::Copy { rank: 0, generation: 1, from, to }]);
    // A third one comes: the vault can have it.
    p.step(Input::Joined { member: member(2), spare: true });
    assert_eq!(p.unguarded(), [(0, 1, member(0))]);
    assert_eq!(p.partner(0), None);
}

#[test]
fn without_a_vault_an_image_counts_at_home() {
    let mut p = planner(Extent::Rank, vec![0]).with_rule(Rule::Copies(1));
    for node in 0..2 {
        p.step(Input::Joined { member: member(node), spare: false });
    }
    p.start();
    p.step(Input::Restored { rank: 0, incarnation: 1 });
    let at = vec![member(0)];
    let todo = p.step(Input::Stored { rank: 0, incarnation: 1, generation: 1, at });
    assert_eq!(todo, [Action::Complete { rank: 0, generation: 1 }]);
    assert_eq!(p.partner(0), None);
}

#[test]
fn an_empty_node_keeps_nothing_of_what_it_had_under_another_epoch() {
    let of = |node, epoch| Member { node, epoch };
    let mut guard = Guard { members: vec![of(0, 1), of(1, 1), of(2, 1)], tolerates: 1 };
    // Node 1 has forgotten all, and joined again; then 2 is lost, and the others have new epochs.
    let before = [of(0, 1), of(1, 5), of(2, 1)];
    let live = [of(0, 7), of(1, 8)];
    guard.renew(&before, &live);
    assert_eq!(guard.members, [of(0, 7), of(1, 1), of(2, 1)]);
    assert!(!guard.holds(&live), "two of three are gone");
}

#[test]
fn a_node_stays_as_long_as_only_it_has_what_the_vault_is_to_have_anew() {
    let mut p = safe();
    // The copy at home turns out to be bad, and that of node 5 is one more.
    let at = vec![member(5)];
    p.step(Input::Stored { rank: 0, incarnation: 1, generation: 1, at });
    p.step(Input::ImageBad { rank: 0, incarnation: 1, generation: 1, at: member(0) });
    let todo = p.step(Input::Leave { members: vec![member(5)], wishes: Default::default() });
    let copies = |todo: &[Action]| {
        let to = |a: &Action| match a {
            Action::Copy { rank, from, to, .. } => Some((*rank, *from, *to)),
            _ => None,
        };
        todo.iter().filter_map(to).collect::<Vec<_>>()
    };
    assert!(copies(&todo).contains(&(0, member(5), member(0))), "{todo:?}");
    assert!(!p.unguarded().iter().any(|u| (u.0, u.1) == (0, 1)), "nobody who stays has it");
    let at = vec![member(0)];
    p.step(Input::Stored { rank: 0, incarnation: 1, generation: 1, at });
    assert!(p.unguarded().contains(&(0, 1, member(0))));
    assert!(p.leaves(&member(5)).is_some());
}

#[test]
fn what_only_the_vault_has_is_not_taken_along() {
    let mut p = safe();
    lose(&mut p, &[0]);
    let free = p.members().iter().all(|m| p.detained_by(m).is_none());
    assert!(free, "one more may be gone");
    lose(&mut p, &[1]);
    assert_eq!(p.detained_by(&member(5)), Some((0, 1)), "it would be the third");
    let at = vec![member(2)];
    for rank in [0, 1] {
        let incarnation = p.incarnation(rank);
        p.step(Input::Stored { rank, incarnation, generation: 1, at: at.clone() });
    }
    assert_eq!(p.detained_by(&member(5)), None, "a node has it, and brings it in");
}
