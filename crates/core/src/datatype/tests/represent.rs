//! Packing at a position, and external32 against known bytes.

use crate::datatype::predefined as p;
use crate::datatype::{Datatype, TypeTable};
use crate::error::class;

const REPRESENTATION: &[u8] = b"external32";

fn encode<T>(d: &Datatype, values: &[T]) -> Vec<u8> {
    let count = values.len() as u64;
    let mut out = vec![0; d.external_size(REPRESENTATION, count).unwrap() as usize];
    let mut position = 0;
    // SAFETY: the slice holds `count` elements of the datatype in all uses here.
    unsafe {
        let buf = values.as_ptr().cast();
        d.pack_external(REPRESENTATION, buf, count, &mut out, &mut position).unwrap();
    }
    assert_eq!(position, out.len() as u64);
    out
}

fn decode<T: Copy + Default>(d: &Datatype, data: &[u8], count: usize) -> Vec<T> {
    let mut values = vec![T::default(); count];
    let mut position = 0;
    // SAFETY: the vector holds `count` elements of the datatype in all uses here.
    unsafe {
        let buf = values.as_mut_ptr().cast();
        d.unpack_external(REPRESENTATION, data, &mut position, buf, count as u64).unwrap();
    }
    values
}

#[test]
fn known_bytes() {
    let t = TypeTable::new();
    let get = |h| t.get(h).unwrap();
    assert_eq!(encode(&get(p::INT), &[1i32, -2]), [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(encode(&get(p::LONG), &[0x0102_0304i64, -1]), [1, 2, 3, 4, 255, 255, 255, 255]);
    assert_eq!(encode(&get(p::DOUBLE), &[1.0f64]), [0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encode(&get(p::WCHAR), &[0x20ac_i32]), [0x20, 0xac]);
    assert_eq!(encode(&get(p::C_FLOAT_COMPLEX), &[1f32, 2f32][..1]).len(), 8);
    let mut extended = [0u8; 16];
    extended[7] = 0x80;
    extended[8..10].copy_from_slice(&0x3fffu16.to_le_bytes());
    let quad = encode(&get(p::LONG_DOUBLE), &[extended]);
    assert_eq!(quad[..2], [0x3f, 0xff]);
    assert!(quad[2..].iter().all(|b| *b == 0));
    assert_eq!(decode::<[u8; 16]>(&get(p::LONG_DOUBLE), &quad, 1), [extended]);
}

#[test]
fn narrow_words_come_back_with_their_sign() {
    let t = TypeTable::new();
    let long = t.get(p::LONG).unwrap();
    let values = [0i64, -1, i64::from(i32::MIN), i64::from(i32::MAX)];
    assert_eq!(decode::<i64>(&long, &encode(&long, &values), 4), values);
    let unsigned = t.get(p::UNSIGNED_LONG).unwrap();
    let values = [0u64, u64::from(u32::MAX)];
    assert_eq!(decode::<u64>(&unsigned, &encode(&unsigned, &values), 2), values);
}

#[test]
fn long_arrays_are_converted_in_chunks() {
    let t = TypeTable::new();
    let pair = t.get(p::DOUBLE_INT).unwrap();
    let mem: Vec<[u8; 16]> =
        (0..500u128).map(|i| (i * 0x0123_4567_89ab_cdef).to_ne_bytes()).collect();
    let back = decode::<[u8; 16]>(&pair, &encode(&pair, &mem), 500);
    assert!(mem.iter().zip(&back).all(|(a, b)| a[..12] == b[..12] && b[12..] == [0; 4]));
    let doubles: Vec<f64> = (0..1000).map(|i| f64::from(i) / 7.0).collect();
    let double = t.get(p::DOUBLE).unwrap();
    assert_eq!(decode::<f64>(&double, &encode(&double, &doubles), 1000), doubles);
}

#[test]
fn positions_advance_and_ends_are_checked() {
    let t = TypeTable::new();
    let int = t.get(p::INT).unwrap();
    let values = [1i32, 2, 3];
    let mut out = [0u8; 16];
    let mut position = 2;
    // SAFETY: in all calls the arrays hold three elements.
    unsafe {
        let buf = values.as_ptr().cast();
        int.pack(buf, 3, &mut out, &mut position).unwrap();
        assert_eq!(position, 14);
        assert_eq!(int.pack(buf, 1, &mut out, &mut position), Err(class::ARG));
        assert_eq!(position, 14);
        let mut back = [0i32; 3];
        position = 2;
        int.unpack(&out, &mut position, back.as_mut_ptr().cast(), 3).unwrap();
        assert_eq!(back, values);
        assert_eq!(int.unpack(&out, &mut position, back.as_mut_ptr().cast(), 1), Err(class::ARG));
        let mut far = u64::MAX;
        assert_eq!(int.pack(buf, 1, &mut out, &mut far), Err(class::ARG));
        let wrong = int.pack_external(b"native", buf, 1, &mut out, &mut position);
        assert_eq!(wrong, Err(class::UNSUPPORTED_DATAREP));
    }
}
