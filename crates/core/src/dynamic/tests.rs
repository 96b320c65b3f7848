//! Groups that meet by ports and sockets, between threads over one segment and over several.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use super::HELLO_BYTES;
use crate::consts::{COMM_SELF, COMM_WORLD};
use crate::datatype::predefined::{BYTE, UINT64_T as U64};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::op::SUM;
use crate::testing;

/// The sum of what the other group's ranks have.
fn sum_across(m: &mut Machine, comm: Handle, own: u64) -> u64 {
    let (own, mut sum) = ([own], [0u64]);
    // SAFETY: the buffers hold one element.
    unsafe {
        let (from, at) = (own.as_ptr().cast(), sum.as_mut_ptr().cast());
        m.allreduce(from, at, 1, U64, SUM, comm).unwrap();
    }
    sum[0]
}

/// The text that rank 0 has.
fn told(m: &mut Machine, text: &str) -> Vec<u8> {
    let mut all = [0u8; 64];
    all[..text.len()].copy_from_slice(text.as_bytes());
    // SAFETY: it has as many bytes.
    unsafe { m.bcast(all.as_mut_ptr(), 64, BYTE, 0, COMM_WORLD) }.unwrap();
    all.split(|byte| *byte == 0).next().unwrap().to_vec()
}

/// The first rank opens a port and tells all, the ranks of its half accept there, the others
/// connect.
fn meets(m: &mut Machine) -> u64 {
    let (me, ranks) = m.world();
    let serves = me < ranks / 2;
    let half = m.comm_split(COMM_WORLD, serves.into(), 0).unwrap();
    let mut port = String::new();
    if me == 0 {
        port = m.open_port().unwrap();
    }
    let found = told(m, &port);
    let mut inter = if serves {
        m.comm_accept(port.as_bytes(), 0, half).unwrap()
    } else {
        let root = m.comm_size(half).unwrap() - 1;
        m.comm_connect(&found, root, half).unwrap()
    };
    assert!(m.comm_test_inter(inter).unwrap());
    let sum = sum_across(m, inter, u64::from(me) + 1);
    m.comm_disconnect(&mut inter).unwrap();
    if me == 0 {
        m.close_port(port.as_bytes()).unwrap();
        assert_eq!(m.close_port(port.as_bytes()), Err(class::PORT));
    }
    sum
}

fn expected(me: u32, ranks: u32) -> u64 {
    let low = u64::from(ranks / 2);
    let all = u64::from(ranks);
    let of_low = low * (low + 1) / 2;
    if me < ranks / 2 { all * (all + 1) / 2 - of_low } else { of_low }
}

#[test]
fn halves_of_a_job_meet_at_a_port() {
    for ranks in [2, 5] {
        testing::run(ranks, |m| {
            for _ in 0..3 {
                assert_eq!(meets(m), expected(m.world().0, ranks));
            }
        });
    }
}

#[test]
fn they_meet_again_when_a_node_was_lost() {
    for victim in [0, 1, 3] {
        testing::run_killing_node(4, victim, 2, |m, step| {
            for _ in 0..4 {
                assert_eq!(meets(m), expected(m.world().0, 4));
                if step() {
                    return;
                }
            }
        });
    }
}

#[test]
fn who_comes_first_is_accepted_first_and_all_are() {
    testing::run(4, |m| {
        let me = m.world().0;
        let port = if me == 0 { m.open_port().unwrap() } else { String::new() };
        let found = told(m, &port);
        if me > 0 {
            let port = found;
            let inter = m.comm_connect(&port, 0, COMM_SELF).unwrap();
            assert_eq!(sum_across(m, inter, u64::from(me)), 100);
            return;
        }
        let mut sum = 0;
        for _ in 1..4 {
            let inter = m.comm_accept(port.as_bytes(), 0, COMM_SELF).unwrap();
            sum += sum_across(m, inter, 100);
        }
        assert_eq!(sum, 6);
    });
}

#[test]
fn what_is_no_port_of_this_job_is_refused() {
    testing::run(2, |m| {
        let own = m.open_port().unwrap();
        let foreign = own.replacen("##", "#other#", 1);
        assert_ne!(own, foreign);
        for port in [b"".as_slice(), b"eyrie-port#", foreign.as_bytes(), own.as_bytes()] {
            assert_eq!(m.comm_connect(port, 0, COMM_SELF), Err(class::PORT));
        }
        let other = own.replacen(&format!("#{}#", m.world().0), "#7#", 1);
        assert_eq!(m.comm_connect(other.as_bytes(), 0, COMM_SELF), Err(class::PORT));
        assert_eq!(m.comm_accept(other.as_bytes(), 0, COMM_SELF), Err(class::PORT));
        // What the root finds out all are told.
        assert_eq!(m.comm_connect(b"none", 1, COMM_WORLD), Err(class::PORT));
        assert_eq!(m.comm_accept(b"none", 2, COMM_WORLD), Err(class::ROOT));
    });
}

/// Says and hears over a socket as far as that is possible now.
fn swap(socket: &UnixStream, said: &mut bool, own: &[u8]) -> Res<Option<Vec<u8>>> {
    use std::io::{Read, Write};
    let mut socket = socket;
    if !std::mem::replace(said, true) {
        socket.write_all(own).map_err(|_| class::OTHER)?;
    }
    let mut theirs = vec![0; HELLO_BYTES];
    match socket.read_exact(&mut theirs) {
        Ok(()) => Ok(Some(theirs)),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
        Err(_) => Err(class::OTHER),
    }
}

#[test]
fn the_ends_of_a_socket_meet() {
    // A job on one node, then one on several: a pair for each.
    let pairs: Vec<_> = (0..2).map(|_| UnixStream::pair().unwrap()).collect();
    let left = Mutex::new(vec![0, 0]);
    testing::run(2, |m| {
        let me = m.world().0 as usize;
        let turn = std::mem::replace(&mut left.lock().unwrap()[me], 1);
        let socket = if me == 0 { &pairs[turn].0 } else { &pairs[turn].1 };
        assert!(socket.as_raw_fd() >= 0);
        socket.set_nonblocking(true).unwrap();
        let mut said = false;
        let inter = m.comm_join(|own| swap(socket, &mut said, own)).unwrap();
        assert_eq!(sum_across(m, inter, me as u64 + 5), 6 - me as u64);
    });
}

#[test]
fn a_socket_that_says_nothing_or_nonsense_joins_nobody() {
    testing::run(1, |m| {
        assert_eq!(m.comm_join(|_| Err(class::OTHER)), Err(class::OTHER));
        assert_eq!(m.comm_join(|_| Ok(Some(vec![7; HELLO_BYTES]))), Err(class::OTHER));
        // It is this rank itself.
        let own = m.comm_join(|own| Ok(Some(own.to_vec())));
        assert_eq!(own, Err(class::UNSUPPORTED_OPERATION));
    });
}
