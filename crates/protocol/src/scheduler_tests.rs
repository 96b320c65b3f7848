//! The order of checkpoints under each policy.

use super::*;
use crate::testing::Random;

#[test]
fn turns_are_spread_over_the_interval() {
    let mut s = Scheduler::new(4, 1000, 1000, 0);
    (0..4).for_each(|r| s.set_live(r, true));
    let mut turns = Vec::new();
    for now in 0..=2000 {
        if let Some(r) = s.pick(now) {
            turns.push((now, r));
            s.finished(r, now);
        }
    }
    let first: Vec<_> = (1..=4).map(|k| (k * 250, (k - 1) as u32)).collect();
    let second: Vec<_> = first.iter().map(|(t, r)| (t + 1000, *r)).collect();
    assert_eq!(turns, [first, second].concat());
}

#[test]
fn a_request_goes_first_and_only_once() {
    let mut s = Scheduler::new(3, 0, 0, 0);
    (0..3).for_each(|r| s.set_live(r, true));
    assert_eq!(s.pick(1_000_000), None);
    assert!(s.request(2) && s.request(2) && s.request(1));
    assert_eq!(s.pick(0), Some(2));
    assert_eq!(s.pick(0), None);
    s.request(2);
    s.finished(2, 5);
    assert_eq!(s.pick(5), Some(1));
    s.finished(1, 6);
    assert_eq!(s.pick(6), Some(2));
    s.finished(2, 7);
    assert_eq!(s.pick(1 << 40), None);
}

#[test]
fn a_rank_without_process_is_not_picked() {
    let mut s = Scheduler::new(2, 10, 10, 0);
    s.set_live(1, true);
    assert!(!s.request(0));
    assert_eq!(s.pick(100), Some(1));
    s.set_live(1, false);
    s.finished(1, 100);
    assert_eq!(s.pick(10_000), None);
    assert_eq!(s.next_due_ms(), None);
}

#[test]
fn no_rank_starves_and_none_runs_twice() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let ranks = 1 + random.below(6) as u32;
        let every = 20 + random.below(400);
        let mut s = Scheduler::new(ranks, every, every, 0);
        (0..ranks).for_each(|r| s.set_live(r, true));
        let mut done = vec![0u64; ranks as usize];
        let mut under_way: Vec<(u64, u32)> = Vec::new();
        for now in 0..(every + 40) * 40 {
            under_way.retain(|(end, r)| {
                if *end <= now {
                    s.finished(*r, now);
                }
                *end > now
            });
            if random.below(500) == 0 {
                s.request(random.below(u64::from(ranks)) as u32);
            }
            if let Some(r) = s.pick(now) {
                assert!(under_way.iter().all(|(_, other)| *other != r), "seed {seed}");
                under_way.push((now + 1 + random.below(20), r));
                done[r as usize] += 1;
            }
            assert!(under_way.len() <= MAX_RUNNING, "seed {seed}");
        }
        let (least, most) = (done.iter().min(), done.iter().max());
        assert!(least.is_some_and(|n| *n >= 5), "seed {seed}: {done:?}");
        assert!(most.zip(least).is_some_and(|(m, l)| m <= &(l * 4 + 40)), "seed {seed}");
    }
}

#[test]
fn all_have_their_first_turn_soon_and_the_next_in_the_stagger() {
    let mut s = Scheduler::new(4, 60_000, 1000, 0);
    (0..4).for_each(|r| s.set_live(r, true));
    let mut turns = Vec::new();
    for now in 0..=120_000 {
        if let Some(r) = s.pick(now) {
            turns.push((now, r));
            s.finished(r, now);
        }
    }
    let soon = (1..=4).map(|k| (k * 250, k as u32 - 1));
    // Not sooner than a quarter of the interval after the first.
    let later = [15_250, 30_000, 45_000, 60_000, 75_250, 90_000, 105_000, 120_000];
    let later = later.into_iter().zip((0..4).cycle());
    assert_eq!(turns, soon.chain(later).collect::<Vec<_>>());
}

/// (time, rank) of each checkpoint up to `until`, each taking `took` milliseconds.
fn history(s: &mut Scheduler, until: u64, took: u64) -> Vec<(u64, u32)> {
    let mut turns = Vec::new();
    let mut ends: Vec<(u64, u32)> = Vec::new();
    for now in 0..=until {
        for (_, rank) in ends.iter().filter(|e| e.0 == now) {
            s.finished(*rank, now);
        }
        while let Some(rank) = s.pick(now) {
            turns.push((now, rank));
            ends.push((now + took, rank));
        }
    }
    turns
}

fn of(policy: Policy) -> Scheduler {
    let mut s = Scheduler::with(policy, 3, 900, 300, 0);
    (0..3).for_each(|r| s.set_live(r, true));
    s
}

#[test]
fn sequential_requests_follow_each_other() {
    let turns = history(&mut of(Policy::Sequential), 2000, 10);
    let round = |at: u64| [(at, 0), (at + 10, 1), (at + 20, 2)];
    assert_eq!(turns, [round(300), round(900), round(1800)].concat());
}

#[test]
fn batch_requests_come_all_at_once() {
    let turns = history(&mut of(Policy::Batch), 2000, 10);
    let round = |at: u64| [(at, 0), (at, 1), (at, 2)];
    assert_eq!(turns, [round(300), round(900), round(1800)].concat());
}

#[test]
fn timers_are_spread_and_do_not_wait_for_each_other() {
    let turns = history(&mut of(Policy::Timer), 1300, 250);
    let expected = [(100, 0), (200, 1), (300, 2), (575, 0), (675, 1), (900, 2)];
    assert_eq!(turns[..6], expected);
}

#[test]
fn a_full_log_brings_a_checkpoint_forward_and_says_so() {
    let mut s = of(Policy::Auto);
    s.press(2, 1, 74);
    assert_eq!(s.pick(0), None);
    s.press(2, 1, 80);
    assert_eq!(s.why(2, 0), Why::Log { of: 1, percent: 80 });
    assert_eq!(s.pick(0), Some(2));
    assert_eq!(s.why(2, 0), Why::UnderWay);
    s.press(2, 1, 90);
    s.finished(2, 5);
    assert_eq!(s.pick(5), None, "the one under way frees it");
}

#[test]
fn the_reason_for_the_next_is_told() {
    let mut s = Scheduler::new(2, 60_000, 1000, 0);
    assert_eq!(s.why(0, 0), Why::Never);
    s.set_live(0, true);
    assert_eq!(s.why(0, 0).to_string(), "in 0.5 s: soon after the start");
    s.pick(500);
    s.cost(Cost::whole(2.0));
    s.finished(0, 502);
    let text = s.why(0, 10_000).to_string();
    assert!(text.contains("auto: a checkpoint costs 2.0 ms"), "{text}");
    s.request(0);
    assert_eq!(s.why(0, 10_000), Why::Asked);
    let never = Scheduler::with(Policy::Batch, 1, 0, 0, 0);
    assert_eq!(never.why(0, 0).to_string(), "only on request");
}

#[test]
fn with_deaths_checkpoints_come_more_often() {
    let mut s = Scheduler::new(1, 3_600_000, 1000, 0);
    s.set_live(0, true);
    s.cost(Cost::whole(1000.0));
    let count = |s: &mut Scheduler| history(s, 1_000_000, 1).len();
    let calm = count(&mut s.clone());
    (0..50).for_each(|_| s.died());
    let stormy = count(&mut s);
    assert!(stormy > calm * 3, "{calm} {stormy}");
}

#[test]
fn half_of_the_time_is_the_jobs() {
    let mut s = Scheduler::new(4, 10, 10, 0);
    (0..4).for_each(|r| s.set_live(r, true));
    let (mut now, mut busy) = (0, 0);
    while now < 100_000 {
        match s.pick(now) {
            Some(rank) => {
                let takes = 50 + u64::from(rank) * 20;
                (now, busy) = (now + takes, busy + takes);
                s.finished(rank, now);
            }
            None => now = s.next_due_ms().unwrap().max(now + 1),
        }
    }
    assert!(busy * 2 <= now + 200 && busy * 2 + 2000 > now, "{busy} of {now}");
}

/// What is due while the store works waits for it, but not for what the store begins after that.
#[test]
fn a_rank_that_is_due_waits_for_the_store_once() {
    let mut s = Scheduler::with(Policy::Timer, 2, 1000, 1000, 0);
    (0..2).for_each(|r| s.set_live(r, true));
    s.load(Some(400));
    assert_eq!((s.pick(500), s.next_due_ms()), (None, None), "rank 0 is due at 500");
    assert_eq!(s.why(0, 500), Why::Store);
    assert!(s.why(0, 500).to_string().contains("vault"));
    s.request(1);
    assert_eq!(s.pick(600), Some(1), "what is asked for does not wait");
    s.finished(1, 610);
    s.press(1, 1, 90);
    assert_eq!(s.pick(620), Some(1), "nor does a full log");
    s.finished(1, 630);
    // The store goes on to the next thing: it waited for the first one.
    s.load(Some(700));
    assert_eq!(s.pick(700), Some(0));
    s.finished(0, 710);
    s.load(None);
    let due = s.next_due_ms().unwrap();
    assert!(s.pick(due).is_some());
}
