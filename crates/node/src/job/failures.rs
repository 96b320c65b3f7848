//! Checkpoints of a rank that come to nothing, one after another.
//!
//! Kept true: no more are given up than for a reason that lasts, or after several attempts over a
//! time in which a lost partner or gateway has been replaced; between attempts the rank runs.

use super::books::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Failed checkpoints in a row, before they are given up ...
const ATTEMPTS: u32 = 3;
/// ... and for how long they have failed then.
const PATIENCE: Duration = Duration::from_secs(10);
/// From the first failure to the next attempt; twice as long after each further one ...
const PAUSE: Duration = Duration::from_millis(50);
/// ... but no longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Failures {
    count: u32,
    first: Option<Moment>,
    last: Option<Moment>,
    /// A later attempt would fail for the same reason.
    lasting: bool,
}

impl Failures {
    pub fn one_more(&mut self, lasting: bool) {
        let now = Moment::now();
        self.count += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.lasting = lasting;
    }

    /// Whether nothing comes of another attempt.
    pub fn given_up(&self) -> bool {
        let long = self.first.is_some_and(|first| first.elapsed() >= PATIENCE);
        self.lasting || self.count >= ATTEMPTS && long
    }

    /// How long until another attempt is made; `None`: it may be made now.
    pub fn pause(&self) -> Option<Duration> {
        let since = self.last?.elapsed();
        let doubled = PAUSE.saturating_mul(1 << (self.count - 1).min(8));
        doubled.min(LONGEST_PAUSE).checked_sub(since).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(count: u32, lasting: bool) -> Failures {
        let mut failures = Failures::default();
        (0..count).for_each(|_| failures.one_more(lasting));
        failures
    }

    fn ago(mut failures: Failures, time: Duration) -> Failures {
        let then = Moment::ago(time);
        (failures.first, failures.last) = (Some(then), Some(then));
        failures
    }

    #[test]
    fn many_failures_at_once_are_not_given_up() {
        assert!(!after(100, false).given_up());
        assert!(ago(after(3, false), PATIENCE).given_up());
        assert!(!ago(after(2, false), PATIENCE).given_up());
    }

    #[test]
    fn a_lasting_reason_is_given_up_at_once() {
        assert!(after(1, true).given_up());
        let mut other = after(1, true);
        other.one_more(false);
        assert!(!other.given_up());
    }

    #[test]
    fn attempts_are_paced() {
        assert!(Failures::default().pause().is_none());
        assert!(after(1, false).pause().is_some_and(|p| p <= PAUSE));
        assert!(after(40, false).pause().is_some_and(|p| p > PAUSE && p <= LONGEST_PAUSE));
        assert!(ago(after(40, false), LONGEST_PAUSE).pause().is_none());
    }
}
