//! Tests of the door: what is recorded is dictated, from any point on, and then it is live again.

use std::sync::atomic::Ordering::Relaxed;

use crate::door::{Call, Door, Outcome, Post, Verdict};
use crate::segment::{FT_CLOCK, FT_LOGGED, Geometry, Segment};

fn segment() -> &'static Segment {
    let geo = Geometry { ranks: 1, chunk_bytes: 4096, pool_chunks: 8, det_words: 1 << 18 };
    let (_, seg) = Segment::create("t", geo, FT_LOGGED | FT_CLOCK, 2).unwrap();
    Box::leak(Box::new(seg))
}

#[test]
fn calls_and_posts_are_dictated_as_recorded() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    assert_eq!(door.ask_post(1, true), Post::Free);
    assert_eq!(door.ask_post(2, true), Post::Free);
    for _ in 0..5 {
        assert_eq!(door.ask(Call::Iprobe).unwrap(), Verdict::Live);
        door.fruitless();
    }
    door.record_match(2, 7);
    door.fruitless();
    door.record(Call::Iprobe, &Outcome::One(3));
    door.record(Call::Waitsome, &Outcome::Many(vec![4, 1]));
    door.record_cancelled(9);
    door.fruitless();
    door.fruitless();

    let mut again = Door::new(seg, 0);
    assert!(again.replaying());
    assert_eq!(again.ask_post(1, true), Post::Held);
    assert_eq!(again.ask_post(2, true), Post::Source(7));
    for _ in 0..6 {
        assert_eq!(again.ask(Call::Iprobe).unwrap(), Verdict::Fruitless);
    }
    assert_eq!(again.ask(Call::Iprobe).unwrap(), Verdict::Forced(Outcome::One(3)));
    let many = Verdict::Forced(Outcome::Many(vec![4, 1]));
    assert_eq!(again.ask(Call::Waitsome).unwrap(), many);
    assert_eq!(again.ask_post(9, false), Post::Never);
    assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Fruitless);
    assert!(again.replaying());
    assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Fruitless);
    assert!(!again.replaying());
    assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Live);
    // The open run goes on being counted in its word.
    let tail = seg.rank(0).det_tail.load(Relaxed);
    again.fruitless();
    assert_eq!(seg.rank(0).det_tail.load(Relaxed), tail);
    let mut third = Door::new(seg, 0);
    let mut fruitless = 0;
    while third.replaying() {
        match third.ask(Call::Test) {
            Ok(Verdict::Fruitless) => fruitless += 1,
            Ok(_) | Err(_) => {
                third.ask_post(2, true);
                third.ask_post(9, false);
            }
        }
        if fruitless > 100 {
            break;
        }
    }
    assert!(!third.replaying());
}

#[test]
fn another_kind_of_call_is_a_divergence() {
    let seg = segment();
    Door::new(seg, 0).record(Call::Testany, &Outcome::One(0));
    assert!(Door::new(seg, 0).ask(Call::Iprobe).is_err());
}

/// An image taken anywhere (here: a door whose private state stays) goes on from there.
#[test]
fn an_image_taken_between_events_replays_only_what_came_after() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    door.ask_post(1, true);
    door.record(Call::Test, &Outcome::One(0));
    door.fruitless();
    door.fruitless();
    // The image: three events have happened, post 1 is outstanding. Later, in a second door that
    // stands for the process that went on:
    let mut on = Door::new(seg, 0);
    on.ask_post(1, true);
    on.ask(Call::Test).unwrap();
    on.ask(Call::Iprobe).unwrap();
    on.ask(Call::Iprobe).unwrap();
    assert!(!on.replaying());
    on.fruitless();
    on.record_match(1, 3);
    on.record(Call::Iprobe, &Outcome::One(3));
    // Restored from the image:
    door.rebuild();
    assert_eq!(door.ask_post(1, true), Post::Source(3));
    door.forget_posts_up_to(1);
    assert_eq!(door.ask(Call::Iprobe).unwrap(), Verdict::Fruitless);
    assert_eq!(door.ask(Call::Iprobe).unwrap(), Verdict::Forced(Outcome::One(3)));
    assert!(!door.replaying());
    assert_eq!(seg.rank(0).det_pos.load(Relaxed), seg.rank(0).det_tail.load(Relaxed));
}

#[test]
fn posts_matched_before_an_image_taken_in_mid_replay_are_forgotten() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    door.record(Call::Test, &Outcome::One(0));
    door.ask_post(1, true);
    door.record(Call::Test, &Outcome::One(1));
    door.record_match(1, 0);
    let mut image = Door::new(seg, 0);
    image.ask(Call::Test).unwrap();
    assert_eq!(image.ask_post(1, true), Post::Source(0));
    image.rebuild();
    image.forget_posts_up_to(1);
    assert_eq!(image.ask(Call::Test).unwrap(), Verdict::Forced(Outcome::One(1)));
    assert!(!image.replaying());
}

/// The words of the log.
fn words(seg: &Segment) -> Vec<u64> {
    (0..seg.rank(0).det_tail.load(Relaxed)).map(|n| seg.det(0, n).load(Relaxed)).collect()
}

/// Asks for the time so often that some answers are exact and some are not, with other events in
/// between; `at` is the machine's clock. What the program saw, as text.
fn course(door: &mut Door, at: &mut u64, seed: u64, steps: u32, seen: &mut Vec<String>) {
    let mut random = seed;
    for step in 0..steps {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *at += random >> 62 << 7;
        match random >> 33 & 15 {
            0 => match door.ask(Call::Test).unwrap() {
                Verdict::Live => {
                    let outcome = Outcome::One(step);
                    door.record(Call::Test, &outcome);
                    seen.push(format!("{outcome:?}"));
                }
                Verdict::Forced(outcome) => seen.push(format!("{outcome:?}")),
                Verdict::Fruitless => panic!("one that was fruitful"),
            },
            1..4 => {
                if door.ask(Call::Iprobe).unwrap() == Verdict::Live {
                    door.fruitless();
                }
                seen.push(String::from("fruitless"));
            }
            _ => seen.push(door.time(|| *at).unwrap().to_string()),
        }
    }
}

/// Uses up what may be recorded exactly, so that nearly every later answer is a tick.
fn hot(door: &mut Door, at: u64) {
    let tail = |door: &Door| door.end_of_log();
    loop {
        let before = tail(door);
        door.time(|| at).unwrap();
        if tail(door) == before {
            return;
        }
    }
}

#[test]
fn times_are_dictated_from_any_point_on_and_never_go_back() {
    for seed in 0..6 {
        let seg = segment();
        let (mut at, mut seen) = (5_000_000_000, Vec::new());
        let mut door = Door::new(seg, 0);
        let start = seen.len();
        if seed % 2 == 0 {
            hot(&mut door, at);
        }
        course(&mut door, &mut at, seed, 400, &mut seen);
        // The process goes on with what it has of the door, having died after every so many calls:
        // here all of it from the start, on a machine that was started just now.
        let mut again = Door::new(seg, 0);
        let (mut other, mut same) = (77, Vec::new());
        if seed % 2 == 0 {
            let before = words(seg).len();
            hot_again(&mut again);
            assert_eq!(words(seg).len(), before);
        }
        course(&mut again, &mut other, seed, 400, &mut same);
        assert_eq!(seen[start..], same[..], "seed {seed}");
        assert!(!again.replaying(), "seed {seed}");
        let last: u64 = seen.iter().rev().find_map(|s| s.parse().ok()).unwrap();
        assert!(again.time(|| 100).unwrap() >= last, "seed {seed}");
    }
}

/// What `hot` did, in a replay.
fn hot_again(door: &mut Door) {
    let (mut last, mut ticks) = (0, 0);
    while ticks < 2 {
        let time = door.time(|| panic!("in a replay")).unwrap();
        ticks += u32::from(time == last + 1);
        last = time;
    }
}

/// Who polls with an eye on the clock makes one run, as far as the clock may not be exact.
#[test]
fn polling_by_the_clock_takes_no_room() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    hot(&mut door, 1_000_000_000);
    let before = words(seg).len();
    for _ in 0..100_000 {
        assert_eq!(door.ask(Call::Test).unwrap(), Verdict::Live);
        door.fruitless();
        door.time(|| 1_000_000_000).unwrap();
    }
    assert!(words(seg).len() <= before + 50, "{}", words(seg).len() - before);
}

#[test]
fn a_job_without_protection_records_nothing_more() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    while door.has_room() {
        door.record(Call::Test, &Outcome::One(0));
    }
    seg.header().unprotected.store(1, Relaxed);
    assert!(door.has_room());
    let (end, mut last) = (door.end_of_log(), 0);
    for n in 1..100u64 {
        door.record(Call::Test, &Outcome::One(1));
        door.fruitless();
        door.record_match(n, 0);
        let time = door.time(|| n * 1_000).unwrap();
        assert!(time >= last);
        last = time;
    }
    assert_eq!(door.end_of_log(), end);
    assert!(!door.replaying());
}

#[test]
fn another_call_than_for_the_time_is_a_divergence() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    door.time(|| 5).unwrap();
    door.record(Call::Test, &Outcome::One(0));
    let difference = Door::new(seg, 0).ask(Call::Test).unwrap_err().to_string();
    assert!(difference.ends_with("or signals: --clocks plain"), "{difference}");
    let mut again = Door::new(seg, 0);
    again.time(|| 9).unwrap();
    assert!(again.time(|| 9).is_err());
}

/// A replay that ends with a run behind which something matched: what comes is a new run, as only
/// the last word of a log may change.
#[test]
fn only_the_last_word_grows() {
    let seg = segment();
    let mut door = Door::new(seg, 0);
    door.ask_post(1, true);
    door.fruitless();
    door.record_match(1, 0);
    let before = words(seg);
    let mut again = Door::new(seg, 0);
    again.ask_post(1, true);
    assert_eq!(again.ask(Call::Test).unwrap(), Verdict::Fruitless);
    assert!(!again.replaying());
    again.fruitless();
    assert_eq!(words(seg)[..before.len()], before[..]);
    assert_eq!(words(seg).len(), before.len() + 1);
}
