//! With `--ha`: the ranks of this node stand still as long as another controller may have followed
//! its own without its knowing, and start them elsewhere (`protocol::led`).
//!
//! Kept true: a rank that cannot be stopped in time is killed, with all of this node.

use super::{Agent, halt};
use crate::reap;
use eyrie_protocol::led::STOPPING_MS;
use std::time::{Duration, Instant};

const STOPPING: Duration = Duration::from_millis(STOPPING_MS);

impl Agent {
    /// Has the ranks stop or go on, if that is to be.
    pub(super) fn heed_lead(&mut self) {
        let watch = self.network.as_ref().and_then(|n| n.watch.as_ref());
        match (watch.is_some_and(|watch| watch.stands()), self.unled) {
            (true, None) => {
                tracing::warn!("another controller may lead by now: the ranks stand still");
                self.unled = Some(Instant::now());
                self.tend_all_standing();
            }
            (true, Some(since)) if since.elapsed() > STOPPING && !self.all_stand() => {
                tracing::error!("the ranks do not stand: this node ends");
                reap::clear();
                self.given_up = true;
            }
            (false, Some(since)) => {
                let stood = since.elapsed();
                tracing::warn!(?stood, "nobody has followed the controller: the ranks go on");
                self.unled = None;
                self.tend_all_standing();
            }
            _ => {}
        }
    }

    /// Whether no process of a rank runs.
    fn all_stand(&self) -> bool {
        let stands = |r: &super::Rank| r.standing.as_ref().is_some_and(halt::Standing::stands);
        self.ranks.iter().all(|r| r.proc.is_none() || stands(r))
    }
}
