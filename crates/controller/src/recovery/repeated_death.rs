//! Ranks that die again and again: each is brought back after a pause, which the monitor sets, and
//! now and then on another node.
//!
//! Kept true: a rank that is brought back for another reason meanwhile, as with its node, is not
//! brought back twice; a controller that follows goes on with the pause.

use crate::Job;
use crate::recovery::model::Later;
use std::time::Duration;

impl Job {
    /// `elsewhere`: on another node, if that can be.
    pub(crate) fn recover_later(&mut self, rank: u32, pause: Duration, elsewhere: bool) {
        let clock = self.clock.now();
        let longest = Duration::from_millis(self.spec.timing.intervals.retries.crash_pause_ms);
        let r = self.ranks.rank(rank);
        let pause = pause.min(longest);
        r.coming_back.later = Some(Later { since: clock.moment(), pause });
        r.coming_back.elsewhere = elsewhere;
    }

    /// Whether a rank of which no process is left is to come back at another node than the one that
    /// it was ordered at, as it has died there time and again: the fault may be that node's.
    pub(crate) fn goes_elsewhere(&mut self, rank: u32) -> bool {
        let wanted = std::mem::take(&mut self.ranks.rank(rank).coming_back.elsewhere);
        let goes = wanted && self.recovery.planner.as_ref().is_some_and(|p| p.may_leave(rank));
        if goes && !self.status.looks.without_program.contains(&self.nodes.placement.home(rank)) {
            let name = self.nodes.node_name(self.nodes.placement.home(rank));
            self.journal.say(format!(
                "rank {rank} has died on {name} again and again without getting on: it is brought \
                 back on another node, as the fault may be that node's"
            ));
        }
        goes
    }

    /// How long until the next one is brought back.
    pub(crate) fn next_repeated_death(&self) -> Duration {
        let clock = self.clock.now();
        if !self.recovery.monitor.running() {
            return Duration::MAX;
        }
        let left = self
            .ranks
            .all
            .iter()
            .filter_map(|r| r.coming_back.later.as_ref())
            .map(|later| later.left(clock));
        left.min().unwrap_or(Duration::MAX).max(Duration::from_millis(1))
    }

    /// Brings back those whose pause is over.
    pub(crate) fn tend_repeated_deaths(&mut self) {
        let clock = self.clock.now();
        let due = |r: &crate::Rank| {
            r.coming_back.later.as_ref().is_some_and(|later| later.left(clock).is_zero())
        };
        let all: Vec<u32> =
            (0u32..).zip(&self.ranks.all).filter(|(_, r)| due(r)).map(|(n, _)| n).collect();
        for rank in all {
            let r = self.ranks.rank(rank);
            r.coming_back.later = None;
            let ordered = r.restore.order.is_some();
            if ordered || !self.recovery.monitor.may_start(rank) {
                continue;
            }
            self.bring_back(rank);
        }
    }
}
