//! A log that is saved and loaded again, whole and damaged.

use super::*;
use crate::entry::Envelope;
use crate::reader::Reader;
use crate::segment::{FT_LOGGED, Geometry};
use crate::sendlog::{Append, Outgoing, SendLog};
use std::sync::atomic::Ordering::Relaxed;

/// A segment in which rank 0 has sent `messages` to rank 1.
fn written(messages: u64) -> (File, &'static Segment) {
    let (fd, segment) = Segment::create("t", Geometry::new(2, 8 << 20), FT_LOGGED, 1).unwrap();
    let segment: &'static Segment = Box::leak(Box::new(segment));
    let mut log = SendLog::new(segment, 0);
    for i in 0..messages {
        let env = Envelope { len: 5000, ctx: 0, tag: i as i32, crank: 0, flags: 0 };
        let mut message = Outgoing::new(env);
        let sent = log.append(1, &mut message, |_, out| out.fill(i as u8 + 1)).unwrap();
        assert_eq!(sent, Append::Whole);
    }
    for n in 0..100 {
        segment.det(1, n).store(n + 1, Relaxed);
    }
    segment.rank(1).det_tail.store(100, Relaxed);
    (File::from(fd), segment)
}

fn saved(messages: u64) -> File {
    let (file, segment) = written(messages);
    let from = From { need: vec![0, 0], det_pos: 40 };
    let output = [Recorded { first: 7, bytes: b"words".to_vec() }, Recorded::default()];
    let to = tempfile::tempfile().unwrap();
    let bytes = save(&file, segment, 1, &from, &output, &to).unwrap();
    assert_eq!(bytes, to.metadata().unwrap().len());
    to
}

#[test]
fn messages_events_and_output_come_back() {
    let loaded = load(&saved(100), "again").unwrap();
    assert_eq!((loaded.rank, loaded.output[0].first), (1, 7));
    assert_eq!(loaded.output[0].bytes, b"words");
    let segment: &'static Segment = Box::leak(Box::new(loaded.segment));
    let mut reader = Reader::new(segment, 0, 1);
    for i in 0..100 {
        let entry = loop {
            let entry = reader.peek().unwrap().unwrap();
            reader.pass(&entry);
            if entry.frag > 0 {
                break entry;
            }
        };
        assert_eq!((entry.env.tag, entry.frag), (i, 5000));
        // SAFETY: `peek` checked that the entry holds that many bytes.
        let payload = unsafe { std::slice::from_raw_parts(entry.payload, 5000) };
        assert!(payload.iter().all(|&b| b == i as u8 + 1), "message {i}");
    }
    assert!(reader.peek().unwrap().is_none());
    assert_eq!(segment.rank(1).det_tail.load(Relaxed), 100);
    assert_eq!((segment.det(1, 40).load(Relaxed), segment.det(1, 39).load(Relaxed)), (41, 0));
}

#[test]
fn damage_anywhere_is_found() {
    let whole = saved(3);
    let bytes = whole.metadata().unwrap().len();
    let mut content = vec![0; bytes as usize];
    whole.read_exact_at(&mut content, 0).unwrap();
    let refused = |content: &[u8], what: &str| {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content, 0).unwrap();
        assert!(load(&file, "t").is_err(), "{what}");
    };
    for at in (0..content.len()).step_by(content.len() / 400 + 1).chain(0..64) {
        let mut damaged = content.clone();
        damaged[at] ^= 0x20;
        refused(&damaged, &format!("bit of byte {at}"));
    }
    for length in [0, 8, 63, 64, 100, content.len() - 1] {
        refused(&content[..length], &format!("cut to {length}"));
    }
}

#[test]
fn all_that_is_not_released_comes_back() {
    let (file, segment) = written(200);
    let chunk = u64::from(segment.geometry().chunk_bytes);
    segment.channel(0, 1).trim.store(2 * chunk, Relaxed);
    segment.channel(0, 1).shown.store(77, Relaxed);
    segment.rank(1).det_trim.store(40, Relaxed);
    let to = tempfile::tempfile().unwrap();
    let bytes = save_all(&file, segment, &to).unwrap();
    assert_eq!(bytes, to.metadata().unwrap().len());
    assert!(load(&to, "again").is_err(), "it is not of one rank");
    assert!(load_all(&saved(3), "again").is_err(), "it is of one rank");
    let (_, again) = load_all(&to, "again").unwrap();
    let again: &'static Segment = Box::leak(Box::new(again));
    assert_eq!(again.channel(0, 1).shown.load(Relaxed), 0);
    assert_eq!((again.det(1, 40).load(Relaxed), again.det(1, 39).load(Relaxed)), (41, 0));
    let mut reader = Reader::new(again, 0, 1);
    assert!(reader.seek(2 * chunk).unwrap());
    let mut last = -1;
    while let Some(entry) = reader.peek().unwrap() {
        reader.pass(&entry);
        last = entry.env.tag;
    }
    assert_eq!(last, 199);
    // A sender that repeats itself from its beginning, also through what was released.
    let mut log = SendLog::new(again, 0);
    for i in 0..201 {
        let env = Envelope { len: 5000, ctx: 0, tag: i, crank: 0, flags: 0 };
        let mut message = Outgoing::new(env);
        let sent = log.append(1, &mut message, |_, out| out.fill(i as u8 + 1)).unwrap();
        assert_eq!(sent, Append::Whole);
    }
}
