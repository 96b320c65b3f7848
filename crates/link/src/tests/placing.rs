//! Large entries go right into their place, and count for nothing before they are there whole.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use eyrie_ledger::entry::{entry_bytes, payload_offset};
use eyrie_ledger::reader::Reader;
use eyrie_ledger::segment::{FT_LOGGED, Segment};
use eyrie_protocol::link::wire::{self, Backward, Forward};

use super::jobs::geometry;
use super::strangers::{await_refused, impostor};
use crate::links::Refused;
use crate::testing::Cluster;

const STREAM: (u32, u32) = (0, 1);
/// Payload of a large entry.
const LARGE: u32 = 20_000;

/// A message of one entry, `frag` bytes of `fill`, as entry number `stamp` of its stream.
fn entry(stamp: u64, frag: u32, fill: u8) -> Vec<u8> {
    let mut bytes = vec![fill; entry_bytes(u64::from(frag)) as usize];
    bytes[..payload_offset(u64::from(frag)) as usize].fill(0);
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes[8..16].copy_from_slice(&u64::from(frag).to_le_bytes());
    bytes[28..32].copy_from_slice(&frag.to_le_bytes());
    bytes[32..36].copy_from_slice(&3u32.to_le_bytes());
    bytes
}

fn data(serial: u32, from: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Forward::Data { stream: STREAM, serial, from, chain: 0, bytes }.encode(&mut out, bytes.len());
    out.extend_from_slice(bytes);
    out
}

/// Serial and position of the next `Resume`.
fn resumed(socket: &mut TcpStream) -> (u32, u64) {
    loop {
        let mut bytes = vec![0; wire::HEADER_BYTES];
        socket.read_exact(&mut bytes).unwrap();
        let length = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        bytes.resize(wire::HEADER_BYTES + length as usize, 0);
        socket.read_exact(&mut bytes[wire::HEADER_BYTES..]).unwrap();
        let (kind, body) = wire::split(&bytes).unwrap().unwrap();
        if let Backward::Resume { serial, from, .. } = Backward::decode(kind, &bytes[body]).unwrap()
        {
            return (serial, from);
        }
    }
}

fn open(cluster: &Cluster) -> (TcpStream, (u32, u64)) {
    let mut socket = impostor(cluster);
    let mut frame = Vec::new();
    Forward::Open { stream: STREAM }.encode(&mut frame, 0);
    socket.write_all(&frame).unwrap();
    let told = resumed(&mut socket);
    (socket, told)
}

/// Writes, and waits until node 1 has received it all.
fn write(cluster: &Cluster, socket: &mut TcpStream, bytes: &[u8]) {
    let received = || cluster.node(1).links.status()[0].received_bytes;
    let want = received() + bytes.len() as u64;
    socket.write_all(bytes).unwrap();
    while received() < want {
        thread::yield_now();
    }
}

/// Takes the next entry, which is `frag` bytes of `fill`.
fn expect(reader: &mut Reader, frag: u32, fill: u8) {
    let entry = loop {
        match reader.peek().unwrap() {
            Some(entry) => break entry,
            None => thread::yield_now(),
        }
    };
    assert_eq!(entry.frag, u64::from(frag));
    // SAFETY: `peek` vouches for `frag` bytes at `payload`.
    let bytes = unsafe { std::slice::from_raw_parts(entry.payload, frag as usize) };
    assert!(bytes.iter().all(|b| *b == fill), "entry of {fill}");
    reader.pass(&entry);
}

fn cluster() -> (Cluster, &'static Segment) {
    let cluster = Cluster::new(2, geometry(2, 64), FT_LOGGED, 0);
    let segment = cluster.attach(1, &[0, 0]);
    (cluster, segment)
}

#[test]
fn half_an_entry_counts_for_nothing_when_its_connection_ends() {
    let (cluster, segment) = cluster();
    let mut reader = Reader::new(segment, 0, 1);
    let (mut socket, (serial, from)) = open(&cluster);
    assert_eq!(from, 0);
    write(&cluster, &mut socket, &data(serial, 0, &entry(1, 24, 1)));
    expect(&mut reader, 24, 1);
    // Of one the header alone has come, of another half.
    for (part, fill) in [(200, 2), (12_000, 3)] {
        let piece = data(serial_of(&cluster, &mut socket), 64, &entry(2, LARGE, fill));
        write(&cluster, &mut socket, &piece[..part]);
        assert!(reader.peek().unwrap().is_none());
    }
    let (mut socket, (serial, from)) = open(&cluster);
    assert_eq!(from, 64);
    let piece = data(serial, 64, &entry(2, LARGE, 4));
    write(&cluster, &mut socket, &piece[..9000]);
    assert!(reader.peek().unwrap().is_none());
    // The rest comes with another one, which is in two parts, too.
    let next = data(serial, 64 + entry_bytes(u64::from(LARGE)), &entry(3, LARGE, 5));
    let both = [&piece[9000..], &next[..]].concat();
    write(&cluster, &mut socket, &both[..both.len() - 7000]);
    expect(&mut reader, LARGE, 4);
    assert!(reader.peek().unwrap().is_none());
    write(&cluster, &mut socket, &both[both.len() - 7000..]);
    expect(&mut reader, LARGE, 5);
    await_refused(&cluster, Refused::default());
}

/// A new connection in place of `socket`; the serial that is given on it.
fn serial_of(cluster: &Cluster, socket: &mut TcpStream) -> u32 {
    let (new, (serial, from)) = open(cluster);
    assert_eq!(from, 64);
    *socket = new;
    serial
}

#[test]
fn the_rest_of_an_entry_that_is_not_wanted_any_more_is_dropped() {
    let (cluster, segment) = cluster();
    let mut reader = Reader::new(segment, 0, 1);
    let (mut socket, (old, _)) = open(&cluster);
    write(&cluster, &mut socket, &data(old, 0, &entry(1, 24, 1)));
    expect(&mut reader, 24, 1);
    let stale = data(old, 64, &entry(2, LARGE, 2));
    write(&cluster, &mut socket, &stale[..10_000]);
    // The receiver starts anew: the stream is asked for with another serial.
    cluster.node(1).links.detach(1);
    cluster.attach(1, &[0, 0]);
    let (new, from) = resumed(&mut socket);
    assert_eq!(from, 64);
    write(&cluster, &mut socket, &stale[10_000..15_000]);
    assert!(reader.peek().unwrap().is_none());
    let bytes = [&stale[15_000..], &data(new, 64, &entry(2, LARGE, 3))].concat();
    write(&cluster, &mut socket, &bytes);
    expect(&mut reader, LARGE, 3);
    await_refused(&cluster, Refused::default());
}

#[test]
fn large_entries_that_no_node_sends_end_the_connection() {
    let frames: [fn(&mut Vec<u8>); 4] = [
        |piece| piece[0] = 9,
        |piece| piece[28..32].copy_from_slice(&(LARGE + 64).to_le_bytes()),
        |piece| piece[32] = 19,
        |piece| piece.truncate(piece.len() - 64),
    ];
    let (cluster, _) = cluster();
    let (mut socket, (serial, _)) = open(&cluster);
    write(&cluster, &mut socket, &data(serial, 0, &entry(1, 24, 1)));
    for (count, spoil) in (1..).zip(frames) {
        let serial = serial_of(&cluster, &mut socket);
        let mut piece = entry(2, LARGE, 2);
        spoil(&mut piece);
        let frame = data(serial, 64, &piece);
        write(&cluster, &mut socket, &frame[..9000]);
        let _ = socket.write_all(&frame[9000..]);
        assert_eq!(socket.read(&mut [0; 64]).unwrap_or(0), 0, "frame {count} was taken");
        await_refused(&cluster, Refused { malformed: count, ..Refused::default() });
    }
}
