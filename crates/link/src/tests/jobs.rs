//! Messages cross, whatever happens to connections and nodes.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::mpsc;
use std::thread;

use eyrie_channel::Endpoint;
use eyrie_control::auth::Key;
use eyrie_ledger::entry::{Envelope, SYNC};
use eyrie_ledger::mirror::Pool;
use eyrie_ledger::reader::Reader;
use eyrie_ledger::segment::{FT_LOGGED, Geometry, STATE_RUNNING, Segment};
use eyrie_ledger::sendlog::Outgoing;
use eyrie_tls::Secret;

use crate::testing::Cluster;

const CHUNK: u32 = 64 * 1024;

pub(super) fn geometry(ranks: u32, pool_chunks: u32) -> Geometry {
    Geometry { ranks, chunk_bytes: CHUNK, pool_chunks, det_words: 1 << 17 }
}

/// Length and content of message `number`: of every kind of size, the same in every life.
pub(super) fn length(number: u32) -> usize {
    match number % 7 {
        0 => 0,
        1 => 24,
        2 => 900 + (number as usize * 13) % 200,
        3 => 40_000,
        4 => 100_000 + number as usize,
        _ => (number as usize * 137) % 9000,
    }
}

pub(super) fn byte(number: u32, at: usize) -> u8 {
    (number as usize * 31 + at * 7 + (at >> 8)) as u8
}

/// A rank's end of its channels, in a new life.
pub(super) fn join(segment: &'static Segment, rank: u32) -> Endpoint {
    segment.rank(rank).incarnation.fetch_add(1, Relaxed);
    let end = Endpoint::join(segment, rank);
    assert_eq!(segment.rank(rank).state.load(Acquire), STATE_RUNNING);
    end
}

/// Sends message `number`, waiting for log space if it must. Returns where it begins.
pub(super) fn send(end: &mut Endpoint, dst: u32, number: u32, flags: u32) -> u64 {
    let len = length(number) as u64;
    let mut out = Outgoing::new(Envelope { len, ctx: 1, tag: number as i32, crank: 0, flags });
    while !end.append(dst, &mut out, |from, to| {
        to.iter_mut().zip(from as usize..).for_each(|(b, at)| *b = byte(number, at));
    }) {
        thread::yield_now();
    }
    out.start
}

/// Receives message `number` from `src` and holds it against what it must be. False: given up.
pub(super) fn receive(end: &mut Endpoint, src: u32, number: u32, give_up: &AtomicBool) -> bool {
    let mut got = 0;
    loop {
        let Some(entry) = end.peek(src) else {
            if give_up.load(Relaxed) {
                return false;
            }
            thread::yield_now();
            continue;
        };
        assert_eq!((entry.env.tag, entry.env.len), (number as i32, length(number) as u64));
        assert_eq!(entry.is_first(), got == 0);
        // SAFETY: `peek` vouches for `frag` bytes at `payload`.
        let part = unsafe { std::slice::from_raw_parts(entry.payload, entry.frag as usize) };
        for (i, b) in part.iter().enumerate() {
            assert_eq!(*b, byte(number, got + i), "message {number}, byte {}", got + i);
        }
        got += part.len();
        if entry.flags & SYNC != 0 && entry.is_first() {
            end.acknowledge(src, &entry);
        }
        end.consume(src, &entry);
        if entry.is_last() {
            assert_eq!(got, length(number));
            return true;
        }
    }
}

pub(super) static NEVER: AtomicBool = AtomicBool::new(false);

#[test]
fn nothing_is_lost_or_doubled_when_connections_are_cut_again_and_again() {
    for encrypted in [false, true] {
        let secret = Secret::new(Key::new().unwrap(), encrypted).unwrap();
        cut_again_and_again(&Cluster::of(2, geometry(2, 1024), FT_LOGGED, 1, secret));
    }
}

pub(super) fn cut_again_and_again(cluster: &Cluster) {
    const COUNT: u32 = 600;
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    let received = AtomicU32::new(0);
    thread::scope(|scope| {
        for me in [0, 1] {
            let (received, segments) = (&received, &segments);
            scope.spawn(move || {
                let mut end = join(segments[me as usize], me);
                for number in 0..COUNT {
                    send(&mut end, 1 - me, number, 0);
                    if number >= 20 {
                        assert!(receive(&mut end, 1 - me, number - 20, &NEVER));
                        received.fetch_add(1, Relaxed);
                    }
                }
                for number in COUNT - 20..COUNT {
                    assert!(receive(&mut end, 1 - me, number, &NEVER));
                    received.fetch_add(1, Relaxed);
                }
            });
        }
        // A cut every few dozen messages, at either end.
        let mut next = 30;
        while received.load(Relaxed) < 2 * COUNT {
            if received.load(Relaxed) >= next {
                cluster.node(next % 2).links.cut();
                next += 30 + next % 41;
            }
            thread::yield_now();
        }
    });
    let status = cluster.node(0).links.status();
    assert!(status[0].connects > 3, "{status:?}");
    assert_eq!(cluster.node(1).links.refused().malformed, 0);
}

#[test]
fn a_receiver_on_a_new_node_gets_everything_again_from_where_it_needs_it() {
    const COUNT: u32 = 200;
    let mut cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 0);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    let (died, mourn) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut end = join(segments[0], 0);
            for number in 0..COUNT {
                send(&mut end, 1, number, 0);
            }
        });
        scope.spawn(move || {
            let mut end = join(segments[1], 1);
            let mut need = 0;
            for number in 0..90 {
                if number == 60 {
                    need = end.front(0);
                }
                assert!(receive(&mut end, 0, number, &NEVER));
            }
            died.send(need).unwrap();
        });
        let need = mourn.recv().unwrap();
        cluster.kill(1);
        cluster.revive(1);
        // From its beginning, then (once more dead) from a checkpoint on.
        let mut end = join(cluster.attach(1, &[0, 0]), 1);
        (0..COUNT).for_each(|number| assert!(receive(&mut end, 0, number, &NEVER)));
        cluster.kill(1);
        cluster.revive(1);
        let segment = cluster.attach(1, &[need, 0]);
        segment.channel(0, 1).need.store(need, Relaxed);
        let mut reader = Reader::new(segment, 0, 1);
        while !reader.seek(need).unwrap() {
            thread::yield_now();
        }
        let mut number = 60;
        while number < COUNT {
            match reader.peek().unwrap() {
                Some(entry) => {
                    assert_eq!(entry.env.tag, number as i32);
                    number += u32::from(entry.is_last());
                    reader.pass(&entry);
                }
                None => thread::yield_now(),
            }
        }
    });
}

/// The sender's life: `COUNT` messages, every tenth waited for.
fn sender_life(end: &mut Endpoint, from: u32, to: u32) {
    for number in from..to {
        let sync = number % 10 == 9;
        let start = send(end, 1, number, if sync { SYNC } else { 0 });
        while sync && !end.acknowledged(1, start) {
            thread::yield_now();
        }
    }
}

#[test]
fn a_sender_on_a_new_node_repeats_itself_and_is_read_once() {
    const COUNT: u32 = 160;
    for (moves, died_at) in [(false, 70), (true, 83), (false, 1), (true, 1), (true, 159)] {
        let mut cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 0);
        let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut end = join(segments[1], 1);
                (0..COUNT).for_each(|number| assert!(receive(&mut end, 0, number, &NEVER)));
            });
            let mut end = join(segments[0], 0);
            sender_life(&mut end, 0, died_at);
            cluster.kill(0);
            if moves {
                // Onto the node of its receiver: the mirror is its log now.
                cluster.move_to(0, 1);
            } else {
                cluster.revive(0);
            }
            let mut end = join(cluster.attach(0, &[0, 0]), 0);
            sender_life(&mut end, 0, COUNT);
        });
    }
}

#[test]
fn a_rank_that_moves_leaves_nothing_of_its_log_behind() {
    const CHUNKS: u32 = 64;
    let mut cluster = Cluster::new(2, geometry(2, CHUNKS), FT_LOGGED, 0);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    let mut end = join(segments[0], 0);
    for number in 0..40 {
        send(&mut end, number % 2, number, 0);
    }
    drop(end);
    let free = || Pool::new(segments[0], 0).free();
    assert!(free() + 4 < u64::from(CHUNKS), "both logs have chunks");
    cluster.move_to(0, 1);
    assert_eq!(free(), u64::from(CHUNKS));
}

#[test]
fn a_receiver_that_does_not_read_holds_up_no_other() {
    let cluster = Cluster::new(3, geometry(3, 256), FT_LOGGED, 0);
    let segments = [0, 1, 2].map(|r| cluster.attach(r, &[0, 0, 0]));
    let mut ends = [0, 1, 2].map(|r| join(segments[r as usize], r));
    let [first, second, third] = &mut ends;
    // Several times the window, but less than the log.
    for number in 0..150 {
        send(first, 1, number, 0);
    }
    send(first, 2, 0, 0);
    send(first, 2, 1, 0);
    assert!(receive(third, 0, 0, &NEVER) && receive(third, 0, 1, &NEVER));
    (0..150).for_each(|number| assert!(receive(second, 0, number, &NEVER)));
}

#[test]
fn what_is_not_retained_goes_through_a_small_log() {
    let cluster = Cluster::new(2, geometry(2, 8), 0, 0);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut end = join(segments[0], 0);
            sender_life(&mut end, 0, 400);
        });
        let mut end = join(segments[1], 1);
        (0..400).for_each(|number| assert!(receive(&mut end, 0, number, &NEVER)));
    });
}

#[test]
fn nothing_leaves_before_its_determinants_are_held_elsewhere() {
    let mut cluster = Cluster::new(3, geometry(3, 64), FT_LOGGED, 2);
    let segments = [0, 1, 2].map(|r| cluster.attach(r, &[0, 0, 0]));
    let mut ends = [0, 1].map(|r| join(segments[r as usize], r));
    let held = |cluster: &Cluster, node: u32| {
        let answer = cluster.node(node).links.replicas(|r| r.answer(&[0]));
        answer.held.get(&0).map_or(0, |w| w.end())
    };
    for number in 0..50 {
        ends[0].door.record_match(u64::from(number), 1);
        send(&mut ends[0], 1, number, 0);
        assert!(receive(&mut ends[1], 0, number, &NEVER));
        let words = u64::from(number + 1) * 2;
        assert!(held(&cluster, 1) >= words && held(&cluster, 2) >= words);
    }
    // So does what goes elsewhere.
    let (tell, hear) = mpsc::channel();
    ends[0].door.record_match(50, 1);
    cluster.node(0).links.leave(move || tell.send(()).unwrap());
    hear.recv().unwrap();
    assert!(held(&cluster, 1) >= 102 && held(&cluster, 2) >= 102);
    // A replica dies: what is left of them suffices, as there is no other node.
    cluster.kill(2);
    ends[0].door.record_match(51, 1);
    send(&mut ends[0], 1, 50, 0);
    assert!(receive(&mut ends[1], 0, 50, &NEVER));
    assert_eq!(held(&cluster, 1), 104);
}
