//! Checkpoints of a rank that come to nothing, one after another.
//!
//! Kept true: no more are given up than for a reason that lasts, or after several attempts over a
//! time in which a lost partner or gateway has been replaced; between attempts the rank runs.

use crate::clock::{Moment, Now};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Failed checkpoints in a row, at least, before they are given up.
const ATTEMPTS: u32 = 3;
/// From the first failure to the next attempt; twice as long after each further one ...
const PAUSE: Duration = Duration::from_millis(50);
/// ... but no longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Failures {
    count: u32,
    first: Option<Moment>,
    last: Option<Moment>,
    /// A later attempt would fail for the same reason.
    lasting: bool,
}

impl Failures {
    pub fn one_more(&mut self, clock: Now, lasting: bool) {
        let now = clock.moment();
        self.count += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.lasting = lasting;
    }

    /// Whether nothing comes of another attempt, also when they have failed for so long.
    pub fn given_up(&self, patience: Duration, clock: Now) -> bool {
        let long = self.first.is_some_and(|first| first.elapsed(clock) >= patience);
        self.lasting || self.count >= ATTEMPTS && long
    }

    /// How long until another attempt is made; `None`: it may be made now.
    pub fn pause(&self, clock: Now) -> Option<Duration> {
        let since = self.last?.elapsed(clock);
        let doubled = PAUSE.saturating_mul(1 << (self.count - 1).min(8));
        doubled.min(LONGEST_PAUSE).checked_sub(since).filter(|left| !left.is_zero())
    }
}

/// Whether what a set of checkpoints lacks would be lacking again. Where one part was refused for
/// what passes, others may have been because of it.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Refusals {
    lasts: bool,
    passes: bool,
}

impl Refusals {
    pub fn one_more(&mut self, lasting: bool) {
        self.lasts |= lasting;
        self.passes |= !lasting;
    }

    /// Whether the next set would fail for the same reason.
    pub fn are_lasting(self) -> bool {
        self.lasts && !self.passes
    }
}

/// Why a rank has no checkpoint; those that are checkpointed together have it named.
pub(crate) fn of_rank(rank: u32, why: &str) -> String {
    match why.starts_with("rank ") {
        true => why.to_string(),
        false => format!("no checkpoint of rank {rank}: {why}"),
    }
}

/// Whether two reasons differ in numbers only, as those of a rank, of a checkpoint or of bytes.
pub(crate) fn alike(a: &str, b: &str) -> bool {
    let words = |text: &str| text.split(|c: char| c.is_ascii_digit()).collect::<String>();
    words(a) == words(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn after(count: u32, lasting: bool) -> Failures {
        let mut failures = Failures::default();
        (0..count).for_each(|_| failures.one_more(Now::of_test(), lasting));
        failures
    }

    /// So long after the failures.
    fn later(time: Duration) -> Now {
        Now::of_test().after(time)
    }

    #[test]
    fn many_failures_at_once_are_not_given_up() {
        assert!(!after(100, false).given_up(PATIENCE, later(Duration::ZERO)));
        assert!(after(3, false).given_up(PATIENCE, later(PATIENCE)));
        assert!(!after(2, false).given_up(PATIENCE, later(PATIENCE)));
    }

    #[test]
    fn a_lasting_reason_is_given_up_at_once() {
        let clock = later(Duration::ZERO);
        assert!(after(1, true).given_up(PATIENCE, clock));
        let mut other = after(1, true);
        other.one_more(clock, false);
        assert!(!other.given_up(PATIENCE, clock));
    }

    #[test]
    fn reasons_are_alike_but_for_numbers() {
        let full = |rank: u32, number: u32| format!("no space for rank-{rank}.gen-{number}");
        assert!(alike(&full(0, 9), &full(12, 10)));
        assert!(!alike(&full(0, 9), "no space for rank-0"));
    }

    #[test]
    fn a_set_that_waits_for_what_passes_is_tried_again() {
        let of = |parts: &[bool]| {
            let mut refusals = Refusals::default();
            parts.iter().for_each(|lasting| refusals.one_more(*lasting));
            refusals.are_lasting()
        };
        assert!(of(&[true]) && of(&[true, true]));
        assert!(!of(&[]) && !of(&[false]) && !of(&[true, false]) && !of(&[false, true]));
    }

    #[test]
    fn attempts_are_paced() {
        let clock = later(Duration::ZERO);
        assert!(Failures::default().pause(clock).is_none());
        assert!(after(1, false).pause(clock).is_some_and(|p| p <= PAUSE));
        assert!(after(40, false).pause(clock).is_some_and(|p| p > PAUSE && p <= LONGEST_PAUSE));
        assert!(after(40, false).pause(later(LONGEST_PAUSE)).is_none());
    }
}
