//! Random datatypes against the naive model: bounds, packing at any offset, element counts.

use proptest::prelude::*;

use super::model::{Model, Spec, spec};
use crate::consts::UNDEFINED;
use crate::datatype::{Datatype, TypeTable};

/// Larger typemaps are skipped: they only make the naive model slow.
const ENTRIES_MAX: usize = 3000;

/// Memory that holds `count` elements, and where in it the elements' origin lies.
fn memory(m: &Model, count: u64) -> (usize, usize) {
    let last = (count as i64 - 1).max(0) * m.extent();
    let low = m.entries.iter().map(|e| e.0).min().unwrap_or(0) + last.min(0);
    let high = m.entries.iter().map(|e| e.0 + e.1.size() as i64).max().unwrap_or(0) + last.max(0);
    let origin = (-low).max(0);
    (origin as usize, (high.max(0) + origin) as usize)
}

/// Position in memory of every byte of the packed stream.
fn stream(m: &Model, count: u64, origin: usize) -> Vec<usize> {
    let mut at = Vec::new();
    for i in 0..count as i64 {
        for (disp, kind) in &m.entries {
            let start = (origin as i64 + i * m.extent() + disp) as usize;
            at.extend(start..start + kind.size() as usize);
        }
    }
    at
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8)).collect()
}

fn check_packing(t: &Datatype, m: &Model, count: u64, cuts: &[u16]) {
    let (origin, len) = memory(m, count);
    let mem = pattern(len);
    let map = stream(m, count, origin);
    let expected: Vec<u8> = map.iter().map(|i| mem[*i]).collect();
    let total = expected.len();
    let mut unique = map.clone();
    unique.sort_unstable();
    unique.dedup();
    // Only types without overlap may be received.
    let receivable = unique.len() == total;
    assert_eq!(t.bytes(count), Some(total as u64));
    // SAFETY (throughout): `mem` and `back` hold `count` elements at `origin`, as the model knows.
    let buf = mem[origin..].as_ptr();
    for pair in cuts.chunks_exact(2) {
        let from = usize::from(pair[0]) % (total + 1);
        let n = usize::from(pair[1]) % (total - from + 1);
        let mut out = vec![0; n];
        // SAFETY: see above.
        unsafe { t.pack_range(buf, count, from as u64, &mut out) };
        assert_eq!(out, expected[from..from + n], "[{from}, {from}+{n}) of {total}");
        if !receivable {
            continue;
        }
        let mut back = vec![0xEE; len];
        let mut naive = back.clone();
        for (i, byte) in map.iter().zip(&expected).skip(from).take(n) {
            naive[*i] = *byte;
        }
        // SAFETY: see above.
        unsafe { t.unpack_range(back[origin..].as_mut_ptr(), count, from as u64, &out) };
        assert_eq!(back, naive);
    }
    if !receivable {
        return;
    }
    // The whole stream in pieces, in order.
    let mut back = vec![0xEE; len];
    let mut naive = back.clone();
    map.iter().zip(&expected).for_each(|(i, byte)| naive[*i] = *byte);
    let mut at = 0;
    let mut sizes = cuts.iter().cycle();
    while at < total {
        let n = sizes.next().map_or(1, |c| 1 + usize::from(*c) % 97).min(total - at);
        let piece = &expected[at..at + n];
        // SAFETY: see above.
        unsafe { t.unpack_range(back[origin..].as_mut_ptr(), count, at as u64, piece) };
        at += n;
    }
    assert_eq!(back, naive);
}

fn check_run(t: &Datatype, m: &Model, count: u64) {
    let map = stream(m, count, 1 << 20);
    let gapless = map.windows(2).all(|w| w[1] == w[0] + 1);
    match t.contiguous_run(count) {
        Some(at) if !map.is_empty() => {
            assert!(gapless);
            assert_eq!(at, map[0] as i64 - (1 << 20));
        }
        Some(_) => {}
        // Not finding a run that is one costs time only, but one element is always found.
        None => assert!(!gapless || count > 1, "missed a run"),
    }
}

fn check_elements(t: &Datatype, m: &Model) {
    let size = m.size();
    for bytes in 0..=2 * size {
        let whole = bytes.checked_div(size).unwrap_or(0);
        let mut rest = bytes - whole * size;
        let mut expected = whole as i64 * m.entries.len() as i64;
        for (_, kind) in &m.entries {
            if rest == 0 {
                break;
            }
            if rest < kind.size() {
                expected = i64::from(UNDEFINED);
                break;
            }
            rest -= kind.size();
            expected += 1;
        }
        assert_eq!(t.elements_in(bytes), expected, "{bytes} bytes");
        let count = whole as i64;
        let exact = bytes == whole * size;
        assert_eq!(t.count_in(bytes), if exact { count } else { i64::from(UNDEFINED) });
    }
}

fn check(spec: &Spec, count: u64, cuts: &[u16]) {
    let mut table = TypeTable::new();
    let (h, m) = spec.build(&mut table);
    if m.entries.len() > ENTRIES_MAX {
        return;
    }
    let t = table.get(h).unwrap();
    assert_eq!(t.size, m.size());
    assert_eq!((t.lb, t.extent), (m.bounds().0, m.extent()), "bounds");
    let low = m.entries.iter().map(|e| e.0).min().unwrap_or(0);
    let high = m.entries.iter().map(|e| e.0 + e.1.size() as i64).max().unwrap_or(0);
    assert_eq!((t.true_lb, t.true_extent), (low, high - low), "true bounds");
    assert_eq!(t.signature().elements(), m.entries.len() as u64);
    check_run(&t, &m, 1);
    check_run(&t, &m, count);
    check_packing(&t, &m, count, cuts);
    if m.size() < 500 {
        check_elements(&t, &m);
    }
    // Only the outermost handle is left.
    assert_eq!(table.derived_count(), usize::from(h.is_dynamic()));
}

/// Many small cases; failures are printed, not written beside the sources.
fn config() -> ProptestConfig {
    ProptestConfig { cases: 3000, failure_persistence: None, ..Default::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn random_types_agree_with_the_naive_typemap(
        spec in spec(),
        count in 0u64..4,
        cuts in prop::collection::vec(any::<u16>(), 2..16),
    ) {
        check(&spec, count, &cuts);
    }

    #[test]
    fn external32_gives_back_what_it_was_given(spec in spec(), count in 0u64..3) {
        let mut table = TypeTable::new();
        let (h, m) = spec.build(&mut table);
        prop_assume!(m.entries.len() <= ENTRIES_MAX);
        let t = table.get(h).unwrap();
        let (origin, len) = memory(&m, count);
        let mem = pattern(len);
        let size = t.external_size(b"external32", count).unwrap();
        let mut out = vec![0; size as usize + 3];
        let mut position = 3;
        // SAFETY: `mem` and `back` hold `count` elements at `origin`.
        unsafe {
            let buf = mem[origin..].as_ptr();
            t.pack_external(b"external32", buf, count, &mut out, &mut position).unwrap();
        }
        prop_assert_eq!(position, size + 3);
        let mut back = vec![0xEE; len];
        let mut naive = back.clone();
        stream(&m, count, origin).into_iter().for_each(|i| naive[i] = mem[i]);
        position = 3;
        // SAFETY: see above.
        unsafe {
            let buf = back[origin..].as_mut_ptr();
            t.unpack_external(b"external32", &out, &mut position, buf, count).unwrap();
        }
        prop_assert_eq!(back, naive);
        // Every word of the stream is reversed.
        let mut at = 3;
        for i in 0..count as i64 {
            for (disp, kind) in &m.entries {
                let start = (origin as i64 + i * m.extent() + disp) as usize;
                let size = kind.size() as usize;
                let word = if *kind == crate::datatype::Basic::C64 { 8 } else { size };
                for w in 0..size / word {
                    let mut native = mem[start + w * word..start + (w + 1) * word].to_vec();
                    native.reverse();
                    prop_assert_eq!(&out[at..at + word], &native[..]);
                    at += word;
                }
            }
        }
    }
}
