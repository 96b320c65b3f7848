//! Ping-pong between two ranks on two nodes, joined by a link over loopback, beside a bare TCP
//! ping-pong between two threads. Ranks are threads, nodes are segments of one process;
//! `benches/link` runs it. `none` and `logged` send small messages early; `links` is `logged`
//! without, and `libfabric` the same over libfabric's `tcp` provider, where it is installed.
//!
//!   link_pingpong SIZE:ROUNDS...    prints `SYSTEM SIZE MEDIAN_NS BEST_NS`, one way

#![allow(clippy::unwrap_used, clippy::expect_used)] // it ends the measurement
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Instant;

use eyrie_channel::Endpoint;
use eyrie_core::consts::COMM_WORLD;
use eyrie_core::datatype::predefined::BYTE;
use eyrie_core::machine::Machine;
use eyrie_core::p2p::SendMode;
use eyrie_ledger::datagram::Wish;
use eyrie_ledger::segment::{FT_LOGGED, Geometry};
use eyrie_link::testing::Cluster;
use eyrie_link::{LinkTransport, Provider};

const BATCHES: usize = 15;
const LOG_BYTES: u64 = 64 << 20;

/// One way times of the batches, in order.
fn batches(rounds: usize, mut round: impl FnMut()) -> Vec<f64> {
    (0..rounds / 4).for_each(|_| round());
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let began = Instant::now();
            (0..rounds).for_each(|_| round());
            began.elapsed().as_nanos() as f64 / (2 * rounds) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times
}

fn show(system: &str, size: usize, times: &[f64]) {
    println!("{system} {size} {:.0} {:.0}", times[times.len() / 2], times[0]);
}

fn all_rounds(rounds: usize) -> usize {
    rounds / 4 + BATCHES * rounds
}

fn bare(size: usize, rounds: usize) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a socket");
    let address = listener.local_addr().expect("its address");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut peer, _) = listener.accept().expect("a connection");
            peer.set_nodelay(true).expect("no delay");
            let mut data = vec![0u8; size];
            for _ in 0..all_rounds(rounds) {
                peer.read_exact(&mut data).expect("data");
                peer.write_all(&data).expect("room");
            }
        });
        let mut peer = TcpStream::connect(address).expect("a connection");
        peer.set_nodelay(true).expect("no delay");
        let mut data = vec![1u8; size];
        let times = batches(rounds, || {
            peer.write_all(&data).expect("room");
            peer.read_exact(&mut data).expect("data");
        });
        show("tcp", size, &times);
    });
}

fn send(m: &mut Machine, data: &[u8], to: i32) {
    let (at, length) = (data.as_ptr(), data.len() as i64);
    m.enter();
    // SAFETY: `data` holds that many bytes.
    unsafe { m.send(SendMode::Standard, at, length, BYTE, to, 1, COMM_WORLD) }.expect("sent");
    m.leave();
}

fn receive(m: &mut Machine, data: &mut [u8], from: i32) {
    let (at, length) = (data.as_mut_ptr(), data.len() as i64);
    m.enter();
    // SAFETY: `data` holds that many bytes.
    unsafe { m.recv(at, length, BYTE, from, 1, COMM_WORLD) }.expect("received");
    m.leave();
}

fn linked(name: &str, (size, rounds): (usize, usize), ft: u32, transport: (LinkTransport, Wish)) {
    let cluster = Cluster::over(2, Geometry::new(2, LOG_BYTES), ft, 1, transport);
    let segments = [0, 1].map(|rank| cluster.attach(rank, &[0, 0]));
    // What checkpoints do now and then: what was received is needed no more.
    let trim = || {
        for (segment, (src, dst)) in segments.iter().zip([(0, 1), (1, 0)]) {
            let channel = segment.channel(src, dst);
            channel.trim.store(channel.need.load(Ordering::Acquire), Ordering::Release);
        }
    };
    let join = |rank: u32| {
        let segment = segments[rank as usize];
        segment.rank(rank).incarnation.store(1, Ordering::Relaxed);
        Machine::new(Endpoint::join(segment, rank))
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut machine = join(1);
            let mut data = vec![0u8; size];
            for _ in 0..all_rounds(rounds) {
                receive(&mut machine, &mut data, 0);
                send(&mut machine, &data, 0);
            }
        });
        let mut machine = join(0);
        let mut data = vec![1u8; size];
        let times = batches(rounds, || {
            send(&mut machine, &data, 1);
            receive(&mut machine, &mut data, 1);
            trim();
        });
        show(name, size, &times);
    });
}

fn main() {
    for plan in std::env::args().skip(1) {
        let Some((size, rounds)) = plan.split_once(':') else { panic!("{plan}: SIZE:ROUNDS") };
        let (size, rounds) = (size.parse().expect("a size"), rounds.parse().expect("a number"));
        bare(size, rounds);
        let plan = (size, rounds);
        linked("none", plan, 0, (LinkTransport::Tcp, Wish::Always));
        linked("logged", plan, FT_LOGGED, (LinkTransport::Tcp, Wish::Always));
        linked("links", plan, FT_LOGGED, (LinkTransport::Tcp, Wish::Never));
        if let Ok(provider) = Provider::find(Some("tcp"), Ipv4Addr::LOCALHOST.into()) {
            linked("libfabric", plan, FT_LOGGED, (LinkTransport::Fabric(provider), Wish::Never));
        }
    }
}
