//! The daemon itself: its connections and its main loop.
//!
//! Kept true: the job lives as long as the console's connection; malformed input closes a
//! connection and is counted; on the way out no process, image or segment is left.

mod begin;
mod drive;
mod reader;
mod takeover;

use crate::metrics::Metrics;
use crate::outside::client as told_by;
use begin::{BeginError, carry_out};
use drive::Driver;
pub(crate) use drive::Shared;
use eyrie_connection::send_queue::SendQueue;
use eyrie_control::gateway::MAX_CLUSTERS;
use eyrie_control::{ClientMsg, JobSpec, NodeMsg, PROTOCOL};
use eyrie_controller::{Job, Msg, Place};
use eyrie_ha::HaError;
use eyrie_launcher::node_launcher::Daemon;
use eyrie_launcher::remote_node;
use eyrie_process::reap;
use eyrie_process::spawn::Prefix;
use eyrie_process::stop_points;
use eyrie_protocol::suspend::Suspender;
use eyrie_state::history::{self, RecordError};
use eyrie_state::home;
use reader::Reader;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedSender};

/// Longest wait for a console that does not take the last messages.
const FLUSH_LIMIT: Duration = Duration::from_secs(20);
/// Longest wait for etcd to forget a job.
const FORGETTING: Duration = Duration::from_secs(10);
/// Longest wait for the last word of nodes that are just joining.
const JOINING: Duration = Duration::from_secs(10);

/// How the daemon is started.
pub struct Options {
    pub id: String,
    pub folder: PathBuf,
    /// The connection of `eyrie run`.
    pub console: OwnedFd,
    /// The job's lock, held until the end.
    pub lock: OwnedFd,
    pub prefix: Prefix,
    /// Where metrics are asked for, and the file that they are written to.
    pub metrics: (Option<OwnedFd>, Option<PathBuf>),
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
    eyrie_process::session::be_as_nice();
    let Options { id, folder, console, lock, prefix, metrics } = options;
    let lifeline = console.try_clone().map_err(os("console"))?;
    let console = StdStream::from(console);
    console.set_nonblocking(true).map_err(os("console"))?;
    let (reader, writer) = UnixStream::from_std(console).map_err(os("console"))?.into_split();
    let queue = SendQueue::new(writer);
    let mut reader = Reader::new(reader);
    let order = match greeting(&mut reader, &queue).await {
        Ok(order) => order,
        Err(error) => {
            queue.send(&NodeMsg::Error(error.to_string()));
            queue.send(&NodeMsg::Exit { code: 1 });
            queue.flushed().await;
            return Err(error);
        }
    };
    let (tell, mut told) = mpsc::unbounded_channel();
    let resumes = matches!(order, Order::Resume { .. });
    let driver = Driver::new(queue.clone(), tell.clone());
    let job = match carry_out(order, &id, &folder, prefix, lifeline, &driver) {
        Ok(job) => job,
        Err(error) => return not_begun(error, resumes, &folder, &queue).await,
    };
    note(note_begin(&job.borrow()), &queue);
    let listener = listen(&folder)?;
    tokio::task::spawn_local(accept(listener, job.clone()));
    tokio::task::spawn_local(console_input(reader, job.clone(), tell.clone()));
    watch_signals(&tell)?;
    let metrics = Metrics::begin(&job, metrics);
    let over = Rc::clone(&job.hands.over);
    loop {
        let look = job.borrow().next_look();
        tokio::select! {
            biased;
            () = over.notified() => break,
            message = told.recv() => match message {
                Some(message) => job.take(message, &mut told),
                None => break,
            },
            () = tokio::time::sleep(look) => job.borrow_mut().schedule(),
        }
        job.fire_due();
        job.borrow_mut().end_turn();
    }
    wind_up(&job, &mut told).await;
    let deposed = job.borrow().deposed();
    if let Some(why) = deposed {
        return depose(&folder, &queue, why).await;
    }
    see_off(&job, &mut told).await;
    let code = job.borrow().exit_code().unwrap_or(1);
    forget(&job, code, &queue).await;
    metrics.end().await;
    let code = finish(Some(&job), &folder, &queue, code).await;
    drop(lock);
    code
}

/// Waits for the end of all that belongs to a job that is over, and for its last state to be in an
/// object store.
async fn see_off(job: &Shared, told: &mut mpsc::UnboundedReceiver<Msg>) {
    let held = &job.hands.daemons;
    let guests = held.guests(&job.borrow().guests());
    let daemons = held.of(&job.borrow().daemons_to_await());
    let daemons: Vec<_> = daemons.into_iter().map(|daemon| daemon.pidfd).collect();
    let stragglers = held.of(&job.borrow().stragglers());
    job.borrow_mut().take_gateways();
    let (gateways, second_level) = (held.take_gateways(), job.hands.store.take());
    let given_up = second_level.given_up();
    let hang_up = Duration::from_millis(job.borrow().spec().timing.intervals.grace.hang_up_ms);
    let farewell = move || {
        gateways.into_iter().for_each(|gateway| gateway.dismiss());
        stragglers.iter().for_each(Daemon::put_down);
        remote_node::farewell(&guests, hang_up);
        remote_node::await_ends(&daemons, hang_up);
        second_level.close()
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
    if asked
        && !given_up.swap(true, Ordering::Relaxed)
        && job.borrow().spec().storage.save_to.is_some()
    {
        job.borrow().say("the object store is not waited for any more");
        job.borrow_mut().end_turn();
    }
}

/// Says why there is no job here.
async fn not_begun(
    error: BeginError,
    resumes: bool,
    folder: &Path,
    queue: &SendQueue,
) -> Result<i32, ServeError> {
    match error {
        BeginError::Ha(error @ HaError::Held) => {
            return depose(folder, queue, error.to_string()).await;
        }
        BeginError::Ha(HaError::Ended(code)) => {
            return finish(None, folder, queue, code).await;
        }
        error => queue.send(&NodeMsg::Error(error.to_string())),
    }
    if resumes {
        // What there is stays as it is, for another attempt.
        queue.send(&NodeMsg::Exit { code: 1 });
        queue.flushed().await;
        return Ok(1);
    }
    finish(None, folder, queue, 1).await
}

/// Has nothing of a job that is over stay in etcd.
async fn forget(job: &Shared, code: i32, queue: &SendQueue) {
    let (done, ended) = tokio::sync::oneshot::channel();
    // Who does not wait any more does not hear it.
    let done = move || {
        let _ = done.send(());
    };
    match &job.hands.etcd {
        Some(etcd) => etcd.end(code, done),
        None => done(),
    }
    if tokio::time::timeout(FORGETTING, ended).await.is_err() {
        let text =
            "etcd is away: remove there what is left of the job (docs/guides/high-availability.md)";
        queue.send(&NodeMsg::Say(String::from(text)));
    }
}

/// Another controller has the job: this one ends, and leaves all that is not its own alone.
async fn depose(folder: &Path, queue: &SendQueue, why: String) -> Result<i32, ServeError> {
    tracing::warn!("this controller ends: {why}");
    queue.send(&NodeMsg::Deposed { text: why });
    let _ = tokio::time::timeout(FLUSH_LIMIT, queue.flushed()).await;
    home::end_journal(folder);
    // Nothing is dropped: nodes would be dismissed with their remote shells.
    std::process::exit(1)
}

/// Has the nodes keep what is to be kept, and end.
async fn wind_up(job: &Shared, told: &mut mpsc::UnboundedReceiver<Msg>) {
    job.borrow_mut().keep_logs();
    job.borrow_mut().end_turn();
    let deposed = || job.borrow().deposed().is_some();
    while !job.borrow().logs_kept() && !deposed() {
        let Some(message) = job.next(told).await else { return };
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
            message = job.next(told) => message,
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
    queue: &SendQueue,
    code: i32,
) -> Result<i32, ServeError> {
    let journaled = folder.join(home::JOURNAL).exists();
    job.into_iter().for_each(|job| note(note_end(&job.borrow()), queue));
    let kept = job.filter(|j| j.borrow().keeps_folder() && !folder.join(home::SAVED).exists());
    let noted = kept.map_or(Ok(()), |job| keep_end(&job.borrow(), folder));
    if journaled {
        // As long as there is a journal the console would start another controller.
        queue.send(&NodeMsg::Exit { code });
        let _ = tokio::time::timeout(FLUSH_LIMIT, queue.flushed()).await;
        // Should this process be killed from here on, the console does the rest.
        stop_points::reach("end-1");
    }
    let left = match noted {
        Ok(()) => home::leave(folder),
        Err(error) => {
            home::end_journal(folder);
            Err(error)
        }
    };
    if let Err(error) = left {
        queue.send(&NodeMsg::Say(format!("cannot clear {}: {error}", folder.display())));
    }
    queue.send(&NodeMsg::Exit { code });
    let _ = tokio::time::timeout(FLUSH_LIMIT, queue.flushed()).await;
    Ok(code)
}

fn absent_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Notes in a job's record that it begins here.
fn note_begin(job: &Job) -> Result<(), RecordError> {
    let Place { id, folder } = job.place();
    history::begin(folder, id, job.spec(), job.begun_unix_ms())
}

/// And how it ended.
fn note_end(job: &Job) -> Result<(), RecordError> {
    let (status, traffic) = (job.status(), job.traffic());
    history::end(&job.place().folder, &status, job.account(), traffic.as_ref())
}

/// A job without a record is a job all the same.
fn note(noted: Result<(), RecordError>, queue: &SendQueue) {
    if let Err(error) = noted {
        let text = format!("eyrie history does not have all of this job: {error}");
        queue.send(&NodeMsg::Say(text));
    }
}

/// Keeps what tells about the job. With that its folder stays.
fn keep_end(job: &Job, folder: &Path) -> io::Result<()> {
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

async fn greeting(reader: &mut Reader, queue: &SendQueue) -> Result<Order, ServeError> {
    queue.send(&NodeMsg::Hello { protocol: PROTOCOL });
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
    if !(1..=most).contains(&spec.program.size) {
        return Err(format!("asks for {} ranks; one node holds 1 to {most}", spec.program.size));
    }
    let many = u64::from(spec.placement.nodes) + u64::from(spec.placement.spares);
    if many > u64::from(most) || (spec.placement.nodes == 0 && spec.placement.spares > 0) {
        return Err(format!(
            "asks for {} nodes and {} spares",
            spec.placement.nodes, spec.placement.spares
        ));
    }
    let hosts = spec.placement.hosts.as_ref().map(|h| h.list.len() as u64);
    if hosts.is_some_and(|h| h != many || spec.placement.nodes == 0 || spec.placement.netns) {
        return Err(format!("asks for {many} nodes on other hosts than it names"));
    }
    let clusters = &spec.placement.clusters;
    let unknown = clusters.of.iter().any(|c| *c >= clusters.count().max(1));
    let few = clusters.count() > MAX_CLUSTERS || u64::from(clusters.count()) > many;
    if few || unknown || (clusters.count() > 0 && clusters.of.len() as u64 != many) {
        return Err(String::from("puts nodes into clusters that there are not"));
    }
    let routed = spec.placement.routers > 0;
    if routed
        && (spec.placement.routers > spec.placement.spares || !spec.protection.ft.goes_back_alone())
    {
        return Err(String::from("asks for routers that do not go with the rest"));
    }
    let (homes, ranks) = (&spec.placement.homes, spec.program.size as usize);
    if !homes.is_empty()
        && (homes.len() != ranks || homes.iter().any(|h| *h >= spec.placement.nodes))
    {
        return Err(String::from("gives ranks homes that there are not"));
    }
    if !spec.placement.slots.is_empty() && spec.placement.slots.len() != ranks {
        return Err(String::from("names processors of other ranks than there are"));
    }
    if spec.placement.nodes > 0 && spec.protection.ft.verifies() {
        return Err(String::from("asks for a verification on several nodes"));
    }
    let one = spec.protection.ft.stays_in_a_cluster() && clusters.count() < 2;
    if spec.protection.ft.has_units() && (spec.placement.nodes == 0 || one) {
        return Err(String::from("asks for recovery units that there are not"));
    }
    if spec.security.tls && !spec.placement.transport.is_encrypted() {
        return Err(String::from("asks for encryption over a transport that does none"));
    }
    if spec.program.argv.is_empty() || spec.program.path.is_empty() {
        return Err(String::from("names no program"));
    }
    Ok(spec)
}

async fn console_input(mut reader: Reader, job: Shared, tell: UnboundedSender<Msg>) {
    loop {
        match reader.next().await {
            Ok(Some(ClientMsg::Stdin(bytes))) => job.borrow_mut().take_input(&bytes),
            Ok(Some(ClientMsg::StdinEof)) => job.borrow_mut().end_input(),
            Ok(Some(ClientMsg::Signal(signal))) => {
                let _ = tell.send(Msg::Stop { signal });
            }
            Ok(Some(_)) | Ok(None) => break,
            Err(error) => {
                tracing::warn!(%error, "console");
                job.borrow_mut().note_malformed();
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
                tokio::task::spawn_local(client(stream, job.clone()));
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
    let queue = SendQueue::new(writer);
    let mut reader = Reader::new(reader);
    queue.send(&NodeMsg::Hello { protocol: PROTOCOL });
    let mut greeted = false;
    loop {
        let message = match reader.next().await {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(error) => {
                job.borrow_mut().note_malformed();
                queue.send(&NodeMsg::Error(error.to_string()));
                return queue.flushed().await;
            }
        };
        if !greeted {
            if let Err(text) = check_hello(Some(message)) {
                queue.send(&NodeMsg::Error(format!("client {text}")));
                return queue.flushed().await;
            }
            greeted = true;
            continue;
        }
        let kill = message == ClientMsg::KillController;
        let answered = answer(message, number, job, &queue);
        job.borrow_mut().end_turn();
        match answered {
            Err(text) => queue.send(&NodeMsg::Error(text)),
            Ok(()) if kill => {
                queue.send(&NodeMsg::Done);
                queue.flushed().await;
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

fn answer(message: ClientMsg, client: u64, job: &Shared, queue: &SendQueue) -> Result<(), String> {
    let mut job = job.borrow_mut();
    if let Some(begun) = at_once(&message, &mut job) {
        begun?;
        queue.send(&NodeMsg::Done);
        return Ok(());
    }
    let queue = &told_by(queue.clone());
    match message {
        ClientMsg::Status => job.ask_status(queue.clone()),
        ClientMsg::Traffic => job.ask_traffic(queue.clone()),
        ClientMsg::Checkpoint { rank } => return job.ask_checkpoint(rank, queue.clone()),
        ClientMsg::CheckpointAndEnd => return job.checkpoint_and_end(Some(queue.clone())),
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
        ClientMsg::Grow { nodes, cluster } => job.grow(nodes, cluster.as_deref(), queue.clone())?,
        ClientMsg::GrowHosts { hosts, clusters, domains } => {
            job.grow_hosts(hosts, (&clusters, &domains), queue.clone())?;
        }
        ClientMsg::Drain { nodes, to, deadline_ms, number } => {
            job.drain((&nodes, &to), deadline_ms, number, queue.clone())?;
        }
        ClientMsg::Migrate { from, to, release, deadline_ms, number } => {
            job.migrate((&from, &to), (release, deadline_ms), number, queue.clone())?;
        }
        ClientMsg::Suspend { swap } => job.suspend(swap, queue.clone())?,
        ClientMsg::Continue => job.let_go_on(Suspender::User, queue)?,
        ClientMsg::Turn { runs: true, .. } => job.let_go_on(Suspender::Client(client), queue)?,
        ClientMsg::Turn { runs: false, lease_ms } => {
            job.hold(Suspender::Client(client), Some(lease_ms), queue.clone())?;
        }
        ClientMsg::Vault => job.tell_vault(queue)?,
        ClientMsg::Scrub { write, rate } => {
            job.ask_scrub((write, rate), (client, queue.clone()))?;
        }
        ClientMsg::Events { from, follow } => job.tell_events(from, follow, queue.clone()),
        _ => return Err(String::from("not asked for on this connection")),
    }
    Ok(())
}
