//! Messages that are received before the links bring them, and datagrams that are none.

use std::net::UdpSocket;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread;

use eyrie_channel::Endpoint;
use eyrie_ledger::datagram::{self, DATAGRAM_BYTES, Prefix};
use eyrie_ledger::segment::{FT_LOGGED, Segment};

use super::jobs::{NEVER, geometry, join, receive, send};
use crate::testing::Cluster;

/// Messages to and fro, of which there are no two under way at the same time, until `enough`: the
/// `numbers` of those that are sent. Returns how many.
pub(super) fn exchange(
    segments: [&'static Segment; 2],
    numbers: fn(u32) -> u32,
    enough: impl Fn(u32) -> bool,
) -> u32 {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut end = join(segments[1], 1);
            let mut number = 0;
            while receive(&mut end, 0, numbers(number), &over) {
                send(&mut end, 0, numbers(number), 0);
                end.leave();
                number += 1;
            }
            number
        });
        let mut end = join(segments[0], 0);
        let mut number = 0;
        while !enough(number) {
            send(&mut end, 1, numbers(number), 0);
            end.leave();
            assert!(receive(&mut end, 1, numbers(number), &NEVER));
            number += 1;
        }
        over.store(true, Relaxed);
        assert_eq!(answering.join().unwrap(), number);
        number
    })
}

pub(super) fn taken(segment: &Segment, rank: u32) -> u64 {
    segment.rank(rank).early_taken.load(Relaxed)
}

#[test]
fn small_messages_come_ahead_and_once() {
    let cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 1);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    // Both take some as datagrams, however slow this machine is.
    let count = exchange(
        segments,
        |n| n,
        |number| number >= 300 && (0..2).all(|r| taken(segments[r], r as u32) > 10),
    );
    assert!((0..2).all(|r| taken(segments[r], r as u32) <= u64::from(count)));
    assert_eq!(cluster.node(0).links.refused().malformed, 0);
}

#[test]
fn cut_connections_and_datagrams_go_together() {
    let cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 1);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    exchange(
        segments,
        |n| n,
        |number| {
            if number % 50 == 49 {
                cluster.node(number / 50 % 2).links.cut();
            }
            number >= 600 && taken(segments[1], 1) > 10
        },
    );
}

/// Where `rank` takes datagrams, once it says so.
fn open_door(segment: &Segment, rank: u32) -> (std::net::SocketAddr, [u64; 2]) {
    loop {
        if let Some(door) = datagram::door_of(segment.rank(rank)) {
            return door;
        }
        thread::yield_now();
    }
}

#[test]
fn what_strangers_send_is_passed_over() {
    let cluster = Cluster::new(2, geometry(2, 1024), FT_LOGGED, 1);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    let (asked, over) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let stranger = scope.spawn(|| {
            let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
            let (door, token) = open_door(segments[1], 1);
            let mut sent = 0u64;
            while !over.load(Acquire) {
                // An entry of zeros, garbage, and what would be right but for the token.
                let from = segments[1].channel(0, 1).front.load(Acquire);
                let wrong = Prefix { src: 0, dst: 1, token: [token[0] ^ 1, token[1]], from };
                let right = Prefix { token, ..wrong };
                let far = Prefix { src: 70, dst: 1, token, from };
                for prefix in [wrong, right, far] {
                    let mut bytes = prefix.encode().to_vec();
                    bytes.extend(vec![sent as u8; (sent % 200) as usize]);
                    socket.send_to(&bytes, door).unwrap();
                }
                socket.send_to(&vec![sent as u8; sent as usize % 70], door).unwrap();
                socket.send_to(&[7; 2 * DATAGRAM_BYTES], door).unwrap();
                sent += 1;
                asked.store(sent > 100, Relaxed);
            }
        });
        exchange(segments, |n| n, |number| number >= 400 && asked.load(Relaxed));
        over.store(true, Relaxed);
        stranger.join().unwrap();
    });
}

/// A determinant that nobody else holds keeps a message from going ahead, whoever recorded it.
#[test]
fn nothing_goes_ahead_that_the_gate_holds_back() {
    let mut cluster = Cluster::new(2, geometry(4, 64), FT_LOGGED, 1);
    let segments = [0, 1, 2, 3].map(|r| cluster.attach(r, &[0; 4]));
    let mut ends = [0, 1, 2].map(|r| join(segments[r as usize], r));
    // Until both ways are open.
    let mut number = 0;
    while taken(segments[1], 1) == 0 {
        turn(&mut ends, number);
        number += 1;
    }
    // The neighbour of rank 0 on its node.
    ends[2].door.record_match(0, 1);
    assert!(!datagram::may_leave(segments[0]));
    turn(&mut ends, number);
    assert!(cluster.node(1).links.replicas(|r| r.answer(&[2])).held.contains_key(&2));
    // The only replica dies.
    while !datagram::may_leave(segments[0]) {
        thread::yield_now();
    }
    cluster.kill(1);
    cluster.revive(1);
    // Whether it is known again that it is held depends on what the new one has; not before.
    let held = |c: &Cluster| c.node(1).links.replicas(|r| r.answer(&[2])).held.contains_key(&2);
    let open = datagram::may_leave(segments[0]);
    assert!(!open || held(&cluster));
}

/// One message from rank 0 to rank 1, and one back.
fn turn(ends: &mut [Endpoint; 3], number: u32) {
    send(&mut ends[0], 1, number, 0);
    assert!(receive(&mut ends[1], 0, number, &NEVER));
    send(&mut ends[1], 0, number, 0);
    assert!(receive(&mut ends[0], 1, number, &NEVER));
}
