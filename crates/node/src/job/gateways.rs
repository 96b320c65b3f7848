//! The gateways of a job with several clusters: started, watched, and started again; who is where
//! is told to nodes and gateways.
//!
//! Kept true: a gateway that is gone is a pause, never a loss: nodes make their connections again
//! through the next one. Gateways end with their controller; the next one starts others. That of a
//! cluster whose last node has left ends, too, until a node joins there.

use super::nodes::State;
use super::{Job, Msg, Node};
use crate::crew::Gateway;
use crate::pipes;
use eyrie_control::gateway::{Carried, ClusterStatus, FromGateway, Gate, GatewayStatus, ToGateway};
use eyrie_control::{EventKind, ToNode};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::Interest;

/// Least time for a gateway to say that it listens.
const JOINING: Duration = Duration::from_secs(60);
/// One that ends within this time of its start is started again only after a pause.
const SHORT: Duration = Duration::from_secs(1);
/// First and longest of these pauses.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];
/// After so many in a row that ended before they listened the job is given up.
const SHORT_LIVED: u32 = 10;

/// One cluster's.
#[derive(Default)]
pub(super) struct Place {
    /// How often it was started by this controller.
    starts: u64,
    process: Option<Gateway>,
    began: Option<Instant>,
    ready: Option<Ready>,
    carried: Carried,
    /// Since when it is gone.
    lost: Option<Instant>,
    /// How often it ended shortly, and without having listened, in a row.
    short: u32,
    unborn: u32,
    /// It is to be started.
    due: bool,
    /// Its cluster has no nodes any more.
    retired: bool,
}

#[derive(Clone, Copy)]
struct Ready {
    pid: u32,
    inside: SocketAddr,
    outside: SocketAddr,
}

impl Job {
    /// Starts the gateways, if there are to be some.
    pub fn begin_gateways(&mut self) {
        self.gateways.resize_with(self.spec.clusters.count() as usize, Place::default);
        self.gateways.iter_mut().for_each(|g| g.due = true);
        self.tend_gateways();
    }

    /// Starts those that are due, unless a lost node is just cleared away: what that leaves is
    /// told from what is wanted by who was there before.
    pub(super) fn tend_gateways(&mut self) {
        let clearing = |n: &Node| n.state == State::Lost && !n.cleared && n.host().is_none();
        if self.exit_code.is_some() || self.nodes.iter().any(clearing) {
            return;
        }
        for cluster in 0..self.gateways.len() as u32 {
            if std::mem::take(&mut self.gateways[cluster as usize].due) {
                self.start_gateway(cluster);
            }
        }
    }

    /// This start of a gateway, by a number that no other has.
    fn number(&self, cluster: u32) -> u64 {
        self.reign() << 32 | self.gateways[cluster as usize].starts
    }

    fn is_current(&self, cluster: u32, number: u64) -> bool {
        let known = self.gateways.get(cluster as usize).is_some_and(|g| g.process.is_some());
        known && self.number(cluster) == number
    }

    /// Whether the last node of a cluster has left.
    fn is_left(&self, cluster: u32) -> bool {
        let of = |n: &(u32, &Node)| self.spec.clusters.of(n.0) == cluster;
        let nodes = || (0u32..).zip(&self.nodes).filter(of);
        nodes().all(|(_, n)| n.state == State::Lost) && nodes().any(|(_, n)| n.left)
    }

    /// Ends the gateways of clusters whose last node has left.
    pub(super) fn retire_gateways(&mut self) {
        for cluster in 0..self.gateways.len() as u32 {
            if self.gateways[cluster as usize].retired || !self.is_left(cluster) {
                continue;
            }
            let place = &mut self.gateways[cluster as usize];
            (place.retired, place.ready, place.lost, place.due) = (true, None, None, false);
            if let Some(gateway) = place.process.take() {
                // It may take a while.
                tokio::task::spawn_blocking(move || gateway.dismiss());
            }
            let name = self.cluster_name(cluster);
            tracing::info!("the last node of {name} has left: its gateway ends");
            self.tell_gates();
            self.tell_clusters();
        }
    }

    /// A node has joined: its cluster is to have a gateway.
    pub(super) fn gateway_for(&mut self, node: u32) {
        let cluster = self.spec.clusters.of(node) as usize;
        if let Some(place) = self.gateways.get_mut(cluster).filter(|p| p.retired) {
            (place.retired, place.due) = (false, true);
            self.tend_gateways();
        }
    }

    fn start_gateway(&mut self, cluster: u32) {
        if self.is_left(cluster) {
            self.gateways[cluster as usize].retired = true;
            return;
        }
        self.gateways[cluster as usize].starts += 1;
        let number = self.number(cluster);
        let on = |n: &(u32, &Node)| self.spec.clusters.of(n.0) == cluster;
        let nodes = || (0u32..).zip(&self.nodes).filter(on);
        let live = nodes().find(|(_, n)| n.state != State::Lost);
        let Some((node, _)) = live.or_else(|| nodes().next()) else { return };
        let tell = self.tell.clone();
        let hear = move |said| drop(tell.send(Msg::GatewaySaid { cluster, number, said }));
        let Some(crew) = &self.crew else { return };
        let started = crew.start_gateway((cluster, number), node, hear).and_then(|gateway| {
            Ok((pipes::watch(gateway.pidfd.try_clone()?, Interest::READABLE)?, gateway))
        });
        let place = &mut self.gateways[cluster as usize];
        (place.began, place.carried) = (Some(Instant::now()), Carried::default());
        let (pidfd, gateway) = match started {
            Ok(started) => started,
            Err(error) => return self.gateway_over(cluster, &format!("not started: {error}")),
        };
        place.process = Some(gateway);
        let (tell, limit) = (self.tell.clone(), self.joining_limit());
        tokio::task::spawn_local(async move {
            if pidfd.readable().await.is_ok() {
                let _ = tell.send(Msg::GatewayGone { cluster, number });
            }
        });
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(limit).await;
            let _ = tell.send(Msg::GatewayLate { cluster, number });
        });
    }

    fn joining_limit(&self) -> Duration {
        let hosts = self.spec.hosts.as_ref().map_or(0, |h| h.join_ms);
        Duration::from_millis(hosts).max(JOINING)
    }

    /// A gateway says something.
    pub(super) fn gateway_said(&mut self, cluster: u32, number: u64, said: FromGateway) {
        if !self.is_current(cluster, number) {
            return;
        }
        let place = &mut self.gateways[cluster as usize];
        match said {
            FromGateway::Carried(carried) => place.carried = carried,
            FromGateway::Ready { pid, inside, outside } => {
                place.ready = Some(Ready { pid, inside, outside });
                place.unborn = 0;
                if let Some(lost) = place.lost.take() {
                    let mut event = self.event(EventKind::GatewayBack);
                    event.took_ms = Some(lost.elapsed().as_secs_f64() * 1e3);
                    event.text = format!("of {}, pid {pid}", self.cluster_name(cluster));
                    self.log_event(event);
                }
                self.tell_gates();
                self.tell_clusters();
            }
        }
    }

    /// A gateway's process has ended.
    pub(super) fn gateway_gone(&mut self, cluster: u32, number: u64) {
        if self.is_current(cluster, number)
            && let Some(gateway) = self.gateways[cluster as usize].process.take()
        {
            let why = gateway.bury();
            self.gateway_over(cluster, &why);
        }
    }

    /// It had time enough to listen.
    pub(super) fn gateway_late(&mut self, cluster: u32, number: u64) {
        let place = self.gateways.get(cluster as usize);
        if place.is_some_and(|p| p.ready.is_none()) && self.is_current(cluster, number) {
            self.gateways[cluster as usize].process.iter().for_each(Gateway::kill);
        }
    }

    /// There is none: another one is to be.
    fn gateway_over(&mut self, cluster: u32, why: &str) {
        if self.exit_code.is_some() {
            return;
        }
        let name = self.cluster_name(cluster);
        let place = &mut self.gateways[cluster as usize];
        let listened = place.ready.take().is_some();
        place.unborn += 1;
        if place.unborn >= SHORT_LIVED {
            return self.fatal(format!("no gateway of {name} stays: {why}"));
        }
        let short = place.began.is_some_and(|at| at.elapsed() < SHORT);
        place.short = if short { place.short + 1 } else { 0 };
        let pause = PAUSE[1].min(PAUSE[0] * 2u32.pow(place.short.min(16)));
        if listened {
            place.lost = Some(Instant::now());
            let mut event = self.event(EventKind::GatewayLost);
            event.text = format!("of {name}: {why}");
            self.log_event(event);
            self.tell_clusters();
        } else {
            tracing::warn!("the gateway of {name}: {why}");
        }
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(pause).await;
            let _ = tell.send(Msg::GatewayDue { cluster });
        });
    }

    pub(super) fn gateway_due(&mut self, cluster: u32) {
        self.gateways[cluster as usize].due = true;
        self.tend_gateways();
    }

    /// Tells gateways of each other.
    fn tell_gates(&self) {
        let gate = |(cluster, place): (u32, &Place)| {
            let (at, number) = (place.ready?.outside, self.number(cluster));
            Some(Gate { cluster, number, at })
        };
        let gates: Vec<Gate> = (0u32..).zip(&self.gateways).filter_map(gate).collect();
        for gateway in self.gateways.iter().filter_map(|g| g.process.as_ref()) {
            gateway.tell(ToGateway::Gates(gates.clone()));
        }
    }

    /// Tells nodes which cluster each is in, and where their own gateway is.
    pub(super) fn tell_clusters(&self) {
        if self.gateways.is_empty() {
            return;
        }
        let of: Vec<u32> =
            (0..self.nodes.len() as u32).map(|node| self.spec.clusters.of(node)).collect();
        for (node, n) in self.nodes.iter().enumerate() {
            let gateway = self.gateways[of[node] as usize].ready.map(|r| r.inside);
            n.send(ToNode::Clusters { of: of.clone(), gateway });
        }
    }

    fn cluster_name(&self, cluster: u32) -> String {
        match self.spec.clusters.names.get(cluster as usize) {
            Some(name) => format!("cluster {name}"),
            None => format!("cluster {cluster}"),
        }
    }

    /// Processes that are no node's.
    pub(super) fn gateway_pids(&self) -> impl Iterator<Item = libc::pid_t> + '_ {
        self.gateways.iter().filter_map(|g| Some(g.process.as_ref()?.pid))
    }

    /// Kills gateways, as a fault would.
    pub fn inject_gateways(&mut self, clusters: &[u32]) -> Result<(), String> {
        if self.gateways.is_empty() {
            return Err("the job has one cluster and no gateway: start it with --clusters".into());
        }
        let absent = |c: &&u32| self.gateways.get(**c as usize).is_none_or(|g| g.process.is_none());
        if let Some(cluster) = clusters.iter().find(absent) {
            let count = self.gateways.len();
            return Err(format!(
                "cluster {cluster} has no gateway now (clusters: 0 to {})",
                count - 1
            ));
        }
        for cluster in clusters {
            let mut event = self.event(EventKind::Injected);
            event.text = format!("SIGKILL of the gateway of {}", self.cluster_name(*cluster));
            self.log_event(event);
        }
        let all = clusters.iter().filter_map(|c| self.gateways[*c as usize].process.as_ref());
        all.for_each(Gateway::kill);
        Ok(())
    }

    /// The gateways, to be ended: the job is over.
    pub fn take_gateways(&mut self) -> Vec<Gateway> {
        self.gateways.iter_mut().filter_map(|g| g.process.take()).collect()
    }

    pub(super) fn cluster_status(&self) -> Vec<ClusterStatus> {
        let status = |(cluster, place): (u32, &Place)| ClusterStatus {
            name: self.spec.clusters.names[cluster as usize].clone(),
            nodes: (0..self.nodes.len() as u32)
                .filter(|node| self.spec.clusters.of(*node) == cluster)
                .collect(),
            gateway: GatewayStatus {
                state: match (&place.process, &place.ready) {
                    (Some(_), Some(_)) => "live",
                    _ if place.retired => "ended",
                    _ if place.lost.is_some() => "lost",
                    _ => "starting",
                }
                .to_string(),
                host: place.process.as_ref().and_then(|p| p.host.clone()),
                pid: place.ready.map(|r| r.pid),
                starts: place.starts,
                inside: place.ready.map(|r| r.inside.to_string()),
                outside: place.ready.map(|r| r.outside.to_string()),
                carried: place.carried,
            },
        };
        (0u32..).zip(&self.gateways).map(status).collect()
    }
}
