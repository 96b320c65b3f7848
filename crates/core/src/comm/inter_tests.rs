//! Inter-communicators, later duplicates, communicators from groups; what goes through them.

use crate::coll::{Block, Blocks, How, Ints, Layout};
use crate::comm::Comm;
use crate::consts::*;
use crate::datatype::predefined::UINT64_T as U64;
use crate::error::class;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op::SUM;
use crate::p2p::SendMode;
use crate::testing;
use std::rc::Rc;

const TAG: i32 = 7;
const SIZES: [u32; 4] = [2, 3, 5, 7];

/// Even and odd ranks of the world; both leaders are the first.
fn halves(m: &mut Machine) -> (Handle, Handle) {
    let side = (m.world().0 % 2) as i32;
    let local = m.comm_split(COMM_WORLD, side, 0).unwrap();
    let inter = m.intercomm_create(local, 0, COMM_WORLD, 1 - side, TAG).unwrap();
    (local, inter)
}

fn get(m: &Machine, comm: Handle) -> Rc<Comm> {
    m.comms.get(comm).unwrap()
}

fn remote(m: &Machine, comm: Handle) -> Vec<u64> {
    get(m, comm).peers().members().iter().map(|w| u64::from(*w)).collect()
}

fn at<T>(data: &[T]) -> *const u8 {
    data.as_ptr().cast()
}

fn at_mut<T>(data: &mut [T]) -> *mut u8 {
    data.as_mut_ptr().cast()
}

#[test]
fn both_sides_know_each_other() {
    for ranks in SIZES {
        testing::run(ranks, |m| {
            let (local, inter) = halves(m);
            let me = m.world().0;
            let theirs: Vec<u32> = (0..ranks).filter(|r| r % 2 != me % 2).collect();
            let c = get(m, inter);
            assert_eq!(c.peers().members(), theirs);
            assert_eq!(m.comm_size(inter), m.comm_size(local));
            assert_eq!(m.comm_remote_size(inter), Ok(theirs.len() as i32));
            assert_eq!(m.comm_test_inter(inter), Ok(true));
            assert_eq!(m.comm_remote_size(local), Err(class::COMM));
            let dup = m.comm_dup(inter).unwrap();
            assert_eq!(m.comm_compare(inter, dup), Ok(CONGRUENT));
            assert_eq!(m.comm_compare(inter, local), Ok(UNEQUAL));
            let (mut dup, mut inter) = (dup, inter);
            m.comm_free(&mut dup).unwrap();
            m.comm_free(&mut inter).unwrap();
        });
    }
}

#[test]
fn messages_go_to_the_remote_group() {
    testing::run(5, |m| {
        let (_, inter) = halves(m);
        let c = get(m, inter);
        let own = [u64::from(m.world().0)];
        // SAFETY: the buffers hold one element.
        unsafe {
            for to in 0..c.peers().size() as i32 {
                m.send(SendMode::Standard, at(&own), 1, U64, to, TAG, inter).unwrap();
            }
            for from in 0..c.peers().size() as i32 {
                let mut got = [0u64];
                let s = m.recv(at_mut(&mut got), 1, U64, from, TAG, inter).unwrap();
                assert_eq!(s.source, from);
                assert_eq!(got[0], u64::from(c.peers().world(from as u32)));
            }
            let beyond = c.peers().size() as i32;
            let sent = m.send(SendMode::Standard, at(&own), 1, U64, beyond, TAG, inter);
            assert_eq!(sent, Err(class::RANK));
        }
    });
}

#[test]
fn a_merge_orders_the_groups() {
    for ranks in SIZES {
        testing::run(ranks, |m| {
            let (_, inter) = halves(m);
            let me = m.world().0;
            let evens = (0..ranks).filter(|r| r % 2 == 0);
            let odds = (0..ranks).filter(|r| r % 2 == 1);
            let orders = [
                (me % 2 == 1, false),
                (me % 2 == 0, true),
                // The group of rank 0 comes first.
                (false, false),
                (true, false),
            ];
            for (high, odds_first) in orders {
                let whole = m.intercomm_merge(inter, high).unwrap();
                let expect: Vec<u32> = match odds_first {
                    true => odds.clone().chain(evens.clone()).collect(),
                    false => evens.clone().chain(odds.clone()).collect(),
                };
                assert_eq!(m.comm_test_inter(whole), Ok(false));
                assert_eq!(get(m, whole).group.members(), expect);
                m.barrier(whole).unwrap();
            }
        });
    }
}

#[test]
fn collectives_cross() {
    for ranks in SIZES {
        testing::run(ranks, |m| {
            let (_, inter) = halves(m);
            let (me, c) = (u64::from(m.world().0), get(m, inter));
            let theirs = remote(m, inter);
            let (n, rank) = (theirs.len(), c.rank);
            let side = me % 2;
            m.barrier(inter).unwrap();
            // SAFETY: the buffers hold what the counts say.
            unsafe {
                // The first of the even ones is the root.
                let root = if side == 1 { 0 } else if rank == 0 { ROOT } else { PROC_NULL };
                let mut word = [if root == ROOT { 42u64 } else { 0 }];
                m.bcast(at_mut(&mut word), 1, U64, root, inter).unwrap();
                assert_eq!(word[0], if root == PROC_NULL { 0 } else { 42 });

                let mut all = vec![0u64; n];
                m.gather(at(&[me]), 1, U64, at_mut(&mut all), 1, U64, root, inter).unwrap();
                assert_eq!(all, if root == ROOT { theirs.clone() } else { vec![0; n] });
                let parts: Vec<u64> = theirs.iter().map(|w| w * 10).collect();
                let mut own = [0u64];
                m.scatter(at(&parts), 1, U64, at_mut(&mut own), 1, U64, root, inter).unwrap();
                assert_eq!(own[0], if root == 0 { me * 10 } else { 0 });

                let mut all = vec![0u64; n];
                m.allgather(at(&[me]), 1, U64, at_mut(&mut all), 1, U64, inter).unwrap();
                assert_eq!(all, theirs);
                let out: Vec<u64> = theirs.iter().map(|w| me * 100 + w).collect();
                let mut inn = vec![0u64; n];
                m.alltoall(at(&out), 1, U64, at_mut(&mut inn), 1, U64, inter).unwrap();
                assert_eq!(inn, theirs.iter().map(|w| w * 100 + me).collect::<Vec<_>>());

                let (mut sum, total) = ([0u64], theirs.iter().sum::<u64>());
                m.allreduce(at(&[me]), at_mut(&mut sum), 1, U64, SUM, inter).unwrap();
                assert_eq!(sum[0], total);
                let mut sum = [0u64];
                m.reduce(at(&[me]), at_mut(&mut sum), 1, U64, SUM, root, inter).unwrap();
                assert_eq!(sum[0], if root == ROOT { total } else { 0 });
                assert_eq!(
                    m.scan(at(&[me]), at_mut(&mut sum), 1, U64, SUM, inter),
                    Err(class::COMM)
                );
            }
        });
    }
}

#[test]
fn reduced_shares_are_of_the_local_group() {
    testing::run(4, |m| {
        let (_, inter) = halves(m);
        let (me, rank) = (u64::from(m.world().0), get(m, inter).rank as u64);
        let theirs = remote(m, inter);
        let out = [me, me + 10, me + 20, me + 30];
        let sum = |i: u64| theirs.iter().map(|w| w + 10 * i).sum::<u64>();
        let mut got = [0u64; 2];
        // SAFETY: the buffers hold what the counts say.
        unsafe {
            m.reduce_scatter_block(at(&out), at_mut(&mut got), 2, U64, SUM, inter).unwrap();
            assert_eq!(got, [sum(2 * rank), sum(2 * rank + 1)]);
            let (counts, mut got) = ([1i32, 3], [0u64; 3]);
            let counts = Ints::I32(counts.as_ptr());
            m.reduce_scatter(at(&out), at_mut(&mut got), counts, U64, SUM, inter).unwrap();
            let expect = if rank == 0 { [sum(0), 0, 0] } else { [sum(1), sum(2), sum(3)] };
            assert_eq!(got, expect);
        }
    });
}

#[test]
fn what_is_begun_crosses_too() {
    testing::run(5, |m| {
        let (_, inter) = halves(m);
        let theirs = remote(m, inter);
        let (me, mut all, mut sum) = ([u64::from(m.world().0)], vec![0u64; theirs.len()], [0u64]);
        // SAFETY: the buffers hold what the counts say, until the requests are complete.
        unsafe {
            let own = Block { buf: at(&me), count: 1, dt: U64 };
            let layout = Layout::Even(1, U64);
            let blocks = Blocks { buf: at_mut(&mut all), layout };
            let mut reqs = [
                m.barrier_begun(How::Now, inter).unwrap(),
                m.allgather_begun(How::Now, own, blocks, inter).unwrap(),
                m.allreduce_begun(How::Now, at(&me), at_mut(&mut sum), 1, U64, SUM, inter).unwrap(),
            ];
            m.waitall(&mut reqs, &mut []).unwrap();
        }
        assert_eq!((all, sum[0]), (theirs.clone(), theirs.iter().sum()));
    });
}

#[test]
fn splits_and_subsets_have_both_sides() {
    testing::run(7, |m| {
        let (local, inter) = halves(m);
        let rank = get(m, inter).rank;
        let part = m.comm_split(inter, (rank % 2) as i32, 0).unwrap();
        let expect: Vec<u32> = get(m, inter).peers().members().iter().copied().collect();
        let alike = |(r, _): &(u32, u32)| r % 2 == rank % 2;
        let mine: Vec<u32> = (0..).zip(expect).filter(alike).map(|x| x.1).collect();
        assert_eq!(get(m, part).peers().members(), mine);
        m.barrier(part).unwrap();
        let nobody = m.comm_split(inter, if rank == 0 { 5 } else { UNDEFINED }, 0).unwrap();
        assert_eq!(nobody == COMM_NULL, rank != 0);
        let group = m.comm_group(local).unwrap();
        let first = m.group_incl(group, &[0]).unwrap();
        let pair = m.comm_create(inter, first).unwrap();
        assert_eq!(pair == COMM_NULL, rank != 0);
        if pair != COMM_NULL {
            assert_eq!(get(m, pair).peers().members(), [1 - m.world().0 % 2]);
            m.barrier(pair).unwrap();
        }
    });
}

#[test]
fn a_later_duplicate_can_be_used_when_it_is_complete() {
    testing::run(5, |m| {
        let (_, inter) = halves(m);
        for comm in [COMM_WORLD, inter] {
            let (a, ra) = m.comm_idup(comm, None).unwrap();
            // What is made meanwhile has contexts of its own.
            let other = m.comm_dup(comm).unwrap();
            let (b, rb) = m.comm_idup(comm, None).unwrap();
            m.waitall(&mut [rb, ra], &mut []).unwrap();
            let ctx = |h| get(m, h).ctx();
            assert!(ctx(a) != ctx(b) && ctx(a) != ctx(other));
            for dup in [a, b, other] {
                m.barrier(dup).unwrap();
                assert_eq!(m.comm_compare(comm, dup), Ok(CONGRUENT));
            }
        }
    });
}

#[test]
fn groups_alone_make_communicators() {
    testing::run(6, |m| {
        let world = m.comm_group(COMM_WORLD).unwrap();
        let me = m.world().0 as i32;
        let side = |s: i32| -> Vec<i32> { (0..6).filter(|r| r % 2 == s).collect() };
        let own = m.group_incl(world, &side(me % 2)).unwrap();
        let other = m.group_incl(world, &side(1 - me % 2)).unwrap();
        let make = |m: &mut Machine, g| {
            m.comm_create_from_group(g, b"one", INFO_NULL, ERRORS_RETURN).unwrap()
        };
        let (a, b) = (make(m, own), make(m, own));
        assert_ne!(get(m, a).ctx(), get(m, b).ctx());
        let nobody = m.comm_create_from_group(other, b"x", INFO_NULL, ERRORS_RETURN);
        assert_eq!(nobody, Ok(COMM_NULL));
        m.barrier(a).unwrap();
        m.barrier(b).unwrap();
        let inter = m
            .intercomm_create_from_groups((own, 1), (other, 1), b"two", INFO_NULL, ERRORS_RETURN)
            .unwrap();
        assert_eq!(m.comm_remote_size(inter), Ok(3));
        m.barrier(inter).unwrap();
    });
}
