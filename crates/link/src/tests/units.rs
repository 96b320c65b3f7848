//! Ranks of one recovery unit on two nodes: what they send each other is not retained, and what was
//! said before they went back says nothing any more.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::thread;

use eyrie_ledger::segment::{FT_LOGGED, Segment};
use eyrie_ledger::unit;
use eyrie_ledger::units::Units;

use super::jobs::{NEVER, geometry, join, receive, send};
use crate::testing::Cluster;

/// Far more than a log holds.
const COUNT: u32 = 400;
const POOL_CHUNKS: u32 = 48;
const POOL: u64 = POOL_CHUNKS as u64;

/// Rank 0 sends all; returns when it has.
fn send_all(segment: &'static Segment, sent: &AtomicBool) {
    let mut end = join(segment, 0);
    for number in 0..COUNT {
        send(&mut end, 1, number, 0);
    }
    sent.store(true, SeqCst);
}

fn receive_all(segment: &'static Segment) {
    let mut end = join(segment, 1);
    (0..COUNT).for_each(|number| assert!(receive(&mut end, 0, number, &NEVER)));
}

#[test]
fn a_unit_goes_back_while_one_of_its_nodes_has_not_heard_of_it() {
    let cluster = Cluster::new(2, geometry(2, POOL_CHUNKS), FT_LOGGED, 1);
    let segments = [0, 1].map(|rank| cluster.attach(rank, &[0, 0]));
    segments.iter().for_each(|segment| unit::bind(segment, &Units::on_nodes(vec![0, 0])));
    let sent = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| send_all(segments[0], &sent));
        receive_all(segments[1]);
    });
    for life in 1..=3 {
        // Rank 1 has ended and is still attached, so its node says how far it was if it is asked.
        cluster.node(0).links.part(&[0, 1], life);
        cluster.attach(0, &[0, 0]);
        sent.store(false, SeqCst);
        thread::scope(|scope| {
            scope.spawn(|| send_all(segments[0], &sent));
            let full = || segments[0].rank(0).chunks_used.load(Relaxed) >= POOL;
            while !full() && !sent.load(SeqCst) {
                thread::yield_now();
            }
            assert!(!sent.load(SeqCst), "what rank 1 needs again was given up");
            cluster.node(1).links.part(&[0, 1], life);
            cluster.attach(1, &[0, 0]);
            receive_all(segments[1]);
        });
    }
}
