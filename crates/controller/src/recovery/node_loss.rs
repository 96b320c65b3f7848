//! A node is gone: what that means for its ranks.
//!
//! Kept true: a node is declared lost once and never listened to again (it is fenced by its epoch);
//! its ranks are brought back only when nothing of it runs any more.

use crate::nodes::model::State;
use crate::{Job, monitor};
use eyrie_control::EventKind;
use eyrie_protocol::recovery::Input;
use std::collections::BTreeSet;

impl Job {
    /// A daemon, or the connection to it, is gone.
    pub(crate) fn node_gone(&mut self, node: u32, epoch: u64, why: &str) {
        let clock = self.clock.now();
        let known = self.nodes.all.get(node as usize).filter(|n| n.called() == epoch);
        let Some(state) = known.map(|n| n.state) else { return };
        if state == State::Lost {
            return;
        }
        if self.nodes.all[node as usize].left {
            return self.node_left(node, why);
        }
        if self.end.exit_code.is_some() {
            // At the end daemons go when they are told, or before they can say so.
            self.nodes.all[node as usize].finished.get_or_insert(0);
            return self.logs_lost(node, why);
        }
        let n = &mut self.nodes.all[node as usize];
        n.state = State::Lost;
        let cut_off = n.cut_off(&self.spec.timing.intervals.detector, clock);
        n.hang_up();
        n.taken = 0;
        let injected = n.injected_at.take();
        self.nodes.spare_the_last();
        let mut event = self.clock.event(EventKind::NodeLost);
        event.node = Some(node);
        event.took_ms = injected.map(|at| at.elapsed_ms(clock));
        event.text = why.to_string();
        self.journal.log_event(event);
        let told = self.recovery.planned || self.nodes.all[node as usize].peer.is_some();
        if told && !self.journal.commit.lacks_end {
            let name = self.nodes.node_name(node);
            self.journal.say(format!("{name} is lost: {why}"));
        }
        self.clear_node(node, cut_off);
        self.nodes.placement.lose(node);
        self.nodes.forget_links_of(node);
        self.tend_gateways();
        let leaves = self.leaving.nodes.contains_key(&node);
        if state == State::Joining && !leaves && self.lost_late(node, why) {
            return self.begin_if_all_joined();
        }
        if !self.recovery.planned {
            // All are going back: whoever was to leave, or had been emptied, has not.
            self.lost_leaving(node, why);
            return self.lost_joining(node, why);
        }
        for rank in self.nodes.placement.ranks_on(node) {
            self.rank_lost(rank, node);
        }
        self.looks_without(node);
        self.vault_loses(node);
        self.cut_loses(node);
        self.stop_flush();
        self.lost_leaving(node, why);
        let lost = BTreeSet::from([node]);
        self.prefer(&lost, &lost);
        self.plan(Input::NodeDied { member: self.nodes.member(node) });
    }

    /// A node is lost before ranks were started on it.
    fn lost_joining(&mut self, node: u32, why: &str) {
        if self.nodes.all[node as usize].peer.is_none() {
            return self.fatal(format!("{} did not come up: {why}", self.nodes.node_name(node)));
        }
        self.begin_if_all_joined();
    }

    /// What a rank's node knew of it is gone.
    pub(crate) fn rank_lost(&mut self, rank: u32, node: u32) {
        let clock = self.clock.now();
        let (now, protected) = (self.ranks_ms(), self.protected());
        if self.ranks.rank(rank).gone && !protected {
            return;
        }
        self.pause_lost(rank);
        let r = self.ranks.rank(rank);
        r.proc = None;
        r.starting = None;
        r.restore.order = None;
        (r.coming_back.later, r.coming_back.elsewhere) = (None, false);
        r.deaths.count += 1;
        r.deaths.died_at = Some(clock.moment());
        r.gone = false;
        r.restore.lost.insert(node);
        let captured = r.capture.generation.take().is_some();
        r.falls = false;
        let turn = self.checkpoints.units.turn(rank);
        if captured {
            self.checkpoints.scheduler.finished(turn, now);
        }
        if rank == 0 {
            self.console.input.detach();
        }
        self.checkpoints.scheduler.set_live(turn, false);
        self.unit_loses(rank);
        self.snapshot_without(rank, None);
        // It counts as living until its node is cleared away.
        self.step(monitor::Input::Starting { rank });
        if self.spec.protection.ft.reports() {
            self.rank_fails(rank);
        }
    }

    /// Nothing of a lost node runs any more: its ranks come back.
    pub(crate) fn cleared(&mut self, node: u32, left: usize) {
        self.nodes.all[node as usize].cleared = true;
        self.tend_gateways();
        self.vacated(node, left);
        self.seen_off(node);
    }

    /// No process of a rank is left on a node.
    pub(crate) fn vacated(&mut self, node: u32, left: usize) {
        if left > 0 {
            self.fatal(format!("{left} processes of node {node} cannot be killed"));
        }
        for rank in 0..self.size() {
            let lost = &mut self.ranks.rank(rank).restore.lost;
            if lost.remove(&node) && lost.is_empty() {
                let protected = self.protected();
                self.step(monitor::Input::Lost { rank, protected });
            }
        }
    }
}
