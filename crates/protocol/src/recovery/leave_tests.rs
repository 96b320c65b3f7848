//! Nodes that leave: when ranks move, when a node is dismissed, and what a loss on the way does.

use super::super::{Input, Planner};
use super::*;
use crate::recovery::testing::planner;
use crate::replicas::Answer;
use crate::units::Extent;

fn member(node: u32) -> Member {
    Member { node, epoch: 7 }
}

fn leave(member: Member) -> Input {
    Input::Leave { members: vec![member], wishes: BTreeMap::new() }
}

/// So many nodes with a rank each, all of which run and have an image; and spares.
fn running(nodes: u32, spares: u32) -> Planner {
    let mut p = planner(Extent::Rank, (0..nodes).collect());
    for node in 0..nodes + spares {
        p.step(Input::Joined { member: member(node), spare: node >= nodes });
    }
    p.start();
    for rank in 0..nodes {
        p.step(Input::Starting { rank, incarnation: 1 });
        p.step(Input::Restored { rank, incarnation: 1 });
        image(&mut p, rank, 1);
    }
    p
}

fn image(p: &mut Planner, rank: u32, generation: u32) -> Vec<Action> {
    let at = p.home(rank).into_iter().chain(p.partner(rank)).collect();
    let incarnation = p.incarnation(rank);
    p.step(Input::Stored { rank, incarnation, generation, at })
}

/// All answer the last question about gates.
fn guard(p: &mut Planner) -> Vec<Action> {
    let round = p.leaves.round;
    let all = p.members().to_vec();
    all.into_iter().flat_map(|from| p.step(Input::Guarded { from, round })).collect()
}

fn answer(p: &mut Planner, of: Member) -> Vec<Action> {
    let (round, all) = (p.round, p.members().to_vec());
    let answer = |from| Answer { in_step: vec![from], ..Answer::default() };
    let answers = all.into_iter().map(|from| Input::Answered { from, round, answer: answer(of) });
    answers.flat_map(|input| p.step(input)).collect()
}

fn restored(todo: &[Action]) -> Vec<(u32, u32)> {
    let of = |a: &Action| match a {
        Action::Restore { rank, at, .. } => Some((*rank, at.node)),
        _ => None,
    };
    todo.iter().filter_map(of).collect()
}

fn has(todo: &[Action], what: &Action) -> bool {
    todo.contains(what)
}

/// All that is to be copied is.
fn copy_all(p: &mut Planner) -> Vec<Action> {
    let mut all = Vec::new();
    while let Some((&(rank, generation, to), _)) = p.copying.first_key_value() {
        all.extend(p.step(Input::Stored { rank, incarnation: 0, generation, at: vec![to] }));
    }
    all
}

#[test]
fn a_node_leaves_when_all_that_it_held_counts_elsewhere() {
    let mut p = running(3, 1);
    let (gone, spare) = (member(1), member(3));
    p.step(leave(gone));
    assert_eq!(p.partner(1), Some(spare), "its image goes where it is going to live");
    assert_eq!(p.partner(0), Some(member(2)), "nothing new goes to a node that leaves");
    image(&mut p, 1, 2);
    p.step(Input::Dropped { rank: 1, generation: 0 });
    let todo = p.step(Input::Stands { member: gone });
    assert!(!has(&todo, &Action::Vacate { member: gone }), "gates are not guarded yet");
    let todo = guard(&mut p);
    assert!(has(&todo, &Action::Vacate { member: gone }), "{todo:?}");
    let copies = |todo: &[Action]| todo.iter().any(|a| matches!(a, Action::Copy { .. }));
    copy_all(&mut p);
    let mut todo = answer(&mut p, gone);
    assert_eq!(restored(&todo), [(1, 3)]);
    p.step(Input::Starting { rank: 1, incarnation: 2 });
    todo.extend(p.step(Input::Tick));
    assert!(!copies(&todo), "nothing is read while it is on the way: {todo:?}");
    let mut todo = p.step(Input::Restored { rank: 1, incarnation: 2 });
    assert!(!has(&todo, &Action::Dismiss { member: gone }), "its images have one copy elsewhere");
    assert!(copies(&todo), "what waited for it: {todo:?}");
    todo.extend(copy_all(&mut p));
    assert!(has(&todo, &Action::Dismiss { member: gone }), "{todo:?}");
    assert!(!p.members().contains(&gone) && p.leaving().next().is_none());
}

#[test]
fn one_that_is_lost_while_it_leaves_is_lost_as_any() {
    for stands in [false, true] {
        let mut p = running(3, 0);
        p.step(leave(member(1)));
        if stands {
            p.step(Input::Stands { member: member(1) });
            guard(&mut p);
        }
        p.step(Input::NodeDied { member: member(1) });
        assert_eq!(p.leaving().next(), None);
        assert_eq!(restored(&answer(&mut p, member(1))), [(1, 2)]);
    }
}

#[test]
fn the_last_one_does_not_leave() {
    let mut p = running(2, 0);
    let todo = p.step(leave(member(0)));
    assert!(!todo.is_empty());
    assert_eq!(p.step(leave(member(1))), []);
    // The other one is lost: it has to stay.
    let todo = p.step(Input::NodeDied { member: member(1) });
    assert!(
        todo.iter().any(|a| matches!(a, Action::Leaving { members, .. } if members.is_empty()))
    );
    assert_eq!((p.leaving().next(), p.keepers()), (None, vec![member(0)]));
}

#[test]
fn ranks_go_where_they_are_wished_as_long_as_that_stays() {
    let mut p = running(3, 1);
    p.step(Input::Leave {
        members: vec![member(1)],
        wishes: BTreeMap::from([(1, vec![member(2)])]),
    });
    assert_eq!(p.partner(1), Some(member(2)));
    p.step(leave(member(2)));
    assert_eq!(p.partner(1), Some(member(3)));
}

#[test]
fn a_rank_that_dies_does_not_stand() {
    let mut p = running(3, 0);
    p.step(leave(member(1)));
    p.step(Input::Stands { member: member(1) });
    let todo = p.step(Input::RankDied { rank: 1, incarnation: 1 });
    assert_eq!(restored(&todo), [(1, 1)], "it is brought back where it was");
    assert_eq!(p.leaves(&member(1)), Some(Stage::Stopping));
    guard(&mut p);
    assert_eq!(p.leaves(&member(1)), Some(Stage::Stopping));
}

#[test]
fn a_node_may_stay_until_its_ranks_move() {
    let mut p = running(3, 0);
    p.step(leave(member(1)));
    let todo = p.step(Input::Stay { member: member(1) });
    assert!(matches!(&todo[0], Action::Leaving { members, .. } if members.is_empty()));
    p.step(leave(member(1)));
    p.step(Input::Stands { member: member(1) });
    guard(&mut p);
    assert_eq!(p.step(Input::Stay { member: member(1) }), []);
    assert_eq!(p.leaves(&member(1)), Some(Stage::Moving));
}

#[test]
fn ranks_of_a_party_move_at_one_time() {
    let mut p = running(2, 2);
    let wishes = BTreeMap::from([(0, vec![member(3)]), (1, vec![member(2)])]);
    p.step(Input::Leave { members: vec![member(0), member(1)], wishes });
    guard(&mut p);
    image(&mut p, 0, 2);
    image(&mut p, 1, 2);
    assert_eq!(p.step(Input::Stands { member: member(0) }), [], "the other does not stand");
    let todo = p.step(Input::Stands { member: member(1) });
    for node in [0, 1] {
        assert!(has(&todo, &Action::Vacate { member: member(node) }), "{todo:?}");
    }
    // A source is lost: its rank goes where it was to go.
    p.step(Input::NodeDied { member: member(0) });
    let (round, all) = (p.round, p.members().to_vec());
    let answer = Answer { in_step: vec![member(0), member(1)], ..Answer::default() };
    let answers =
        all.into_iter().map(|from| Input::Answered { from, round, answer: answer.clone() });
    let todo: Vec<Action> = answers.flat_map(|input| p.step(input)).collect();
    assert_eq!(restored(&todo), [(0, 3), (1, 2)]);
}

#[test]
fn a_party_without_the_one_that_stays_goes_on() {
    let mut p = running(3, 1);
    p.step(Input::Leave { members: vec![member(0), member(1)], wishes: BTreeMap::new() });
    guard(&mut p);
    p.step(Input::Stands { member: member(0) });
    let mut todo = p.step(Input::Stay { member: member(1) });
    todo.extend(guard(&mut p));
    assert!(has(&todo, &Action::Vacate { member: member(0) }), "{todo:?}");
    assert_eq!(p.leaves(&member(1)), None);
}

#[test]
fn all_members_at_once_do_not_leave() {
    let mut p = running(2, 0);
    let members = vec![member(0), member(1)];
    assert_eq!(p.step(Input::Leave { members, wishes: BTreeMap::new() }), []);
}

/// Node 1 leaves, and lacks one image of its rank elsewhere to be dismissed: with that it may go.
fn about_to_go() -> (Planner, Member) {
    let (mut p, gone) = (running(3, 1), member(1));
    p.step(leave(gone));
    image(&mut p, 1, 2);
    for rank in 0..3 {
        p.step(Input::Dropped { rank, generation: 0 });
    }
    p.step(Input::Stands { member: gone });
    guard(&mut p);
    answer(&mut p, gone);
    p.step(Input::Starting { rank: 1, incarnation: 2 });
    p.step(Input::Restored { rank: 1, incarnation: 2 });
    assert!(!p.may_go(&gone), "images of its rank have one copy elsewhere");
    // As if told of all copies at one time.
    for ((rank, generation, to), _) in std::mem::take(&mut p.copying) {
        let rank = &mut p.ranks[rank as usize];
        rank.committed.get_mut(&generation).into_iter().for_each(|h| _ = h.insert(to));
    }
    (p, gone)
}

#[test]
fn a_node_goes_when_nothing_is_in_its_way_and_each_thing_is() {
    let (p, gone) = about_to_go();
    assert!(p.may_go(&gone));
    let other = member(2);
    type Obstacle = (&'static str, fn(&mut Planner, Member, Member));
    let obstacles: [Obstacle; 8] = [
        ("it does not leave", |p, gone, _| _ = p.leaves.nodes.remove(&gone)),
        ("its ranks have not been told to move", |p, gone, _| {
            p.leaves.nodes.get_mut(&gone).unwrap().stage = Stage::Standing;
        }),
        ("a gate has no replica that stays", |p, _, other| _ = p.leaves.exposed.insert(other)),
        ("a rank has no place", |p, _, _| p.ranks[0].phase = Phase::Fetching),
        ("a rank is there", |p, gone, _| p.ranks[0].home = gone),
        ("a rank that has ended is there, and what it sent is needed", |p, gone, _| {
            (p.ranks[0].home, p.ranks[0].phase) = (gone, Phase::Done);
        }),
        ("a copy to it is under way", |p, gone, other| {
            p.copying.insert((2, 1, gone), other);
        }),
        ("an image has one copy without it", |p, gone, other| {
            p.ranks[2].committed.insert(1, BTreeSet::from([gone, other]));
        }),
    ];
    for (what, put) in obstacles {
        let mut p = p.clone();
        put(&mut p, gone, other);
        assert!(!p.may_go(&gone), "{what}");
    }
}

#[test]
fn a_node_goes_though_this_is_as_it_is() {
    let (p, gone) = about_to_go();
    type Matter = (&'static str, fn(&mut Planner, Member, Member));
    let matters: [Matter; 4] = [
        ("a copy from it is under way, and enough are there", |p, gone, other| {
            p.copying.insert((2, 1, other), gone);
        }),
        ("nothing is needed of a rank that was there", |p, gone, _| {
            (p.ranks[0].home, p.ranks[0].phase) = (gone, Phase::Released);
        }),
        ("it has images that others have, too", |p, gone, _| {
            p.ranks[2].committed.get_mut(&1).unwrap().insert(gone);
        }),
        ("only the vault has an image, and can give it without this one", |p, _, _| {
            p.ranks[2].committed.insert(1, BTreeSet::from([super::super::VAULT]));
        }),
    ];
    for (what, put) in matters {
        let mut p = p.clone();
        put(&mut p, gone, member(2));
        assert!(p.may_go(&gone), "{what}");
    }
}

/// The same where images are in a vault of which three nodes are the fewest, and one may be gone.
fn about_to_go_from_vault() -> (Planner, Member) {
    use super::super::{Guard, Rule, VAULT};
    let (mut p, gone) = about_to_go();
    p.rule = Rule::Vault { least: 3 };
    let keepers = p.keepers();
    for rank in &mut p.ranks {
        for (generation, holders) in &mut rank.committed {
            holders.insert(VAULT);
            let guard = Guard { members: keepers.clone(), tolerates: 1 };
            rank.guards.insert(*generation, vec![guard]);
        }
    }
    (p, gone)
}

#[test]
fn a_node_does_not_go_that_the_vault_needs() {
    use super::super::{Guard, VAULT};
    let (p, gone) = about_to_go_from_vault();
    assert!(p.vaults() && p.may_go(&gone));
    type Obstacle = (&'static str, fn(&mut Planner, Member));
    let only_vault: fn(&mut Planner, Member, usize) = |p, gone, tolerates| {
        let members = vec![gone, member(0), member(2)];
        p.ranks[2].committed.insert(1, BTreeSet::from([VAULT]));
        p.ranks[2].guards.insert(1, vec![Guard { members, tolerates }]);
    };
    let obstacles: [Obstacle; 4] = [
        ("an image is to be brought in anew, which guarded it", |p, gone| {
            let members = vec![gone, member(0), member(2)];
            p.ranks[2].guards.insert(1, vec![Guard { members, tolerates: 1 }]);
        }),
        ("more is damaged of what guards an image than can be mended", |p, _| {
            p.ranks[2].unsound.insert(1);
        }),
        ("only those that leave have an image that is to be brought in", |p, gone| {
            p.ranks[2].committed.insert(1, BTreeSet::from([gone, VAULT]));
            p.ranks[2].guards.clear();
        }),
        ("an image is not in the vault", |p, _| {
            p.ranks[2].committed.insert(1, BTreeSet::from([member(0), member(2)]));
        }),
    ];
    for (what, put) in obstacles {
        let mut p = p.clone();
        put(&mut p, gone);
        assert!(!p.may_go(&gone), "{what}");
    }
    // Nothing but the vault has it, which could give it without this node, or not.
    for (tolerates, goes) in [(1, true), (0, false)] {
        let mut p = p.clone();
        only_vault(&mut p, gone, tolerates);
        assert_eq!(p.may_go(&gone), goes, "{tolerates}");
        assert_eq!(p.only_detained(), !goes);
    }
}
