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

use super::{Job, Rank};
use crate::recovery::Planner;
use eyrie_control::EventKind;
use eyrie_control::node::ToNode;
use std::collections::BTreeSet;
use std::time::Duration;

impl Job {
    /// What would not come back as it was.
    pub(super) fn may_swap(&self) -> Result<(), String> {
        if !self.spec.ft.protects() {
            let ft = self.spec.mode();
            return Err(format!(
                "--swap has ranks come back from checkpoints; this job has --ft {ft}: suspend it \
                 without --swap"
            ));
        }
        if let Some(why) = &self.unprotected {
            return Err(format!("the job runs without protection: {why}"));
        }
        if let Some(why) = self.no_more_together() {
            return Err(why);
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

    /// Whether no rank has a process, and nodes that begin anew for that have done so.
    pub(super) fn is_out(&self) -> bool {
        let placed = !self.many() || self.planned;
        let out = |r: &Rank| r.gone || (r.proc.is_none() && r.starting.is_none());
        placed && self.ranks.iter().all(out)
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
        let all = 0..self.size();
        let mut stay = all.filter(|r| self.ranks[*r as usize].proc.is_some());
        let Some(first) = stay.next() else { return };
        let failed = |r: &u32| self.ranks[*r as usize].failures.given_up();
        if let Some(rank) = std::iter::once(first).chain(stay).find(failed) {
            let why = self.ranks[rank as usize].reason.clone().unwrap_or_default();
            return self.not_swapped(&format!("rank {rank} cannot be checkpointed: {why}"));
        }
        if let Some(why) = self.no_more_together() {
            return self.not_swapped(&why);
        }
        if let Some(together) = &mut self.together {
            if !together.is_taking() {
                together.request();
            }
            return;
        }
        let turns: BTreeSet<u32> = (0..self.size()).map(|rank| self.units.turn(rank)).collect();
        turns.into_iter().for_each(|turn| self.swap_out(turn));
    }

    /// Has a rank's image taken, or those of a unit, if nothing is in the way.
    fn swap_out(&mut self, turn: u32) {
        let ranks = match self.units.exist() {
            true => self.units.ranks_of(turn),
            false => vec![turn],
        };
        let idle = |r: &Rank| {
            let quiet = r.capturing.is_none() && r.swap.is_none() && r.failures.pause().is_none();
            !r.gone && r.proc.is_some() && quiet
        };
        let idle = ranks.iter().all(|rank| idle(&self.ranks[*rank as usize]));
        let now = self.ranks_ms();
        if !idle || !self.scheduler.begin(turn, now) {
            return;
        }
        if !self.units.exist() {
            self.begin_checkpoint(turn, false);
        } else if !self.begin_unit(turn, true) {
            return;
        }
        for rank in ranks {
            let r = self.rank(rank);
            r.swap = r.capturing;
        }
    }

    /// Whether ranks stay stopped with the next set: the job ends then, or their memory goes out.
    pub(super) fn stays_with_set(&self) -> bool {
        self.suspend.is_some() || self.is_swapped()
    }

    /// Whether ranks that stand with a set do so for something else.
    fn stands_for_others(&self) -> bool {
        self.suspend.is_some() || !self.leaves.is_empty()
    }

    /// All ranks stand with a set that counts: their memory goes out with it, or they go on.
    pub(super) fn stand_with(&mut self, set: u32) {
        if self.stands_for_others() {
            return;
        }
        if !self.is_swapped() {
            return self.let_all_go();
        }
        for rank in 0..self.size() {
            if self.rank(rank).proc.is_some() {
                self.rank(rank).swap = Some(set);
                self.has_gone_out(rank, set);
            }
        }
        self.together.iter_mut().for_each(|t| t.out = Some(set));
        self.all_go_back();
    }

    /// Whether no process is left because the memory of all went out with one set, where it stays.
    pub(super) fn stays_out(&self) -> bool {
        self.is_swapped() && self.together.as_ref().is_some_and(|t| t.out.is_some())
    }

    /// An image counts, or never will: if it was for this, the process ends, or another is taken.
    pub(super) fn swap_image(&mut self, rank: u32, generation: u32, counts: bool) {
        if self.rank(rank).swap != Some(generation) {
            return;
        }
        let goes = counts && self.is_swapped() && self.rank(rank).proc.is_some();
        if !goes {
            self.rank(rank).swap = None;
            if self.units.exist() {
                self.to_home(rank, ToNode::LetGo { rank });
            }
            return;
        }
        if !self.units.exist() {
            self.has_gone_out(rank, generation);
            return self.to_home(rank, ToNode::Kill { ranks: vec![rank] });
        }
        // All of a unit end, or none.
        let ranks = self.units.ranks_of(self.units.turn(rank));
        let counted = |r: &u32| {
            let r = &self.ranks[*r as usize];
            r.swap == Some(generation)
                && r.retention.newest().is_some_and(|kept| kept.generation == generation)
        };
        if !ranks.iter().all(counted) {
            return;
        }
        ranks.iter().for_each(|r| self.has_gone_out(*r, generation));
        ranks.iter().for_each(|r| self.to_home(*r, ToNode::Kill { ranks: vec![*r] }));
    }

    /// A process is about to end whose image counts: that is no death that anybody has to do with.
    fn has_gone_out(&mut self, rank: u32, generation: u32) {
        let r = self.rank(rank);
        r.falls = true;
        let bytes = r.latest.as_ref().map(|l| l.taken.bytes);
        let mut event = self.event(EventKind::SwappedOut);
        (event.rank, event.generation, event.bytes) = (Some(rank), Some(generation), bytes);
        self.log_event(event);
    }

    /// All that are out come back.
    pub(super) fn swap_in(&mut self) {
        let busy = self.stands_for_others();
        if let Some(together) = self.together.as_mut().filter(|_| !busy) {
            together.let_go(!self.asks.is_empty());
            self.let_all_go();
        }
        let set = self.together.as_ref().is_some_and(|t| t.out.is_some());
        if set && !self.many() {
            // Unless some are just ending, after which they do.
            if self.monitor.running() && self.is_out() {
                self.restart_all();
            }
            return;
        }
        for rank in 0..self.size() {
            let r = self.rank(rank);
            // One whose process is just being ended comes back when that is over.
            if !r.falls && r.swap.take().is_some() && self.units.exist() {
                self.to_home(rank, ToNode::LetGo { rank });
            }
            let r = self.rank(rank);
            let out = !r.gone && r.proc.is_none() && r.starting.is_none();
            if !out || !self.monitor.may_start(rank) {
                continue;
            }
            // Of those that come back together the planner knows.
            let planned = self.many() && (self.together.is_some() || self.units.exist());
            match planned {
                true => self.carry_order(rank),
                false => self.recover(rank),
            }
        }
    }

    /// Whether the process of a rank is ended so that its memory goes out.
    pub(super) fn goes_out(&self, rank: u32) -> bool {
        let r = &self.ranks[rank as usize];
        r.falls && r.swap.is_some()
    }
}
