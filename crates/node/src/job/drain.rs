//! `eyrie drain`: who may leave, and telling who waits for it how far it is.
//!
//! Kept true: what cannot be is refused before anything is done; whoever waits hears the end of
//! each node.

use super::Job;
use super::nodes::State;
use crate::membership::Member;
use crate::outlet::Outlet;
use eyrie_control::{Ft, LeaveStep, Leaving, NodeMsg};
use std::collections::BTreeSet;

/// Somebody waits until nodes have left.
pub(super) struct Watcher {
    nodes: BTreeSet<u32>,
    outlet: Outlet,
}

impl Job {
    /// Has nodes leave. `Leaving` follows for each, then `Done`.
    pub fn drain(
        &mut self,
        names: &[String],
        to: Option<&str>,
        limit_ms: Option<u64>,
        outlet: Outlet,
    ) -> Result<(), String> {
        self.may_leave()?;
        let mut nodes = BTreeSet::new();
        for name in names {
            nodes.insert(self.node_to_leave(name)?);
        }
        let to = to.map(|to| self.node_that_stays(to, &nodes)).transpose()?;
        self.leave_watchers.push(Watcher { nodes: nodes.clone(), outlet });
        if let Err(why) = self.begin_leaves(&nodes, to, limit_ms) {
            self.leave_watchers.pop();
            return Err(why);
        }
        self.tend_leaves();
        Ok(())
    }

    /// Has these nodes leave, if they may.
    pub(super) fn begin_leaves(
        &mut self,
        nodes: &BTreeSet<u32>,
        to: Option<Member>,
        limit_ms: Option<u64>,
    ) -> Result<(), String> {
        self.may_leave()?;
        let keepers = self.planner.iter().flat_map(|p| p.keepers());
        if keepers.filter(|m| !nodes.contains(&m.node)).count() == 0 {
            return Err(String::from(
                "no node would stay that its ranks could go to: let others join first (eyrie grow)",
            ));
        }
        for &node in nodes {
            self.begin_leave(node, to, limit_ms);
        }
        Ok(())
    }

    fn may_leave(&self) -> Result<(), String> {
        if !self.many() {
            let text = "the job has one node, and its ranks nowhere to go: start it with --nodes \
                        or --hosts";
            return Err(text.into());
        }
        if self.spec.ft != Ft::Logged {
            let ft = self.spec.ft.name();
            return Err(format!("nodes leave jobs with --ft logged only; this one has --ft {ft}"));
        }
        if let Some(why) = &self.unprotected {
            return Err(format!("the job runs without protection: {why}"));
        }
        if self.suspend.is_some() {
            return Err(String::from("the job is being saved: it ends, or ask again"));
        }
        let settled = self.planned && !self.restarting && self.rejoining.is_none();
        if !settled || !self.monitor.running() {
            return Err(String::from("the job is just starting or ending: ask again"));
        }
        Ok(())
    }

    /// The live node with this number, or on this host.
    fn node_named(&self, name: &str) -> Result<u32, String> {
        let on_host = |n: &super::Node| n.host() == Some(name);
        let live = |node: &u32| self.nodes[*node as usize].state != State::Lost;
        let all = 0..self.nodes.len() as u32;
        let node = match name.parse::<u32>() {
            Ok(node) => Some(node).filter(|n| (*n as usize) < self.nodes.len()),
            Err(_) => {
                let there = |n: &u32| on_host(&self.nodes[*n as usize]);
                all.clone().filter(there).max_by_key(|n| (live(n), *n))
            }
        };
        let Some(node) = node else {
            let known: Vec<String> = all.filter(live).map(|n| self.node_name(n)).collect();
            return Err(format!("there is no node {name}; there are: {}", known.join(", ")));
        };
        let n = &self.nodes[node as usize];
        match n.state {
            State::Lost if n.left => Err(format!("node {node} has left already")),
            State::Lost => Err(format!("node {node} is lost already")),
            State::Joining => Err(format!("node {node} is just joining: ask again")),
            State::Live => Ok(node),
        }
    }

    fn node_to_leave(&self, name: &str) -> Result<u32, String> {
        let node = self.node_named(name)?;
        match self.leaves.contains_key(&node) {
            true => Err(format!("node {node} is leaving already")),
            false => Ok(node),
        }
    }

    fn node_that_stays(&self, name: &str, leaving: &BTreeSet<u32>) -> Result<Member, String> {
        let node = self.node_to_leave(name)?;
        match leaving.contains(&node) {
            true => Err(format!("node {node} is to leave itself: name another one with --to")),
            false => Ok(self.member(node)),
        }
    }

    /// Tells a step, once.
    pub(super) fn tell_leave(&mut self, node: u32, step: LeaveStep, text: String) {
        let Some(leave) = self.leaves.get_mut(&node) else { return };
        if leave.step.replace(step) != Some(step) {
            let took_ms = leave.begun.elapsed().as_secs_f64() * 1e3;
            self.answer_leave(Leaving { node, step, took_ms, text });
        }
    }

    /// Nobody waits any more who has heard all, or is gone.
    pub(super) fn forget_watchers(&mut self) {
        self.leave_watchers.retain(|w| !w.nodes.is_empty() && !w.outlet.is_closed());
    }

    pub(super) fn answer_leave(&mut self, leaving: Leaving) {
        let (node, last) = (leaving.node, leaving.step.is_last());
        let message = NodeMsg::Leaving(Box::new(leaving));
        for watcher in self.leave_watchers.iter_mut().filter(|w| w.nodes.contains(&node)) {
            watcher.outlet.send(&message);
            if last {
                watcher.nodes.remove(&node);
            }
            if watcher.nodes.is_empty() {
                watcher.outlet.send(&NodeMsg::Done);
            }
        }
    }
}
