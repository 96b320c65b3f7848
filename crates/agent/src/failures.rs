//! Ranks that are lost and not brought back (`--on-failure report`): those here are told, and what
//! they make of it is told to the controller.
//!
//! Kept true: what was sent to a lost rank takes no room in the logs here, however late it comes.

use super::Agent;
use eyrie_control::node::FromNode;
use std::sync::atomic::Ordering;

impl Agent {
    /// A rank is lost, here or elsewhere.
    pub(super) fn rank_failed(&mut self, rank: u32) {
        if rank >= self.size() || !self.segment.reports_failures() {
            return;
        }
        if self.segment.mark_failed(rank) {
            self.processes.failures.lost.push(rank);
        }
        self.release_lost();
    }

    /// After a bell, and now and then.
    pub(super) fn look_at_failures(&mut self) {
        if self.processes.failures.lost.is_empty() {
            return;
        }
        self.release_lost();
        let handled = |rank| self.segment.rank(rank).handled.load(Ordering::Acquire);
        let failures = (0..self.size()).map(handled).max().unwrap_or(0);
        if failures > self.processes.failures.told {
            self.processes.failures.told = failures;
            self.say(FromNode::Handled { failures });
        }
    }

    fn release_lost(&mut self) {
        for rank in &self.processes.failures.lost {
            self.segment.release_failed(*rank);
        }
        if let Some(links) = self.links() {
            self.processes.failures.lost.iter().for_each(|rank| links.trimmed(*rank));
        }
        self.ring_pressed();
    }
}
