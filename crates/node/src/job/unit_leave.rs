//! Recovery units of which some ranks are on nodes that leave (`--ft node`, `--ft cluster`).
//!
//! None of a unit can be moved alone, so all of it stands, on whichever nodes, with one set: ranks
//! of nodes that leave come back from that elsewhere, the others where they were. Before that sets
//! are taken while they run, as rounds (`rounds`).
//!
//! Kept true: ranks that stand for a set that does not come about go on; so do those of whose unit
//! no rank is on a node that leaves any more.

use super::books::Moment;
use super::rounds::{Round, Stop};
use super::{Job, Rank};
use crate::recovery::Stage;
use eyrie_control::node::ToNode;
use std::collections::BTreeSet;

impl Job {
    /// The units that have ranks on a node, but for those all of whose ranks have ended.
    fn units_on(&self, node: u32) -> BTreeSet<u32> {
        let here = self.placement.ranks_on(node).into_iter();
        let units: BTreeSet<u32> = here.map(|rank| self.units.turn(rank)).collect();
        let gone = |r: u32| self.ranks[r as usize].gone;
        let lives = |u: &u32| !self.units.ranks_of(*u).into_iter().all(gone);
        units.into_iter().filter(lives).collect()
    }

    /// Why a unit cannot come to stand, if it cannot.
    fn cannot_stand(&self, unit: u32) -> Option<String> {
        let ranks = self.units.ranks_of(unit);
        let first = ranks.first().copied()?;
        let failed = |r: &&u32| self.ranks[**r as usize].failures.given_up();
        let failed = ranks.iter().find(failed).map(|rank| {
            let why = self.ranks[*rank as usize].reason.clone().unwrap_or_default();
            format!("rank {rank} cannot be checkpointed: {why}")
        });
        self.no_more_of_unit(first).or(failed)
    }

    /// Whether all units that have ranks on a node stand, with a set that counts. `Err`: they
    /// cannot.
    pub(super) fn bring_units_to_stand(&mut self, node: u32, round: Round) -> Result<bool, String> {
        let units = self.units_on(node);
        if let Some(why) = units.iter().find_map(|unit| self.cannot_stand(*unit)) {
            return Err(why);
        }
        let mut all = true;
        for unit in units {
            let stop = |r: &u32| self.ranks[*r as usize].moves.stop.as_ref();
            let stands = |r: &u32| {
                let runs = self.ranks[*r as usize].proc.is_some();
                runs && stop(r).is_some_and(|s| s.holds && s.counts)
            };
            let ranks = self.units.ranks_of(unit);
            all &= ranks.iter().all(stands);
            if ranks.iter().all(|r| stop(r).is_none()) {
                self.order_unit_stop(unit, round);
            }
        }
        Ok(all)
    }

    fn order_unit_stop(&mut self, unit: u32, round: Round) {
        let (now, ranks) = (self.ranks_ms(), self.units.ranks_of(unit));
        let leaves = |r: &u32| self.leaves.contains_key(&self.placement.home(*r));
        let behind = |turn: u32| {
            let turns =
                ranks.iter().filter(|r| leaves(r)).map(|r| self.ranks[*r as usize].moves.turn);
            turns.min().is_some_and(|least| least < turn)
        };
        let due = match round {
            Round::None => false,
            Round::Live(turn) => behind(turn),
            Round::Last => true,
        };
        let idle =
            |r: &Rank| r.proc.is_some() && r.capturing.is_none() && r.failures.pause().is_none();
        let idle = ranks.iter().all(|r| idle(&self.ranks[*r as usize]));
        let holds = round == Round::Last;
        if !due || !idle || !self.scheduler.begin(unit, now) || !self.begin_unit(unit, holds) {
            return;
        }
        for rank in ranks {
            let r = self.rank(rank);
            r.moves.ordered();
            if let Round::Live(turn) = round {
                r.moves.turn = turn;
            }
            let (since, counts) = (Moment::now(), false);
            r.moves.stop = r.capturing.map(|generation| Stop { generation, since, holds, counts });
        }
    }

    /// The ranks that stand because this one may be moved: those of its unit, if nothing of that is
    /// on a node that leaves any more.
    pub(super) fn stand_for(&self, rank: u32) -> Vec<u32> {
        let ranks: Vec<u32> = match self.together {
            Some(_) => (0..self.size()).collect(),
            None if !self.units.exist() => return vec![rank],
            None => self.units.ranks_of(self.units.turn(rank)),
        };
        let leaves = |r: &u32| self.leaves.contains_key(&self.placement.home(*r));
        if ranks.iter().any(leaves) { Vec::new() } else { ranks }
    }

    /// A rank is killed as its unit goes back: if that is because some of the unit moves, it stands
    /// since then, and has not died.
    pub(super) fn unit_moves(&mut self, rank: u32) {
        let home = self.placement.home(rank);
        let moving = |r: &u32| {
            let member = self.member(self.placement.home(*r));
            self.planner.as_ref().and_then(|p| p.leaves(&member)) == Some(Stage::Moving)
        };
        let ranks = self.units.ranks_of(self.units.turn(rank));
        let moves = ranks.iter().any(moving);
        let r = self.rank(rank);
        if let Some(stop) = r.moves.stop.take_if(|s| s.holds && s.counts)
            && moves
        {
            r.moves.from = Some(home);
            r.died_at = Some(stop.since);
        }
        r.moves.stop = None;
    }

    /// Whether a rank's process was killed because its unit moves.
    pub(super) fn moves_with_unit(&self, rank: u32) -> bool {
        let r = &self.ranks[rank as usize];
        r.falls && r.moves.from.is_some()
    }

    /// Ranks that stood for a node go on that stays.
    pub(super) fn let_stand_no_more(&mut self, node: u32) {
        let here = self.placement.ranks_on(node);
        let all: BTreeSet<u32> = here.iter().flat_map(|rank| self.stand_for(*rank)).collect();
        for rank in all {
            let r = self.rank(rank);
            if r.moves.stop.take().is_some_and(|s| s.holds) {
                self.pauses.let_go(rank);
                self.to_home(rank, ToNode::LetGo { rank });
                match self.units.exist() {
                    true => self.tell_scheduler(rank),
                    false if self.together.is_some() => {}
                    false => {
                        let lives = self.ranks[rank as usize].proc.is_some();
                        self.scheduler.set_live(rank, lives && self.protected());
                    }
                }
            }
        }
        for rank in here {
            if std::mem::take(&mut self.rank(rank).moves.part) > 0 {
                self.to_home(rank, ToNode::Slow { rank, part: 1 });
            }
        }
    }
}
