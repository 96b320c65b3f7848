//! The memory of a job that stands still goes out (`eyrie suspend --swap`): each rank gets an image
//! of where it stands, and its process ends; `eyrie resume` brings all back from these.
//!
//! That is a recovery in which nothing was lost: what a rank did between its image and its end, if
//! anything, it repeats by its logs.
//!
//! Ranks that are checkpointed together stand with that until all of them go out.
//!
//! Kept true: a process ends only when an image counts that was begun while all ranks stood, of
//! ranks that come back together with those of all; who is out, or dies meanwhile, comes back only
//! when the job goes on; if one rank cannot go out, none stays out, and that is told.

use crate::{Job, Rank};
use eyrie_control::EventKind;
use eyrie_control::node::ToNode;
use eyrie_protocol::recovery::Planner;
use std::collections::BTreeSet;
use std::time::Duration;

impl Job {
    /// What would not come back as it was.
    pub(crate) fn may_swap(&self) -> Result<(), String> {
        if !self.spec.protection.ft.protects() {
            let ft = self.spec.mode();
            return Err(format!(
                "--swap has ranks come back from checkpoints; this job has --ft {ft}: suspend it \
                 without --swap"
            ));
        }
        if let Some(why) = &self.recovery.unprotected {
            return Err(format!("the job runs without protection: {why}"));
        }
        if let Some(why) = self.no_more_joint_checkpoints() {
            return Err(why);
        }
        match self.leaving.nodes.keys().next() {
            Some(node) => Err(format!("node {node} is leaving: ask again when it has left")),
            None => Ok(()),
        }
    }

    /// Whether ranks that have no process stay without one for now.
    pub(crate) fn is_swapped(&self) -> bool {
        self.suspension.rule.swaps()
            && self.suspension.is_suspended()
            && !self.recovery.monitor.is_ending()
    }

    /// Why nothing is asked of ranks for now.
    pub(crate) fn swapped_out(&self) -> Result<(), String> {
        let text = "its memory is swapped out (eyrie resume brings it back): ask again then";
        if self.is_swapped() { Err(String::from(text)) } else { Ok(()) }
    }

    /// Why a job that is swapped out cannot be saved by the images that its ranks went to; one
    /// that is not is saved in another way.
    pub(crate) fn out_whole(&self) -> Result<(), String> {
        if !self.is_swapped() {
            return Ok(());
        }
        if !self.is_out() {
            return Err(String::from("its memory is just being swapped out: ask again then"));
        }
        let imaged = self.ranks.all.iter().all(|r| r.gone || r.retention.newest().is_some());
        let at_home = !self.many() || self.recovery.planner.as_ref().is_some_and(Planner::rests);
        match imaged && at_home {
            true => Ok(()),
            false => Err(String::from(
                "a node was lost while its memory was swapped out: eyrie resume brings its ranks \
                 back first",
            )),
        }
    }

    /// Whether no rank has a process, and nodes that begin anew for that have done so.
    pub(crate) fn is_out(&self) -> bool {
        let placed = !self.many() || self.recovery.planned;
        let out = |r: &Rank| r.gone || (r.proc.is_none() && r.starting.is_none());
        placed && self.ranks.all.iter().all(out)
    }

    /// How long the main loop may sleep.
    pub(crate) fn next_swap(&self) -> Duration {
        let clock = self.clock.now();
        let sets = self.checkpoints.coordinated.as_ref().and_then(|t| t.pause(clock));
        let pauses = self.ranks.all.iter().filter_map(|r| r.failing.failures.pause(clock));
        let pauses = pauses.chain(sets);
        let next = if self.is_swapped() { pauses.min() } else { None };
        next.unwrap_or(Duration::MAX)
    }

    /// Has images taken of the ranks that still have a process, once all stand.
    pub(crate) fn tend_swap(&mut self) {
        let clock = self.clock.now();
        if !self.is_swapped() || !self.recovery.monitor.running() || !self.all_stand() {
            return;
        }
        if let Some(why) = self.recovery.unprotected.clone() {
            return self.not_swapped(&format!("it runs without protection: {why}"));
        }
        let all = 0..self.size();
        let mut stay = all.filter(|r| self.ranks.all[*r as usize].proc.is_some());
        let Some(first) = stay.next() else { return };
        let patience = self.checkpoint_patience();
        let failed =
            |r: &u32| self.ranks.all[*r as usize].failing.failures.given_up(patience, clock);
        if let Some(rank) = std::iter::once(first).chain(stay).find(failed) {
            let why = self.ranks.all[rank as usize].failing.reason.clone().unwrap_or_default();
            return self.not_swapped(&format!("rank {rank} cannot be checkpointed: {why}"));
        }
        if let Some(why) = self.no_more_joint_checkpoints() {
            return self.not_swapped(&why);
        }
        if let Some(coordinated) = &mut self.checkpoints.coordinated {
            if !coordinated.is_taking() && coordinated.pause(clock).is_none() {
                coordinated.request();
            }
            return;
        }
        let turns: BTreeSet<u32> =
            (0..self.size()).map(|rank| self.checkpoints.units.turn(rank)).collect();
        turns.into_iter().for_each(|turn| self.swap_out(turn));
    }

    /// Has a rank's image taken, or those of a unit, if nothing is in the way.
    fn swap_out(&mut self, turn: u32) {
        let clock = self.clock.now();
        let ranks = self.checkpoints.units.ranks_of(turn);
        let idle = |r: &Rank| {
            let quiet = r.capture.generation.is_none()
                && r.swap.is_none()
                && r.failing.failures.pause(clock).is_none();
            !r.gone && r.proc.is_some() && quiet
        };
        let idle = ranks.iter().all(|rank| idle(&self.ranks.all[*rank as usize]));
        let now = self.ranks_ms();
        // Of several all end, or none, so they stand until the last image counts.
        let hold = self.checkpoints.units.exist();
        if !idle || !self.checkpoints.scheduler.begin(turn, now) || !self.begin_turn(turn, hold) {
            return;
        }
        for rank in ranks {
            let r = self.ranks.rank(rank);
            r.swap = r.capture.generation;
        }
    }

    /// Whether ranks stay stopped with the next set: the job ends then, or their memory goes out.
    pub(crate) fn stops_with_snapshot(&self) -> bool {
        self.saving.under_way.is_some() || self.is_swapped()
    }

    /// Whether ranks that stand with a set do so for something else.
    fn stops_for_others(&self) -> bool {
        self.saving.under_way.is_some() || !self.leaving.nodes.is_empty()
    }

    /// All ranks stand with a set that counts: their memory goes out with it, or they go on.
    pub(crate) fn all_stopped_with(&mut self, set: u32) {
        if self.stops_for_others() {
            return;
        }
        if !self.is_swapped() {
            return self.release_all();
        }
        for rank in 0..self.size() {
            if self.ranks.rank(rank).proc.is_some() {
                self.ranks.rank(rank).swap = Some(set);
                self.has_gone_out(rank, set);
            }
        }
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.out = Some(set));
        self.all_go_back();
    }

    /// Whether no process is left because the memory of all went out with one set, where it stays.
    pub(crate) fn stays_out(&self) -> bool {
        self.is_swapped() && self.checkpoints.coordinated.as_ref().is_some_and(|t| t.out.is_some())
    }

    /// An image counts, or never will: if it was for this, the process ends, or another is taken.
    pub(crate) fn swap_image(&mut self, rank: u32, generation: u32, counts: bool) {
        if self.ranks.rank(rank).swap != Some(generation) {
            return;
        }
        let goes = counts && self.is_swapped() && self.ranks.rank(rank).proc.is_some();
        if !goes {
            self.ranks.rank(rank).swap = None;
            if self.checkpoints.units.exist() {
                self.nodes.to_home(rank, ToNode::LetGo { rank });
            }
            return;
        }
        if !self.checkpoints.units.exist() {
            self.has_gone_out(rank, generation);
            return self.nodes.to_home(rank, ToNode::Kill { ranks: vec![rank] });
        }
        // All of a unit end, or none.
        let ranks = self.checkpoints.units.mates(rank);
        let counted = |r: &u32| {
            let r = &self.ranks.all[*r as usize];
            r.swap == Some(generation)
                && r.retention.newest().is_some_and(|kept| kept.generation == generation)
        };
        if !ranks.iter().all(counted) {
            return;
        }
        ranks.iter().for_each(|r| self.has_gone_out(*r, generation));
        ranks.iter().for_each(|r| self.nodes.to_home(*r, ToNode::Kill { ranks: vec![*r] }));
    }

    /// A process is about to end whose image counts: that is no death that anybody has to do with.
    fn has_gone_out(&mut self, rank: u32, generation: u32) {
        let r = self.ranks.rank(rank);
        r.falls = true;
        let bytes = r.latest.as_ref().map(|l| l.taken.bytes);
        let mut event = self.clock.event(EventKind::SwappedOut);
        (event.rank, event.generation, event.bytes) = (Some(rank), Some(generation), bytes);
        self.journal.log_event(event);
    }

    /// All that are out come back.
    pub(crate) fn swap_in(&mut self) {
        let busy = self.stops_for_others();
        if let Some(coordinated) = self.checkpoints.coordinated.as_mut().filter(|_| !busy) {
            coordinated.let_go(!self.checkpoints.asks.is_empty());
            self.release_all();
        }
        let set = self.checkpoints.coordinated.as_ref().is_some_and(|t| t.out.is_some());
        if set && !self.many() {
            // Unless some are just ending, after which they do.
            if self.recovery.monitor.running() && self.is_out() {
                self.restart_all();
            }
            return;
        }
        for rank in 0..self.size() {
            let r = self.ranks.rank(rank);
            // One whose process is just being ended comes back when that is over.
            if !r.falls && r.swap.take().is_some() && self.checkpoints.units.exist() {
                self.nodes.to_home(rank, ToNode::LetGo { rank });
            }
            let r = self.ranks.rank(rank);
            let out = !r.gone && r.proc.is_none() && r.starting.is_none();
            if !out || !self.recovery.monitor.may_start(rank) {
                continue;
            }
            // Of those that come back together the planner knows.
            let planned = self.many() && !self.checkpoints.units.partition().are_ranks();
            match planned {
                true => self.carry_order(rank),
                false => self.recover(rank),
            }
        }
    }
}
