//! Tests of the clock alone: machines, bounds, what is recorded.

use super::*;

const MONO: Which = Which::Monotonic;
const HOUR: u64 = 3_600 * SECOND_NS;

fn settled(now: u64) -> Clock {
    let mut clock = Clock::default();
    clock.settle_at(7, |_| now, now + 1000 * HOUR);
    clock
}

#[test]
fn on_one_machine_it_is_the_machines_clock() {
    let mut clock = settled(5 * HOUR);
    assert_eq!(clock.plain(5 * HOUR + 3), 5 * HOUR + 3);
    // Restored there, the wall clock having been set meanwhile.
    clock.settle_at(7, |_| 6 * HOUR, 3 * HOUR);
    assert_eq!(clock.plain(6 * HOUR), 6 * HOUR);
}

#[test]
fn on_another_machine_it_goes_on_by_the_wall_clock_and_never_back() {
    let mut clock = settled(500 * HOUR);
    clock.plain(500 * HOUR);
    // That has run for a minute only; an hour has passed.
    clock.settle_at(8, |_| HOUR / 60, 1501 * HOUR);
    assert_eq!(clock.plain(HOUR / 60), 501 * HOUR);
    assert_eq!(clock.plain(HOUR / 60 + 9), 501 * HOUR + 9);
    // A third one, whose wall clock is late by two hours: time goes on from where it was.
    clock.settle_at(9, |_| 900 * HOUR, 1499 * HOUR);
    assert_eq!(clock.plain(900 * HOUR), 501 * HOUR + 9);
    assert_eq!(clock.plain(900 * HOUR + 5), 501 * HOUR + 14);
}

#[test]
fn a_coarse_clock_stands_still_and_gains_nothing() {
    let mut clock = settled(HOUR);
    for step in 0..1000u64 {
        let now = HOUR + step / 10 * 4_000_000;
        assert!(clock.plain(now) >= now);
        clock.course(MONO).tick(MONO);
    }
    assert_eq!(clock.plain(HOUR + HOUR), HOUR + HOUR);
}

#[test]
fn what_is_recorded_brings_every_value_back() {
    let year = 24 * 365 * HOUR;
    // A machine that is up for two years and a third when the rank begins, then for three.
    for start in [0, HOUR, 2 * year + year / 4, 3 * year] {
        let (mut clock, mut again) = (settled(start), Clock::default());
        again.settle_at(1, |_| 12345, 9);
        for step in 1..40 {
            let ClockAnswer::Exact(time) = clock.tell(MONO, start + step * HOUR * 24, 0) else {
                panic!()
            };
            let last = again.course(MONO).last;
            let again = match Clock::recorded(last, time) {
                Some(recorded) => again.replay(recorded),
                None => again.replay_later(MONO, time - last),
            };
            assert_eq!(again, time);
        }
    }
}

/// However often a program asks, what is recorded stays below its bound, values never go back, and
/// none is behind by more than the time of a word.
#[test]
fn who_asks_all_the_time_fills_the_log_slowly() {
    for (eighths, step) in [(0, 25), (0, 900), (3, 25), (7, 25)] {
        let (mut clock, mut words) = (settled(HOUR), 0u64);
        let (mut open, mut last, mut worst) = (false, 0, 0);
        let lasting = SECOND_NS + SECOND_NS / 4;
        let mut now = HOUR;
        while now < HOUR + lasting {
            let time = match clock.tell(MONO, now, eighths) {
                ClockAnswer::Exact(time) => {
                    (words, open) = (words + 1, false);
                    assert_eq!(time, now);
                    time
                }
                ClockAnswer::Tick(time) => {
                    if !open {
                        (words, open) = (words + 1, true);
                        clock.course(MONO).charge(1, eighths);
                    }
                    assert_eq!(time, last + 1);
                    time
                }
            };
            assert!(time > last || last == 0);
            worst = worst.max(now - time);
            (last, now) = (time, now + step);
        }
        let tick = TICK_NS << eighths;
        assert!(words <= (lasting + BURST_NS) / tick + 3, "{words}");
        assert!(worst <= 2 * tick + step, "{worst}");
    }
}
