//! Nodes that leave a job whose ranks go back together (`--ft coordinated`).
//!
//! All ranks stand with a set, wherever they are, and go back to that with other homes, which the
//! planner says when nothing else is in the way. Before that sets are taken while they run, as
//! rounds (`rounds`).
//!
//! Kept true: nobody does anything that the set lacks; ranks that stand for a set that does not
//! come about go on.

use super::Job;
use super::books::Moment;
use super::rounds::{Round, Stop};
use super::together::Together;

impl Job {
    /// Whether all ranks stand, with a set that counts. `Err`: they cannot.
    pub(super) fn bring_all_to_stand(&mut self, round: Round) -> Result<bool, String> {
        if let Some(why) = self.no_more_sets() {
            return Err(why);
        }
        if let Some(why) = self.together.as_mut().and_then(Together::fails) {
            return Err(why);
        }
        let stop = |r: &super::Rank| r.moves.stop.as_ref().map(|s| s.holds && s.counts);
        if self.ranks.iter().all(|r| stop(r) == Some(true) && r.proc.is_some()) {
            return Ok(true);
        }
        let leaves = |r: &u32| self.leaves.contains_key(&self.placement.home(*r));
        let turns = (0..self.size()).filter(leaves).map(|r| self.ranks[r as usize].moves.turn);
        let due = match round {
            Round::None => false,
            Round::Live(turn) => turns.min().is_some_and(|least| least < turn),
            Round::Last => true,
        };
        let idle = self.ranks.iter().all(|r| stop(r).is_none() && r.capturing.is_none());
        if let Some(together) = self.together.as_mut().filter(|_| due && idle) {
            // Of several parties one may have no time left for the rounds of another.
            if together.round != Some(Round::Last) {
                together.round = Some(round);
            }
            together.request();
        }
        Ok(false)
    }

    /// A set is taken that is a round of nodes that leave.
    pub(super) fn begin_round_of_set(&mut self, round: Option<Round>, generation: u32) {
        let Some(round) = round else { return };
        for rank in 0..self.size() {
            let r = self.rank(rank);
            r.moves.ordered();
            if let Round::Live(turn) = round {
                r.moves.turn = turn;
            }
            let (since, holds, counts) = (Moment::now(), round == Round::Last, false);
            r.moves.stop = Some(Stop { generation, since, holds, counts });
        }
    }
}
