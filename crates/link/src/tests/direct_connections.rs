//! Large messages that come over direct connections, what the links need not carry then, and
//! callers that are none.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread;

use eyrie_channel::Endpoint;
use eyrie_ledger::datagram::{self, FRAME_BYTES, PREFIX_BYTES, Prefix};
use eyrie_ledger::segment::FT_LOGGED;

use super::datagrams::{exchange, taken};
use super::jobs::{NEVER, geometry, join, receive, send};
use crate::testing::Cluster;

/// The message with this number among those of 100 000 bytes.
fn large(number: u32) -> u32 {
    7 * number + 4
}

#[test]
fn large_messages_come_ahead_and_once_and_what_has_come_is_left_out() {
    let cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 1);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    // The mirror has come further than what the link brought of it would take it.
    let left_out = || {
        let sent = cluster.node(0).links.status()[0].sent_bytes;
        segments[1].channel(0, 1).here.load(Acquire) > sent
    };
    let count = exchange(segments, large, |number| {
        number >= 200 && left_out() && (0..2).all(|r| taken(segments[r], r as u32) > 10)
    });
    assert!((0..2).all(|r| taken(segments[r], r as u32) <= u64::from(count)));
    assert_eq!(cluster.node(0).links.refused().malformed, 0);
    assert_eq!(cluster.node(1).links.refused().malformed, 0);
}

#[test]
fn cut_connections_and_direct_connections_go_together() {
    let cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 1);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    exchange(segments, large, |number| {
        if number % 50 == 49 {
            cluster.node(number / 50 % 2).links.cut();
        }
        number >= 400 && taken(segments[1], 1) > 10
    });
}

/// Sends until a message has come ahead of the log; returns its number.
fn until_ahead(ends: &mut [Endpoint; 2]) -> u32 {
    let mut number = 0;
    loop {
        send(&mut ends[0], 1, large(number), 0);
        ends[0].leave();
        loop {
            match ends[1].peek(0) {
                Some(entry) if entry.is_early() => return number,
                Some(_) => break,
                // The direct connection is answered there; its caller hears that with the next
                // message.
                None => thread::yield_now(),
            }
        }
        assert!(receive(&mut ends[1], 0, large(number), &NEVER));
        number += 1;
    }
}

#[test]
fn what_cannot_be_taken_from_a_direct_connection_comes_over_the_link() {
    let cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 1);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    let mut ends = [0, 1].map(|r| join(segments[r as usize], r));
    let number = until_ahead(&mut ends);
    while ends[1].peek(0).is_none_or(|entry| entry.is_early()) {
        ends[1].decline(0);
        thread::yield_now();
    }
    assert!(receive(&mut ends[1], 0, large(number), &NEVER));
}

#[test]
fn what_stays_on_a_direct_connection_is_carried_in_the_end() {
    let cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 1);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    let mut ends = [0, 1].map(|r| join(segments[r as usize], r));
    until_ahead(&mut ends);
    // Nobody looks, and nobody asks.
    let (here, at) = (&segments[1].channel(0, 1).here, ends[1].front(0));
    while here.load(Acquire) <= at {
        thread::yield_now();
    }
}

#[test]
fn who_calls_and_is_nobody_is_hung_up_on() {
    let cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 1);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    let (asked, over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            let mut calls = 0u64;
            while !over.load(Acquire) {
                let Some((door, token)) = datagram::door_of(segments[1].rank(1)) else {
                    thread::yield_now();
                    continue;
                };
                let wrong = Prefix { src: 0, dst: 1, token: [token[0] ^ 1, token[1]], from: 0 };
                let far = Prefix { src: 70, token, ..wrong };
                let heads = [
                    wrong.on_wire(0, false),
                    far.on_wire(0, false),
                    wrong.on_wire(64, true),
                    wrong.on_wire(FRAME_BYTES as u32 + 64, false),
                    wrong.encode(),
                    [calls as u8; PREFIX_BYTES],
                ];
                // Some say nothing, or half of it.
                let said = &heads[calls as usize % heads.len()][..(calls as usize * 8) % 48 % 41];
                if let Ok(mut socket) = TcpStream::connect(door) {
                    let _ = socket.write_all(said);
                }
                calls += 1;
                asked.store(calls > 100, Relaxed);
            }
        });
        exchange(segments, large, |number| number >= 200 && asked.load(Relaxed));
        over.store(true, Relaxed);
        stranger.join().unwrap();
    });
}
