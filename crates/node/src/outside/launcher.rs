//! Daemons of nodes, gateways of clusters, and the archive's door: processes and sockets.

use eyrie_control::auth::Key;
use eyrie_control::gateway::{Silence, ToGateway};
use eyrie_control::message::{Host, Hosts};
use eyrie_control::node::DaemonRecord;
use eyrie_control::signals::signal_name;
use eyrie_control::{Death, Protection, Stored, ToNode};
use eyrie_controller::outside::{self, GatewaySite, Launcher, NodeLine};
use eyrie_controller::{Msg, Place};
use eyrie_exchange::second_level::Redirects;
use eyrie_exchange::store_protocol::Members;
use eyrie_ha::CutOff;
use eyrie_launcher::node_launcher::{
    Daemon, Gateway, NodeConnection, NodeEvent, NodeLauncher, Tell,
};
use eyrie_launcher::remote_node::RemoteNode;
use eyrie_process::{pipes, reap};
use eyrie_protocol::failure_detector::Patience;
use eyrie_protocol::session::Numbered;
use eyrie_state::home;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::io::Interest;
use tokio::sync::mpsc::UnboundedSender;

/// Most of a log that a daemon's last word is looked for in.
const MOST_LOG_BYTES: u64 = 1 << 20;

/// Has the controller told of nodes that call.
pub(crate) fn telling(tell: &UnboundedSender<Msg>) -> Tell {
    let tell = tell.clone();
    Tell::new(move |event| drop(tell.send(message(event))))
}

fn message(event: NodeEvent) -> Msg {
    match event {
        NodeEvent::Connected { node, epoch, wired } => {
            Msg::Connected { node, epoch, wired: Box::new(Line(wired)) }
        }
        NodeEvent::Framed { node, line, frame } => Msg::Framed { node, line, frame },
        NodeEvent::HungUp { node, epoch, line, why } => Msg::HungUp { node, epoch, line, why },
        NodeEvent::TurnedAway { why } => Msg::TurnedAway { why },
    }
}

/// A connection to a node.
struct Line(NodeConnection);

impl NodeLine for Line {
    fn number(&self) -> u64 {
        self.0.line
    }

    fn send(&self, frame: Numbered<ToNode>) {
        self.0.sender.send(frame);
    }

    fn hang_up(&self) {
        let _ = self.0.stream.shutdown(Shutdown::Both);
    }

    fn confirm(&self, heard: u64) {
        self.0.limits.confirm(heard);
    }

    fn take(&self) {
        self.0.limits.take();
    }

    fn set_patience(&self, patience: Patience) {
        self.0.limits.set_patience(patience);
    }

    fn rounded_most(&self) -> u64 {
        self.0.limits.rounded_most()
    }

    fn is_quiet(&self) -> bool {
        self.0.limits.is_quiet()
    }

    fn allowed(&self) -> u64 {
        self.0.limits.allowed()
    }

    fn allow(&self, granted: u64) {
        self.0.limits.allow(granted);
    }

    fn clear_after(&self, granted: u64, before: Option<u64>) -> u64 {
        self.0.limits.clear(granted, before)
    }

    fn quiet(&self) -> u64 {
        self.0.limits.quiet()
    }

    fn silent(&self) -> u64 {
        self.0.limits.silent()
    }

    fn stamped_ago(&self) -> Option<u64> {
        self.0.limits.stamped_ago()
    }
}

/// The processes of a job that the controller holds.
pub(crate) struct Daemons {
    job: String,
    folder: PathBuf,
    /// Over nodes: who starts them.
    crew: RefCell<Option<NodeLauncher>>,
    /// By node.
    daemons: RefCell<BTreeMap<u32, Daemon>>,
    /// By cluster.
    gateways: RefCell<BTreeMap<u32, Gateway>>,
    /// Who may bring images to the job's folder, and fetch them.
    members: Members,
    /// Files of that which are in an object store, as those are told who ask for one.
    elsewhere: Arc<Redirects>,
    tell: UnboundedSender<Msg>,
}

impl Daemons {
    pub fn new(place: &Place, crew: Option<NodeLauncher>, tell: UnboundedSender<Msg>) -> Daemons {
        Daemons {
            job: place.id.clone(),
            folder: place.folder.clone(),
            crew: RefCell::new(crew),
            daemons: RefCell::default(),
            gateways: RefCell::default(),
            members: Members::default(),
            elsewhere: Arc::default(),
            tell,
        }
    }

    fn with<T>(&self, ask: impl FnOnce(&NodeLauncher) -> T) -> Option<T> {
        self.crew.borrow().as_ref().map(ask)
    }

    fn ask<T>(&self, ask: impl FnOnce(&NodeLauncher) -> io::Result<T>) -> io::Result<T> {
        self.with(ask).unwrap_or_else(|| Err(none()))
    }

    fn change(&self, change: impl FnOnce(&mut NodeLauncher)) {
        if let Some(crew) = self.crew.borrow_mut().as_mut() {
            change(crew);
        }
    }

    /// What members of the job know each other by, if there are several.
    pub fn secret(&self) -> Option<Key> {
        self.with(|crew| crew.secret.key().clone())
    }

    fn images(&self) -> PathBuf {
        self.folder.join(home::IMAGES)
    }

    /// Has it told when a process has ended.
    fn watch_end(&self, process: &OwnedFd, message: Msg) -> io::Result<()> {
        let pidfd = pipes::watch(process.try_clone()?, Interest::READABLE)?;
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            if pidfd.readable().await.is_ok() {
                let _ = tell.send(message);
            }
        });
        Ok(())
    }

    /// The same of a daemon that was just started, with the reason.
    fn watch(&self, (node, epoch): (u32, u64), daemon: &Daemon, from: u64) -> io::Result<()> {
        let log = (self.folder.join(home::LOG), from);
        let pidfd = pipes::watch(daemon.pidfd.try_clone()?, Interest::READABLE)?;
        let (tell, guest) = (self.tell.clone(), daemon.guest());
        let end = Arc::clone(&daemon.pidfd);
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
        Ok(())
    }

    /// At the end of the job: the remote shells of these nodes, and whether each was told to end.
    pub fn guests(&self, nodes: &[(u32, bool)]) -> Vec<(Arc<RemoteNode>, bool)> {
        let daemons = self.daemons.borrow();
        let guest = |(node, told): &(u32, bool)| Some((daemons.get(node)?.guest()?, *told));
        nodes.iter().filter_map(guest).collect()
    }

    /// The daemons of these nodes.
    pub fn of(&self, nodes: &[u32]) -> Vec<Daemon> {
        let daemons = self.daemons.borrow();
        nodes.iter().filter_map(|node| daemons.get(node).cloned()).collect()
    }

    /// All gateways, to be ended.
    pub fn take_gateways(&self) -> Vec<Gateway> {
        self.gateways.take().into_values().collect()
    }
}

fn none() -> io::Error {
    io::Error::other("it has no nodes")
}

/// What the controller knows of a daemon.
fn known(daemon: &Daemon) -> outside::Daemon {
    outside::Daemon {
        pid: daemon.pid,
        epoch: daemon.epoch,
        born: daemon.born,
        host: daemon.host().map(str::to_string),
        left: daemon.is_left(),
    }
}

impl Launcher for Daemons {
    fn start_daemon(
        &self,
        node: u32,
        epoch: u64,
        gateway: Option<(u64, SocketAddr)>,
    ) -> io::Result<outside::Daemon> {
        let start = |crew: &NodeLauncher| {
            let from = crew.log_bytes();
            Ok((crew.start(node, epoch, gateway)?, from))
        };
        let (daemon, from) = self.ask(start)?;
        self.watch((node, epoch), &daemon, from)?;
        let started = known(&daemon);
        self.daemons.borrow_mut().insert(node, daemon);
        Ok(started)
    }

    fn adopt_daemon(&self, record: &DaemonRecord) -> io::Result<outside::Daemon> {
        let node = record.node;
        let daemon = self.ask(|crew| {
            let hosts = crew.spec.placement.hosts.as_ref();
            let host = hosts.and_then(|h| h.list.get(node as usize));
            Daemon::adopt(&self.job, &self.folder, record, host)
        })?;
        let adopted = known(&daemon);
        self.daemons.borrow_mut().insert(node, daemon);
        Ok(adopted)
    }

    fn watch_adopted(&self, node: u32, epoch: u64) -> io::Result<()> {
        let pidfd = self.daemons.borrow().get(&node).map(|d| Arc::clone(&d.pidfd));
        let why = String::from("its daemon ended");
        let pidfd = pidfd.ok_or_else(none)?;
        self.watch_end(&pidfd, Msg::Gone { node, epoch, why })
    }

    fn kill_daemon(&self, node: u32) {
        self.daemons.borrow().get(&node).iter().for_each(|daemon| daemon.kill());
    }

    fn daemon_ended(&self, node: u32) -> Option<Death> {
        let daemons = self.daemons.borrow();
        reap::peek(&daemons.get(&node)?.pidfd).ok().flatten()
    }

    fn last_words(&self, node: u32) -> Option<String> {
        self.daemons.borrow().get(&node)?.guest()?.words()
    }

    fn clear(&self, node: u32, others: Vec<i32>, cut_off: Duration) -> io::Result<()> {
        let tell = self.tell.clone();
        let done = move |left| drop(tell.send(Msg::Cleared { node, left }));
        // One whose daemon was never started leaves nothing.
        let Some(daemon) = self.daemons.borrow().get(&node).cloned() else {
            done(0);
            return Ok(());
        };
        let vouch = self.with(|crew| crew.vouch.clone()).flatten();
        daemon.clear(others, CutOff::new(cut_off, vouch), done)
    }

    fn start_gateway(
        &self,
        cluster: u32,
        number: u64,
        site: GatewaySite,
        silence: Silence,
    ) -> io::Result<outside::Gateway> {
        let tell = self.tell.clone();
        let hear = move |heard| drop(tell.send(Msg::Gateway { cluster, number, heard }));
        let at = (site.node, site.inside);
        let gateway = self.ask(|crew| crew.start_gateway((cluster, number), at, silence, hear))?;
        self.watch_end(&gateway.pidfd, Msg::GatewayGone { cluster, number })?;
        let started = outside::Gateway { pid: gateway.pid, host: gateway.host.clone() };
        self.gateways.borrow_mut().insert(cluster, gateway);
        Ok(started)
    }

    fn tell_gateway(&self, cluster: u32, order: ToGateway) {
        self.gateways.borrow().get(&cluster).into_iter().for_each(|g| g.tell(order.clone()));
    }

    fn kill_gateway(&self, cluster: u32) {
        self.gateways.borrow().get(&cluster).iter().for_each(|gateway| gateway.kill());
    }

    fn bury_gateway(&self, cluster: u32) -> String {
        let gateway = self.gateways.borrow_mut().remove(&cluster);
        gateway.map_or_else(|| String::from("it ended"), Gateway::bury)
    }

    fn end_gateway(&self, cluster: u32, kill: bool) {
        let (tell, gateway) = (self.tell.clone(), self.gateways.borrow_mut().remove(&cluster));
        tokio::task::spawn_blocking(move || {
            if let Some(gateway) = gateway {
                if kill {
                    gateway.kill();
                }
                gateway.dismiss();
            }
            let _ = tell.send(Msg::GatewayEnded { cluster });
        });
    }

    fn key(&self) -> [u8; 32] {
        self.secret().map_or([0; 32], |key| key.0)
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.with(|crew| crew.addresses.clone()).unwrap_or_default()
    }

    fn hosts(&self) -> Option<Box<Hosts>> {
        self.with(|crew| crew.spec.placement.hosts.clone()).flatten()
    }

    fn welcome_host(&self, node: u32, host: Host) -> io::Result<()> {
        let mut crew = self.crew.borrow_mut();
        crew.as_mut().ok_or_else(none)?.welcome_host(node, host, &telling(&self.tell))
    }

    fn place(&self, of: Vec<u32>) {
        self.change(|crew| crew.place(of));
    }

    fn set_domains(&self, names: Vec<String>) {
        self.change(|crew| crew.set_domains(names));
    }

    fn set_mode(&self, protection: Protection, homes: Vec<u32>) {
        self.change(|crew| crew.set_mode(protection, homes));
    }

    fn reached_at(&self, node: u32) -> Option<IpAddr> {
        self.with(|crew| crew.reached_at(node)).flatten()
    }

    fn lacks_at_rest(&self) -> bool {
        self.with(NodeLauncher::lacks_at_rest).unwrap_or(false)
    }

    fn learn_at_rest(&self, key: Key) {
        self.change(|crew| crew.learn_at_rest(key));
    }

    fn turned_away(&self) -> u64 {
        self.with(|crew| crew.turned_away.now().total()).unwrap_or(0)
    }

    fn open_archive(&self, places: &[SocketAddr]) -> io::Result<Vec<SocketAddr>> {
        let images = self.images();
        DirBuilder::new().recursive(true).mode(0o700).create(&images)?;
        self.ask(|crew| {
            let mut all = places.to_vec();
            crew.open_archive(&images, &self.members, &self.elsewhere, &mut all)?;
            Ok(all.split_off(places.len()))
        })
    }

    fn serve_archive(&self, place: SocketAddr) -> io::Result<()> {
        let images = self.images();
        self.ask(|crew| crew.serve_archive(place, &images, &self.members, &self.elsewhere))
            .map(drop)
    }

    fn set_members(&self, members: Vec<(u32, u64, SocketAddr)>) {
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    fn redirect(&self, stored: Option<&Stored>, key: Option<&str>) {
        self.elsewhere.set(stored, key);
    }
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
        let pidfd = eyrie_process::spawn::pidfd(child.id() as libc::pid_t).unwrap();
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
