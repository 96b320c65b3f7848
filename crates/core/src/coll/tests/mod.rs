//! Collectives between threads over one segment, compared with what each rank computes by itself.

mod delays;
mod faulty;
mod moving;
mod padding;
mod reducing;
mod wide;
mod wrong;

use crate::consts::{COMM_WORLD, IN_PLACE};
use crate::datatype::predefined::UINT64_T;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::testing;

/// Few ranks, and enough for the logarithmic routes.
const SIZES: [u32; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 13];

fn in_place() -> *const u8 {
    IN_PLACE as *const u8
}

/// Jobs over clusters: that of each rank.
const CLUSTERS: [&[u32]; 6] = [
    &[0, 1],
    &[0, 0, 0, 1],
    &[0, 1, 0, 1, 0],
    &[0, 0, 1, 1, 1, 1, 2],
    &[0, 0, 0, 0, 0, 1, 1, 1, 1],
    &[2, 1, 1, 0, 0, 0, 1, 2, 0, 1, 0, 1, 1],
];

/// Runs `f(machine, rank, ranks)` on jobs of all sizes, in one cluster and over several.
fn all_sizes(f: impl Fn(&mut Machine, u32, u32) + Sync) {
    let one = SIZES.iter().map(|ranks| (*ranks, &[][..]));
    for (ranks, clusters) in one.chain(CLUSTERS.map(|of| (of.len() as u32, of))) {
        testing::run(ranks, |m| {
            m.comms.divide(clusters.into(), 0);
            let (me, n) = m.world();
            f(m, me, n);
            m.barrier(COMM_WORLD).unwrap();
            m.progress();
            assert!(m.engine.unexpected.iter().all(Option::is_none), "a message nobody received");
        });
    }
}

/// A number that says where it comes from.
fn value(round: u64, from: u32, to: u32, index: usize) -> u64 {
    let mixed = (round << 48 ^ u64::from(from) << 40 ^ u64::from(to) << 32 ^ index as u64)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

fn values(round: u64, from: u32, to: u32, count: usize) -> Vec<u64> {
    (0..count).map(|i| value(round, from, to, i)).collect()
}

/// Every second element of an array: a committed type of `count` UINT64_T with gaps.
fn strided(m: &mut Machine, count: usize) -> Handle {
    let spread = m.types.vector(count as i64, 1, 2, UINT64_T).unwrap();
    let whole = m.types.resized(spread, 0, 16 * count as i64).unwrap();
    m.types.commit(whole).unwrap();
    whole
}

/// The elements that `strided` names, with `gap` between them.
fn spread(data: &[u64], gap: u64) -> Vec<u64> {
    data.iter().flat_map(|&v| [v, gap]).collect()
}

const GAP: u64 = 0x5555_5555_5555_5555;
