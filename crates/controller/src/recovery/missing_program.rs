//! Programs that are not there on a node, or cannot be run on it: it may be otherwise on others.
//!
//! Kept true: only a rank of which nothing has run, as far as can be known, is tried at another
//! node; at no more than a few, at each once; when there is none left its exit code is the job's.

use crate::Job;
use eyrie_control::EventKind;
use eyrie_protocol::recovery::Planner;

impl Job {
    /// Where that was, and what it means.
    pub(crate) fn describe_missing_program(&self, rank: u32, what: &str) -> String {
        match self.many() {
            true => format!("on {}, {what}", self.nodes.node_name(self.nodes.placement.home(rank))),
            false => format!("on this machine, {what}"),
        }
    }

    /// Whether a rank that cannot be run where it is to is tried at another node. That is told
    /// once for each node.
    pub(crate) fn may_be_elsewhere(&mut self, rank: u32, why: &str) -> bool {
        let may = self.recovery.planner.as_ref().is_some_and(|p: &Planner| p.may_try(rank));
        if !may || !self.many() || !self.protected() || !self.recovery.monitor.running() {
            return false;
        }
        // It has not died, as it never ran.
        self.ranks.rank(rank).deaths.died_at = None;
        let home = self.nodes.placement.home(rank);
        if self.status.looks.without_program.insert(home) {
            let name = self.nodes.node_name(home);
            self.journal
                .say(format!("rank {rank} cannot be run on {name} ({why}): another node is tried"));
        }
        let mut event = self.clock.event(EventKind::Unfit);
        (event.rank, event.node) = (Some(rank), Some(home));
        event.text = why.to_string();
        self.journal.log_event(event);
        true
    }
}
