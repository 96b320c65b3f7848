//! Tests of ranks that run several programs, one after the other (`eyrie_channel`'s `join`).

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use eyrie_channel::Endpoint;
use eyrie_ledger::segment::{STATE_FINALIZED, Segment};

use crate::consts::{ANY_SOURCE, ANY_TAG, COMM_WORLD};
use crate::datatype::predefined::BYTE;
use crate::machine::Machine;
use crate::p2p::SendMode;
use crate::testing;

fn send(m: &mut Machine, data: &[u8], dest: i32, tag: i32) {
    let len = data.len() as i64;
    // SAFETY: `data` holds that many bytes.
    unsafe { m.send(SendMode::Standard, data.as_ptr(), len, BYTE, dest, tag, COMM_WORLD) }.unwrap();
}

/// The next message of whomever.
fn take(m: &mut Machine) -> (Vec<u8>, i32, i32) {
    let mut out = vec![0u8; 1 << 20];
    let (at, room) = (out.as_mut_ptr(), out.len() as i64);
    // SAFETY: `out` holds that many bytes.
    let s = unsafe { m.recv(at, room, BYTE, ANY_SOURCE, ANY_TAG, COMM_WORLD) }.unwrap();
    out.truncate(s.bytes as usize);
    (out, s.source, s.tag)
}

fn is_silent(m: &mut Machine) -> bool {
    m.iprobe(ANY_SOURCE, ANY_TAG, COMM_WORLD).unwrap().is_none()
}

fn ends(mut m: Machine) {
    m.finalize();
    m.leave();
}

/// The rank's next program.
fn next(seg: &'static Segment, rank: u32) -> Machine {
    let ctl = seg.rank(rank);
    assert_eq!(ctl.state.load(Acquire), STATE_FINALIZED);
    ctl.world.fetch_add(1, Relaxed);
    let mut machine = Machine::new(Endpoint::join(seg, rank));
    machine.enter();
    machine
}

/// The rank begins anew.
fn again(seg: &'static Segment, rank: u32, incarnation: u32) -> Machine {
    seg.rank(rank).world.store(0, Relaxed);
    seg.rank(rank).det_pos.store(0, Relaxed);
    testing::machine(seg, rank, incarnation)
}

#[test]
fn what_one_program_leaves_is_not_there_for_the_next() {
    let seg = testing::segment(2);
    let mut a = testing::machine(seg, 0, 1);
    let mut b = testing::machine(seg, 1, 1);
    for len in [0, 100, 5_000, 400_000] {
        send(&mut a, &vec![1; len], 1, 7);
    }
    // One is seen, and stays.
    assert!(!is_silent(&mut b));
    ends(b);
    ends(a);
    let mut b = next(seg, 1);
    assert!(is_silent(&mut b));
    let mut a = next(seg, 0);
    assert!(is_silent(&mut a) && is_silent(&mut b));
    send(&mut a, b"new", 1, 8);
    assert_eq!(take(&mut b), (b"new".to_vec(), 0, 8));
    ends(a);
    ends(b);
}

#[test]
fn what_the_next_program_sends_waits_for_the_next() {
    let seg = testing::segment(2);
    let mut b = testing::machine(seg, 1, 1);
    let mut a = testing::machine(seg, 0, 1);
    send(&mut a, b"old", 1, 1);
    ends(a);
    let mut a = next(seg, 0);
    send(&mut a, b"new", 1, 2);
    assert_eq!(take(&mut b), (b"old".to_vec(), 0, 1));
    assert!(is_silent(&mut b));
    send(&mut b, b"late", 0, 3);
    assert!(is_silent(&mut a));
    ends(b);
    let mut b = next(seg, 1);
    assert_eq!(take(&mut b), (b"new".to_vec(), 0, 2));
    ends(a);
    ends(b);
}

/// Three programs of rank 1, of which the last is under way; rank 0 has sent all.
fn course(seg: &'static Segment, mut b: Machine) -> (Machine, Vec<(Vec<u8>, i32, i32)>) {
    let mut seen = Vec::new();
    for program in 0..3 {
        seen.push(take(&mut b));
        // How often that is fruitless is recorded, too.
        for _ in 0..3 {
            let _ = is_silent(&mut b);
        }
        seen.push(take(&mut b));
        send(&mut b, &seen[program * 2].0.clone(), 0, 50);
        if program < 2 {
            ends(b);
            b = next(seg, 1);
        }
    }
    (b, seen)
}

#[test]
fn a_rank_that_begins_anew_repeats_all_its_programs() {
    let seg = testing::segment(2);
    let mut a = testing::machine(seg, 0, 1);
    for program in 0..3u8 {
        for (tag, len) in [(0, 10), (1, 70_000), (2, 300)] {
            send(&mut a, &vec![program * 8 + tag; len], 1, i32::from(tag));
        }
        if program < 2 {
            ends(a);
            a = next(seg, 0);
        }
    }
    let first = testing::machine(seg, 1, 1);
    let (killed, seen) = course(seg, first);
    assert!(seen.iter().zip(0u8..).all(|((data, _, _), n)| data[0] == n / 2 * 8 + n % 2));
    let sent = seg.channel(1, 0).msgs.load(Relaxed);
    // Nobody ends what was killed.
    std::mem::forget(killed);
    let (mut b, repeated) = course(seg, again(seg, 1, 2));
    assert_eq!(repeated, seen);
    assert_eq!(seg.channel(1, 0).msgs.load(Relaxed), sent, "nothing was sent twice");
    assert!(!b.repeats());
    // It goes on from there.
    send(&mut b, b"more", 0, 51);
    assert_eq!(seg.channel(1, 0).msgs.load(Relaxed), sent + 1);
    ends(b);
    ends(a);
}

/// What each of three programs of rank 1 takes, whom rank 0 spoke to; it answers, and leaves
/// messages untaken. The last one is under way.
fn place(seg: &'static Segment, mut b: Machine) -> (Machine, Vec<Vec<u8>>) {
    let mut seen = Vec::new();
    for program in 0..3 {
        if program > 0 {
            ends(b);
            b = next(seg, 1);
            b.endpoint.address(0, 0);
        }
        for _ in 0..2 {
            seen.push(take(&mut b).0);
        }
        send(&mut b, &[program; 50], 0, 60);
    }
    (b, seen)
}

#[test]
fn who_stays_speaks_to_one_program_of_another_after_the_other() {
    let seg = testing::segment(2);
    let mut a = testing::machine(seg, 0, 1);
    let mut speak = |program: u32, text: &[u8]| {
        a.endpoint.address(1, program);
        assert_eq!(a.endpoint.addressed(1), program);
        send(&mut a, text, 1, 7);
    };
    speak(0, b"a");
    speak(0, b"c");
    // Nobody takes it.
    speak(0, b"left");
    // For the next one: those before leave it where it is.
    speak(1, b"b");
    speak(1, b"d");
    speak(2, b"e");
    // It is too late for this one.
    speak(1, b"late");
    speak(2, b"f");
    let expected = [b"a", b"c", b"b", b"d", b"e", b"f"].map(|text| text.to_vec());
    let (b, seen) = place(seg, testing::machine(seg, 1, 1));
    assert_eq!(seen, expected);
    // It is killed, starts over, and says nothing again.
    std::mem::forget(b);
    let (b, seen) = place(seg, again(seg, 1, 2));
    assert_eq!(seen, expected);
    for program in 0..3 {
        assert_eq!(take(&mut a).0, [program; 50]);
    }
    assert!(is_silent(&mut a));
    ends(b);
    ends(a);
}
