//! Tests of mirrors: what was cut out of one segment's log is the same log in another.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use proptest::prelude::*;

use crate::entry::{Envelope, SYNC, entry_bytes};
use crate::mirror::{self, Mirror, Pool, Refused};
use crate::reader::Reader;
use crate::segment::{FT_LOGGED, Geometry, Segment};
use crate::sendlog::{Append, Outgoing, SendLog};
use crate::walk::{self, Walk};

const CHUNK: u32 = 64 * 1024;

fn segment(node: u32, pool_chunks: u32) -> &'static Segment {
    let geo = Geometry { ranks: 2, chunk_bytes: CHUNK, pool_chunks, det_words: 1024 };
    let (_, seg) = Segment::create_on("t", geo, FT_LOGGED, 2, node).unwrap();
    Box::leak(Box::new(seg))
}

fn send(log: &mut SendLog, number: u64, len: u64) -> Append {
    let flags = if number.is_multiple_of(5) { SYNC } else { 0 };
    let env = Envelope { len, ctx: 2, tag: number as i32, crank: 0, flags };
    let mut msg = Outgoing::new(env);
    loop {
        let fill = |off: u64, out: &mut [u8]| out.fill((number * 7 + off) as u8);
        match log.append(1, &mut msg, fill).unwrap() {
            Append::Part => {}
            done => return done,
        }
    }
}

/// Takes what `from` has of the stream into `to`, a few entries at once, or a large one.
fn copy(from: &Segment, walk: &mut Walk, to: &Segment, pool: &mut Pool, mirror: &mut Mirror) {
    loop {
        let (start, chain) = (walk.pos(), walk.chain());
        let (mut bytes, mut entries) = (0, 0);
        while entries < 3 && (bytes == 0 || !walk.pos().is_multiple_of(u64::from(CHUNK))) {
            let Some(spot) = walk.step(from).unwrap() else { break };
            (bytes, entries) = (bytes + spot.told, entries + 1);
            if bytes > 16_000 {
                break;
            }
        }
        if bytes == 0 {
            return;
        }
        let at = walk::stretch(from, 0, 1, start, bytes).unwrap();
        // SAFETY: `stretch` vouches for it; nobody writes there any more.
        let piece = unsafe { std::slice::from_raw_parts(at, bytes as usize) };
        if !placed(to, pool, mirror, chain, piece) {
            mirror.take(to, pool, chain, piece, |_| ()).unwrap();
        }
        assert_eq!(mirror.have(), walk.pos());
    }
}

/// Takes a piece right into its place, if it is one for that.
fn placed(to: &Segment, pool: &mut Pool, mirror: &mut Mirror, chain: u64, piece: &[u8]) -> bool {
    let (head, payload) = piece.split_first_chunk().unwrap();
    let bytes = piece.len() as u64;
    let Some(at) = mirror.place(to, pool, chain, head, bytes) else { return false };
    // SAFETY: `place` vouches for as much behind the head as the piece has.
    unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), at, payload.len()) };
    assert_eq!(mirror.place(to, pool, chain, head, bytes), Some(at));
    assert!(mirror.placed(to, pool, chain, head, bytes, |_| ()));
    true
}

fn read_all(seg: &'static Segment, reader: &mut Reader, first: u64, lens: &[u64]) {
    for (number, len) in (first..).zip(lens) {
        let mut got = 0;
        loop {
            let entry = reader.peek().unwrap().expect("an entry");
            assert_eq!((entry.env.tag, entry.env.len), (number as i32, *len));
            // SAFETY: `peek` vouches for `frag` bytes at `payload`.
            let part = unsafe { std::slice::from_raw_parts(entry.payload, entry.frag as usize) };
            assert!(part.iter().all(|b| *b == (number * 7 + got) as u8));
            got += entry.frag;
            reader.pass(&entry);
            if entry.is_last() {
                break;
            }
        }
        assert_eq!(got, *len);
        seg.channel(0, 1).need.store(reader.pos, Relaxed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_mirror_reads_like_the_log_and_becomes_it(
        lens in prop::collection::vec(
            prop_oneof![0u64..200, 900u64..1100, 30_000u64..200_000],
            2..40,
        ),
        half in 1usize..40,
    ) {
        let half = half.min(lens.len());
        let (a, b) = (segment(0, 256), segment(1, 256));
        let mut log = SendLog::new(a, 0);
        for (i, len) in lens.iter().enumerate().take(half) {
            prop_assert_eq!(send(&mut log, i as u64, *len), Append::Whole);
        }
        let mut pool = Pool::new(b, 0);
        let free = pool.free();
        let mut mirror = Mirror::open(b, &mut pool, 1, 0);
        let mut walk = Walk::from_chunk(a, 0, 1, 0).unwrap();
        copy(a, &mut walk, b, &mut pool, &mut mirror);
        let mut reader = Reader::new(b, 0, 1);
        read_all(b, &mut reader, 0, &lens[..half]);
        // What was read is given back; the receiver starts again where it is.
        mirror.release(b, &mut pool, reader.pos);
        let kept = free - pool.free();
        prop_assert!(kept <= 1, "{kept} chunks are kept");
        let mut mirror = Mirror::open(b, &mut pool, 1, reader.pos);
        prop_assert!(mirror.have() <= reader.pos);
        // The sender comes to this node and repeats itself: compared where the mirror is.
        for (i, len) in lens.iter().enumerate().skip(half) {
            prop_assert_eq!(send(&mut log, i as u64, *len), Append::Whole);
        }
        let mut walk = Walk::from_chunk(a, 0, 1, mirror.have() / u64::from(CHUNK));
        if let Some(walk) = &mut walk {
            while walk.pos() < mirror.have() {
                walk.step(a).unwrap().unwrap();
            }
            copy(a, walk, b, &mut pool, &mut mirror);
        }
        drop((mirror, pool));
        let mut again = SendLog::new(b, 0);
        for (i, len) in lens.iter().enumerate() {
            prop_assert_eq!(send(&mut again, i as u64, *len), Append::Whole);
        }
        read_all(b, &mut reader, half as u64, &lens[half..]);
        prop_assert!(reader.peek().unwrap().is_none());
    }
}

/// The first chunk of a log with `count` messages.
fn first_chunk(count: u64) -> Vec<u8> {
    let seg = segment(0, 8);
    let mut log = SendLog::new(seg, 0);
    (0..count).for_each(|i| assert_eq!(send(&mut log, i, 500), Append::Whole));
    // SAFETY: a chunk is that long, and nobody writes to it any more.
    unsafe { std::slice::from_raw_parts(seg.chunk(0, 0).as_ptr(), CHUNK as usize) }.to_vec()
}

#[test]
fn a_saved_chunk_is_added_and_what_is_there_stays() {
    let bytes = first_chunk(30);
    let seg = segment(1, 8);
    // A mirror has some of it already.
    let mut pool = Pool::new(seg, 0);
    let mut mirror = Mirror::open(seg, &mut pool, 1, 0);
    mirror.take(seg, &mut pool, 0, &bytes[..576 * 10], |_| ()).unwrap();
    drop((mirror, pool));
    mirror::install(seg, (0, 1), 0, (0, 0), &bytes).unwrap();
    let mut reader = Reader::new(seg, 0, 1);
    read_all(seg, &mut reader, 0, &[500; 30]);
    assert!(reader.peek().unwrap().is_none());
    let mut again = SendLog::new(seg, 0);
    (0..40).for_each(|i| assert_eq!(send(&mut again, i, 500), Append::Whole));
    assert_eq!(mirror::install(seg, (0, 1), 0, (0, 5), &bytes), Err(Refused::Chain(0)));
}

#[test]
fn a_piece_that_is_wrong_anywhere_changes_nothing() {
    let bytes = first_chunk(3);
    let seg = segment(1, 8);
    let mut pool = Pool::new(seg, 0);
    let mut mirror = Mirror::open(seg, &mut pool, 1, 0);
    let good = &bytes[..576 * 2];
    for (at, value) in [(0, 9), (576, 9), (28, 0xFF), (30, 0xFF), (32, 0xF3), (576 + 33, 1)] {
        let mut bad = good.to_vec();
        bad[at] = value;
        assert!(mirror.take(seg, &mut pool, 0, &bad, |_| ()).is_err(), "byte {at}");
    }
    for length in [0, 30, 575, 577] {
        assert!(mirror.take(seg, &mut pool, 0, &good[..length], |_| ()).is_err(), "{length}");
    }
    assert!(Reader::new(seg, 0, 1).peek().unwrap().is_none());
    assert_eq!(pool.free(), 8);
    let mut sync = Vec::new();
    mirror.take(seg, &mut pool, 0, good, |at| sync.push(at)).unwrap();
    assert_eq!((mirror.have(), &sync[..]), (576 * 2, &[0][..]));
    assert!(!walk::is_acknowledged(seg, 0, 1, 0));
    walk::acknowledge(seg, 0, 1, 0);
    assert!(walk::is_acknowledged(seg, 0, 1, 0));
    assert_eq!(seg.channel(0, 1).chunks_next.load(Acquire), 1);
    mirror.close(seg, &mut pool);
    assert_eq!(pool.free(), 8);
}

#[test]
fn what_has_come_of_an_entry_counts_when_all_of_it_is_there() {
    let a = segment(0, 8);
    let mut log = SendLog::new(a, 0);
    let lens = [500, 20_000, 30_000, 10_000];
    for (i, len) in lens.iter().enumerate() {
        assert_eq!(send(&mut log, i as u64, *len), Append::Whole);
    }
    let piece = |from: u64, bytes: u64| {
        let at = walk::stretch(a, 0, 1, from, bytes).unwrap();
        // SAFETY: `stretch` vouches for it; nobody writes there any more.
        unsafe { std::slice::from_raw_parts(at, bytes as usize) }
    };
    let seg = segment(1, 8);
    let (mut pool, mut reader) = (Pool::new(seg, 0), Reader::new(seg, 0, 1));
    let mut mirror = Mirror::open(seg, &mut pool, 1, 0);
    let first = piece(0, 576);
    mirror.take(seg, &mut pool, 0, first, |_| ()).unwrap();
    read_all(seg, &mut reader, 0, &lens[..1]);
    let large = piece(576, entry_bytes(20_000));
    let (head, payload) = large.split_first_chunk().unwrap();
    let bytes = large.len() as u64;
    for (at, value) in [(0, 9), (28, 0xFF), (32, 0xF3)] {
        let mut bad = *head;
        bad[at] = value;
        assert!(mirror.place(seg, &mut pool, 0, &bad, bytes).is_none(), "byte {at}");
        assert!(!mirror.placed(seg, &mut pool, 0, &bad, bytes, |_| ()));
    }
    assert!(mirror.place(seg, &mut pool, 0, head, bytes - 64).is_none());
    let at = mirror.place(seg, &mut pool, 0, head, bytes).unwrap();
    // SAFETY: `place` vouches for more.
    unsafe { std::ptr::write_bytes(at, 0xFF, 10_000) };
    assert!(reader.peek().unwrap().is_none());
    // Its sender comes here: behind what is published nothing may look like an entry.
    mirror.level(seg);
    // SAFETY: `place` vouches for that much.
    assert!(unsafe { std::slice::from_raw_parts(at, 10_000) }.iter().all(|b| *b == 0));
    // Or it goes on.
    assert!(placed(seg, &mut pool, &mut mirror, 0, large));
    assert_eq!(payload.len() as u64, bytes - 64);
    read_all(seg, &mut reader, 1, &lens[1..2]);
    assert!(reader.peek().unwrap().is_none());
}

/// A rank comes to a node whose receiver has read on, sends all once more, and dies there: the
/// chunks that had been given back before it came are in use again.
#[test]
fn what_is_sent_again_where_a_mirror_was_given_back_is_kept() {
    let seg = segment(1, 16);
    let mut pool = Pool::new(seg, 0);
    let _ = Mirror::open(seg, &mut pool, 1, 3 * u64::from(CHUNK));
    let mut log = SendLog::new(seg, 0);
    assert_eq!(send(&mut log, 0, 1000), Append::Whole);
    assert!(walk::chunk_index(seg, 0, 1, 0).is_some());
    drop(log);
    drop(SendLog::new(seg, 0));
    assert_eq!(seg.rank(0).chunks_used.load(Relaxed), 1);
    assert_eq!(Pool::new(seg, 0).free(), 15);
}
