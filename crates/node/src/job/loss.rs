//! A node is gone: what that means for its ranks, and for the images that it had.
//!
//! Kept true: a node is declared lost once and never listened to again (it is fenced by its epoch);
//! its ranks are brought back only when nothing of it runs any more; an image counts as long as a
//! live node has it; outcomes that were fetched are kept until the rank runs elsewhere, and all of
//! them are there only if somebody was in step with the home on which it may have run last.

use super::nodes::State;
use super::{Job, Msg};
use crate::monitor;
use eyrie_control::EventKind;
use eyrie_control::node::{Determinants, ToNode};
use std::collections::BTreeSet;
use std::time::Instant;

/// What is known of a rank that comes to another node.
#[derive(Default)]
pub(super) struct Moving {
    /// Number of the question, and the nodes that have not answered it.
    ask: u64,
    left: BTreeSet<u32>,
    /// The home on which it may have run last, with its epoch. None: it never ran.
    lost: Option<(u32, u64)>,
    /// Whether one who answered holds all that anything depends on.
    in_step: bool,
    best: Determinants,
}

impl Moving {
    pub fn complete(&self) -> bool {
        self.left.is_empty()
    }
}

impl Job {
    /// A daemon, or the connection to it, is gone.
    pub(super) fn node_gone(&mut self, node: u32, epoch: u64, why: &str) {
        let known = self.nodes.get(node as usize).filter(|n| n.called() == epoch);
        let Some(state) = known.map(|n| n.state) else { return };
        // At the end daemons go when they are told.
        if state == State::Lost || self.exit_code.is_some() {
            return;
        }
        let n = &mut self.nodes[node as usize];
        n.state = State::Lost;
        n.hang_up();
        n.taken = 0;
        let injected = n.injected_at.take();
        let mut event = self.event(EventKind::NodeLost);
        event.node = Some(node);
        event.took_ms = injected.map(|at| at.elapsed().as_secs_f64() * 1e3);
        event.text = why.to_string();
        self.log_event(event);
        self.say(format!("node {node} is lost: {why}"));
        self.clear_node(node);
        if state == State::Joining {
            return self.lost_joining(node, why);
        }
        self.tell_members();
        for rank in self.placement.lose(node) {
            self.rank_lost(rank);
        }
        self.forget_holder(node);
        self.looks_without(node);
        let asks: Vec<u32> = (0..self.size()).filter(|r| self.awaits(*r, node)).collect();
        for rank in asks {
            self.rank(rank).moving.iter_mut().for_each(|m| {
                m.left.remove(&node);
            });
            self.ready(rank);
        }
    }

    /// A node is lost before ranks were started on it.
    fn lost_joining(&mut self, node: u32, why: &str) {
        if self.nodes[node as usize].peer.is_none() {
            return self.fatal(format!("node {node} did not come up: {why}"));
        }
        let placed = |job: &mut Job, rank| job.placement.place(rank, &[]).is_some();
        if !self.placement.lose(node).into_iter().all(|rank| placed(self, rank)) {
            return self.fatal(String::from("no node is left"));
        }
        self.begin_if_all_joined();
    }

    fn awaits(&self, rank: u32, node: u32) -> bool {
        let moving = &self.ranks[rank as usize].moving;
        moving.as_ref().is_some_and(|m| m.left.contains(&node))
    }

    /// Ends what is left of a node and removes its storage; `cleared` follows.
    fn clear_node(&mut self, node: u32) {
        let others = self.nodes.iter().filter(|n| n.state != State::Lost);
        let others = others.filter_map(|n| Some(n.daemon.as_ref()?.pid)).collect();
        let tell = self.tell.clone();
        let done = move |left| drop(tell.send(Msg::Cleared { node, left }));
        let Some(daemon) = &self.nodes[node as usize].daemon else { return };
        if let Err(error) = daemon.clear(others, done) {
            self.fatal(format!("cannot clear away what node {node} left: {error}"));
        }
    }

    /// What a rank's node knew of it is gone.
    fn rank_lost(&mut self, rank: u32) {
        let (now, protected) = (self.now_ms(), self.protected());
        let r = self.rank(rank);
        if r.gone && !protected {
            return;
        }
        r.proc = None;
        r.starting = None;
        (r.moving, r.choice, r.partner) = (None, None, None);
        r.deaths += 1;
        r.died_at = Some(Instant::now());
        r.gone = false;
        r.lost = true;
        if r.capturing.take().is_some() {
            self.scheduler.finished(rank, now);
        }
        if rank == 0 {
            self.input.detach();
        }
        self.scheduler.set_live(rank, false);
        // It counts as living until its node is cleared away.
        self.step(monitor::Input::Starting { rank });
    }

    /// Nothing of a lost node runs any more: its ranks come back.
    pub(super) fn cleared(&mut self, node: u32, left: usize) {
        if left > 0 {
            self.fatal(format!("{left} processes of the lost node {node} cannot be killed"));
        }
        for rank in self.placement.ranks_on(node) {
            if std::mem::take(&mut self.rank(rank).lost) {
                let protected = self.protected();
                self.step(monitor::Input::Lost { rank, protected });
            }
        }
    }

    /// Finds a rank whose home is lost another, and asks all nodes what they hold of its outcomes.
    /// `false`: no node is left.
    pub(super) fn move_rank(&mut self, rank: u32) -> bool {
        let old = self.placement.home(rank);
        if self.nodes[old as usize].state != State::Lost {
            return true;
        }
        let holders = self.holders(rank);
        let Some(home) = self.placement.place(rank, &holders) else {
            self.fatal(String::from("no node is left"));
            return false;
        };
        tracing::info!(rank, home, "a rank moves");
        self.tell_homes();
        self.asked += 1;
        let ask = self.asked;
        let live = (0u32..).zip(&self.nodes).filter(|(_, n)| n.state == State::Live);
        let left: BTreeSet<u32> = live.map(|(node, _)| node).collect();
        // Not the home that it was on its way to, if it was not ordered to start there.
        let lost = self.rank(rank).ran;
        let fetched = self.rank(rank).fetched.clone();
        let best = fetched.unwrap_or(Determinants { rank, ..Determinants::default() });
        let in_step = lost.is_none();
        self.rank(rank).moving = Some(Moving { ask, left, lost, in_step, best });
        self.to_all(&ToNode::Held { ask, ranks: vec![rank] });
        true
    }

    /// What a node holds of the outcomes of a rank.
    pub(super) fn held(
        &mut self,
        node: u32,
        ask: u64,
        in_step: &[(u32, u64)],
        held: Vec<Determinants>,
    ) {
        let asked = self.ranks.iter().position(|r| r.moving.as_ref().is_some_and(|m| m.ask == ask));
        let Some(rank) = asked.map(|r| r as u32) else { return };
        let Some(moving) = &mut self.rank(rank).moving else { return };
        moving.left.remove(&node);
        moving.in_step |= moving.lost.is_some_and(|lost| in_step.contains(&lost));
        let end = |d: &Determinants| (d.first + d.words.len() as u64, d.words.last().copied());
        for found in held.into_iter().filter(|d| d.rank == rank) {
            if end(&found) > end(&moving.best) {
                moving.best = found;
            }
        }
        self.ready(rank);
    }

    /// The outcomes of a moving rank, when all have answered.
    pub(super) fn take_moved(&mut self, rank: u32) -> Option<Result<Determinants, String>> {
        let moving = self.rank(rank).moving.take()?;
        if moving.in_step {
            // If the new home is lost, too, before it has replicated them, nobody else has them.
            self.rank(rank).fetched = Some(moving.best.clone());
            return Some(Ok(moving.best));
        }
        Some(Err(format!(
            "the outcomes that were recorded on node {} are lost with those who held them",
            moving.lost.map_or(0, |lost| lost.0)
        )))
    }
}
