//! Jobs that are told to stand still (`eyrie suspend`, `eyrie share`): how the ranks of a node come
//! to stand, and that none runs meanwhile.

use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;

impl World {
    /// Whether the ranks of all live nodes stand, as far as the controller knows.
    pub fn all_stand(&self) -> bool {
        let live = self.controller.planner.members().iter().map(|m| m.node);
        self.controller.suspend.whole(live)
    }

    /// Its ranks are to stand.
    pub fn suspend(&mut self, at: Member, turn: u64) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.suspend = Some((turn, false));
        let ranks: Vec<u32> = node.procs.keys().copied().collect();
        for rank in ranks {
            let after = self.random.below(300);
            self.at(after, Event::Suspended { at, rank, turn });
        }
        self.tell_suspended(at);
    }

    /// A rank has come to stand.
    pub fn rank_suspended(&mut self, at: Member, rank: u32, turn: u64) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if node.suspend.is_some_and(|h| h.0 == turn)
            && let Some(proc) = node.procs.get_mut(&rank)
        {
            proc.suspended = true;
        }
        self.tell_suspended(at);
    }

    /// They go on.
    pub fn end_suspend(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.suspend = None;
        let mut on = Vec::new();
        for (rank, proc) in &mut node.procs {
            proc.suspended = false;
            if !proc.stands && std::mem::take(&mut proc.would_go_on) {
                on.push((*rank, proc.incarnation));
            }
        }
        for (rank, incarnation) in on {
            let after = 1 + self.random.below(10);
            self.at(after, Event::Step { at, rank, incarnation });
        }
    }

    /// A rank was started: it stands at once, if all do.
    pub fn suspend_new(&mut self, at: Member, rank: u32) {
        let runs = self.mutated(Mutation::StartsRunning);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let suspended = node.suspend.is_some() && !runs;
        node.procs.get_mut(&rank).into_iter().for_each(|proc| proc.suspended = suspended);
    }

    /// Says that all ranks of a node stand, if they do.
    pub fn tell_suspended(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let Some((turn, told)) = &mut node.suspend else { return };
        if *told || !node.procs.values().all(|p| p.suspended || p.done) {
            return;
        }
        *told = true;
        let turn = *turn;
        self.tell(at, FromNode::Suspended { turn });
    }

    /// A rank does something.
    pub fn check_stands(&mut self, at: Member, rank: u32) {
        if !self.dead && self.controller.planner.members().contains(&at) && self.all_stand() {
            self.fail(format!("rank {rank} runs on {at} while the job stands still"));
        }
    }
}
