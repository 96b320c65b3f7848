//! `--ft routed`: the router of a rank stops around a checkpoint of it, and gives up what the image
//! supersedes when the controller says so (`protocol::router_pause`, the Eagle paper's ten steps).
//!
//! Kept true: a rank whose checkpoint waits for its router is not told of it yet, so nobody answers
//! for that checkpoint but who ends the pause.

use crate::Job;
use eyrie_control::node::ToNode;
use eyrie_protocol::membership::Member;
use eyrie_protocol::router_pause::PauseOrder;
use eyrie_state::units;

impl Job {
    /// Whoever routes for a rank now.
    fn router_of(&self, rank: u32) -> Option<Member> {
        let members = self.recovery.planner.as_ref()?.members();
        let lives = |node: u32| members.iter().any(|m| m.node == node);
        units::routing(&self.spec).router(rank, lives).map(|node| self.nodes.member(node))
    }

    /// A checkpoint of a rank is due: as soon as nothing is on its way to it.
    pub(crate) fn checkpoint_when_quiet(&mut self, rank: u32, generation: u32, hold: bool) {
        let router = self.router_of(rank);
        if router.is_some() {
            self.outside.reach("pause-1");
        }
        let order = self.checkpoints.router_pauses.begin(rank, generation, hold, router);
        self.carry_pause(order);
    }

    fn carry_pause(&mut self, order: PauseOrder) {
        match order {
            PauseOrder::Pause { to, rank, generation } => {
                self.nodes.all[to.node as usize].send(ToNode::Pause { rank, generation });
            }
            PauseOrder::Resume { to, rank, generation } => {
                self.nodes.all[to.node as usize].send(ToNode::Resume { rank, generation });
            }
            PauseOrder::Checkpoint { rank, generation, hold } => {
                self.order_checkpoint(rank, generation, hold);
            }
        }
    }

    /// A router says that it stands.
    pub(crate) fn router_stands(&mut self, node: u32, rank: u32, generation: u32) {
        let from = self.nodes.member(node);
        if let Some(order) = self.checkpoints.router_pauses.stands(from, rank, generation) {
            self.outside.reach("pause-5");
            self.carry_pause(order);
        }
    }

    /// A checkpoint of a rank was taken, or could not be.
    pub(crate) fn pause_over(&mut self, rank: u32, generation: u32) {
        if let Some(order) = self.checkpoints.router_pauses.over(rank, generation) {
            self.carry_pause(order);
        }
    }

    /// The process of a rank is dead: if its checkpoint waits for the router, there will be none.
    pub(crate) fn pause_lost(&mut self, rank: u32) {
        if self.checkpoints.router_pauses.waits(rank) {
            self.no_capture(rank);
        }
        if let Some(order) = self.checkpoints.router_pauses.lost(rank) {
            self.carry_pause(order);
        }
    }

    /// There will be no image, and no node says so.
    pub(crate) fn no_capture(&mut self, rank: u32) {
        let (now, turn) = (self.ranks_ms(), self.checkpoints.units.turn(rank));
        self.ranks.rank(rank).capture.generation = None;
        self.checkpoints.scheduler.finished(turn, now);
    }

    /// The members have changed, and who routes for whom.
    pub(crate) fn exchange_pauses(&mut self) {
        let routers: Vec<Option<Member>> = (0..self.size()).map(|r| self.router_of(r)).collect();
        let orders = self.checkpoints.router_pauses.exchange(|rank| routers[rank as usize]);
        orders.into_iter().for_each(|order| self.carry_pause(order));
    }
}
