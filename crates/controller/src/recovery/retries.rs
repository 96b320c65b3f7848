//! Ranks that cannot be brought back where they are to be, for what that node lacks: room, memory,
//! processes, a way to who has the image.
//!
//! Kept true: no image is given up for that; after a pause, which grows, the rank is ordered again,
//! on one of several nodes where the planner says; it is told once for each node. What may be the
//! fault of the image as well counts as that after some attempts; a file that is missing or another
//! when all nodes had their turn.

use crate::Job;
use crate::nodes::model::State;
use eyrie_control::EventKind;
use eyrie_control::node::Fault;
use eyrie_protocol::membership::Member;
use std::time::Duration;

/// Attempts to go on with a saved job on a machine that may be the wrong one.
const RESTARTS: u32 = 3;

impl Job {
    /// A rank could not be started at its home.
    pub(crate) fn cannot_start_here(&mut self, rank: u32, why: &str) {
        let (at, incarnation) =
            (self.nodes.member(self.nodes.placement.home(rank)), self.ranks.rank(rank).incarnation);
        self.cannot_be_had(rank, at, incarnation, why);
    }

    /// Whether a rank is tried again, at its home or elsewhere, for what kept it from being
    /// brought back from this image.
    pub(crate) fn is_tried_again(&mut self, rank: u32, fault: Fault, generation: u32) -> bool {
        // A rank that comes back together with others has one node that it can come back at.
        let alone = self.checkpoints.units.partition().are_ranks();
        let left = self.nodes.all.iter().filter(|n| n.state != State::Lost).count();
        let nodes = if alone { left } else { 1 };
        let retries = &mut self.ranks.rank(rank).coming_back.retries;
        let again = retries.is_of_place(fault, generation, nodes);
        if again && matches!(fault, Fault::Unknown | Fault::Files) {
            retries.is_strange(generation);
        }
        if !again {
            // The next image begins with short pauses.
            retries.count = 0;
        }
        again
    }

    /// A node cannot bring a rank back now.
    pub(crate) fn cannot_be_had(&mut self, rank: u32, at: Member, incarnation: u32, why: &str) {
        let clock = self.clock.now();
        let many = self.many();
        let place = if many { format!("on node {}", at.node) } else { String::from("now") };
        let retries = &mut self.ranks.rank(rank).coming_back.retries;
        retries.one_more(clock, incarnation, at, format!("{place}: {why}"));
        let (count, first) = (retries.count, retries.told.insert(at.node));
        if self.saving.restarting && !many && count >= RESTARTS {
            return self.fatal(format!("the job cannot be restarted: rank {rank}: {why}"));
        }
        if first {
            let next = match many {
                true => "another node is tried, or the same again",
                false => "it is tried again",
            };
            self.journal.say(format!("rank {rank} cannot be brought back {place}: {why}; {next}"));
            let mut event = self.clock.event(EventKind::Unfit);
            (event.rank, event.node) = (Some(rank), Some(at.node));
            event.text = why.to_string();
            self.journal.log_event(event);
        }
    }

    fn longest_start_pause(&self) -> Duration {
        Duration::from_millis(self.spec.timing.intervals.retries.start_pause_ms)
    }

    /// How long until a rank is tried again.
    pub(crate) fn next_retry(&self) -> Duration {
        let (longest, clock) = (self.longest_start_pause(), self.clock.now());
        if !self.recovery.monitor.running() {
            return Duration::MAX;
        }
        let pauses =
            self.ranks.all.iter().filter_map(|r| r.coming_back.retries.pause(longest, clock));
        pauses.min().unwrap_or(Duration::MAX).max(Duration::from_millis(1))
    }

    /// Has the ranks brought back whose pause is over.
    pub(crate) fn tend_retries(&mut self) {
        let (longest, clock) = (self.longest_start_pause(), self.clock.now());
        let due = |r: &crate::Rank| {
            r.coming_back.retries.pause(longest, clock).is_some_and(|p| p.is_zero())
        };
        let all: Vec<u32> =
            (0u32..).zip(&self.ranks.all).filter(|(_, r)| due(r)).map(|(n, _)| n).collect();
        for rank in all {
            let Some((incarnation, at)) = self.ranks.rank(rank).coming_back.retries.waits.take()
            else {
                continue;
            };
            self.ranks.rank(rank).coming_back.retries.tried();
            self.try_again(rank, incarnation, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Now;
    use crate::recovery::model::Retries;
    use crate::recovery::model::{ATTEMPTS, FILE_ATTEMPTS, PAUSE};

    #[test]
    fn attempts_are_paced() {
        let (clock, longest) = (Now::of_test(), Duration::from_secs(10));
        let mut retries = Retries::default();
        assert_eq!(retries.pause(longest, clock), None);
        let at = Member { node: 1, epoch: 1 };
        retries.one_more(clock, 1, at, String::new());
        assert!(retries.pause(longest, clock).is_some_and(|p| p <= PAUSE));
        (0..40).for_each(|_| retries.one_more(clock, 1, at, String::new()));
        assert!(retries.pause(longest, clock).is_some_and(|p| p > PAUSE && p <= longest));
        retries.expedite();
        assert_eq!(retries.pause(longest, clock), Some(Duration::ZERO));
        retries.tried();
        assert_eq!(retries.pause(longest, clock), None);
    }

    #[test]
    fn what_may_be_the_image_is_at_last_taken_for_it() {
        let mut retries = Retries::default();
        assert!(
            retries.is_of_place(Fault::Place, 0, 1) && !retries.is_of_place(Fault::Image, 3, 1)
        );
        for _ in 1..ATTEMPTS {
            assert!(retries.is_of_place(Fault::Unknown, 3, 1));
            retries.is_strange(3);
        }
        assert!(!retries.is_of_place(Fault::Unknown, 3, 1));
        // An older one is another matter; without any it is the program.
        assert!(retries.is_of_place(Fault::Unknown, 2, 1));
        assert!(!retries.is_of_place(Fault::Unknown, 0, 1));
    }

    #[test]
    fn every_node_has_its_turn_before_files_are_taken_for_gone() {
        for nodes in [1, 3, 40] {
            let (mut retries, mut tried) = (Retries::default(), 1);
            while retries.is_of_place(Fault::Files, 3, nodes) {
                retries.is_strange(3);
                tried += 1;
            }
            assert!(tried > nodes && tried >= FILE_ATTEMPTS as usize, "{tried}");
        }
    }
}
