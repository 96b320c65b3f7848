//! A node daemon: a node of a job with several, in a process of its own (`eyrie __member`).
//!
//! Kept true: the job's key comes through standard input and stands in no argument; when the
//! controller is gone for too long (`controller_connection`), or does not want this node any more,
//! its processes and its storage go, too.

use eyrie_agent::{self as agent, Agent, BeginError, Network};
use eyrie_connection::controller_connection::{self, Caller};
use eyrie_connection::node_session::NodeSession;
use eyrie_control::auth::{AuthError, Key};
use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::gateway::{Clusters, HOME};
use eyrie_control::node::Enlist;
use eyrie_control::{AtRest, Decoder};
use eyrie_exchange::image_store::{self, StoreServices};
use eyrie_exchange::store_protocol::{Identity, Members};
use eyrie_exchange::vault::{Setup, VaultHandle};
use eyrie_ha::{HaError, Place, Watch};
use eyrie_launcher::node_storage;
use eyrie_process::reap;
use eyrie_process::spawn::Prefix;
use eyrie_process::stop_points;
use eyrie_protocol::timing::Intervals;
use eyrie_state::at_rest::{self, AtRestError};
use eyrie_state::home::{self, LOCK};
use eyrie_state::local::{self, Elsewhere, LocalError};
use eyrie_state::sealing;
use eyrie_tls::{Routes, Secret};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

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
    AtRest(#[from] AtRestError),
    #[error("it is told no key for what it is to encrypt")]
    NoKey,
    #[error(transparent)]
    Ha(#[from] HaError),
    #[error(transparent)]
    Begin(#[from] BeginError),
    #[error(transparent)]
    Local(#[from] LocalError),
}

fn os(what: &'static str) -> impl Fn(io::Error) -> DaemonError {
    move |source| DaemonError::Os { what, source }
}

/// Runs a node to its end, on the calling (main) thread.
pub fn run(prefix: Prefix) -> Result<(), DaemonError> {
    eyrie_image::give_large_back();
    let enlist = read_enlist()?;
    reap::adopt_orphans().map_err(os("subreaper"))?;
    // SAFETY: sets a disposition before any other thread exists. A write beyond the file size
    // limit then fails like one on a full disk.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let folder = PathBuf::from(OsStr::from_bytes(&enlist.folder));
    // Around it lies what its keeper keeps: this node's as long as its lock is there.
    let lodging = folder.parent().filter(|_| enlist.lodged).map(Path::to_path_buf);
    let lodging = lodging.and_then(|around| Some((File::open(around.join(LOCK)).ok()?, around)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(os("runtime"))?;
    let local = tokio::task::LocalSet::new();
    let kept = runtime.block_on(local.run_until(serve(enlist, &folder, prefix)));
    reap::clear();
    if matches!(kept, Ok(true)) {
        local::keep(&folder);
    } else {
        match &lodging {
            Some((lock, around)) => node_storage::remove(around, lock),
            // Nobody listens any more.
            None => drop(home::remove_folder(&folder)),
        }
    }
    kept.map(|_| ())
}

fn read_enlist() -> Result<Enlist, DaemonError> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(os("standard input"))?;
    let mut decoder = Decoder::within(MAX_NODE_FRAME_BYTES);
    decoder.push(&bytes);
    decoder.next_message().ok().flatten().ok_or(DaemonError::Enlist)
}

/// Who tells this node to end is passed on: it ends when nothing of the job hangs on it any more.
fn heed_signals(hear: &mpsc::UnboundedSender<agent::Msg>) -> io::Result<()> {
    let kinds = [SignalKind::terminate(), SignalKind::user_defined1(), SignalKind::user_defined2()];
    for kind in kinds {
        let (mut signals, hear) = (signal(kind)?, hear.clone());
        tokio::task::spawn_local(async move {
            while signals.recv().await.is_some() {
                let _ = hear.send(agent::Msg::Notice);
            }
        });
    }
    Ok(())
}

/// Makes it there, or where nodes of this machine have theirs.
fn make_storage(
    folder: &Path,
    name: &str,
    (at_rest, key): (&AtRest, Option<&Key>),
) -> Result<Option<Elsewhere>, DaemonError> {
    let elsewhere = local::make(folder, name, local::wanted())?;
    if elsewhere.is_none() {
        std::fs::DirBuilder::new().mode(0o700).create(folder).map_err(os("storage"))?;
    }
    if *at_rest == AtRest::Kernel {
        at_rest::encrypt(folder)?;
    }
    match key {
        Some(key) => sealing::begin(&key.0).map_err(os("the key for what it stores"))?,
        None if at_rest.is_sealed() => return Err(DaemonError::NoKey),
        None => {}
    }
    Ok(elsewhere)
}

/// What is known of the ways to others before the controller says more: the gateway that leads to
/// it, if only one does.
fn routes_from(node: u32, gateway: Option<(u64, SocketAddr)>, clusters: &Clusters) -> Routes {
    let routes = Routes::default();
    if let Some((number, at)) = gateway {
        routes.set((0..=node).map(|node| clusters.of(node)).collect(), None);
        routes.set_home(HOME);
        routes.set_gateway(number, at);
    }
    routes
}

fn caller(enlist: &Enlist, routes: &Routes) -> Result<Caller, DaemonError> {
    let Enlist { job, node, epoch, key, lodged, controller, gateway, spec, .. } = enlist;
    let watch = spec.storage.ha.as_ref().map(|ha| Place::brief(ha, job)).transpose()?;
    Ok(Caller {
        controller: *controller,
        job: job.clone(),
        own: (*node, *epoch),
        secret: Secret::new(Key(*key), spec.security.tls).map_err(os("TLS"))?,
        limit: spec.controller_limit(),
        watch: watch.map(|place| Arc::new(Watch::new(place, spec.timing.intervals.lease))),
        through: gateway.map(|_| routes.clone()),
        near: !lodged
            && spec.placement.hosts.is_none()
            && !spec.placement.netns
            && gateway.is_none(),
        detector: spec.timing.intervals.detector,
        greeting: Duration::from_millis(spec.timing.intervals.limits.greeting_ms),
    })
}

/// Returns whether its storage is to be kept.
async fn serve(enlist: Enlist, folder: &Path, prefix: Prefix) -> Result<bool, DaemonError> {
    let name = format!("{}-{}", enlist.job, enlist.node);
    let at_rest = (&enlist.spec.security.at_rest, enlist.at_rest.as_ref());
    let elsewhere = make_storage(folder, &name, at_rest)?;
    // Its lock is held to the end.
    let folder = elsewhere.as_ref().map_or(folder, |storage| storage.path.as_path());
    let routes = routes_from(enlist.node, enlist.gateway, &enlist.spec.placement.clusters);
    let caller = caller(&enlist, &routes)?;
    let Enlist { job, node, epoch, spec, .. } = enlist;
    let (keep, secret) = (spec.storage.keep, caller.secret.clone());
    stop_points::reach("join-1");
    let called = caller.call()?;
    let here = called.stream.socket().local_addr().map_err(os("controller"))?.ip();
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let (post, watch) = (Arc::new(NodeSession::default()), caller.watch.clone());
    // Before what takes seconds, as libfabric's look for its providers, or all on a busy machine:
    // silence is the end.
    controller_connection::keep(caller, called, Arc::clone(&post), orders).map_err(os("thread"))?;
    let Intervals { limits, grace, .. } = spec.timing.intervals;
    let silence = Duration::from_millis(limits.link_silence_ms);
    let own = Identity { job: job.clone(), node, epoch, secret, routes, silence };
    let images = folder.join(home::IMAGES);
    let members = Members::default();
    let store = TcpListener::bind((here, 0)).map_err(os("listener"))?;
    let store_at = store.local_addr().map_err(os("listener"))?;
    let turned_away = Arc::default();
    let count = Arc::clone(&turned_away);
    let say = Arc::new(move |message| post.say(message));
    let vault = spec.is_vaulted().then(|| {
        let (folder, images) = (folder.join(home::VAULT), images.clone());
        let (job, ranks, members) = (job.clone(), spec.program.size, Arc::clone(&members));
        VaultHandle::open(Setup { folder, images, job, ranks, members, say: say.clone() })
    });
    let vault = vault.transpose().map_err(os("thread"))?;
    let ignored = spec.placement.ignore_features.clone().into();
    let services = StoreServices { vault: vault.clone(), ignored, ..StoreServices::default() };
    let invited = Arc::clone(&services.invited);
    image_store::serve(store, own.clone(), images.clone(), Arc::clone(&members), count, services)
        .map_err(os("store"))?;
    let (hear, heard) = mpsc::unbounded_channel();
    let (homes, store, archive, links) = (Vec::new(), store_at, None, None);
    let network = Network {
        own,
        members,
        here,
        store,
        turned_away,
        invited,
        homes,
        links,
        archive,
        vault,
        watch,
    };
    let place = agent::Place { id: job, images, saved: None, prefix, segment: None };
    if spec.timing.grace_ms > 0 {
        heed_signals(&hear).map_err(os("signals"))?;
    }
    let agent = Agent::begin(place, spec, hear, say, Some(network))?;
    agent.borrow_mut().join();
    agent::serve(&agent, &mut ordered, heard).await;
    let finished = agent.borrow().finished();
    let keep = keep && !agent.borrow().departs();
    // The controller hangs up when it has read the last words.
    let hung_up = async { while ordered.recv().await.is_some() {} };
    let _ = tokio::time::timeout(Duration::from_millis(grace.hang_up_ms), hung_up).await;
    Ok(finished && keep)
}
