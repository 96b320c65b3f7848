//! How often ranks wait for each other, and that little data is reduced as more is.

use super::*;
use crate::coll::Ints;
use crate::consts::COMM_WORLD as WORLD;
use crate::datatype::predefined::{DOUBLE, UINT64_T as U64};
use crate::op::SUM;

/// Numbers whose sum hangs on its order.
fn numbers(rank: u32, count: usize) -> Vec<f64> {
    (0..count)
        .map(|i| {
            let v = value(7, rank, 0, i);
            (v >> 12) as f64 * 2f64.powi((v % 41) as i32 - 20)
        })
        .collect()
}

fn bits(all: &[f64]) -> Vec<u64> {
    all.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn little_data_is_reduced_to_the_bits_of_more() {
    const FEW: usize = 5;
    const MANY: usize = 300;
    all_sizes(|m, me, n| {
        // Over clusters more is combined in each of them first.
        m.comms.canonical = true;
        let own = numbers(me, MANY);
        for way in 0..6 {
            let call = |m: &mut Machine, count: usize| {
                let mut out = vec![1.5f64; count];
                let (from, to) = (own.as_ptr().cast(), out.as_mut_ptr().cast());
                let c = count as i64;
                // SAFETY: the buffers hold `count` elements.
                let done = unsafe {
                    match way {
                        0 => m.allreduce(from, to, c, DOUBLE, SUM, WORLD),
                        1 => m.scan(from, to, c, DOUBLE, SUM, WORLD),
                        2 => m.exscan(from, to, c, DOUBLE, SUM, WORLD),
                        _ => {
                            let root = [0, n - 1, n / 2][way - 3] as i32;
                            m.reduce(from, to, c, DOUBLE, SUM, root, WORLD)
                        }
                    }
                };
                assert_eq!(done, Ok(()));
                bits(&out)
            };
            let (little, much) = (call(m, FEW), call(m, MANY));
            assert_eq!(little, much[..FEW]);
        }
    });
}

/// Runs a collective that the others begin when rank 0 has sent them something: if that waits for
/// anybody before it has sent to all, this test never ends.
fn all_hear_from_rank_0_first(m: &mut Machine, call: impl Fn(&mut Machine)) {
    // It may have been met, and put aside, while the rank waited for another one.
    let aside = |m: &Machine| m.engine.unexpected.iter().flatten().any(|u| u.src == 0);
    while m.world().0 != 0 && !aside(m) && m.endpoint.peek(0).is_none() {
        std::thread::yield_now();
    }
    call(m);
}

#[test]
fn a_rank_that_waits_has_sent_to_all() {
    const COUNT: usize = 6;
    for ranks in [2, 4, 7] {
        testing::run(ranks, |m| {
            let n = m.world().1 as usize;
            let out = vec![1u64; COUNT * n];
            let mut inn = vec![0u64; COUNT * n];
            let counts = vec![COUNT as i32; n];
            let starts: Vec<i32> = (0..n as i32).map(|r| r * COUNT as i32).collect();
            let (from, to): (*const u8, *mut u8) = (out.as_ptr().cast(), inn.as_mut_ptr().cast());
            let (cs, ds) = (Ints::I32(counts.as_ptr()), Ints::I32(starts.as_ptr()));
            let c = COUNT as i64;
            // SAFETY: the buffers hold `COUNT` elements for each rank, the arrays an entry.
            unsafe {
                all_hear_from_rank_0_first(m, |m| m.barrier(WORLD).unwrap());
                all_hear_from_rank_0_first(m, |m| {
                    m.alltoall(from, c, U64, to, c, U64, WORLD).unwrap();
                });
                all_hear_from_rank_0_first(m, |m| {
                    m.alltoallv(from, cs, ds, U64, to, cs, ds, U64, WORLD).unwrap();
                });
                all_hear_from_rank_0_first(m, |m| {
                    m.allgather(from, c, U64, to, c, U64, WORLD).unwrap();
                });
                all_hear_from_rank_0_first(m, |m| {
                    m.allgatherv(from, c, U64, to, cs, ds, U64, WORLD).unwrap();
                });
                all_hear_from_rank_0_first(m, |m| {
                    m.bcast(to, c, U64, 0, WORLD).unwrap();
                });
                all_hear_from_rank_0_first(m, |m| {
                    m.reduce_scatter_block(from, to, c, U64, SUM, WORLD).unwrap();
                });
                if n > 2 {
                    all_hear_from_rank_0_first(m, |m| {
                        m.allreduce(from, to, c, U64, SUM, WORLD).unwrap();
                    });
                    all_hear_from_rank_0_first(m, |m| {
                        m.scan(from, to, c, U64, SUM, WORLD).unwrap();
                    });
                }
            }
            let sum = if n > 2 { u64::from(m.world().0) + 1 } else { n as u64 };
            assert_eq!(inn[..COUNT], [sum; COUNT]);
        });
    }
}

#[test]
fn more_than_may_go_ahead_goes_in_turn() {
    // A log of the least size: a channel's chunk and as much again.
    for (ranks, count) in [(4, 20_000), (6, 9_000)] {
        for ft in [0, eyrie_ledger::segment::FT_LOGGED] {
            let log = if ft == 0 { 1 } else { 64 << 20 };
            testing::run_with(ranks, ft, log, |m| {
                let (me, n) = m.world();
                for round in 0..3 {
                    let out: Vec<u64> = (0..n).flat_map(|r| values(round, me, r, count)).collect();
                    let mut inn = vec![0u64; out.len()];
                    let c = count as i64;
                    // SAFETY: the buffers hold `count` elements for each rank.
                    unsafe {
                        let (from, to) = (out.as_ptr().cast(), inn.as_mut_ptr().cast());
                        m.alltoall(from, c, U64, to, c, U64, WORLD).unwrap();
                    }
                    let expect: Vec<u64> =
                        (0..n).flat_map(|r| values(round, r, me, count)).collect();
                    assert!(inn == expect);
                }
            });
        }
    }
}
