//! How ranks come back: what each of the three ways does is elsewhere, which one it is is asked
//! here.
//!
//! Who comes back with whom, and whether what is between them is logged, is said by the job's
//! recovery units (`checkpoints::units`). A job over nodes has all of that from the planner, which
//! knows units of any size. A job on one node needs no planner: nothing is elsewhere. Its ranks
//! come back each from its own images, or, if they are one unit, with a copy of the segment, which
//! holds what was between all of them, so that nothing of it is sorted by rank.
//!
//! Kept true: no other file tells these ways apart to bring a rank back.

use crate::recovery::model::Strategy;
use crate::{Job, monitor};
use eyrie_control::node::{Choice, ToNode};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Input;

impl Job {
    pub(crate) fn strategy(&self) -> Strategy {
        match (self.many(), self.checkpoints.units.partition().are_one()) {
            (true, _) => Strategy::Planned,
            (false, false) => Strategy::Alone,
            (false, true) => Strategy::Segment,
        }
    }

    /// A rank died, or is to be tried once more: it comes back with those of its unit.
    pub(crate) fn bring_back(&mut self, rank: u32) {
        match self.checkpoints.units.partition().are_one() {
            true => self.all_go_back(),
            false => self.recover(rank),
        }
    }

    /// Has the image found that a rank comes back from.
    pub(crate) fn recover(&mut self, rank: u32) {
        if self.strategy() != Strategy::Planned {
            return self.look_for_newest(rank);
        }
        let r = self.ranks.rank(rank);
        if r.restore.order.is_some() {
            return self.carry_order(rank);
        }
        let incarnation = r.incarnation;
        self.plan(Input::RankDied { rank, incarnation });
    }

    /// A node has looked at images of a rank.
    pub(crate) fn looked_at(&mut self, node: u32, rank: u32, attempt: u64, choice: Choice) {
        let strategy = self.strategy();
        if strategy == Strategy::Planned {
            return self.found(node, rank, attempt, choice);
        }
        if self.ranks.rank(rank).deaths.count != attempt || !self.recovery.monitor.may_start(rank) {
            return;
        }
        match strategy {
            Strategy::Segment => self.coordinated_candidate(rank, choice),
            _ => self.candidate(rank, choice),
        }
    }

    /// A rank could not be started from this image, and that is not a matter of where it was tried.
    pub(crate) fn image_failed(&mut self, rank: u32, generation: u32, why: &str) {
        match self.strategy() {
            Strategy::Planned => {
                let incarnation = self.ranks.rank(rank).incarnation;
                self.unrestorable(rank, incarnation, generation, why);
                self.unit_not_started(rank);
            }
            Strategy::Segment => {
                self.coordinated_refused(generation, &format!("rank {rank}: {why}"))
            }
            Strategy::Alone => {
                self.refuse_image(rank, generation, why);
                self.recover(rank);
            }
        }
    }

    /// The pause of a rank is over that could not be brought back there.
    pub(crate) fn try_again(&mut self, rank: u32, incarnation: u32, at: Member) {
        match self.strategy() {
            Strategy::Planned => self.plan(Input::Unfit { rank, incarnation, at }),
            Strategy::Segment => self.bring_again(rank),
            Strategy::Alone if self.recovery.monitor.may_start(rank) => self.recover(rank),
            Strategy::Alone => {}
        }
    }

    /// No process is left: all ranks go back to the newest set. False: there is none.
    pub(crate) fn go_back(&mut self) -> bool {
        match (self.strategy(), self.checkpoints.units.partition().are_one()) {
            (Strategy::Planned, true) => {
                self.back_over_nodes();
                true
            }
            (Strategy::Segment, _) => self.stays_out() || self.go_back_with_segment(),
            (Strategy::Planned | Strategy::Alone, _) => false,
        }
    }

    /// All ranks go back, as soon as no process is left.
    pub(crate) fn all_go_back(&mut self) {
        // What it would have protected from here on is not known to the planner.
        self.abandon_round();
        self.plan(Input::GoBack);
        self.step(monitor::Input::Together);
    }

    /// A rank has ended well: what is kept for it that nobody needs goes.
    pub(crate) fn let_ended_go(&mut self, rank: u32) {
        match self.strategy() {
            Strategy::Planned => {
                // With its node may be lost what it had sent: then it is restored all the same.
                self.plan(Input::RankDone { rank });
                if !self.protected() {
                    self.plan(Input::RankReleased { rank });
                }
            }
            // All may go back to where it had not ended.
            Strategy::Segment => self.nodes.to_all(&ToNode::Release { rank }),
            Strategy::Alone if self.spec.storage.keep && self.spec.protection.ft.protects() => {
                self.save_log(rank);
            }
            Strategy::Alone => {
                self.forget_images_but_snapshots(rank);
                self.nodes.to_all(&ToNode::Release { rank });
            }
        }
    }
}
