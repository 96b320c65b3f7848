//! Distributed graphs between threads over one segment, compared with what each rank computes.

use super::*;
use crate::consts::{COMM_NULL, COMM_WORLD, CONGRUENT, INFO_NULL};
use crate::testing;

/// The edges that rank `giver` of `size` tells of, some of them twice, and of nodes to themselves.
fn given_by(giver: u32, size: u32, round: u32) -> Vec<Edge> {
    let mut state = (giver + 1).wrapping_mul(0x9e37_79b9) ^ round.wrapping_mul(0x85eb_ca6b);
    let mut next = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % below) as i32
    };
    let count = if giver % 3 == 2 { 0 } else { next(40) };
    (0..count).map(|_| [next(size), next(size), next(1000)]).collect()
}

/// As the arguments of a program: an entry for each edge, or one for each run of one source.
struct Arguments {
    sources: Vec<i32>,
    degrees: Vec<i32>,
    destinations: Vec<i32>,
    weights: Vec<i32>,
}

impl Arguments {
    fn new(edges: &[Edge]) -> Arguments {
        let (mut sources, mut degrees) = (Vec::new(), Vec::new());
        for run in edges.chunk_by(|a, b| a[0] == b[0]) {
            sources.extend([run[0][0], 0]);
            degrees.extend([run.len() as i32, 0]);
        }
        let column = |i: usize| edges.iter().map(|edge| edge[i]).collect();
        Arguments { sources, degrees, destinations: column(1), weights: column(2) }
    }

    fn edges(&self, weighted: bool) -> Edges<'_> {
        Edges {
            sources: &self.sources,
            degrees: &self.degrees,
            destinations: &self.destinations,
            weights: if weighted { Weights::With(&self.weights) } else { Weights::Without },
        }
    }
}

type Lists = [Vec<i32>; 4];

/// Sources, their weights, destinations, their weights.
fn lists(m: &Machine, comm: Handle) -> Lists {
    let (from, to, weighted) = m.dist_graph_neighbors_count(comm).unwrap();
    let list = |n: i32| vec![-1; n as usize];
    let mut all = [list(from), list(from), list(to), list(to)];
    let [sources, source_weights, destinations, weights] = &mut all;
    m.dist_graph_neighbors(comm, (sources, source_weights), (destinations, weights)).unwrap();
    if !weighted {
        assert!(source_weights.iter().chain(weights.iter()).all(|&w| w == -1));
    }
    all
}

/// What `lists` must give at rank `me`.
fn expected(me: u32, size: u32, round: u32, weighted: bool) -> Lists {
    let all = || (0..size).flat_map(|giver| given_by(giver, size, round));
    let mine = |rank: i32| rank == me as i32;
    let weight = |edge: Edge| if weighted { edge[2] } else { -1 };
    let (inn, out) = (all().filter(|e| mine(e[1])), all().filter(|e| mine(e[0])));
    let (inn, out): (Vec<Edge>, Vec<Edge>) = (inn.collect(), out.collect());
    [
        inn.iter().map(|e| e[0]).collect(),
        inn.iter().map(|&e| weight(e)).collect(),
        out.iter().map(|e| e[1]).collect(),
        out.iter().map(|&e| weight(e)).collect(),
    ]
}

fn check_round(m: &mut Machine, round: u32) {
    let (me, size) = m.world();
    let arguments = Arguments::new(&given_by(me, size, round));
    let weighted = round.is_multiple_of(2);
    let given = Ok(arguments.edges(weighted));
    let mut comm = m.dist_graph_create(COMM_WORLD, given, INFO_NULL).unwrap();
    let mut dup = m.comm_dup(comm).unwrap();
    assert_eq!(m.comm_compare(COMM_WORLD, comm), Ok(CONGRUENT));
    for comm in [comm, dup] {
        assert_eq!(m.topo_test(comm), Ok(DIST_GRAPH));
        assert_eq!(lists(m, comm), expected(me, size, round, weighted), "round {round}");
    }
    m.comm_free(&mut comm).unwrap();
    m.comm_free(&mut dup).unwrap();
}

#[test]
fn edges_come_in_the_order_of_those_who_gave_them() {
    for size in [1, 2, 3, 5, 9, 13] {
        testing::run(size, |m| (0..4).for_each(|round| check_round(m, round)));
    }
}

#[test]
fn a_rank_that_starts_over_has_the_same_neighbours() {
    for (victim, after) in [(0, 1), (2, 3), (3, 5)] {
        testing::run_killing(4, victim, after, |m, step| {
            for round in 0..6 {
                if step() {
                    return;
                }
                check_round(m, round);
            }
        });
    }
}

#[test]
fn adjacent_edges_are_kept_as_they_are() {
    testing::run(3, |m| {
        let me = m.world().0 as i32;
        let (ranks, weights) = ([me, (me + 1) % 3, me], [0, 7, i32::MAX]);
        let weighted = Adjacent { ranks: &ranks, weights: Weights::With(&weights) };
        let none = Adjacent { ranks: &[], weights: Weights::Unknown };
        let given = Ok([weighted, none]);
        let comm = m.dist_graph_create_adjacent(COMM_WORLD, given, INFO_NULL).unwrap();
        assert_eq!(m.dist_graph_neighbors_count(comm), Ok((3, 0, true)));
        assert_eq!(lists(m, comm), [ranks.to_vec(), weights.to_vec(), vec![], vec![]]);
        let (mut some, mut more) = ([-1; 2], [-1; 4]);
        m.dist_graph_neighbors(comm, (&mut some, &mut more), (&mut [], &mut [])).unwrap();
        assert_eq!((some, more), ([me, (me + 1) % 3], [0, 7, i32::MAX, -1]));
        assert_eq!(m.graphdims_get(comm), Err(class::TOPOLOGY));
        assert_eq!(m.cart_shift(comm, 0, 1), Err(class::TOPOLOGY));
        // What nobody says of weights is that there are some.
        let nothing = Ok([none, none]);
        let comm = m.dist_graph_create_adjacent(comm, nothing, INFO_NULL).unwrap();
        assert_eq!(m.dist_graph_neighbors_count(comm), Ok((0, 0, true)));
        assert_eq!(m.dist_graph_neighbors_count(COMM_WORLD), Err(class::TOPOLOGY));
        assert_eq!(m.dist_graph_neighbors_count(COMM_NULL), Err(class::COMM));
    });
}

#[test]
fn wrong_edges_are_refused() {
    let list = |weights| Edges { sources: &[1], degrees: &[2], destinations: &[0, 1], weights };
    let good = list(Weights::Without);
    let check = |edges: Edges| edges.check(2);
    assert_eq!(check(good), Ok(WITHOUT));
    assert_eq!(check(list(Weights::With(&[0, 5]))), Ok(WITH));
    assert_eq!(check(list(Weights::With(&[0, -5]))), Err(class::ARG));
    assert_eq!(check(list(Weights::With(&[]))), Err(class::ARG));
    assert_eq!(check(list(Weights::Unknown)), Err(class::ARG));
    assert_eq!(check(Edges { sources: &[2], ..good }), Err(class::RANK));
    assert_eq!(check(Edges { sources: &[-3], ..good }), Err(class::RANK));
    assert_eq!(check(Edges { destinations: &[0, 2], ..good }), Err(class::RANK));
    assert_eq!(check(Edges { destinations: &[0], ..good }), Err(class::ARG));
    assert_eq!(check(Edges { degrees: &[-1], ..good }), Err(class::ARG));
    assert_eq!(check(Edges { sources: &[], ..good }), Err(class::ARG));
    assert_eq!(Edges::total(&[3, 0, 4]), Ok(7));
    assert_eq!(Edges::total(&[3, -1]), Err(class::ARG));
}

#[test]
fn a_mistake_of_one_rank_is_an_error_on_all() {
    for size in [2, 9] {
        testing::run(size, |m| {
            let (me, _) = m.world();
            let edges = |rank: &'static [i32], weights| Edges {
                sources: &[0],
                degrees: &[1],
                destinations: rank,
                weights,
            };
            let mut create = |given| m.dist_graph_create(COMM_WORLD, given, INFO_NULL);
            let good = edges(&[1], Weights::Without);
            let wrong = if me == 1 { edges(&[-1], Weights::Without) } else { good };
            assert_eq!(create(Ok(wrong)), Err(class::RANK));
            let unread = if me == 0 { Err(class::NO_MEM) } else { Ok(good) };
            assert_eq!(create(unread), Err(class::NO_MEM));
            let mixed = if me == 1 { edges(&[1], Weights::With(&[1])) } else { good };
            assert_eq!(create(Ok(mixed)), Err(class::ARG));
            let info = if me == 1 { Handle(7) } else { INFO_NULL };
            assert_eq!(m.dist_graph_create(COMM_WORLD, Ok(good), info), Err(class::INFO));
            let adjacent = |ranks| Adjacent { ranks, weights: Weights::Without };
            let far: &[i32] = if me == 0 { &[99] } else { &[0] };
            let given = Ok([adjacent(&[0]), adjacent(far)]);
            let made = m.dist_graph_create_adjacent(COMM_WORLD, given, INFO_NULL);
            assert_eq!(made, Err(class::RANK));
            check_round(m, 0);
        });
    }
}
