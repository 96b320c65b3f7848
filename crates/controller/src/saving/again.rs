//! A save that meets what passes, as a connection that the program has not accepted yet: it is
//! ordered once, so it is tried again.
//!
//! Kept true: attempts have growing pauses, the last one is made when the time for it is over; what
//! it waits for is told once; what lasts is not waited for.

use crate::Job;
use crate::checkpoints::coordinated_model::Coordinated;
use crate::checkpoints::failures::of_rank;
use crate::checkpoints::model::Ask;
use std::time::Duration;

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
            let why = of_rank(rank, why);
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
        sets.for_each(Coordinated::request);
    }

    /// How long the main loop may sleep.
    pub(crate) fn next_save(&self) -> Duration {
        let clock = self.clock.now();
        let save = self.saving.under_way.as_ref().filter(|_| self.save_is_asked());
        save.and_then(|save| save.attempts.pause(clock)).unwrap_or(Duration::MAX)
    }
}
