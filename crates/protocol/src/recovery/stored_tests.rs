//! The bytes of planners of all modes, as they were before units were one value.

use super::*;
use crate::recovery::{Action, Input};

const RANKS: u32 = 4;

fn member(node: u32) -> Member {
    Member { node, epoch: u64::from(node) + 3 }
}

fn clusters() -> Neighbours {
    Neighbours::new(2, vec![0, 0, 1, 1], true)
}

const MODES: [&str; 5] = ["logged", "routed", "node", "cluster", "coordinated"];

fn planner(mode: &str) -> Planner {
    let map = vec![0, 0, 1, 2];
    let extent = match mode {
        "node" => Extent::Node,
        "cluster" => Extent::Cluster,
        "coordinated" => Extent::Job,
        _ => Extent::Rank,
    };
    let units = Units::new(extent, &map, |node| clusters().cluster(node));
    let routers = (mode == "routed").then_some(3);
    let planner = Planner::new(units.logged_at(LogAt::routers(routers)), map);
    if mode == "cluster" { planner.with_neighbours(clusters()) } else { planner }
}

/// One of each mode that has begun, has checkpoints, and has lost a rank.
fn advanced(mode: &str) -> Planner {
    let mut p = planner(mode);
    for node in 0..4 {
        p.step(Input::Joined { member: member(node), spare: node == 3 });
    }
    p.start();
    runs(&mut p);
    for generation in 1..3 {
        for rank in 0..RANKS {
            let (incarnation, at) = (p.incarnation(rank), vec![member(0), member(1)]);
            p.step(Input::Stored { rank, incarnation, generation, at });
        }
    }
    p.step(Input::RankDied { rank: 1, incarnation: p.incarnation(1) });
    p.step(Input::RankDied { rank: 0, incarnation: p.incarnation(0) });
    if mode == "coordinated" {
        p.step(Input::AllDown { members: (0..4).map(member).collect() });
    }
    p
}

fn runs(p: &mut Planner) {
    for rank in 0..RANKS {
        let incarnation = p.incarnation(rank);
        p.step(Input::Starting { rank, incarnation });
        p.step(Input::Restored { rank, incarnation });
    }
}

/// What all of this comes to when a node is lost.
fn loses_a_node(p: &mut Planner) -> Vec<Action> {
    let mut todo = p.step(Input::NodeDied { member: member(0) });
    for node in 1..4 {
        let answer = Answer { in_step: vec![member(0), member(1), member(2)], ..Answer::default() };
        todo.extend(p.step(Input::Answered { from: member(node), round: 1, answer }));
    }
    todo
}

fn bytes(p: &Planner) -> Vec<u8> {
    postcard::to_stdvec(p).unwrap()
}

#[test]
fn golden_planners() {
    let marks = MODES.map(|mode| {
        let (begun, later) = (bytes(&planner(mode)), bytes(&advanced(mode)));
        (begun.len(), later.len(), xxhash_rust::xxh3::xxh3_64(&[begun, later].concat()))
    });
    // Bytes of one that has not begun, of one that has, and what both come to.
    let golden = [
        (32, 162, 15_156_070_426_874_905_982),
        (33, 163, 11_980_160_489_407_213_511),
        (36, 170, 14_930_230_262_998_388_290),
        (40, 168, 11_942_554_671_726_653_066),
        (32, 180, 1_572_392_987_747_333_003),
    ];
    assert_eq!(marks, golden);
}

#[test]
fn what_is_written_is_read_as_it_was() {
    for mode in MODES {
        let mut one = advanced(mode);
        let mut other: Planner = postcard::from_bytes(&bytes(&one)).unwrap();
        assert_eq!(bytes(&other), bytes(&one), "{mode}");
        assert_eq!(other.units, one.units, "{mode}");
        assert_eq!(loses_a_node(&mut other), loses_a_node(&mut one), "{mode}");
        assert_eq!(bytes(&other), bytes(&one), "{mode}");
    }
}
