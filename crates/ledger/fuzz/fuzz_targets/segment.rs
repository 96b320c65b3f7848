//! Feeds arbitrary bytes as a log chunk to the reader and as determinants to the door.
//!
//! Kept true: the reader hands out payloads inside the chunk only and comes to an end; the door
//! comes to an end whatever the log says.
#![no_main]

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_ledger::door::{Call, Door};
use eyrie_ledger::reader::Reader;
use eyrie_ledger::segment::{FT_LOGGED, Geometry, Segment};
use libfuzzer_sys::fuzz_target;

const CHUNK: usize = 4096;

fn segment() -> &'static Segment {
    static SEGMENT: OnceLock<&'static Segment> = OnceLock::new();
    SEGMENT.get_or_init(|| {
        let geo =
            Geometry { ranks: 1, chunk_bytes: CHUNK as u32, pool_chunks: 2, det_words: 1 << 17 };
        let (_, seg) = Segment::create("fuzz", geo, FT_LOGGED, 1).expect("a segment");
        Box::leak(Box::new(seg))
    })
}

fuzz_target!(|data: &[u8]| {
    let seg = segment();
    let base = seg.chunk(0, 0).as_ptr();
    let len = data.len().min(CHUNK);
    // SAFETY: the chunk is `CHUNK` bytes long and nobody else uses this segment.
    unsafe {
        base.write_bytes(0, CHUNK);
        base.copy_from_nonoverlapping(data.as_ptr(), len);
    }
    seg.dir(0, 0, 0).tag.store(1 << 24, Relaxed);
    let mut reader = Reader::new(seg, 0, 0);
    while let Ok(Some(entry)) = reader.peek() {
        let at = entry.payload as usize - base as usize;
        assert!(at + entry.frag as usize <= CHUNK);
        reader.pass(&entry);
    }
    let words = data.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight")));
    let mut tail = 0;
    for word in words {
        seg.det(0, tail).store(word, Relaxed);
        tail += 1;
    }
    seg.rank(0).det_tail.store(tail, Relaxed);
    let mut door = Door::new(seg, 0);
    for post in 0..16 {
        door.ask_post(post, true);
    }
    for _ in 0..1000 {
        if door.ask(Call::Test).is_err() && door.time(|| 1).is_err() {
            break;
        }
    }
});
