//! Values of one machine on another, and those that have no place there.

use super::*;
use proptest::prelude::*;

fn typed(kind: Kind, size: usize) -> Type {
    Type { kind, size }
}

fn convert(from: (Type, Order), to: (Type, Order), bytes: &[u8]) -> Result<Vec<u8>, ConvertError> {
    let mut out = vec![99];
    Conversion::new(from, to)?.run(0, bytes, &mut out)?;
    Ok(out)
}

#[test]
fn integers_change_order_and_size() {
    let (long, int) = (typed(Kind::Int, 8), typed(Kind::Int, 4));
    let bytes: Vec<u8> = [-2i64, 0x0102_0304].iter().flat_map(|v| v.to_be_bytes()).collect();
    let out = convert((long, Order::Big), (int, Order::Little), &bytes).unwrap();
    assert_eq!(out, [-2i32, 0x0102_0304].map(i32::to_le_bytes).concat());
    let out = convert((int, Order::Little), (long, Order::Big), &out).unwrap();
    assert_eq!(out, bytes);
    let unsigned = typed(Kind::Uint, 2);
    let out = convert((unsigned, Order::Big), (int, Order::Big), &[0xff, 0xfe]).unwrap();
    assert_eq!(out, [0, 0, 0xff, 0xfe]);
}

#[test]
fn a_value_that_does_not_fit_is_named() {
    let bytes = [1i64, 1 << 31].map(i64::to_le_bytes).concat();
    let (long, int) = (typed(Kind::Int, 8), typed(Kind::Int, 4));
    let out = convert((long, Order::Little), (int, Order::Little), &bytes);
    assert_eq!(out, Err(ConvertError::Value(1, 4)));
    let unsigned = typed(Kind::Uint, 4);
    assert!(convert((long, Order::Little), (unsigned, Order::Little), &bytes).is_ok());
    let out = convert((int, Order::Little), (unsigned, Order::Little), &(-1i32).to_le_bytes());
    assert_eq!(out, Err(ConvertError::Value(0, 4)));
    let (double, single) = (typed(Kind::Float, 8), typed(Kind::Float, 4));
    let out = convert((double, Order::Little), (single, Order::Little), &0.1f64.to_le_bytes());
    assert_eq!(out, Err(ConvertError::Value(0, 4)), "nothing is rounded");
    let pairs = [1.5f64, 0.1].map(f64::to_le_bytes).concat();
    let (wide, narrow) = (typed(Kind::Complex, 16), typed(Kind::Complex, 8));
    let out = convert((wide, Order::Little), (narrow, Order::Little), &pairs);
    assert_eq!(out, Err(ConvertError::Value(0, 4)), "of its element, not of its unit");
}

#[test]
fn floats_and_complex_numbers_change_order_and_size() {
    let values = [1.5f64, -0.0, f64::INFINITY, f64::NEG_INFINITY];
    let bytes = values.map(f64::to_be_bytes).concat();
    let to = |kind, size| (typed(kind, size), Order::Little);
    let from = |kind| (typed(kind, if kind == Kind::Float { 8 } else { 16 }), Order::Big);
    let short = values.map(|v| (v as f32).to_le_bytes()).concat();
    assert_eq!(convert(from(Kind::Float), to(Kind::Float, 4), &bytes).unwrap(), short);
    assert_eq!(convert(from(Kind::Complex), to(Kind::Complex, 8), &bytes).unwrap(), short);
    let same = values.map(f64::to_le_bytes).concat();
    assert_eq!(convert(from(Kind::Complex), to(Kind::Complex, 16), &bytes).unwrap(), same);
    let nan = convert(from(Kind::Float), to(Kind::Float, 4), &f64::NAN.to_be_bytes()).unwrap();
    assert!(f32::from_le_bytes(nan.try_into().unwrap()).is_nan());
    let half = (typed(Kind::Float, 2), Order::Big);
    assert_eq!(convert(half, to(Kind::Float, 2), &[1, 2]).unwrap(), [2, 1]);
}

#[test]
fn what_cannot_be_converted_is_refused_before_anything_is_read() {
    let new = |from, to| Conversion::new((from, Order::Big), (to, Order::Little)).unwrap_err();
    let (byte, double) = (typed(Kind::Bytes, 8), typed(Kind::Float, 8));
    assert_eq!(new(byte, byte), ConvertError::Untyped);
    let why = new(double, typed(Kind::Int, 8)).to_string();
    assert_eq!(why, "floats of 8 bytes cannot become integers of 8 bytes");
    assert!(matches!(new(byte, typed(Kind::Bytes, 4)), ConvertError::Kinds { .. }));
    assert!(matches!(new(typed(Kind::Float, 2), double), ConvertError::Kinds { .. }));
    let single = typed(Kind::Bytes, 1);
    let same = Conversion::new((single, Order::Big), (single, Order::Little)).unwrap();
    assert!(same.nothing());
}

proptest! {
    #[test]
    fn there_and_back_is_the_same(
        bytes in proptest::collection::vec(any::<u8>(), 0..8).prop_map(|b| b.repeat(16)),
        kind in 1..5i32,
        size in 0..2usize,
        big in any::<bool>(),
    ) {
        let kind = Kind::of(kind).unwrap();
        let size = if kind == Kind::Complex { [8, 16][size] } else { [4, 8][size] };
        let order = if big { Order::Big } else { Order::Little };
        let (stored, own) = ((typed(kind, size), order), (typed(kind, size), Order::Little));
        let out = convert(stored, own, &bytes).unwrap();
        prop_assert_eq!(convert(own, stored, &out).unwrap(), bytes);
    }
}
