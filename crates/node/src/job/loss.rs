//! A node is gone: what that means for its ranks.
//!
//! Kept true: a node is declared lost once and never listened to again (it is fenced by its epoch);
//! its ranks are brought back only when nothing of it runs any more.

use super::Job;
use super::books::Moment;
use super::nodes::State;
use crate::monitor;
use crate::recovery::Input;
use eyrie_control::EventKind;

impl Job {
    /// A daemon, or the connection to it, is gone.
    pub(super) fn node_gone(&mut self, node: u32, epoch: u64, why: &str) {
        let known = self.nodes.get(node as usize).filter(|n| n.called() == epoch);
        let Some(state) = known.map(|n| n.state) else { return };
        if state == State::Lost {
            return;
        }
        if self.nodes[node as usize].left {
            return self.node_left(node, why);
        }
        if self.exit_code.is_some() {
            // At the end daemons go when they are told, or before they can say so.
            self.nodes[node as usize].finished.get_or_insert(0);
            return;
        }
        let n = &mut self.nodes[node as usize];
        n.state = State::Lost;
        let cut_off = n.cut_off();
        n.hang_up();
        n.taken = 0;
        let injected = n.injected_at.take();
        self.spare_the_last();
        let mut event = self.event(EventKind::NodeLost);
        event.node = Some(node);
        event.took_ms = injected.map(|at| at.elapsed().as_secs_f64() * 1e3);
        event.text = why.to_string();
        self.log_event(event);
        if self.planned || self.nodes[node as usize].peer.is_some() {
            let name = self.node_name(node);
            self.say(format!("{name} is lost: {why}"));
        }
        self.clear_node(node, cut_off);
        self.placement.lose(node);
        self.reach_without(node);
        self.tend_gateways();
        let leaves = self.leaves.contains_key(&node);
        if state == State::Joining && !leaves && self.lost_late(node, why) {
            return self.begin_if_all_joined();
        }
        if !self.planned {
            // All are going back: whoever was to leave, or had been emptied, has not.
            self.lost_leaving(node, why);
            return self.lost_joining(node, why);
        }
        for rank in self.placement.ranks_on(node) {
            self.rank_lost(rank, node);
        }
        self.looks_without(node);
        self.vault_loses(node);
        self.cut_loses(node);
        self.stop_flush();
        self.lost_leaving(node, why);
        self.plan(Input::NodeDied { member: self.member(node) });
    }

    /// A node is lost before ranks were started on it.
    fn lost_joining(&mut self, node: u32, why: &str) {
        if self.nodes[node as usize].peer.is_none() {
            return self.fatal(format!("{} did not come up: {why}", self.node_name(node)));
        }
        self.begin_if_all_joined();
    }

    /// What a rank's node knew of it is gone.
    pub(super) fn rank_lost(&mut self, rank: u32, node: u32) {
        let (now, protected) = (self.ranks_ms(), self.protected());
        if self.rank(rank).gone && !protected {
            return;
        }
        self.pause_lost(rank);
        let r = self.rank(rank);
        r.proc = None;
        r.starting = None;
        r.order = None;
        (r.later, r.elsewhere) = (None, false);
        r.deaths += 1;
        r.died_at = Some(Moment::now());
        r.gone = false;
        r.lost.insert(node);
        let captured = r.capturing.take().is_some();
        r.falls = false;
        let turn = self.units.turn(rank);
        if captured {
            self.scheduler.finished(turn, now);
        }
        if rank == 0 {
            self.input.detach();
        }
        self.scheduler.set_live(turn, false);
        self.unit_loses(rank);
        self.snapshot_without(rank, None);
        // It counts as living until its node is cleared away.
        self.step(monitor::Input::Starting { rank });
    }

    /// Nothing of a lost node runs any more: its ranks come back.
    pub(super) fn cleared(&mut self, node: u32, left: usize) {
        self.nodes[node as usize].cleared = true;
        self.tend_gateways();
        self.vacated(node, left);
        self.seen_off(node);
    }

    /// No process of a rank is left on a node.
    pub(super) fn vacated(&mut self, node: u32, left: usize) {
        if left > 0 {
            self.fatal(format!("{left} processes of node {node} cannot be killed"));
        }
        for rank in 0..self.size() {
            let lost = &mut self.rank(rank).lost;
            if lost.remove(&node) && lost.is_empty() {
                let protected = self.protected();
                self.step(monitor::Input::Lost { rank, protected });
            }
        }
    }
}
