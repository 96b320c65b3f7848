//! Links over libfabric, with its `tcp` provider. Where it is not installed that is printed and
//! counted as a failure, unless `EYRIE_TESTS_WITHOUT` names `libfabric`.

use std::net::{IpAddr, Ipv4Addr};
use std::panic::AssertUnwindSafe;
use std::thread;

use eyrie_control::auth::{self, Hello, Key, Role};
use eyrie_fabric::Provider;
use eyrie_ledger::datagram::Wish;
use eyrie_ledger::segment::FT_LOGGED;
use eyrie_tls::Secret;

use super::jobs::{NEVER, cut_again_and_again, geometry, join, receive, send};
use crate::links::Refused;
use crate::testing::{Cluster, JOB};
use crate::transport::LinkTransport;

fn provider() -> Option<Provider> {
    match Provider::find(Some("tcp"), IpAddr::V4(Ipv4Addr::LOCALHOST)) {
        Ok(provider) => Some(provider),
        Err(error) => {
            println!("NOT RUN: {error}");
            let without = std::env::var("EYRIE_TESTS_WITHOUT").unwrap_or_default();
            assert!(without.split(',').any(|name| name == "libfabric"), "{error}");
            None
        }
    }
}

fn cluster(transport: LinkTransport) -> Cluster {
    Cluster::over(2, geometry(2, 1024), FT_LOGGED, 1, (transport, Wish::Never))
}

/// Each rank sends the other so many messages, all of which arrive.
fn exchange(cluster: &Cluster, count: u32) {
    let segments = [0, 1].map(|rank| cluster.attach(rank, &[0, 0]));
    thread::scope(|scope| {
        for me in [0, 1] {
            scope.spawn(move || {
                let mut end = join(segments[me as usize], me);
                for number in 0..count {
                    send(&mut end, 1 - me, number, 0);
                    assert!(receive(&mut end, 1 - me, number, &NEVER));
                }
            });
        }
    });
}

#[test]
fn nothing_is_lost_or_doubled_when_connections_are_cut_again_and_again() {
    let Some(provider) = provider() else { return };
    let cluster = cluster(LinkTransport::Fabric(provider));
    cut_again_and_again(&cluster);
    let status = cluster.node(0).links.status();
    let (name, count) = cluster.node(0).links.way();
    assert_eq!(name, "libfabric:tcp");
    // Those of node 0, and those that came to it.
    assert!(count > status[0].connects, "{count}, {status:?}");
}

#[test]
fn a_node_that_dies_and_comes_again_is_found_again() {
    let Some(provider) = provider() else { return };
    let mut cluster = cluster(LinkTransport::Fabric(provider));
    exchange(&cluster, 30);
    cluster.kill(1);
    cluster.revive(1);
    let segments = [cluster.node(0).leak(), cluster.attach(1, &[0, 0])];
    let mut end = join(segments[1], 1);
    (0..30).for_each(|number| assert!(receive(&mut end, 0, number, &NEVER)));
    assert!(cluster.node(0).links.status()[0].piped);
}

#[test]
fn who_may_do_without_does_where_the_other_end_has_none() {
    let Some(provider) = provider() else { return };
    let mut cluster = cluster(LinkTransport::Either(Some(provider.clone())));
    exchange(&cluster, 30);
    assert!(cluster.node(0).links.status()[0].piped);
    cluster.transport = LinkTransport::Either(None);
    cluster.kill(1);
    cluster.revive(1);
    let mut end = join(cluster.attach(1, &[0, 0]), 1);
    (0..30).for_each(|number| assert!(receive(&mut end, 0, number, &NEVER)));
    assert!(!cluster.node(0).links.status()[0].piped);
    assert_eq!(cluster.node(1).links.way(), ("tcp".into(), 0));
}

#[test]
fn who_breaks_off_or_says_nonsense_harms_nothing() {
    let Some(provider) = provider() else { return };
    let cluster = cluster(LinkTransport::Fabric(provider));
    exchange(&cluster, 10);
    let (from, to) = (cluster.node(0).member, cluster.node(1).member);
    for words in [&[][..], &[3, b't'], b"\x05verbs", b"\x03tcp"] {
        let mut stream = super::strangers::dial(&cluster);
        let own = (from.node, from.epoch);
        let hello = Hello::new(Role::LinkSender, JOB, own, (to.node, to.epoch)).unwrap();
        auth::call(&mut stream, &cluster.key, &hello, Role::LinkReceiver).unwrap();
        std::io::Write::write_all(&mut stream, words).unwrap();
    }
    assert_eq!(cluster.node(1).links.refused(), Refused::default());
    // They came in the name of node 0, whose own connection is made again.
    while !cluster.node(0).links.status()[0].piped {
        thread::yield_now();
    }
}

#[test]
fn what_is_to_be_encrypted_does_not_go_there() {
    let Some(provider) = provider() else { return };
    let secret = Secret::new(Key::new().unwrap(), true).unwrap();
    let transport = LinkTransport::Fabric(provider);
    let made = std::panic::catch_unwind(AssertUnwindSafe(|| {
        Cluster::with(2, geometry(2, 1024), FT_LOGGED, 1, (secret, transport, Wish::Never));
    }));
    assert!(made.is_err());
}
