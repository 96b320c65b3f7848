//! Collectives when a rank starts over, and when sends have to wait for their receivers.

use super::*;
use crate::consts::{COMM_NULL, COMM_WORLD as WORLD};
use crate::datatype::predefined::UINT64_T as U64;
use crate::op::SUM;

/// One of each kind on `count` elements per rank, checked; 0 is a fine count.
fn mixture(m: &mut Machine, comm: Handle, round: u64, count: usize) {
    let (me, n) = (m.comm_rank(comm).unwrap() as u32, m.comm_size(comm).unwrap() as u32);
    let c = count as i64;
    let root = (round % u64::from(n)) as u32;
    let out: Vec<u64> = (0..n).flat_map(|r| values(round, me, r, count)).collect();
    let mut inn = vec![0u64; out.len()];
    let sum: Vec<u64> = (0..count)
        .map(|i| (0..n).map(|r| value(round, r, 0, i)).fold(0, u64::wrapping_add))
        .collect();
    let (from, at): (*const u8, *mut u8) = (out.as_ptr().cast(), inn.as_mut_ptr().cast());
    let r = root as i32;
    // SAFETY: both buffers hold `count` elements per rank.
    unsafe {
        m.alltoall(from, c, U64, at, c, U64, comm).unwrap();
        let transposed: Vec<u64> = (0..n).flat_map(|r| values(round, r, me, count)).collect();
        assert_eq!(inn, transposed);
        m.allreduce(from, at, c, U64, SUM, comm).unwrap();
        assert_eq!(&inn[..count], sum);
        m.bcast(at, c * i64::from(n), U64, r, comm).unwrap();
        assert_eq!(&inn[..count], sum);
        inn.fill(0);
        m.reduce(from, at, c, U64, SUM, r, comm).unwrap();
        assert!(me != root || inn[..count] == sum);
        m.allgather(from, c, U64, at, c, U64, comm).unwrap();
        let gathered: Vec<u64> = (0..n).flat_map(|r| values(round, r, 0, count)).collect();
        assert_eq!(inn, gathered);
        let mut part = vec![0u64; count];
        m.scatter(at, c, U64, part.as_mut_ptr().cast(), c, U64, r, comm).unwrap();
        assert_eq!(part, values(round, me, 0, count));
        m.barrier(comm).unwrap();
    }
}

#[test]
fn a_rank_that_starts_over_catches_up() {
    for (victim, after) in [(0, 1), (3, 4), (1, 9)] {
        testing::run_killing(4, victim, after, |m, step| {
            for round in 0..10 {
                if step() {
                    return;
                }
                let color = (u64::from(m.world().0) + round) % 2;
                let mut part = m.comm_split(COMM_WORLD, color as i32, 0).unwrap();
                for count in [1, 70, 3000] {
                    mixture(m, COMM_WORLD, round, count);
                    mixture(m, part, round, count);
                }
                m.comm_free(&mut part).unwrap();
                assert_eq!(part, COMM_NULL);
            }
        });
    }
}

#[test]
fn large_data_passes_a_small_log() {
    // Without logging a send may wait until its receiver has read.
    for ranks in [2, 3, 5] {
        testing::run_with(ranks, 0, 1 << 20, |m| {
            for (round, count) in (0..).zip([0, 1, 100_000, 3, 300_000]) {
                mixture(m, WORLD, round, count);
            }
        });
    }
}
