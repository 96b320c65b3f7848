//! Tests of when payload reaches the program's buffer: not before the completing call, in a run and
//! when it is repeated; and that what waits holds nobody up.

use std::collections::HashMap;
use std::sync::Mutex;

use eyrie_ledger::segment::{FT_DETERMINANTS, FT_PROTECT};

use crate::consts::{ANY_SOURCE, COMM_WORLD};
use crate::datatype::predefined::BYTE;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::p2p::SendMode;
use crate::testing;

const W: Handle = COMM_WORLD;
const ROUNDS: u8 = 40;

fn irecv(m: &mut Machine, at: &mut [u8], source: i32, tag: i32) -> Handle {
    // SAFETY: the buffer outlives the request in all tests here.
    unsafe { m.irecv(at.as_mut_ptr(), at.len() as i64, BYTE, source, tag, W).unwrap() }
}

fn send(m: &mut Machine, mode: SendMode, data: &[u8], dest: i32, tag: i32) {
    // SAFETY: `data` holds that many bytes.
    unsafe { m.send(mode, data.as_ptr(), data.len() as i64, BYTE, dest, tag, W).unwrap() };
}

fn recv(m: &mut Machine, at: &mut [u8], source: i32, tag: i32) {
    // SAFETY: `at` holds that many bytes.
    unsafe { m.recv(at.as_mut_ptr(), at.len() as i64, BYTE, source, tag, W).unwrap() };
}

/// Completes the receive in the way of that number.
fn complete(m: &mut Machine, way: u8, mut req: Handle) {
    match way {
        0 => drop(m.wait(&mut req).unwrap()),
        1 => while m.test(&mut req).unwrap().is_none() {},
        2 => drop(m.waitany(&mut [req]).unwrap()),
        3 => while m.testsome(&mut [req]).unwrap().unwrap().is_empty() {},
        4 => {
            while m.request_get_status(req).unwrap().is_none() {}
            m.wait(&mut req).unwrap();
        }
        _ => m.waitall(&mut [req], &mut []).unwrap(),
    }
}

/// Rank 1 sends from the buffer into which the answer comes. A replay that delivers too early sends
/// the answer, which ends the process.
fn asks(m: &mut Machine, die: &mut dyn FnMut() -> bool, bytes: usize) -> Vec<u8> {
    let (mut a, mut course) = (vec![0u8; bytes], Vec::new());
    for round in 0..ROUNDS {
        if die() {
            return course;
        }
        let source = if round % 2 == 0 { 0 } else { ANY_SOURCE };
        let mode = if round % 3 == 0 { SendMode::Synchronous } else { SendMode::Standard };
        let req = irecv(m, &mut a, source, 1);
        send(m, mode, &a, 0, 2);
        complete(m, round % 6, req);
        course.push(a[bytes - 1]);
    }
    course
}

fn answers(m: &mut Machine, die: &mut dyn FnMut() -> bool, bytes: usize) -> Vec<u8> {
    let (mut b, mut course) = (vec![0u8; bytes], Vec::new());
    for round in 0..ROUNDS {
        if die() {
            return course;
        }
        recv(m, &mut b, 1, 2);
        course.push(b[bytes - 1]);
        let next = b[0].wrapping_mul(7).wrapping_add(round + 1);
        b.fill(next);
        send(m, SendMode::Standard, &b, 1, 1);
    }
    course
}

#[test]
fn a_replay_does_not_send_the_answer() {
    for bytes in [8, 3000, 200_000] {
        for (victim, after) in [(1, 1), (1, 13), (1, 39), (0, 7), (0, 30)] {
            let courses: Mutex<HashMap<u32, Vec<Vec<u8>>>> = Mutex::default();
            testing::run_killing(2, victim, after, |m, die| {
                let me = m.world().0;
                let course = if me == 1 { asks(m, die, bytes) } else { answers(m, die, bytes) };
                courses.lock().unwrap().entry(me).or_default().push(course);
            });
            let courses = courses.into_inner().unwrap();
            let lives = &courses[&victim];
            assert_eq!(lives[0][..], lives[1][..lives[0].len()], "victim {victim} after {after}");
        }
    }
}

/// All that is known of a message is known when it is there; its payload is seen afterwards.
#[test]
fn the_buffer_changes_in_the_completing_call_only() {
    testing::run(2, |m| {
        let mut a = [0u8; 100];
        if m.world().0 == 0 {
            send(m, SendMode::Synchronous, &[7; 100], 1, 1);
            send(m, SendMode::Standard, &[8; 1], 1, 2);
            return;
        }
        let req = irecv(m, &mut a, 0, 1);
        // The match is enough for the sender.
        recv(m, &mut [0u8; 1], 0, 2);
        assert!(a.iter().all(|b| *b == 0));
        assert_eq!(m.request_get_status(req).unwrap().map(|s| s.bytes), Some(100));
        assert!(a.iter().all(|b| *b == 7));
    });
}

/// Messages of twice the log, both ways at once: what waits for its call holds nobody up.
#[test]
fn messages_beyond_the_log_pass_each_other() {
    const BYTES: usize = 9 << 20;
    for way in [0, 1, 2, 5] {
        testing::run_with(2, FT_DETERMINANTS | FT_PROTECT, 4 << 20, |m| {
            let me = m.world().0 as u8;
            let mut a = vec![0u8; BYTES];
            let peer = i32::from(1 - me);
            let req = irecv(m, &mut a, peer, 0);
            send(m, SendMode::Standard, &vec![me + 1; BYTES], peer, 0);
            assert_eq!(a[0], 0);
            complete(m, way, req);
            assert!(a.iter().all(|b| *b == 2 - me));
        });
    }
}

/// One that nobody has received yet does not hold up what comes behind it, and is what it was.
#[test]
fn a_message_that_waits_for_its_receive_holds_nobody_up() {
    const BYTES: usize = 32 << 10;
    for features in [FT_DETERMINANTS | FT_PROTECT, 0] {
        testing::run_with(2, features, 4 << 20, |m| {
            if m.world().0 == 1 {
                for tag in [7, 8] {
                    send(m, SendMode::Standard, &[tag as u8; 100], 0, tag);
                }
                for round in 0..1000u32 {
                    send(m, SendMode::Standard, &[round as u8; BYTES], 0, 1);
                }
                send(m, SendMode::Standard, &[9], 0, 9);
                return;
            }
            let mut a = vec![0u8; BYTES];
            for round in 0..1000u32 {
                recv(m, &mut a, 1, 1);
                assert!(a.iter().all(|b| *b == round as u8));
            }
            let (mut whole, mut part) = ([0u8; 200], [0u8; 100]);
            recv(m, &mut part, ANY_SOURCE, 8);
            recv(m, &mut whole, 1, 7);
            assert!(part == [8; 100] && whole[..100] == [7; 100] && whole[100..] == [0; 100]);
            recv(m, &mut a[..1], 1, 9);
            assert_eq!(a[0], 9);
        });
    }
}

/// Of several that are awaited the one that is named is in place, and no other.
#[test]
fn a_request_that_is_not_named_is_not_in_place() {
    testing::run(2, |m| {
        if m.world().0 == 0 {
            (0..3).for_each(|tag| send(m, SendMode::Standard, &[tag + 1; 50], 1, tag.into()));
            send(m, SendMode::Standard, &[1], 1, 9);
            return;
        }
        let mut all = [[0u8; 50]; 3];
        let mut reqs = [Handle(0); 3];
        for (tag, (buf, req)) in (0..).zip(all.iter_mut().zip(&mut reqs)) {
            *req = irecv(m, buf, 0, tag);
        }
        recv(m, &mut [0u8; 1], 0, 9);
        for named in 0..3 {
            let (at, _, _) = m.waitany(&mut reqs).unwrap().unwrap();
            assert_eq!(at, named);
            for (i, buf) in all.iter().enumerate() {
                let want = if i <= named { i as u8 + 1 } else { 0 };
                assert!(buf.iter().all(|b| *b == want), "{i} when {named} was named");
            }
        }
    });
}

/// A freed receive has no completing call: it goes into place at the end of one, the same in a
/// replay.
#[test]
fn a_freed_receive_is_in_place_when_what_followed_it_is_known() {
    let call = |m: &mut Machine| {
        m.leave();
        m.enter();
        m.called("MPI_Something");
    };
    for (victim, after) in [(1, 3), (1, 20), (0, 11)] {
        let courses: Mutex<HashMap<u32, Vec<Vec<u8>>>> = Mutex::default();
        testing::run_killing(2, victim, after, |m, die| {
            let me = m.world().0;
            let (mut a, mut word, mut course) = ([0u8; 64], [0u8; 1], Vec::new());
            for round in 0..ROUNDS {
                if die() {
                    break;
                }
                if me == 0 {
                    recv(m, &mut a, 1, 1);
                    course.push(a[0]);
                    let next = a[0].wrapping_mul(3).wrapping_add(round + 1);
                    a.fill(next);
                    send(m, SendMode::Standard, &a, 1, 1);
                    send(m, SendMode::Standard, &[round], 1, 2);
                    continue;
                }
                let mut req = irecv(m, &mut a, 0, 1);
                m.request_free(&mut req).unwrap();
                call(m);
                send(m, SendMode::Standard, &a, 0, 1);
                call(m);
                recv(m, &mut word, 0, 2);
                call(m);
                course.extend([a[63], word[0]]);
            }
            courses.lock().unwrap().entry(me).or_default().push(course);
        });
        let courses = courses.into_inner().unwrap();
        let lives = &courses[&victim];
        assert_eq!(lives[0][..], lives[1][..lives[0].len()], "victim {victim} after {after}");
        assert!(lives[1].len() >= ROUNDS.into(), "it went on");
    }
}
