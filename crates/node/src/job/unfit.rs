//! Ranks that cannot be brought back where they are to be, for what that node lacks: room, memory,
//! processes, a way to who has the image.
//!
//! Kept true: no image is given up for that; after a pause, which grows, the rank is ordered again,
//! on one of several nodes where the planner says; it is told once for each node. What may be the
//! fault of the image as well counts as that after some attempts; a file that is missing or another
//! when all nodes had their turn.

use super::Job;
use super::books::Moment;
use super::nodes::State;
use crate::membership::Member;
use crate::recovery::Input;
use eyrie_control::EventKind;
use eyrie_control::node::Fault;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Until the first new attempt; twice as long after each further one ...
const PAUSE: Duration = Duration::from_millis(100);
/// ... but no longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Attempts to start from an image that may not be right, though each byte of it is.
const ATTEMPTS: u32 = 3;
/// Attempts at least where a file is not there that its process needs, is another, or is locked by
/// somebody else: 12 s.
const FILE_ATTEMPTS: u32 = 8;
/// Attempts to go on with a saved job on a machine that may be the wrong one.
const RESTARTS: u32 = 3;

/// What keeps a rank from being brought back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Trouble {
    count: u32,
    /// Starts of this image that failed for a reason that is not known.
    strange: (u32, u32),
    last: Option<Moment>,
    /// The attempt that is to be made anew: the planner's number, and where it was.
    waits: Option<(u32, Member)>,
    hurries: bool,
    why: Option<String>,
    told: BTreeSet<u32>,
}

impl Trouble {
    /// Whether a start failed for no fault of the image, as far as can be known where there are so
    /// many nodes.
    pub fn is_of_place(&self, fault: Fault, generation: u32, nodes: usize) -> bool {
        let before = if self.strange.0 == generation { self.strange.1 } else { 0 };
        match fault {
            Fault::Place => true,
            Fault::Image => false,
            Fault::Unknown => generation > 0 && before + 1 < ATTEMPTS,
            Fault::Files => generation > 0 && before + 1 < FILE_ATTEMPTS.max(nodes as u32 + 1),
        }
    }

    /// So many starts from this image failed.
    pub fn is_strange(&mut self, generation: u32) {
        let before = if self.strange.0 == generation { self.strange.1 } else { 0 };
        self.strange = (generation, before + 1);
    }

    /// A new attempt is made.
    pub fn tried(&mut self) {
        (self.waits, self.hurries) = (None, false);
    }

    /// The planner waits for its end.
    pub fn hurry(&mut self) {
        self.hurries = true;
    }

    /// For `eyrie status`.
    pub fn why(&self) -> Option<String> {
        self.why.clone()
    }

    fn one_more(&mut self, incarnation: u32, at: Member, why: String) {
        self.count += 1;
        self.last = Some(Moment::now());
        self.waits = Some((incarnation, at));
        self.why = Some(why);
    }

    /// How long until the next attempt; `None`: there is none to be made.
    fn pause(&self) -> Option<Duration> {
        let since = self.last.filter(|_| self.waits.is_some())?.elapsed();
        let doubled = PAUSE.saturating_mul(1 << self.count.saturating_sub(1).min(8));
        let pause = if self.hurries { Duration::ZERO } else { doubled.min(LONGEST_PAUSE) };
        Some(pause.saturating_sub(since))
    }
}

impl Job {
    /// A rank could not be started at its home.
    pub(super) fn cannot_start_here(&mut self, rank: u32, why: &str) {
        let (at, incarnation) =
            (self.member(self.placement.home(rank)), self.rank(rank).incarnation);
        self.cannot_be_had(rank, at, incarnation, why);
    }

    /// Whether a rank is tried again, at its home or elsewhere, for what kept it from being
    /// brought back from this image.
    pub(super) fn is_tried_again(&mut self, rank: u32, fault: Fault, generation: u32) -> bool {
        // A rank that comes back together with others has one node that it can come back at.
        let alone = self.together.is_none() && !self.units.exist();
        let left = self.nodes.iter().filter(|n| n.state != State::Lost).count();
        let nodes = if alone { left } else { 1 };
        let trouble = &mut self.rank(rank).trouble;
        let again = trouble.is_of_place(fault, generation, nodes);
        if again && matches!(fault, Fault::Unknown | Fault::Files) {
            trouble.is_strange(generation);
        }
        if !again {
            // The next image begins with short pauses.
            trouble.count = 0;
        }
        again
    }

    /// A node cannot bring a rank back now.
    pub(super) fn cannot_be_had(&mut self, rank: u32, at: Member, incarnation: u32, why: &str) {
        let many = self.many();
        let place = if many { format!("on node {}", at.node) } else { String::from("now") };
        let trouble = &mut self.rank(rank).trouble;
        trouble.one_more(incarnation, at, format!("{place}: {why}"));
        let (count, first) = (trouble.count, trouble.told.insert(at.node));
        if self.restarting && !many && count >= RESTARTS {
            return self.fatal(format!("the job cannot be restarted: rank {rank}: {why}"));
        }
        if first {
            let next = match many {
                true => "another node is tried, or the same again",
                false => "it is tried again",
            };
            self.say(format!("rank {rank} cannot be brought back {place}: {why}; {next}"));
            let mut event = self.event(EventKind::Unfit);
            (event.rank, event.node) = (Some(rank), Some(at.node));
            event.text = why.to_string();
            self.log_event(event);
        }
    }

    /// How long until a rank is tried again.
    pub(super) fn next_trouble(&self) -> Duration {
        if !self.monitor.running() {
            return Duration::MAX;
        }
        let pauses = self.ranks.iter().filter_map(|r| r.trouble.pause());
        pauses.min().unwrap_or(Duration::MAX).max(Duration::from_millis(1))
    }

    /// Has the ranks brought back whose pause is over.
    pub(super) fn tend_troubles(&mut self) {
        let due = |r: &super::Rank| r.trouble.pause().is_some_and(|p| p.is_zero());
        let all: Vec<u32> =
            (0u32..).zip(&self.ranks).filter(|(_, r)| due(r)).map(|(n, _)| n).collect();
        for rank in all {
            let Some((incarnation, at)) = self.rank(rank).trouble.waits.take() else { continue };
            self.rank(rank).trouble.tried();
            if self.many() {
                self.plan(Input::Unfit { rank, incarnation, at });
            } else if self.together.is_some() {
                self.bring_again(rank);
            } else if self.monitor.may_start(rank) {
                self.recover(rank);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_paced() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.pause(), None);
        let at = Member { node: 1, epoch: 1 };
        trouble.one_more(1, at, String::new());
        assert!(trouble.pause().is_some_and(|p| p <= PAUSE));
        (0..40).for_each(|_| trouble.one_more(1, at, String::new()));
        assert!(trouble.pause().is_some_and(|p| p > PAUSE && p <= LONGEST_PAUSE));
        trouble.hurry();
        assert_eq!(trouble.pause(), Some(Duration::ZERO));
        trouble.tried();
        assert_eq!(trouble.pause(), None);
    }

    #[test]
    fn what_may_be_the_image_is_at_last_taken_for_it() {
        let mut trouble = Trouble::default();
        assert!(
            trouble.is_of_place(Fault::Place, 0, 1) && !trouble.is_of_place(Fault::Image, 3, 1)
        );
        for _ in 1..ATTEMPTS {
            assert!(trouble.is_of_place(Fault::Unknown, 3, 1));
            trouble.is_strange(3);
        }
        assert!(!trouble.is_of_place(Fault::Unknown, 3, 1));
        // An older one is another matter; without any it is the program.
        assert!(trouble.is_of_place(Fault::Unknown, 2, 1));
        assert!(!trouble.is_of_place(Fault::Unknown, 0, 1));
    }

    #[test]
    fn every_node_has_its_turn_before_files_are_taken_for_gone() {
        for nodes in [1, 3, 40] {
            let (mut trouble, mut tried) = (Trouble::default(), 1);
            while trouble.is_of_place(Fault::Files, 3, nodes) {
                trouble.is_strange(3);
                tried += 1;
            }
            assert!(tried > nodes && tried >= FILE_ATTEMPTS as usize, "{tried}");
        }
    }
}
