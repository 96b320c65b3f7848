//! `--ft node`, `--ft cluster`: the ranks that began on one node, or in one cluster, are one
//! recovery unit, wherever they are.
//!
//! They are checkpointed together (a set: an image of each, with what they had on their way to each
//! other), and when one of them dies, or a node of theirs does, the planner has all of them killed
//! and brought back from one set. Ranks of other units are logged against, and go on.
//!
//! Kept true: a set is taken only of ranks that all run, one at a time on a node; no rank of it
//! goes on before all of them stand, on whichever nodes (`protocol::sets`); if one part of it fails
//! it is given up when it is known how all others came out.

use super::{Capture, Job};
use crate::monitor::{self, Death, Said};
use crate::points;
use crate::recovery::Input;
use eyrie_control::Ft;
use eyrie_control::node::{CheckpointResult, SetPart, ToNode};
use eyrie_protocol::joints::End;
use eyrie_protocol::sets::{Set, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A set that is being taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Taking {
    unit: u32,
    set: Set,
    /// The next would fail, too.
    lasting: bool,
}

/// The recovery units of a job.
pub(super) struct Units {
    /// By rank; empty: there are none.
    of: Vec<u32>,
    taking: Vec<Taking>,
}

impl Units {
    pub fn new(of: Vec<u32>) -> Units {
        Units { of, taking: Vec::new() }
    }

    /// Whether there are any.
    pub fn exist(&self) -> bool {
        !self.of.is_empty()
    }

    /// What the scheduler knows a rank by: its unit, or itself.
    pub fn turn(&self, rank: u32) -> u32 {
        self.of.get(rank as usize).copied().unwrap_or(rank)
    }

    /// The ranks that are checkpointed with this one, itself among them.
    fn mates(&self, rank: u32) -> Vec<u32> {
        match self.exist() {
            true => self.ranks_of(self.turn(rank)),
            false => vec![rank],
        }
    }

    pub fn ranks_of(&self, unit: u32) -> Vec<u32> {
        (0u32..).zip(&self.of).filter(|u| *u.1 == unit).map(|u| u.0).collect()
    }

    /// Whether a rank stands for its unit where units are counted.
    pub fn is_first(&self, rank: u32) -> bool {
        self.mates(rank).first() == Some(&rank)
    }

    /// The sets that are being taken, which a successor goes on with.
    pub fn taking(&self) -> Vec<Taking> {
        self.taking.clone()
    }

    /// As a dead controller left them.
    pub fn take_up(&mut self, taking: Vec<Taking>) {
        self.taking = taking;
    }

    /// Whether a set is being taken.
    pub fn are_taking(&self) -> bool {
        !self.taking.is_empty()
    }

    pub fn forget_sets(&mut self) {
        self.taking.clear();
    }

    /// The set that is being taken of a unit.
    fn taken_of(&mut self, unit: u32) -> Option<&mut Taking> {
        self.taking.iter_mut().find(|t| t.unit == unit)
    }
}

impl Job {
    /// Takes a set of a unit whose turn it is. False: it has to wait. With `hold` its ranks do not
    /// go on after it.
    pub(super) fn begin_unit(&mut self, unit: u32, hold: bool) -> bool {
        let ranks = self.units.ranks_of(unit);
        let ready = |r: &super::Rank| {
            r.proc.is_some() && r.starting.is_none() && r.capturing.is_none() && !r.falls
        };
        let all = ranks.iter().all(|r| ready(&self.ranks[*r as usize]));
        let homes: BTreeMap<u32, u32> =
            ranks.iter().map(|r| (*r, self.placement.home(*r))).collect();
        let busy =
            |t: &Taking| t.unit == unit || homes.values().any(|node| t.set.nodes().contains(node));
        let busy = self.units.taking.iter().any(busy);
        if !all || busy {
            let now = self.ranks_ms();
            self.scheduler.finished(unit, now);
            ranks.first().into_iter().for_each(|r| self.renew_asks(*r));
            return false;
        }
        let generations = ranks.iter().map(|r| self.ranks[*r as usize].retention.begin());
        let generation = generations.max().unwrap_or(0);
        let mut parts: BTreeMap<u32, Vec<SetPart>> = BTreeMap::new();
        for (rank, node) in &homes {
            parts.entry(*node).or_default().extend(self.set_part_of(*rank, generation));
        }
        let set = Set::new(generation, homes);
        self.units.taking.push(Taking { unit, set, lasting: false });
        let incremental = self.spec.incremental;
        for (node, parts) in parts {
            let order = ToNode::CheckpointSet { parts, generation, incremental, hold };
            self.nodes[node as usize].send(order);
        }
        true
    }

    /// The ranks of a set at a node stand, or cannot be had to.
    pub(super) fn unit_stands(
        &mut self,
        node: u32,
        generation: u32,
        result: Result<Vec<End>, String>,
    ) {
        let of =
            |t: &&mut Taking| t.set.generation() == generation && t.set.nodes().contains(&node);
        let Some(taking) = self.units.taking.iter_mut().find(of) else {
            return self.nodes[node as usize].send(ToNode::GoOn { generation, keep: false });
        };
        points::reach("set-1");
        let (unit, verdict) = (taking.unit, taking.set.stands(node, result));
        self.tell_unit(unit, verdict);
    }

    /// Tells the nodes of a set that its ranks go on. Those of one node do so by themselves.
    fn tell_unit(&mut self, unit: u32, verdict: Option<Verdict>) {
        let several = self.spec.ft != Ft::Node;
        let taking = self.units.taken_of(unit).filter(|_| several);
        let Some((verdict, taking)) = verdict.zip(taking) else { return };
        // Units have no connections between nodes that could be read: an image with one is refused.
        debug_assert_ne!(verdict, Verdict::Read);
        let (generation, keep) = (taking.set.generation(), verdict == Verdict::Keep);
        for node in taking.set.nodes() {
            self.nodes[node as usize].send(ToNode::GoOn { generation, keep });
        }
    }

    /// A rank's node is lost: the set that is being taken of its unit will not be whole.
    pub(super) fn unit_loses(&mut self, rank: u32) {
        let unit = self.units.turn(rank);
        let Some(taking) = self.units.taken_of(unit) else { return };
        let verdict = taking.set.part(rank, Err(format!("the node of rank {rank} is lost")));
        self.tell_unit(unit, verdict);
        self.end_unit_set(unit);
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
        let of = |t: &&mut Taking| t.set.generation() == generation;
        let Some(taking) = self.units.taken_of(unit).filter(of) else {
            return self.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        };
        let verdict = match &result {
            CheckpointResult::Taken(_) => taking.set.part(rank, Ok(())),
            CheckpointResult::Failed { text, lasting } => {
                taking.lasting |= lasting;
                taking.set.part(rank, Err(format!("rank {rank}: {text}")))
            }
            CheckpointResult::NoPartner(text) => {
                taking.set.part(rank, Err(format!("rank {rank}: {text}")))
            }
            CheckpointResult::Died => {
                taking.set.part(rank, Err(format!("rank {rank} did not come to stand")))
            }
        };
        self.tell_unit(unit, verdict);
        if let CheckpointResult::Taken(taken) = result {
            let incarnation = self.rank(rank).captured;
            self.image_taken(node, rank, Capture { generation, incarnation, taken });
        }
        self.end_unit_set(unit);
    }

    /// Forgets a set of which it is known how all of it came out, and gives it up if it failed.
    fn end_unit_set(&mut self, unit: u32) {
        let over = |t: &Taking| t.unit == unit && t.set.is_over();
        let Some(index) = self.units.taking.iter().position(over) else { return };
        let taking = self.units.taking.swap_remove(index);
        if let Some(why) = taking.set.failed() {
            self.void_unit(unit, taking.set.generation(), why, taking.lasting);
        }
    }

    /// An image of a rank counts. With the last one of its unit it is known what the set cost.
    pub(super) fn unit_counts(&mut self, rank: u32, generation: u32) {
        let mates = self.units.mates(rank);
        if self.units.exist() && mates.last() == Some(&rank) {
            let cost = self.cost_of(mates.into_iter(), generation);
            self.scheduler.cost(cost);
        }
    }

    /// One part of a set is missing: there is no set.
    fn void_unit(&mut self, unit: u32, generation: u32, why: &str, lasting: bool) {
        let ranks = self.units.ranks_of(unit);
        for &rank in &ranks {
            let r = self.rank(rank);
            (r.capturing, r.partner) = (None, None);
            r.pending.take_if(|p| p.generation == generation);
            self.image_stands(rank, generation, None);
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
            (told.failures.clone(), told.reason.clone())
        };
        // It is told once.
        for &rank in others {
            let r = self.rank(rank);
            (r.failures, r.reason) = (failures.clone(), reason.clone());
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
        self.unit_moves(rank);
        let r = self.rank(rank);
        r.order = None;
        if !std::mem::replace(&mut r.falls, true) {
            // It goes back with its unit, and not out.
            r.swap = None;
        }
        r.trouble.hurry();
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
        if !self.units.exist() || !std::mem::take(&mut self.rank(rank).gone) {
            return false;
        }
        let protected = self.protected();
        self.step(monitor::Input::Lost { rank, protected });
        true
    }

    /// The planner waits for the end of a process of a rank that was not started.
    pub(super) fn unit_not_started(&mut self, rank: u32) {
        if self.units.exist() {
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
        self.units.exist().then(|| {
            let place = if self.spec.ft == Ft::Node { "on one node" } else { "in one cluster" };
            format!(
                "rank {ended} has ended, and the ranks that began {place} are checkpointed \
                 together or not at all"
            )
        })
    }
}
