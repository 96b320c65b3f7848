//! Known sizes and bounds, limits, and descriptions too large for the naive model.
//!
//! Values without a comment were read off MPICH and Open MPI, which agree on them.

use std::rc::Rc;

use crate::consts::DATATYPE_NULL;
use crate::datatype::predefined::{self as p, PREDEFINED};
use crate::datatype::{Bounds, Datatype, Element, ORDER_C, TypeTable};
use crate::error::class;
use crate::handle::Handle;

fn bounds(t: &TypeTable, h: Handle) -> (u64, i64, i64, i64, i64) {
    let d = t.get(h).unwrap();
    (d.size, d.lb, d.extent, d.true_lb, d.true_extent)
}

#[test]
fn predefined_sizes_and_extents() {
    let t = TypeTable::new();
    let expect = |h, size, extent| {
        let d = t.get(h).unwrap();
        assert_eq!((d.size, d.extent), (size, extent), "{h:?}");
        assert!(d.committed.get());
    };
    expect(p::CHAR, 1, 1);
    expect(p::LONG, 8, 8);
    expect(p::WCHAR, 4, 4);
    expect(p::LOGICAL, 4, 4);
    expect(p::DOUBLE_PRECISION, 8, 8);
    expect(p::LONG_DOUBLE, 16, 16);
    expect(p::C_LONG_DOUBLE_COMPLEX, 32, 32);
    expect(p::FLOAT_INT, 8, 8);
    expect(p::DOUBLE_INT, 12, 16);
    expect(p::LONG_INT, 12, 16);
    expect(p::TWO_INT, 8, 8);
    expect(p::SHORT_INT, 6, 8);
    expect(p::LONG_DOUBLE_INT, 20, 32);
    expect(p::TWO_DOUBLE_PRECISION, 16, 16);
    expect(p::COMPLEX32, 32, 32);
    expect(p::REAL2, 2, 2);
}

#[test]
fn every_predefined_handle_is_found_and_null_is_not() {
    let t = TypeTable::new();
    for row in PREDEFINED {
        let d = t.get(row.handle).unwrap();
        assert_eq!(d.name(), row.name.as_bytes());
        assert_eq!(d.element(), Some(row.element));
        assert_eq!(d.predefined(), Some(row.handle));
    }
    for h in [DATATYPE_NULL, Handle(0), Handle(0x204), Handle(0x2ff), Handle(0x1234), Handle(!0)] {
        assert_eq!(t.get(h).err(), Some(class::TYPE));
    }
    // The ABI encodes the size of fixed-size types in their handles (bits 3 to 5).
    for row in PREDEFINED.iter().filter(|row| row.handle.0 >= 0x240) {
        let Element::One(kind) = row.element else { panic!("{row:?}") };
        assert_eq!(kind.size(), 1 << (row.handle.0 >> 3 & 7), "{row:?}");
    }
}

#[test]
fn structs_are_padded_and_other_types_are_not() {
    let mut t = TypeTable::new();
    let s = t.structure(&[1, 1], &[0, 9], &[p::INT, p::CHAR]).unwrap();
    assert_eq!(bounds(&t, s), (5, 0, 12, 0, 10));
    let array = t.contiguous(3, s).unwrap();
    assert_eq!(bounds(&t, array), (15, 0, 36, 0, 34));
    let s = t.structure(&[1, 1], &[0, 16], &[p::LONG_DOUBLE, p::CHAR]).unwrap();
    assert_eq!(bounds(&t, s).2, 32);
    // As MPICH; Open MPI rounds these up to 16 and 12.
    let h = t.hindexed(&[1, 1], &[0, 9], p::INT).unwrap();
    assert_eq!(bounds(&t, h), (8, 0, 13, 0, 13));
    let v = t.hvector(2, 1, 5, p::INT).unwrap();
    assert_eq!(bounds(&t, v), (8, 0, 9, 0, 9));
}

#[test]
fn negative_strides_and_empty_blocks() {
    let mut t = TypeTable::new();
    let v = t.hvector(3, 1, -8, p::INT).unwrap();
    assert_eq!(bounds(&t, v), (12, -16, 20, -16, 20));
    let h = t.hindexed(&[1, 0], &[8, 100], p::INT).unwrap();
    assert_eq!(bounds(&t, h), (4, 8, 4, 8, 4));
    let empty = t.contiguous(0, p::INT).unwrap();
    assert_eq!(bounds(&t, empty), (0, 0, 0, 0, 0));
    let negative = t.resized(p::INT, 0, -4).unwrap();
    assert_eq!(bounds(&t, negative), (4, 0, -4, 0, 4));
    let three = t.contiguous(3, negative).unwrap();
    assert_eq!(bounds(&t, three), (12, -8, 4, -8, 12));
}

#[test]
fn explicit_bounds_win_over_elements() {
    let mut t = TypeTable::new();
    let wide = t.resized(p::INT, 0, 100).unwrap();
    // As Open MPI and the standard's formula; MPICH takes 204 for the extent.
    let s = t.structure(&[1, 1], &[0, 200], &[wide, p::INT]).unwrap();
    assert_eq!(bounds(&t, s), (8, 0, 100, 0, 204));
    // The example of the standard's section on resizing.
    let type1 = t.resized(p::INT, -3, 9).unwrap();
    let type2 = t.contiguous(2, type1).unwrap();
    assert_eq!(bounds(&t, type2), (8, -3, 18, 0, 13));
    // An empty type with bounds, and one without.
    let empty = t.contiguous(0, p::INT).unwrap();
    let sized = t.resized(empty, 5, 10).unwrap();
    assert_eq!(bounds(&t, sized), (0, 5, 10, 0, 0));
    let s = t.structure(&[1, 1], &[4, 100], &[p::INT, sized]).unwrap();
    assert_eq!(bounds(&t, s), (4, 105, 10, 4, 4));
    let s = t.structure(&[1, 1], &[4, 100], &[p::INT, empty]).unwrap();
    assert_eq!(bounds(&t, s), (4, 4, 4, 4, 4));
}

#[test]
fn wrong_arguments_are_refused_by_class() {
    let mut t = TypeTable::new();
    assert_eq!(t.contiguous(-1, p::INT), Err(class::COUNT));
    assert_eq!(t.contiguous(1, DATATYPE_NULL), Err(class::TYPE));
    assert_eq!(t.vector(1, -1, 1, p::INT), Err(class::ARG));
    assert_eq!(t.indexed(&[1, -1], &[0, 0], p::INT), Err(class::ARG));
    assert_eq!(t.indexed(&[1], &[0, 0], p::INT), Err(class::ARG));
    assert_eq!(t.structure(&[1], &[0], &[]), Err(class::ARG));
    assert_eq!(t.subarray(&[4], &[5], &[0], ORDER_C, p::INT), Err(class::ARG));
    assert_eq!(t.subarray(&[4], &[2], &[3], ORDER_C, p::INT), Err(class::ARG));
    assert_eq!(t.subarray(&[4], &[2], &[0], 1, p::INT), Err(class::ARG));
    assert_eq!(t.subarray(&[], &[], &[], ORDER_C, p::INT), Err(class::ARG));
    let mut int = p::INT;
    assert_eq!(t.free(&mut int), Err(class::TYPE));
    assert_eq!(int, p::INT);
    assert_eq!(t.derived_count(), 0);
}

#[test]
fn sizes_beyond_the_address_space_are_refused() {
    let mut t = TypeTable::new();
    let big = t.contiguous(1 << 59, p::DOUBLE).unwrap();
    assert_eq!(t.get(big).unwrap().size, 1 << 62);
    assert_eq!(t.contiguous(2, big), Err(class::VALUE_TOO_LARGE));
    assert_eq!(t.contiguous(i64::MAX, p::DOUBLE), Err(class::VALUE_TOO_LARGE));
    assert_eq!(t.hvector(3, 1, i64::MAX, p::INT), Err(class::VALUE_TOO_LARGE));
    assert_eq!(t.vector(2, 1, i64::MIN, p::INT), Err(class::VALUE_TOO_LARGE));
    let ends = [i64::MIN, i64::MAX - 4];
    assert_eq!(t.hindexed(&[1, 1], &ends, p::INT), Err(class::VALUE_TOO_LARGE));
    assert_eq!(t.resized(p::INT, i64::MAX, 1), Err(class::VALUE_TOO_LARGE));
    assert_eq!(t.get(p::INT).unwrap().bytes(1 << 61), None);
}

/// Packs in uneven pieces and compares with the list of byte offsets.
fn check(d: &Datatype, origin: i64, mem: &[u8], offsets: &[(i64, usize)]) {
    let mut expected = Vec::new();
    for (at, len) in offsets {
        let start = (origin + at) as usize;
        expected.extend_from_slice(&mem[start..start + len]);
    }
    assert_eq!(d.size as usize, expected.len());
    let mut at = 0;
    let mut step = 1;
    while at < expected.len() {
        let n = step.min(expected.len() - at);
        let mut out = vec![0; n];
        // SAFETY: the caller's memory holds the element at `origin`.
        unsafe { d.pack_range(mem[origin as usize..].as_ptr(), 1, at as u64, &mut out) };
        assert_eq!(out, expected[at..at + n], "at {at}");
        at += n;
        step = step * 7 % 1009 + 1;
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8).wrapping_mul(77) as u8).collect()
}

#[test]
fn long_lists_and_long_vectors_inside_lists() {
    let mut t = TypeTable::new();
    let n = 6000i64;
    let disps: Vec<i64> = (0..n).map(|i| i * 24 + (i % 3) * 8).collect();
    let lens: Vec<i64> = (0..n).map(|i| 1 + i % 3).collect();
    let mem = pattern(24 * 6000 + 64);
    let list = t.hindexed(&lens, &disps, p::SHORT).unwrap();
    let offsets: Vec<_> = disps.iter().zip(&lens).map(|(d, l)| (*d, *l as usize * 2)).collect();
    check(&t.get(list).unwrap(), 0, &mem, &offsets);
    // A list longer than what takes inner lists in, with gaps in its elements.
    let gapped = t.vector(2, 1, 2, p::SHORT).unwrap();
    let list = t.hindexed_block(1, &disps, gapped).unwrap();
    let offsets: Vec<_> = disps.iter().flat_map(|d| [(*d, 2), (d + 4, 2)]).collect();
    check(&t.get(list).unwrap(), 0, &mem, &offsets);
    // Vectors of more runs than are inlined, between single elements.
    let long = t.vector(100, 1, 3, p::INT).unwrap();
    let s = t.structure(&[1, 1, 2], &[0, 8, 2000], &[p::CHAR, long, long]).unwrap();
    let mut offsets = vec![(0, 1)];
    offsets.extend((0..100).map(|i| (8 + 12 * i, 4)));
    let extent = t.get(long).unwrap().extent;
    offsets.extend((0..200).map(|i| (2000 + i / 100 * extent + 12 * (i % 100), 4)));
    check(&t.get(s).unwrap(), 0, &mem, &offsets);
}

#[test]
fn deep_nesting_is_compiled_without_deep_recursion() {
    let mut t = TypeTable::new();
    let depth = 5000i64;
    let mut h = p::INT;
    for i in 1..=depth {
        let next = t.structure(&[1, 1], &[0, 8 * i], &[h, p::SHORT]).unwrap();
        if h.is_dynamic() {
            t.free(&mut h).unwrap();
        }
        h = next;
    }
    let d = t.get(h).unwrap();
    assert_eq!(d.signature().elements(), depth as u64 + 1);
    let mem = pattern(8 * depth as usize + 8);
    let mut offsets = vec![(0, 4)];
    offsets.extend((1..=depth).map(|i| (8 * i, 2)));
    check(&d, 0, &mem, &offsets);
    assert_eq!(d.elements_in(4 + 2 * 777), 778);
    // Dropping the last reference releases a chain of 5000 constituents.
    assert_eq!(Rc::strong_count(&d), 2);
    t.free(&mut h).unwrap();
    drop(d);
    assert_eq!(t.derived_count(), 0);
}

#[test]
fn a_very_long_chain_of_duplicates_is_released_in_a_loop() {
    let mut t = TypeTable::new();
    let mut h = t.contiguous(2, p::INT).unwrap();
    for _ in 0..200_000 {
        let next = t.dup(h).unwrap();
        t.free(&mut h).unwrap();
        h = next;
    }
    assert_eq!(bounds(&t, h), (8, 0, 8, 0, 8));
    t.free(&mut h).unwrap();
    assert_eq!(t.derived_count(), 0);
}

#[test]
fn matrix_columns_are_one_strided_run_each() {
    let mut t = TypeTable::new();
    let column = t.vector(100, 1, 50, p::DOUBLE).unwrap();
    let column = t.resized(column, 0, 8).unwrap();
    let d = t.get(column).unwrap();
    let matrix: Vec<f64> = (0..5000).map(f64::from).collect();
    let mut out = vec![0u8; 5000 * 8];
    // SAFETY: the matrix holds 50 columns.
    unsafe { d.pack_range(matrix.as_ptr().cast(), 50, 0, &mut out) };
    let value = |i: usize| f64::from_ne_bytes(out[8 * i..8 * i + 8].try_into().unwrap());
    for column in 0..50 {
        for row in 0..100 {
            assert_eq!(value(column * 100 + row), matrix[row * 50 + column]);
        }
    }
    assert_eq!(d.contiguous_run(1), None);
    let row = t.contiguous(50, p::DOUBLE).unwrap();
    assert_eq!(t.get(row).unwrap().contiguous_run(100), Some(0));
}

#[test]
fn absolute_addresses_from_a_null_base() {
    let mut t = TypeTable::new();
    let (a, b) = (7i32, [1.5f64, 2.5]);
    let disps = [(&raw const a) as i64, b.as_ptr() as i64];
    let s = t.structure(&[1, 2], &disps, &[p::INT, p::DOUBLE]).unwrap();
    let d = t.get(s).unwrap();
    let mut out = vec![0; 20];
    // SAFETY: the displacements are the addresses of live variables.
    unsafe { d.pack_range(std::ptr::null(), 1, 0, &mut out) };
    assert_eq!(out[..4], a.to_ne_bytes());
    assert_eq!(out[12..], b[1].to_ne_bytes());
}

/// Bounds of a struct with a resized member, by the standard's rule and by MPICH's.
#[test]
fn resized_members_count_as_the_rule_has_it() {
    for (rule, padded, plain, one) in
        [(Bounds::Standard, (2, 6), (0, 16), (0, 12)), (Bounds::Mpich, (0, 8), (0, 16), (0, 11))]
    {
        let mut t = TypeTable::new();
        t.set_rule(rule);
        let bounds = |t: &TypeTable, h| {
            let t = t.get(h).unwrap();
            (t.lb, t.extent)
        };
        let resized = t.resized(p::INT, -2, 6).unwrap();
        let h = t.structure(&[1, 1], &[0, 4], &[p::INT, resized]).unwrap();
        assert_eq!(bounds(&t, h), padded, "{rule:?}");
        // Without a resized member both pad alike.
        let h = t.structure(&[1, 1], &[0, 8], &[p::DOUBLE, p::CHAR]).unwrap();
        assert_eq!(bounds(&t, h), plain, "{rule:?}");
        // MPICH does not pad a struct of one type.
        let h = t.structure(&[1, 1], &[0, 7], &[p::INT, p::INT]).unwrap();
        assert_eq!(bounds(&t, h), one, "{rule:?}");
        // Nor one of integers of one width, of duplicates, and of types of one element.
        let (dup, single) = (t.dup(p::INT).unwrap(), t.contiguous(1, p::UNSIGNED).unwrap());
        for old in [p::UNSIGNED, p::WCHAR, dup, single] {
            let h = t.structure(&[1, 1], &[0, 7], &[p::INT, old]).unwrap();
            assert_eq!(bounds(&t, h), one, "{rule:?} {old:?}");
        }
        for old in [p::FLOAT, p::TWO_INT] {
            let h = t.structure(&[1, 1], &[0, 9], &[p::INT, old]).unwrap();
            assert_eq!(bounds(&t, h).1 % 4, 0, "{rule:?} {old:?}");
        }
    }
}
