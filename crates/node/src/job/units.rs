//! `--ft node`: the ranks that began on one node are one recovery unit, wherever they are.
//!
//! They are checkpointed together (a set: an image of each, with what they had on their way to each
//! other), and when one of them dies, or their node does, the planner has all of them killed and
//! brought back from one set. Ranks of other units are logged against, and go on.
//!
//! Kept true: a set is taken only of ranks that all run, one at a time on a node; if one part of it
//! fails it is given up when it is known how all others came out.

use super::{Capture, Job};
use crate::monitor::{self, Death, Said};
use crate::recovery::Input;
use eyrie_control::node::{CheckpointResult, ToNode};
use std::collections::BTreeSet;

/// A set that is being taken.
struct Taking {
    unit: u32,
    generation: u32,
    node: u32,
    /// Ranks of which it is not known how theirs came out.
    left: BTreeSet<u32>,
    /// Why there is none; `lasting`: the next would fail, too.
    failed: Option<(String, bool)>,
}

/// The recovery units of a job.
pub(super) struct Units {
    /// By rank; empty: units are not nodes.
    of: Vec<u32>,
    taking: Vec<Taking>,
}

impl Units {
    pub fn new(of: Vec<u32>) -> Units {
        Units { of, taking: Vec::new() }
    }

    pub fn are_nodes(&self) -> bool {
        !self.of.is_empty()
    }

    /// What the scheduler knows a rank by: its unit, or itself.
    pub fn turn(&self, rank: u32) -> u32 {
        self.of.get(rank as usize).copied().unwrap_or(rank)
    }

    /// The ranks that are checkpointed with this one, itself among them.
    fn mates(&self, rank: u32) -> Vec<u32> {
        match self.are_nodes() {
            true => self.ranks_of(self.turn(rank)),
            false => vec![rank],
        }
    }

    fn ranks_of(&self, unit: u32) -> Vec<u32> {
        (0u32..).zip(&self.of).filter(|u| *u.1 == unit).map(|u| u.0).collect()
    }

    /// Whether a rank stands for its unit where units are counted.
    pub fn is_first(&self, rank: u32) -> bool {
        self.mates(rank).first() == Some(&rank)
    }

    /// Whether a set is being taken.
    pub fn are_taking(&self) -> bool {
        !self.taking.is_empty()
    }

    pub fn forget_sets(&mut self) {
        self.taking.clear();
    }

    /// The node that a set of this rank is taken at is lost.
    pub fn forget_set_of(&mut self, rank: u32) {
        let unit = self.turn(rank);
        self.taking.retain(|t| t.unit != unit);
    }

    /// What its ranks had sent could not be copied.
    pub fn failed(&mut self, generation: u32, node: u32, result: Result<(), String>) {
        let of = |t: &&mut Taking| (t.generation, t.node) == (generation, node);
        if let (Some(taking), Err(why)) = (self.taking.iter_mut().find(of), result) {
            taking.failed.get_or_insert((why, false));
        }
    }
}

impl Job {
    /// Takes a set of a unit whose turn it is. False: it has to wait.
    pub(super) fn begin_unit(&mut self, unit: u32) -> bool {
        let ranks = self.units.ranks_of(unit);
        let ready = |r: &super::Rank| {
            r.proc.is_some() && r.starting.is_none() && r.capturing.is_none() && !r.falls
        };
        let all = ranks.iter().all(|r| ready(&self.ranks[*r as usize]));
        let node = ranks.first().map_or(0, |r| self.placement.home(*r));
        let busy = self.units.taking.iter().any(|t| t.unit == unit || t.node == node);
        if !all || busy {
            let now = self.ranks_ms();
            self.scheduler.finished(unit, now);
            ranks.first().into_iter().for_each(|r| self.renew_asks(*r));
            return false;
        }
        let generations = ranks.iter().map(|r| self.ranks[*r as usize].retention.begin());
        let generation = generations.max().unwrap_or(0);
        let left = ranks.iter().copied().collect();
        self.units.taking.push(Taking { unit, generation, node, left, failed: None });
        let parts = ranks.iter().filter_map(|r| self.set_part_of(*r, generation)).collect();
        let (incremental, hold) = (self.spec.incremental, false);
        let order = ToNode::CheckpointSet { parts, generation, incremental, hold };
        self.nodes[node as usize].send(order);
        true
    }

    /// A rank's image of a set is on its node and its partner, or will not be.
    pub(super) fn unit_part(
        &mut self,
        node: u32,
        rank: u32,
        generation: u32,
        result: CheckpointResult,
    ) {
        let unit = self.units.turn(rank);
        let of = |t: &&mut Taking| (t.unit, t.generation) == (unit, generation);
        let Some(taking) = self.units.taking.iter_mut().find(of) else {
            return self.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        };
        taking.left.remove(&rank);
        match result {
            CheckpointResult::Taken(taken) => {
                let incarnation = self.rank(rank).captured;
                self.image_taken(node, rank, Capture { generation, incarnation, taken });
            }
            CheckpointResult::Failed { text, lasting } => {
                let why = format!("rank {rank}: {text}");
                taking.failed = Some((why, lasting));
            }
            CheckpointResult::Died => {
                let why = format!("rank {rank} did not come to stand");
                taking.failed.get_or_insert((why, false));
            }
        }
        let over = |t: &Taking| t.unit == unit && t.left.is_empty();
        let Some(index) = self.units.taking.iter().position(over) else { return };
        let taking = self.units.taking.swap_remove(index);
        if let Some((why, lasting)) = taking.failed {
            self.void_unit(unit, generation, &why, lasting);
        }
    }

    /// One part of a set is missing: there is no set.
    fn void_unit(&mut self, unit: u32, generation: u32, why: &str, lasting: bool) {
        let ranks = self.units.ranks_of(unit);
        for &rank in &ranks {
            let r = self.rank(rank);
            (r.capturing, r.partner) = (None, None);
            r.pending.take_if(|p| p.generation == generation);
            self.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        }
        self.plan(Input::VoidUnit { unit, generation });
        let now = self.ranks_ms();
        self.scheduler.finished(unit, now);
        // Those who wait while their unit goes back are served afterwards.
        if !ranks.iter().all(|r| self.ranks[*r as usize].proc.is_some()) {
            return;
        }
        let Some((first, others)) = ranks.split_first() else { return };
        self.checkpoint_failed(*first, generation, why.to_string(), lasting);
        let (failures, reason) = {
            let told = self.rank(*first);
            (told.failures, told.reason.clone())
        };
        // It is told once.
        for &rank in others {
            let r = self.rank(rank);
            (r.failures, r.reason) = (failures, reason.clone());
            self.fail_asks(rank, why);
        }
    }

    /// Whether one of the ranks that are checkpointed with this one is still being.
    pub(super) fn unit_is_captured(&self, rank: u32) -> bool {
        self.units.mates(rank).iter().any(|r| self.ranks[*r as usize].capturing.is_some())
    }

    /// A rank runs: its unit has its turn if all of it does.
    pub(super) fn tell_scheduler(&mut self, rank: u32) {
        let runs = |r: &u32| self.ranks[*r as usize].proc.is_some();
        let live = self.protected() && self.units.mates(rank).iter().all(runs);
        self.scheduler.set_live(self.units.turn(rank), live);
    }

    /// A rank's unit goes back: its process is killed, and it is not started by an earlier order.
    pub(super) fn unit_kills(&mut self, rank: u32) {
        let r = self.rank(rank);
        r.order = None;
        r.falls = true;
        if r.proc.is_some() || r.starting.is_some() {
            self.to_home(rank, ToNode::Kill { ranks: vec![rank] });
        }
    }

    /// Whether a process ended because its unit goes back.
    pub(super) fn has_fallen(&self, rank: u32, death: Death, said: &Said) -> bool {
        let killed = death == Death::Signal(libc::SIGKILL);
        let quiet = matches!(said, Said::Nothing | Said::Running);
        self.ranks[rank as usize].falls && killed && quiet
    }

    /// A rank that had ended is brought back with its unit. False: it had not.
    pub(super) fn again(&mut self, rank: u32) -> bool {
        if !self.units.are_nodes() || !std::mem::take(&mut self.rank(rank).gone) {
            return false;
        }
        let protected = self.protected();
        self.step(monitor::Input::Lost { rank, protected });
        true
    }

    /// The planner waits for the end of a process of a rank that was not started.
    pub(super) fn unit_not_started(&mut self, rank: u32) {
        if self.units.are_nodes() {
            let incarnation = self.rank(rank).incarnation;
            self.plan(Input::RankDied { rank, incarnation });
        }
    }

    /// A rank has ended: without it there is no set of its unit, until it goes back.
    pub(super) fn unit_ends(&mut self, rank: u32) {
        for mate in self.units.mates(rank).into_iter().filter(|r| *r != rank) {
            if let Some(why) = self.no_more_of_unit(mate) {
                self.fail_asks(mate, &why);
            }
        }
    }

    /// Why there cannot be another set of a rank's unit.
    pub(super) fn no_more_of_unit(&self, rank: u32) -> Option<String> {
        let gone = |r: &u32| self.ranks[*r as usize].gone;
        let ended = self.units.mates(rank).into_iter().find(gone)?;
        self.units.are_nodes().then(|| {
            format!(
                "rank {ended} has ended, and the ranks that began on one node are checkpointed \
                 together or not at all"
            )
        })
    }
}
