//! Nodes that join a job while it runs.
//!
//! Kept true: a node that does not come up is given up, and never ends the job; one that does is a
//! spare until ranks need it.

use super::journal;
use super::nodes::State;
use super::{Job, Msg, Node};
use crate::crew::{Crew, Daemon};
use crate::home;
use crate::monitor::signal_name;
use crate::outlet::Outlet;
use crate::pipes;
use crate::reap;
use crate::recovery::Input;
use crate::units;
use eyrie_control::message::Host;
use eyrie_control::node::ToNode;
use eyrie_control::{Death, NodeMsg};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::mpsc::UnboundedSender;

/// Most nodes that a job may have had: their addresses end there (`netns`).
const MAX_NODES: u32 = 250;
/// Most of a log that a daemon's last word is looked for in.
const MOST_LOG_BYTES: u64 = 1 << 20;

/// Where a node is to be: on which host, or here; in which cluster, or in each in turn; and what it
/// fails together with, if that was said.
#[derive(Clone)]
struct Spot {
    host: Option<Host>,
    cluster: Option<u32>,
    domain: Option<String>,
}

/// Somebody who waits for nodes that are to join.
pub(super) struct Awaited {
    nodes: Vec<u32>,
    outlet: Outlet,
}

/// Starts the daemon of a node, which may reach the controller through a gateway, and has its end
/// reported.
pub(crate) fn start_daemon(
    crew: &Crew,
    (node, epoch): (u32, u64),
    gateway: Option<(u64, SocketAddr)>,
    tell: &UnboundedSender<Msg>,
) -> io::Result<Daemon> {
    let log = (crew.folder.join(home::LOG), crew.log_bytes());
    let daemon = crew.start(node, epoch, gateway)?;
    let pidfd = pipes::watch(daemon.pidfd.try_clone()?, Interest::READABLE)?;
    let (tell, guest, end) = (tell.clone(), daemon.guest(), Arc::clone(&daemon.pidfd));
    tokio::task::spawn_local(async move {
        if pidfd.readable().await.is_err() {
            return;
        }
        let why = match guest {
            Some(guest) => tokio::task::spawn_blocking(move || guest.why()).await.ok(),
            None => None,
        };
        let why = why.unwrap_or_else(|| why_ended(&end, &log));
        let _ = tell.send(Msg::Gone { node, epoch, why });
    });
    Ok(daemon)
}

/// Why a daemon of this machine has ended: its last word, in what was written to the log since it
/// was started, or how it ended.
fn why_ended(pidfd: &OwnedFd, (log, from): &(PathBuf, u64)) -> String {
    let said = File::open(log).and_then(|mut log| {
        let mut bytes = Vec::new();
        log.seek(SeekFrom::Start(*from))?;
        log.take(MOST_LOG_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    });
    let said = said.unwrap_or_default();
    let words = said.lines().rev().find_map(|line| line.strip_prefix("eyrie: "));
    match (reap::peek(pidfd), words) {
        (Ok(Some(Death::Signal(signal))), _) => {
            format!("its daemon died of {}", signal_name(signal))
        }
        (_, Some(words)) => format!("its daemon ended: {words}"),
        (Ok(Some(Death::Exit(code))), None) => format!("its daemon ended with code {code}"),
        _ => String::from("its daemon ended"),
    }
}

impl Job {
    /// Nodes are started by this crew.
    pub fn employ(&mut self, crew: Crew) {
        self.crew = Some(crew);
    }

    /// Starts so many more nodes, without ranks. `Joined` follows for each, then `Done`.
    pub fn grow(
        &mut self,
        count: u32,
        cluster: Option<&str>,
        outlet: Outlet,
    ) -> Result<(), String> {
        if self.spec.hosts.is_some() {
            return Err(
                "the job is over --hosts: say which are to join, eyrie grow JOB HOST".into()
            );
        }
        self.may_grow(count)?;
        let cluster = cluster.map(|name| self.cluster_to_join(name)).transpose()?;
        let spot = Spot { host: None, cluster, domain: None };
        self.add_nodes(vec![spot; count as usize], outlet);
        Ok(())
    }

    /// Starts nodes on these hosts, without ranks, each in one of the job's `clusters`, if it has
    /// several, and in one of the `domains`, if that is said. Answered as `grow` is.
    pub fn grow_hosts(
        &mut self,
        hosts: Vec<Host>,
        (clusters, domains): (&[String], &[String]),
        outlet: Outlet,
    ) -> Result<(), String> {
        if self.spec.hosts.is_none() {
            return Err("the job is not over --hosts: eyrie grow JOB --nodes K".into());
        }
        let names = &self.spec.clusters.names;
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
            self.nodes.iter().any(|n| n.state != State::Lost && n.host() == Some(h.name.as_str()))
        };
        if let Some(host) = hosts.iter().find(|h| live(h)) {
            return Err(format!("host {} is in the job already", host.name));
        }
        let clusters = clusters.into_iter().map(Some).chain(std::iter::repeat(None));
        let domains = domains.iter().cloned().map(Some).chain(std::iter::repeat(None));
        let spots = hosts.into_iter().zip(clusters).zip(domains);
        let spot = |((host, cluster), domain)| Spot { host: Some(host), cluster, domain };
        self.add_nodes(spots.map(spot).collect(), outlet);
        Ok(())
    }

    /// Domains are told apart if those of the hosts were that the job began with.
    fn domains_to_join(&self, domains: &[String], hosts: usize) -> Result<(), String> {
        if domains.is_empty() {
            return Ok(());
        }
        if self.spec.manner.domains.is_empty() {
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
        let names = &self.spec.clusters.names;
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
        if self.crew.is_none() {
            let text = "the job has one node and cannot grow: start it with --nodes 1 or more";
            return Err(text.into());
        }
        if !self.planned || !self.monitor.running() {
            return Err("the job is just starting or ending: ask again".into());
        }
        let had = self.nodes.len() as u32;
        if count == 0 || had.saturating_add(count) > MAX_NODES {
            let most = MAX_NODES.saturating_sub(had);
            return Err(format!("a job may have had {MAX_NODES} nodes: ask for 1 to {most} more"));
        }
        Ok(())
    }

    /// Starts a node in each place.
    fn add_nodes(&mut self, places: Vec<Spot>, outlet: Outlet) {
        let epochs = self.epoch + 1..;
        self.epoch += places.len() as u64;
        // Another controller must not give them again.
        self.end_turn();
        let mut nodes = Vec::new();
        for (Spot { host, cluster, domain }, epoch) in places.into_iter().zip(epochs) {
            let node = self.nodes.len() as u32;
            cluster.into_iter().for_each(|cluster| self.put_node(node, cluster));
            self.put_in_domain(node, domain, host.as_ref());
            match self.start_node(node, epoch, host) {
                Ok(daemon) => {
                    self.nodes.push(daemon.map_or_else(|| Node::later(epoch), Node::there));
                    self.arm_late(node, epoch);
                    nodes.push(node);
                }
                Err(error) => {
                    let reason = format!("its daemon cannot be started: {error}");
                    outlet.send(&NodeMsg::NotJoined { node, reason });
                    break;
                }
            }
        }
        if let (Some(head), Some(crew)) = (&mut self.head, &self.crew) {
            // Another controller is to listen, and to call hosts, as this one does.
            (head.spec.hosts, head.addresses) = (crew.spec.hosts.clone(), crew.addresses.clone());
            head.spec.clusters = crew.spec.clusters.clone();
            head.spec.manner.domains = crew.spec.manner.domains.clone();
            self.spec.hosts = crew.spec.hosts.clone();
            let head = head.clone();
            self.note(|| journal::Entry::Head(Box::new(head)));
        }
        // The archive is to be reached wherever the controller is.
        if self.archive.is_open()
            && let Err(error) = self.open_archive()
        {
            tracing::warn!(%error, "the archive is not open to all nodes");
        }
        self.awaited.push(Awaited { nodes, outlet });
        self.answer_awaiting();
        self.tend_gateways();
    }

    /// A node that is to be started is in that cluster: who is in the job, and what plans for it,
    /// hears of that before it joins.
    fn put_node(&mut self, node: u32, cluster: u32) {
        self.spec.clusters.put(node, cluster);
        let of = self.spec.clusters.of.clone();
        self.crew.iter_mut().for_each(|crew| crew.place(of.clone()));
        self.plan(Input::Places { of });
    }

    /// A node that is to be started fails together with the others of a domain, if domains are told
    /// apart. A host that was in the job is where it was; all others, if nothing is said, are in
    /// one.
    fn put_in_domain(&mut self, node: u32, domain: Option<String>, host: Option<&Host>) {
        let known = &self.spec.manner.domains;
        if known.is_empty() {
            return;
        }
        let name = host.map(|host| host.name.as_str());
        let was = self.nodes.iter().rposition(|n| name.is_some() && n.host() == name);
        let was = was.map(|node| self.spec.manner.domain(node as u32).to_string());
        let mut names = known.clone();
        names.resize(node as usize, String::new());
        names.push(domain.or(was).unwrap_or_default());
        self.spec.manner.domains.clone_from(&names);
        self.crew.iter_mut().for_each(|crew| crew.set_domains(names.clone()));
        self.plan(Input::Domains { of: units::domains(&self.spec) });
    }

    /// Tells nodes what each fails together with, if some have joined since they began.
    pub(super) fn tell_domains(&self) {
        let names = &self.spec.manner.domains;
        if names.len() > (self.spec.nodes + self.spec.spares) as usize {
            self.nodes.iter().for_each(|n| n.send(ToNode::Domains { names: names.clone() }));
        }
    }

    /// None: it waits for its gateway.
    fn start_node(
        &mut self,
        node: u32,
        epoch: u64,
        host: Option<Host>,
    ) -> io::Result<Option<Daemon>> {
        let tell = self.tell.clone();
        let (behind, gateway) = (self.spec.clusters.is_behind(node), self.door_of(node));
        let crew = self.crew.as_mut().ok_or_else(|| io::Error::other("it has no nodes"))?;
        if let Some(host) = host {
            crew.welcome_host(node, host, &tell)?;
        }
        if behind && gateway.is_none() {
            return Ok(None);
        }
        start_daemon(crew, (node, epoch), gateway, &tell).map(Some)
    }

    /// Hosts have so much time to join.
    pub(super) fn arm_late(&self, node: u32, epoch: u64) {
        let Some(hosts) = &self.spec.hosts else { return };
        let (tell, limit) = (self.tell.clone(), Duration::from_millis(hosts.join_ms));
        tokio::task::spawn_local(async move {
            tokio::time::sleep(limit).await;
            let _ = tell.send(Msg::LateOver { node, epoch });
        });
    }

    /// The time for a node to join is over.
    pub(super) fn late_over(&mut self, node: u32, epoch: u64) {
        let awaited = |n: &&Node| n.state == State::Joining && n.starts_with() == epoch;
        let Some(n) = self.nodes.get(node as usize).filter(awaited) else { return };
        if self.planned {
            // None, if it still waits for its gateway.
            let called = n.called();
            let seconds = self.spec.hosts.as_ref().map_or(0, |h| h.join_ms) as f64 / 1e3;
            self.node_gone(node, called, &format!("it did not join within {seconds} s"));
        }
    }

    /// A node has joined after the job had begun.
    pub(super) fn joined_late(&mut self, node: u32) {
        self.plan(Input::Joined { member: self.member(node), spare: true });
        self.is_spare(node);
        self.answer_joined(node, &NodeMsg::NodeJoined { node });
    }

    /// Whether a node was not among those that the job began with.
    pub(super) fn is_late(&self, node: u32) -> bool {
        node >= self.spec.nodes + self.spec.spares
    }

    /// A node that was to join is gone before it had. Tells whether it was one of these.
    pub(super) fn lost_late(&mut self, node: u32, why: &str) -> bool {
        let late = self.is_late(node);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// What is told of a daemon that does this, as it writes to a log in which others have written.
    fn told(script: &str) -> String {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        log.write_all(b"eyrie: of another one\n").unwrap();
        let from = log.as_file().metadata().unwrap().len();
        let mut command = std::process::Command::new("sh");
        let append = File::options().append(true).open(log.path()).unwrap();
        command.args(["-c", script]).stderr(append);
        let mut child = command.spawn().unwrap();
        let pidfd = crate::spawn::pidfd(child.id() as libc::pid_t).unwrap();
        rustix::event::poll(
            &mut [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)],
            None,
        )
        .unwrap();
        let why = why_ended(&pidfd, &(log.path().to_path_buf(), from));
        child.wait().unwrap();
        why
    }

    #[test]
    fn a_daemon_that_does_not_come_up_gives_its_reason() {
        let says = "echo 2026 INFO >&2; echo 'eyrie: storage: No space left' >&2; exit 1";
        assert_eq!(told(says), "its daemon ended: storage: No space left");
        assert_eq!(told("exit 3"), "its daemon ended with code 3");
        assert_eq!(told("kill -9 $$"), "its daemon died of SIGKILL");
    }
}
