//! `--ft node`, `--ft cluster`: the ranks that began on one node, or in one cluster, are one
//! recovery unit, wherever they are.
//!
//! They are checkpointed together (a set: an image of each, with what they had on their way to each
//! other), and when one of them dies, or a node of theirs does, the planner has all of them killed
//! and brought back from one set. Ranks of other units are logged against, and go on.
//!
//! Kept true: a set is taken only of ranks that all run, one at a time on a node; no rank of it
//! goes on before all of them stand, on whichever nodes (`protocol::coordinated_snapshot`); if one
//! part of it fails it is given up when it is known how all others came out.

use crate::Job;
use crate::checkpoints::{SetOf, Voided};
use crate::monitor::{self};
use eyrie_control::node::ToNode;
use eyrie_protocol::coordinated_snapshot::CoordinatedSnapshot;
use eyrie_protocol::recovery::Input;
use eyrie_protocol::units::Units as Partition;
use serde::{Deserialize, Serialize};

/// A set that is being taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Taking {
    unit: u32,
    set: CoordinatedSnapshot,
    /// The next would fail, too.
    lasting: bool,
}

/// The recovery units of a job.
pub(crate) struct Units {
    partition: Partition,
    taking: Vec<Taking>,
}

impl Units {
    pub fn new(partition: Partition) -> Units {
        Units { partition, taking: Vec::new() }
    }

    /// Which ranks are one unit.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether ranks go back with some others, but not with all.
    pub fn exist(&self) -> bool {
        self.partition.are_groups()
    }

    /// The unit of a rank, which is what the scheduler knows it by.
    pub fn turn(&self, rank: u32) -> u32 {
        self.partition.by_rank().get(rank as usize).copied().unwrap_or(rank)
    }

    /// The ranks that are checkpointed with this one, itself among them.
    pub fn mates(&self, rank: u32) -> Vec<u32> {
        self.ranks_of(self.turn(rank))
    }

    pub fn ranks_of(&self, unit: u32) -> Vec<u32> {
        self.partition.ranks_of(unit).into_iter().map(|rank| rank as u32).collect()
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

    pub fn forget_under_way(&mut self) {
        self.taking.clear();
    }

    /// The sets, each with its unit.
    pub fn sets(&mut self) -> impl Iterator<Item = (SetOf, &mut CoordinatedSnapshot)> {
        self.taking.iter_mut().map(|t| (SetOf::Unit(t.unit), &mut t.set))
    }

    /// The next set of a unit would fail, too.
    pub fn fails_for_good(&mut self, unit: u32) {
        self.taken_of(unit).into_iter().for_each(|t| t.lasting = true);
    }

    /// Forgets a set of which it is known how all of it came out. Returned if it failed.
    pub fn end(&mut self, unit: u32) -> Option<Voided> {
        let over = |t: &Taking| t.unit == unit && t.set.is_over();
        let index = self.taking.iter().position(over)?;
        let Taking { set, lasting, .. } = self.taking.swap_remove(index);
        set.failed().is_some().then_some(Voided { set, lasting, hold: false })
    }

    /// The set that is being taken of a unit.
    fn taken_of(&mut self, unit: u32) -> Option<&mut Taking> {
        self.taking.iter_mut().find(|t| t.unit == unit)
    }
}

impl Job {
    /// Takes the checkpoint of a unit whose turn it is: of a rank that is one its own. False: it
    /// has to wait.
    pub(crate) fn begin_turn(&mut self, unit: u32, hold: bool) -> bool {
        if self.checkpoints.units.exist() {
            return self.begin_unit(unit, hold);
        }
        self.begin_checkpoint(unit, hold);
        true
    }

    /// Takes a set of a unit whose turn it is. False: it has to wait. With `hold` its ranks do not
    /// go on after it.
    fn begin_unit(&mut self, unit: u32, hold: bool) -> bool {
        let ranks = self.checkpoints.units.ranks_of(unit);
        let ready = |r: &crate::Rank| {
            r.proc.is_some() && r.starting.is_none() && r.capture.generation.is_none() && !r.falls
        };
        let all = ranks.iter().all(|r| ready(&self.ranks.all[*r as usize]));
        let all = all && self.nodes.are_reached(ranks.iter().copied());
        let home = |rank: &u32| self.nodes.placement.home(*rank);
        let meets = |t: &Taking| ranks.iter().any(|rank| t.set.nodes().contains(&home(rank)));
        let busy = |t: &Taking| t.unit == unit || meets(t);
        let busy = self.checkpoints.units.taking.iter().any(busy);
        if !all || busy {
            let now = self.ranks_ms();
            self.checkpoints.scheduler.finished(unit, now);
            ranks.first().into_iter().for_each(|r| self.checkpoints.renew_asks(*r));
            return false;
        }
        let generations = ranks.iter().map(|r| self.ranks.all[*r as usize].retention.begin());
        let generation = generations.max().unwrap_or(0);
        let set = self.order_set(generation, ranks, hold);
        self.checkpoints.units.taking.push(Taking { unit, set, lasting: false });
        true
    }

    /// A rank's node is lost: the set that is being taken of its unit will not be whole.
    pub(crate) fn unit_loses(&mut self, rank: u32) {
        let unit = self.checkpoints.units.turn(rank);
        if self.checkpoints.units.taken_of(unit).is_none() {
            return;
        }
        let lost = Err(format!("the node of rank {rank} is lost"));
        self.lose_part(SetOf::Unit(unit), rank, lost);
        self.end_set(unit);
    }

    /// An image of a rank counts. With the last one of its unit it is known what the set cost.
    pub(crate) fn unit_counts(&mut self, rank: u32, generation: u32) {
        let mates = self.checkpoints.units.mates(rank);
        if self.checkpoints.units.exist() && mates.last() == Some(&rank) {
            let cost = self.cost_of(mates.into_iter(), generation);
            self.checkpoints.scheduler.cost(cost);
        }
    }

    /// A set did not come about.
    pub(crate) fn unit_failed(&mut self, unit: u32, generation: u32, why: &str, lasting: bool) {
        let (now, ranks) = (self.ranks_ms(), self.checkpoints.units.ranks_of(unit));
        self.checkpoints.scheduler.finished(unit, now);
        // Those who wait while their unit goes back are served afterwards.
        if !ranks.iter().all(|r| self.ranks.all[*r as usize].proc.is_some()) {
            return;
        }
        let Some((first, others)) = ranks.split_first() else { return };
        self.checkpoint_failed(*first, generation, why.to_string(), lasting);
        let (failures, reason) = {
            let told = self.ranks.rank(*first);
            (told.failing.failures.clone(), told.failing.reason.clone())
        };
        // It is told once.
        for &rank in others {
            let r = self.ranks.rank(rank);
            (r.failing.failures, r.failing.reason) = (failures.clone(), reason.clone());
            self.fail_asks(rank, why);
        }
    }

    /// Whether one of the ranks that are checkpointed with this one is still being.
    pub(crate) fn unit_is_captured(&self, rank: u32) -> bool {
        self.checkpoints
            .units
            .mates(rank)
            .iter()
            .any(|r| self.ranks.all[*r as usize].capture.generation.is_some())
    }

    /// A rank runs: its unit has its turn if all of it does.
    pub(crate) fn tell_scheduler(&mut self, rank: u32) {
        let runs = |r: &u32| self.ranks.all[*r as usize].proc.is_some();
        let live = self.protected() && self.checkpoints.units.mates(rank).iter().all(runs);
        self.checkpoints.scheduler.set_live(self.checkpoints.units.turn(rank), live);
    }

    /// A rank's unit goes back: its process is killed, and it is not started by an earlier order.
    pub(crate) fn unit_kills(&mut self, rank: u32) {
        self.unit_moves(rank);
        let r = self.ranks.rank(rank);
        r.restore.order = None;
        if !std::mem::replace(&mut r.falls, true) {
            // It goes back with its unit, and not out.
            r.swap = None;
        }
        r.coming_back.retries.expedite();
        if r.proc.is_some() || r.starting.is_some() {
            self.nodes.to_home(rank, ToNode::Kill { ranks: vec![rank] });
        }
    }

    /// A rank that had ended is brought back with its unit. False: it had not.
    pub(crate) fn again(&mut self, rank: u32) -> bool {
        if !self.checkpoints.units.exist() || !std::mem::take(&mut self.ranks.rank(rank).gone) {
            return false;
        }
        let protected = self.protected();
        self.step(monitor::Input::Lost { rank, protected });
        true
    }

    /// The planner waits for the end of a process of a rank that was not started.
    pub(crate) fn unit_not_started(&mut self, rank: u32) {
        if self.checkpoints.units.exist() {
            let incarnation = self.ranks.rank(rank).incarnation;
            self.plan(Input::RankDied { rank, incarnation });
        }
    }

    /// A rank has ended: without it there is no set of its unit, until it goes back.
    pub(crate) fn unit_ends(&mut self, rank: u32) {
        for mate in self.checkpoints.units.mates(rank).into_iter().filter(|r| *r != rank) {
            if let Some(why) = self.why_unit_ended(mate) {
                self.fail_asks(mate, &why);
            }
        }
    }

    /// Why there cannot be another set of a rank's unit. On one node there can: what a rank that
    /// has ended sent is in the segment.
    pub(crate) fn why_unit_ended(&self, rank: u32) -> Option<String> {
        let together = self.checkpoints.units.partition.together().filter(|_| self.many())?;
        let gone = |r: &u32| self.ranks.all[*r as usize].gone;
        let ended = self.checkpoints.units.mates(rank).into_iter().find(gone)?;
        Some(format!(
            "rank {ended} has ended, and {together} are checkpointed together or not at all"
        ))
    }
}
