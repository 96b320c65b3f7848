//! Nodes that reach the controller through gateways only (`--wan-only`): their daemons are started
//! when the gateway of their cluster is there, and when a connection ends, as a gateway has died,
//! the node is awaited.
//!
//! A gateway also says whose machine gives no sign: the controller's own kernel sees no further
//! than the next gateway.
//!
//! Kept true: such a node is lost no later, after it was last heard of, than it would be for its
//! silence (`patience::HELD_MS`), and never after it was declared lost; one whose process is known
//! to have ended is not awaited. What a gateway says of a node counts when this controller has not
//! heard of that one for as long, and of its own cluster's nodes only.

use super::grow::start_daemon;
use super::nodes::State;
use super::{Job, Msg, Node};
use eyrie_control::gateway::{Door, HOME, Missed, ToGateway};
use eyrie_control::node::Peer;
use eyrie_protocol::machine::is_missed;
use eyrie_protocol::patience::hold_ms;
use std::net::SocketAddr;
use std::time::Duration;

impl Job {
    /// A connection is over: the node is lost, unless it may be that of a gateway on the way.
    pub(super) fn hung_up(&mut self, node: u32, epoch: u64, line: u64, why: String) {
        let behind = self.spec.clusters.is_behind(node);
        let on = |n: &&mut Node| n.is_on(line);
        let Some(n) = self.nodes.get_mut(node as usize).filter(on) else { return };
        if !behind || n.left {
            return self.node_gone(node, epoch, &why);
        }
        let hold = hold_ms(n.parts());
        tracing::info!(node, hold, "its connection ended: {why}; it may come back");
        let (tell, hold) = (self.tell.clone(), Duration::from_millis(hold));
        tokio::task::spawn_local(async move {
            tokio::time::sleep(hold).await;
            let _ = tell.send(Msg::HoldOver { node, epoch, line, why });
        });
        self.nodes[node as usize].away = Some(line);
    }

    /// The gateway of a cluster has no sign of these nodes' machines.
    pub(super) fn machines_missed(&mut self, cluster: u32, missed: &[Missed]) {
        for Missed { node, silent_ms } in missed.iter().copied() {
            let clusters = &self.spec.clusters;
            let own = clusters.is_behind(node) && clusters.of(node) == cluster;
            let Some(n) = self.nodes.get(node as usize).filter(|n| own && n.state != State::Lost)
            else {
                continue;
            };
            let epoch = n.called();
            if n.quiet_ms().is_some_and(is_missed) {
                let why = format!(
                    "nothing was heard of it, nor of its machine by its gateway, for {:.1} s",
                    silent_ms as f64 / 1e3
                );
                self.node_gone(node, epoch, &why);
            }
        }
    }

    /// A node had time enough to come back through another gateway.
    pub(super) fn hold_over(&mut self, node: u32, epoch: u64, line: u64, why: &str) {
        let n = &self.nodes[node as usize];
        if n.away == Some(line) && n.is_awaited() {
            self.node_gone(node, epoch, &format!("{why}, and it did not call again"));
        }
    }

    /// The gateway that leads a node to the controller: which start of it, and where; none: it
    /// needs none, or that is not there.
    pub(super) fn door_of(&self, node: u32) -> Option<(u64, SocketAddr)> {
        let behind = self.spec.clusters.is_behind(node);
        let cluster = self.spec.clusters.of(node);
        self.gate_inside(cluster).filter(|_| behind)
    }

    /// The gateway of a cluster listens: nodes that waited for that are started.
    pub(super) fn start_behind(&mut self, cluster: u32) {
        let Some(gateway) = self.gate_inside(cluster) else { return };
        for node in 0..self.nodes.len() as u32 {
            let n = &self.nodes[node as usize];
            let waits = n.state == State::Joining && n.daemon.is_none();
            let there = self.spec.clusters.of(node) == cluster;
            if !waits || !there || !self.spec.clusters.is_behind(node) {
                continue;
            }
            let Some(crew) = &self.crew else { return };
            match start_daemon(crew, (node, n.epoch), Some(gateway), &self.tell) {
                Ok(daemon) => self.nodes[node as usize].is_begun(daemon),
                Err(error) => self.not_begun(node, &error),
            }
        }
    }

    /// The daemon of a node that waited for its gateway cannot be started. One that joins late is
    /// given up; without one of the first the job does not begin.
    fn not_begun(&mut self, node: u32, error: &std::io::Error) {
        let why = format!("its daemon cannot be started: {error}");
        match self.is_late(node) {
            true => {
                let called = self.nodes[node as usize].called();
                self.node_gone(node, called, &why);
            }
            false => self.fatal(format!("node {node}: {why}")),
        }
    }

    /// Has gateways tell the nodes that reach the controller through them where they are.
    pub(super) fn tell_doors(&self) {
        if !self.spec.clusters.wan_only {
            return;
        }
        for (cluster, place) in (0u32..).zip(&self.gateways.places) {
            let of = |n: &&Node| n.peer.is_some_and(|p| self.spec.clusters.of(p.node) == cluster);
            let there = self.nodes.iter().filter(|n| n.state != State::Lost).filter(of);
            let peers = there.filter_map(|n| Some((n.epoch, n.peer?)));
            let door = |(epoch, peer): (u64, Peer)| Door { node: peer.node, epoch, at: peer.store };
            let doors: Vec<Door> = peers.map(door).collect();
            if cluster != HOME && !doors.is_empty() {
                place.tell(ToGateway::Nodes(doors));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::*;
    use crate::outlet::Outlet;
    use crate::saved::tests::spec;
    use eyrie_control::JobSpec;
    use tokio::sync::mpsc;
    use tokio::task::LocalSet;

    #[test]
    fn a_late_node_that_cannot_be_started_ends_no_job() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let dir = tempfile::tempdir().unwrap();
            let place = Place { id: "job".into(), folder: dir.path().into() };
            let nodes = vec![Node::later(1), Node::later(2)];
            let spec = JobSpec { nodes: 1, spares: 0, ..spec() };
            let (outlet, (tell, _told)) =
                (Outlet::new(tokio::io::sink()), mpsc::unbounded_channel());
            let job = Job::begin(place, spec, None, nodes, outlet, tell).unwrap();
            let mut job = job.borrow_mut();
            let error = std::io::Error::other("no process");
            job.not_begun(1, &error);
            assert!(job.monitor.running());
            assert!(job.nodes[1].state == State::Lost && job.nodes[0].state == State::Joining);
            // Without one of the first it cannot begin.
            job.not_begun(0, &error);
            assert!(!job.monitor.running());
        });
    }
}
