//! The gateways of a job with several clusters: started, watched, and started again; who is where
//! is told to nodes and gateways.
//!
//! Kept true: a gateway that is gone, or silent, is a pause, never a loss: nodes make their
//! connections again through the next one. Gateways end with their controller; the next one starts
//! others. It is with a node of its cluster (`placement`): when that is lost or leaves, it moves.

pub(crate) mod blocks;
pub(crate) mod model;
pub(crate) mod placement;

use crate::gateways::model::{Place, Ready};
use crate::gateways::placement::{Candidate, HUB, SlotEnd, SlotOrder};
use crate::nodes::model::State;
use crate::outside::GatewaySite;
use crate::timers::Timer;
use crate::{Job, Node};
use eyrie_control::gateway::{
    Carried, ClusterStatus, FromGateway, Gate, GatewayEvent, GatewayStatus, HOME, ToGateway,
};
use eyrie_control::{EventKind, ToNode};
use std::net::SocketAddr;
use std::time::Duration;

impl Job {
    /// Starts the gateways, if there are to be some.
    pub fn begin_gateways(&mut self) {
        self.gateways
            .places
            .resize_with(self.spec.placement.clusters.count() as usize, Place::default);
        self.tend_gateways();
    }

    /// Nodes may have come or gone: has gateways end, move and start accordingly. None starts while
    /// a lost node is just cleared away: what that leaves is told from what is wanted by who was
    /// there before.
    pub(crate) fn tend_gateways(&mut self) {
        if self.end.exit_code.is_some() {
            return;
        }
        let clearing = |n: &Node| n.state == State::Lost && !n.cleared && n.host().is_none();
        let may_start = !self.nodes.all.iter().any(clearing);
        for cluster in 0..self.gateways.places.len() as u32 {
            let nodes = self.candidates(cluster);
            match self.gateways.places[cluster as usize].slot.tend(&nodes, may_start) {
                SlotOrder::Nothing => {}
                SlotOrder::Start(node) => self.start_gateway(cluster, node),
                SlotOrder::TakeDown(node) => self.gateway_moves(cluster, node),
                SlotOrder::Retire => self.retire_gateway(cluster),
            }
        }
    }

    /// The nodes of a cluster that are in the job, and are to be.
    fn candidates(&self, cluster: u32) -> Vec<Candidate> {
        let of = |n: &(u32, &Node)| self.spec.placement.clusters.of(n.0) == cluster;
        let all = (0u32..).zip(&self.nodes.all).filter(of);
        let there = all.filter(|(_, n)| n.state != State::Lost && !n.left);
        let there: Vec<_> = there.collect();
        // Others are not reached where the user says that one is to be.
        let door = |(node, _): &(u32, &Node)| self.is_door(*node);
        let has_doors = there.iter().any(door);
        let there: Vec<_> = there.into_iter().filter(|node| !has_doors || door(node)).collect();
        if there.is_empty() && self.spec.placement.clusters.wan_only && cluster == HOME {
            return vec![Candidate { node: HUB, joining: false, leaving: false }];
        }
        let leaving = |node: &u32| self.leaving.nodes.contains_key(node);
        let candidate = |(node, n): (u32, &Node)| Candidate {
            node,
            joining: n.state == State::Joining,
            leaving: leaving(&node),
        };
        there.into_iter().map(candidate).collect()
    }

    /// Whether the user says where a gateway on this node's host is reached.
    fn is_door(&self, node: u32) -> bool {
        let hosts = self.spec.placement.hosts.as_ref();
        hosts.and_then(|h| h.list.get(node as usize)).is_some_and(|h| h.gateway.is_some())
    }

    /// This start of a gateway, by a number that no other has.
    fn number(&self, cluster: u32) -> u64 {
        self.journal.reign() << 32 | self.gateways.places[cluster as usize].starts
    }

    fn is_current(&self, cluster: u32, number: u64) -> bool {
        let known = self.gateways.places.get(cluster as usize).is_some_and(|g| g.process.is_some());
        known && self.number(cluster) == number
    }

    /// The last node of a cluster is gone, and so is its gateway.
    fn retire_gateway(&mut self, cluster: u32) {
        let place = &mut self.gateways.places[cluster as usize];
        (place.ready, place.lost) = (None, None);
        let name = self.cluster_name(cluster);
        tracing::info!("{name} has no nodes any more, and no gateway");
        self.tell_gates();
        self.tell_clusters();
    }

    fn start_gateway(&mut self, cluster: u32, node: u32) {
        let clock = self.clock.now();
        self.gateways.places[cluster as usize].starts += 1;
        let number = self.number(cluster);
        let silence = self.gateways.blocks.of(cluster);
        let at = Some(node).filter(|node| *node != HUB);
        // Nodes that are just starting are told of no other.
        let before = self.gateways.places[cluster as usize].inside;
        let before =
            before.filter(|(with, _)| self.spec.placement.clusters.wan_only && *with == node);
        let site = GatewaySite { node: at, inside: before.map(|(_, port)| port) };
        let started = self.outside.launcher.start_gateway(cluster, number, site, silence);
        let place = &mut self.gateways.places[cluster as usize];
        (place.began, place.carried) = (Some(clock.moment()), Carried::default());
        place.silent.clear();
        let gateway = match started {
            Ok(started) => started,
            Err(error) => return self.gateway_over(cluster, &format!("not started: {error}")),
        };
        place.process = Some(gateway);
        self.arm(self.joining_limit(), Timer::GatewayLate { cluster, number });
    }

    fn joining_limit(&self) -> Duration {
        let hosts = self.spec.placement.hosts.as_ref().map_or(0, |h| h.join_ms);
        Duration::from_millis(hosts.max(self.spec.timing.intervals.limits.gateway_start_ms))
    }

    /// A gateway says something, or has said nothing for too long.
    pub(crate) fn hear_gateway(&mut self, cluster: u32, number: u64, heard: GatewayEvent) {
        let clock = self.clock.now();
        if !self.is_current(cluster, number) {
            return;
        }
        let place = &mut self.gateways.places[cluster as usize];
        match heard {
            GatewayEvent::Said(FromGateway::Beat) => self.look_for_a_way(cluster),
            GatewayEvent::Said(FromGateway::Carried(carried)) => {
                place.carried = carried;
                if carried.connections > 0 {
                    place.slot.reaches();
                }
            }
            GatewayEvent::Said(FromGateway::Ready { pid, inside, outside }) => {
                place.ready = Some(Ready { pid, inside, outside, since: clock.moment() });
                place.inside = place.slot.node().map(|node| (node, inside.port()));
                place.slot.listens();
                place.told = None;
                if let Some(lost) = place.lost.take() {
                    let mut event = self.clock.event(EventKind::GatewayBack);
                    event.took_ms = Some(lost.elapsed_ms(clock));
                    event.text = format!("of {}, pid {pid}", self.cluster_name(cluster));
                    self.journal.log_event(event);
                }
                self.tell_gates();
                self.tell_clusters();
                self.start_behind_gateway(cluster);
            }
            GatewayEvent::Said(FromGateway::Missed(missed)) => {
                self.machines_missed(cluster, &missed)
            }
            GatewayEvent::Said(FromGateway::Silent(silence)) => {
                self.gateways.gateway_silent(cluster, silence)
            }
            GatewayEvent::Said(FromGateway::Failed(why)) => {
                self.tell_failed(cluster, &why);
                self.take_down(cluster, SlotEnd::Failed, Some(&why));
            }
            GatewayEvent::Silence { ms } => {
                let why = format!("nothing was heard of it for {:.1} s", ms as f64 / 1e3);
                self.take_down(cluster, SlotEnd::Failed, Some(&why));
            }
        }
    }

    /// A gateway says why it cannot begin: that is for who gave it its port.
    fn tell_failed(&mut self, cluster: u32, why: &str) {
        let place = &mut self.gateways.places[cluster as usize];
        if place.told.as_deref() == Some(why) {
            return;
        }
        place.told = Some(why.to_string());
        let on = place.slot.node().filter(|node| *node != HUB);
        let on = on.map(|node| format!(" with {}", self.nodes.node_name(node)));
        let name = self.cluster_name(cluster);
        self.journal.say(format!(
            "the gateway of {name} does not begin{}: {why}; it is tried again, and nothing goes \
             between that cluster and others until then",
            on.unwrap_or_default()
        ));
    }

    /// A gateway that reaches no other, although there are some, is tried with another node.
    fn look_for_a_way(&mut self, cluster: u32) {
        let clock = self.clock.now();
        let stands =
            |place: &Place, limit| place.ready.is_some_and(|r| r.since.elapsed(clock) >= limit);
        // One that has reached no other gateway for so long, though there are some, may be with a
        // node that has no way to them. Those of later clusters wait longer, so that not all move
        // at once.
        let alone_for = Duration::from_millis(self.spec.timing.intervals.limits.gateway_alone_ms);
        let place = &self.gateways.places[cluster as usize];
        if place.carried.connections > 0 || !stands(place, alone_for * (cluster + 1)) {
            return;
        }
        let others = (0u32..).zip(&self.gateways.places).filter(|(c, _)| *c != cluster);
        let alone = !others.into_iter().any(|(_, other)| stands(other, alone_for));
        if !alone && place.slot.may_lack_a_way(&self.candidates(cluster)) {
            let why = "it reaches no other gateway, and another node may";
            self.take_down(cluster, SlotEnd::Failed, Some(why));
        }
    }

    /// A gateway's process has ended.
    pub(crate) fn gateway_gone(&mut self, cluster: u32, number: u64) {
        if self.is_current(cluster, number)
            && self.gateways.places[cluster as usize].process.take().is_some()
        {
            let why = self.outside.launcher.bury_gateway(cluster);
            self.gateway_over(cluster, &why);
        }
    }

    /// It had time enough to listen.
    pub(crate) fn gateway_late(&mut self, cluster: u32, number: u64) {
        let place = self.gateways.places.get(cluster as usize);
        if place.is_some_and(|p| p.ready.is_none()) && self.is_current(cluster, number) {
            let why = format!("it does not listen after {:?}", self.joining_limit());
            self.take_down(cluster, SlotEnd::Failed, Some(&why));
        }
    }

    /// It is there no more: another one is to be.
    fn gateway_over(&mut self, cluster: u32, why: &str) {
        let clock = self.clock.now();
        if self.end.exit_code.is_some() {
            return;
        }
        self.tell_gateway_lost(cluster, Some(why));
        let place = &mut self.gateways.places[cluster as usize];
        let lived = place.began.map_or(Duration::ZERO, |at| at.elapsed(clock));
        let pause = place.slot.over(SlotEnd::Died(lived));
        self.complain(cluster, why);
        self.arm(pause, Timer::GatewayDue { cluster });
    }

    /// The node that a gateway is with is lost, or has been dismissed.
    fn gateway_moves(&mut self, cluster: u32, node: u32) {
        let lost = self.nodes.all.get(node as usize).is_some_and(|n| !n.left);
        let why = match lost {
            false => None,
            true => Some(format!("{} is lost", self.nodes.node_name(node))),
        };
        self.take_down(cluster, SlotEnd::Moved, why.as_deref());
    }

    /// Ends a gateway, in order if there is no reason `why` not to; the next one starts when it is
    /// gone, or does not go.
    fn take_down(&mut self, cluster: u32, end: SlotEnd, why: Option<&str>) {
        let place = &mut self.gateways.places[cluster as usize];
        place.slot.ends(end);
        place.process = None;
        self.tell_gateway_lost(cluster, why);
        why.filter(|_| end != SlotEnd::Moved)
            .into_iter()
            .for_each(|why| self.complain(cluster, why));
        self.outside.launcher.end_gateway(cluster, why.is_some());
    }

    /// One that was taken down is gone.
    pub(crate) fn gateway_ended(&mut self, cluster: u32) {
        let place = &mut self.gateways.places[cluster as usize];
        let node = place.slot.leaves();
        let pause = place.slot.ended();
        match pause.is_zero() {
            true => self.gateway_due(cluster),
            false => self.arm(pause, Timer::GatewayDue { cluster }),
        }
        let cleared = |node: &u32| self.nodes.all.get(*node as usize).is_some_and(|n| n.cleared);
        if let Some(node) = node.filter(cleared) {
            self.seen_off(node);
        }
    }

    /// A gateway that listened does so no more. Without a reason `why` that is in order.
    fn tell_gateway_lost(&mut self, cluster: u32, why: Option<&str>) {
        let clock = self.clock.now();
        let place = &mut self.gateways.places[cluster as usize];
        let listened = place.ready.take().is_some();
        let name = self.cluster_name(cluster);
        if listened {
            self.gateways.places[cluster as usize].lost = Some(clock.moment());
            if let Some(why) = why {
                let mut event = self.clock.event(EventKind::GatewayLost);
                event.text = format!("of {name}: {why}");
                self.journal.log_event(event);
            }
            self.tell_clusters();
        }
        match why {
            Some(why) => tracing::warn!("the gateway of {name}: {why}"),
            None => tracing::info!("the gateway of {name} moves: its node leaves the job"),
        }
    }

    /// Says, now and then, that none comes up.
    fn complain(&self, cluster: u32, why: &str) {
        if let Some(count) = self.gateways.places[cluster as usize].slot.complaint() {
            let name = self.cluster_name(cluster);
            self.journal.say(format!(
                "no gateway of {name} comes up, after {count} attempts: {why}; its nodes are \
                 tried on, in turn, and do not reach other clusters until then"
            ));
        }
    }

    pub(crate) fn gateway_due(&mut self, cluster: u32) {
        self.gateways.places[cluster as usize].slot.is_due();
        self.tend_gateways();
    }

    /// Tells gateways of each other.
    fn tell_gates(&self) {
        let gate = |(cluster, place): (u32, &Place)| {
            let (at, number) = (place.ready?.outside, self.number(cluster));
            Some(Gate { cluster, number, at })
        };
        let gates: Vec<Gate> = (0u32..).zip(&self.gateways.places).filter_map(gate).collect();
        for cluster in 0..self.gateways.places.len() as u32 {
            self.tell_gateway(cluster, ToGateway::Gates(gates.clone()));
        }
    }

    /// Tells the gateway of a cluster something, if there is one.
    pub(crate) fn tell_gateway(&self, cluster: u32, order: ToGateway) {
        let place = self.gateways.places.get(cluster as usize);
        if place.is_some_and(|place| place.process.is_some()) {
            self.outside.launcher.tell_gateway(cluster, order);
        }
    }

    /// Tells nodes which cluster each is in, and where their own gateway is.
    pub(crate) fn tell_clusters(&self) {
        if self.gateways.places.is_empty() {
            return;
        }
        let of: Vec<u32> = (0..self.nodes.all.len() as u32)
            .map(|node| self.spec.placement.clusters.of(node))
            .collect();
        for (node, n) in self.nodes.all.iter().enumerate() {
            let gateway = self.gateways.places[of[node] as usize].ready.map(|r| r.inside);
            n.send(ToNode::Clusters { of: of.clone(), gateway });
        }
        self.tell_gateways_of_nodes();
    }

    /// The gateway of a cluster, as its nodes reach it: which start of it, and where.
    pub(crate) fn gate_inside(&self, cluster: u32) -> Option<(u64, SocketAddr)> {
        let ready = self.gateways.places.get(cluster as usize)?.ready?;
        Some((self.number(cluster), ready.inside))
    }

    pub(crate) fn cluster_name(&self, cluster: u32) -> String {
        match self.spec.placement.clusters.names.get(cluster as usize) {
            Some(name) => format!("cluster {name}"),
            None => format!("cluster {cluster}"),
        }
    }

    /// Kills gateways, as a fault would.
    pub fn inject_gateways(&mut self, clusters: &[u32]) -> Result<(), String> {
        if self.gateways.places.is_empty() {
            return Err("the job has one cluster and no gateway: start it with --clusters".into());
        }
        let absent =
            |c: &&u32| self.gateways.places.get(**c as usize).is_none_or(|g| g.process.is_none());
        if let Some(cluster) = clusters.iter().find(absent) {
            let count = self.gateways.places.len();
            return Err(format!(
                "cluster {cluster} has no gateway now (clusters: 0 to {})",
                count - 1
            ));
        }
        for cluster in clusters {
            let mut event = self.clock.event(EventKind::Injected);
            event.text = format!("SIGKILL of the gateway of {}", self.cluster_name(*cluster));
            self.journal.log_event(event);
        }
        clusters.iter().for_each(|cluster| self.outside.launcher.kill_gateway(*cluster));
        Ok(())
    }

    /// The job is over: its gateways are ended by who drives it.
    pub fn take_gateways(&mut self) {
        self.gateways.places.iter_mut().for_each(|place| place.process = None);
    }

    pub(crate) fn cluster_status(&self) -> Vec<ClusterStatus> {
        let status = |(cluster, place): (u32, &Place)| ClusterStatus {
            name: self.spec.placement.clusters.names[cluster as usize].clone(),
            nodes: (0..self.nodes.all.len() as u32)
                .filter(|node| self.spec.placement.clusters.of(*node) == cluster)
                .collect(),
            gateway: GatewayStatus {
                state: match (&place.process, &place.ready) {
                    (Some(_), Some(_)) => "live",
                    _ if place.slot.is_retired() => "ended",
                    _ if place.lost.is_some() => "lost",
                    _ => "starting",
                }
                .to_string(),
                node: place.slot.node().filter(|node| *node != HUB),
                host: place.process.as_ref().and_then(|p| p.host.clone()),
                pid: place.ready.map(|r| r.pid),
                starts: place.starts,
                inside: place.ready.map(|r| r.inside.to_string()),
                outside: place.ready.map(|r| r.outside.to_string()),
                carried: place.carried,
            },
            blocked: self.blocked_status(cluster, place),
        };
        (0u32..).zip(&self.gateways.places).map(status).collect()
    }
}
