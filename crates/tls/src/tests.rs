//! Both ends of encrypted connections in one process.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use eyrie_control::auth::{AuthError, Hello, Key, Role};

use crate::{Secret, Stream};

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (there, listener.accept().unwrap().0)
}

fn hello(role: Role) -> Hello {
    Hello::new(role, "jobs", (1, 2), (3, 4)).unwrap()
}

type Ends = (Result<Stream, AuthError>, Result<Stream, AuthError>);

/// What the caller and the called one make of each other.
fn meet(calls: &Secret, answers: &Secret) -> Ends {
    let (there, here) = sockets();
    thread::scope(|scope| {
        let own = |_: &Hello| Ok(hello(Role::Controller));
        let called = scope.spawn(move || answers.answer(here, "jobs", Role::Node, own));
        let caller = calls.call(there, &hello(Role::Node), Role::Controller);
        (caller.map(|(s, _)| s), called.join().unwrap().map(|(s, _)| s))
    })
}

fn pair() -> (Stream, Stream) {
    let key = Key::new().unwrap();
    // Each end makes its keys for itself.
    let [calls, answers] = [0, 1].map(|_| Secret::new(key.clone(), true).unwrap());
    let (caller, called) = meet(&calls, &answers);
    (caller.unwrap(), called.unwrap())
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n * 31 + (n >> 9)) as u8).collect()
}

#[test]
fn both_ends_may_write_more_than_the_sockets_hold_before_they_read() {
    let (a, b) = pair();
    let data = &bytes(20 << 20);
    thread::scope(|scope| {
        for end in [&a, &b] {
            scope.spawn(move || {
                let mut to = end;
                to.write_all(data).unwrap();
                end.shutdown(Shutdown::Write).unwrap();
            });
            scope.spawn(move || {
                let mut all = Vec::new();
                let mut from = end;
                from.read_to_end(&mut all).unwrap();
                assert!(all == *data);
            });
        }
    });
}

#[test]
fn what_does_not_leave_at_once_is_held_and_leaves_later() {
    let (a, b) = pair();
    let data = bytes(16 << 20);
    thread::scope(|scope| {
        scope.spawn(|| {
            let session = a.session().unwrap();
            let mut rest = &data[..];
            while !rest.is_empty() || session.held() > 0 {
                match session.write_now(a.socket(), rest) {
                    Ok(count) => rest = &rest[count..],
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
                }
            }
            a.shutdown(Shutdown::Write).unwrap();
        });
        let mut all = Vec::new();
        while b.read_to(&mut all, 100_000).unwrap() > 0 {}
        assert!(all == data);
    });
}

#[test]
fn a_time_without_bytes_loses_none() {
    let (a, b) = pair();
    b.socket().set_read_timeout(Some(std::time::Duration::from_millis(1))).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for byte in 0..100 {
                (&a).write_all(&[byte]).unwrap();
                thread::yield_now();
            }
        });
        let (mut all, mut buffer) = (Vec::new(), [0; 7]);
        while all.len() < 100 {
            match (&b).read(&mut buffer) {
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        assert!((0..100).eq(all));
    });
}

#[test]
fn files_are_sent_whole() {
    let data = bytes(300_001);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &data).unwrap();
    let plain = Secret::plain(Key::new().unwrap());
    let (calls, answers) = meet(&plain, &plain);
    for (a, b) in [pair(), (calls.unwrap(), answers.unwrap())] {
        thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::open(file.path()).unwrap();
                a.send_file(&file, data.len() as u64).unwrap();
                assert!(a.send_file(&file, 1).is_err());
                a.shutdown(Shutdown::Write).unwrap();
            });
            let mut all = Vec::new();
            (&b).read_to_end(&mut all).unwrap();
            assert!(all == data);
        });
    }
}

#[test]
fn another_key_is_no_key() {
    let [one, two] = [0, 1].map(|_| Secret::new(Key::new().unwrap(), true).unwrap());
    let (caller, called) = meet(&one, &two);
    assert!(matches!(caller, Err(AuthError::Key)));
    assert!(matches!(called, Err(AuthError::Key)), "{:?}", called.err());
}

#[test]
fn an_end_that_does_not_encrypt_is_refused_by_one_that_does() {
    let key = Key::new().unwrap();
    let (plain, encrypted) = (Secret::plain(key.clone()), Secret::new(key, true).unwrap());
    let (caller, called) = meet(&plain, &encrypted);
    assert!(caller.is_err() && matches!(called, Err(AuthError::Plain)));
    let (caller, called) = meet(&encrypted, &plain);
    assert!(caller.is_err() && matches!(called, Err(AuthError::Malformed)));
}

#[test]
fn pieces_come_in_their_order_whatever_their_lengths() {
    let key = Key::new().unwrap();
    for encrypted in [false, true] {
        let secret = Secret::new(key.clone(), encrypted).unwrap();
        let (mut a, mut b) = match meet(&secret, &secret) {
            (Ok(a), Ok(b)) => (a, b),
            _ => panic!("they do not meet"),
        };
        let data = bytes(300_000);
        let cuts = [0, 0, 7, 20, 20, 70_000, 70_001, 210_000, 300_000];
        let pieces = cuts.windows(2).map(|cut| IoSlice::new(&data[cut[0]..cut[1]]));
        let mut pieces: Vec<IoSlice<'_>> = pieces.collect();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut rest = &mut pieces[..];
                IoSlice::advance_slices(&mut rest, 0);
                while !rest.is_empty() {
                    let count = a.write_vectored(rest).unwrap();
                    assert!(count > 0);
                    IoSlice::advance_slices(&mut rest, count);
                }
                a.shutdown(Shutdown::Write).unwrap();
            });
            let mut all = Vec::new();
            b.read_to_end(&mut all).unwrap();
            assert!(all == data, "encrypted: {encrypted}");
        });
    }
}
