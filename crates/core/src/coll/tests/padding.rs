//! Padding, which differs from run to run, does not get into the log: nobody receives it.

use super::*;
use crate::consts::COMM_WORLD as WORLD;
use crate::datatype::predefined::{INT, LONG_DOUBLE};

/// Numbers all bytes of which are set, padding too.
fn full(count: usize) -> Vec<u8> {
    vec![7; 16 * count]
}

fn is_clear(numbers: &[u8]) -> bool {
    numbers.chunks(16).all(|n| n[..10] == [7; 10] && n[10..] == [0; 6])
}

#[test]
fn what_is_sent_as_bytes_has_none() {
    all_sizes(|m, me, n| {
        // In parts from four ranks on, and not.
        for count in [3, 10_000] {
            let mut data = if me == 0 { full(count) } else { vec![0; 16 * count] };
            // SAFETY: the buffer holds `count` numbers.
            unsafe { m.bcast(data.as_mut_ptr(), count as i64, LONG_DOUBLE, 0, WORLD).unwrap() };
            assert!(me == 0 || is_clear(&data), "bcast of {count} to {n}");
        }
        let (one, mut all) = (full(2), full(2 * n as usize));
        let at = all.as_mut_ptr();
        // SAFETY: the buffers hold two numbers, and two for each rank.
        unsafe { m.allgather(one.as_ptr(), 2, LONG_DOUBLE, at, 2, LONG_DOUBLE, WORLD).unwrap() };
        let of_others = |all: &[u8]| {
            let blocks = (0..).zip(all.chunks(32));
            blocks.filter(|(rank, _)| *rank != me).all(|(_, block)| is_clear(block))
        };
        assert!(of_others(&all), "allgather of {n}");
        let (out, mut all) = (full(2 * n as usize), full(2 * n as usize));
        let at = all.as_mut_ptr();
        // SAFETY: both buffers hold two numbers for each rank.
        unsafe { m.alltoall(out.as_ptr(), 2, LONG_DOUBLE, at, 2, LONG_DOUBLE, WORLD).unwrap() };
        assert!(of_others(&all), "alltoall of {n}");
        let mut all = full(2 * n as usize);
        let at = all.as_mut_ptr();
        // SAFETY: the buffer holds two numbers for each rank.
        unsafe { m.alltoall(in_place(), 0, LONG_DOUBLE, at, 2, LONG_DOUBLE, WORLD).unwrap() };
        assert!(of_others(&all), "alltoall in place of {n}");
    });
}

#[test]
fn a_message_of_structures_has_none() {
    testing::run(2, |m| {
        let (me, _) = m.world();
        let mixed = m.types.structure(&[1, 1], &[0, 16], &[LONG_DOUBLE, INT]).unwrap();
        m.types.commit(mixed).unwrap();
        let mut data = if me == 0 { full(64) } else { vec![0; 16 * 64] };
        // SAFETY: the buffer holds 32 structures of 32 bytes.
        unsafe { m.bcast(data.as_mut_ptr(), 32, mixed, 0, WORLD).unwrap() };
        if me == 1 {
            for s in data.chunks(32) {
                assert!(is_clear(&s[..16]) && s[16..20] == [7; 4] && s[20..] == [0; 12]);
            }
        }
    });
}
