//! Ranks whose recovery unit is a node (`--ft node`): those that begin on one node are
//! checkpointed together and go back together, for ever and wherever they are.
//!
//! What they pass each other is not retained, so none of them can be brought back alone. What they
//! send to others is logged, and the outcomes of all of them are, so nobody else goes back.
//!
//! Kept true: all ranks of a unit live on one node; they are brought back when no process of any
//! of them is left, all from one set; a set counts when every image of it lies on as many nodes as
//! it is to, and is given up as a whole when of one image no copy is left.

use super::{Action, Phase, Planner, Rank};
use crate::membership::Member;
use std::collections::BTreeSet;

impl Planner {
    /// Like `new`: those who begin on one node are one recovery unit.
    pub fn by_node(map: Vec<u32>) -> Self {
        Planner { units: map.clone(), ..Planner::new(map) }
    }

    /// The ranks of a recovery unit.
    pub(super) fn ranks_of(&self, unit: u32) -> Vec<usize> {
        self.units.iter().enumerate().filter(|u| *u.1 == unit).map(|u| u.0).collect()
    }

    /// All recovery units of more than one rank, or of one.
    pub(super) fn all_units(&self) -> BTreeSet<u32> {
        self.units.iter().copied().collect()
    }

    /// The set that a rank has to come from, if it may not come from any other.
    pub(super) fn set_of(&self, index: usize) -> Option<u32> {
        let unit = self.units.get(index)?;
        Some(self.sets.get(unit).copied().unwrap_or(0))
    }

    /// No copy of an image that counts is left.
    pub(super) fn lose_image(&mut self, index: usize, generation: u32, todo: &mut Vec<Action>) {
        if let Some(&unit) = self.units.get(index) {
            return self.lose_set(unit, generation, todo);
        }
        let rank = &mut self.ranks[index];
        rank.kept.remove(&generation);
        rank.given_up = rank.given_up.max(generation);
        todo.push(Action::Damaged { rank: index as u32, generation });
    }

    /// A rank has ended well.
    pub(super) fn rank_done(&mut self, index: usize, todo: &mut Vec<Action>) {
        let rank = &mut self.ranks[index];
        match rank.phase {
            Phase::Up => rank.phase = Phase::Done,
            Phase::Falling { at } => {
                rank.phase = Phase::Down { at };
                let unit = self.units[index];
                self.unit_rises(unit, todo);
            }
            _ => {}
        }
    }

    /// The process of a rank of a unit has ended, of a fault or because it was killed.
    pub(super) fn mate_died(&mut self, index: usize, unit: u32, todo: &mut Vec<Action>) {
        let rank = &mut self.ranks[index];
        let at = match rank.phase {
            Phase::Up => rank.home,
            Phase::Restoring { at, .. } | Phase::Falling { at } => at,
            _ => return,
        };
        rank.phase = Phase::Down { at };
        self.unit_falls(unit, todo);
    }

    /// All ranks of a unit go back, as soon as no process of them is left.
    pub(super) fn unit_falls(&mut self, unit: u32, todo: &mut Vec<Action>) {
        for index in self.ranks_of(unit) {
            let rank = &mut self.ranks[index];
            rank.phase = match rank.phase {
                Phase::Up => Phase::Falling { at: rank.home },
                Phase::Done => Phase::Down { at: rank.home },
                Phase::Restoring { at, .. } if rank.told == rank.incarnation => {
                    Phase::Falling { at }
                }
                Phase::Restoring { at, .. } => Phase::Down { at },
                _ => continue,
            };
            let (rank, incarnation) = (index as u32, rank.incarnation);
            todo.push(Action::Kill { rank, incarnation });
        }
        self.unit_rises(unit, todo);
    }

    /// Brings a unit back if no process of it is left. Where it was, the segment has its outcomes.
    pub(super) fn unit_rises(&mut self, unit: u32, todo: &mut Vec<Action>) {
        let mut place = None;
        for index in self.ranks_of(unit) {
            match self.ranks[index].phase {
                Phase::Down { at } => place = Some(at),
                Phase::Released => {}
                _ => return,
            }
        }
        if let Some(at) = place {
            self.restore_unit(unit, at, todo);
        }
    }

    /// The outcomes of all ranks whose node is gone are known: their units come to other nodes.
    pub(super) fn place_units(&mut self, todo: &mut Vec<Action>) {
        for unit in self.all_units() {
            let ranks = self.ranks_of(unit);
            let lost = ranks.iter().copied().find(|r| self.ranks[*r].phase == Phase::Fetching);
            let Some(first) = lost else { continue };
            let Some(at) = self.place(first) else { return todo.push(Action::Lost) };
            self.restore_unit(unit, at, todo);
            if self.rolling_back {
                return;
            }
        }
    }

    fn restore_unit(&mut self, unit: u32, at: Member, todo: &mut Vec<Action>) {
        let ranks = self.ranks_of(unit);
        let has = |r: &Rank, g: u32| g == 0 || r.kept.get(&g).is_some_and(|h| !h.is_empty());
        let all = |g: &u32| ranks.iter().all(|r| has(&self.ranks[*r], *g));
        let known = ranks.first().into_iter().flat_map(|r| self.ranks[*r].kept.keys().rev());
        let Some(set) = known.copied().find(all) else {
            let why = format!("no set of images of the ranks that began on node {unit} is left");
            return self.roll_back(why, todo);
        };
        self.sets.insert(unit, set);
        todo.push(Action::Gather { at, ranks: ranks.iter().map(|r| *r as u32).collect() });
        for index in ranks {
            if self.ranks[index].phase != Phase::Released {
                self.restore_at(index, at, todo);
            }
        }
    }

    /// A rank of a falling unit was started before that was known.
    pub(super) fn started_falling(&mut self, index: usize, at: Member, todo: &mut Vec<Action>) {
        let rank = &mut self.ranks[index];
        // What it records from now on is in the segment there.
        (rank.home, rank.words) = (at, None);
        self.spares.remove(&at);
        let (rank, incarnation) = (index as u32, rank.incarnation);
        todo.push(Action::Kill { rank, incarnation });
    }

    /// Of an image that counts no copy is left: its set is of no use to the others either. Who is
    /// being brought back from it goes back to the one before, with all others.
    pub(super) fn lose_set(&mut self, unit: u32, generation: u32, todo: &mut Vec<Action>) {
        let ranks = self.ranks_of(unit);
        for &index in &ranks {
            let rank = &mut self.ranks[index];
            rank.given_up = rank.given_up.max(generation);
            if rank.kept.remove(&generation).is_some() {
                todo.push(Action::Damaged { rank: index as u32, generation });
            }
        }
        self.copying.retain(|c, _| c.1 != generation || !ranks.contains(&(c.0 as usize)));
        let comes = |r: &usize| {
            let phase = self.ranks[*r].phase;
            matches!(phase, Phase::Restoring { generation: wanted, .. } if wanted == generation)
        };
        if ranks.iter().any(comes) {
            self.unit_falls(unit, todo);
        }
    }
}

#[cfg(test)]
#[path = "units_tests.rs"]
mod tests;
