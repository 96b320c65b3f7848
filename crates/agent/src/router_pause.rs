//! `--ft routed`: this node's part in checkpoints of ranks with routers (`protocol::router_pause`).

use super::Agent;
use eyrie_control::node::FromNode;
use eyrie_process::stop_points;
use std::sync::Arc;

impl Agent {
    /// This node routes for the rank: it sends nothing more to it, and says when all that it had
    /// sent is there.
    pub(super) fn pause(&self, rank: u32, generation: u32) {
        self.reach(2);
        let Some(links) = self.links() else { return };
        let out = Arc::clone(&self.out);
        links.pause(rank, generation, move || {
            stop_points::reach("pause-4");
            out(FromNode::Paused { rank, generation });
        });
        self.reach(3);
    }

    /// That checkpoint is over.
    pub(super) fn resume(&self, rank: u32, generation: u32) {
        self.links().iter().for_each(|l| l.resume(rank, generation));
    }

    /// The rank, which is here, was stopped and goes on.
    pub(super) fn let_router_go(&self, rank: u32, generation: u32) {
        if self.spec.placement.routers > 0 {
            self.reach(7);
            self.links().iter().for_each(|l| l.go_on(rank, generation));
        }
    }

    /// A step of a checkpoint with a router is reached.
    pub(super) fn reach(&self, step: u32) {
        if self.spec.placement.routers > 0 {
            stop_points::reach(&format!("pause-{step}"));
        }
    }
}
