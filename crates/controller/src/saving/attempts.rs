//! How long a save is tried that met something which passes, and when the next attempt is.
//!
//! Kept true: pauses grow, and the last attempt is made when the time is over. Making it is left to
//! `again`.

use crate::checkpoints::failures::{self, Failures};
use crate::clock::{Moment, Now};
use std::time::Duration;

/// How long a save is tried, and how that goes.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Since when, and for how long.
    time: Option<(Moment, Duration)>,
    failures: Failures,
    /// Another one is to be made.
    pub due: bool,
    /// What was told.
    told: Vec<String>,
}

impl Attempts {
    pub fn for_so_long(limit: Duration, clock: Now) -> Attempts {
        Attempts { time: Some((clock.moment(), limit)), ..Attempts::default() }
    }

    /// What is left of the time.
    pub fn left(&self, clock: Now) -> Duration {
        let left = |(begun, limit): &(Moment, Duration)| limit.saturating_sub(begun.elapsed(clock));
        self.time.as_ref().map(left).unwrap_or_default()
    }

    /// One did not come about. False: there is no time for another.
    pub fn failed(&mut self, clock: Now) -> bool {
        if self.left(clock).is_zero() {
            return false;
        }
        // Of several ranks each has a reason.
        if !self.due {
            self.failures.one_more(clock, false);
        }
        self.due = true;
        true
    }

    /// Whether this is to be told.
    pub fn is_news(&mut self, why: &str) -> bool {
        let news = !self.told.iter().any(|known| failures::alike(known, why));
        if news {
            self.told.push(why.to_string());
        }
        news
    }

    /// When the next one is to be made, if another is.
    pub fn pause(&self, clock: Now) -> Option<Duration> {
        let pause = self.failures.pause(clock).unwrap_or_default();
        self.due.then(|| pause.min(self.left(clock)))
    }
}

#[cfg(test)]
#[path = "attempts_tests.rs"]
mod tests;
