//! Steps of the planner, one by one. Long histories are those of `tests/sim`.

use super::*;
use crate::recovery::testing::planner;
use crate::units::Extent;

/// Rank, generation, home and source of those that are ordered with nothing recorded.
pub(super) fn ordered(todo: &[Action]) -> Vec<(u32, u32, u32, Option<u32>)> {
    let order = |a: &Action| match a {
        Action::Restore { rank, generation, at, from, words, .. } => {
            assert_eq!(*words, Some(Words::default()));
            Some((*rank, *generation, at.node, from.map(|m| m.node)))
        }
        _ => None,
    };
    todo.iter().filter_map(order).collect()
}

fn member(node: u32) -> Member {
    Member { node, epoch: u64::from(node) + 1 }
}

/// Ranks 0 and 1 on nodes 0 and 1, node 2 without any, all running.
fn running() -> Planner {
    let mut p = planner(Extent::Rank, vec![0, 1]);
    for node in 0..3 {
        assert_eq!(p.step(Input::Joined { member: member(node), spare: false }), []);
    }
    let todo = p.start();
    assert_eq!(todo.iter().filter(|a| matches!(a, Action::Restore { .. })).count(), 2);
    for rank in 0..2 {
        p.step(Input::Restored { rank, incarnation: 1 });
    }
    assert!(p.settled());
    p
}

fn stored(p: &mut Planner, rank: u32, incarnation: u32, generation: u32, at: u32) -> Vec<Action> {
    p.step(Input::Stored { rank, incarnation, generation, at: vec![member(at)] })
}

fn answer(p: &mut Planner, from: u32, round: u64, words: &[u64], of: &[u32]) -> Vec<Action> {
    let held = Words { first: 0, words: words.to_vec() };
    let answer = Answer {
        held: of.iter().map(|rank| (*rank, held.clone())).collect(),
        in_step: vec![member(0), member(1)],
        partly: false,
    };
    p.step(Input::Answered { from: member(from), round, answer })
}

#[test]
fn an_image_counts_with_its_second_copy() {
    let mut p = running();
    let copy = Action::Copy { rank: 0, generation: 1, from: member(0), to: member(1) };
    assert_eq!(stored(&mut p, 0, 1, 1, 0), [copy]);
    assert_eq!(stored(&mut p, 0, 1, 1, 1), [Action::Complete { rank: 0, generation: 1 }]);
    // Its second holder dies: a third one takes over.
    let todo = p.step(Input::NodeDied { member: member(1) });
    assert!(todo.contains(&Action::Copy {
        rank: 0,
        generation: 1,
        from: member(0),
        to: member(2)
    }));
}

#[test]
fn a_copy_that_failed_is_tried_again_in_its_time() {
    let mut p = running();
    stored(&mut p, 0, 1, 1, 0);
    let failed = Input::NotCopied { rank: 0, generation: 1, to: member(1) };
    assert_eq!(p.step(failed), []);
    assert!(matches!(p.step(Input::Tick)[..], [Action::Copy { .. }]));
    assert_eq!(p.step(Input::Tick), []);
}

#[test]
fn a_rank_of_a_dead_node_gets_the_longest_determinants_and_the_newest_image() {
    let mut p = running();
    stored(&mut p, 1, 1, 1, 1);
    stored(&mut p, 1, 1, 1, 2);
    let todo = p.step(Input::NodeDied { member: member(1) });
    assert!(matches!(&todo[..], [Action::Members(live), Action::Query { round: 1, .. }, ..]
        if live.len() == 2));
    assert_eq!(p.home(1), None);
    assert_eq!(answer(&mut p, 0, 1, &[5], &[1]), []);
    let todo = answer(&mut p, 2, 1, &[5, 6], &[1]);
    let words = Some(Words { first: 0, words: vec![5, 6] });
    let restore = |a: &Action| {
        *a == Action::Restore {
            rank: 1,
            incarnation: 2,
            at: member(2),
            generation: 1,
            from: None,
            words: words.clone(),
        }
    };
    assert!(todo.iter().any(restore), "{todo:?}");
    assert_eq!(answer(&mut p, 2, 1, &[5, 6, 7], &[1]), [], "too late");
    p.step(Input::Restored { rank: 1, incarnation: 1 });
    assert!(!p.settled(), "that was the dead one");
    p.step(Input::Restored { rank: 1, incarnation: 2 });
    assert_eq!(p.home(1), Some(member(2)));
}

#[test]
fn what_its_new_home_fetches_is_not_copied_besides() {
    let copies = |todo: &[Action]| todo.iter().any(|a| matches!(a, Action::Copy { rank: 1, .. }));
    let mut p = running();
    let spare = Member { node: 3, epoch: 9 };
    p.step(Input::Joined { member: spare, spare: true });
    stored(&mut p, 1, 1, 1, 1);
    stored(&mut p, 1, 1, 1, 2);
    let mut todo = p.step(Input::NodeDied { member: member(1) });
    for node in [0, 2] {
        todo.extend(answer(&mut p, node, 1, &[], &[1]));
    }
    todo.extend(p.step(Input::Answered {
        from: spare,
        round: 1,
        answer: Answer { held: BTreeMap::new(), in_step: vec![], partly: false },
    }));
    todo.extend(p.step(Input::Tick));
    let fetches = |a: &Action| {
        matches!(a, Action::Restore { rank: 1, at, from: Some(from), .. }
            if (*at, *from) == (spare, member(2)))
    };
    assert!(todo.iter().any(fetches) && !copies(&todo), "{todo:?}");
    // It has it: two have. Where that one dies a third is to.
    assert!(!copies(&p.step(Input::Stored {
        rank: 1,
        incarnation: 2,
        generation: 1,
        at: vec![spare]
    })));
    assert!(copies(&p.step(Input::NodeDied { member: member(2) })));
}

#[test]
fn another_death_while_fetching_asks_anew() {
    let mut p = running();
    p.step(Input::NodeDied { member: member(1) });
    answer(&mut p, 2, 1, &[5], &[1]);
    let todo = p.step(Input::NodeDied { member: member(2) });
    assert!(todo.contains(&Action::Query { to: member(0), round: 2, ranks: vec![1] }));
    let todo = answer(&mut p, 0, 2, &[], &[]);
    assert!(todo.iter().any(|a| matches!(a, Action::Restore { rank: 1, generation: 0, .. })));
}

#[test]
fn fetched_determinants_are_kept_until_they_are_replicated_again() {
    let mut p = running();
    p.step(Input::NodeDied { member: member(1) });
    answer(&mut p, 0, 1, &[], &[]);
    answer(&mut p, 2, 1, &[5, 6], &[1]);
    // The only one that held them dies, and is the new home besides.
    let home = p.home(1).unwrap();
    p.step(Input::NodeDied { member: home });
    let left = if home == member(2) { 0 } else { 2 };
    let todo = answer(&mut p, left, 2, &[], &[]);
    let again = |a: &Action| {
        matches!(a, Action::Restore { rank: 1, incarnation: 3, words: Some(w), .. }
            if w.words == [5, 6])
    };
    assert!(todo.iter().any(again), "{todo:?}");
}

#[test]
fn where_a_rank_may_have_run_last_somebody_must_have_been_in_step() {
    for told in [false, true] {
        let mut p = running();
        p.step(Input::NodeDied { member: member(1) });
        answer(&mut p, 0, 1, &[], &[]);
        answer(&mut p, 2, 1, &[5, 6], &[1]);
        assert_eq!(p.home(1), Some(member(2)));
        if told {
            p.step(Input::Starting { rank: 1, incarnation: 2 });
        }
        p.step(Input::NodeDied { member: member(2) });
        // In step with node 1, not with node 2.
        let todo = answer(&mut p, 0, 2, &[5], &[1]);
        let back = todo.iter().any(|a| matches!(a, Action::RollBack { .. }));
        assert_eq!(back, told, "{todo:?}");
    }
}

#[test]
fn the_source_of_an_image_may_die_once_it_is_there() {
    let mut p = running();
    for at in [1, 2] {
        stored(&mut p, 0, 1, 1, at);
    }
    p.step(Input::RankDied { rank: 0, incarnation: 1 });
    assert_eq!(p.incarnation(0), 2);
    stored(&mut p, 0, 2, 1, 0);
    p.step(Input::NodeDied { member: member(1) });
    assert_eq!(p.incarnation(0), 2, "it is not ordered anew");
}

#[test]
fn an_image_that_is_damaged_before_it_counts_is_discarded() {
    let mut p = running();
    stored(&mut p, 0, 1, 1, 0);
    let bad = Input::ImageBad { rank: 0, incarnation: 0, generation: 1, at: member(0) };
    assert_eq!(p.step(bad), [Action::Discard { rank: 0, generation: 1 }]);
    assert!(p.settled());
}

#[test]
fn without_anybody_in_step_all_go_back_to_the_beginning() {
    let mut p = running();
    p.step(Input::NodeDied { member: member(1) });
    let nobody = || Answer::default();
    p.step(Input::Answered { from: member(0), round: 1, answer: nobody() });
    let todo = p.step(Input::Answered { from: member(2), round: 1, answer: nobody() });
    assert!(matches!(&todo[..], [Action::RollBack { why }] if why.contains("rank 1")));
    assert_eq!(p.step(Input::RankDied { rank: 0, incarnation: 1 }), [], "all are being killed");
    let members = vec![Member { node: 0, epoch: 9 }, Member { node: 2, epoch: 10 }];
    let todo = p.step(Input::AllDown { members });
    let begun = |a: &&Action| matches!(a, Action::Restore { generation: 0, words: None, .. });
    assert_eq!(todo.iter().filter(begun).count(), 2);
    assert!(p.incarnation(0) == 2 && p.incarnation(1) == 2);
}

#[test]
fn who_is_left_is_told_also_while_all_go_back() {
    let mut p = running();
    p.step(Input::NodeDied { member: member(1) });
    for from in [0, 2] {
        p.step(Input::Answered { from: member(from), round: 1, answer: Answer::default() });
    }
    // Node 0 may wait for it to hold what a rank recorded, and tells of that rank's end then.
    let todo = p.step(Input::NodeDied { member: member(2) });
    assert_eq!(todo, [Action::Members(vec![member(0)])]);
}

#[test]
fn nothing_else_is_ordered_once_all_go_back() {
    let mut p = running();
    for (rank, home) in [(0, 0), (1, 1)] {
        for generation in 1..=2 {
            stored(&mut p, rank, 1, generation, home);
            stored(&mut p, rank, 1, generation, 2);
        }
        p.step(Input::Dropped { rank, generation: 0 });
    }
    // Both are to be restored from node 2, which has the last copies, and dies.
    for (rank, home) in [(0, 0), (1, 1)] {
        for generation in [2, 1] {
            let (incarnation, at) = (p.incarnation(rank), member(home));
            p.step(Input::ImageBad { rank, incarnation, generation, at });
        }
        let incarnation = p.incarnation(rank);
        p.step(Input::RankDied { rank, incarnation });
    }
    let todo = p.step(Input::NodeDied { member: member(2) });
    let ordered = |a: &Action| matches!(a, Action::Restore { .. } | Action::Copy { .. });
    assert!(matches!(todo.last(), Some(Action::RollBack { .. })), "{todo:?}");
    assert!(!todo.iter().any(ordered), "{todo:?}");
}

#[test]
fn images_of_an_earlier_incarnation_do_not_count_any_more() {
    let mut p = running();
    stored(&mut p, 0, 1, 1, 0);
    let todo = p.step(Input::RankDied { rank: 0, incarnation: 1 });
    assert!(todo.contains(&Action::Discard { rank: 0, generation: 1 }), "{todo:?}");
    assert!(todo.iter().any(|a| matches!(a, Action::Restore { words: None, generation: 0, .. })));
    let late = stored(&mut p, 0, 1, 2, 0);
    assert_eq!(late, [Action::Discard { rank: 0, generation: 2 }]);
    assert!(matches!(stored(&mut p, 0, 2, 3, 0)[..], [Action::Copy { .. }]));
}

#[test]
fn an_image_whose_copies_are_gone_does_not_turn_up_again() {
    let mut p = running();
    p.step(Input::NodeDied { member: member(2) });
    stored(&mut p, 1, 1, 1, 1);
    stored(&mut p, 1, 1, 1, 0);
    p.step(Input::ImageBad { rank: 1, incarnation: 0, generation: 1, at: member(0) });
    let todo = p.step(Input::NodeDied { member: member(1) });
    assert!(todo.contains(&Action::Damaged { rank: 1, generation: 1 }), "{todo:?}");
    // The copy was still on its way.
    let late = stored(&mut p, 1, 1, 1, 0);
    assert_eq!(late, [Action::Discard { rank: 1, generation: 1 }]);
    let todo = answer(&mut p, 0, 1, &[], &[]);
    assert!(todo.iter().any(|a| matches!(a, Action::Restore { rank: 1, generation: 0, .. })));
}

#[test]
fn a_damaged_copy_is_replaced_by_the_other_and_then_by_the_image_before() {
    let mut p = running();
    for generation in 1..=2 {
        stored(&mut p, 0, 1, generation, 0);
        stored(&mut p, 0, 1, generation, 1);
    }
    p.step(Input::RankDied { rank: 0, incarnation: 1 });
    let bad =
        |incarnation, at| Input::ImageBad { rank: 0, incarnation, generation: 2, at: member(at) };
    let todo = p.step(bad(2, 0));
    let other = Some(member(1));
    let from_other =
        |a: &Action| matches!(a, Action::Restore { generation: 2, from, .. } if *from == other);
    assert!(todo.iter().any(from_other), "{todo:?}");
    let todo = p.step(bad(3, 1));
    assert!(todo.contains(&Action::Damaged { rank: 0, generation: 2 }));
    assert!(todo.iter().any(|a| matches!(a, Action::Restore { generation: 1, from: None, .. })));
}

#[test]
fn a_spare_takes_all_ranks_of_a_dead_node() {
    let mut p = planner(Extent::Rank, vec![0, 0, 1]);
    for node in 0..3 {
        p.step(Input::Joined { member: member(node), spare: node == 2 });
    }
    p.start();
    (0..3).for_each(|rank| drop(p.step(Input::Restored { rank, incarnation: 1 })));
    p.step(Input::NodeDied { member: member(0) });
    answer(&mut p, 1, 1, &[], &[]);
    answer(&mut p, 2, 1, &[], &[]);
    assert_eq!([p.home(0), p.home(1), p.home(2)], [2, 2, 1].map(|n| Some(member(n))));
}

#[test]
fn a_rank_that_ended_is_run_again_if_its_node_dies_unless_it_is_released() {
    for released in [false, true] {
        let mut p = running();
        p.step(Input::RankDone { rank: 1 });
        if released {
            p.step(Input::RankReleased { rank: 1 });
        }
        let todo = p.step(Input::NodeDied { member: member(1) });
        assert_eq!(todo.iter().any(|a| matches!(a, Action::Query { .. })), !released);
    }
}

#[test]
fn the_last_node_that_dies_ends_it() {
    let mut p = running();
    (0..2).for_each(|node| drop(p.step(Input::NodeDied { member: member(node) })));
    assert_eq!(p.step(Input::NodeDied { member: member(2) }), [Action::Lost]);
}

#[test]
fn what_was_under_way_is_said_again_after_the_controller_died() {
    let mut p = running();
    stored(&mut p, 0, 1, 1, 0);
    p.step(Input::RankDied { rank: 1, incarnation: 1 });
    let todo = p.resume();
    let restore = |a: &Action| matches!(a, Action::Restore { rank: 1, incarnation: 2, .. });
    let copy = |a: &Action| matches!(a, Action::Copy { rank: 0, generation: 1, .. });
    assert!(todo.iter().any(restore) && todo.iter().any(copy), "{todo:?}");
}

/// A node that answers in parts has not answered before the last; what the parts say counts
/// together.
#[test]
fn an_answer_may_come_in_parts() {
    let words = |n: u64| Words { first: 0, words: vec![n; n as usize] };
    let held = [(0, words(3)), (1, words(5))].into();
    let whole = Answer { held, in_step: vec![member(0), member(1)], partly: false };
    let parts: Vec<Answer> = whole.clone().parts().collect();
    let of = |a: &Answer| (a.held.keys().copied().collect::<Vec<_>>(), a.in_step.len(), a.partly);
    let said: Vec<_> = parts.iter().map(of).collect();
    assert_eq!(said, [(vec![0], 0, true), (vec![1], 2, false)]);
    assert_eq!(Answer::default().parts().collect::<Vec<_>>(), [Answer::default()]);

    let ordered = |inputs: Vec<Answer>| {
        let mut p = running();
        p.step(Input::NodeDied { member: member(0) });
        let (round, mut others) = (p.round, p.members().to_vec());
        let first = others.remove(0);
        for from in others {
            let answer = Answer::default();
            assert_eq!(p.step(Input::Answered { from, round, answer }), []);
        }
        let mut todo = Vec::new();
        for answer in inputs {
            assert_eq!(todo, [], "ordered before the last part");
            todo = p.step(Input::Answered { from: first, round, answer });
        }
        todo
    };
    let todo = ordered(parts);
    assert!(todo.iter().any(|a| matches!(a, Action::Restore { words: Some(_), .. })), "{todo:?}");
    assert_eq!(todo, ordered(vec![whole]));
}
