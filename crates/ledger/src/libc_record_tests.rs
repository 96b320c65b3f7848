//! Tests of what the C library says: dictated as it was said, in a bounded log.

use super::*;
use crate::clock::Which;
use crate::door::Call;
use crate::door::{Outcome, Verdict};
use crate::segment::{FT_CLOCK, FT_LIBC, FT_LOGGED, Geometry, Segment};

fn segment() -> &'static Segment {
    of_words(1 << 18)
}

fn of_words(det_words: u64) -> &'static Segment {
    let geo = Geometry { ranks: 1, chunk_bytes: 4096, pool_chunks: 8, det_words };
    let (_, seg) = Segment::create("t", geo, FT_LOGGED | FT_CLOCK | FT_LIBC, 2).unwrap();
    Box::leak(Box::new(seg))
}

fn number(what: What, door: &mut Door, now: u64) -> u64 {
    let told = door.tell(what, |room| {
        room[..8].copy_from_slice(&now.to_ne_bytes());
        8
    });
    u64::from_ne_bytes(told.unwrap().try_into().unwrap())
}

/// Asks for all kinds of things; `at` is what they are derived from.
fn course(door: &mut Door, mut random: u64, at: &mut u64, steps: u32, seen: &mut Vec<String>) {
    for step in 0..steps {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *at += random >> 60 << 9;
        let now = *at;
        match random >> 33 & 15 {
            0 => {
                if door.ask(Call::Iprobe).unwrap() == Verdict::Live {
                    door.fruitless();
                }
            }
            1 => match door.ask(Call::Test).unwrap() {
                Verdict::Live => door.record(Call::Test, &Outcome::One(step)),
                Verdict::Forced(outcome) => assert_eq!(outcome, Outcome::One(step)),
                Verdict::Fruitless => panic!("one that was fruitful"),
            },
            2 => {
                let mut bytes = [0; 21];
                let key = |room: &mut [u8]| {
                    room.fill(now as u8);
                    room.len()
                };
                door.random(&mut bytes, key).unwrap();
                seen.push(format!("{bytes:?}"));
            }
            3 => seen.push(number(What::ParentPid, door, now >> 14).to_string()),
            4 => seen.push(number(What::UsageSelf, door, now).to_string()),
            5 => {
                let told = door.tell(What::Addresses, |room| {
                    let count = now as usize & 0xfff;
                    room[..count].fill(3);
                    count
                });
                seen.push(told.unwrap().len().to_string());
            }
            n => {
                let which = Which::of(n - 6).unwrap_or(Which::Monotonic);
                // Years, as the time of day has them.
                let now = if which == Which::Realtime { now | 3 << 59 } else { now };
                seen.push(format!("{which:?} {}", door.clock(which, || now).unwrap()));
            }
        }
    }
}

#[test]
fn what_was_said_is_dictated_from_any_point_on() {
    for seed in 0..8 {
        let seg = segment();
        let (mut at, mut seen) = (5_000_000_000, Vec::new());
        let mut door = Door::new(seg, 0);
        assert!(door.tells());
        course(&mut door, seed, &mut at, 300, &mut seen);
        // Another process, whose clocks and numbers are others.
        let mut again = Door::new(seg, 0);
        let (mut other, mut same) = (77, Vec::new());
        course(&mut again, seed, &mut other, 300, &mut same);
        assert_eq!(seen, same, "seed {seed}");
        assert!(!again.replaying());
        // And a third one, after a part that only the second has made.
        course(&mut again, seed + 99, &mut other, 200, &mut same);
        let (mut third, mut all) = (Door::new(seg, 0), Vec::new());
        course(&mut third, seed, &mut 9, 300, &mut all);
        course(&mut third, seed + 99, &mut 9, 200, &mut all);
        assert_eq!(all, same, "seed {seed}");
        assert!(!third.replaying());
    }
}

#[test]
fn numbers_and_clocks_of_the_process_go_on_where_they_were() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    assert_eq!(number(What::UsageSelf, &mut door, 500), 500);
    assert_eq!(door.clock(Which::ProcessCpu, || 700).unwrap(), 700);
    // The process is another one, and has used less.
    assert_eq!(number(What::UsageSelf, &mut door, 10), 500);
    assert_eq!(number(What::UsageSelf, &mut door, 17), 507);
    assert_eq!(door.clock(Which::ProcessCpu, || 20).unwrap(), 700);
    assert_eq!(door.clock(Which::ProcessCpu, || 25).unwrap(), 705);
}

#[test]
fn who_asks_all_the_time_does_not_fill_the_log() {
    let mut door = Door::new(of_words(1 << 21), 0);
    // The fuller the log, the less comes, and the shorter are the bursts.
    while door.end_of_log() < 7 << 18 {
        door.record(Call::Test, &Outcome::One(1));
    }
    let mut at = 1_000_000_000;
    for _ in 0..100_000 {
        at += 100;
        for which in [Which::Realtime, Which::Monotonic, Which::ProcessCpu] {
            door.clock(which, || at).unwrap();
        }
        number(What::Pid, &mut door, 7);
        number(What::UsageSelf, &mut door, at);
        door.random(&mut [0; 4], |room| room.len()).unwrap();
        assert!(door.has_room());
    }
    assert!(door.end_of_log() < (7 << 18) + (1 << 15), "{}", door.end_of_log());
}

#[test]
fn another_question_than_in_the_run_is_a_divergence() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    door.clock(Which::Realtime, || 5).unwrap();
    number(What::ParentPid, &mut door, 3);
    let difference = Door::new(seg, 0).clock(Which::ProcessCpu, || 5).unwrap_err().to_string();
    assert!(
        difference.contains("CLOCK_REALTIME") && difference.contains("CLOCK_PROCESS"),
        "{difference}"
    );
    assert!(difference.ends_with("--clocks plain"), "{difference}");
    let mut again = Door::new(seg, 0);
    again.clock(Which::Realtime, || 9).unwrap();
    assert!(again.tell(What::Uname, |_| 0).is_err());
    // A damaged count of bytes is no crash.
    let head = seg.det(0, 1).load(std::sync::atomic::Ordering::Relaxed);
    seg.det(0, 1).store(head | 0xffff_ffff, std::sync::atomic::Ordering::Relaxed);
    let mut again = Door::new(seg, 0);
    again.clock(Which::Realtime, || 9).unwrap();
    assert!(again.tell(What::ParentPid, |_| 0).is_ok());
}

/// It is found before the program asks for anything, of the first program and of the next one.
#[test]
fn what_was_told_before_init_is_found_again() {
    let seg = segment();
    assert_eq!(before(seg, 0, 0), None);
    let say = |door: &mut Door, text: &[u8]| {
        let find = |room: &mut [u8]| {
            room[..text.len()].copy_from_slice(text);
            text.len()
        };
        door.tell(What::Before, find).unwrap();
    };
    let mut first = Door::new(seg, 0);
    say(&mut first, b"of the first");
    first.clock(Which::Realtime, || 5).unwrap();
    assert_eq!(before(seg, 0, 1), None);
    let mut second = Door::new(seg, 0);
    second.follow(1);
    second.record(Call::World, &Outcome::One(1));
    second.clock(Which::Realtime, || 9).unwrap();
    assert_eq!(before(seg, 0, 1), None, "something else is there");
    second.follow(2);
    second.record(Call::World, &Outcome::One(2));
    say(&mut second, b"of the third one");
    seg.rank(0).det_pos.store(0, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(before(seg, 0, 0).as_deref(), Some(&b"of the first"[..]));
    assert_eq!(before(seg, 0, 2).as_deref(), Some(&b"of the third one"[..]));
    // A damaged count of bytes is no crash.
    let head = seg.det(0, 0).load(std::sync::atomic::Ordering::Relaxed);
    seg.det(0, 0).store(head | 0xffff_ffff, std::sync::atomic::Ordering::Relaxed);
    assert!(before(seg, 0, 0).is_some());
}

#[test]
fn each_kind_has_its_value() {
    for value in 0..What::ALL as u64 {
        assert_eq!(What::of(value).map(|what| what as u64), Some(value));
    }
    assert_eq!(What::of(What::ALL as u64), None);
}
