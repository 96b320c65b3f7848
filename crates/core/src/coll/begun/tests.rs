//! Operations that are begun, between threads, compared with what the blocking ones compute, or
//! what each rank computes by itself.

use super::{Block, Blocks, How, Layout};
use crate::coll::Ints;
use crate::consts::{COMM_WORLD, IN_PLACE, REQUEST_NULL};
use crate::datatype::predefined::UINT64_T;
use crate::error::class;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op::{MAX, SUM};
use crate::testing;

const SIZES: [u32; 5] = [1, 2, 3, 5, 8];
const COUNT: usize = 3;

fn all_sizes(f: impl Fn(&mut Machine, u32, u32) + Sync) {
    for ranks in SIZES {
        testing::run(ranks, |m| {
            let (me, n) = m.world();
            f(m, me, n);
            m.barrier(COMM_WORLD).unwrap();
            m.progress();
            assert!(m.engine.unexpected.iter().all(Option::is_none), "a message nobody received");
            assert!(m.engine.reqs.is_empty(), "a request that nobody completed");
        });
    }
}

fn value(from: u32, to: u32, index: usize) -> u64 {
    u64::from(from) * 10_000 + u64::from(to) * 100 + index as u64
}

fn block(data: &[u64]) -> Block {
    Block { buf: data.as_ptr().cast(), count: data.len() as i64, dt: UINT64_T }
}

fn even(data: &[u64]) -> Blocks<'static> {
    Blocks { buf: data.as_ptr().cast(), layout: Layout::Even(COUNT as i64, UINT64_T) }
}

fn done(m: &mut Machine, begun: crate::error::Res<Handle>) {
    let mut req = begun.unwrap();
    m.wait(&mut req).unwrap();
    assert_eq!(req, REQUEST_NULL);
}

#[test]
fn what_is_moved_gets_where_it_belongs_whatever_order_they_are_completed_in() {
    all_sizes(|m, me, n| {
        let own: Vec<u64> = (0..COUNT).map(|i| value(me, 0, i)).collect();
        let out: Vec<u64> =
            (0..n).flat_map(|to| (0..COUNT).map(move |i| value(me, to, i))).collect();
        let of_all: Vec<u64> =
            (0..n).flat_map(|from| (0..COUNT).map(move |i| value(from, 0, i))).collect();
        let to_me: Vec<u64> =
            (0..n).flat_map(|from| (0..COUNT).map(move |i| value(from, me, i))).collect();
        let root = n - 1;
        let blank = || vec![0u64; COUNT * n as usize];
        let (all, gathered, exchanged, mut replaced) = (blank(), blank(), blank(), out.clone());
        let (part, mut spread) = (vec![0u64; COUNT], vec![0u64; COUNT]);
        if me == root {
            spread = out[..COUNT].to_vec();
        }
        let in_place = Blocks { buf: IN_PLACE as *const u8, ..even(&[]) };
        // SAFETY: all buffers live until the requests are complete.
        let mut reqs = unsafe {
            vec![
                m.allgather_begun(How::Now, block(&own), even(&all), COMM_WORLD).unwrap(),
                m.barrier_begun(How::Now, COMM_WORLD).unwrap(),
                m.gather_begun(How::Now, block(&own), even(&gathered), root as i32, COMM_WORLD)
                    .unwrap(),
                m.scatter_begun(How::Now, even(&out), block(&part), root as i32, COMM_WORLD)
                    .unwrap(),
                m.alltoall_begun(How::Now, even(&out), even(&exchanged), COMM_WORLD).unwrap(),
                m.alltoall_begun(How::Now, in_place, even(&replaced), COMM_WORLD).unwrap(),
                m.bcast_begun(How::Now, block(&spread), root as i32, COMM_WORLD).unwrap(),
            ]
        };
        // Blocking ones in between do not get what is theirs.
        let mut sum = [0u64];
        // SAFETY: both buffers live.
        unsafe {
            let one = [u64::from(me)];
            let (from, to) = (one.as_ptr().cast(), sum.as_mut_ptr().cast());
            m.allreduce(from, to, 1, UINT64_T, SUM, COMM_WORLD).unwrap();
        }
        assert_eq!(sum[0], u64::from(n * (n - 1) / 2));
        let turn = me as usize % reqs.len();
        reqs.rotate_left(turn);
        m.waitall(&mut reqs, &mut []).unwrap();
        assert_eq!(all, of_all);
        assert_eq!(exchanged, to_me);
        assert_eq!(replaced.split_off(0), to_me);
        let from_root: Vec<u64> = (0..COUNT).map(|i| value(root, me, i)).collect();
        assert_eq!(part, from_root);
        assert_eq!(spread, (0..COUNT).map(|i| value(root, 0, i)).collect::<Vec<_>>());
        if me == root {
            assert_eq!(gathered, of_all);
        }
    });
}

#[test]
fn blocks_of_any_size_anywhere() {
    all_sizes(|m, me, n| {
        // Rank r sends r + to elements to each; the blocks lie the other way round.
        let count = |from: u32, to: u32| ((from + to) % 4) as i32;
        let place = |of: &dyn Fn(u32) -> i32| {
            let mut at = 0;
            let mut displs = vec![0; n as usize];
            for r in (0..n).rev() {
                displs[r as usize] = at;
                at += of(r);
            }
            (displs, at as usize)
        };
        let scounts: Vec<i32> = (0..n).map(|to| count(me, to)).collect();
        let rcounts: Vec<i32> = (0..n).map(|from| count(from, me)).collect();
        let (sdispls, out) = place(&|to| count(me, to));
        let (rdispls, inn) = place(&|from| count(from, me));
        let (mut out, inn) = (vec![0u64; out], vec![0u64; inn]);
        for to in 0..n {
            for i in 0..count(me, to) {
                out[(sdispls[to as usize] + i) as usize] = value(me, to, i as usize);
            }
        }
        let varied = |data: &[u64], counts: &[i32], displs: &[i32]| Blocks {
            buf: data.as_ptr().cast(),
            layout: Layout::Varied(
                Ints::I32(counts.as_ptr()),
                Ints::I32(displs.as_ptr()),
                UINT64_T,
            ),
        };
        let (from, to) = (varied(&out, &scounts, &sdispls), varied(&inn, &rcounts, &rdispls));
        // SAFETY: all buffers and arrays live.
        unsafe {
            let begun = m.alltoall_begun(How::Now, from, to, COMM_WORLD);
            done(m, begun);
        }
        for from in 0..n {
            for i in 0..count(from, me) {
                let at = (rdispls[from as usize] + i) as usize;
                assert_eq!(inn[at], value(from, me, i as usize));
            }
        }
    });
}

#[test]
fn reductions_are_those_of_the_blocking_ones() {
    all_sizes(|m, me, n| {
        let long = COUNT * n as usize;
        let own: Vec<u64> = (0..long).map(|i| value(me + 1, 3, i)).collect();
        let zero = || vec![7u64; long];
        let source = own.as_ptr().cast();
        let (count, each) = (long as i64, COUNT as i64);
        for op in [SUM, MAX] {
            let mut now = [zero(), zero(), zero(), zero(), zero(), own.clone()];
            let mut then = now.clone();
            let counts = vec![COUNT as i32; n as usize];
            let counts = Ints::I32(counts.as_ptr());
            let root = (n / 2) as i32;
            // SAFETY: all buffers are long enough and live.
            unsafe {
                let [a, b, c, d, e, f] = now.each_mut().map(|v| v.as_mut_ptr().cast());
                let w = COMM_WORLD;
                let h = How::Now;
                let mut reqs = [
                    m.reduce_begun(h, source, a, count, UINT64_T, op, root, w).unwrap(),
                    m.allreduce_begun(h, source, b, count, UINT64_T, op, w).unwrap(),
                    m.scan_begun(h, source, c, count, UINT64_T, op, w).unwrap(),
                    m.exscan_begun(h, source, d, count, UINT64_T, op, w).unwrap(),
                    m.reduce_scatter_begun(h, source, e, counts, UINT64_T, op, w).unwrap(),
                    m.reduce_scatter_block_begun(h, in_place(), f, each, UINT64_T, op, w).unwrap(),
                ];
                reqs.reverse();
                m.waitall(&mut reqs, &mut []).unwrap();
                let [a, b, c, d, e, f] = then.each_mut().map(|v| v.as_mut_ptr().cast());
                m.reduce(source, a, count, UINT64_T, op, root, w).unwrap();
                m.allreduce(source, b, count, UINT64_T, op, w).unwrap();
                m.scan(source, c, count, UINT64_T, op, w).unwrap();
                m.exscan(source, d, count, UINT64_T, op, w).unwrap();
                m.reduce_scatter(source, e, counts, UINT64_T, op, w).unwrap();
                m.reduce_scatter_block(in_place(), f, each, UINT64_T, op, w).unwrap();
            }
            assert_eq!(now, then);
        }
    });
}

fn in_place() -> *const u8 {
    IN_PLACE as *const u8
}

#[test]
fn a_persistent_one_does_it_again_with_what_the_buffers_hold_then() {
    all_sizes(|m, me, n| {
        let (mut own, mut sum) = ([0u64], [0u64]);
        let (from, to) = (own.as_mut_ptr(), sum.as_mut_ptr());
        // SAFETY: the buffers live as long as the request.
        let mut req = unsafe {
            let h = How::Started;
            m.allreduce_begun(h, from.cast(), to.cast(), 1, UINT64_T, SUM, COMM_WORLD).unwrap()
        };
        for round in 0..5 {
            // SAFETY: as above; nothing is under way.
            unsafe { from.write(u64::from(me) + round) };
            m.start(req).unwrap();
            assert_eq!(m.start(req), Err(class::REQUEST));
            // It is there until it is freed.
            if round % 2 == 0 {
                while m.test(&mut req).unwrap().is_none() {}
            } else {
                m.wait(&mut req).unwrap();
            }
            assert_ne!(req, REQUEST_NULL);
            // SAFETY: as above.
            let got = unsafe { to.read() };
            assert_eq!(got, u64::from(n * (n - 1) / 2) + u64::from(n) * round);
        }
        m.request_free(&mut req).unwrap();
    });
}

#[test]
fn nobody_waits_for_a_rank_that_does_not_call_mpi_again() {
    // Rank 0 begins all, and does not come back before the others have completed theirs.
    for ranks in [2, 5] {
        let done = std::sync::Barrier::new(ranks as usize);
        let once = std::sync::atomic::AtomicU32::new(0);
        testing::run(ranks, |m| {
            let (me, n) = m.world();
            let own = [u64::from(me)];
            let (mut sum, mut prefix) = ([0u64], [0u64]);
            // SAFETY: the buffers live.
            let mut reqs = unsafe {
                let (from, h, w) = (own.as_ptr().cast(), How::Now, COMM_WORLD);
                let (to, also) = (sum.as_mut_ptr().cast(), prefix.as_mut_ptr().cast());
                [
                    m.barrier_begun(h, w).unwrap(),
                    m.allreduce_begun(h, from, to, 1, UINT64_T, SUM, w).unwrap(),
                    m.scan_begun(h, from, also, 1, UINT64_T, SUM, w).unwrap(),
                ]
            };
            if me == 0 {
                m.leave();
                done.wait();
                m.enter();
                m.waitall(&mut reqs, &mut []).unwrap();
            } else {
                m.waitall(&mut reqs, &mut []).unwrap();
                done.wait();
            }
            assert_eq!(
                (sum[0], prefix[0]),
                (u64::from(n * (n - 1) / 2), u64::from(me * (me + 1) / 2))
            );
            once.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

#[test]
fn both_ways_at_once() {
    all_sizes(|m, me, n| {
        let (to, from) = (((me + 1) % n) as i32, ((me + n - 1) % n) as i32);
        let (out, mut inn, mut both) = ([value(me, 0, 1)], [0u64], [value(me, 0, 2)]);
        let (at, there) = (inn.as_mut_ptr().cast(), both.as_mut_ptr().cast());
        // SAFETY: the buffers live.
        let mut reqs = unsafe {
            let out = out.as_ptr().cast();
            [
                m.isendrecv(out, 1, UINT64_T, to, 4, at, 1, UINT64_T, from, 4, COMM_WORLD).unwrap(),
                m.isendrecv_replace(there, 1, UINT64_T, to, 5, from, 5, COMM_WORLD).unwrap(),
            ]
        };
        let mut statuses = [crate::status::Status::EMPTY; 2];
        m.waitall(&mut reqs, &mut statuses).unwrap();
        assert_eq!((inn[0], both[0]), (value(from as u32, 0, 1), value(from as u32, 0, 2)));
        for (status, tag) in statuses.iter().zip([4, 5]) {
            assert_eq!((status.source, status.tag, status.bytes), (from, tag, 8));
        }
    });
}

#[test]
fn neighbours_get_what_is_meant_for_them_also_in_rings_of_one_and_two() {
    for (ranks, dims, periods) in [
        (6, vec![2, 3], vec![true, true]),
        (6, vec![2, 3], vec![true, false]),
        (2, vec![2, 1], vec![true, true]),
        (1, vec![1, 1], vec![true, false]),
        (4, vec![4], vec![true]),
    ] {
        testing::run(ranks, |m| {
            let grid = m.cart_create(COMM_WORLD, &dims, &periods, false).unwrap();
            let me = m.world().0;
            let sides = 2 * dims.len();
            // What goes down along a dimension comes from above there.
            let out: Vec<u64> = (0..sides as u32)
                .flat_map(|side| (0..COUNT).map(move |i| value(me, side, i)))
                .collect();
            let own: Vec<u64> = out[..COUNT].to_vec();
            let inn = vec![9u64; COUNT * sides];
            let all = vec![9u64; COUNT * sides];
            // SAFETY: the buffers live.
            unsafe {
                m.neighbour_alltoall(even(&out), even(&inn), grid).unwrap();
                let begun = m.neighbour_allgather_begun(How::Now, block(&own), even(&all), grid);
                done(m, begun);
            }
            for dimension in 0..dims.len() {
                let (below, above) = m.cart_shift(grid, dimension as i32, 1).unwrap();
                for (side, from, sent) in [(0, below, 1), (1, above, 0)] {
                    let at = (2 * dimension + side) * COUNT;
                    let sent = (2 * dimension + sent) as u32;
                    for i in 0..COUNT {
                        let known = u32::try_from(from).ok();
                        let expected = known.map_or(9, |from| value(from, sent, i));
                        assert_eq!(inn[at + i], expected, "{dims:?} {dimension} {side}");
                        assert_eq!(all[at + i], known.map_or(9, |from| value(from, 0, i)));
                    }
                }
            }
            m.barrier(COMM_WORLD).unwrap();
        });
    }
}

#[test]
fn a_rank_that_is_replayed_begins_and_completes_them_as_before() {
    for after in [1, 3, 5, 9] {
        testing::run_killing(3, 1, after, |m, step| {
            let (me, n) = m.world();
            let mut last = 0;
            for round in 0..6u64 {
                if step() {
                    return;
                }
                let own = [u64::from(me) + round + last];
                let mut sum = [0u64];
                let all = vec![0u64; n as usize];
                let every = Blocks { buf: all.as_ptr().cast(), layout: Layout::Even(1, UINT64_T) };
                // SAFETY: the buffers live until the requests are complete.
                let mut reqs = unsafe {
                    let (from, to) = (own.as_ptr().cast(), sum.as_mut_ptr().cast());
                    [
                        m.allreduce_begun(How::Now, from, to, 1, UINT64_T, SUM, COMM_WORLD)
                            .unwrap(),
                        m.allgather_begun(How::Now, block(&own), every, COMM_WORLD).unwrap(),
                    ]
                };
                if step() {
                    return;
                }
                // What a test tells is chance, and recorded.
                let mut fruitless = 0u64;
                while !m.testall(&mut reqs, &mut []).unwrap() {
                    fruitless += 1;
                }
                std::hint::black_box(fruitless);
                assert_eq!(sum[0], all.iter().sum::<u64>());
                assert_eq!(all[me as usize], own[0]);
                last = sum[0] % 1000;
            }
        });
    }
}

#[test]
fn wrong_arguments_are_refused_and_the_ranks_stay_in_step() {
    all_sizes(|m, me, n| {
        let own = [u64::from(me)];
        let h = How::Now;
        // SAFETY: refused before anything is read, or complete.
        unsafe {
            let bad = m.bcast_begun(h, block(&own), n as i32, COMM_WORLD);
            assert_eq!(bad, Err(class::ROOT));
            let negative = Block { count: -1, ..block(&own) };
            assert_eq!(m.bcast_begun(h, negative, 0, COMM_WORLD), Err(class::COUNT));
            let nowhere = Block { buf: std::ptr::null(), ..block(&own) };
            assert_eq!(m.bcast_begun(h, nowhere, 0, COMM_WORLD), Err(class::BUFFER));
            let inn = Blocks { buf: own.as_ptr().cast(), layout: Layout::Even(1, UINT64_T) };
            assert_eq!(m.neighbour_alltoall(inn, inn, COMM_WORLD), Err(class::TOPOLOGY));
            let got = [0u64];
            let there = if me == 0 { block(&own) } else { block(&got) };
            let begun = m.bcast_begun(h, there, 0, COMM_WORLD);
            done(m, begun);
            assert_eq!(if me == 0 { own[0] } else { got[0] }, 0);
        }
    });
}
