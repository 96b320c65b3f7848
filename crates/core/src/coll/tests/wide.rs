//! Collectives over clusters: data of many segments, and ranks that are replayed. That all of them
//! give what they give in one cluster is in the other files, which run over clusters, too.

use super::*;
use crate::clusters::Groups;
use crate::coll::Ints;
use crate::datatype::predefined::DOUBLE;
use crate::op::SUM;
use std::rc::Rc;

/// Numbers whose sums depend on the order of addition.
fn floats(rank: u32, count: usize) -> Vec<f64> {
    let spread = |v: &u64| f64::from_bits(v >> 2 & !(0x3ff << 52) | (0x3f0 + v % 31) << 52);
    values(3, rank, 0, count).iter().map(spread).collect()
}

fn bits(all: &[f64]) -> Vec<u64> {
    all.iter().map(|v| v.to_bits()).collect()
}

/// The sum of all ranks' numbers by each kind of reduction, which all agree on.
fn summed(m: &mut Machine, count: usize) -> Vec<u64> {
    let (me, n) = m.world();
    let own = floats(me, count);
    let (mut all, mut at_root, mut shares) = (vec![0f64; count], vec![0f64; count], vec![]);
    let each = count / n as usize;
    shares.resize(each, 0f64);
    let counts = vec![each as i32; n as usize];
    let root = (n / 2) as i32;
    // SAFETY: the buffers hold `count` elements, or the share.
    unsafe {
        let from: *const u8 = own.as_ptr().cast();
        let w = COMM_WORLD;
        m.allreduce(from, all.as_mut_ptr().cast(), count as i64, DOUBLE, SUM, w).unwrap();
        m.reduce(from, at_root.as_mut_ptr().cast(), count as i64, DOUBLE, SUM, root, w).unwrap();
        let of = Ints::I32(counts.as_ptr());
        m.reduce_scatter(from, shares.as_mut_ptr().cast(), of, DOUBLE, SUM, w).unwrap();
    }
    // Of less the trees begin elsewhere.
    if me == root as u32 && count >= 10_000 {
        assert_eq!(bits(&all), bits(&at_root));
    }
    bits(&all)
}

fn agreed(m: &mut Machine, sum: &[u64]) {
    let n = m.world().1 as usize;
    let mut of_all = vec![0u64; sum.len() * n];
    let c = sum.len() as i64;
    // SAFETY: the buffers hold so many elements.
    unsafe {
        let (from, to) = (sum.as_ptr().cast(), of_all.as_mut_ptr().cast());
        m.allgather(from, c, UINT64_T, to, c, UINT64_T, COMM_WORLD).unwrap();
    }
    assert!(of_all.chunks_exact(sum.len()).all(|other| other == sum));
}

#[test]
fn large_sums_are_the_same_bits_on_all_ranks() {
    for clusters in CLUSTERS {
        testing::run(clusters.len() as u32, |m| {
            m.comms.divide(clusters.into(), 0);
            let sum = summed(m, 150_000);
            agreed(m, &sum);
        });
    }
}

#[test]
fn canonical_sums_are_the_same_bits_whatever_the_clusters() {
    for count in [50, 3000, 60_000] {
        let all = std::sync::Mutex::new(Vec::new());
        let placements: [&[u32]; 4] = [&[], &[0, 0, 1, 1, 1], &[0, 1, 0, 1, 2], &[1, 1, 1, 1, 0]];
        for clusters in placements {
            testing::run(5, |m| {
                m.comms.divide(clusters.into(), 0);
                m.comms.canonical = true;
                let sum = summed(m, count);
                all.lock().unwrap().push(sum);
            });
        }
        let all = all.into_inner().unwrap();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{count}");
    }
}

#[test]
fn large_blocks_come_to_all() {
    for clusters in CLUSTERS {
        testing::run(clusters.len() as u32, |m| {
            m.comms.divide(clusters.into(), 0);
            let (me, n) = m.world();
            for count in [1usize, 5000, 200_000] {
                let root = n - 1;
                let expect = values(9, root, 0, count);
                let mut data = if me == root { expect.clone() } else { vec![0; count] };
                // SAFETY: the buffer holds `count` elements.
                unsafe {
                    let at = data.as_mut_ptr().cast();
                    m.bcast(at, count as i64, UINT64_T, root as i32, COMM_WORLD).unwrap();
                }
                assert_eq!(data, expect);
                agreed(m, &data);
            }
        });
    }
}

#[test]
fn communicators_have_the_groups_of_their_members() {
    testing::run(6, |m| {
        m.comms.divide([0, 0, 1, 1, 1, 0][..].into(), 0);
        let groups = |m: &Machine, comm| m.comms.get(comm).unwrap().groups.get().cloned();
        let me = m.world().0;
        let twin = m.comm_dup(COMM_WORLD).unwrap();
        let members = |g: Option<Rc<Groups>>| g.map(|g| g.members.clone());
        assert_eq!(members(groups(m, twin)), Some(vec![vec![0, 1, 5], vec![2, 3, 4]]));
        let near = m.comms.get(twin).unwrap().local().group.members().to_vec();
        assert_eq!(near, if [0, 1, 5].contains(&me) { [0, 1, 5] } else { [2, 3, 4] });
        let part = m.comm_split(twin, (me % 2) as i32, -(me as i32)).unwrap();
        let expect =
            if me % 2 == 0 { vec![vec![0, 1], vec![2]] } else { vec![vec![0, 2], vec![1]] };
        assert_eq!(members(groups(m, part)), Some(expect));
        let alone = m.comm_split(part, (me / 2 % 2) as i32, 0).unwrap();
        assert_eq!(groups(m, alone).is_some(), [0, 1, 4, 5].contains(&me) && me % 2 == 0);
        let (later, mut req) = m.comm_idup(twin, None).unwrap();
        m.wait(&mut req).unwrap();
        for comm in [part, alone, later] {
            m.barrier(comm).unwrap();
            let (mut sum, one) = ([0u64; 400], [1u64; 400]);
            // SAFETY: the buffers hold so many elements.
            unsafe {
                let (from, to) = (one.as_ptr().cast(), sum.as_mut_ptr().cast());
                m.allreduce(from, to, 400, UINT64_T, SUM, comm).unwrap();
            }
            assert_eq!(sum, [m.comm_size(comm).unwrap() as u64; 400]);
        }
    });
}

#[test]
fn a_rank_that_dies_among_them_gets_the_same() {
    for (victim, after) in [(0, 1), (3, 2), (4, 5), (1, 3)] {
        testing::run_killing(5, victim, after, |m, step| {
            m.comms.divide([0, 0, 1, 1, 1][..].into(), 0);
            let mut last = Vec::new();
            for round in 0..4 {
                if step() {
                    return;
                }
                let sum = summed(m, 12_000);
                if step() {
                    return;
                }
                agreed(m, &sum);
                assert!(round == 0 || sum == last);
                last = sum;
                m.barrier(COMM_WORLD).unwrap();
            }
        });
    }
}
