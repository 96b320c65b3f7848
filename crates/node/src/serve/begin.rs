//! How a job begins: a new one, one that was saved, one whose controller is dead.

use super::drive::{Driver, Shared};
use super::{Order, absent_is_fine, takeover};
use crate::outside::{BringError, Etcd, Hands, Reign, telling};
use eyrie_agent::{self as agent, Agent};
use eyrie_control::{AtRest, JobSpec};
use eyrie_controller::outside::Launcher;
use eyrie_controller::{self as controller, Job, JournalError, Msg, Node, Place};
use eyrie_ha::{HaError, Lead};
use eyrie_launcher::node_launcher::NodeLauncher;
use eyrie_process::spawn::Prefix;
use eyrie_state::at_rest;
use eyrie_state::home;
use eyrie_state::local::images::{self, Images, ImagesError};
use eyrie_state::nodes_lock;
use eyrie_state::saved_job::{SavedJob, SavedJobError};
use eyrie_state::sealing;
use eyrie_state::units;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc::{self, UnboundedSender};

/// Why a job cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    #[error("{0}")]
    Node(#[from] agent::BeginError),
    #[error("node daemon: {0}")]
    Daemon(io::Error),
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("{0}")]
    Saved(#[from] SavedJobError),
    #[error("{0}")]
    Images(#[from] ImagesError),
    #[error("{0}")]
    Journal(#[from] JournalError),
    #[error("{0}")]
    Ha(#[from] HaError),
    #[error("{0}")]
    Controller(#[from] controller::BeginError),
    #[error(
        "the ranks that began on one node (--ft node), or in one cluster (--ft cluster), were \
         saved together, and begin together again: go on with as many nodes, or clusters, and \
         ranks laid out as before"
    )]
    Units,
}

impl From<BringError> for BeginError {
    fn from(error: BringError) -> BeginError {
        match error {
            BringError::Journal(error) => error.into(),
            BringError::Ha(error) => error.into(),
        }
    }
}

/// Begins, or goes on with, the job that the console orders.
pub(super) fn carry_out(
    order: Order,
    id: &str,
    folder: &Path,
    prefix: Prefix,
    lifeline: OwnedFd,
    driver: &Driver,
) -> Result<Shared, BeginError> {
    let (spec, restart) = match order {
        Order::Resume { verbose } => return resume(id, folder, verbose, driver),
        Order::Start(spec) => (*spec, false),
        Order::Restart(spec) => (*spec, true),
    };
    match spec.placement.nodes {
        0 => begin(id, folder, prefix, (spec, restart), driver),
        _ => begin_many(id, folder, (spec, restart), lifeline, driver),
    }
}

/// Reads what is saved, and removes what is left of a daemon that was there before.
fn take_up(folder: &Path) -> Result<SavedJob, BeginError> {
    let saved = SavedJob::read(folder)?;
    images::settle(folder).map_err(|e| BeginError::File(folder.into(), e))?;
    for path in [home::SOCKET, home::ENDED, home::JOURNAL].map(|name| folder.join(name)) {
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
    driver: &Driver,
) -> Result<Shared, BeginError> {
    let saved = restart.then(|| take_up(folder)).transpose()?;
    if let AtRest::Keyed { file, mark } = &spec.security.at_rest {
        sealing::begin_with(Path::new(file), mark).map_err(BeginError::Daemon)?;
    }
    let (images, into) = Images::place(folder, id, images::wanted(&spec), restart)?.hold();
    let segment = saved.as_ref().map(|s| s.segment_file(folder));
    let place = agent::Place { id: id.to_string(), images, saved: into, prefix, segment };
    let (orders, mut ordered) = mpsc::unbounded_channel();
    let (hear, heard) = mpsc::unbounded_channel();
    let out = driver.tell.clone();
    let say = Arc::new(move |message| drop(out.send(Msg::Node { node: 0, message })));
    let node = Agent::begin(place, spec.clone(), hear, say, None)?;
    tokio::task::spawn_local(async move { agent::serve(&node, &mut ordered, heard).await });
    let place = Place { id: id.into(), folder: folder.into() };
    // A node that is gone is noticed elsewhere.
    let node = Node::here(move |order| drop(orders.send(order)));
    let hands = driver.hands(&place, &spec, None);
    let outside = hands.outside.clone();
    let mut job = Job::begin(place, spec, saved, vec![node], outside, driver.now())?;
    match restart {
        true => job.restart(),
        false => job.start_all(),
    }
    job.end_turn();
    Ok(driver.share(job, hands))
}

/// A job whose nodes have daemons of their own. It starts, or goes on, when all have called.
fn begin_many(
    id: &str,
    folder: &Path,
    (spec, restart): (JobSpec, bool),
    lifeline: OwnedFd,
    driver: &Driver,
) -> Result<Shared, BeginError> {
    let saved = restart.then(|| take_up(folder)).transpose()?;
    if saved.as_ref().is_some_and(|saved| !units::are_same(&saved.spec, &spec)) {
        return Err(BeginError::Units);
    }
    let reign = take_lead(id, &spec, &driver.tell)?;
    let place = Place { id: id.to_string(), folder: folder.to_path_buf() };
    let begun = start_nodes(&place, &spec, lifeline, reign.as_ref(), driver);
    let (mut hands, nodes) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            reign.into_iter().for_each(Reign::remove);
            return Err(error);
        }
    };
    let outside = hands.outside.clone();
    let mut job = Job::begin(place, spec, saved, nodes, outside, driver.now())?;
    job.await_first();
    if let Some(reign) = reign {
        let etcd = Etcd::begin(reign, folder, job.spec()).map_err(HaError::Thread)?;
        job.lead(Rc::clone(&etcd) as _);
        hands.etcd = Some(etcd);
    }
    if restart {
        job.restart();
    }
    job.begin_gateways();
    job.begin_journal();
    job.end_turn();
    Ok(driver.share(job, hands))
}

/// The lead of a new job whose state is to be in etcd.
fn take_lead(
    id: &str,
    spec: &JobSpec,
    tell: &UnboundedSender<Msg>,
) -> Result<Option<Reign>, BeginError> {
    let length = spec.timing.intervals.lease;
    let lead = spec.storage.ha.as_ref().map(|ha| Lead::found(ha, id, length)).transpose();
    let reign = |lead| Reign::begin(lead, tell).map_err(HaError::Thread);
    let reign = lead.and_then(|lead| lead.map(reign).transpose());
    Ok(reign?)
}

/// Starts the daemons of a job's nodes.
fn start_nodes(
    place: &Place,
    spec: &JobSpec,
    lifeline: OwnedFd,
    reign: Option<&Reign>,
    driver: &Driver,
) -> Result<(Hands, Vec<Node>), BeginError> {
    let (id, folder, vouch) = (&place.id, &place.folder, reign.map(Reign::vouch));
    let lifeline = match spec.is_journaled() {
        true => {
            let held = nodes_lock::hold(folder).map_err(BeginError::Daemon)?;
            give_signs(folder, spec);
            held
        }
        false => lifeline,
    };
    let launcher = NodeLauncher::new(id, folder, spec, lifeline, vouch, telling(&driver.tell));
    let hands = driver.hands(place, spec, Some(launcher.map_err(BeginError::Daemon)?));
    let mut nodes = Vec::new();
    for node in 0..spec.placement.nodes + spec.placement.spares {
        let epoch = u64::from(node) + 1;
        if spec.placement.clusters.is_behind(node) {
            nodes.push(Node::later(epoch));
            continue;
        }
        let daemon = hands.daemons.start_daemon(node, epoch, None).map_err(BeginError::Daemon)?;
        nodes.push(Node::there(daemon));
    }
    Ok((hands, nodes))
}

/// Has it known, should this controller die, how long nodes on other machines wait for another.
fn give_signs(folder: &Path, spec: &JobSpec) {
    if spec.placement.hosts.is_none() || !spec.is_journaled() {
        return;
    }
    let (folder, limit) = (folder.to_path_buf(), spec.controller_limit());
    tokio::task::spawn_local(async move {
        // Until the job is over.
        while nodes_lock::note_elsewhere(&folder, limit).is_ok() {
            tokio::time::sleep(nodes_lock::SIGN).await;
        }
    });
}

/// A job whose controller is dead.
fn resume(id: &str, folder: &Path, verbose: bool, driver: &Driver) -> Result<Shared, BeginError> {
    let place = Place { id: id.to_string(), folder: folder.to_path_buf() };
    let socket = folder.join(home::SOCKET);
    let removed = std::fs::remove_file(&socket).or_else(absent_is_fine);
    removed.map_err(|e| BeginError::File(socket, e))?;
    let lifeline = nodes_lock::hold(folder).map_err(BeginError::Daemon)?;
    let takeover::Left { known, reign, launcher } =
        takeover::take(&place, verbose, lifeline, &driver.tell)?;
    let spec = &known.head.spec;
    let mut hands = driver.hands(&place, spec, Some(launcher));
    let etcd = reign.map(|reign| Etcd::begin(reign, folder, spec)).transpose();
    hands.etcd = etcd.map_err(HaError::Thread)?;
    let lead = hands.etcd.clone().map(|etcd| etcd as Rc<dyn controller::outside::Lead>);
    let job = Job::resume(place, known, lead, hands.outside.clone(), driver.now())?;
    give_signs(folder, job.spec());
    Ok(driver.share(job, hands))
}
