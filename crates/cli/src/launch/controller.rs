//! Starts the controller of a job, and stays with it to the job's end.
//!
//! Kept true: whatever happens, the job's folder is gone when the command returns (unless it is to
//! be kept), and the daemon is waited for.

use crate::launch::console::{self, Console, ConsoleOptions};
use crate::launch::groups;
use crate::launch::program::own_binary;
use crate::launch::spawn::spawn_daemon;
use crate::messages;
use crate::options::key_file;
use anyhow::Context;
use eyrie_control::{AtRest, ClientMsg, JobSpec};
use eyrie_exchange::second_level::SecondLevel;
use eyrie_objects::StoreUrl;
use eyrie_state::at_rest;
use eyrie_state::home::{self, JobFolder};
use eyrie_state::local;
use eyrie_state::nodes_lock;
use eyrie_state::registry;
use eyrie_state::saved_job::SavedJob;
use eyrie_terminal::{FAILED, Failure, USAGE};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// A controller that lives shorter than this did not get far.
const SHORT: Duration = Duration::from_secs(1);
/// After so many of those in a row no other one is started.
const SHORT_LIVED: u32 = 10;

pub fn start(spec: JobSpec, shows: ConsoleOptions) -> Result<i32, Failure> {
    let binary = own_binary(spec.protection.ft.protects())?;
    check_store(&spec)?;
    let home = home::home()?;
    if spec.placement.hosts.is_none() {
        let local = local::check()?;
        if spec.security.at_rest == AtRest::Kernel {
            at_rest::check(local.as_ref().unwrap_or(&home))?;
        }
    }
    let folder = home::create(&home)?;
    start_in(&folder, &binary, &ClientMsg::Start(Box::new(spec)), None, shows)
}

/// Refuses an object store that cannot be used, before anything begins.
pub fn check_store(spec: &JobSpec) -> Result<(), Failure> {
    let Some(to) = &spec.storage.save_to else { return Ok(()) };
    let place = StoreUrl::parse(to).map_err(|e| Failure::new(USAGE, e))?;
    let key = spec.security.save_key.as_ref().map(|path| key_file::key(Some(Path::new(path))));
    let key = key.transpose().map_err(|e| Failure::new(USAGE, e))?.flatten();
    let checked = SecondLevel::open(place, None, key).and_then(|mut store| store.check());
    Ok(checked.with_context(|| format!("--save-to {to}"))?)
}

/// Starts the daemon of a job and stays with it to its end. `saved`: it is one that goes on.
pub fn start_in(
    folder: &JobFolder,
    binary: &Path,
    order: &ClientMsg,
    saved: Option<&SavedJob>,
    shows: ConsoleOptions,
) -> Result<i32, Failure> {
    if let ClientMsg::Start(spec) = order {
        groups::tell(spec);
    }
    match begin_in(folder, binary, order, saved, shows)? {
        Ended::Code(code) => Ok(code),
        Ended::Deposed(why) => {
            let text = format!("the job goes on without this command: {why}");
            Err(Failure::new(FAILED, anyhow::Error::msg(text)))
        }
    }
}

/// How staying with a daemon has ended.
pub enum Ended {
    /// The job's exit code.
    Code(i32),
    /// Another controller has the job, for this reason.
    Deposed(String),
}

/// The same, where the job may be another's.
pub fn begin_in(
    folder: &JobFolder,
    binary: &Path,
    order: &ClientMsg,
    saved: Option<&SavedJob>,
    shows: ConsoleOptions,
) -> Result<Ended, Failure> {
    let result = stay_with(folder, binary, order, saved, &shows);
    // The daemon removes it; if it died, it is up to us.
    if !home::stays(&folder.path) {
        let _ = home::remove_folder(&folder.path);
    }
    result
}

fn stay_with(
    folder: &JobFolder,
    binary: &Path,
    order: &ClientMsg,
    saved: Option<&SavedJob>,
    shows: &ConsoleOptions,
) -> Result<Ended, Failure> {
    // A shell without job control has it ignored in the background, where a batch system sends it.
    // SAFETY: no other thread is there yet; what is started gets back what was.
    let quit = unsafe { libc::signal(libc::SIGQUIT, libc::SIG_DFL) };
    let held = eyrie_terminal::hold(&console::HELD);
    let mut console = Console::new(shows, (order, saved), &folder.path, held.set);
    let _entry = registry::enter(folder);
    let nodes = nodes_of(folder, order)?;
    let (mut order, mut short) = (order.clone(), 0);
    loop {
        let (ours, theirs) = UnixStream::pair().context("socket pair")?;
        let begun = Instant::now();
        // Nodes that have daemons may outlive this one: each has numbers of its own.
        let own =
            matches!(&order, ClientMsg::Start(s) | ClientMsg::Restart(s) if s.placement.nodes == 0);
        let mask = (held.before, quit);
        let (how, metrics) = ((saved, own), &shows.metrics);
        let mut daemon = spawn_daemon(folder, binary, theirs, mask, how, metrics)?;
        let ended = console.converse(ours, &order);
        let status = daemon.wait().context("node daemon")?;
        short = if begun.elapsed() < SHORT { short + 1 } else { 0 };
        let journal = folder.path.join(home::JOURNAL).exists();
        if let Some(why) = console.deposed.take() {
            console.close();
            return Ok(Ended::Deposed(why));
        }
        match ended? {
            Some(code) => {
                let code = console.close().unwrap_or(code);
                console.sum_up();
                // It was killed when it had nothing left to do but that.
                let finished = journal && status.code().is_none();
                if finished && let Err(error) = home::leave(&folder.path) {
                    let path = folder.path.display();
                    messages::say(&format!("cannot clear {path}: {error}"));
                }
                // Where a journal is left, no controller could go on, and nodes wait for one.
                let over = finished || !journal;
                nodes.iter().filter(|_| over).for_each(nodes_lock::await_free);
                return Ok(Ended::Code(code));
            }
            None if journal && status.code().is_none() && short < SHORT_LIVED => {
                messages::say(&format!("the controller died ({status}); another one goes on"));
                order = ClientMsg::Resume { verbose: false };
            }
            None => {
                console.close();
                return Err(ended_early(folder, status));
            }
        }
    }
}

/// What the nodes of a job that may get another controller hold locked.
fn nodes_of(folder: &JobFolder, order: &ClientMsg) -> anyhow::Result<Option<File>> {
    let journaled = match order {
        ClientMsg::Start(spec) | ClientMsg::Restart(spec) => spec.is_journaled(),
        order => matches!(order, ClientMsg::Resume { .. }),
    };
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(0o600);
    let nodes = journaled.then(|| options.open(folder.path.join(home::NODES)));
    nodes.transpose().context("job folder")
}

fn ended_early(folder: &JobFolder, status: ExitStatus) -> Failure {
    let log = std::fs::read_to_string(folder.path.join(home::LOG)).unwrap_or_default();
    // Its own last words, if it had any; a killed one has none.
    let words = log.lines().rev().find_map(|l| l.strip_prefix("eyrie: "));
    let words = words.map(|w| format!(": {w}")).unwrap_or_default();
    let hint = match folder.path.join(home::SAVED).exists() {
        true => format!("; to go on from the last checkpoint: eyrie restart {}", folder.id),
        false => String::new(),
    };
    let error = anyhow::anyhow!("the node daemon ended early ({status}){words}{hint}");
    Failure::new(FAILED, error)
}
