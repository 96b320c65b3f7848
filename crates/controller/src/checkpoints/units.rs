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

use crate::checkpoints::failures::Refusals;
use crate::checkpoints::model::{SetOf, Taking};
use crate::{Job, monitor};
use eyrie_control::node::ToNode;
use eyrie_protocol::recovery::Input;

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
        self.checkpoints.units.taking.push(Taking { unit, set, refusals: Refusals::default() });
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
            self.outgrow_first_set();
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
            self.fail_asks(rank, why, lasting);
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
                self.fail_asks(mate, &why, true);
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
