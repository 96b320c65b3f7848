//! The memory of a job that stands still goes out (`eyrie suspend --swap`): each rank gets an image
//! of where it stands, and its process ends; `eyrie resume` brings all back from these.
//!
//! That is a recovery in which nothing was lost: what a rank did between its image and its end, if
//! anything, it repeats by its logs.
//!
//! Kept true: a process ends only when an image counts that was begun while all ranks stood; who
//! is out, or dies meanwhile, comes back only when the job goes on; if one rank cannot go out, none
//! stays out, and that is told.

use super::Job;
use crate::recovery::Planner;
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, Ft};
use std::time::Duration;

impl Job {
    /// What would not come back as it was.
    pub(super) fn may_swap(&self) -> Result<(), String> {
        if self.spec.ft != Ft::Logged {
            let ft = self.spec.mode();
            return Err(format!(
                "--swap has ranks come back from checkpoints and logs of their own (--ft logged); \
                 this job has --ft {ft}: suspend it without --swap, or save it (eyrie checkpoint \
                 --end)"
            ));
        }
        if let Some(why) = &self.unprotected {
            return Err(format!("the job runs without protection: {why}"));
        }
        match self.leaves.keys().next() {
            Some(node) => Err(format!("node {node} is leaving: ask again when it has left")),
            None => Ok(()),
        }
    }

    /// Whether ranks that have no process stay without one for now.
    pub(super) fn is_swapped(&self) -> bool {
        self.halt.rule.swaps() && self.is_halted() && !self.monitor.is_ending()
    }

    /// Why nothing is asked of ranks for now.
    pub(super) fn swapped_out(&self) -> Result<(), String> {
        let text = "its memory is swapped out (eyrie resume brings it back): ask again then";
        if self.is_swapped() { Err(String::from(text)) } else { Ok(()) }
    }

    /// Why a job that is swapped out cannot be saved by the images that its ranks went to; one
    /// that is not is saved in another way.
    pub(super) fn out_whole(&self) -> Result<(), String> {
        if !self.is_swapped() {
            return Ok(());
        }
        if !self.is_out() {
            return Err(String::from("its memory is just being swapped out: ask again then"));
        }
        let imaged = self.ranks.iter().all(|r| r.gone || r.retention.newest().is_some());
        let at_home = !self.many() || self.planner.as_ref().is_some_and(Planner::rests);
        match imaged && at_home {
            true => Ok(()),
            false => Err(String::from(
                "a node was lost while its memory was swapped out: eyrie resume brings its ranks \
                 back first",
            )),
        }
    }

    /// Whether no rank has a process.
    pub(super) fn is_out(&self) -> bool {
        self.ranks.iter().all(|r| r.gone || (r.proc.is_none() && r.starting.is_none()))
    }

    /// How long the main loop may sleep.
    pub(super) fn next_swap(&self) -> Duration {
        let pauses = self.ranks.iter().filter_map(|r| r.failures.pause());
        let next = if self.is_swapped() { pauses.min() } else { None };
        next.unwrap_or(Duration::MAX)
    }

    /// Has images taken of the ranks that still have a process, once all stand.
    pub(super) fn tend_swap(&mut self) {
        if !self.is_swapped() || !self.monitor.running() || !self.all_stand() {
            return;
        }
        if let Some(why) = self.unprotected.clone() {
            return self.not_swapped(&format!("it runs without protection: {why}"));
        }
        let now = self.ranks_ms();
        for rank in 0..self.size() {
            let r = self.rank(rank);
            let idle = r.proc.is_some() && r.capturing.is_none() && r.swap.is_none();
            if !idle || r.gone {
                continue;
            }
            if r.failures.given_up() {
                let why = r.reason.clone().unwrap_or_default();
                return self.not_swapped(&format!("rank {rank} cannot be checkpointed: {why}"));
            }
            if r.failures.pause().is_none() && self.scheduler.begin(rank, now) {
                self.begin_checkpoint(rank, false);
                let r = self.rank(rank);
                r.swap = r.capturing;
            }
        }
    }

    /// An image counts, or never will: if it was for this, the process ends, or another is taken.
    pub(super) fn swap_image(&mut self, rank: u32, generation: u32, bytes: Option<u64>) {
        if self.rank(rank).swap != Some(generation) {
            return;
        }
        let goes = bytes.is_some() && self.is_swapped() && self.rank(rank).proc.is_some();
        if !goes {
            self.rank(rank).swap = None;
            return;
        }
        // It is no death that anybody has to do with.
        self.rank(rank).falls = true;
        self.to_home(rank, ToNode::Kill { ranks: vec![rank] });
        let mut event = self.event(EventKind::SwappedOut);
        (event.rank, event.generation, event.bytes) = (Some(rank), Some(generation), bytes);
        self.log_event(event);
    }

    /// All that are out come back.
    pub(super) fn swap_in(&mut self) {
        for rank in 0..self.size() {
            let r = self.rank(rank);
            r.swap = None;
            let out = !r.gone && r.proc.is_none() && r.starting.is_none();
            if out && self.monitor.may_start(rank) {
                self.recover(rank);
            }
        }
    }

    /// Whether the process of a rank is ended so that its memory goes out.
    pub(super) fn goes_out(&self, rank: u32) -> bool {
        let r = &self.ranks[rank as usize];
        r.falls && r.swap.is_some()
    }
}
