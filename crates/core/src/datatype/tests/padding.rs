//! What means nothing is zero in the packed stream, wherever that is cut.

use crate::datatype::TypeTable;
use crate::datatype::predefined::{
    C_LONG_DOUBLE_COMPLEX, DOUBLE, INT, LONG_DOUBLE, LONG_DOUBLE_INT,
};
use crate::handle::Handle;

/// Types with x87 numbers, and where these begin in the packed stream of one element.
fn types(t: &mut TypeTable) -> Vec<(Handle, Vec<usize>)> {
    let parts = [INT, LONG_DOUBLE, C_LONG_DOUBLE_COMPLEX, LONG_DOUBLE_INT];
    let mixed = t.structure(&[1, 2, 1, 1], &[0, 16, 48, 80], &parts).unwrap();
    let mixed_at = vec![4, 20, 36, 52, 68];
    // Far too many elements to be written out.
    let nested = t.vector(300, 2, 3, mixed).unwrap();
    let nested = t.structure(&[1, 1], &[0, 112 * 900], &[nested, DOUBLE]).unwrap();
    let nested_at = (0..600).flat_map(|n| mixed_at.iter().map(move |at| n * 88 + at)).collect();
    let many = t.contiguous(3, LONG_DOUBLE).unwrap();
    vec![
        (LONG_DOUBLE, vec![0]),
        (C_LONG_DOUBLE_COMPLEX, vec![0, 16]),
        (LONG_DOUBLE_INT, vec![0]),
        (many, vec![0, 16, 32]),
        (mixed, mixed_at),
        (nested, nested_at),
    ]
}

#[test]
fn padding_is_cleared_wherever_the_stream_is_cut() {
    let mut t = TypeTable::new();
    for (handle, starts) in types(&mut t) {
        let d = t.get(handle).unwrap();
        assert!(d.is_padded());
        let (size, count) = (d.size as usize, 3);
        let mut expected = vec![7u8; size * count];
        for element in expected.chunks_mut(size) {
            starts.iter().for_each(|at| element[at + 10..at + 16].fill(0));
        }
        let memory = vec![7u8; d.extent as usize * count];
        let step = (size / 40).max(1);
        for cut in (0..=size * count).step_by(step) {
            let mut out = vec![9u8; size * count];
            let (a, b) = out.split_at_mut(cut);
            // SAFETY: the memory holds `count` elements, and the ranges lie within the stream.
            unsafe {
                d.pack_range(memory.as_ptr(), count as u64, 0, a);
                d.pack_range(memory.as_ptr(), count as u64, cut as u64, b);
            }
            assert!(out == expected, "{handle:?} cut at {cut}");
        }
    }
    assert!(!t.get(DOUBLE).unwrap().is_padded());
}
