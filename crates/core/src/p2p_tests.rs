//! Tests of point-to-point communication between machines in threads, also when one starts anew.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use crate::consts::{ANY_SOURCE, ANY_TAG, COMM_WORLD, PROC_NULL, REQUEST_NULL};
use crate::datatype::predefined::BYTE;
use crate::error::class;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::p2p::SendMode;
use crate::testing;

const W: Handle = COMM_WORLD;

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed.wrapping_mul(97) ^ (i / 4096 * 31 + i)) as u8).collect()
}

fn send(m: &mut Machine, mode: SendMode, data: &[u8], dest: i32, tag: i32) {
    // SAFETY: `data` holds that many bytes.
    unsafe { m.send(mode, data.as_ptr(), data.len() as i64, BYTE, dest, tag, W).unwrap() };
}

fn recv(m: &mut Machine, len: usize, source: i32, tag: i32) -> (Vec<u8>, i32, i32) {
    let mut out = vec![0u8; len];
    // SAFETY: `out` holds that many bytes.
    let s = unsafe { m.recv(out.as_mut_ptr(), len as i64, BYTE, source, tag, W).unwrap() };
    out.truncate(s.bytes as usize);
    (out, s.source, s.tag)
}

#[test]
fn every_size_and_mode_arrives() {
    for ft in [0, eyrie_ledger::segment::FT_LOGGED] {
        testing::run_with(2, ft, 256 << 20, |m| {
            let me = m.world().0 as i32;
            let modes = [SendMode::Standard, SendMode::Synchronous, SendMode::Buffered];
            for (i, len) in [0, 1, 24, 25, 984, 985, 4096, 32768, 32769, 300_000, 5_000_000]
                .into_iter()
                .enumerate()
            {
                let mode = modes[i % modes.len()];
                if me == 0 {
                    send(m, mode, &bytes(i as u64, len), 1, i as i32);
                    assert_eq!(recv(m, len, 1, ANY_TAG).0, bytes(i as u64 + 50, len));
                } else {
                    assert_eq!(recv(m, len + 10, 0, i as i32).0, bytes(i as u64, len));
                    send(m, mode, &bytes(i as u64 + 50, len), 0, 77);
                }
            }
        });
    }
}

#[test]
fn a_message_to_oneself_and_to_nobody() {
    testing::run(1, |m| {
        send(m, SendMode::Standard, b"hello", 0, 3);
        send(m, SendMode::Standard, b"nobody", PROC_NULL, 3);
        assert_eq!(recv(m, 10, ANY_SOURCE, ANY_TAG), (b"hello".to_vec(), 0, 3));
        assert_eq!(recv(m, 10, PROC_NULL, ANY_TAG).1, PROC_NULL);
    });
}

#[test]
fn a_message_too_long_is_truncated_and_says_so() {
    testing::run(2, |m| {
        if m.world().0 == 0 {
            send(m, SendMode::Standard, &bytes(1, 100_000), 1, 0);
            send(m, SendMode::Standard, b"next", 1, 0);
        } else {
            let mut out = [0u8; 10];
            // SAFETY: ten bytes.
            let got = unsafe { m.recv(out.as_mut_ptr(), 10, BYTE, 0, 0, W) };
            assert_eq!(got, Err(class::TRUNCATE));
            assert_eq!(out[..], bytes(1, 10));
            assert_eq!(recv(m, 10, 0, 0).0, b"next");
        }
    });
}

#[test]
fn waiting_for_any_tells_which_request_failed() {
    testing::run(2, |m| {
        if m.world().0 == 0 {
            for _ in 0..2 {
                send(m, SendMode::Standard, b"short", 1, 0);
                send(m, SendMode::Standard, &bytes(1, 100), 1, 1);
            }
            return;
        }
        for polls in [false, true] {
            let mut bufs = [[0u8; 10]; 2];
            let mut reqs = [REQUEST_NULL; 2];
            for ((buf, req), tag) in bufs.iter_mut().zip(&mut reqs).zip(0..) {
                // SAFETY: ten bytes each, which outlive the requests: all of them end here.
                *req = unsafe { m.irecv(buf.as_mut_ptr(), 10, BYTE, 0, tag, W).unwrap() };
            }
            let mut found = [None; 2];
            while found.contains(&None) {
                let next = match polls {
                    true => m.testany(&mut reqs).unwrap(),
                    false => Some(m.waitany(&mut reqs).unwrap()),
                };
                if let Some((index, _, error)) = next.flatten() {
                    assert_eq!(reqs[index], REQUEST_NULL);
                    found[index] = Some(error);
                }
            }
            assert_eq!(found, [Some(None), Some(Some(class::TRUNCATE))]);
        }
    });
}

#[test]
fn a_small_log_only_makes_the_sender_wait_when_nothing_is_retained() {
    testing::run_with(2, 0, 4 << 20, |m| {
        for i in 0..3000u64 {
            if m.world().0 == 0 {
                send(m, SendMode::Standard, &bytes(i, 20_000), 1, 0);
            } else {
                assert_eq!(recv(m, 20_000, 0, 0).0, bytes(i, 20_000));
            }
        }
    });
}

#[test]
fn bad_arguments_are_classified() {
    testing::run(1, |m| {
        let b = [0u8; 4];
        let p = b.as_ptr();
        // SAFETY: four bytes; the calls fail before they touch them.
        unsafe {
            let std = SendMode::Standard;
            assert_eq!(m.send(std, p, 4, BYTE, 1, 0, W), Err(class::RANK));
            assert_eq!(m.send(std, p, 4, BYTE, 0, -5, W), Err(class::TAG));
            assert_eq!(m.send(std, p, -1, BYTE, 0, 0, W), Err(class::COUNT));
            assert_eq!(m.send(std, p, 4, Handle(0x200), 0, 0, W), Err(class::TYPE));
            assert_eq!(m.send(std, p, 4, BYTE, 0, 0, Handle(0x100)), Err(class::COMM));
        }
        assert_eq!(m.wait(&mut Handle(0x8123_4567)), Err(class::REQUEST));
    });
}

/// Master and workers; the master's course depends on arrival. Whoever dies anywhere, the second
/// life of the master must see the same course as the first as far as that went.
#[test]
fn a_restarted_rank_repeats_its_course() {
    for (victim, after) in [(0, 1), (0, 37), (0, 200), (1, 5), (2, 60), (3, 99)] {
        let courses: Mutex<HashMap<u32, Vec<Course>>> = Mutex::default();
        testing::run_killing(4, victim, after, |m, die| {
            let me = m.world().0;
            let course = if me == 0 { master(m, die) } else { worker(m, me, die) };
            courses.lock().unwrap().entry(me).or_default().push(course);
        });
        for lives in courses.into_inner().unwrap().into_values() {
            for pair in lives.windows(2) {
                assert_eq!(pair[0][..], pair[1][..pair[0].len()], "victim {victim} after {after}");
            }
        }
    }
}

/// A node dies with what its rank had not sent yet; what others have seen of it must come again.
#[test]
fn what_others_have_seen_of_a_lost_node_comes_again() {
    for (victim, after) in [(0, 1), (0, 37), (0, 120), (0, 200), (1, 5), (2, 60)] {
        let courses: Mutex<HashMap<u32, Course>> = Mutex::default();
        testing::run_killing_node(4, victim, after, |m, die| {
            let me = m.world().0;
            let course = if me == 0 { master(m, die) } else { worker(m, me, die) };
            courses.lock().unwrap().insert(me, course);
        });
        let courses = courses.into_inner().unwrap();
        for worker in 1..4 {
            let name = -1 - worker;
            let told = courses[&0].iter().filter(|(to, _)| *to == name).map(|(_, note)| *note);
            let heard = courses[&(worker as u32)].iter().map(|(_, note)| *note);
            assert!(told.eq(heard), "worker {worker}, victim {victim} after {after}");
        }
    }
}

/// An image from within a replay: what is recorded of the receive that was posted last, and has met
/// its message, is over when the rank comes back from there.
#[test]
fn an_image_from_within_a_replay_repeats_the_rest_only() {
    let seg = testing::segment(2);
    let mut other = testing::machine(seg, 1, 1);
    (0..3).for_each(|tag| send(&mut other, SendMode::Standard, &[tag], 0, tag.into()));
    let take = |m: &mut Machine, tag: u8| {
        assert_eq!(recv(m, 1, ANY_SOURCE, tag.into()), (vec![tag], 1, tag.into()));
    };
    let mut first = testing::machine(seg, 0, 1);
    take(&mut first, 0);
    take(&mut first, 1);
    drop(first);
    let mut again = testing::machine(seg, 0, 2);
    take(&mut again, 0);
    assert!(again.endpoint.door.replaying());
    // Its memory is what an image from here would bring back.
    seg.rank(0).incarnation.store(3, Ordering::Relaxed);
    again.enter();
    take(&mut again, 1);
    assert!(!again.endpoint.door.replaying());
    take(&mut again, 2);
}

const TASKS: u64 = 200;

/// What a rank was told, by whom, in order.
type Course = Vec<(i32, u64)>;

fn master(m: &mut Machine, die: &mut dyn FnMut() -> bool) -> Course {
    let mut course = Vec::new();
    let mut fruitless = 0u64;
    let mut given = 0u64;
    let mut stopped = 0;
    while stopped < 3 {
        if die() {
            return course;
        }
        let probe = if given.is_multiple_of(3) {
            m.iprobe(ANY_SOURCE, ANY_TAG, W).unwrap()
        } else {
            Some(m.probe(ANY_SOURCE, 1, W).unwrap())
        };
        let Some(status) = probe else {
            fruitless += 1;
            continue;
        };
        let (data, source, _) = recv(m, 8, status.source, status.tag);
        course.push((source, u64::from_le_bytes(data.try_into().unwrap())));
        let order = if given < TASKS { given } else { u64::MAX };
        stopped += u64::from(order == u64::MAX);
        given += 1;
        let mut note = order.to_le_bytes().to_vec();
        note.extend(fruitless.to_le_bytes());
        course.push((-1 - source, order ^ fruitless));
        send(m, SendMode::Standard, &note, source, 2);
    }
    course
}

fn worker(m: &mut Machine, me: u32, die: &mut dyn FnMut() -> bool) -> Course {
    let mut course = Vec::new();
    loop {
        if die() {
            return course;
        }
        send(m, SendMode::Synchronous, &(u64::from(me) << 32).to_le_bytes(), 0, 1);
        let (note, _, _) = recv(m, 16, 0, 2);
        let order = u64::from_le_bytes(note[..8].try_into().unwrap());
        course.push((0, order ^ u64::from_le_bytes(note[8..].try_into().unwrap())));
        if order == u64::MAX {
            return course;
        }
    }
}

#[test]
fn tests_waits_and_cancels_are_repeated() {
    for after in [0, 3, 10, 25, 40] {
        let courses: Mutex<Vec<Vec<usize>>> = Mutex::default();
        testing::run_killing(3, 0, after, |m, die| {
            let me = m.world().0;
            if me > 0 {
                for i in 0..20 {
                    send(m, SendMode::Standard, &bytes(i, 64), 0, i as i32);
                    recv(m, 0, 0, 100);
                }
                return;
            }
            let course = any_and_some(m, die);
            courses.lock().unwrap().push(course);
        });
        let lives = courses.into_inner().unwrap();
        for pair in lives.windows(2) {
            assert_eq!(pair[0][..], pair[1][..pair[0].len()], "after {after}");
        }
    }
}

fn any_and_some(m: &mut Machine, die: &mut dyn FnMut() -> bool) -> Vec<usize> {
    let mut course = Vec::new();
    let mut bufs = [[0u8; 64]; 3];
    for i in 0..20 {
        let mut reqs = [Handle(0x180); 3];
        for (s, (buf, req)) in bufs.iter_mut().zip(&mut reqs).enumerate() {
            let (source, tag) = if s == 2 { (ANY_SOURCE, 999) } else { (s as i32 + 1, i) };
            // SAFETY: the buffers outlive the requests, which end in this round.
            *req = unsafe { m.irecv(buf.as_mut_ptr(), 64, BYTE, source, tag, W).unwrap() };
        }
        let mut left = 2;
        while left > 0 {
            if die() {
                return course;
            }
            match (i + left) % 3 {
                0 => {
                    let (index, ..) = m.waitany(&mut reqs).unwrap().unwrap();
                    course.push(index);
                    left -= 1;
                }
                1 => {
                    for (index, _) in m.testsome(&mut reqs).unwrap().unwrap() {
                        course.push(10 + index);
                        left -= 1;
                    }
                    course.push(1000);
                }
                _ => match m.testany(&mut reqs).unwrap().unwrap_or(None) {
                    Some((index, ..)) => {
                        course.push(20 + index);
                        left -= 1;
                    }
                    None => course.push(2000),
                },
            }
        }
        m.cancel(reqs[2]).unwrap();
        assert!(m.wait(&mut reqs[2]).unwrap().cancelled);
        send(m, SendMode::Standard, &[], 1, 100);
        send(m, SendMode::Standard, &[], 2, 100);
    }
    course
}

#[test]
fn persistent_requests_and_matched_probes() {
    testing::run(2, |m| {
        let me = m.world().0 as i32;
        let (mut out, mut inn) = ([0u8; 16], [0u8; 16]);
        // SAFETY: the buffers outlive the requests.
        let (mut s, mut r) = unsafe {
            let mode = SendMode::Standard;
            let s = m.send_init(mode, out.as_ptr(), 16, BYTE, 1 - me, 5, W).unwrap();
            (s, m.recv_init(inn.as_mut_ptr(), 16, BYTE, 1 - me, 5, W).unwrap())
        };
        for i in 0..50u8 {
            out.fill(i);
            m.start(r).unwrap();
            m.start(s).unwrap();
            m.wait(&mut r).unwrap();
            m.wait(&mut s).unwrap();
            assert_eq!(inn, [i; 16]);
        }
        m.request_free(&mut s).unwrap();
        m.request_free(&mut r).unwrap();
        if me == 0 {
            send(m, SendMode::Standard, &bytes(9, 700_000), 1, 8);
        } else {
            let (mut message, status) = m.mprobe(ANY_SOURCE, 8, W).unwrap();
            assert_eq!(status.bytes, 700_000);
            let mut out = vec![0u8; 700_000];
            // SAFETY: as long as the message.
            unsafe { m.mrecv(out.as_mut_ptr(), 700_000, BYTE, &mut message).unwrap() };
            assert_eq!(out, bytes(9, 700_000));
        }
    });
}

/// The channel's front stands behind padding, the next entry comes only then, and the message is
/// taken out of the unexpected ones before the front moves on: no entry may be delivered twice.
#[test]
fn a_message_cut_by_padding_is_delivered_once() {
    use eyrie_channel::Endpoint;
    use eyrie_ledger::entry::Envelope;
    use eyrie_ledger::segment::{FT_LOGGED, Geometry, Segment};
    use eyrie_ledger::sendlog::{Append, Outgoing, SendLog};
    use std::sync::atomic::Ordering::Relaxed;

    let chunk = 64 * 1024;
    let geo = Geometry { ranks: 2, chunk_bytes: chunk, pool_chunks: 3, det_words: 1 << 18 };
    let (_, seg) = Segment::create("test", geo, FT_LOGGED, 2).unwrap();
    let seg: &'static Segment = Box::leak(Box::new(seg));
    let mut log = SendLog::new(seg, 0);
    let put = |log: &mut SendLog, dst: u32, out: &mut Outgoing, data: &[u8]| {
        log.append(dst, out, |at, to| {
            to.copy_from_slice(&data[at as usize..at as usize + to.len()]);
        })
        .unwrap()
    };
    let env = |len: u64, tag: i32| Envelope { len, ctx: 0, tag, crank: 0, flags: 0 };
    // Two of the three chunks go to the channel to itself, so that the third is the last.
    let small = [1u8; 24];
    for _ in 0..chunk / 64 + 1 {
        assert_eq!(put(&mut log, 0, &mut Outgoing::new(env(24, 0)), &small), Append::Whole);
    }
    // After these and a first part of 32 KiB, 1024 bytes are left: padding.
    let mut m = Machine::new(Endpoint::join(seg, 1));
    let ctx = m.comms.get(W).unwrap().ctx();
    let env = |len: u64, tag: i32| Envelope { ctx, ..env(len, tag) };
    for _ in 0..495 {
        assert_eq!(put(&mut log, 1, &mut Outgoing::new(env(24, 1)), &small), Append::Whole);
    }
    // No period of a fragment's length, or a fragment in another's place would not show.
    let data: Vec<u8> = (0..2 * 32768 + 48usize).map(|i| (i / 4096 * 31 + i) as u8).collect();
    let mut big = Outgoing::new(env(data.len() as u64, 2));
    assert_eq!(put(&mut log, 1, &mut big, &data), Append::Part);
    assert_eq!(put(&mut log, 1, &mut big, &data), Append::Full);
    m.enter();
    assert_eq!(m.iprobe(0, 2, W).unwrap().map(|s| s.bytes), Some(data.len() as u64));
    seg.channel(0, 0).trim.store(u64::from(chunk), Relaxed);
    assert_eq!(put(&mut log, 1, &mut big, &data), Append::Part);
    let mut out = vec![0u8; data.len()];
    // SAFETY: as long as the message.
    let mut req = unsafe { m.irecv(out.as_mut_ptr(), out.len() as i64, BYTE, 0, 2, W).unwrap() };
    assert_eq!(put(&mut log, 1, &mut big, &data), Append::Whole);
    m.wait(&mut req).unwrap();
    m.leave();
    assert_eq!(out, data);
}
