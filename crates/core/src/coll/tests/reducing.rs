//! Reductions: against a fold in rank order, and bit for bit among the ranks.

use super::*;
use crate::coll::Ints;
use crate::consts::COMM_WORLD as WORLD;
use crate::datatype::predefined::{DOUBLE, DOUBLE_INT, UINT64_T as U64};
use crate::op::{MAXLOC, SUM};

/// Counts below and above the size at which each rank reduces a part.
const COUNTS: [usize; 4] = [1, 3, 100, 5000];
const MODULUS: u64 = 0xffff_fffb;

/// The function `x -> a x + b`: composition does not commute.
type Affine = [u64; 2];

fn then(f: Affine, g: Affine) -> Affine {
    [f[0] * g[0] % MODULUS, (f[1] * g[0] + g[1]) % MODULUS]
}

fn affine(rank: u32, index: usize) -> Affine {
    [value(1, rank, 0, index) % MODULUS, value(2, rank, 0, index) % MODULUS]
}

fn affines(rank: u32, count: usize) -> Vec<Affine> {
    (0..count).map(|i| affine(rank, i)).collect()
}

fn composed(ranks: std::ops::Range<u32>, count: usize) -> Vec<Affine> {
    let each = |i| ranks.clone().map(|r| affine(r, i)).reduce(then).unwrap();
    (0..count).map(each).collect()
}

/// A committed type of one `Affine`, and composition on it as the program's operation.
fn composition(m: &mut Machine) -> (Handle, Handle) {
    let pair = m.types.contiguous(2, U64).unwrap();
    m.types.commit(pair).unwrap();
    let apply = move |left: *mut u8, inout: *mut u8, len: i64, dt: Handle| {
        assert_eq!(dt, pair);
        for i in 0..len as usize {
            // SAFETY: both arrays hold `len` elements.
            unsafe {
                let f = left.cast::<Affine>().add(i).read();
                let g = inout.cast::<Affine>().add(i);
                g.write(then(f, g.read()));
            }
        }
    };
    (pair, m.ops.create_user(Box::new(apply), false).unwrap())
}

fn sums(round: u64, ranks: std::ops::Range<u32>, count: usize) -> Vec<u64> {
    let each = |i| ranks.clone().fold(0u64, |s, r| s.wrapping_add(value(round, r, 0, i)));
    (0..count).map(each).collect()
}

#[test]
fn allreduce_adds() {
    all_sizes(|m, me, n| {
        for (round, count) in (0..).zip(COUNTS) {
            let own = values(round, me, 0, count);
            let expect = sums(round, 0..n, count);
            let mut all = vec![0; count];
            let mut same = own.clone();
            let c = count as i64;
            // SAFETY: the buffers hold `count` elements.
            unsafe {
                let at = all.as_mut_ptr().cast();
                m.allreduce(own.as_ptr().cast(), at, c, U64, SUM, WORLD).unwrap();
                let at = same.as_mut_ptr().cast();
                m.allreduce(in_place(), at, c, U64, SUM, WORLD).unwrap();
            }
            assert_eq!(all, expect);
            assert_eq!(same, expect);
        }
    });
}

#[test]
fn allreduce_keeps_the_order_of_ranks() {
    all_sizes(|m, me, n| {
        let (pair, op) = composition(m);
        for count in COUNTS {
            let own = affines(me, count);
            let expect = composed(0..n, count);
            let mut all = vec![[0; 2]; count];
            let mut same = own.clone();
            let c = count as i64;
            // SAFETY: the buffers hold `count` elements.
            unsafe {
                let at = all.as_mut_ptr().cast();
                m.allreduce(own.as_ptr().cast(), at, c, pair, op, WORLD).unwrap();
                let at = same.as_mut_ptr().cast();
                m.allreduce(in_place(), at, c, pair, op, WORLD).unwrap();
            }
            assert_eq!(all, expect);
            assert_eq!(same, expect);
        }
    });
}

#[test]
fn large_reductions_keep_the_order_piece_by_piece() {
    for ranks in [2, 3, 4] {
        testing::run(ranks, |m| {
            let (me, n) = m.world();
            let (pair, op) = composition(m);
            let count = 20_000 + n as usize;
            let own = affines(me, count);
            let mut all = vec![[0; 2]; count];
            // SAFETY: the buffers hold `count` elements.
            unsafe {
                let (from, at) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
                m.allreduce(from, at, count as i64, pair, op, WORLD).unwrap();
            }
            assert_eq!(all, composed(0..n, count));
        });
    }
}

#[test]
fn all_ranks_get_the_same_bits() {
    all_sizes(|m, me, n| {
        for count in COUNTS {
            // Sums of such numbers depend on the order of addition.
            let own: Vec<f64> = values(0, me, 0, count)
                .iter()
                .map(|v| f64::from_bits(v >> 2 & !(0x3ff << 52) | (0x3f0 + v % 31) << 52))
                .collect();
            let mut all = vec![0f64; count];
            let mut of_all = vec![0u64; count * n as usize];
            let c = count as i64;
            // SAFETY: the buffers hold `count` elements, or that many per rank.
            unsafe {
                let (from, at) = (own.as_ptr().cast(), all.as_mut_ptr().cast::<u8>());
                m.allreduce(from, at, c, DOUBLE, SUM, WORLD).unwrap();
                let to = of_all.as_mut_ptr().cast();
                m.allgather(at, c, DOUBLE, to, c, DOUBLE, WORLD).unwrap();
            }
            for bits in of_all.chunks_exact(count) {
                assert!(bits.iter().zip(&all).all(|(b, v)| *b == v.to_bits()));
            }
        }
    });
}

#[test]
fn reduce_brings_the_result_to_the_root() {
    all_sizes(|m, me, n| {
        let (pair, op) = composition(m);
        for (round, count) in (0..).zip(COUNTS) {
            let c = count as i64;
            for root in [0, n - 1, n / 2] {
                let (own, mine) = (values(round, me, 0, count), affines(me, count));
                let (mut sum, mut whole) = (vec![GAP; count], vec![[GAP; 2]; count]);
                let r = root as i32;
                let (s, w) = (sum.as_mut_ptr().cast(), whole.as_mut_ptr().cast());
                // SAFETY: the buffers hold `count` elements.
                unsafe {
                    m.reduce(own.as_ptr().cast(), s, c, U64, SUM, r, WORLD).unwrap();
                    m.reduce(mine.as_ptr().cast(), w, c, pair, op, r, WORLD).unwrap();
                }
                if me == root {
                    assert_eq!(sum, sums(round, 0..n, count));
                    assert_eq!(whole, composed(0..n, count));
                } else {
                    assert!(sum.iter().all(|&v| v == GAP));
                }
            }
        }
    });
}

#[test]
fn reduce_in_place_at_the_root() {
    all_sizes(|m, me, n| {
        let (pair, op) = composition(m);
        for count in COUNTS {
            for root in [0, n - 1] {
                let mut data = affines(me, count);
                let at: *mut u8 = data.as_mut_ptr().cast();
                let from = if me == root { in_place() } else { at };
                let to = if me == root { at } else { std::ptr::null_mut() };
                let c = count as i64;
                // SAFETY: `data` holds `count` elements.
                unsafe { m.reduce(from, to, c, pair, op, root as i32, WORLD).unwrap() };
                let expect = if me == root { composed(0..n, count) } else { affines(me, count) };
                assert_eq!(data, expect);
            }
        }
    });
}

#[test]
fn pairs_with_padding_reduce() {
    #[repr(C)]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Pair(f64, i32);
    all_sizes(|m, me, n| {
        for count in [1usize, 50, 3000] {
            let level = |r: u32, i: usize| ((r as usize + i) % 5) as f64;
            let own: Vec<Pair> = (0..count).map(|i| Pair(level(me, i), me as i32)).collect();
            let mut all = vec![Pair(0.0, -1); count];
            // SAFETY: the buffers hold `count` elements.
            unsafe {
                let (from, at) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
                m.allreduce(from, at, count as i64, DOUBLE_INT, MAXLOC, WORLD).unwrap();
            }
            for (i, pair) in all.iter().enumerate() {
                let most = (0..n).map(|r| level(r, i)).fold(0.0, f64::max);
                let first = (0..n).find(|&r| level(r, i) == most).unwrap();
                assert_eq!(*pair, Pair(most, first as i32));
            }
        }
    });
}

#[test]
fn reduce_scatter_gives_each_rank_its_share() {
    all_sizes(|m, me, n| {
        let (pair, op) = composition(m);
        for factor in [1usize, 900] {
            let counts: Vec<i32> = (0..n).map(|r| ((r + 2) % 4) as i32 * factor as i32).collect();
            let total: usize = counts.iter().sum::<i32>() as usize;
            let before: usize = counts[..me as usize].iter().sum::<i32>() as usize;
            let share = counts[me as usize] as usize;
            let expect = &composed(0..n, total)[before..before + share];
            let mut own = affines(me, total);
            let mut result = vec![[GAP; 2]; share];
            let c = Ints::I32(counts.as_ptr());
            // SAFETY: `own` holds all shares, `result` that of this rank.
            unsafe {
                let at = own.as_mut_ptr().cast::<u8>();
                let to = result.as_mut_ptr().cast();
                m.reduce_scatter(at, to, c, pair, op, WORLD).unwrap();
                assert_eq!(result, expect);
                m.reduce_scatter(in_place(), at, c, pair, op, WORLD).unwrap();
            }
            assert_eq!(&own[..share], expect);
        }
    });
}

#[test]
fn reduce_scatter_block_gives_equal_shares() {
    all_sizes(|m, me, n| {
        for (round, each) in (0..).zip([1usize, 10, 3000]) {
            let total = each * n as usize;
            let sum = sums(round, 0..n, total);
            let expect = &sum[each * me as usize..each * (me as usize + 1)];
            let mut own = values(round, me, 0, total);
            let mut result = vec![0; each];
            let c = each as i64;
            // SAFETY: `own` holds all shares, `result` that of this rank.
            unsafe {
                let at = own.as_mut_ptr().cast::<u8>();
                let to = result.as_mut_ptr().cast();
                m.reduce_scatter_block(at, to, c, U64, SUM, WORLD).unwrap();
                assert_eq!(result, expect);
                m.reduce_scatter_block(in_place(), at, c, U64, SUM, WORLD).unwrap();
            }
            assert_eq!(&own[..each], expect);
        }
    });
}

#[test]
fn scans_reduce_the_ranks_before() {
    all_sizes(|m, me, _| {
        let (pair, op) = composition(m);
        for count in COUNTS {
            let own = affines(me, count);
            let untouched = vec![[GAP; 2]; count];
            let with = composed(0..me + 1, count);
            let without = if me == 0 { untouched.clone() } else { composed(0..me, count) };
            let (mut a, mut b) = (untouched.clone(), untouched);
            let (mut c, mut d) = (own.clone(), own.clone());
            let n = count as i64;
            let from: *const u8 = own.as_ptr().cast();
            // SAFETY: the buffers hold `count` elements.
            unsafe {
                m.scan(from, a.as_mut_ptr().cast(), n, pair, op, WORLD).unwrap();
                m.exscan(from, b.as_mut_ptr().cast(), n, pair, op, WORLD).unwrap();
                m.scan(in_place(), c.as_mut_ptr().cast(), n, pair, op, WORLD).unwrap();
                m.exscan(in_place(), d.as_mut_ptr().cast(), n, pair, op, WORLD).unwrap();
            }
            assert_eq!(a, with);
            assert_eq!(b, without);
            assert_eq!(c, with);
            assert_eq!(d, if me == 0 { own } else { without });
        }
    });
}

#[test]
fn a_user_operation_on_a_type_with_gaps() {
    all_sizes(|m, me, n| {
        let gaps = strided(m, 3);
        let add = |left: *mut u8, inout: *mut u8, len: i64, _: Handle| {
            for i in (0..6 * len as usize).step_by(2) {
                // SAFETY: an element has six words, every second of them data.
                unsafe {
                    let to = inout.cast::<u64>().add(i);
                    to.write(to.read().wrapping_add(left.cast::<u64>().add(i).read()));
                }
            }
        };
        let op = m.ops.create_user(Box::new(add), true).unwrap();
        for count in [1usize, 40, 2000] {
            let own = spread(&values(0, me, 0, 3 * count), 7);
            let mut all = vec![GAP; own.len()];
            // SAFETY: the buffers hold `count` elements.
            unsafe {
                let (from, at) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
                m.allreduce(from, at, count as i64, gaps, op, WORLD).unwrap();
            }
            assert_eq!(all, spread(&sums(0, 0..n, 3 * count), GAP));
        }
    });
}

#[test]
fn reduce_local_puts_the_first_operand_left() {
    testing::run(1, |m| {
        let (pair, op) = composition(m);
        let (left, mut inout) = (affines(0, 9), affines(1, 9));
        // SAFETY: the buffers hold nine elements.
        unsafe {
            let (from, to) = (left.as_ptr().cast(), inout.as_mut_ptr().cast());
            m.reduce_local(from, to, 9, pair, op).unwrap();
        }
        assert_eq!(inout, composed(0..2, 9));
    });
}
