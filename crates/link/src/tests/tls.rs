//! Encrypted links: who is between two nodes reads nothing, changes nothing, and is counted.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::thread;

use eyrie_control::auth::{AuthError, Hello, Key, Role};
use eyrie_ledger::segment::FT_LOGGED;
use eyrie_tls::Secret;

use super::jobs::{NEVER, byte, geometry, join, receive, send};
use super::strangers::{await_refused, dial};
use crate::links::Refused;
use crate::testing::{Cluster, JOB};

/// Stands between the nodes that call and the one that is called. Ends with the process.
struct Between {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Between {
    /// Changes one byte that is sent there, behind so many; `usize::MAX`: none.
    fn new(called: SocketAddr, honest: usize) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let between = Between { address, heard: Arc::default() };
        let (heard, honest) = (Arc::clone(&between.heard), Arc::new(AtomicUsize::new(honest)));
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let Ok(called) = TcpStream::connect(called) else { continue };
                let always = Arc::new(AtomicUsize::new(usize::MAX));
                let ways = [(&caller, &called, &honest), (&called, &caller, &always)];
                for (from, to, honest) in ways {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (heard, honest) = (Arc::clone(&heard), Arc::clone(honest));
                    thread::spawn(move || pass(from, to, &heard, &honest));
                }
            }
        });
        between
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, heard: &Mutex<Vec<u8>>, honest: &AtomicUsize) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        heard.lock().unwrap().extend_from_slice(&buffer[..count]);
        let left = honest.load(SeqCst);
        if left < count {
            buffer[left] ^= 1;
            honest.store(usize::MAX, SeqCst);
        } else if left < usize::MAX {
            honest.store(left - count, SeqCst);
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

fn cluster(encrypted: bool) -> Cluster {
    let secret = Secret::new(Key::new().unwrap(), encrypted).unwrap();
    // Without replicas there is no connection before a message.
    Cluster::of(2, geometry(2, 1024), FT_LOGGED, 0, secret)
}

/// Rank 0 sends so many messages to rank 1, all of which arrive, past who stands before node 1.
fn exchange(cluster: &Cluster, honest: usize, count: u32) -> Between {
    let mut members = cluster.members();
    let between = Between::new(members[1].1, honest);
    members[1].1 = between.address;
    cluster.node(0).links.members(&members);
    let segments = [0, 1].map(|r| cluster.attach(r, &[0, 0]));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut end = join(segments[0], 0);
            for number in 0..count {
                send(&mut end, 1, number, 0);
            }
        });
        let mut end = join(segments[1], 1);
        for number in 0..count {
            assert!(receive(&mut end, 0, number, &NEVER));
        }
    });
    between
}

fn holds(heard: &[u8], what: &[u8]) -> bool {
    heard.windows(what.len()).any(|w| w == what)
}

#[test]
fn who_is_between_two_nodes_reads_nothing() {
    for encrypted in [false, true] {
        let cluster = cluster(encrypted);
        let between = exchange(&cluster, usize::MAX, 5);
        let heard = between.heard.lock().unwrap();
        // Message 3 has 40,000 bytes.
        let part: Vec<u8> = (1000..1064).map(|at| byte(3, at)).collect();
        assert!(heard.len() > 40_000);
        assert_eq!(holds(&heard, &part), !encrypted);
        assert_eq!(holds(&heard, b"EYRIENET"), !encrypted);
        assert!(!holds(&heard, &cluster.key.0));
    }
}

#[test]
fn who_changes_a_byte_ends_the_connection_and_is_counted() {
    let cluster = cluster(true);
    exchange(&cluster, 30_000, 40);
    await_refused(&cluster, Refused { malformed: 1, ..Refused::default() });
}

#[test]
fn strangers_to_encrypted_links_are_told_nothing_and_counted() {
    let cluster = cluster(true);
    let from = cluster.node(0).member;
    let to = cluster.node(1).member;
    let hello = |job: &str, role| {
        Hello::new(role, job, (from.node, from.epoch), (to.node, to.epoch)).unwrap()
    };
    // Who does not speak TLS hears of an error, in TLS, and no more.
    let plain = hello(JOB, Role::LinkSender).encode();
    for garbage in [[0x47; 200].as_slice(), &plain] {
        let mut stream = dial(&cluster);
        stream.write_all(garbage).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 8, "{rest:?}");
    }
    let wanted = Role::LinkReceiver;
    let other = Secret::new(Key::new().unwrap(), true).unwrap();
    let refused = other.call(dial(&cluster), &hello(JOB, Role::LinkSender), wanted);
    assert!(matches!(refused, Err(AuthError::Key)));
    let known = Secret::new(cluster.key.clone(), true).unwrap();
    assert!(known.call(dial(&cluster), &hello("other", Role::LinkSender), wanted).is_err());
    assert!(known.call(dial(&cluster), &hello(JOB, Role::Node), wanted).is_err());
    await_refused(&cluster, Refused { strangers: 5, ..Refused::default() });
    assert!(known.call(dial(&cluster), &hello(JOB, Role::LinkSender), wanted).is_ok());
}
