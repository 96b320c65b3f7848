//! The node daemons of a job: started by the controller, which they call back.
//!
//! Kept true: the job's key goes to a daemon through its standard input; who calls without it is
//! turned away, counted and told in one line; of a daemon that is gone nothing is left, neither
//! processes nor storage.

mod gateway;

use crate::netns::{self, Bridge};
use crate::remote_node::{self, RemoteNode};
use eyrie_connection::node_connection::{self, Beat, End, Fleet, Limits};
use eyrie_control::auth::{AuthError, Hello, Key, Role};
use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::gateway::{Clusters, HOME};
use eyrie_control::message::{Host, Hosts};
pub use eyrie_control::node::{DaemonRecord, FIRST_TERM};
use eyrie_control::node::{Enlist, Lodge};
use eyrie_control::{AtRest, FromNode, JobSpec, ToNode, encode_within};
use eyrie_exchange::image_store::{self, TurnedAway};
use eyrie_exchange::second_level::Redirects;
use eyrie_exchange::store_protocol::{Identity, Members};
use eyrie_ha::{CutOff, Vouch};
use eyrie_process::reap;
use eyrie_process::spawn;
use eyrie_protocol::leader_lease;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::ARCHIVE;
use eyrie_protocol::session::Numbered;
use eyrie_protocol::timing::Detector;
use eyrie_state::at_rest;
use eyrie_state::home;
use eyrie_state::sealing;
use eyrie_tls::{Caller, Callers, Routes, Secret, Stream, prepare};
use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for the port of a dead controller.
const BINDING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);
/// Longest silence while a caller introduces itself.
const GREETING: Duration = Duration::from_secs(5);
/// Longest wait for a killed daemon to be gone.
const DEATH_LIMIT_MS: libc::c_int = 10_000;

/// One node daemon.
#[derive(Clone)]
pub struct Daemon {
    pub pid: libc::pid_t,
    pub pidfd: Arc<OwnedFd>,
    pub epoch: u64,
    /// When the process started, as the kernel counts; with its number that is its identity.
    pub born: u64,
    site: Site,
}

/// Where a daemon is.
#[derive(Clone)]
enum Site {
    /// Its storage.
    Here(PathBuf),
    /// Another controller started it, which is dead.
    Adopted { folder: PathBuf, job: String },
    /// The process is the remote shell.
    There(Arc<RemoteNode>),
    /// Another controller had a remote shell there, which is gone: the daemon notices by itself
    /// when it is not wanted any more.
    Left { host: String },
}

/// A connection to a node.
pub struct NodeConnection {
    /// Its number among all of this controller's.
    pub line: u64,
    pub sender: node_connection::Sender<Numbered<ToNode>>,
    pub stream: Arc<Stream>,
    pub limits: Arc<Limits>,
}

pub use eyrie_control::gateway::GatewayEvent;
pub use gateway::Gateway;

static LINES: AtomicU64 = AtomicU64::new(1);

/// What node daemons that call make known.
pub enum NodeEvent {
    /// A node daemon has called and proved itself.
    Connected { node: u32, epoch: u64, wired: NodeConnection },
    /// What it says on that connection.
    Framed { node: u32, line: u64, frame: Numbered<FromNode> },
    /// The connection is over.
    HungUp { node: u32, epoch: u64, line: u64, why: String },
    /// Somebody called who is no node of the job.
    TurnedAway { why: String },
}

/// Who is told of them, by threads.
#[derive(Clone)]
pub struct Tell(Arc<dyn Fn(NodeEvent) + Send + Sync>);

impl Tell {
    pub fn new(tell: impl Fn(NodeEvent) + Send + Sync + 'static) -> Tell {
        Tell(Arc::new(tell))
    }

    fn event(&self, event: NodeEvent) {
        (self.0)(event);
    }
}

/// What is known of a controller that is dead: it is followed in its place.
pub struct Predecessor<'a> {
    pub term: u64,
    pub spec: &'a JobSpec,
    pub key: [u8; 32],
    /// Where it listened.
    pub addresses: &'a [SocketAddr],
}

/// How daemons are started.
pub struct NodeLauncher {
    pub job: String,
    pub folder: PathBuf,
    pub spec: JobSpec,
    pub secret: Secret,
    /// What daemons encrypt with what they store, if it is known here.
    at_rest: Option<Key>,
    pub term: u64,
    /// Where the controller listens.
    pub addresses: Vec<SocketAddr>,
    /// Held open in every daemon, so that whoever waits for its end waits for theirs.
    lifeline: OwnedFd,
    /// None: all are in one network.
    bridge: Option<Bridge>,
    /// Callers of the archive.
    pub turned_away: Arc<TurnedAway>,
    /// With `--ha`: whether this controller leads for sure.
    pub vouch: Option<Arc<Vouch>>,
    own: Own,
}

/// What a controller is, towards nodes that call.
#[derive(Clone)]
struct Own {
    term: u64,
    vouch: Option<Arc<Vouch>>,
    /// The nodes' machines.
    fleet: Arc<Fleet>,
    detector: Detector,
    /// The clusters that nodes are in.
    clusters: Arc<Mutex<Clusters>>,
}

impl Own {
    fn new(term: u64, vouch: Option<Arc<Vouch>>, spec: &JobSpec) -> Own {
        let clusters = Arc::new(Mutex::new(spec.placement.clusters.clone()));
        let detector = spec.timing.intervals.detector;
        Own { term, vouch, fleet: Fleet::new(), detector, clusters }
    }

    fn places(&self) -> MutexGuard<'_, Clusters> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a launcher begins with, whether or not there was one before it.
struct Begin<'a> {
    term: u64,
    spec: &'a JobSpec,
    secret: Secret,
    at_rest: Option<Key>,
    bridge: Option<Bridge>,
    /// Where it listens.
    places: &'a [SocketAddr],
}

impl Begin<'_> {
    /// Listens for daemons.
    fn launcher(
        self,
        (job, folder): (&str, &Path),
        lifeline: OwnedFd,
        vouch: Option<Arc<Vouch>>,
        tell: &Tell,
    ) -> io::Result<NodeLauncher> {
        let Begin { term, spec, secret, at_rest, bridge, places } = self;
        let own = Own::new(term, vouch.clone(), spec);
        let addresses = places.iter().map(|at| listen(*at, &secret, job, &own, tell));
        Ok(NodeLauncher {
            job: job.to_string(),
            folder: folder.to_path_buf(),
            addresses: addresses.collect::<io::Result<_>>()?,
            spec: spec.clone(),
            secret,
            at_rest,
            term,
            lifeline,
            bridge,
            turned_away: Arc::default(),
            vouch,
            own,
        })
    }
}

impl NodeLauncher {
    /// Makes the job's key and listens for daemons, in the network that they are to be in. To be
    /// called by the thread that starts all others.
    pub fn new(
        job: &str,
        folder: &Path,
        spec: &JobSpec,
        lifeline: OwnedFd,
        vouch: Option<Arc<Vouch>>,
        tell: Tell,
    ) -> io::Result<NodeLauncher> {
        let clusters = spec.placement.clusters.count();
        let bridge = spec.placement.netns.then(|| Bridge::make(job, clusters)).transpose()?;
        let here = bridge.as_ref().map_or(vec![Ipv4Addr::LOCALHOST], Bridge::addresses);
        let mut places: Vec<IpAddr> = match &spec.placement.hosts {
            Some(hosts) => hosts.list.iter().map(|h| h.controller).collect(),
            None => here.into_iter().map(IpAddr::V4).collect(),
        };
        places.sort_unstable();
        places.dedup();
        let secret = Secret::new(Key::new()?, spec.security.tls)?;
        let at_rest = at_rest_key(&spec.security.at_rest)?;
        let places: Vec<_> = places.into_iter().map(|place| SocketAddr::new(place, 0)).collect();
        let begin = Begin { term: FIRST_TERM, spec, secret, at_rest, bridge, places: &places };
        begin.launcher((job, folder), lifeline, vouch, &tell)
    }

    /// That of a job whose controller is dead: listens where that did.
    pub fn again(
        head: &Predecessor<'_>,
        daemons: impl Iterator<Item = libc::pid_t>,
        (job, folder): (&str, &Path),
        lifeline: OwnedFd,
        vouch: Option<Arc<Vouch>>,
        tell: &Tell,
    ) -> io::Result<NodeLauncher> {
        let clusters = head.spec.placement.clusters.count();
        let again = || Bridge::again(job, clusters, daemons);
        let bridge = head.spec.placement.netns.then(again).transpose()?;
        let secret = Secret::new(Key(head.key), head.spec.security.tls)?;
        // It is in no journal: else nodes tell it.
        let at_rest = at_rest_key_again(&head.spec.security.at_rest);
        let (term, spec, places) = (head.term, head.spec, head.addresses);
        let begin = Begin { term, spec, secret, at_rest, bridge, places };
        begin.launcher((job, folder), lifeline, vouch, tell)
    }

    /// Whether nodes encrypt with what this controller does not know.
    pub fn lacks_at_rest(&self) -> bool {
        self.spec.security.at_rest.is_sealed() && self.at_rest.is_none()
    }

    /// A node tells what all encrypt with.
    pub fn learn_at_rest(&mut self, key: Key) {
        self.at_rest.get_or_insert(key);
    }

    /// What a daemon is told.
    fn enlist(
        &self,
        (node, epoch): (u32, u64),
        folder: &Path,
        controller: SocketAddr,
        gateway: Option<(u64, SocketAddr)>,
    ) -> Enlist {
        Enlist {
            job: self.job.clone(),
            node,
            epoch,
            key: self.secret.key().0,
            folder: folder.as_os_str().as_bytes().to_vec(),
            lodged: false,
            controller,
            gateway,
            spec: self.spec.clone(),
            at_rest: self.at_rest.clone(),
        }
    }

    /// Lets members bring images to this folder, and fetch them, at each address of the
    /// controller; `places` says where they do already.
    pub fn open_archive(
        &self,
        images: &Path,
        members: &Members,
        elsewhere: &Arc<Redirects>,
        places: &mut Vec<SocketAddr>,
    ) -> io::Result<()> {
        for ip in self.addresses.iter().map(SocketAddr::ip) {
            if places.iter().any(|p| p.ip() == ip) {
                continue;
            }
            let place = SocketAddr::new(ip, 0);
            places.push(self.serve_archive(place, images, members, elsewhere)?);
        }
        Ok(())
    }

    /// The same at one place.
    pub fn serve_archive(
        &self,
        place: SocketAddr,
        images: &Path,
        members: &Members,
        elsewhere: &Arc<Redirects>,
    ) -> io::Result<SocketAddr> {
        let listener = bind(place)?;
        let at = listener.local_addr()?;
        let (job, secret) = (self.job.clone(), self.secret.clone());
        let (Member { node, epoch }, routes) = (ARCHIVE, Routes::default());
        let silence = Duration::from_millis(self.spec.timing.intervals.limits.link_silence_ms);
        let own = Identity { job, node, epoch, secret, routes, silence };
        let count = Arc::clone(&self.turned_away);
        image_store::serve(
            listener,
            own,
            images.to_path_buf(),
            Arc::clone(members),
            count,
            image_store::StoreServices {
                elsewhere: Arc::clone(elsewhere),
                ..image_store::StoreServices::default()
            },
        )?;
        Ok(at)
    }

    /// The next node, `node`, is to be on this host.
    pub fn welcome_host(&mut self, node: u32, host: Host, tell: &Tell) -> io::Result<()> {
        if self.addresses.iter().all(|a| a.ip() != host.controller) {
            let place = SocketAddr::new(host.controller, 0);
            self.addresses.push(listen(place, &self.secret, &self.job, &self.own, tell)?);
        }
        let hosts = self.spec.placement.hosts.as_mut();
        let list = hosts.map(|h| &mut h.list).ok_or_else(|| io::Error::other("it has no hosts"))?;
        match list.get_mut(node as usize) {
            // One that could not be started is not in the job.
            Some(place) => *place = host,
            None => list.push(host),
        }
        Ok(())
    }

    /// The cluster of each node, also of such as are to join.
    pub fn place(&mut self, of: Vec<u32>) {
        self.own.places().of.clone_from(&of);
        self.spec.placement.clusters.of = of;
    }

    /// What each node fails together with, also such as are to join.
    pub fn set_domains(&mut self, names: Vec<String>) {
        self.spec.storage.manner.domains = names;
    }

    /// How ranks come back, also of nodes that are to join.
    pub fn set_mode(&mut self, protection: eyrie_control::Protection, homes: Vec<u32>) {
        eyrie_state::units::set_mode(&mut self.spec, protection, homes);
    }

    /// This machine's address as a node reaches it, or, if it does through gateways only, as those
    /// of this machine's cluster do.
    pub fn reached_at(&self, node: u32) -> Option<IpAddr> {
        if !self.spec.placement.clusters.is_behind(node) {
            return self.faced_at(node);
        }
        let all = self.spec.placement.nodes + self.spec.placement.spares;
        (0..all)
            .find(|node| self.spec.placement.clusters.of(*node) == HOME)
            .and_then(|n| self.faced_at(n))
    }

    /// This machine's address on the way to a node.
    fn faced_at(&self, node: u32) -> Option<IpAddr> {
        match &self.spec.placement.hosts {
            Some(hosts) => hosts.list.get(node as usize).map(|h| h.controller),
            None => match &self.bridge {
                Some(bridge) => Some(IpAddr::V4(bridge.address(self.cluster(node)))),
                None => self.addresses.first().map(SocketAddr::ip),
            },
        }
    }

    /// The cluster of a node, if there are several.
    fn cluster(&self, node: u32) -> Option<u32> {
        let clusters = &self.spec.placement.clusters;
        (clusters.count() > 0).then(|| clusters.of(node))
    }

    /// Where a node reaches the controller.
    fn listens_for(&self, node: u32) -> io::Result<SocketAddr> {
        self.listens_at(self.reached_at(node), node)
    }

    fn listens_at(&self, reached: Option<IpAddr>, node: u32) -> io::Result<SocketAddr> {
        let address = self.addresses.iter().find(|a| Some(a.ip()) == reached);
        address.copied().ok_or_else(|| io::Error::other(format!("nobody listens for node {node}")))
    }

    /// How much is in the log that daemons of this machine write to.
    pub fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.folder.join(home::LOG)).map_or(0, |log| log.len())
    }

    /// Starts the daemon of a node, which reaches the controller through `gateway` if there is one:
    /// which start of that, and where.
    pub fn start(
        &self,
        node: u32,
        epoch: u64,
        gateway: Option<(u64, SocketAddr)>,
    ) -> io::Result<Daemon> {
        if self.lacks_at_rest() {
            let why = "no node has told this controller yet what all encrypt with";
            return Err(io::Error::other(why));
        }
        match &self.spec.placement.hosts {
            Some(hosts) => self.start_there(hosts, (node, epoch), gateway),
            None => self.start_here(node, epoch, gateway),
        }
    }

    fn start_there(
        &self,
        hosts: &Hosts,
        (node, epoch): (u32, u64),
        gateway: Option<(u64, SocketAddr)>,
    ) -> io::Result<Daemon> {
        let address = self.listens_for(node)?;
        let enlist = self.enlist((node, epoch), Path::new(""), address, gateway);
        let working_folder = working_folder()?.into_os_string().into_vec();
        let lodge = Lodge { enlist, working_folder, environment: environment() };
        let guest = Arc::new(remote_node::start(hosts, node, &lodge, &self.folder)?);
        let (pid, pidfd) = (guest.pid, Arc::clone(&guest.pidfd));
        Ok(Daemon { pid, pidfd, epoch, born: 0, site: Site::There(guest) })
    }

    fn start_here(
        &self,
        node: u32,
        epoch: u64,
        gateway: Option<(u64, SocketAddr)>,
    ) -> io::Result<Daemon> {
        let folder = self.folder.join(format!("node-{node}"));
        let address = self.listens_for(node)?;
        let enlist = self.enlist((node, epoch), &folder, address, gateway);
        let frame = encode_within(MAX_NODE_FRAME_BYTES, &enlist).map_err(io::Error::other)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("__member").stdin(Stdio::piped());
        let lifeline = self.lifeline.as_raw_fd();
        let space = self.bridge.as_ref().map(Bridge::space);
        // SAFETY: only async-signal-safe system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::setpgid(0, 0);
                spawn::shut_inherited();
                for kept in std::iter::once(lifeline).chain(space) {
                    if libc::fcntl(kept, libc::F_SETFD, 0) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                if space.is_some() { netns::leave() } else { Ok(()) }
            });
        }
        let mut child = reap::start(&mut command)?;
        let pid = child.id() as libc::pid_t;
        let pidfd = Arc::new(spawn::pidfd(pid)?);
        // It waits for what it is told, and so finds its network ready.
        self.bridge.as_ref().map_or(Ok(()), |b| b.join(node, self.cluster(node), pid))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&frame)?;
        }
        let born = reap::born(pid).unwrap_or(0);
        Ok(Daemon { pid, pidfd, epoch, born, site: Site::Here(folder) })
    }
}

/// The key for what the nodes of a new job store.
fn at_rest_key(at_rest: &AtRest) -> io::Result<Option<Key>> {
    match at_rest {
        AtRest::Plain | AtRest::Kernel => Ok(None),
        AtRest::Sealed => Key::new().map(Some),
        AtRest::Keyed { file, mark } => sealing::begin_with(Path::new(file), mark).map(Some),
    }
}

/// The same of a job whose controller is dead, if a file has it.
fn at_rest_key_again(at_rest: &AtRest) -> Option<Key> {
    let AtRest::Keyed { file, mark } = at_rest else { return None };
    let key = sealing::begin_with(Path::new(file), mark);
    key.inspect_err(|error| tracing::warn!("the key for what nodes store: {error}")).ok()
}

/// Listens for daemons at an address of this machine.
fn listen(
    place: SocketAddr,
    secret: &Secret,
    job: &str,
    own: &Own,
    tell: &Tell,
) -> io::Result<SocketAddr> {
    let listener = bind(place)
        .map_err(|error| io::Error::other(format!("cannot listen at {place}: {error}")))?;
    let address = listener.local_addr()?;
    let (secret, job, tell) = (secret.clone(), job.to_string(), tell.clone());
    let own = own.clone();
    let callers = Callers::default();
    let accept = move || {
        loop {
            let Ok(call) = callers.next(&listener) else { continue };
            let (secret, job, tell) = (secret.clone(), job.clone(), tell.clone());
            let own = own.clone();
            let work = move || {
                if let Err(error) = welcome(call, &secret, &job, &own, &tell) {
                    tell.event(NodeEvent::TurnedAway { why: error.to_string() });
                }
            };
            let _ = std::thread::Builder::new().name("eyrie-greet".into()).spawn(work);
        }
    };
    std::thread::Builder::new().name("eyrie-accept".into()).spawn(accept)?;
    Ok(address)
}

/// A port that was a dead controller's may be somebody's for a moment, who calls from it.
fn bind(place: SocketAddr) -> io::Result<TcpListener> {
    let end = Instant::now() + BINDING;
    loop {
        match TcpListener::bind(place) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < end => {
                std::thread::sleep(PAUSE);
            }
            bound => return bound,
        }
    }
}

/// The working folder, by the name that the user's shell has for it: on other machines it may
/// be another link that leads there.
fn working_folder() -> io::Result<PathBuf> {
    let real = std::env::current_dir()?;
    let named = std::env::var_os("PWD").map(PathBuf::from).filter(|p| p.is_absolute());
    let same = |p: &PathBuf| std::fs::canonicalize(p).is_ok_and(|p| p == real);
    Ok(named.filter(same).unwrap_or(real))
}

/// The environment, but for what belongs to a machine, a login or a terminal.
fn environment() -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes = |(name, value): (OsString, OsString)| (name.into_vec(), value.into_vec());
    std::env::vars_os().map(bytes).filter(|(name, _)| !is_local(name)).collect()
}

/// Variables that stay on the machine that they were set on.
fn is_local(name: &[u8]) -> bool {
    const NAMES: [&str; 19] = [
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "MAIL",
        "HOST",
        "HOSTNAME",
        "HOSTTYPE",
        "MACHTYPE",
        "OSTYPE",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "TMPDIR",
        "TERM",
        "DISPLAY",
        "XAUTHORITY",
        "KRB5CCNAME",
    ];
    const STARTS: [&str; 7] = ["SSH_", "XDG_", "DBUS_", "SLURM", "FLUX_", "PMI_", "PMIX_"];
    NAMES.iter().any(|n| n.as_bytes() == name)
        || STARTS.iter().any(|s| name.starts_with(s.as_bytes()))
}

/// Lets a daemon in that proves that it is one.
fn welcome(
    (socket, unknown): (TcpStream, Caller),
    secret: &Secret,
    job: &str,
    own: &Own,
    tell: &Tell,
) -> Result<(), AuthError> {
    prepare(&socket, GREETING)?;
    let term = own.term;
    let hello =
        |caller: &Hello| Hello::new(Role::Controller, job, (0, term), (caller.node, caller.epoch));
    let (stream, other) = secret.answer(socket, job, Role::Node, hello)?;
    drop(unknown);
    stream.socket().set_write_timeout(None)?;
    let (node, epoch) = (other.node, other.epoch);
    let stream = Arc::new(stream);
    let behind = own.places().is_behind(node);
    let limits = Arc::new(Limits::among(Arc::clone(&own.fleet), own.detector, behind));
    let (known, vouch) = (Arc::clone(&limits), own.vouch.clone());
    let beat = move || {
        let Beat { timeout_ms, stamp_ms } = known.says();
        let timeout_ms = leader_lease::say(timeout_ms, vouch.as_ref().is_none_or(|v| v.holds()));
        Numbered::beside(known.heard(), ToNode::Beat { timeout_ms, stamp_ms })
    };
    let sender = node_connection::write(Arc::clone(&stream), limits.heartbeat(), beat)?;
    let line = LINES.fetch_add(1, Ordering::Relaxed);
    let (held, bears) = (Arc::clone(&stream), Arc::clone(&limits));
    let wired = NodeConnection { line, sender, stream: held, limits: bears };
    tell.event(NodeEvent::Connected { node, epoch, wired });
    let (tell, told) = (tell.clone(), Arc::clone(&limits));
    node_connection::read(stream, limits, move |frame: Result<Numbered<FromNode>, End>| {
        // What a node is used to counts where its silence is measured.
        if let Ok(Numbered { message: FromNode::Beat { timeout_ms, stamp_ms }, .. }) = &frame {
            told.tell(Beat { timeout_ms: *timeout_ms, stamp_ms: *stamp_ms });
        }
        tell.event(match frame {
            Ok(frame) => NodeEvent::Framed { node, line, frame },
            Err(end) => NodeEvent::HungUp { node, epoch, line, why: end.to_string() },
        });
    })?;
    Ok(())
}

impl Daemon {
    /// The daemon of a node that another controller started, by its number and birth. One that is
    /// gone has ended.
    pub fn adopt(
        job: &str,
        folder: &Path,
        books: &DaemonRecord,
        host: Option<&Host>,
    ) -> io::Result<Daemon> {
        let DaemonRecord { node, pid, born, epoch } = *books;
        if let Some(Host { name, .. }) = host {
            let (pidfd, host) = (Arc::new(reap::ended()?), name.clone());
            return Ok(Daemon { pid: 0, pidfd, epoch, born, site: Site::Left { host } });
        }
        // The order matters: what bears the number when it is looked at cannot change any more.
        let pidfd = spawn::pidfd(pid).ok().filter(|_| reap::born(pid) == Some(born));
        let pidfd = Arc::new(pidfd.map_or_else(reap::ended, Ok)?);
        let folder = folder.join(format!("node-{node}"));
        let site = Site::Adopted { folder, job: job.to_string() };
        Ok(Daemon { pid, pidfd, epoch, born, site })
    }

    /// What it takes to adopt it, if that can be.
    pub fn books(&self, node: u32) -> DaemonRecord {
        DaemonRecord { node, pid: self.pid, born: self.born, epoch: self.epoch }
    }

    /// The host that it is on, if that is another.
    pub fn host(&self) -> Option<&str> {
        match &self.site {
            Site::Here(_) | Site::Adopted { .. } => None,
            Site::There(guest) => Some(&guest.host),
            Site::Left { host } => Some(host),
        }
    }

    /// Whether nothing but its own connection leads to it.
    pub fn is_left(&self) -> bool {
        matches!(self.site, Site::Left { .. })
    }

    pub fn guest(&self) -> Option<Arc<RemoteNode>> {
        match &self.site {
            Site::Here(_) | Site::Adopted { .. } | Site::Left { .. } => None,
            Site::There(guest) => Some(Arc::clone(guest)),
        }
    }

    /// Kills it, unless it is dead.
    pub fn kill(&self) {
        match &self.site {
            Site::There(guest) => return guest.dismiss(),
            Site::Left { .. } => return,
            Site::Here(_) | Site::Adopted { .. } => {}
        }
        // SAFETY: plain system call on a descriptor that is open; no information is passed.
        unsafe {
            let none = std::ptr::null::<libc::siginfo_t>();
            let fd = self.pidfd.as_raw_fd();
            libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, none, 0);
        }
    }

    /// Ends one on this machine on which nothing runs, with its storage.
    pub fn put_down(&self) {
        let (Site::Here(folder) | Site::Adopted { folder, .. }) = &self.site else { return };
        self.kill();
        remote_node::poll_end(&self.pidfd, remote_node::LAST_MOMENT);
        let _ = home::remove_folder(folder);
    }

    /// Ends it, and clears away its processes and its storage, in a thread. `others` are daemons
    /// that go on, `cut_off` the time after which one that cannot be reached has ended by itself.
    /// Calls `done` with what is left, at the end.
    pub fn clear(
        &self,
        others: Vec<libc::pid_t>,
        cut_off: CutOff,
        done: impl FnOnce(usize) + Send + 'static,
    ) -> io::Result<()> {
        self.kill();
        let (pid, pidfd, site) = (self.pid, Arc::clone(&self.pidfd), self.site.clone());
        let work = move || match site {
            Site::There(guest) => {
                guest.clear(&cut_off);
                done(0);
            }
            Site::Left { .. } => {
                cut_off.wait();
                done(0);
            }
            Site::Here(folder) => {
                wait_for_end(&pidfd);
                let _ = reap::collect(&pidfd);
                reap::forget(pid);
                // What it leaves comes to us, generation after generation.
                let left = reap::clear_left_behind();
                let _ = at_rest::remove_dir_all(&folder);
                done(left);
            }
            Site::Adopted { folder, job } => {
                wait_for_end(&pidfd);
                // What it leaves comes to whoever adopted the daemon.
                let left = reap::clear_strays(&job, &others);
                let _ = at_rest::remove_dir_all(&folder);
                done(left);
            }
        };
        std::thread::Builder::new().name("eyrie-clear".into()).spawn(work)?;
        Ok(())
    }
}

/// Waits, up to a limit, until a killed process has ended.
fn wait_for_end(pidfd: &OwnedFd) {
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is ours.
    unsafe { libc::poll(&mut poll, 1, DEATH_LIMIT_MS) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_own_variables_stay_there() {
        for name in ["HOME", "PWD", "TMPDIR", "SSH_AUTH_SOCK", "SLURM_PROCID", "XDG_RUNTIME_DIR"] {
            assert!(is_local(name.as_bytes()), "{name}");
        }
        for name in ["PATH", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "HOMES", "EYRIE_HOME"] {
            assert!(!is_local(name.as_bytes()), "{name}");
        }
    }
}
