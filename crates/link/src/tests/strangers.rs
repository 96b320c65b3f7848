//! What comes from outside and does not belong here: closed and counted, and the job goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use eyrie_control::auth::{self, Hello, Key, Role};
use eyrie_ledger::segment::{FT_LOGGED, Geometry};
use eyrie_protocol::link::wire::{self, Backward, Forward};

use crate::links::Refused;
use crate::testing::{Cluster, JOB};

fn cluster() -> Cluster {
    let geo = Geometry { ranks: 2, chunk_bytes: 4096, pool_chunks: 64, det_words: 1 << 17 };
    Cluster::new(2, geo, FT_LOGGED, 0)
}

fn refused(cluster: &Cluster) -> Refused {
    cluster.node(1).links.refused()
}

/// Waits until node 1 has counted what `want` says.
pub(super) fn await_refused(cluster: &Cluster, want: Refused) {
    while refused(cluster) != want {
        let now = refused(cluster);
        let beyond = now.strangers > want.strangers
            || now.fenced > want.fenced
            || now.malformed > want.malformed;
        assert!(!beyond, "{now:?}, not {want:?}");
        thread::yield_now();
    }
}

pub(super) fn dial(cluster: &Cluster) -> TcpStream {
    TcpStream::connect(cluster.node(1).links.address()).unwrap()
}

fn hello(cluster: &Cluster, job: &str, epoch: u64) -> Hello {
    let to = cluster.node(1).member;
    Hello::new(Role::LinkSender, job, (0, epoch), (1, to.epoch)).unwrap()
}

/// A connection to node 1 in the name of node 0.
pub(super) fn impostor(cluster: &Cluster) -> TcpStream {
    let mut stream = dial(cluster);
    let own = hello(cluster, JOB, cluster.node(0).member.epoch);
    auth::call(&mut stream, &cluster.key, &own, Role::LinkReceiver).unwrap();
    stream
}

#[test]
fn strangers_are_told_nothing_and_counted() {
    let cluster = cluster();
    let epoch = cluster.node(0).member.epoch;
    let mut rest = Vec::new();
    let mut garbage = dial(&cluster);
    garbage.write_all(&[0x47; 200]).unwrap();
    let _ = garbage.read_to_end(&mut rest);
    assert!(rest.is_empty());
    let mut other_job = dial(&cluster);
    other_job.write_all(&hello(&cluster, "other", epoch).encode()).unwrap();
    let _ = other_job.read_to_end(&mut rest);
    assert!(rest.is_empty());
    let own = hello(&cluster, JOB, epoch);
    let wrong = Key::new().unwrap();
    assert!(auth::call(&mut dial(&cluster), &wrong, &own, Role::LinkReceiver).is_err());
    await_refused(&cluster, Refused { strangers: 3, ..Refused::default() });
}

#[test]
fn an_old_incarnation_is_fenced() {
    let mut cluster = cluster();
    let old = cluster.node(0).member.epoch;
    cluster.kill(0);
    let own = hello(&cluster, JOB, old);
    // It is told that it is a member of the job, and nothing else.
    let mut stream = dial(&cluster);
    auth::call(&mut stream, &cluster.key, &own, Role::LinkReceiver).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    await_refused(&cluster, Refused { fenced: 1, ..Refused::default() });
    cluster.revive(0);
    let mut stream = dial(&cluster);
    auth::call(&mut stream, &cluster.key, &own, Role::LinkReceiver).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    await_refused(&cluster, Refused { fenced: 2, ..Refused::default() });
}

/// An entry of `frag` bytes with this number.
fn entry(stamp: u64, frag: u32) -> Vec<u8> {
    let mut bytes = vec![0; (40 + frag as usize).next_multiple_of(64)];
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes[8..16].copy_from_slice(&u64::from(frag).to_le_bytes());
    bytes[28..32].copy_from_slice(&frag.to_le_bytes());
    bytes[32..36].copy_from_slice(&3u32.to_le_bytes());
    bytes
}

fn data(stream: (u32, u32), serial: u32, from: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let chain = 0;
    Forward::Data { stream, serial, from, chain, bytes }.encode(&mut out, bytes.len());
    out.extend_from_slice(bytes);
    out
}

#[test]
fn frames_that_no_node_sends_end_the_connection() {
    let cluster = cluster();
    cluster.attach(1, &[0, 0]);
    let mut long = entry(1, 24);
    long[28..32].copy_from_slice(&5000u32.to_le_bytes());
    long[8..16].copy_from_slice(&5000u64.to_le_bytes());
    let mut remote = entry(1, 24);
    remote[32..36].copy_from_slice(&19u32.to_le_bytes());
    let frames: Vec<Box<dyn Fn(u32) -> Vec<u8>>> = vec![
        Box::new(|_| vec![0xFF; 64]),
        Box::new(|_| vec![8, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        Box::new(|_| vec![7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        Box::new(|_| vec![1, 0, 0, 0, 3, 0, 0, 0, 0xFF]),
        Box::new(|s| data((7, 1), s, 0, &entry(1, 24))),
        Box::new(|s| data((0, 9), s, 0, &entry(1, 24))),
        Box::new(|s| data((0, 1), s + 1, 0, &entry(1, 24))),
        Box::new(|s| data((0, 1), s, 64, &entry(2, 24))),
        Box::new(|s| data((0, 1), s, 0, &entry(1, 24)[..40])),
        Box::new(|s| data((0, 1), s, 0, &[entry(1, 24), entry(3, 24)].concat())),
        Box::new(move |s| data((0, 1), s, 0, &long)),
        Box::new(move |s| data((0, 1), s, 0, &remote)),
        Box::new(|s| data((0, 1), s, 0, &vec![0; 70_000])),
    ];
    for (count, frame) in (1..).zip(&frames) {
        let mut stream = impostor(&cluster);
        let mut open = Vec::new();
        Forward::Open { stream: (0, 1) }.encode(&mut open, 0);
        stream.write_all(&open).unwrap();
        let mut answer = [0; 48];
        stream.read_exact(&mut answer).unwrap();
        let (kind, body) = wire::split(&answer).unwrap().unwrap();
        let Ok(Backward::Resume { serial, from: 0, .. }) = Backward::decode(kind, &answer[body])
        else {
            panic!("{answer:?}")
        };
        stream.write_all(&frame(serial)).unwrap();
        assert_eq!(stream.read(&mut answer).unwrap_or(0), 0, "frame {count} was taken");
        await_refused(&cluster, Refused { malformed: count, ..Refused::default() });
    }
}
