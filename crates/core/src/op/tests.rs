//! Tests of operations: where they are defined, their values, unaligned buffers, user functions.

use std::cell::Cell;
use std::fmt::Debug;
use std::rc::Rc;

use proptest::prelude::*;

use super::*;
use crate::consts::OP_NULL;
use crate::datatype::TypeTable;
use crate::datatype::predefined as p;

/// The bytes of values.
trait Plain: Copy + PartialEq + Debug {}
impl<T: Copy + PartialEq + Debug> Plain for T {}

/// Reduces two arrays that lie at odd addresses.
fn reduce<T: Plain>(op: Handle, dt: Handle, left: &[T], right: &[T]) -> Res<Vec<T>> {
    let (ops, types) = (OpTable::new(), TypeTable::new());
    let bytes = size_of_val(left);
    let dt_object = types.get(dt)?;
    assert_eq!(bytes as i64, dt_object.extent * left.len() as i64, "wrong test: {dt:?}");
    let (mut a, mut b) = (vec![0u8; bytes + 1], vec![0u8; bytes + 1]);
    let n = left.len() as u64;
    // SAFETY: plain values are copied as bytes into buffers of their size, and back.
    unsafe {
        let (l, r) = (a.as_mut_ptr().add(1), b.as_mut_ptr().add(1));
        std::ptr::copy_nonoverlapping(left.as_ptr().cast(), l, bytes);
        std::ptr::copy_nonoverlapping(right.as_ptr().cast(), r, bytes);
        reduce_local(&*ops.get(op)?, &dt_object, dt, l, r, n)?;
        let mut out = right.to_vec();
        std::ptr::copy_nonoverlapping(r, out.as_mut_ptr().cast(), bytes);
        Ok(out)
    }
}

fn one<T: Plain>(op: Handle, dt: Handle, left: T, right: T) -> T {
    reduce(op, dt, &[left], &[right]).unwrap()[0]
}

const INTEGERS: &[Handle] = &[
    p::SHORT,
    p::INT,
    p::LONG,
    p::LONG_LONG,
    p::UNSIGNED_SHORT,
    p::UNSIGNED,
    p::UNSIGNED_LONG,
    p::UNSIGNED_LONG_LONG,
    p::SIGNED_CHAR,
    p::UNSIGNED_CHAR,
    p::INT8_T,
    p::INT16_T,
    p::INT32_T,
    p::INT64_T,
    p::UINT8_T,
    p::UINT16_T,
    p::UINT32_T,
    p::UINT64_T,
    p::AINT,
    p::COUNT,
    p::OFFSET,
    p::CHAR,
    p::INTEGER,
    p::INTEGER1,
    p::INTEGER2,
    p::INTEGER4,
    p::INTEGER8,
    p::INTEGER16,
];
const FLOATS: &[Handle] = &[
    p::FLOAT,
    p::DOUBLE,
    p::LONG_DOUBLE,
    p::REAL,
    p::DOUBLE_PRECISION,
    p::REAL2,
    p::C_FLOAT16,
    p::REAL4,
    p::REAL8,
    p::REAL16,
];
const COMPLEX: &[Handle] = &[
    p::C_FLOAT_COMPLEX,
    p::C_DOUBLE_COMPLEX,
    p::C_LONG_DOUBLE_COMPLEX,
    p::CXX_FLOAT_COMPLEX,
    p::CXX_DOUBLE_COMPLEX,
    p::CXX_LONG_DOUBLE_COMPLEX,
    p::COMPLEX,
    p::DOUBLE_COMPLEX,
    p::COMPLEX4,
    p::COMPLEX8,
    p::COMPLEX16,
    p::COMPLEX32,
];
const LOGICAL: &[Handle] = &[
    p::LOGICAL,
    p::LOGICAL1,
    p::LOGICAL2,
    p::LOGICAL4,
    p::LOGICAL8,
    p::LOGICAL16,
    p::C_BOOL,
    p::CXX_BOOL,
];
const PAIRS: &[Handle] = &[
    p::FLOAT_INT,
    p::DOUBLE_INT,
    p::LONG_INT,
    p::TWO_INT,
    p::SHORT_INT,
    p::LONG_DOUBLE_INT,
    p::TWO_REAL,
    p::TWO_DOUBLE_PRECISION,
    p::TWO_INTEGER,
];
const NOTHING: &[Handle] = &[p::CHARACTER, p::WCHAR, p::PACKED];

#[test]
fn operations_are_defined_where_the_standard_says() {
    let (ops, types) = (OpTable::new(), TypeTable::new());
    let arithmetic = [SUM, PROD];
    let order = [MIN, MAX];
    let bits = [BAND, BOR, BXOR];
    let logic = [LAND, LOR, LXOR];
    let location = [MINLOC, MAXLOC];
    let table: [(&[Handle], Vec<Handle>); 7] = [
        (INTEGERS, [&arithmetic[..], &order, &bits, &logic].concat()),
        (FLOATS, [arithmetic, order].concat()),
        (COMPLEX, arithmetic.to_vec()),
        (LOGICAL, logic.to_vec()),
        (PAIRS, location.to_vec()),
        (&[p::BYTE], bits.to_vec()),
        (NOTHING, vec![]),
    ];
    let mut seen = 0;
    for (handles, defined) in &table {
        for dt in *handles {
            let t = types.get(*dt).unwrap();
            for (op, _) in BUILTINS {
                let expected = if defined.contains(&op) { Ok(()) } else { Err(class::OP) };
                assert_eq!(ops.get(op).unwrap().check(&t), expected, "{op:?} {dt:?}");
            }
            seen += 1;
        }
    }
    assert_eq!(seen, p::PREDEFINED.len());
}

#[test]
fn derived_types_are_refused_but_duplicates_and_fortran_kinds_are_not() {
    let (ops, mut types) = (OpTable::new(), TypeTable::new());
    let sum = ops.get(SUM).unwrap();
    let vector = types.vector(2, 1, 2, p::INT).unwrap();
    assert_eq!(sum.check(&types.get(vector).unwrap()), Err(class::OP));
    let dup = types.dup(p::INT).unwrap();
    assert_eq!(sum.check(&types.get(dup).unwrap()), Ok(()));
    let real = types.f90_real(15, 300).unwrap();
    assert_eq!(sum.check(&types.get(real).unwrap()), Ok(()));
}

#[test]
fn values_of_integers_and_truth() {
    assert_eq!(one(SUM, p::INT, i32::MAX, 1), i32::MIN);
    assert_eq!(one(PROD, p::INT64_T, -3i64, 7), -21);
    assert_eq!(one(MAX, p::UINT8_T, 200u8, 100), 200);
    assert_eq!(one(MAX, p::SIGNED_CHAR, -56i8, 100), 100);
    assert_eq!(one(MIN, p::UNSIGNED, u32::MAX, 7), 7);
    assert_eq!(one(BAND, p::BYTE, 0b1100u8, 0b1010), 0b1000);
    assert_eq!(one(BXOR, p::LONG, 0b1100i64, 0b1010), 0b0110);
    assert_eq!(one(LAND, p::INT, 2, 4), 1);
    assert_eq!(one(LXOR, p::INT, 2, 4), 0);
    assert_eq!(one(LOR, p::LOGICAL, 0u32, 4), 1);
    assert_eq!(one(LXOR, p::C_BOOL, 1u8, 0), 1);
    assert_eq!(one(SUM, p::INTEGER16, u128::MAX as i128, 3), 2);
    assert_eq!(one(LAND, p::LOGICAL16, 1i128 << 100, 1), 1);
}

#[test]
fn values_of_floating_point_and_complex() {
    assert_eq!(one(SUM, p::DOUBLE, 0.1, 0.2), 0.1 + 0.2);
    assert_eq!(one(MIN, p::FLOAT, -1f32, 1f32), -1.0);
    assert_eq!(one(PROD, p::C_DOUBLE_COMPLEX, [1.0, 2.0], [3.0, 4.0]), [-5.0, 10.0]);
    assert_eq!(one(SUM, p::COMPLEX, [1f32, 2.0], [3.0, 4.0]), [4.0, 6.0]);
    // 1.5 + 2.25 and 1.5 * 2.25 in half precision.
    assert_eq!(one(SUM, p::REAL2, 0x3e00u16, 0x4080), 0x4380);
    assert_eq!(one(PROD, p::REAL2, 0x3e00u16, 0x4080), 0x42c0);
    let quad = |exponent: u128, fraction: u128| (16383 + exponent) << 112 | fraction << 108;
    assert_eq!(one(SUM, p::REAL16, quad(0, 8), quad(1, 2)), quad(1, 14));
    assert_eq!(one(MAX, p::REAL16, quad(0, 8), quad(1, 2)), quad(1, 2));
    let product = one(PROD, p::COMPLEX32, [quad(0, 0), quad(1, 0)], [quad(2, 0), quad(0, 0)]);
    assert_eq!(product, [quad(1, 0), quad(3, 2)]);
}

fn extended(mantissa: u64, exponent: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
    bytes[8..10].copy_from_slice(&exponent.to_le_bytes());
    bytes
}

#[test]
fn values_of_long_double() {
    let one_ld = extended(1 << 63, 0x3fff);
    let two = extended(1 << 63, 0x4000);
    let three = extended(3 << 62, 0x4000);
    assert_eq!(one(SUM, p::LONG_DOUBLE, one_ld, two), three);
    assert_eq!(one(MAX, p::LONG_DOUBLE, one_ld, two), two);
    assert_eq!(one(MIN, p::LONG_DOUBLE, one_ld, two), one_ld);
    // (1 + 2i) * (2 + i) = 0 + 5i
    let product = one(PROD, p::C_LONG_DOUBLE_COMPLEX, [one_ld, two], [two, one_ld]);
    assert_eq!(product, [extended(0, 0), extended(5 << 61, 0x4001)]);
}

#[test]
fn locations() {
    type Pair = (f64, i32, i32);
    let pair = |v: f64, i: i32| -> [u8; 16] {
        let mut b = [0; 16];
        b[..8].copy_from_slice(&v.to_ne_bytes());
        b[8..12].copy_from_slice(&i.to_ne_bytes());
        b
    };
    assert_eq!(size_of::<Pair>(), 16);
    assert_eq!(one(MAXLOC, p::DOUBLE_INT, pair(2.0, 9), pair(1.0, 3)), pair(2.0, 9));
    assert_eq!(one(MINLOC, p::DOUBLE_INT, pair(2.0, 9), pair(1.0, 3)), pair(1.0, 3));
    assert_eq!(one(MINLOC, p::DOUBLE_INT, pair(1.0, 9), pair(1.0, 3)), pair(1.0, 3));
    assert_eq!(one(MAXLOC, p::DOUBLE_INT, pair(1.0, 2), pair(1.0, 3)), pair(1.0, 2));
    assert_eq!(one(MINLOC, p::TWO_INT, [4, 1], [3, 0]), [3, 0]);
    assert_eq!(one(MAXLOC, p::TWO_REAL, [4f32, 1.0], [4.0, 0.0]), [4.0, 0.0]);
    assert_eq!(one(MAXLOC, p::SHORT_INT, [5i16, 0, 7, 0], [4, 0, 1, 0]), [5, 0, 7, 0]);
    let big = extended(1 << 63, 0x4000);
    let small = extended(1 << 63, 0x3fff);
    let index = |v: [u8; 16], i: u8| {
        let mut b = [0u8; 32];
        b[..16].copy_from_slice(&v);
        b[16] = i;
        b
    };
    let result = one(MINLOC, p::LONG_DOUBLE_INT, index(big, 1), index(small, 2));
    assert_eq!(result, index(small, 2));
    let result = one(MAXLOC, p::LONG_DOUBLE_INT, index(big, 1), index(small, 2));
    assert_eq!(result, index(big, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn long_arrays_equal_the_element_by_element_result(
        values in prop::collection::vec((any::<i32>(), any::<i32>()), 0..300),
        floats in prop::collection::vec((any::<f64>(), any::<f64>()), 0..300),
    ) {
        let (a, b): (Vec<i32>, Vec<i32>) = values.into_iter().unzip();
        let check = |op, f: fn(i32, i32) -> i32| {
            let expected: Vec<i32> = a.iter().zip(&b).map(|(x, y)| f(*x, *y)).collect();
            assert_eq!(reduce(op, p::INT, &a, &b).unwrap(), expected);
        };
        check(SUM, i32::wrapping_add);
        check(PROD, i32::wrapping_mul);
        check(MIN, i32::min);
        check(MAX, i32::max);
        check(BOR, |x, y| x | y);
        check(LAND, |x, y| i32::from(x != 0 && y != 0));
        let (a, b): (Vec<f64>, Vec<f64>) = floats.into_iter().unzip();
        let bits = |v: Vec<f64>| v.into_iter().map(f64::to_bits).collect::<Vec<u64>>();
        let check = |op, f: fn(f64, f64) -> f64| {
            let expected: Vec<f64> = a.iter().zip(&b).map(|(x, y)| f(*x, *y)).collect();
            assert_eq!(bits(reduce(op, p::DOUBLE, &a, &b).unwrap()), bits(expected));
        };
        check(SUM, |x, y| x + y);
        check(PROD, |x, y| x * y);
        check(MAX, |x, y| if x > y { x } else { y });
    }
}

#[test]
fn replace_copies_any_layout_and_no_op_nothing() {
    let (ops, mut types) = (OpTable::new(), TypeTable::new());
    let h = types.vector(2000, 1, 2, p::INT).unwrap();
    let dt = types.get(h).unwrap();
    let from: Vec<i32> = (0..4000).collect();
    let mut to = vec![-1i32; 4000];
    let (l, r) = (from.as_ptr().cast(), to.as_mut_ptr().cast());
    // SAFETY: both buffers hold one element.
    unsafe {
        reduce_local(&ops.get(NO_OP).unwrap(), &dt, h, l, r, 1).unwrap();
        assert_eq!(r.cast::<i32>().read(), -1);
        reduce_local(&ops.get(REPLACE).unwrap(), &dt, h, l, r, 1).unwrap();
    }
    assert!((0..4000).all(|i| to[i as usize] == if i % 2 == 0 { i } else { -1 }));
    assert!(!ops.is_commutative(REPLACE).unwrap());
}

#[test]
fn user_functions_get_the_operands_in_order() {
    let (mut ops, types) = (OpTable::new(), TypeTable::new());
    let calls = Rc::new(Cell::new(0));
    let seen = Rc::clone(&calls);
    let function = move |left: *mut u8, right: *mut u8, n: i64, dt: Handle| {
        assert_eq!((n, dt), (3, p::INT));
        seen.set(seen.get() + 1);
        let (left, right) = (left.cast::<i32>(), right.cast::<i32>());
        for i in 0..n as usize {
            // SAFETY: the test passes arrays of three.
            unsafe { *right.add(i) += 10 * *left.add(i) }
        }
    };
    let mut h = ops.create_user(Box::new(function), false).unwrap();
    assert!(!ops.is_commutative(h).unwrap());
    let op = ops.get(h).unwrap();
    ops.free(&mut h).unwrap();
    assert_eq!(h, OP_NULL);
    let (left, mut right) = ([1, 2, 3], [4, 5, 6]);
    let dt = types.get(p::INT).unwrap();
    // SAFETY: both arrays have three elements.
    unsafe {
        let (l, r) = (left.as_ptr().cast(), right.as_mut_ptr().cast());
        reduce_local(&op, &dt, p::INT, l, r, 3).unwrap();
    }
    assert_eq!((right, calls.get()), ([14, 25, 36], 1));
    assert!(op.check(&dt).is_ok());
}

#[test]
fn a_users_function_is_replaced() {
    let mut ops = OpTable::new();
    let h = ops.create_user(Box::new(|_, _, _, _| unreachable!()), false).unwrap();
    let calls = Rc::new(Cell::new(0));
    let seen = Rc::clone(&calls);
    ops.replace_user(h, Box::new(move |_, _, n, _| seen.set(seen.get() + n))).unwrap();
    assert!(!ops.is_commutative(h).unwrap());
    let (left, mut right) = ([1], [4]);
    let (op, dt) = (ops.get(h).unwrap(), TypeTable::new().get(p::INT).unwrap());
    let (l, r) = (left.as_ptr().cast(), right.as_mut_ptr().cast());
    // SAFETY: both arrays have one element.
    unsafe { reduce_local(&op, &dt, p::INT, l, r, 1).unwrap() };
    assert_eq!(calls.get(), 1);
    let none = Box::new(|_, _, _, _| ());
    assert_eq!(ops.replace_user(SUM, none), Err(class::OP));
}

#[test]
fn predefined_operations_cannot_be_freed() {
    let mut ops = OpTable::new();
    let mut sum = SUM;
    assert_eq!(ops.free(&mut sum), Err(class::OP));
    assert_eq!(sum, SUM);
    assert_eq!(ops.get(OP_NULL).err(), Some(class::OP));
    assert_eq!(ops.get(Handle(0x25)).err(), Some(class::OP));
}
