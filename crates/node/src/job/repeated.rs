//! Ranks that die again and again: each is brought back after a pause, which the monitor sets, and
//! now and then on another node.
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
    /// `elsewhere`: on another node, if that can be.
    pub(super) fn recover_later(&mut self, rank: u32, pause: Duration, elsewhere: bool) {
        let r = self.rank(rank);
        r.later = Some(Later { since: Moment::now(), pause });
        r.elsewhere = elsewhere;
    }

    /// Whether a rank of which no process is left is to come back at another node than the one that
    /// it was ordered at, as it has died there time and again: the fault may be that node's.
    pub(super) fn goes_elsewhere(&mut self, rank: u32) -> bool {
        let wanted = std::mem::take(&mut self.rank(rank).elsewhere);
        let goes = wanted && self.planner.as_ref().is_some_and(|p| p.may_leave(rank));
        if goes {
            let name = self.node_name(self.placement.home(rank));
            self.say(format!(
                "rank {rank} has died on {name} again and again without getting on: it is brought \
                 back on another node, as the fault may be that node's"
            ));
        }
        goes
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
