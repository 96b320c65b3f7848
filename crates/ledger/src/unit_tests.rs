//! What ranks of a unit send each other: given up when it is taken, kept while a set is taken, and
//! back after it was gone back to.

use super::*;
use crate::entry::Envelope;
use crate::reader::Reader;
use crate::saved;
use crate::segment::{FT_LOGGED, Geometry};
use crate::sendlog::{Append, Outgoing, SendLog, released};
use std::fs::File;
use std::sync::atomic::Ordering::Acquire;

/// Ranks 0 and 1 are one unit, rank 2 is another.
fn world() -> (File, &'static Segment) {
    let (fd, seg) = Segment::create("u", Geometry::new(3, 8 << 20), FT_LOGGED, 1).unwrap();
    let seg: &'static Segment = Box::leak(Box::new(seg));
    bind(seg, &Units::on_nodes(vec![0, 0, 1]));
    (File::from(fd), seg)
}

fn send(log: &mut SendLog, dst: u32, tag: i32) -> Append {
    let env = Envelope { len: 5000, ctx: 0, tag, crank: 0, flags: 0 };
    log.append(dst, &mut Outgoing::new(env), |_, out| out.fill(tag as u8)).unwrap()
}

/// Reads `count` messages, as the receiver does; returns their tags.
fn take(
    seg: &'static Segment,
    reader: &mut Reader,
    (src, dst): (u32, u32),
    count: usize,
) -> Vec<i32> {
    let mut tags = Vec::new();
    while tags.len() < count {
        let Some(entry) = reader.peek().unwrap() else { break };
        reader.pass(&entry);
        if entry.frag > 0 {
            // SAFETY: `peek` checked that the entry holds that many bytes.
            let bytes = unsafe { std::slice::from_raw_parts(entry.payload, entry.frag as usize) };
            assert!(bytes.iter().all(|b| *b == entry.env.tag as u8));
            tags.push(entry.env.tag);
        }
        seg.channel(src, dst).need.store(reader.pos, Release);
    }
    tags
}

#[test]
fn only_what_leaves_the_unit_is_retained() {
    let (_, seg) = world();
    assert!(is_inner(seg, 0, 1) && is_inner(seg, 1, 0) && !is_inner(seg, 0, 2));
    for dst in [1, 2] {
        seg.channel(0, dst).need.store(7000, Relaxed);
        seg.channel(0, dst).trim.store(100, Relaxed);
    }
    assert_eq!(released(seg, seg.channel(0, 1)), 7000);
    assert_eq!(released(seg, seg.channel(0, 2)), 100);
}

/// Ten times as much passes within a unit as the log holds.
#[test]
fn a_log_never_fills_within_a_unit() {
    let (_, seg) = world();
    let (mut log, mut reader) = (SendLog::new(seg, 0), Reader::new(seg, 0, 1));
    for tag in 0..16_000 {
        assert_eq!(send(&mut log, 1, tag % 100), Append::Whole, "message {tag}");
        assert_eq!(take(seg, &mut reader, (0, 1), 1), [tag % 100]);
    }
    assert!(seg.rank(0).chunks_used.load(Relaxed) < 4);
}

#[test]
fn what_was_on_its_way_at_a_set_comes_back_with_it() {
    let (file, seg) = world();
    let (mut log, mut reader) = (SendLog::new(seg, 0), Reader::new(seg, 0, 1));
    for tag in 0..100 {
        send(&mut log, 1, tag);
        send(&mut log, 2, tag);
    }
    assert_eq!(take(seg, &mut reader, (0, 1), 30).len(), 30);
    let at_set = reader.pos;
    let held = saved::hold(&file, seg, 0).unwrap();
    // They go on, and the log forgets what the set needs.
    assert_eq!(take(seg, &mut reader, (0, 1), 70).len(), 70);
    for tag in 0..200 {
        send(&mut log, 1, tag);
        take(seg, &mut reader, (0, 1), 1);
    }
    let to = tempfile::tempfile().unwrap();
    saved::save_held(&file, seg, 0, held, &to).unwrap();
    let loaded = saved::load(&to, "u").unwrap();
    let sent_out = seg.channel(0, 2).chunks_next.load(Acquire);
    [0, 1].into_iter().for_each(|src| unsend(seg, src, &[0, 1]));
    unread(seg, &[0, 1]);
    assert_eq!(seg.channel(0, 1).need.load(Relaxed), 0);
    assert!(Reader::new(seg, 0, 1).peek().unwrap().is_none(), "nothing is left");
    saved::install(&loaded, seg, |dst| is_inner(seg, 0, dst)).unwrap();
    assert_eq!(seg.channel(0, 2).chunks_next.load(Acquire), sent_out, "that is another unit's");
    let mut again = Reader::new(seg, 0, 1);
    assert!(again.seek(at_set).unwrap());
    assert_eq!(take(seg, &mut again, (0, 1), 100), (30..100).collect::<Vec<i32>>());
}
