//! Tests of the choice of a spare, with values that were worked out by hand.

use super::*;
use crate::reader::read_topology;
use crate::shape::MOST_NODES;
use crate::sharing::Sharing;

fn mesh(text: &str) -> Network {
    read_topology(text).unwrap()
}

fn costs(state_bytes: f64, rest_s: f64) -> Costs {
    Costs { state_bytes, rest_s, communication: 0.5 }
}

/// 4x4 with the last row spare, a stencil of 4x3 on the others.
fn square() -> (Network, Pattern, Situation) {
    let network = mesh("mesh 4x4\nbandwidth 1G\n");
    let pattern = Pattern::stencil(&[4, 3], false, 1e6);
    let situation = Situation::new(&network, 12, &[12, 13, 14, 15]).unwrap();
    (network, pattern, situation)
}

fn of(all: &[Candidate], wanted: impl Fn(&Candidate) -> bool) -> &Candidate {
    all.iter().find(|candidate| wanted(candidate)).unwrap()
}

#[test]
fn what_changes_is_counted_as_if_all_were_counted_again() {
    let (network, pattern, situation) = square();
    for lost in 0..12 {
        for candidate in
            candidates(&network, &pattern, &situation, lost, &Costs::default()).unwrap()
        {
            let after = situation.after(&candidate.moves, lost);
            let sharing = Sharing::of(&network, &pattern, &after);
            assert_eq!(candidate.sharing, sharing.most(), "{candidate:?}");
            assert!(!after.node_of.contains(&lost), "{candidate:?}");
        }
    }
}

#[test]
fn messages_meet_where_they_turn() {
    let (network, pattern, situation) = square();
    // Rank 9 is at (1, 2). What its neighbours 8, 10 and 5 send to the spare below, 13, turns at
    // (1, 2) and goes down together; what comes from there takes three ways.
    let all = candidates(&network, &pattern, &situation, 9, &costs(1.0, 100.0)).unwrap();
    let below = of(&all, |c| c.method == Method::Direct(13));
    assert_eq!((below.sharing, below.slowdown), (3, 3.0));
    // Rank 8 is at (0, 2), and has neighbours at (1, 2) and (0, 1). Both send to 12 at (0, 3)
    // through (0, 2): two.
    let all = candidates(&network, &pattern, &situation, 8, &costs(1.0, 100.0)).unwrap();
    let below = of(&all, |c| c.method == Method::Direct(12));
    assert_eq!((below.sharing, below.slowdown), (2, 2.0));
    // From 15 at (3, 3) the messages to both go along the last row together. Those to 15 share the
    // third row with one of its own messages.
    let far = of(&all, |c| c.method == Method::Direct(15));
    assert_eq!((far.sharing, far.slowdown), (2, 2.0));
}

#[test]
fn what_moves_is_weighed_against_what_is_slower() {
    let (network, pattern, situation) = square();
    // State that takes a second to move against a long rest: sliding, which keeps neighbours.
    let long = candidates(&network, &pattern, &situation, 5, &costs(1e9, 1e6)).unwrap();
    assert_eq!(long[0].method.dimensions(), 2, "{:?}", long[0]);
    assert_eq!((long[0].sharing, long[0].slowdown), (1, 1.0));
    assert_eq!(long[0].move_s, 1.0);
    // Nearly at the end: the fewest ranks move, whatever it costs the pattern.
    let short = candidates(&network, &pattern, &situation, 5, &costs(1e9, 0.0)).unwrap();
    assert_eq!(short[0].method.dimensions(), 0, "{:?}", short[0]);
    // Rest 1e6 s, half of it messages, twice as slow: half a million seconds.
    let beside = candidates(&network, &pattern, &situation, 8, &costs(1e9, 1e6)).unwrap();
    let twice = of(&beside, |c| c.method == Method::Direct(12));
    assert_eq!(twice.slow_s, 0.5e6);
}

#[test]
fn after_a_loss_the_next_one_is_replaced_too() {
    let (network, pattern, mut situation) = square();
    for (count, lost) in [5, 6, 1, 9].into_iter().enumerate() {
        let Ok(all) = candidates(&network, &pattern, &situation, lost, &costs(1.0, 1e6)) else {
            // A row that slid has left its place free.
            assert!(!situation.node_of.contains(&lost));
            continue;
        };
        situation = situation.after(&all[0].moves, lost);
        assert!(!situation.node_of.contains(&lost) && !situation.spares.contains(&lost), "{count}");
        let mut places = situation.node_of.clone();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 12);
    }
}

#[test]
fn without_spares_or_ranks_there_is_nothing_to_choose() {
    let (network, pattern, mut situation) = square();
    let all = candidates(&network, &pattern, &situation, 12, &Costs::default());
    assert_eq!(all, Err(ChoiceError::NoRanks(12)));
    let all = candidates(&network, &pattern, &situation, MOST_NODES, &Costs::default());
    assert_eq!(all, Err(ChoiceError::NoRanks(MOST_NODES)));
    situation.spares.clear();
    let all = candidates(&network, &pattern, &situation, 5, &Costs::default());
    assert_eq!(all, Err(ChoiceError::NoSpares));
}

#[test]
fn trees_have_no_lines_to_slide() {
    let network = mesh("fat-tree 4\n");
    let pattern = Pattern::stencil(&[7, 2], false, 1e6);
    let situation = Situation::new(&network, 14, &[14, 15]).unwrap();
    let all = candidates(&network, &pattern, &situation, 3, &Costs::default()).unwrap();
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|c| c.method.dimensions() == 0 && c.is_simulated));
}

#[test]
fn a_hundred_thousand_nodes_are_looked_through() {
    // 46x46x48 = 101,568 nodes, a face of them spare: 2,116 spares and all ways to slide.
    let network = mesh("torus 46x46x48\n");
    let pattern = Pattern::stencil(&[46, 46, 47], false, 1e6);
    let spares: Vec<Node> = (46 * 46 * 47..46 * 46 * 48).collect();
    let situation = Situation::new(&network, pattern.ranks, &spares).unwrap();
    let lost = 46 * 46 * 20 + 46 * 20 + 20;
    let all = candidates(&network, &pattern, &situation, lost, &Costs::default()).unwrap();
    assert!(all.len() >= spares.len() && !all[0].is_simulated);
    assert!(all[0].total_s() <= all[1].total_s());
}
