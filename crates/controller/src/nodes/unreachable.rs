//! Nodes that reach the controller through gateways only (`--wan-only`): their daemons are started
//! when the gateway of their cluster is there, and when a connection ends, as a gateway has died,
//! the node is awaited.
//!
//! A gateway also says whose machine gives no sign: the controller's own kernel sees no further
//! than the next gateway.
//!
//! Kept true: such a node is lost no later, after it was last heard of, than it would be for its
//! silence (`Detector::held_ms`), and never after it was declared lost; one whose process is known
//! to have ended is not awaited. What a gateway says of a node counts when this controller has not
//! heard of that one for as long, and of its own cluster's nodes only.

use crate::nodes::model::State;
use crate::timers::Timer;
use crate::{Job, Node};
use eyrie_control::gateway::{HOME, Missed, StoreAddress, ToGateway};
use eyrie_control::node::Peer;
use std::net::SocketAddr;
use std::time::Duration;

impl Job {
    /// A connection is over: the node is lost, unless it may be that of a gateway on the way. At
    /// the end of the job nothing is lost with a node: one that runs calls again, and hears then
    /// that it is to end.
    pub(crate) fn connection_ended(&mut self, node: u32, epoch: u64, line: u64, why: String) {
        let (clock, detector) = (self.clock.now(), self.spec.timing.intervals.detector);
        let behind = self.spec.placement.clusters.is_behind(node);
        let on = |n: &&mut Node| n.is_on(line);
        let Some(n) = self.nodes.all.get_mut(node as usize).filter(on) else { return };
        let calls_again = behind || self.end.exit_code.is_some();
        if !calls_again || n.left {
            return self.node_gone(node, epoch, &why);
        }
        // One that is cut off has ended by then.
        let cut_off = n.cut_off(&detector, clock);
        let held = Duration::from_millis(detector.hold_ms(n.parts(clock)));
        let hold = if behind { held } else { cut_off };
        tracing::info!(node, ?hold, "its connection ended: {why}; it may come back");
        self.arm(hold, Timer::Reconnect { node, epoch, line, why });
        self.nodes.all[node as usize].away = Some(line);
    }

    /// The gateway of a cluster has no sign of these nodes' machines.
    pub(crate) fn machines_missed(&mut self, cluster: u32, missed: &[Missed]) {
        let detector = self.spec.timing.intervals.detector;
        for Missed { node, silent_ms } in missed.iter().copied() {
            let clusters = &self.spec.placement.clusters;
            let own = clusters.is_behind(node) && clusters.of(node) == cluster;
            let Some(n) =
                self.nodes.all.get(node as usize).filter(|n| own && n.state != State::Lost)
            else {
                continue;
            };
            let epoch = n.called();
            if n.quiet_ms().is_some_and(|ms| detector.is_missed(ms)) {
                let why = format!(
                    "nothing was heard of it, nor of its machine by its gateway, for {:.1} s",
                    silent_ms as f64 / 1e3
                );
                self.node_gone(node, epoch, &why);
            }
        }
    }

    /// A node had time enough to come back through another gateway.
    pub(crate) fn reconnect_overdue(&mut self, node: u32, epoch: u64, line: u64, why: &str) {
        let n = &self.nodes.all[node as usize];
        if n.away == Some(line) && n.is_awaited() {
            self.node_gone(node, epoch, &format!("{why}, and it did not call again"));
        }
    }

    /// The gateway that leads a node to the controller: which start of it, and where; none: it
    /// needs none, or that is not there.
    pub(crate) fn gateway_of(&self, node: u32) -> Option<(u64, SocketAddr)> {
        let behind = self.spec.placement.clusters.is_behind(node);
        let cluster = self.spec.placement.clusters.of(node);
        self.gate_inside(cluster).filter(|_| behind)
    }

    /// The gateway of a cluster listens: nodes that waited for that are started.
    pub(crate) fn start_behind_gateway(&mut self, cluster: u32) {
        let Some(gateway) = self.gate_inside(cluster) else { return };
        for node in 0..self.nodes.all.len() as u32 {
            let n = &self.nodes.all[node as usize];
            let waits = n.state == State::Joining && n.daemon.is_none();
            let there = self.spec.placement.clusters.of(node) == cluster;
            if !waits || !there || !self.spec.placement.clusters.is_behind(node) {
                continue;
            }
            match self.outside.launcher.start_daemon(node, n.epoch, Some(gateway)) {
                Ok(daemon) => self.nodes.all[node as usize].is_begun(daemon),
                Err(error) => self.daemon_not_started(node, &error),
            }
        }
    }

    /// The daemon of a node that waited for its gateway cannot be started. One that joins late is
    /// given up; without one of the first the job does not begin.
    fn daemon_not_started(&mut self, node: u32, error: &std::io::Error) {
        let why = format!("its daemon cannot be started: {error}");
        match self.is_late(node) {
            true => {
                let called = self.nodes.all[node as usize].called();
                self.node_gone(node, called, &why);
            }
            false => self.fatal(format!("node {node}: {why}")),
        }
    }

    /// Has gateways tell the nodes that reach the controller through them where they are.
    pub(crate) fn tell_gateways_of_nodes(&self) {
        if !self.spec.placement.clusters.wan_only {
            return;
        }
        for cluster in 0..self.gateways.places.len() as u32 {
            let of = |n: &&Node| {
                n.peer.is_some_and(|p| self.spec.placement.clusters.of(p.node) == cluster)
            };
            let there = self.nodes.all.iter().filter(|n| n.state != State::Lost).filter(of);
            let peers = there.filter_map(|n| Some((n.epoch, n.peer?)));
            let door = |(epoch, peer): (u64, Peer)| StoreAddress {
                node: peer.node,
                epoch,
                at: peer.store,
            };
            let doors: Vec<StoreAddress> = peers.map(door).collect();
            if cluster != HOME && !doors.is_empty() {
                self.tell_gateway(cluster, ToGateway::Nodes(doors));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use crate::clock::Now;
    use crate::memory::{Frames, Memory};
    use eyrie_state::saved_job::testing::spec;

    /// One that was only cut off calls again, and hears that it is to end: else it would look for a
    /// controller that is not there any more.
    #[test]
    fn at_the_end_a_node_is_not_done_because_its_connection_is() {
        let place = Place { id: "job".into(), folder: "/job".into() };
        let mut spec = spec();
        spec.placement.nodes = 1;
        let (outside, frames) = (Memory::default().outside(), Frames::default());
        let nodes = vec![Node::later(1)];
        let mut job = Job::begin(place, spec, None, nodes, outside, Now::of_test()).unwrap();
        job.connected(0, 0, frames.line(1));
        job.nodes.all[0].state = State::Live;
        job.end.exit_code = Some(0);
        job.finish();
        job.connection_ended(0, 0, 1, "it broke".into());
        assert_eq!(job.finished(true), None, "it runs");
        job.connected(0, 0, frames.line(2));
        assert!(job.nodes.all[0].is_on(2));
        // Nobody waits for ever.
        job.connection_ended(0, 0, 2, "it broke".into());
        job.reconnect_overdue(0, 0, 1, "it broke");
        assert_eq!(job.finished(true), None);
        job.reconnect_overdue(0, 0, 2, "it broke");
        assert_eq!(job.finished(true), Some(0));
    }

    #[test]
    fn a_late_node_that_cannot_be_started_ends_no_job() {
        let place = Place { id: "job".into(), folder: "/job".into() };
        let nodes = vec![Node::later(1), Node::later(2)];
        let mut spec = spec();
        spec.placement.nodes = 1;
        let outside = Memory::default().outside();
        let mut job = Job::begin(place, spec, None, nodes, outside, Now::of_test()).unwrap();
        let error = std::io::Error::other("no process");
        job.daemon_not_started(1, &error);
        assert!(job.recovery.monitor.running());
        assert!(job.nodes.all[1].state == State::Lost && job.nodes.all[0].state == State::Joining);
        // Without one of the first it cannot begin.
        job.daemon_not_started(0, &error);
        assert!(!job.recovery.monitor.running());
    }
}
