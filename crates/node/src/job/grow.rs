//! Nodes that join a job while it runs.
//!
//! Kept true: a node that does not come up is given up, and never ends the job; one that does is a
//! spare until ranks need it.

use super::{Job, Msg, Node};
use crate::crew::{Crew, Daemon};
use crate::outlet::Outlet;
use crate::pipes;
use crate::recovery::Input;
use eyrie_control::NodeMsg;
use std::io;
use tokio::io::Interest;
use tokio::sync::mpsc::UnboundedSender;

/// Most nodes that a job may have had: their addresses end there (`netns`).
const MAX_NODES: u32 = 250;

/// Somebody who waits for nodes that are to join.
pub(super) struct Awaited {
    nodes: Vec<u32>,
    outlet: Outlet,
}

/// Starts the daemon of a node, and has its end reported.
pub(crate) fn start_daemon(
    crew: &Crew,
    node: u32,
    epoch: u64,
    tell: &UnboundedSender<Msg>,
) -> io::Result<Daemon> {
    let daemon = crew.start(node, epoch)?;
    let pidfd = pipes::watch(daemon.pidfd.try_clone()?, Interest::READABLE)?;
    let (tell, guest) = (tell.clone(), daemon.guest());
    tokio::task::spawn_local(async move {
        if pidfd.readable().await.is_err() {
            return;
        }
        let why = match guest {
            Some(guest) => tokio::task::spawn_blocking(move || guest.why()).await.ok(),
            None => None,
        };
        let why = why.unwrap_or_else(|| String::from("its daemon ended"));
        let _ = tell.send(Msg::Gone { node, epoch, why });
    });
    Ok(daemon)
}

impl Job {
    /// Nodes are started by this crew.
    pub fn employ(&mut self, crew: Crew) {
        self.crew = Some(crew);
    }

    /// Starts so many more nodes, without ranks. `Joined` follows for each, then `Done`.
    pub fn grow(&mut self, count: u32, outlet: Outlet) -> Result<(), String> {
        if self.crew.is_none() {
            let text = "the job has one node and cannot grow: start it with --nodes 1 or more";
            return Err(text.into());
        }
        if self.spec.hosts.is_some() {
            return Err("a job over --hosts cannot grow yet".into());
        }
        if !self.planned || !self.monitor.running() {
            return Err("the job is just starting or ending: ask again".into());
        }
        let first = self.nodes.len() as u32;
        if count == 0 || first.saturating_add(count) > MAX_NODES {
            let most = MAX_NODES.saturating_sub(first);
            return Err(format!("a job may have had {MAX_NODES} nodes: ask for 1 to {most} more"));
        }
        let epochs = self.epoch + 1..;
        self.epoch += u64::from(count);
        // Another controller must not give them again.
        self.end_turn();
        let Some(crew) = &self.crew else { return Ok(()) };
        let mut nodes = Vec::new();
        for (node, epoch) in (first..first + count).zip(epochs) {
            match start_daemon(crew, node, epoch, &self.tell) {
                Ok(daemon) => {
                    self.nodes.push(Node::there(daemon));
                    nodes.push(node);
                }
                Err(error) => {
                    let reason = format!("its daemon cannot be started: {error}");
                    outlet.send(&NodeMsg::NotJoined { node, reason });
                    break;
                }
            }
        }
        self.awaited.push(Awaited { nodes, outlet });
        self.answer_awaiting();
        Ok(())
    }

    /// A node has joined after the job had begun.
    pub(super) fn joined_late(&mut self, node: u32) {
        self.plan(Input::Joined { member: self.member(node), spare: true });
        self.answer_joined(node, &NodeMsg::NodeJoined { node });
    }

    /// A node that was to join is gone before it had. Tells whether it was one of these.
    pub(super) fn lost_late(&mut self, node: u32, why: &str) -> bool {
        let late = node >= self.spec.nodes + self.spec.spares;
        if late {
            self.answer_joined(node, &NodeMsg::NotJoined { node, reason: why.to_string() });
        }
        late
    }

    /// Tells whoever waits for the node.
    pub(super) fn answer_joined(&mut self, node: u32, answer: &NodeMsg) {
        for awaited in &mut self.awaited {
            let before = awaited.nodes.len();
            awaited.nodes.retain(|n| *n != node);
            if awaited.nodes.len() < before {
                awaited.outlet.send(answer);
            }
        }
        self.answer_awaiting();
    }

    fn answer_awaiting(&mut self) {
        self.awaited.iter().filter(|a| a.nodes.is_empty()).for_each(|a| {
            a.outlet.send(&NodeMsg::Done);
        });
        self.awaited.retain(|a| !a.nodes.is_empty() && !a.outlet.is_closed());
    }
}
