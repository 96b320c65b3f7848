//! Tests of the send log against its reader: delivery, repetition after a restart, release.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use proptest::prelude::*;

use crate::entry::Envelope;
use crate::reader::Reader;
use crate::segment::{FT_LOGGED, Geometry, Segment};
use crate::sendlog::{Append, Outgoing, SendLog};

const CHUNK: u32 = 64 * 1024;

fn segment(chunks: u32) -> &'static Segment {
    let geo = Geometry { ranks: 2, chunk_bytes: CHUNK, pool_chunks: chunks, det_words: 1024 };
    let (_, seg) = Segment::create("t", geo, FT_LOGGED, 2).unwrap();
    Box::leak(Box::new(seg))
}

fn payload(number: u64, len: u64) -> Vec<u8> {
    (0..len).map(|i| (number.wrapping_mul(31) ^ i.wrapping_mul(7)) as u8).collect()
}

fn send(log: &mut SendLog, dst: u32, number: u64, len: u64) -> Result<Append, String> {
    let bytes = payload(number, len);
    let env = Envelope { len, ctx: 2, tag: number as i32, crank: 0, flags: 0 };
    let mut msg = Outgoing::new(env);
    loop {
        let done = log.append(dst, &mut msg, |off, out| {
            let off = off as usize;
            out.copy_from_slice(&bytes[off..off + out.len()]);
        });
        match done.map_err(|d| d.to_string())? {
            Append::Part => {}
            other => return Ok(other),
        }
    }
}

fn receive(reader: &mut Reader) -> Option<(i32, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        let entry = reader.peek().unwrap()?;
        // SAFETY: `peek` vouches for `frag` bytes at `payload`.
        let part = unsafe { std::slice::from_raw_parts(entry.payload, entry.frag as usize) };
        bytes.extend_from_slice(part);
        reader.pass(&entry);
        if entry.is_last() {
            return Some((entry.env.tag, bytes));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn messages_arrive_whole_and_in_order_and_can_be_repeated(
        lens in prop::collection::vec(
            prop_oneof![0u64..200, 900u64..1100, 30_000u64..200_000],
            1..60,
        ),
        restart in 0usize..60,
    ) {
        let seg = segment(256);
        let mut log = SendLog::new(seg, 0);
        for (i, len) in lens.iter().enumerate().take(restart) {
            prop_assert_eq!(send(&mut log, 1, i as u64, *len).unwrap(), Append::Whole);
        }
        // A new incarnation from the beginning repeats everything and goes on.
        let mut log = SendLog::new(seg, 0);
        prop_assert_eq!(log.behind(), restart.min(lens.len()) as u64);
        for (i, len) in lens.iter().enumerate() {
            prop_assert_eq!(send(&mut log, 1, i as u64, *len).unwrap(), Append::Whole);
        }
        prop_assert_eq!(log.behind(), 0);
        prop_assert_eq!(seg.channel(0, 1).msgs.load(Relaxed), lens.len() as u64);
        let mut reader = Reader::new(seg, 0, 1);
        for (i, len) in lens.iter().enumerate() {
            prop_assert_eq!(receive(&mut reader), Some((i as i32, payload(i as u64, *len))));
        }
        prop_assert_eq!(receive(&mut reader), None);
    }
}

#[test]
fn another_payload_or_header_in_a_repetition_is_reported() {
    let seg = segment(8);
    let mut log = SendLog::new(seg, 0);
    send(&mut log, 1, 1, 100).unwrap();
    send(&mut log, 1, 2, 50_000).unwrap();
    let mut again = SendLog::new(seg, 0);
    let longer = send(&mut again, 1, 1, 101).unwrap_err();
    assert!(longer.contains("0 -> 1, message 1 (100 bytes, tag 1"), "{longer}");
    let mut again = SendLog::new(seg, 0);
    send(&mut again, 1, 1, 100).unwrap();
    let bytes = payload(9, 50_000);
    let env = Envelope { len: 50_000, ctx: 2, tag: 2, crank: 0, flags: 0 };
    let other = again.append(1, &mut Outgoing::new(env), |off, out| {
        out.copy_from_slice(&bytes[off as usize..off as usize + out.len()]);
    });
    assert!(other.unwrap_err().0.contains("message 2 (50000 bytes"));
}

#[test]
fn a_full_log_goes_on_when_it_is_trimmed_and_a_restart_skips_what_is_gone() {
    let seg = segment(4);
    let mut log = SendLog::new(seg, 0);
    let mut sent = 0;
    while send(&mut log, 1, sent, 1000).unwrap() == Append::Whole {
        sent += 1;
    }
    // `need` alone releases nothing in a protected job.
    seg.channel(0, 1).need.store(u64::from(CHUNK) * 2, Relaxed);
    assert_eq!(send(&mut log, 1, sent, 1000).unwrap(), Append::Full);
    seg.channel(0, 1).trim.store(u64::from(CHUNK) * 2, Relaxed);
    for _ in 0..80 {
        assert_eq!(send(&mut log, 1, sent, 1000).unwrap(), Append::Whole);
        sent += 1;
    }
    assert_eq!(seg.channel(0, 1).chunks_first.load(Acquire), 2);
    // Repeats through the released chunks; the chain is checked where the kept ones begin.
    let mut again = SendLog::new(seg, 0);
    for i in 0..sent {
        assert_eq!(send(&mut again, 1, i, 1000).unwrap(), Append::Whole);
    }
    assert_eq!(again.behind(), 0);
    let mut other = SendLog::new(seg, 0);
    let mut result = Ok(Append::Whole);
    for i in 0..sent {
        result = send(&mut other, 1, i, if i == 3 { 1001 } else { 1000 });
        if result.is_err() {
            break;
        }
    }
    assert!(result.unwrap_err().contains("before chunk 2 differ"));
}

#[test]
fn an_acknowledgement_outlives_the_chunk_it_stood_in() {
    let seg = segment(4);
    let mut log = SendLog::new(seg, 0);
    let env = Envelope { len: 8, ctx: 2, tag: 1, crank: 0, flags: crate::entry::SYNC };
    let mut msg = Outgoing::new(env);
    assert_eq!(log.append(1, &mut msg, |_, out| out.fill(1)).unwrap(), Append::Whole);
    assert!(!log.acknowledged(1, msg.start));
    let mut reader = Reader::new(seg, 0, 1);
    reader.peek().unwrap().unwrap().acknowledge();
    assert!(log.acknowledged(1, msg.start));
    // Repeating the send finds the acknowledgement still there.
    let mut again = SendLog::new(seg, 0);
    let mut msg = Outgoing::new(env);
    assert_eq!(again.append(1, &mut msg, |_, out| out.fill(1)).unwrap(), Append::Whole);
    assert!(again.acknowledged(1, msg.start));
}

#[test]
fn a_stamp_that_no_sender_writes_is_damage() {
    let seg = segment(4);
    let mut log = SendLog::new(seg, 0);
    send(&mut log, 1, 1, 10).unwrap();
    // SAFETY: the first chunk of the pool holds the first entry; its stamp is the first word.
    unsafe { seg.chunk(0, 0).cast::<u64>().write(99) };
    assert!(Reader::new(seg, 0, 1).peek().is_err());
}

#[test]
fn what_is_made_ready_is_bounded_and_changes_nothing() {
    let seg = segment(16);
    let mut log = SendLog::new(seg, 0);
    assert_eq!(send(&mut log, 1, 0, 1000), Ok(Append::Whole));
    assert!(!log.prepare(), "one chunk may be all that is needed");
    let mut reader = Reader::new(seg, 0, 1);
    assert_eq!(receive(&mut reader).map(|m| m.0), Some(0));
    for number in 1..12 {
        assert_eq!(send(&mut log, 1, number, u64::from(CHUNK) - 2000), Ok(Append::Whole));
        // Some of the times it is broken off.
        let most = if number % 3 == 0 { 5 } else { 1000 };
        let steps = (0..most).take_while(|_| log.prepare()).count();
        assert!(steps <= 4 * CHUNK as usize / 4096);
        assert_eq!(receive(&mut reader), Some((number as i32, payload(number, 63_536))));
    }
    while log.prepare() {}
    assert!(!log.prepare());
}

#[test]
fn a_message_that_was_broken_off_is_repeated_as_far_as_it_came() {
    let seg = segment(2);
    let mut log = SendLog::new(seg, 0);
    assert_eq!(send(&mut log, 1, 0, 1000), Ok(Append::Whole));
    // There is room for a part of it.
    assert_eq!(send(&mut log, 1, 1, 3 * u64::from(CHUNK)), Ok(Append::Full));
    assert_eq!(crate::walk::end(seg, 0, 1), Some(2 * u64::from(CHUNK)));
    let mut again = SendLog::new(seg, 0);
    assert_eq!((again.behind(), again.is_behind()), (1, true));
    assert_eq!(send(&mut again, 1, 0, 1000), Ok(Append::Whole));
    assert_eq!((again.behind(), again.is_behind()), (0, true));
    // It stands where the one before did, though the message is not whole.
    assert_eq!(send(&mut again, 1, 1, 3 * u64::from(CHUNK)), Ok(Append::Full));
    assert!(!again.is_behind());
}

#[test]
fn padding_before_a_chunk_that_was_not_to_be_had_is_not_waited_for() {
    let seg = segment(1);
    let mut log = SendLog::new(seg, 0);
    assert_eq!(send(&mut log, 1, 0, u64::from(CHUNK) - 200), Ok(Append::Whole));
    let end = crate::walk::end(seg, 0, 1);
    assert_eq!(end, Some(log.position(1)));
    // Padding, and then nothing.
    assert_eq!(send(&mut log, 1, 1, u64::from(CHUNK) / 2), Ok(Append::Full));
    assert!(log.position(1) > end.unwrap());
    assert_eq!(crate::walk::end(seg, 0, 1), end);
    let mut again = SendLog::new(seg, 0);
    assert_eq!(send(&mut again, 1, 0, u64::from(CHUNK) - 200), Ok(Append::Whole));
    assert!(!again.is_behind());
}
