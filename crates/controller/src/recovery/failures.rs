//! Ranks that are lost and not brought back (`--on-failure report`): the others are told, and have
//! some time to handle it.
//!
//! Kept true: a rank is reported once, when no node listens to it any more; a job in which nobody
//! handles a loss ends, if that was asked for. How long that is counted is not kept: another
//! controller counts from the next loss on.

use crate::timers::Timer;
use crate::{Job, monitor};
use eyrie_control::node::ToNode;
use eyrie_protocol::recovery::Input;

impl Job {
    /// Nobody listens to the rank any more: all nodes tell theirs that it is lost.
    pub(crate) fn rank_fails(&mut self, rank: u32) {
        if self.recovery.failures.lost.contains(&rank) {
            return;
        }
        self.recovery.failures.lost.push(rank);
        self.ranks.rank(rank).gone = true;
        self.nodes.to_all(&ToNode::Failed { rank });
        self.plan(Input::RankDone { rank });
        self.plan(Input::RankReleased { rank });
        self.tell_of_gone();
        // Nobody need know of one that only waits for a program.
        let first = self.spec.program.size - self.spec.program.room();
        if let (true, Some(Some(grace))) = (rank < first, self.spec.protection.ft.report()) {
            let failures = self.recovery.failures.lost.len() as u32;
            self.arm(grace, Timer::Unhandled { rank, failures });
        }
    }

    /// Nothing of it runs any more.
    pub(crate) fn report(&mut self, rank: u32) {
        self.rank_fails(rank);
        self.rank_is_done(rank);
    }

    pub(crate) fn handled(&mut self, failures: u32) {
        let handled = &mut self.recovery.failures.handled;
        *handled = failures.max(*handled);
    }

    /// The time for it is over.
    pub(crate) fn unhandled(&mut self, rank: u32, failures: u32) {
        if self.recovery.failures.handled >= failures || !self.recovery.monitor.running() {
            return;
        }
        let text = format!(
            "rank {rank} was lost, and no other rank has asked for it, acknowledged it or agreed \
             on it in the time that --failure-grace gives: the job ends"
        );
        self.step(monitor::Input::Fatal { text, code: 1 });
    }
}
