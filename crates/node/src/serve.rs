//! The daemon itself: its connections and its main loop.
//!
//! Kept true: the job lives as long as the console's connection; malformed input closes a
//! connection and is counted; on the way out no process, image or segment is left.

use crate::agent::{self, Agent};
use crate::at_rest;
use crate::crew::{Crew, Daemon};
use crate::guest;
use crate::ha::{HaError, Lead, Vouch};
use crate::home;
use crate::job::grow::start_daemon;
use crate::job::{self, BeginError, Job, JournalError, Msg, Node, Place, Reign, Shared};
use crate::outlet::Outlet;
use crate::points;
use crate::reap;
use crate::saved::SavedJob;
use crate::sealing;
use crate::spawn::Prefix;
use crate::units;
use eyrie_control::gateway::MAX_CLUSTERS;
use eyrie_control::{AtRest, ClientMsg, Decoder, Ft, JobSpec, NodeMsg, PROTOCOL, Transport};
use eyrie_protocol::halt::Holder;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedSender};

/// Longest wait for a console that does not take the last messages.
const FLUSH_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for etcd to forget a job.
const FORGETTING: Duration = Duration::from_secs(10);
/// Longest wait for the last word of nodes that are just joining.
const JOINING: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 64 * 1024;
/// Most messages in a turn.
const TURN: usize = 64;

/// How the daemon is started.
pub struct Options {
    pub id: String,
    pub folder: PathBuf,
    /// The connection of `eyrie run`.
    pub console: OwnedFd,
    /// The job's lock, held until the end.
    pub lock: OwnedFd,
    pub prefix: Prefix,
}

/// Why a daemon ends without a job's exit code.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{what}: {source}")]
    Os { what: &'static str, source: io::Error },
    #[error("the console {0}")]
    Console(String),
}

fn os(what: &'static str) -> impl Fn(io::Error) -> ServeError {
    move |source| ServeError::Os { what, source }
}

/// Runs a job to its end, on the calling (main) thread.
pub fn run(options: Options) -> Result<i32, ServeError> {
    eyrie_image::give_large_back();
    reap::adopt_orphans().map_err(os("subreaper"))?;
    // SAFETY: sets a disposition before any other thread exists. A write beyond the file size
    // limit then fails like one on a full disk.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(os("runtime"))?;
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(serve(options)))
}

async fn serve(options: Options) -> Result<i32, ServeError> {
    let Options { id, folder, console, lock, prefix } = options;
    let lifeline = console.try_clone().map_err(os("console"))?;
    let console = StdStream::from(console);
    console.set_nonblocking(true).map_err(os("console"))?;
    let (reader, writer) = UnixStream::from_std(console).map_err(os("console"))?.into_split();
    let outlet = Outlet::new(writer);
    let mut reader = Reader::new(reader);
    let order = match greeting(&mut reader, &outlet).await {
        Ok(order) => order,
        Err(error) => {
            outlet.send(&NodeMsg::Error(error.to_string()));
            outlet.send(&NodeMsg::Exit { code: 1 });
            outlet.flushed().await;
            return Err(error);
        }
    };
    let (tell, mut told) = mpsc::unbounded_channel();
    let resumes = matches!(order, Order::Resume { .. });
    let job = match carry_out(order, &id, &folder, prefix, lifeline, &outlet, &tell) {
        Ok(job) => job,
        Err(error) => return not_begun(error, resumes, &folder, &outlet).await,
    };
    let listener = listen(&folder)?;
    tokio::task::spawn_local(accept(listener, Rc::clone(&job)));
    tokio::task::spawn_local(console_input(reader, Rc::clone(&job), tell.clone()));
    watch_signals(&tell)?;
    let over = job.borrow().over();
    loop {
        let look = job.borrow().next_look();
        tokio::select! {
            biased;
            () = over.notified() => break,
            message = told.recv() => match message {
                Some(message) => take(&job, message, &mut told),
                None => break,
            },
            () = tokio::time::sleep(look) => job.borrow_mut().schedule(),
        }
        job.borrow_mut().end_turn();
    }
    wind_up(&job, &mut told).await;
    let deposed = job.borrow().deposed();
    if let Some(why) = deposed {
        return depose(&folder, &outlet, why).await;
    }
    see_off(&job, &mut told).await;
    let code = job.borrow().exit_code().unwrap_or(1);
    forget(&job, code, &outlet).await;
    let code = finish(Some(&job), &folder, &outlet, code).await;
    drop(lock);
    code
}

/// Waits for the end of all that belongs to a job that is over, and for its last state to be in an
/// object store.
async fn see_off(job: &Shared, told: &mut mpsc::UnboundedReceiver<Msg>) {
    let guests = job.borrow().guests();
    let (daemons, stragglers) = (job.borrow().daemons_to_await(), job.borrow().stragglers());
    let gateways = job.borrow_mut().take_gateways();
    let depot = job.borrow_mut().take_depot();
    let given_up = depot.given_up();
    let farewell = move || {
        gateways.into_iter().for_each(|gateway| gateway.dismiss());
        stragglers.iter().for_each(Daemon::put_down);
        guest::farewell(&guests);
        guest::await_ends(&daemons);
        depot.close()
    };
    let mut farewell = tokio::task::spawn_blocking(farewell);
    let ended = loop {
        tokio::select! {
            ended = &mut farewell => break ended,
            Some(message) = told.recv() => heed_at_the_end(job, &message, &given_up),
        }
    };
    if let Ok(Err(why)) = ended {
        job.borrow_mut().depot_lacks(&why);
        job.borrow_mut().end_turn();
    }
}

/// Ctrl-C to a job that is over gives up what it still brings to an object store.
fn heed_at_the_end(job: &Shared, message: &Msg, given_up: &AtomicBool) {
    let asked = matches!(message, Msg::Stop { signal: libc::SIGINT });
    if asked && !given_up.swap(true, Ordering::Relaxed) && job.borrow().spec().save_to.is_some() {
        job.borrow().say("the object store is not waited for any more");
        job.borrow_mut().end_turn();
    }
}

/// Says why there is no job here.
async fn not_begun(
    error: BeginError,
    resumes: bool,
    folder: &Path,
    outlet: &Outlet,
) -> Result<i32, ServeError> {
    match error {
        BeginError::Journal(JournalError::Ha(error @ HaError::Held)) => {
            return depose(folder, outlet, error.to_string()).await;
        }
        BeginError::Journal(JournalError::Ha(HaError::Ended(code))) => {
            return finish(None, folder, outlet, code).await;
        }
        error => outlet.send(&NodeMsg::Error(error.to_string())),
    }
    if resumes {
        // What there is stays as it is, for another attempt.
        outlet.send(&NodeMsg::Exit { code: 1 });
        outlet.flushed().await;
        return Ok(1);
    }
    finish(None, folder, outlet, 1).await
}

/// Has nothing of a job that is over stay in etcd.
async fn forget(job: &Shared, code: i32, outlet: &Outlet) {
    let (done, ended) = tokio::sync::oneshot::channel();
    job.borrow_mut().end_ha(code, move || {
        // Who does not wait any more does not hear it.
        let _ = done.send(());
    });
    if tokio::time::timeout(FORGETTING, ended).await.is_err() {
        let text = "etcd is away: remove there what is left of the job (docs/nodes.md)";
        outlet.send(&NodeMsg::Say(String::from(text)));
    }
}

/// Another controller has the job: this one ends, and leaves all that is not its own alone.
async fn depose(folder: &Path, outlet: &Outlet, why: String) -> Result<i32, ServeError> {
    tracing::warn!("this controller ends: {why}");
    outlet.send(&NodeMsg::Deposed { text: why });
    let _ = tokio::time::timeout(FLUSH_LIMIT, outlet.flushed()).await;
    home::end_journal(folder);
    // Nothing is dropped: nodes would be dismissed with their remote shells.
    std::process::exit(1)
}

/// Begins, or goes on with, the job that the console orders.
fn carry_out(
    order: Order,
    id: &str,
    folder: &Path,
    prefix: Prefix,
    lifeline: OwnedFd,
    outlet: &Outlet,
    tell: &UnboundedSender<Msg>,
) -> Result<Shared, BeginError> {
    let (spec, restart) = match order {
        Order::Resume { verbose } => return resume(id, folder, verbose, outlet, tell),
        Order::Start(spec) => (*spec, false),
        Order::Restart(spec) => (*spec, true),
    };
    match spec.nodes {
        0 => begin(id, folder, prefix, (spec, restart), outlet, tell),
        _ => begin_many(id, folder, (spec, restart), lifeline, outlet, tell),
    }
}

/// Takes a message, and what has come meanwhile: that is one turn.
fn take(job: &Shared, first: Msg, told: &mut mpsc::UnboundedReceiver<Msg>) {
    let mut job = job.borrow_mut();
    job.take(first);
    for _ in 1..TURN {
        if job.exit_code().is_some() {
            return;
        }
        let Ok(message) = told.try_recv() else { return };
        job.take(message);
    }
}

/// Reads what is saved, and removes what is left of a daemon that was there before.
fn take_up(folder: &Path) -> Result<SavedJob, BeginError> {
    let saved = SavedJob::read(folder)?;
    for name in [home::SOCKET, home::ENDED, home::JOURNAL] {
        let path = folder.join(name);
        let removed = std::fs::remove_file(&path).or_else(absent_is_fine);
        removed.map_err(|e| BeginError::File(path, e))?;
    }
    // Storage of nodes of which no process is left.
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()) {
        if path.file_name().is_some_and(|n| n.as_bytes().starts_with(b"node-")) && path.is_dir() {
            at_rest::remove_dir_all(&path).map_err(|e| BeginError::File(path, e))?;
        }
    }
    Ok(saved)
}

/// A job whose one node lives in this process: a new one, or one that was saved.
fn begin(
    id: &str,
    folder: &Path,
    prefix: Prefix,
    (spec, restart): (JobSpec, bool),
    outlet: &Outlet,
    tell: &UnboundedSender<Msg>,
) -> Result<Shared, BeginError> {
    let saved = restart.then(|| take_up(folder)).transpose()?;
    if let AtRest::Keyed { file, mark } = &spec.at_rest {
        sealing::begin_with(Path::new(file), mark).map_err(BeginError::Daemon)?;
    }
    let images = folder.join(home::IMAGES);
    let segment = saved.as_ref().map(|s| s.segment_file(folder));
    let place = agent::Place { id: id.to_string(), images, prefix, segment };
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let (hear, heard) = mpsc::unbounded_channel();
    let out = tell.clone();
    let say = Arc::new(move |message| drop(out.send(Msg::Node { node: 0, message })));
    let node = Agent::begin(place, spec.clone(), hear, say, None)?;
    tokio::task::spawn_local(async move { agent::serve(&node, &mut ordered, heard).await });
    let place = Place { id: id.to_string(), folder: folder.to_path_buf() };
    let nodes = vec![Node::here(orders)];
    let job = Job::begin(place, spec, saved, nodes, outlet.clone(), tell.clone())?;
    match restart {
        true => job.borrow_mut().restart(),
        false => job.borrow_mut().start_all(),
    }
    job.borrow_mut().end_turn();
    Ok(job)
}

/// A job whose nodes have daemons of their own. It starts, or goes on, when all have called.
fn begin_many(
    id: &str,
    folder: &Path,
    (spec, restart): (JobSpec, bool),
    lifeline: OwnedFd,
    outlet: &Outlet,
    tell: &UnboundedSender<Msg>,
) -> Result<Shared, BeginError> {
    let saved = restart.then(|| take_up(folder)).transpose()?;
    if saved.as_ref().is_some_and(|saved| !units::are_same(&saved.spec, &spec)) {
        return Err(BeginError::Units);
    }
    let reign = take_lead(id, &spec, tell)?;
    let vouch = reign.as_ref().map(Reign::vouch);
    let begun = start_nodes(id, folder, &spec, lifeline, vouch, tell);
    let (crew, nodes) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            reign.into_iter().for_each(Reign::remove);
            return Err(error);
        }
    };
    let place = Place { id: id.to_string(), folder: folder.to_path_buf() };
    let job = Job::begin(place, spec, saved, nodes, outlet.clone(), tell.clone())?;
    job.borrow_mut().employ(crew);
    reign.map_or(Ok(()), |reign| job.borrow_mut().lead(reign))?;
    if restart {
        job.borrow_mut().restart();
    }
    job.borrow_mut().begin_gateways();
    job.borrow_mut().begin_journal();
    job.borrow_mut().end_turn();
    Ok(job)
}

/// The lead of a new job whose state is to be in etcd.
fn take_lead(
    id: &str,
    spec: &JobSpec,
    tell: &UnboundedSender<Msg>,
) -> Result<Option<Reign>, BeginError> {
    let lead = spec.ha.as_ref().map(|ha| Lead::found(ha, id)).transpose();
    let reign = |lead| Reign::begin(lead, tell).map_err(HaError::Thread);
    let reign = lead.and_then(|lead| lead.map(reign).transpose());
    Ok(reign.map_err(JournalError::Ha)?)
}

/// Starts the daemons of a job's nodes.
fn start_nodes(
    id: &str,
    folder: &Path,
    spec: &JobSpec,
    lifeline: OwnedFd,
    vouch: Option<Arc<Vouch>>,
    tell: &UnboundedSender<Msg>,
) -> Result<(Crew, Vec<Node>), BeginError> {
    let lifeline = match spec.is_journaled() {
        true => {
            let held = home::hold_nodes(folder).map_err(BeginError::Daemon)?;
            give_signs(folder, spec);
            held
        }
        false => lifeline,
    };
    let crew = Crew::new(id, folder, spec, lifeline, vouch, tell.clone());
    let crew = crew.map_err(BeginError::Daemon)?;
    let mut nodes = Vec::new();
    for node in 0..spec.nodes + spec.spares {
        let epoch = u64::from(node) + 1;
        if spec.clusters.is_behind(node) {
            nodes.push(Node::later(epoch));
            continue;
        }
        let daemon = start_daemon(&crew, (node, epoch), None, tell).map_err(BeginError::Daemon)?;
        nodes.push(Node::there(daemon));
    }
    if let Some(hosts) = &spec.hosts {
        let (tell, limit) = (tell.clone(), Duration::from_millis(hosts.join_ms));
        tokio::task::spawn_local(async move {
            tokio::time::sleep(limit).await;
            let _ = tell.send(Msg::JoiningOver);
        });
    }
    Ok((crew, nodes))
}

/// Has it known, should this controller die, how long nodes on other machines wait for another.
fn give_signs(folder: &Path, spec: &JobSpec) {
    if spec.hosts.is_none() || !spec.is_journaled() {
        return;
    }
    let (folder, limit) = (folder.to_path_buf(), spec.controller_limit());
    tokio::task::spawn_local(async move {
        // Until the job is over.
        while home::note_elsewhere(&folder, limit).is_ok() {
            tokio::time::sleep(home::SIGN).await;
        }
    });
}

/// A job whose controller is dead.
fn resume(
    id: &str,
    folder: &Path,
    verbose: bool,
    outlet: &Outlet,
    tell: &UnboundedSender<Msg>,
) -> Result<Shared, BeginError> {
    let place = Place { id: id.to_string(), folder: folder.to_path_buf() };
    let socket = folder.join(home::SOCKET);
    let removed = std::fs::remove_file(&socket).or_else(absent_is_fine);
    removed.map_err(|e| BeginError::File(socket, e))?;
    let lifeline = home::hold_nodes(folder).map_err(BeginError::Daemon)?;
    let job = Job::resume(place, verbose, lifeline, outlet.clone(), tell)?;
    give_signs(folder, job.borrow().spec());
    Ok(job)
}

/// Has the nodes keep what is to be kept, and end.
async fn wind_up(job: &Shared, told: &mut mpsc::UnboundedReceiver<Msg>) {
    job.borrow_mut().keep_logs();
    job.borrow_mut().end_turn();
    let deposed = || job.borrow().deposed().is_some();
    while !job.borrow().logs_kept() && !deposed() {
        let Some(message) = told.recv().await else { return };
        job.borrow_mut().take(message);
        job.borrow_mut().end_turn();
    }
    job.borrow_mut().finish();
    let end = tokio::time::Instant::now() + JOINING;
    loop {
        job.borrow_mut().end_turn();
        if deposed() {
            return;
        }
        let joining = tokio::time::Instant::now() < end;
        let finished = job.borrow().finished(joining);
        if let Some(left) = finished.filter(|_| !job.borrow().is_behind()) {
            if left > 0 {
                job.borrow().say(format!("{left} processes cannot be killed"));
                job.borrow_mut().end_turn();
            }
            return;
        }
        let message = tokio::select! {
            message = told.recv() => message,
            () = tokio::time::sleep_until(end), if joining => continue,
        };
        let Some(message) = message else { return };
        job.borrow_mut().take(message);
    }
}

/// Leaves nothing behind, then tells the console.
async fn finish(
    job: Option<&Shared>,
    folder: &Path,
    outlet: &Outlet,
    code: i32,
) -> Result<i32, ServeError> {
    let journaled = folder.join(home::JOURNAL).exists();
    let kept = job.filter(|j| j.borrow().keeps_folder() && !folder.join(home::SAVED).exists());
    let noted = kept.map_or(Ok(()), |job| note_end(&job.borrow(), folder));
    if journaled {
        // As long as there is a journal the console would start another controller.
        outlet.send(&NodeMsg::Exit { code });
        let _ = tokio::time::timeout(FLUSH_LIMIT, outlet.flushed()).await;
        // Should this process be killed from here on, the console does the rest.
        points::reach("end-1");
    }
    let left = match noted {
        Ok(()) => home::leave(folder),
        Err(error) => {
            home::end_journal(folder);
            Err(error)
        }
    };
    if let Err(error) = left {
        outlet.send(&NodeMsg::Say(format!("cannot clear {}: {error}", folder.display())));
    }
    outlet.send(&NodeMsg::Exit { code });
    let _ = tokio::time::timeout(FLUSH_LIMIT, outlet.flushed()).await;
    Ok(code)
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Keeps what tells about the job. With that its folder stays.
fn note_end(job: &Job, folder: &Path) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(&job.status())?;
    eyrie_image::write_private(&folder.join(home::ENDED), &text)
}

fn listen(folder: &Path) -> Result<UnixListener, ServeError> {
    let dir = File::open(folder).map_err(os("job folder"))?;
    let listener =
        UnixListener::bind(home::short_path(&dir, home::SOCKET)).map_err(os("socket"))?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(folder.join(home::SOCKET), mode).map_err(os("socket"))?;
    Ok(listener)
}

/// The daemon is asked to end: so is the job.
fn watch_signals(tell: &UnboundedSender<Msg>) -> Result<(), ServeError> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
        let mut signals = signal(kind).map_err(os("signals"))?;
        let tell = tell.clone();
        tokio::task::spawn_local(async move {
            while signals.recv().await.is_some() {
                let _ = tell.send(Msg::Stop { signal: kind.as_raw_value() });
            }
        });
    }
    Ok(())
}

/// The receiving side of a connection.
struct Reader {
    socket: OwnedReadHalf,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl Reader {
    fn new(socket: OwnedReadHalf) -> Reader {
        Reader { socket, decoder: Decoder::new(), buffer: vec![0; READ_BYTES] }
    }

    /// The next message; `None` when the connection is over.
    async fn next(&mut self) -> Result<Option<ClientMsg>, eyrie_control::FrameError> {
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(Some(message));
            }
            match self.socket.read(&mut self.buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(count) => self.decoder.push(&self.buffer[..count]),
            }
        }
    }
}

fn check_hello(message: Option<ClientMsg>) -> Result<(), String> {
    match message {
        Some(ClientMsg::Hello { protocol: PROTOCOL }) => Ok(()),
        Some(ClientMsg::Hello { protocol }) => Err(format!(
            "speaks protocol {protocol}, this daemon {PROTOCOL}: use the eyrie that started the job"
        )),
        Some(_) => Err(String::from("did not say hello")),
        None => Err(String::from("is gone")),
    }
}

/// What the console wants.
enum Order {
    Start(Box<JobSpec>),
    Restart(Box<JobSpec>),
    Resume { verbose: bool },
}

async fn greeting(reader: &mut Reader, outlet: &Outlet) -> Result<Order, ServeError> {
    outlet.send(&NodeMsg::Hello { protocol: PROTOCOL });
    let bad = |e: eyrie_control::FrameError| ServeError::Console(e.to_string());
    check_hello(reader.next().await.map_err(bad)?).map_err(ServeError::Console)?;
    match reader.next().await.map_err(bad)? {
        Some(ClientMsg::Start(spec)) => {
            Ok(Order::Start(Box::new(check_spec(*spec).map_err(ServeError::Console)?)))
        }
        Some(ClientMsg::Restart(spec)) => {
            Ok(Order::Restart(Box::new(check_spec(*spec).map_err(ServeError::Console)?)))
        }
        Some(ClientMsg::Resume { verbose }) => Ok(Order::Resume { verbose }),
        _ => Err(ServeError::Console(String::from("sent no job"))),
    }
}

fn check_spec(spec: JobSpec) -> Result<JobSpec, String> {
    let most = eyrie_ledger::segment::MAX_RANKS;
    if !(1..=most).contains(&spec.size) {
        return Err(format!("asks for {} ranks; one node holds 1 to {most}", spec.size));
    }
    let many = u64::from(spec.nodes) + u64::from(spec.spares);
    if many > u64::from(most) || (spec.nodes == 0 && spec.spares > 0) {
        return Err(format!("asks for {} nodes and {} spares", spec.nodes, spec.spares));
    }
    let hosts = spec.hosts.as_ref().map(|h| h.list.len() as u64);
    if hosts.is_some_and(|h| h != many || spec.nodes == 0 || spec.netns) {
        return Err(format!("asks for {many} nodes on other hosts than it names"));
    }
    let clusters = &spec.clusters;
    let unknown = clusters.of.iter().any(|c| *c >= clusters.count().max(1));
    let few = clusters.count() > MAX_CLUSTERS || u64::from(clusters.count()) > many;
    if few || unknown || (clusters.count() > 0 && clusters.of.len() as u64 != many) {
        return Err(String::from("puts nodes into clusters that there are not"));
    }
    let routed = spec.routers > 0;
    if routed && (spec.routers > spec.spares || spec.ft != Ft::Logged) {
        return Err(String::from("asks for routers that do not go with the rest"));
    }
    let (homes, ranks) = (&spec.homes, spec.size as usize);
    if !homes.is_empty() && (homes.len() != ranks || homes.iter().any(|h| *h >= spec.nodes)) {
        return Err(String::from("gives ranks homes that there are not"));
    }
    if !spec.slots.is_empty() && spec.slots.len() != ranks {
        return Err(String::from("names processors of other ranks than there are"));
    }
    if spec.nodes > 0 && spec.ft.verifies() {
        return Err(String::from("asks for a verification on several nodes"));
    }
    let one = matches!(spec.ft, Ft::Cluster { .. }) && clusters.count() < 2;
    if spec.ft.has_units() && (spec.nodes == 0 || one) {
        return Err(String::from("asks for recovery units that there are not"));
    }
    if spec.tls && matches!(spec.transport, Transport::Fabric(_)) {
        return Err(String::from("asks for encryption over libfabric, which does none"));
    }
    if spec.argv.is_empty() || spec.program.is_empty() {
        return Err(String::from("names no program"));
    }
    Ok(spec)
}

async fn console_input(mut reader: Reader, job: Shared, tell: UnboundedSender<Msg>) {
    loop {
        match reader.next().await {
            Ok(Some(ClientMsg::Stdin(bytes))) => job::take_input(&job, &bytes),
            Ok(Some(ClientMsg::StdinEof)) => job::end_input(&job),
            Ok(Some(ClientMsg::Signal(signal))) => {
                let _ = tell.send(Msg::Stop { signal });
            }
            Ok(Some(_)) | Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "console");
                job.borrow_mut().malformed += 1;
                break;
            }
        }
    }
    let _ = tell.send(Msg::ConsoleGone);
}

async fn accept(listener: UnixListener, job: Shared) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(client(stream, Rc::clone(&job)));
            }
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Numbers of connections.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

async fn client(stream: UnixStream, job: Shared) {
    let number = CLIENTS.fetch_add(1, Ordering::Relaxed);
    serve_client(stream, number, &job).await;
    job.borrow_mut().client_gone(number);
    job.borrow_mut().end_turn();
}

/// Serves one client until it hangs up or errs.
async fn serve_client(stream: UnixStream, number: u64, job: &Shared) {
    if !stream.peer_cred().is_ok_and(|c| eyrie_image::is_own_or_root(c.uid())) {
        return;
    }
    let (reader, writer) = stream.into_split();
    let outlet = Outlet::new(writer);
    let mut reader = Reader::new(reader);
    outlet.send(&NodeMsg::Hello { protocol: PROTOCOL });
    let mut greeted = false;
    loop {
        let message = match reader.next().await {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(error) => {
                job.borrow_mut().malformed += 1;
                outlet.send(&NodeMsg::Error(error.to_string()));
                return outlet.flushed().await;
            }
        };
        if !greeted {
            if let Err(text) = check_hello(Some(message)) {
                outlet.send(&NodeMsg::Error(format!("client {text}")));
                return outlet.flushed().await;
            }
            greeted = true;
            continue;
        }
        let kill = message == ClientMsg::KillController;
        let answered = answer(message, number, job, &outlet);
        job.borrow_mut().end_turn();
        match answered {
            Err(text) => outlet.send(&NodeMsg::Error(text)),
            Ok(()) if kill => {
                outlet.send(&NodeMsg::Done);
                outlet.flushed().await;
                // SAFETY: plain system call; it ends this process.
                unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
            }
            Ok(()) => {}
        }
    }
}

/// What is answered by `Done` when it was begun.
fn at_once(message: &ClientMsg, job: &mut Job) -> Option<Result<(), String>> {
    Some(match message {
        ClientMsg::Kill { ranks } => job.inject(ranks),
        ClientMsg::KillNodes { nodes } => job.inject_nodes(nodes),
        ClientMsg::KillGateways { clusters } => job.inject_gateways(clusters),
        ClientMsg::Block { clusters, block } => job.block_clusters(clusters, *block),
        ClientMsg::Stay { nodes } if !job.is_etcd_away() => job.call_off(nodes),
        ClientMsg::Notice => job.noticed_here(),
        ClientMsg::Abort => {
            job.abort();
            Ok(())
        }
        _ => return None,
    })
}

fn answer(message: ClientMsg, client: u64, job: &Shared, outlet: &Outlet) -> Result<(), String> {
    let mut job = job.borrow_mut();
    if let Some(begun) = at_once(&message, &mut job) {
        begun?;
        outlet.send(&NodeMsg::Done);
        return Ok(());
    }
    match message {
        ClientMsg::Status => job.ask_status(outlet.clone()),
        ClientMsg::Checkpoint { rank } => return job.ask_checkpoint(rank, outlet.clone()),
        ClientMsg::CheckpointAndEnd => return job.checkpoint_and_end(Some(outlet.clone())),
        ClientMsg::KillController => job.inject_controller()?,
        ClientMsg::Grow { .. }
        | ClientMsg::GrowHosts { .. }
        | ClientMsg::Drain { .. }
        | ClientMsg::Migrate { .. }
        | ClientMsg::Stay { .. }
            if job.is_etcd_away() =>
        {
            return Err(String::from("etcd is away, and nothing is decided meanwhile: ask again"));
        }
        ClientMsg::Grow { nodes, cluster } => {
            job.grow(nodes, cluster.as_deref(), outlet.clone())?
        }
        ClientMsg::GrowHosts { hosts, clusters, domains } => {
            job.grow_hosts(hosts, (&clusters, &domains), outlet.clone())?;
        }
        ClientMsg::Drain { nodes, to, deadline_ms, number } => {
            job.drain((&nodes, &to), deadline_ms, number, outlet.clone())?;
        }
        ClientMsg::Migrate { from, to, release, deadline_ms, number } => {
            job.migrate((&from, &to), (release, deadline_ms), number, outlet.clone())?;
        }
        ClientMsg::Suspend { swap } => job.suspend(swap, outlet.clone())?,
        ClientMsg::Continue => job.let_go_on(Holder::User, outlet)?,
        ClientMsg::Turn { runs: true, .. } => job.let_go_on(Holder::Client(client), outlet)?,
        ClientMsg::Turn { runs: false, lease_ms } => {
            job.hold(Holder::Client(client), Some(lease_ms), outlet.clone())?;
        }
        ClientMsg::Vault => job.tell_vault(outlet)?,
        ClientMsg::Scrub { write, rate } => {
            job.ask_scrub((write, rate), (client, outlet.clone()))?;
        }
        ClientMsg::Events { from, follow } => job.tell_events(from, follow, outlet.clone()),
        _ => return Err(String::from("not asked for on this connection")),
    }
    Ok(())
}
