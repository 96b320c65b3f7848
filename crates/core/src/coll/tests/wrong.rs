//! Wrong arguments: refused by class, and the communicator works on afterwards.

use std::ptr::{null, null_mut};

use super::*;
use crate::coll::How;
use crate::consts::{COMM_NULL, COMM_WORLD as WORLD, OP_NULL};
use crate::datatype::predefined::{BYTE, UINT64_T as U64};
use crate::error::class;
use crate::op::SUM;

#[test]
fn arguments_are_checked() {
    testing::run(2, |m| {
        let mut data = [1u64; 8];
        let mut other = [9u64; 8];
        let (a, b) = (data.as_mut_ptr().cast::<u8>(), other.as_mut_ptr().cast::<u8>());
        let uncommitted = m.types.contiguous(2, U64).unwrap();
        // SAFETY: the buffers are large enough for every count here.
        unsafe {
            assert_eq!(m.barrier(COMM_NULL), Err(class::COMM));
            assert_eq!(m.bcast(a, -1, U64, 0, WORLD), Err(class::COUNT));
            assert_eq!(m.bcast(a, i64::MAX, U64, 0, WORLD), Err(class::COUNT));
            assert_eq!(m.bcast(a, 1, uncommitted, 0, WORLD), Err(class::TYPE));
            assert_eq!(m.bcast(a, 1, SUM, 0, WORLD), Err(class::TYPE));
            assert_eq!(m.bcast(a, 1, U64, 2, WORLD), Err(class::ROOT));
            assert_eq!(m.bcast(a, 1, U64, -1, WORLD), Err(class::ROOT));
            assert_eq!(m.bcast(null_mut(), 1, U64, 0, WORLD), Err(class::BUFFER));
            assert_eq!(m.bcast(null_mut(), 0, U64, 0, WORLD), Ok(()));
            assert_eq!(m.allreduce(a, b, 1, U64, OP_NULL, WORLD), Err(class::OP));
            assert_eq!(m.allreduce(a, b, 1, BYTE, SUM, WORLD), Err(class::OP));
            assert_eq!(m.allreduce(a, a, 1, U64, SUM, WORLD), Err(class::BUFFER));
            let stay = in_place().cast_mut();
            assert_eq!(m.allreduce(a, stay, 1, U64, SUM, WORLD), Err(class::BUFFER));
            assert_eq!(m.scan(null(), b, 1, U64, SUM, WORLD), Err(class::BUFFER));
            assert_eq!(m.reduce(a, b, 1, U64, SUM, 7, WORLD), Err(class::ROOT));
            assert_eq!(m.allreduce(a, b, 1, U64, SUM, WORLD), Ok(()));
        }
        assert_eq!(other[0], 2);
    });
}

#[test]
fn too_long_a_message_is_an_error_where_it_arrives() {
    all_sizes(|m, me, n| {
        let mut data = [u64::from(me); 4];
        let count = if me == 0 { 4 } else { 3 };
        // SAFETY: the buffer holds four elements.
        let done = unsafe { m.bcast(data.as_mut_ptr().cast(), count, U64, 0, WORLD) };
        // Ranks below others in the tree pass on what they got; over clusters others are below.
        let one = m.comms.get(WORLD).unwrap().groups.get().is_none();
        let from_root = one && me.is_power_of_two();
        if me == 0 {
            assert_eq!(done, Ok(()));
        } else if from_root {
            assert_eq!(done, Err(class::TRUNCATE));
        }
        let (own, mut sum) = ([1u64], [0u64]);
        // SAFETY: the buffers hold one element.
        unsafe {
            let (from, at) = (own.as_ptr().cast(), sum.as_mut_ptr().cast());
            m.allreduce(from, at, 1, U64, SUM, WORLD).unwrap();
        }
        assert_eq!(sum[0], u64::from(n));
    });
}

/// A rank alone has its buffers refused; with the right ones it then does what the others do.
#[test]
fn a_refused_call_has_not_been() {
    all_sizes(|m, me, n| {
        let mut data = vec![u64::from(me); 2 * n as usize];
        let mut other = vec![0u64; 2 * n as usize];
        let (a, b) = (data.as_mut_ptr().cast::<u8>(), other.as_mut_ptr().cast::<u8>());
        let sum = u64::from(n * (n - 1) / 2);
        // SAFETY: the buffers hold two elements per rank.
        unsafe {
            if me == 0 {
                assert_eq!(m.reduce(a, a, 1, U64, SUM, 0, WORLD), Err(class::BUFFER));
                assert_eq!(m.gather(a, 1, U64, a, 1, U64, 0, WORLD), Err(class::BUFFER));
                assert_eq!(m.scatter(a, 1, U64, a, 1, U64, 0, WORLD), Err(class::BUFFER));
                assert_eq!(m.bcast(a, -1, U64, 0, WORLD), Err(class::COUNT));
                assert_eq!(m.alltoall(a, 1, U64, a, 1, U64, WORLD), Err(class::BUFFER));
                assert_eq!(m.scan(a, a, 1, U64, SUM, WORLD), Err(class::BUFFER));
                let begun = m.allreduce_begun(How::Now, a, a, 1, U64, SUM, WORLD);
                assert_eq!(begun, Err(class::BUFFER));
            }
            m.reduce(a, b, 1, U64, SUM, 0, WORLD).unwrap();
            assert!(me != 0 || other[0] == sum);
            m.allreduce(a, b, 1, U64, SUM, WORLD).unwrap();
        }
        assert_eq!(other[0], sum);
    });
}
