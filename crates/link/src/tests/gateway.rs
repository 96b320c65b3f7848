//! A gateway that is there no more: what stood through it ends, and nothing else.

use std::net::TcpListener;
use std::thread;

use eyrie_ledger::segment::{FT_LOGGED, Geometry};

use crate::links::LinkStatus;
use crate::testing::Cluster;

/// The link of a node to another one.
fn link(cluster: &Cluster, node: u32, to: u32) -> LinkStatus {
    let all = cluster.node(node).links.status();
    all.into_iter().find(|status| status.member.node == to).unwrap()
}

#[test]
fn connections_to_other_clusters_end_with_their_gateway() {
    let geometry = Geometry { ranks: 3, chunk_bytes: 4096, pool_chunks: 64, det_words: 1 << 17 };
    // Each node has its outcomes held by both others.
    let cluster = Cluster::new(3, geometry, FT_LOGGED, 2);
    let pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
    let stands = |status: LinkStatus| status.sending && status.receiving;
    while !pairs.iter().all(|(node, to)| stands(link(&cluster, *node, *to))) {
        thread::yield_now();
    }
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let gateway = nobody.local_addr().unwrap();
    drop(nobody);
    let node = cluster.node(0);
    assert!(!node.routes.set(vec![0, 0, 1], Some(gateway)));
    assert!(node.routes.set(vec![0, 0, 1], None));
    node.links.leave_gateway();
    // The other end calls again; this one has no way there.
    while link(&cluster, 0, 2).sending || link(&cluster, 2, 0).connects < 2 {
        thread::yield_now();
    }
    let connects = pairs.map(|(node, to)| link(&cluster, node, to).connects);
    assert_eq!(connects, [1, 1, 1, 1, 2, 1]);
}
