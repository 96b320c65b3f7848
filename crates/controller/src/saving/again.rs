//! A save that meets what passes, as a connection that the program has not accepted yet: it is
//! ordered once, so it is tried again.
//!
//! Kept true: attempts have growing pauses, the last one is made when the time for it is over; what
//! it waits for is told once; what lasts is not waited for.

use crate::Job;
use crate::checkpoints::failures::{self, Failures};
use crate::checkpoints::model::Ask;
use crate::clock::{Moment, Now};
use std::time::Duration;

/// How long a save is tried, and how that goes.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Since when, and for how long.
    time: Option<(Moment, Duration)>,
    failures: Failures,
    /// Another one is to be made.
    due: bool,
    /// What was told.
    told: Vec<String>,
}

impl Attempts {
    pub fn for_so_long(limit: Duration, clock: Now) -> Attempts {
        Attempts { time: Some((clock.moment(), limit)), ..Attempts::default() }
    }

    /// What is left of the time.
    fn left(&self, clock: Now) -> Duration {
        let left = |(begun, limit): &(Moment, Duration)| limit.saturating_sub(begun.elapsed(clock));
        self.time.as_ref().map(left).unwrap_or_default()
    }

    /// One did not come about. False: there is no time for another.
    fn failed(&mut self, clock: Now) -> bool {
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
    fn is_news(&mut self, why: &str) -> bool {
        let news = !self.told.iter().any(|known| failures::alike(known, why));
        if news {
            self.told.push(why.to_string());
        }
        news
    }

    /// When the next one is to be made, if another is.
    fn pause(&self, clock: Now) -> Option<Duration> {
        let pause = self.failures.pause(clock).unwrap_or_default();
        self.due.then(|| pause.min(self.left(clock)))
    }
}

impl Job {
    /// Whether ranks have not all had their checkpoints with which the job is to be saved.
    pub(crate) fn save_is_asked(&self) -> bool {
        self.checkpoints.asks.iter().any(|a| a.ends)
    }

    /// Whether the job is saved with this checkpoint of a rank, if it comes about.
    pub(crate) fn save_waits_for(&self, rank: u32, generation: Option<u32>) -> bool {
        let newer = |after: u32| generation.is_none_or(|g| g > after);
        let waits = |a: &Ask| a.ends && a.left.iter().any(|(r, after)| *r == rank && newer(*after));
        self.checkpoints.asks.iter().any(waits)
    }

    /// A checkpoint for the save did not come about. Whether another is taken.
    pub(crate) fn saves_again(&mut self, rank: u32, why: &str, lasting: bool) -> bool {
        let clock = self.clock.now();
        let Some(save) = self.saving.under_way.as_mut().filter(|_| !lasting) else { return false };
        let attempts = &mut save.attempts;
        if !attempts.failed(clock) {
            return false;
        }
        if attempts.is_news(why) {
            let left = attempts.left(clock).as_secs_f64();
            let why = match self.checkpoints.coordinated.is_some() {
                true => format!("no checkpoint of all ranks: {why}"),
                false => of_rank(rank, why),
            };
            self.journal.say(format!(
                "saving the job waits: {why}; the job runs on, and the save is tried again for \
                 {left:.0} s"
            ));
        }
        true
    }

    /// Makes the next attempt, if it is time for it.
    pub(crate) fn tend_save(&mut self) {
        if self.next_save() > Duration::ZERO {
            return;
        }
        self.saving.under_way.iter_mut().for_each(|save| save.attempts.due = false);
        let asks = self.checkpoints.asks.iter().filter(|a| a.ends);
        for (rank, _) in asks.flat_map(|a| &a.left) {
            let turn = self.checkpoints.units.turn(*rank);
            self.checkpoints.scheduler.request(turn);
        }
        let sets = self.checkpoints.coordinated.iter_mut();
        sets.for_each(crate::checkpoints::coordinated_model::Coordinated::request);
    }

    /// How long the main loop may sleep.
    pub(crate) fn next_save(&self) -> Duration {
        let clock = self.clock.now();
        let save = self.saving.under_way.as_ref().filter(|_| self.save_is_asked());
        save.and_then(|save| save.attempts.pause(clock)).unwrap_or(Duration::MAX)
    }
}

/// Why a rank has no checkpoint; those that are checkpointed together have it named.
pub(crate) fn of_rank(rank: u32, why: &str) -> String {
    match why.starts_with("rank ") {
        true => why.to_string(),
        false => format!("no checkpoint of rank {rank}: {why}"),
    }
}

#[cfg(test)]
#[path = "again_tests.rs"]
mod tests;
