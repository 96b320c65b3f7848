//! Bytes through connections, and their ends.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;
use std::thread;

use super::{HERE, TIMEOUT, leashes, pair, provider};
use crate::slots::{SENDS, SLOT_BYTES};
use crate::{Error, Listener, Piece, Pipe, TOKEN_BYTES, connect};

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 31 + (n >> 9)) as u8).collect()
}

/// The pieces of some bytes, cut at lengths that repeat; every other one stays.
fn pieces<'a>(data: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = Piece> + 'a {
    let mut at = 0;
    lengths.iter().cycle().enumerate().map_while(move |(number, length)| {
        let part = &data[at..data.len().min(at + length)];
        at += part.len();
        let piece = Piece { at: part.as_ptr(), bytes: part.len(), stays: number % 2 == 0 };
        (at <= data.len() && piece.bytes > 0).then_some(piece)
    })
}

/// Writes all of it, as a thread does that has other things to do meanwhile.
fn write_all(pipe: &Pipe, data: &[u8], lengths: &[usize], room: &mpsc::Receiver<()>) {
    let mut done = 0;
    while done < data.len() {
        // SAFETY: the data outlives the pipe.
        match unsafe { pipe.write(pieces(&data[done..], lengths)) } {
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => room.recv().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Ends what hangs on the leash of this end.
fn cut(pipe: &Pipe) {
    let leash = TcpStream::from(pipe.leash().try_clone_to_owned().unwrap());
    leash.shutdown(Shutdown::Both).unwrap();
}

fn both_ways(a: &Pipe, b: &Pipe, data: &[u8], lengths: &[usize]) {
    thread::scope(|scope| {
        let (whole, heard) = mpsc::channel();
        for end in [a, b] {
            let ((tell, hear), whole) = (mpsc::channel(), [whole.clone(), whole.clone()]);
            let [written, read] = whole;
            scope.spawn(move || {
                write_all(end, data, lengths, &hear);
                written.send(()).unwrap();
            });
            scope.spawn(move || {
                let mut all = Vec::new();
                let room = || tell.send(()).unwrap_or(());
                while all.len() < data.len() {
                    assert!(end.read_to(&mut all, 100_000, &room).unwrap() > 0, "{}", all.len());
                }
                assert!(all == data);
                read.send(()).unwrap();
                // Who writes at this end may still wait for room.
                assert_eq!(end.read_to(&mut all, 1, &room).unwrap(), 0);
            });
        }
        (0..4).for_each(|_| heard.recv().unwrap());
        cut(a);
    });
}

#[test]
fn both_ends_may_write_more_than_is_under_way_before_they_read() {
    let Some(mut provider) = provider() else { return };
    let data = bytes(20 << 20);
    for register in [false, true] {
        provider.register = register;
        let (a, b) = pair(&provider);
        assert_eq!((a.ends.is_registered(), b.ends.is_registered()), (register, register));
        both_ways(&a, &b, &data, &[100_000, 70, 3000, 1, SLOT_BYTES, 5]);
    }
}

#[test]
fn who_writes_does_not_wait_and_is_told_when_it_can() {
    let Some(provider) = provider() else { return };
    let (a, b) = pair(&provider);
    let data = bytes(1 << 20);
    let mut sent = 0;
    let blocked = loop {
        // SAFETY: the data outlives the pipe.
        match unsafe { a.write(pieces(&data[sent % data.len()..], &[50_000])) } {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
    };
    assert_eq!(blocked.kind(), ErrorKind::WouldBlock);
    assert!(sent >= SENDS * SLOT_BYTES, "{sent}");
    thread::scope(|scope| {
        let (tell, hear) = mpsc::channel();
        let a = &a;
        let waiting = scope.spawn(move || {
            let room = || tell.send(()).unwrap();
            a.read_to(&mut Vec::new(), 1, &room).unwrap()
        });
        assert!(hear.try_recv().is_err());
        let mut all = Vec::new();
        while all.len() < sent {
            b.read_to(&mut all, usize::MAX, &|| {}).unwrap();
        }
        hear.recv().unwrap();
        cut(&b);
        assert_eq!(waiting.join().unwrap(), 0);
    });
}

#[test]
fn what_was_sent_before_the_end_is_read() {
    let Some(provider) = provider() else { return };
    let (a, b) = pair(&provider);
    let data = bytes(3 * SLOT_BYTES);
    a.timed(TIMEOUT).write_all(&data).unwrap();
    let mut all = vec![0; data.len()];
    b.timed(TIMEOUT).read_exact(&mut all[..10]).unwrap();
    b.timed(TIMEOUT).read_exact(&mut all[10..]).unwrap();
    assert!(all == data);
    drop(a);
    assert_eq!(b.read_to(&mut all, 1, &|| {}).unwrap(), 0);
    // SAFETY: the data outlives the pipe.
    let late = (0..1000).find_map(|_| unsafe { b.write(pieces(&data, &[SLOT_BYTES])) }.err());
    assert!(late.is_some());
}

#[test]
fn a_time_without_bytes_is_told_and_loses_none() {
    let Some(provider) = provider() else { return };
    let (a, b) = pair(&provider);
    let mut buffer = [0; 4];
    let late = b.timed(std::time::Duration::from_millis(1)).read(&mut buffer).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    a.timed(TIMEOUT).write_all(b"word").unwrap();
    b.timed(TIMEOUT).read_exact(&mut buffer).unwrap();
    assert_eq!(&buffer, b"word");
}

#[test]
fn who_does_not_know_the_token_is_refused_and_the_other_is_taken() {
    let Some(provider) = provider() else { return };
    let (there, here) = leashes();
    let token = [7; TOKEN_BYTES];
    let listener = Listener::new(&provider, HERE, token).unwrap();
    let address = listener.address().to_vec();
    thread::scope(|scope| {
        let called = scope.spawn(move || listener.accept(here, TIMEOUT).unwrap());
        let (stranger, _kept) = leashes();
        let refused = connect(&provider, HERE, (&address, &[8; 16]), stranger, TIMEOUT);
        assert!(matches!(refused, Err(Error::Call { .. })), "{:?}", refused.err());
        let calls = connect(&provider, HERE, (&address, &token), there, TIMEOUT).unwrap();
        let called = called.join().unwrap();
        calls.timed(TIMEOUT).write_all(b"here").unwrap();
        let mut buffer = [0; 4];
        called.timed(TIMEOUT).read_exact(&mut buffer).unwrap();
        assert_eq!(&buffer, b"here");
    });
    // It does not listen any more.
    let (late, _kept) = leashes();
    assert!(connect(&provider, HERE, (&address, &token), late, TIMEOUT).is_err());
}

#[test]
fn who_waits_for_the_other_end_waits_no_longer_than_the_leash_or_the_time() {
    let Some(provider) = provider() else { return };
    let listener = Listener::new(&provider, HERE, [7; TOKEN_BYTES]).unwrap();
    let (there, here) = leashes();
    drop(there);
    assert!(matches!(listener.accept(here, TIMEOUT), Err(Error::Ended)));
    let listener = Listener::new(&provider, HERE, [7; TOKEN_BYTES]).unwrap();
    let (_there, here) = leashes();
    let moment = std::time::Duration::from_millis(5);
    assert!(matches!(listener.accept(here, moment), Err(Error::Silent)));
}
