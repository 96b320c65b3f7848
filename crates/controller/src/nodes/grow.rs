//! Nodes that join a job while it runs.
//!
//! Kept true: a node that does not come up is given up, and never ends the job; one that does is a
//! spare until ranks need it.

use crate::nodes::membership::Nodes;
use crate::nodes::model::{Awaited, Spot, State};
use crate::outside::{ClientHandle, Daemon};
use crate::timers::Timer;
use crate::{Job, Node, journal};
use eyrie_control::NodeMsg;
use eyrie_control::message::Host;
use eyrie_control::node::ToNode;
use eyrie_protocol::recovery::Input;
use eyrie_state::units;
use std::io;
use std::time::Duration;

/// Most nodes that a job may have had: their addresses end there (`netns`).
const MAX_NODES: u32 = 250;

impl Nodes {
    /// Tells whoever waits for the node.
    pub fn answer_joined(&mut self, node: u32, answer: &NodeMsg) {
        for awaited in &mut self.awaited {
            let before = awaited.nodes.len();
            awaited.nodes.retain(|n| *n != node);
            if awaited.nodes.len() < before {
                awaited.client.send(answer);
            }
        }
        self.answer_awaiting();
    }

    pub fn answer_awaiting(&mut self) {
        self.awaited.iter().filter(|a| a.nodes.is_empty()).for_each(|a| {
            a.client.send(&NodeMsg::Done);
        });
        self.awaited.retain(|a| !a.nodes.is_empty() && !a.client.is_closed());
    }
}

impl Job {
    /// Starts so many more nodes, without ranks. `Joined` follows for each, then `Done`.
    pub fn grow(
        &mut self,
        count: u32,
        cluster: Option<&str>,
        client: ClientHandle,
    ) -> Result<(), String> {
        if self.spec.placement.hosts.is_some() {
            return Err(
                "the job is over --hosts: say which are to join, eyrie grow JOB HOST".into()
            );
        }
        self.may_grow(count)?;
        let cluster = cluster.map(|name| self.cluster_to_join(name)).transpose()?;
        let spot = Spot { host: None, cluster, domain: None };
        self.add_nodes(vec![spot; count as usize], client);
        Ok(())
    }

    /// Starts nodes on these hosts, without ranks, each in one of the job's `clusters`, if it has
    /// several, and in one of the `domains`, if that is said. Answered as `grow` is.
    pub fn grow_hosts(
        &mut self,
        hosts: Vec<Host>,
        (clusters, domains): (&[String], &[String]),
        client: ClientHandle,
    ) -> Result<(), String> {
        if self.spec.placement.hosts.is_none() {
            return Err("the job is not over --hosts: eyrie grow JOB --nodes K".into());
        }
        let names = &self.spec.placement.clusters.names;
        if clusters.len() != if names.is_empty() { 0 } else { hosts.len() } {
            return Err(match names.is_empty() {
                true => String::from("the job has no clusters to tell apart: leave cluster= out"),
                false => format!(
                    "the job has several clusters ({}): say which one each host is in, eyrie grow \
                     JOB HOST cluster=NAME",
                    names.join(", ")
                ),
            });
        }
        self.domains_to_join(domains, hosts.len())?;
        let clusters: Vec<u32> =
            clusters.iter().map(|name| self.cluster_to_join(name)).collect::<Result<_, _>>()?;
        self.may_grow(hosts.len() as u32)?;
        let live = |h: &Host| {
            self.nodes
                .all
                .iter()
                .any(|n| n.state != State::Lost && n.host() == Some(h.name.as_str()))
        };
        if let Some(host) = hosts.iter().find(|h| live(h)) {
            return Err(format!("host {} is in the job already", host.name));
        }
        let clusters = clusters.into_iter().map(Some).chain(std::iter::repeat(None));
        let domains = domains.iter().cloned().map(Some).chain(std::iter::repeat(None));
        let spots = hosts.into_iter().zip(clusters).zip(domains);
        let spot = |((host, cluster), domain)| Spot { host: Some(host), cluster, domain };
        self.add_nodes(spots.map(spot).collect(), client);
        Ok(())
    }

    /// Domains are told apart if those of the hosts were that the job began with.
    fn domains_to_join(&self, domains: &[String], hosts: usize) -> Result<(), String> {
        if domains.is_empty() {
            return Ok(());
        }
        if self.spec.storage.manner.domains.is_empty() {
            let text = "the job does not know what its hosts fail together with, as none had \
                        domain= when it began: leave domain= out";
            return Err(text.into());
        }
        match domains.len() == hosts && domains.iter().all(|name| !name.is_empty()) {
            true => Ok(()),
            false => Err("name the domain of each host, or of none".into()),
        }
    }

    /// One of the job's clusters. There are no others: who is in which one when the job begins
    /// decides what gateways there are, and with `--ft cluster` what goes back together.
    fn cluster_to_join(&self, name: &str) -> Result<u32, String> {
        let names = &self.spec.placement.clusters.names;
        if names.is_empty() {
            return Err("the job has no clusters to tell apart: leave the cluster out".into());
        }
        let found = names.iter().position(|known| known == name);
        found.map(|cluster| cluster as u32).ok_or_else(|| {
            let known = names.join(", ");
            format!("the job has no cluster {name}, and gets none while it runs; it has: {known}")
        })
    }

    fn may_grow(&self, count: u32) -> Result<(), String> {
        if !self.many() {
            let text = "the job has one node and cannot grow: start it with --nodes 1 or more";
            return Err(text.into());
        }
        if !self.recovery.planned || !self.recovery.monitor.running() {
            return Err("the job is just starting or ending: ask again".into());
        }
        let had = self.nodes.all.len() as u32;
        if count == 0 || had.saturating_add(count) > MAX_NODES {
            let most = MAX_NODES.saturating_sub(had);
            return Err(format!("a job may have had {MAX_NODES} nodes: ask for 1 to {most} more"));
        }
        Ok(())
    }

    /// Starts a node in each place.
    fn add_nodes(&mut self, places: Vec<Spot>, client: ClientHandle) {
        let epochs = self.nodes.epoch + 1..;
        self.nodes.epoch += places.len() as u64;
        // Another controller must not give them again.
        self.end_turn();
        let mut nodes = Vec::new();
        for (Spot { host, cluster, domain }, epoch) in places.into_iter().zip(epochs) {
            let node = self.nodes.all.len() as u32;
            cluster.into_iter().for_each(|cluster| self.put_node(node, cluster));
            self.put_in_domain(node, domain, host.as_ref());
            match self.start_node(node, epoch, host) {
                Ok(daemon) => {
                    self.nodes.all.push(daemon.map_or_else(|| Node::later(epoch), Node::there));
                    self.arm_late(node, epoch);
                    nodes.push(node);
                }
                Err(error) => {
                    let reason = format!("its daemon cannot be started: {error}");
                    client.send(&NodeMsg::NotJoined { node, reason });
                    break;
                }
            }
        }
        if let Some(head) = &mut self.journal.head {
            // Another controller is to listen, and to call hosts, as this one does.
            let (hosts, addresses) =
                (self.outside.launcher.hosts(), self.outside.launcher.addresses());
            (head.spec.placement.hosts, head.addresses) = (hosts.clone(), addresses);
            head.spec.placement.clusters = self.spec.placement.clusters.clone();
            head.spec.storage.manner.domains = self.spec.storage.manner.domains.clone();
            self.spec.placement.hosts = hosts;
            let head = head.clone();
            self.journal.note(|| journal::Entry::Head(Box::new(head)));
        }
        // The archive is to be reached wherever the controller is.
        if self.saving.archive.is_open()
            && let Err(error) = self.open_archive()
        {
            tracing::warn!(%error, "the archive is not open to all nodes");
        }
        self.nodes.awaited.push(Awaited { nodes, client });
        self.nodes.answer_awaiting();
        self.tend_gateways();
    }

    /// A node that is to be started is in that cluster: who is in the job, and what plans for it,
    /// hears of that before it joins.
    fn put_node(&mut self, node: u32, cluster: u32) {
        self.spec.placement.clusters.put(node, cluster);
        let of = self.spec.placement.clusters.of.clone();
        self.outside.launcher.place(of.clone());
        self.plan(Input::Places { of });
    }

    /// A node that is to be started fails together with the others of a domain, if domains are told
    /// apart. A host that was in the job is where it was; all others, if nothing is said, are in
    /// one.
    fn put_in_domain(&mut self, node: u32, domain: Option<String>, host: Option<&Host>) {
        let known = &self.spec.storage.manner.domains;
        if known.is_empty() {
            return;
        }
        let name = host.map(|host| host.name.as_str());
        let was = self.nodes.all.iter().rposition(|n| name.is_some() && n.host() == name);
        let was = was.map(|node| self.spec.storage.manner.domain(node as u32).to_string());
        let mut names = known.clone();
        names.resize(node as usize, String::new());
        names.push(domain.or(was).unwrap_or_default());
        self.spec.storage.manner.domains.clone_from(&names);
        self.outside.launcher.set_domains(names);
        self.plan(Input::Domains { of: units::domains(&self.spec) });
    }

    /// Tells nodes what each fails together with, if some have joined since they began.
    pub(crate) fn tell_domains(&self) {
        let names = &self.spec.storage.manner.domains;
        if names.len() > (self.spec.placement.nodes + self.spec.placement.spares) as usize {
            self.nodes.all.iter().for_each(|n| n.send(ToNode::Domains { names: names.clone() }));
        }
    }

    /// None: it waits for its gateway.
    fn start_node(
        &mut self,
        node: u32,
        epoch: u64,
        host: Option<Host>,
    ) -> io::Result<Option<Daemon>> {
        let (behind, gateway) =
            (self.spec.placement.clusters.is_behind(node), self.gateway_of(node));
        if let Some(host) = host {
            self.outside.launcher.welcome_host(node, host)?;
        }
        if behind && gateway.is_none() {
            return Ok(None);
        }
        self.outside.launcher.start_daemon(node, epoch, gateway).map(Some)
    }

    /// Hosts have so much time to join.
    pub(crate) fn arm_late(&mut self, node: u32, epoch: u64) {
        let Some(hosts) = &self.spec.placement.hosts else { return };
        self.arm(Duration::from_millis(hosts.join_ms), Timer::LateNode { node, epoch });
    }

    /// The time for a node to join is over.
    pub(crate) fn late_over(&mut self, node: u32, epoch: u64) {
        let awaited = |n: &&Node| n.state == State::Joining && n.starts_with() == epoch;
        let Some(n) = self.nodes.all.get(node as usize).filter(awaited) else { return };
        if self.recovery.planned {
            // None, if it still waits for its gateway.
            let called = n.called();
            let seconds = self.spec.placement.hosts.as_ref().map_or(0, |h| h.join_ms) as f64 / 1e3;
            self.node_gone(node, called, &format!("it did not join within {seconds} s"));
        }
    }

    /// A node has joined after the job had begun.
    pub(crate) fn joined_late(&mut self, node: u32) {
        self.plan(Input::Joined { member: self.nodes.member(node), spare: true });
        self.is_spare(node);
        self.nodes.answer_joined(node, &NodeMsg::NodeJoined { node });
    }

    /// Whether a node was not among those that the job began with.
    pub(crate) fn is_late(&self, node: u32) -> bool {
        node >= self.spec.placement.nodes + self.spec.placement.spares
    }

    /// A node that was to join is gone before it had. Tells whether it was one of these.
    pub(crate) fn lost_late(&mut self, node: u32, why: &str) -> bool {
        let late = self.is_late(node);
        if late {
            self.nodes.answer_joined(node, &NodeMsg::NotJoined { node, reason: why.to_string() });
        }
        late
    }
}
