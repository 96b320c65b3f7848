//! Ranks that die again and again: each is brought back after a pause, which the monitor sets.
//!
//! Kept true: a rank that is brought back for another reason meanwhile, as with its node, is not
//! brought back twice; a controller that follows goes on with the pause.

use super::Job;
use super::books::Moment;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When a rank is to be brought back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Later {
    since: Moment,
    pause: Duration,
}

impl Later {
    fn left(&self) -> Duration {
        self.pause.saturating_sub(self.since.elapsed())
    }
}

impl Job {
    pub(super) fn recover_later(&mut self, rank: u32, pause: Duration) {
        self.rank(rank).later = Some(Later { since: Moment::now(), pause });
    }

    /// How long until the next one is brought back.
    pub(super) fn next_repeated(&self) -> Duration {
        if !self.monitor.running() {
            return Duration::MAX;
        }
        let left = self.ranks.iter().filter_map(|r| r.later.as_ref()).map(Later::left);
        left.min().unwrap_or(Duration::MAX).max(Duration::from_millis(1))
    }

    /// Brings back those whose pause is over.
    pub(super) fn tend_repeated(&mut self) {
        let due = |r: &super::Rank| r.later.as_ref().is_some_and(|later| later.left().is_zero());
        let all: Vec<u32> =
            (0u32..).zip(&self.ranks).filter(|(_, r)| due(r)).map(|(n, _)| n).collect();
        for rank in all {
            let r = self.rank(rank);
            r.later = None;
            let ordered = r.order.is_some();
            if ordered || !self.monitor.may_start(rank) {
                continue;
            }
            if self.together.is_some() {
                self.all_go_back();
            } else {
                self.recover(rank);
            }
        }
    }
}
