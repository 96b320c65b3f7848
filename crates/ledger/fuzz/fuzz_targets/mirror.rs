//! Any bytes as pieces of a stream from another node: refused, or read through by the reader.
//!
//! Kept true: what was taken is read without damage; what was refused changed nothing.
#![no_main]

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_ledger::mirror::{self, Mirror, Pool};
use eyrie_ledger::reader::Reader;
use eyrie_ledger::segment::{FT_LOGGED, Geometry, Segment};
use libfuzzer_sys::fuzz_target;

const CHUNK: u32 = 4096;

fn segment() -> &'static Segment {
    static SEGMENT: OnceLock<&'static Segment> = OnceLock::new();
    SEGMENT.get_or_init(|| {
        let geo = Geometry { ranks: 2, chunk_bytes: CHUNK, pool_chunks: 4, det_words: 1024 };
        let (_, seg) = Segment::create_on("fuzz", geo, FT_LOGGED, 1, 1).expect("a segment");
        Box::leak(Box::new(seg))
    })
}

/// Takes a piece that is one large entry right into its place.
fn placed(mirror: &mut Mirror, seg: &Segment, pool: &mut Pool, piece: &[u8]) -> bool {
    let Some((head, payload)) = piece.split_first_chunk() else { return false };
    let bytes = piece.len() as u64;
    let Some(at) = mirror.place(seg, pool, 0, head, bytes) else { return false };
    // SAFETY: `place` vouches for as much behind the head as the piece has.
    unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), at, payload.len()) };
    assert!(mirror.placed(seg, pool, 0, head, bytes, |_| ()));
    true
}

fuzz_target!(|data: &[u8]| {
    let seg = segment();
    let mut pool = Pool::new(seg, 0);
    mirror::clear(seg, &mut pool, 1);
    let ctl = seg.channel(0, 1);
    ctl.chunks_first.store(0, Relaxed);
    ctl.chunks_next.store(0, Relaxed);
    let free = pool.free();
    assert_eq!(free, 4);
    let mut mirror = Mirror::open(seg, &mut pool, 1, 0);
    // A byte of length in slots before each piece; its first stamp is put right, as nothing else
    // would pass.
    let (mut rest, mut stamp) = (data, 0u64);
    while let Some((slots, more)) = rest.split_first() {
        let length = (usize::from(*slots) * 64).min(more.len());
        let mut piece = more[..length].to_vec();
        rest = &more[length..];
        if let Some(first) = piece.first_chunk_mut::<8>() {
            *first = (stamp + 1).to_le_bytes();
        }
        let before = mirror.have();
        let sync = |at| assert!(at >= before);
        if !placed(&mut mirror, seg, &mut pool, &piece)
            && mirror.take(seg, &mut pool, 0, &piece, sync).is_err()
        {
            assert_eq!(mirror.have(), before);
        }
        let mut reader = Reader::new(seg, 0, 1);
        stamp = 0;
        while let Some(entry) = reader.peek().expect("what was taken is sound") {
            reader.pass(&entry);
            stamp += 1;
        }
        assert!(reader.pos <= mirror.have());
    }
});
