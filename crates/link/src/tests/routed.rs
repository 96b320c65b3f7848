//! Streams that go by a router: it has them, and from there they come again.

use std::sync::atomic::Ordering::Acquire;
use std::sync::mpsc;
use std::thread;

use eyrie_ledger::entry::SYNC;
use eyrie_ledger::segment::{FT_LOGGED, Segment};
use eyrie_tls::Secret;

use eyrie_control::auth::Key;

use super::jobs::{NEVER, geometry, join, receive, send};
use crate::testing::Cluster;

/// Messages each way.
const COUNT: u32 = 60;

/// Two ranks on nodes 0 and 1; nodes 2 and 3 are for routers. Nothing is sent as a datagram.
fn cluster() -> Cluster {
    let secret = Secret::new(Key::new().unwrap(), true).unwrap();
    Cluster::of(4, geometry(2, 1024), FT_LOGGED, 1, secret)
}

fn route(cluster: &Cluster, routers: [u32; 2]) {
    cluster.nodes.iter().flatten().for_each(|n| n.links.routers(&routers));
}

/// Both ranks begin a new life, in which each sends all its messages, synchronously, and receives
/// those of the other.
fn exchange(segments: [&'static Segment; 2]) {
    thread::scope(|scope| {
        for (rank, segment) in (0u32..).zip(segments) {
            scope.spawn(move || {
                let mut end = join(segment, rank);
                for number in 0..COUNT {
                    let start = send(&mut end, 1 - rank, number, SYNC);
                    assert!(receive(&mut end, 1 - rank, number, &NEVER));
                    while !end.acknowledged(1 - rank, start) {
                        thread::yield_now();
                    }
                }
            });
        }
    });
}

fn attach(cluster: &Cluster) -> [&'static Segment; 2] {
    [0, 1].map(|rank| cluster.attach(rank, &[0, 0]))
}

/// What went from one node to another.
fn sent(cluster: &Cluster, from: u32, to: u32) -> u64 {
    let all = cluster.node(from).links.status();
    all.iter().filter(|s| s.member.node == to).map(|s| s.sent_bytes).sum()
}

#[test]
fn a_router_has_what_it_passed_on_and_the_next_one_gets_it() {
    let mut cluster = cluster();
    route(&cluster, [2, 3]);
    exchange(attach(&cluster));
    let logged = |cluster: &Cluster, node: u32| cluster.node(node).links.logged();
    assert_eq!((logged(&cluster, 2).1, logged(&cluster, 3).1), (1, 1));
    let before = [2, 3].map(|node| logged(&cluster, node).0);
    assert!(before.iter().all(|bytes| *bytes > 1_000_000), "{before:?}");
    let (straight, routed) = (sent(&cluster, 0, 1), sent(&cluster, 0, 3));
    assert!(straight < 100_000 && routed > 1_000_000, "{straight} {routed}");

    // One rank dies: it gets all messages again, from its router only.
    let (asked, given) = (sent(&cluster, 0, 3), sent(&cluster, 3, 1));
    cluster.node(1).links.detach(1);
    let segment = cluster.attach(1, &[0, 0]);
    let mut end = join(segment, 1);
    for number in 0..COUNT {
        send(&mut end, 0, number, SYNC);
        assert!(receive(&mut end, 0, number, &NEVER));
    }
    assert!(sent(&cluster, 3, 1) - given > 1_000_000);
    assert!(sent(&cluster, 0, 3) - asked < 100_000);

    // A router dies: the next one gets the log from the sender, and both ranks may begin anew.
    cluster.kill(2);
    route(&cluster, [3, 3]);
    [0, 1].into_iter().for_each(|rank| cluster.home(rank).links.detach(rank));
    exchange(attach(&cluster));
    assert!(logged(&cluster, 3).0 > before[1] && logged(&cluster, 3).1 == 2);

    // Without any router messages go straight.
    cluster.kill(3);
    route(&cluster, [u32::MAX; 2]);
    [0, 1].into_iter().for_each(|rank| cluster.home(rank).links.detach(rank));
    exchange(attach(&cluster));
    assert!(sent(&cluster, 0, 1) > 1_000_000);
    assert_eq!(cluster.node(0).links.refused().malformed, 0);
}

#[test]
fn a_router_gives_up_what_the_floor_has_passed() {
    let cluster = cluster();
    route(&cluster, [2, 2]);
    let segments = attach(&cluster);
    exchange(segments);
    let router = cluster.node(2);
    let before = router.links.logged().0;
    let floor = segments[1].channel(0, 1).need.load(std::sync::atomic::Ordering::Acquire);
    assert!(floor > 1_000_000);
    router.segment.channel(0, 1).trim.store(floor, std::sync::atomic::Ordering::Release);
    router.links.trimmed(1);
    assert!(router.links.logged().0 + 1_000_000 < before);
}

/// Has a router stop what goes to rank 1, and waits until it stands.
fn pause(cluster: &Cluster, router: u32, generation: u32) {
    let (tell, hear) = mpsc::channel();
    cluster.node(router).links.pause(1, generation, move || {
        let _ = tell.send(());
    });
    hear.recv().expect("the router stands");
}

#[test]
fn a_router_stands_for_a_checkpoint_and_goes_on() {
    let cluster = cluster();
    route(&cluster, [2, 3]);
    let segments = attach(&cluster);
    exchange(segments);
    // Nothing was ever sent to rank 1 by the other one, which stands all the same.
    pause(&cluster, 3, 7);
    let here = || segments[1].channel(0, 1).here.load(Acquire);
    let before = (here(), cluster.node(3).links.logged().0);
    cluster.node(0).links.detach(0);
    let restored = cluster.attach(0, &[0, 0]);
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut end = join(restored, 0);
            for number in 0..COUNT * 2 {
                // It says again what it had said.
                send(&mut end, 1, number, if number < COUNT { SYNC } else { 0 });
            }
        });
        // The router takes what comes, and nothing of it goes on.
        while cluster.node(3).links.logged().0 <= before.1 {
            thread::yield_now();
        }
        let _ = sender.join();
    });
    assert_eq!(here(), before.0);
    // Connections break; the mark of a second pause is said again, and what is settled stays so.
    cluster.node(3).links.cut();
    cluster.node(1).links.cut();
    assert_eq!(here(), before.0);
    pause(&cluster, 3, 8);
    cluster.node(3).links.resume(1, 7);
    assert_eq!(here(), before.0);
    cluster.node(1).links.go_on(1, 8);
    cluster.node(3).links.resume(1, 8);
    while here() <= before.0 {
        thread::yield_now();
    }
    assert_eq!(cluster.node(3).links.paused().0, 1);
    // An order that comes late changes nothing.
    cluster.node(3).links.pause(1, 8, || panic!("it is over"));
    assert_eq!(cluster.node(3).links.paused().0, 1);
    assert_eq!(cluster.node(3).links.refused().malformed, 0);
}
