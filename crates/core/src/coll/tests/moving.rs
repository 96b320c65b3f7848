//! Collectives that move data.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::coll::Ints;
use crate::consts::COMM_WORLD as WORLD;
use crate::datatype::predefined::{BYTE, UINT64_T as U64};

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    for ranks in SIZES {
        let arrived = AtomicU32::new(0);
        testing::run(ranks, |m| {
            for round in 1..20 {
                arrived.fetch_add(1, Ordering::SeqCst);
                m.barrier(WORLD).unwrap();
                assert!(arrived.load(Ordering::SeqCst) >= round * ranks);
                m.barrier(WORLD).unwrap();
            }
        });
    }
}

#[test]
fn bcast_gives_all_the_roots_data() {
    all_sizes(|m, me, n| {
        for (round, count) in (0..).zip([0, 1, 7, 4097, 20_000]) {
            for root in [0, n - 1, n / 2] {
                let expect = values(round, root, 0, count);
                let mut buf = if me == root { expect.clone() } else { vec![0; count] };
                // SAFETY: the buffer holds `count` elements.
                let done = unsafe {
                    m.bcast(buf.as_mut_ptr().cast(), count as i64, U64, root as i32, WORLD)
                };
                assert_eq!(done, Ok(()));
                assert_eq!(buf, expect);
            }
        }
    });
}

#[test]
fn bcast_between_different_layouts() {
    all_sizes(|m, me, n| {
        for count in [1, 300, 20_000] {
            let gaps = strided(m, count);
            let root = n - 1;
            let data = values(1, root, 0, count);
            let expect = spread(&data, GAP);
            // Odd ranks have it in one piece, even ones with gaps.
            if me % 2 == 1 {
                let mut buf = if me == root { data.clone() } else { vec![0; count] };
                // SAFETY: the buffer holds the bytes.
                unsafe {
                    let bytes = 8 * count as i64;
                    m.bcast(buf.as_mut_ptr().cast(), bytes, BYTE, root as i32, WORLD).unwrap();
                }
                assert_eq!(buf, data);
            } else {
                let mut buf = if me == root { expect.clone() } else { vec![GAP; 2 * count] };
                // SAFETY: the buffer holds the type.
                unsafe { m.bcast(buf.as_mut_ptr().cast(), 1, gaps, root as i32, WORLD).unwrap() };
                assert_eq!(buf, expect);
            }
        }
    });
}

#[test]
fn gather_and_scatter_are_inverse() {
    all_sizes(|m, me, n| {
        for (round, count) in (0..).zip([1usize, 5, 3000]) {
            let gaps = strided(m, count);
            for root in [0, n - 1] {
                let own = values(round, me, root, count);
                let mut all = vec![GAP; 2 * count * n as usize];
                let expect: Vec<u64> =
                    (0..n).flat_map(|r| spread(&values(round, r, root, count), GAP)).collect();
                let (at, c, r) = (all.as_mut_ptr().cast::<u8>(), count as i64, root as i32);
                let mut back = vec![0; count];
                // SAFETY: `all` holds one element of `gaps` per rank, the others one rank's data.
                unsafe {
                    m.gather(own.as_ptr().cast(), c, U64, at, 1, gaps, r, WORLD).unwrap();
                    if me == root {
                        assert_eq!(all, expect);
                    }
                    let back = back.as_mut_ptr().cast();
                    m.scatter(at, 1, gaps, back, c, U64, r, WORLD).unwrap();
                }
                assert_eq!(back, own);
            }
        }
    });
}

#[test]
fn gather_and_scatter_in_place() {
    all_sizes(|m, me, n| {
        let (count, root) = (4usize, n - 1);
        let c = count as i64;
        let own = values(0, me, root, count);
        let expect: Vec<u64> = (0..n).flat_map(|r| values(0, r, root, count)).collect();
        if me == root {
            let mut all = vec![0; count * n as usize];
            let start = count * me as usize;
            all[start..start + count].copy_from_slice(&own);
            let at = all.as_mut_ptr().cast::<u8>();
            // SAFETY: `all` holds `count` elements per rank.
            unsafe {
                m.gather(in_place(), -1, U64, at, c, U64, root as i32, WORLD).unwrap();
                assert_eq!(all, expect);
                let stay = in_place().cast_mut();
                m.scatter(at, c, U64, stay, -1, U64, root as i32, WORLD).unwrap();
            }
            assert_eq!(all, expect);
        } else {
            let mut back = vec![0; count];
            let none = std::ptr::null_mut();
            // SAFETY: the own buffers hold `count` elements; the root's arguments are not used.
            unsafe {
                let from = own.as_ptr().cast();
                m.gather(from, c, U64, none, -1, Handle(0), root as i32, WORLD).unwrap();
                let to = back.as_mut_ptr().cast();
                m.scatter(none, -1, Handle(0), to, c, U64, root as i32, WORLD).unwrap();
            }
            assert_eq!(back, own);
        }
    });
}

/// Counts and displacements by rank, with an empty one and with holes.
fn layout(n: u32) -> (Vec<i32>, Vec<i32>, usize) {
    let counts: Vec<i32> = (0..n as i32).map(|r| (r * 3 + 4) % 7 * 2).collect();
    let mut displs = Vec::new();
    let mut end = 1;
    for &count in &counts {
        displs.push(end);
        end += count + 1;
    }
    (counts, displs, end as usize)
}

fn laid_out(n: u32, round: u64, to: u32) -> Vec<u64> {
    let (counts, displs, len) = layout(n);
    let mut all = vec![GAP; len];
    for r in 0..n as usize {
        let at = displs[r] as usize;
        let data = values(round, r as u32, to, counts[r] as usize);
        all[at..at + data.len()].copy_from_slice(&data);
    }
    all
}

#[test]
fn gatherv_and_scatterv_place_by_displacement() {
    all_sizes(|m, me, n| {
        let (counts, displs, len) = layout(n);
        let (wide_counts, wide_displs): (Vec<i64>, Vec<i64>) =
            counts.iter().zip(&displs).map(|(&c, &d)| (i64::from(c), i64::from(d))).unzip();
        for root in [0, n - 1] {
            let c = counts[me as usize];
            let own = values(0, me, root, c as usize);
            let expect = laid_out(n, 0, root);
            let mut all = vec![GAP; len];
            let mut back = vec![0; c as usize];
            let (at, r) = (all.as_mut_ptr().cast::<u8>(), root as i32);
            let narrow = (Ints::I32(counts.as_ptr()), Ints::I32(displs.as_ptr()));
            let wide = (Ints::I64(wide_counts.as_ptr()), Ints::I64(wide_displs.as_ptr()));
            // SAFETY: `all` holds the layout, the others this rank's part.
            unsafe {
                let from = own.as_ptr().cast();
                m.gatherv(from, c.into(), U64, at, narrow.0, narrow.1, U64, r, WORLD).unwrap();
                if me == root {
                    assert_eq!(all, expect);
                }
                let to = back.as_mut_ptr().cast();
                m.scatterv(at, wide.0, wide.1, U64, to, c.into(), U64, r, WORLD).unwrap();
            }
            assert_eq!(back, own);
        }
    });
}

#[test]
fn allgather_gives_all_the_same() {
    all_sizes(|m, me, n| {
        for (round, count) in (0..).zip([1usize, 3, 200, 5000]) {
            let gaps = strided(m, count);
            let own = values(round, me, 0, count);
            let expect: Vec<u64> = (0..n).flat_map(|r| values(round, r, 0, count)).collect();
            let mut all = vec![0; count * n as usize];
            let mut wide = vec![GAP; 2 * count * n as usize];
            let c = count as i64;
            // SAFETY: the buffers hold `count` elements, or one of `gaps`, per rank.
            unsafe {
                let from: *const u8 = own.as_ptr().cast();
                m.allgather(from, c, U64, all.as_mut_ptr().cast(), c, U64, WORLD).unwrap();
                assert_eq!(all, expect);
                m.allgather(from, c, U64, wide.as_mut_ptr().cast(), 1, gaps, WORLD).unwrap();
                assert_eq!(wide, spread(&expect, GAP));
                let mut all = vec![0; count * n as usize];
                let start = count * me as usize;
                all[start..start + count].copy_from_slice(&own);
                let at = all.as_mut_ptr().cast();
                m.allgather(in_place(), 0, Handle(0), at, c, U64, WORLD).unwrap();
                assert_eq!(all, expect);
            }
        }
    });
}

#[test]
fn allgatherv_places_by_displacement() {
    all_sizes(|m, me, n| {
        let (counts, displs, len) = layout(n);
        let own = values(0, me, 0, counts[me as usize] as usize);
        let (c, d) = (Ints::I32(counts.as_ptr()), Ints::I32(displs.as_ptr()));
        let mut all = vec![GAP; len];
        // SAFETY: `all` holds the layout.
        unsafe {
            let (from, at) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
            m.allgatherv(from, own.len() as i64, U64, at, c, d, U64, WORLD).unwrap();
            assert_eq!(all, laid_out(n, 0, 0));
            let mut all = vec![GAP; len];
            let start = displs[me as usize] as usize;
            all[start..start + own.len()].copy_from_slice(&own);
            let at = all.as_mut_ptr().cast();
            m.allgatherv(in_place(), 0, Handle(0), at, c, d, U64, WORLD).unwrap();
            assert_eq!(all, laid_out(n, 0, 0));
        }
    });
}

#[test]
fn alltoall_transposes() {
    all_sizes(|m, me, n| {
        for (round, count) in (0..).zip([1usize, 3, 32, 3000]) {
            let gaps = strided(m, count);
            let out: Vec<u64> = (0..n).flat_map(|r| values(round, me, r, count)).collect();
            let expect: Vec<u64> = (0..n).flat_map(|r| values(round, r, me, count)).collect();
            let mut inn = vec![0; out.len()];
            let mut wide = vec![GAP; 2 * out.len()];
            let mut same = out.clone();
            let c = count as i64;
            // SAFETY: the buffers hold `count` elements, or one of `gaps`, per rank.
            unsafe {
                let from: *const u8 = out.as_ptr().cast();
                m.alltoall(from, c, U64, inn.as_mut_ptr().cast(), c, U64, WORLD).unwrap();
                assert_eq!(inn, expect);
                m.alltoall(from, c, U64, wide.as_mut_ptr().cast(), 1, gaps, WORLD).unwrap();
                assert_eq!(wide, spread(&expect, GAP));
                let at = same.as_mut_ptr().cast();
                m.alltoall(in_place(), 0, Handle(0), at, c, U64, WORLD).unwrap();
                assert_eq!(same, expect);
            }
        }
    });
}

/// Elements that `from` sends to `to`.
fn traffic(from: u32, to: u32) -> usize {
    ((from * 5 + to * 3) % 4 * 3) as usize
}

#[test]
fn alltoallv_and_alltoallw_transpose_uneven_parts() {
    all_sizes(|m, me, n| {
        let gaps = strided(m, 3);
        let (mut out, mut inn_expect) = (Vec::new(), Vec::new());
        let (mut sc, mut sd, mut rc, mut rd) = (vec![], vec![], vec![], vec![]);
        for r in 0..n {
            sc.push(traffic(me, r) as i32);
            sd.push(out.len() as i32);
            out.extend(values(0, me, r, traffic(me, r)));
            rc.push(traffic(r, me) as i32);
            rd.push(inn_expect.len() as i32);
            inn_expect.extend(values(0, r, me, traffic(r, me)));
        }
        let ints = |v: &Vec<i32>| Ints::I32(v.as_ptr());
        let times = |v: &[i32], factor| v.iter().map(|x| x * factor).collect::<Vec<i32>>();
        let mut inn = vec![0; inn_expect.len()];
        let mut wide = vec![GAP; 2 * inn_expect.len()];
        // Alltoallw: bytes on one side, groups of three elements with gaps on the other.
        let (wsc, wsd) = (times(&sc, 8), times(&sd, 8));
        let wrc: Vec<i32> = rc.iter().map(|c| c / 3).collect();
        let wrd = times(&rd, 16);
        // SAFETY: counts and displacements describe the buffers.
        unsafe {
            let from: *const u8 = out.as_ptr().cast();
            let at: *mut u8 = inn.as_mut_ptr().cast();
            let (sc, sd, rc, rd) = (ints(&sc), ints(&sd), ints(&rc), ints(&rd));
            m.alltoallv(from, sc, sd, U64, at, rc, rd, U64, WORLD).unwrap();
            assert_eq!(inn, inn_expect);
            let at: *mut u8 = wide.as_mut_ptr().cast();
            let (bytes, spaced) = (|_| BYTE, |_| gaps);
            let (wsc, wsd, wrc, wrd) = (ints(&wsc), ints(&wsd), ints(&wrc), ints(&wrd));
            m.alltoallw(from, wsc, wsd, &bytes, at, wrc, wrd, &spaced, WORLD).unwrap();
        }
        assert_eq!(wide, spread(&inn_expect, GAP));
    });
}

#[test]
fn alltoallv_in_place_exchanges_equal_parts() {
    all_sizes(|m, me, n| {
        let len = |a: u32, b: u32| ((a + b) % 3) as usize;
        let (mut buf, mut expect, mut counts, mut displs) = (vec![], vec![], vec![], vec![]);
        for r in 0..n {
            counts.push(len(me, r) as i64);
            displs.push(buf.len() as i64);
            buf.extend(values(0, me, r, len(me, r)));
            expect.extend(values(0, r, me, len(me, r)));
        }
        let (c, d) = (Ints::I64(counts.as_ptr()), Ints::I64(displs.as_ptr()));
        let none = Ints::I32(std::ptr::null());
        // SAFETY: counts and displacements describe the buffer.
        unsafe {
            let at = buf.as_mut_ptr().cast();
            let nothing = Handle(0);
            m.alltoallv(in_place(), none, none, nothing, at, c, d, U64, WORLD).unwrap();
        }
        assert_eq!(buf, expect);
    });
}
