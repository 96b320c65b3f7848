//! What the C library told a rank, read out of its determinant log by somebody else.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{CALL_SHIFT, K_TOLD, KIND_SHIFT, PACKED_BYTES, VALUE, What, words};
use crate::segment::Segment;

/// Longest answer that is read here.
const MOST_BYTES: usize = 64;

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    pub what: What,
    /// Its first bytes.
    pub bytes: &'a [u8],
}

/// Calls `found` with what the log of `rank` has of these kinds, in order. The rank may run: what
/// it records meanwhile may be missing.
pub fn told(seg: &Segment, rank: u32, kinds: &[What], mut found: impl FnMut(Told<'_>)) {
    let ctl = seg.rank(rank);
    let word = |at: u64| seg.det(rank, at).load(Relaxed);
    let (mut at, tail) = (ctl.det_trim.load(Acquire), ctl.det_tail.load(Acquire));
    while at < tail {
        let head = word(at);
        let count = words(head, tail - at);
        let number = head >> CALL_SHIFT & 0xff;
        let kind = kinds.iter().find(|what| **what as u64 == number);
        if let Some(what) = kind.filter(|_| head >> KIND_SHIFT == K_TOLD) {
            let mut room = [0; MOST_BYTES];
            let packed = (at + 1..at + count)
                .flat_map(|at| word(at).to_le_bytes().into_iter().take(PACKED_BYTES as usize));
            let told = MOST_BYTES.min((head & VALUE) as usize);
            let filled = room[..told].iter_mut().zip(packed).map(|(to, byte)| *to = byte).count();
            found(Told { what: *what, bytes: &room[..filled] });
        }
        at += count;
    }
}

/// What stands in the log for a file that is appended to: of this machine, by its device and inode
/// number.
pub fn file_number(dev: u64, ino: u64) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    dev.wrapping_mul(FACTOR) ^ ino
}

/// The files to which a rank has recorded that it appended ([`file_number`]).
pub fn appended(seg: &Segment, rank: u32) -> BTreeSet<u64> {
    const FILE_AT: usize = 8;
    let mut files = BTreeSet::new();
    told(seg, rank, &[What::AppendBegun], |told| {
        let file = told.bytes.get(FILE_AT..).and_then(|bytes| bytes.first_chunk::<8>());
        files.extend(file.map(|bytes| u64::from_le_bytes(*bytes)));
    });
    files
}
