//! A node daemon: a node of a job with several, in a process of its own (`eyrie __member`).
//!
//! Kept true: the job's key comes through standard input and stands in no argument; when the
//! controller is gone, or does not want this node any more, its processes and its storage go, too.

use crate::agent::{self, Agent, BeginError, Network};
use crate::home;
use crate::reap;
use crate::spawn::Prefix;
use crate::store::{self, Identity, Members};
use crate::wire::{self, Limits};
use eyrie_control::auth::{self, AuthError, Hello, Key, Role};
use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::node::Enlist;
use eyrie_control::{Decoder, FromNode, ToNode};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Longest wait for the controller's answer at the beginning.
const GREETING: Duration = Duration::from_secs(20);

/// Longest wait for an answer to the first call; longer each time.
const FIRST_CALL: Duration = Duration::from_millis(50);

/// Longest wait for the controller's hanging up at the end.
const FAREWELL: Duration = Duration::from_secs(10);

/// How often it is tried to remove what is written to.
const REMOVALS: u32 = 100;

/// Why a node daemon ends early.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("{what}: {source}")]
    Os { what: &'static str, source: io::Error },
    #[error("what it is told on standard input does not decode")]
    Enlist,
    #[error("the controller: {0}")]
    Controller(#[from] AuthError),
    #[error(transparent)]
    Begin(#[from] BeginError),
}

fn os(what: &'static str) -> impl Fn(io::Error) -> DaemonError {
    move |source| DaemonError::Os { what, source }
}

/// Runs a node to its end, on the calling (main) thread.
pub fn run(prefix: Prefix) -> Result<(), DaemonError> {
    let enlist = read_enlist()?;
    reap::adopt_orphans().map_err(os("subreaper"))?;
    // SAFETY: sets a disposition before any other thread exists. A write beyond the file size
    // limit then fails like one on a full disk.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let folder = PathBuf::from(OsStr::from_bytes(&enlist.folder));
    let lodged = enlist.lodged;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(os("runtime"))?;
    let local = tokio::task::LocalSet::new();
    let kept = runtime.block_on(local.run_until(serve(enlist, &folder, prefix)));
    reap::clear();
    if !matches!(kept, Ok(true)) {
        let around = folder.parent().filter(|_| lodged);
        remove(around.unwrap_or(&folder));
    }
    kept.map(|_| ())
}

/// Removes its storage, also while a thread still writes there.
fn remove(folder: &Path) {
    for _ in 0..REMOVALS {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}

fn read_enlist() -> Result<Enlist, DaemonError> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(os("standard input"))?;
    let mut decoder = Decoder::within(MAX_NODE_FRAME_BYTES);
    decoder.push(&bytes);
    decoder.next_message().ok().flatten().ok_or(DaemonError::Enlist)
}

/// Returns whether its storage is to be kept.
async fn serve(enlist: Enlist, folder: &Path, prefix: Prefix) -> Result<bool, DaemonError> {
    let Enlist { job, node, epoch, key, controller, spec, .. } = enlist;
    let keep = spec.keep;
    std::fs::DirBuilder::new().mode(0o700).create(folder).map_err(os("storage"))?;
    let mut stream = call(controller).map_err(os("controller"))?;
    let key = Key(key);
    let here = stream.local_addr().map_err(os("controller"))?.ip();
    greet(&mut stream, &job, (node, epoch), &key)?;
    let stream = Arc::new(stream);
    let own = Identity { job: job.clone(), node, epoch, key };
    let images = folder.join(home::IMAGES);
    let members = Members::default();
    let store = TcpListener::bind((here, 0)).map_err(os("listener"))?;
    let store_at = store.local_addr().map_err(os("listener"))?;
    let turned_away = Arc::default();
    let count = Arc::clone(&turned_away);
    store::serve(store, own.clone(), images.clone(), Arc::clone(&members), count)
        .map_err(os("store"))?;
    let to_controller =
        wire::write(Arc::clone(&stream), || FromNode::Beat).map_err(os("thread"))?;
    let limits = Arc::new(Limits::default());
    let told = Arc::clone(&limits);
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let (hear, heard) = mpsc::unbounded_channel();
    let homes = Vec::new();
    let network = Network { own, members, here, store: store_at, turned_away, homes, links: None };
    let place = agent::Place { id: job, images, prefix, segment: None };
    let out = to_controller.clone();
    let say = Arc::new(move |message| out.send(message));
    let agent = Agent::begin(place, spec, hear, say, Some(network))?;
    agent.borrow_mut().join();
    wire::read(stream, limits, move |order: Result<ToNode, String>| match order {
        // Before this node gives the controller up, the controller has given this node up.
        Ok(ToNode::Beat { patience_ms }) => told.tell(patience_ms),
        Ok(order) => drop(orders.send(order)),
        // The sender goes with this closure, and the loop below ends.
        Err(why) => tracing::warn!("the controller is gone: {why}"),
    })
    .map_err(os("thread"))?;
    agent::serve(&agent, &mut ordered, heard).await;
    let finished = agent.borrow().finished();
    // The controller hangs up when it has read the last words.
    let hung_up = async { while ordered.recv().await.is_some() {} };
    let _ = tokio::time::timeout(FAREWELL, hung_up).await;
    Ok(finished && keep)
}

/// Calls the controller. What is sent first may be lost, as a bridge takes a moment to notice a new
/// network, and would be sent again a second later only.
fn call(controller: SocketAddr) -> io::Result<TcpStream> {
    let begun = Instant::now();
    let mut wait = FIRST_CALL;
    loop {
        match TcpStream::connect_timeout(&controller, wait) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut && begun.elapsed() < GREETING => {
                wait *= 2;
            }
            called => return called,
        }
    }
}

fn greet(stream: &mut TcpStream, job: &str, own: (u32, u64), key: &Key) -> Result<(), DaemonError> {
    stream.set_nodelay(true).map_err(os("controller"))?;
    stream.set_read_timeout(Some(GREETING)).map_err(os("controller"))?;
    let hello = Hello::new(Role::Node, job, own, (0, 0)).map_err(os("random numbers"))?;
    auth::call(stream, key, &hello, Role::Controller)?;
    Ok(())
}
