//! What a connection leaves in its process: no thread, and, when it is over, no descriptor. The
//! only test of its process, as it counts.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use eyrie_fabric::{Listener, Pipe, Provider, connect};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TIMEOUT: Duration = Duration::from_secs(60);

fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count()
}

fn pair(provider: &Provider) -> (Pipe, Pipe) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let here = listener.accept().unwrap().0;
    let token = [7; 16];
    let listener = Listener::new(provider, HERE, token).unwrap();
    let address = listener.address().to_vec();
    thread::scope(|scope| {
        let called = scope.spawn(move || {
            // SAFETY: no arguments.
            let thread = unsafe { libc::gettid() };
            (listener.accept(here.into(), TIMEOUT).unwrap(), thread)
        });
        let calls = connect(provider, HERE, (&address, &token), there.into(), TIMEOUT).unwrap();
        let (called, thread) = called.join().unwrap();
        // It is among the threads for a moment longer than is waited for it.
        while std::fs::exists(format!("/proc/self/task/{thread}")).unwrap() {
            thread::yield_now();
        }
        (calls, called)
    })
}

#[test]
fn no_thread_and_no_descriptor_is_left() {
    let provider = match Provider::find(Some("tcp"), HERE) {
        Ok(provider) => provider,
        Err(error) => {
            println!("NOT RUN: {error}");
            let without = std::env::var("EYRIE_TESTS_WITHOUT").unwrap_or_default();
            assert!(without.split(',').any(|name| name == "libfabric"), "{error}");
            return;
        }
    };
    // What the library keeps for itself comes with the first one.
    drop(pair(&provider));
    let (threads, descriptors) = (count("task"), count("fd"));
    let pairs: Vec<(Pipe, Pipe)> = (0..8).map(|_| pair(&provider)).collect();
    for (a, b) in &pairs {
        a.timed(TIMEOUT).write_all(b"word").unwrap();
        let mut word = [0; 4];
        b.timed(TIMEOUT).read_exact(&mut word).unwrap();
        assert_eq!(&word, b"word");
    }
    println!("{} descriptors for each end", (count("fd") - descriptors) / 16);
    assert_eq!(count("task"), threads);
    drop(pairs);
    assert_eq!((count("task"), count("fd")), (threads, descriptors));
}
