//! Recovery units of which some ranks are on nodes that leave: of each mode in the same way.
//!
//! None of a unit can be moved alone, so all of it stands, on whichever nodes, with one checkpoint:
//! of a rank that is a unit its own, else a set. Ranks of nodes that leave come back from that
//! elsewhere, the others of the unit where they were. Before that checkpoints are taken while they
//! run, as rounds (`precopy`). If all ranks are one unit they go back to the set that they stand
//! with when nothing else is in the way: nobody of them has done anything that it lacks.
//!
//! Kept true: ranks that stand for a checkpoint that does not come about go on; so do those of
//! whose unit no rank is on a node that leaves any more.

use crate::leaving::model::{Round, Stop};
use crate::{Job, Rank};
use eyrie_control::node::ToNode;
use eyrie_protocol::recovery::Stage;
use std::collections::BTreeSet;

impl Job {
    /// The units that have ranks on a node, but for those all of whose ranks have ended.
    pub(crate) fn units_on(&self, node: u32) -> BTreeSet<u32> {
        let here = self.nodes.placement.ranks_on(node).into_iter();
        let units: BTreeSet<u32> = here.map(|rank| self.checkpoints.units.turn(rank)).collect();
        let gone = |r: u32| self.ranks.all[r as usize].gone;
        let lives = |u: &u32| !self.checkpoints.units.ranks_of(*u).into_iter().all(gone);
        units.into_iter().filter(lives).collect()
    }

    /// Why a unit cannot come to stand, if it cannot.
    pub(crate) fn cannot_stand(&mut self, unit: u32) -> Option<String> {
        let clock = self.clock.now();
        let ranks = self.checkpoints.units.ranks_of(unit);
        let first = ranks.first().copied()?;
        let patience = self.checkpoint_patience();
        let failed =
            |r: &&u32| self.ranks.all[**r as usize].failing.failures.given_up(patience, clock);
        let failed = ranks.iter().find(failed).map(|rank| {
            let why = self.ranks.all[*rank as usize].failing.reason.clone().unwrap_or_default();
            format!("rank {rank} cannot be checkpointed: {why}")
        });
        let sets = |job: &mut Job| job.checkpoints.coordinated.as_mut()?.fails(patience, clock);
        self.why_unit_ended(first).or(failed).or_else(|| sets(self))
    }

    /// Whether all ranks of a unit stand, with a checkpoint that counts.
    pub(crate) fn unit_is_stopped(&self, unit: u32) -> bool {
        let stands = |r: &u32| {
            let r = &self.ranks.all[*r as usize];
            r.proc.is_some() && r.moves.stop.as_ref().is_some_and(|s| s.holds && s.counts)
        };
        self.checkpoints.units.ranks_of(unit).iter().all(stands)
    }

    /// Has a unit copied, or stopped, if it is its turn and nothing else is under way of it.
    pub(crate) fn order_unit_stop(&mut self, unit: u32, round: Round) {
        let clock = self.clock.now();
        let (now, ranks) = (self.ranks_ms(), self.checkpoints.units.ranks_of(unit));
        let leaves = |r: &u32| self.leaving.nodes.contains_key(&self.nodes.placement.home(*r));
        let behind = |turn: u32| {
            let turns =
                ranks.iter().filter(|r| leaves(r)).map(|r| self.ranks.all[*r as usize].moves.turn);
            turns.min().is_some_and(|least| least < turn)
        };
        let due = match round {
            Round::None => false,
            Round::Live(turn) => behind(turn),
            Round::Last => true,
        };
        let idle = |r: &Rank| {
            r.proc.is_some()
                && r.capture.generation.is_none()
                && r.moves.stop.is_none()
                && r.failing.failures.pause(clock).is_none()
        };
        if !due || !ranks.iter().all(|r| idle(&self.ranks.all[*r as usize])) {
            return;
        }
        if let Some(coordinated) = &mut self.checkpoints.coordinated {
            if coordinated.pause(clock).is_none() {
                coordinated.request_round(round);
            }
            return;
        }
        let holds = round == Round::Last;
        if self.checkpoints.scheduler.begin(unit, now) && self.begin_turn(unit, holds) {
            self.note_round(ranks.into_iter(), round);
        }
    }

    /// A checkpoint of these ranks has begun that is a round of nodes that leave.
    pub(crate) fn note_round(&mut self, ranks: impl Iterator<Item = u32>, round: Round) {
        let clock = self.clock.now();
        for rank in ranks {
            let r = self.ranks.rank(rank);
            let Some(generation) = r.capture.generation else { continue };
            r.moves.ordered(clock);
            if let Round::Live(turn) = round {
                r.moves.turn = turn;
            }
            let (since, holds, counts) = (clock.moment(), round == Round::Last, false);
            r.moves.stop = Some(Stop { generation, since, holds, counts });
        }
    }

    /// The ranks that stand because this one may be moved: those of its unit, if nothing of that is
    /// on a node that leaves any more.
    pub(crate) fn stopped_with(&self, rank: u32) -> Vec<u32> {
        let ranks = self.checkpoints.units.mates(rank);
        let leaves = |r: &u32| self.leaving.nodes.contains_key(&self.nodes.placement.home(*r));
        if ranks.iter().any(leaves) { Vec::new() } else { ranks }
    }

    /// A rank is killed as its unit goes back: if that is because some of the unit moves, it stands
    /// since then, and has not died.
    pub(crate) fn unit_moves(&mut self, rank: u32) {
        let home = self.nodes.placement.home(rank);
        let moving = |r: &u32| {
            let member = self.nodes.member(self.nodes.placement.home(*r));
            self.recovery.planner.as_ref().and_then(|p| p.leaves(&member)) == Some(Stage::Moving)
        };
        let ranks = self.checkpoints.units.mates(rank);
        let moves = ranks.iter().any(moving);
        let r = self.ranks.rank(rank);
        if let Some(stop) = r.moves.stop.take_if(|s| s.holds && s.counts)
            && moves
        {
            r.moves.from = Some(home);
            r.deaths.died_at = Some(stop.since);
        }
        r.moves.stop = None;
    }

    /// Ranks that stood for a node go on that stays.
    pub(crate) fn release_stopped(&mut self, node: u32) {
        let here = self.nodes.placement.ranks_on(node);
        let all: BTreeSet<u32> = here.iter().flat_map(|rank| self.stopped_with(*rank)).collect();
        for rank in all {
            let r = self.ranks.rank(rank);
            if r.moves.stop.take().is_some_and(|s| s.holds) {
                self.checkpoints.router_pauses.let_go(rank);
                self.nodes.to_home(rank, ToNode::LetGo { rank });
                self.tell_scheduler(rank);
            }
        }
        for rank in here {
            if std::mem::take(&mut self.ranks.rank(rank).moves.part) > 0 {
                self.nodes.to_home(rank, ToNode::Slow { rank, part: 1 });
            }
        }
    }
}
