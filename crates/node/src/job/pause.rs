//! `--ft routed`: the router of a rank stops around a checkpoint of it, and gives up what the image
//! supersedes when the controller says so (`protocol::pause`, the Eagle paper's ten steps).
//!
//! Kept true: a rank whose checkpoint waits for its router is not told of it yet, so nobody answers
//! for that checkpoint but who ends the pause.

use super::Job;
use crate::membership::Member;
use crate::points;
use crate::units;
use eyrie_control::node::ToNode;
use eyrie_protocol::pause::Order;

impl Job {
    /// Whoever routes for a rank now.
    fn router_of(&self, rank: u32) -> Option<Member> {
        let members = self.planner.as_ref()?.members();
        let lives = |node: u32| members.iter().any(|m| m.node == node);
        units::routing(&self.spec).router(rank, lives).map(|node| self.member(node))
    }

    /// A checkpoint of a rank is due: as soon as nothing is on its way to it.
    pub(super) fn checkpoint_when_quiet(&mut self, rank: u32, generation: u32, hold: bool) {
        let router = self.router_of(rank);
        if router.is_some() {
            points::reach("pause-1");
        }
        let order = self.pauses.begin(rank, generation, hold, router);
        self.carry_pause(order);
    }

    fn carry_pause(&mut self, order: Order) {
        match order {
            Order::Pause { to, rank, generation } => {
                self.nodes[to.node as usize].send(ToNode::Pause { rank, generation });
            }
            Order::Resume { to, rank, generation } => {
                self.nodes[to.node as usize].send(ToNode::Resume { rank, generation });
            }
            Order::Checkpoint { rank, generation, hold } => {
                self.order_checkpoint(rank, generation, hold);
            }
        }
    }

    /// A router says that it stands.
    pub(super) fn router_stands(&mut self, node: u32, rank: u32, generation: u32) {
        let from = self.member(node);
        if let Some(order) = self.pauses.stands(from, rank, generation) {
            points::reach("pause-5");
            self.carry_pause(order);
        }
    }

    /// A checkpoint of a rank was taken, or could not be.
    pub(super) fn pause_over(&mut self, rank: u32, generation: u32) {
        if let Some(order) = self.pauses.over(rank, generation) {
            self.carry_pause(order);
        }
    }

    /// The process of a rank is dead: if its checkpoint waits for the router, there will be none.
    pub(super) fn pause_lost(&mut self, rank: u32) {
        if self.pauses.waits(rank) {
            self.no_capture(rank);
        }
        if let Some(order) = self.pauses.lost(rank) {
            self.carry_pause(order);
        }
    }

    /// There will be no image, and no node says so.
    pub(super) fn no_capture(&mut self, rank: u32) {
        let (now, turn) = (self.ranks_ms(), self.units.turn(rank));
        self.rank(rank).capturing = None;
        self.scheduler.finished(turn, now);
    }

    /// The members have changed, and who routes for whom.
    pub(super) fn exchange_pauses(&mut self) {
        let routers: Vec<Option<Member>> = (0..self.size()).map(|r| self.router_of(r)).collect();
        let orders = self.pauses.exchange(|rank| routers[rank as usize]);
        orders.into_iter().for_each(|order| self.carry_pause(order));
    }
}
