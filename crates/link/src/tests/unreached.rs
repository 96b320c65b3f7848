//! A node that is not reached though it is a member: that is told while it lasts, and when it is
//! over.

use std::iter;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use eyrie_ledger::segment::{FT_LOGGED, Geometry};
use eyrie_protocol::membership::Member;
use eyrie_protocol::timing::Detector;

use crate::shared::lock;
use crate::testing::{Cluster, Said};

/// What node 0 says next of others.
fn next(cluster: &Cluster) -> Said {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let mut told = lock(&cluster.unreached);
        if let Some(at) = told.iter().position(|(node, _)| *node == 0) {
            return told.remove(at);
        }
        drop(told);
        assert!(Instant::now() < limit, "nothing is said");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_link_that_is_missed_is_told_of_until_it_stands() {
    let geo = Geometry { ranks: 2, chunk_bytes: 4096, pool_chunks: 64, det_words: 1 << 17 };
    // What one node records another one is to hold: so links are wanted from the beginning on.
    let mut cluster = Cluster::new(2, geo, FT_LOGGED, 1);
    cluster.kill(1);
    // Nobody listens there. It is told of before it is there, as the third member of all.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (node, other) = (cluster.node(0), Member { node: 1, epoch: 3 });
    lock(&cluster.unreached).clear();
    node.links.members(&[(node.member, node.links.address()), (other, deaf)]);
    let (told_ms, mut before) = (Detector::DEFAULT.told_ms(), Duration::ZERO);
    for _ in 0..2 {
        let (_, said) = next(&cluster);
        let lasts = said.lasts.unwrap();
        assert_eq!((said.member, said.address), (other, Some(deaf)));
        assert!(lasts >= Duration::from_millis(told_ms) && lasts > before, "{lasts:?}");
        assert!(said.why.contains("refused"), "{}", said.why);
        before = lasts;
    }
    cluster.revive(1);
    assert_eq!(cluster.node(1).member, other);
    let over = iter::repeat_with(|| next(&cluster).1).find(|said| said.lasts.is_none());
    assert_eq!(over.map(|said| said.member), Some(other));
    assert!(cluster.node(0).links.status().iter().all(|l| l.connects == 1));
}
