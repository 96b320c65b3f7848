//! With `--ha`: the ranks of this node stand still as long as another controller may have followed
//! its own without its knowing, and start them elsewhere (`protocol::leader_lease`).
//!
//! Kept true: a rank that cannot be stopped in time is killed, with all of this node.

use super::Agent;
use super::coordinated::UNLED;
use super::state::standing::Standing;
use eyrie_process::reap;
use std::time::{Duration, Instant};

impl Agent {
    /// Has the ranks stop or go on, if that is to be.
    pub(super) fn heed_lead(&mut self) {
        let stopping = Duration::from_millis(self.spec.timing.intervals.grace.stand_within_ms);
        let watch = self.network.as_ref().and_then(|n| n.watch.as_ref());
        match (watch.is_some_and(|watch| watch.stands()), self.suspension.leaderless_since) {
            (true, None) => {
                tracing::warn!("another controller may lead by now: the ranks stand still");
                self.suspension.leaderless_since = Some(Instant::now());
                // Who stands for a checkpoint of several would wait for the controller.
                self.leave_together(UNLED);
                self.tend_all_standing();
            }
            (true, Some(since)) if since.elapsed() > stopping && !self.all_stand() => {
                tracing::error!("the ranks do not stand: this node ends");
                reap::clear();
                self.suspension.given_up = true;
            }
            (false, Some(since)) => {
                let stood = since.elapsed();
                tracing::warn!(?stood, "nobody has followed the controller: the ranks go on");
                self.suspension.leaderless_since = None;
                self.tend_all_standing();
            }
            _ => {}
        }
    }

    /// Whether no process of a rank runs.
    fn all_stand(&self) -> bool {
        let stands = |r: &super::Rank| r.stand.standing.as_ref().is_some_and(Standing::stands);
        self.ranks.iter().all(|r| r.proc.is_none() || stands(r))
    }
}
