//! `eyrie run` and `eyrie verify`: checks, the job's folder, the daemon, and the console on it.
//!
//! Kept true: whatever happens, the job's folder is gone when the command returns (unless it is to
//! be kept), and the daemon is waited for.

use crate::args::{
    BindMode, CkptDedup, CkptFreeze, CkptMode, CkptPolicy, FtMode, MapMode, Node, Run, Verify,
};
use crate::checks::{self, Way};
use crate::clusters;
use crate::console::{self, Console};
use crate::grace::grace_ms;
use crate::hosts::{self, Wish};
use crate::keeping::{self, manner};
use crate::rankfile::RankFile;
use crate::saving::Saving;
use crate::standby;
use crate::vault;
use anyhow::Context;
use eyrie_control::gateway::Clusters;
use eyrie_control::vault::Manner;
use eyrie_control::{
    Appended, AtRest, Bind, CheckpointPolicy, ClientMsg, Dedup, Fallback, Files, Freeze, Ft,
    JobSpec, Orphans, Transport,
};
use eyrie_node::at_rest;
use eyrie_node::daemon;
use eyrie_node::depot::Depot;
use eyrie_node::home::{self, JobFolder};
use eyrie_node::keeper;
use eyrie_node::placement::Map;
use eyrie_node::program::{self, ProgramError};
use eyrie_node::routing::Routing;
use eyrie_node::saved::SavedJob;
use eyrie_node::serve;
use eyrie_node::spawn::Prefix;
use eyrie_objects::Place;
use eyrie_terminal::{FAILED, Failure, USAGE};
use eyrie_vault::Scheme;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Send log of each rank when none is asked for.
const LOG_BYTES: u64 = 512 << 20;
/// Ranks of a router if nothing else is said.
const ROUTER_SHARE: u32 = 4;
/// How long nodes go on without a controller if nothing else is said.
const CONTROLLER_LIMIT_MS: u64 = 60_000;
/// A controller that lives shorter than this did not get far.
const SHORT: Duration = Duration::from_secs(1);
/// After so many of those in a row no other one is started.
const SHORT_LIVED: u32 = 10;
/// The least that is taken when memory is short.
const LEAST_LOG_BYTES: u64 = 16 << 20;

pub fn run(run: &Run) -> Result<i32, Failure> {
    let map = if run.map == Some(MapMode::Cyclic) { Map::Cyclic } else { Map::Block };
    let file = RankFile::of(run).map_err(|e| Failure::new(USAGE, e))?;
    checks::anywhere(run)?;
    let ranks = file.as_ref().map_or_else(|| run.ranks(), |f| f.ranks.len() as u32);
    // Each cluster has one at least.
    let clusters = run.wide.clusters.unwrap_or(1);
    let count = |share| Routing::count(ranks, share).max(clusters);
    let routers = router_share(run).map_or(0, count);
    let wish = Wish {
        hosts: run.hosts.as_deref(),
        here: run.nodes.is_some(),
        reach: &run.reach,
        ranks: run.ranks(),
        spares: run.spares.unwrap_or(0) + routers,
        map,
        file: file.as_ref(),
    };
    let elsewhere = hosts::plan(&wish).map_err(|e| Failure::new(USAGE, e))?;
    let nodes = elsewhere.as_ref().map_or(run.nodes.unwrap_or(0), |plan| plan.nodes);
    let all = nodes.saturating_add(if nodes > 0 { routers } else { 0 });
    checks::over(run, all, Way::Run)?;
    let program = match elsewhere {
        Some(_) => program_elsewhere(&run.command)?,
        None => checked_program(&run.command)?,
    };
    let said = elsewhere.as_ref().map(|p| (p.clusters.clone(), p.domains.clone()));
    let (named, domains) = said.unwrap_or_default();
    let (nodes, homes, hosts) = match elsewhere {
        Some(plan) => (plan.nodes, plan.homes, Some(Box::new(plan.hosts))),
        None => {
            let nodes = run.nodes.unwrap_or(0);
            let homes = file.as_ref().map(|f| f.homes(&[], nodes.max(1))).transpose();
            let homes = homes.map_err(|e| Failure::new(USAGE, e))?.filter(|_| nodes > 0);
            (nodes, homes.unwrap_or_default(), None)
        }
    };
    let clusters = run.wide.plan(nodes, run.spares.unwrap_or(0) + routers, &named);
    let clusters = clusters.map_err(|e| Failure::new(USAGE, e))?;
    let together = hosts.is_none() && !run.netns;
    run.wide.check(run.ft, &clusters, together).map_err(|e| Failure::new(USAGE, e))?;
    if routers > 0 && nodes == 0 {
        let text = "--ft routed needs nodes for ranks and for routers: give --nodes or --hosts";
        return Err(Failure::new(USAGE, anyhow::Error::msg(text)));
    }
    let ha = standby::wanted(run, hosts.as_ref().is_some_and(|h| h.shell))?;
    let spec = JobSpec {
        ft: mode(run, nodes),
        nodes,
        spares: run.spares.unwrap_or(0) + routers,
        routers,
        router_share: router_share(run).unwrap_or(1),
        hosts,
        homes,
        cyclic: map == Map::Cyclic,
        slots: file.map(|f| f.slots()).unwrap_or_default(),
        clusters,
        ha,
        manner: manner(run, domains),
        ..describe(run, ranks, &program, run.at_rest.spec()?)
    };
    for text in keeping::not_borne(&spec).into_iter().chain(clusters::not_borne(&spec)) {
        eprintln!("eyrie: {text}");
    }
    start(spec, run.label)
}

/// What a mode comes to on so many nodes with daemons of their own.
pub fn mode(run: &Run, nodes: u32) -> Ft {
    match run.ft {
        FtMode::Logged | FtMode::Routed => Ft::Logged,
        FtMode::Coordinated => Ft::Coordinated,
        // The only node has all ranks.
        FtMode::Node if nodes == 0 => Ft::Coordinated,
        FtMode::Node => Ft::Node,
        FtMode::Cluster => Ft::Cluster { outside: run.wide.are_outside() },
        FtMode::None => Ft::None,
    }
}

/// The job that `run` asks for, on one node.
pub fn describe(run: &Run, ranks: u32, program: &Path, at_rest: AtRest) -> JobSpec {
    let ft = mode(run, 0);
    let vault = run.vault.unwrap_or(Scheme::Partner);
    JobSpec {
        size: ranks,
        ft,
        checkpoint_every_ms: run.ckpt_every,
        checkpoint_first_ms: run.ckpt_first,
        checkpoint_policy: match ft {
            // All have one turn.
            Ft::Coordinated => CheckpointPolicy::Auto,
            _ => policy(run.ckpt_policy, vault),
        },
        incremental: run.ckpt == CkptMode::Incremental,
        freeze: match run.ckpt_freeze {
            CkptFreeze::Auto => Freeze::Auto,
            CkptFreeze::Copy => Freeze::Copy,
            CkptFreeze::Twin => Freeze::Twin,
            CkptFreeze::Sync => Freeze::Sync,
        },
        dedup: match run.ckpt_dedup {
            CkptDedup::Auto if ft == Ft::Coordinated => Dedup::Off,
            CkptDedup::Auto => Dedup::Auto,
            CkptDedup::On => Dedup::On,
            CkptDedup::Off => Dedup::Off,
        },
        log_limit_bytes: run.log_limit.unwrap_or_else(|| default_log(ranks)),
        name: run.name.clone(),
        keep: run.keep,
        verbose: run.verbose,
        nodes: 0,
        spares: run.spares.unwrap_or(0),
        routers: 0,
        router_share: 1,
        netns: run.netns,
        hosts: None,
        cyclic: false,
        homes: Vec::new(),
        bind: bind(run.bind, run.exclusive),
        slots: Vec::new(),
        log_replicas: run.log_replicas.unwrap_or(vault.tolerates().max(1) as u32),
        wtime: run.exact.clocks.into(),
        strict_output: run.exact.strict_output,
        vault,
        manner: manner(run, Vec::new()),
        program: program.as_os_str().as_bytes().to_vec(),
        argv: argv(&run.command),
        input_is_file: input_is_file(),
        controller_limit_ms: run.controller_limit.unwrap_or(CONTROLLER_LIMIT_MS),
        tls: run.guard.tls,
        transport: run.guard.transport(Transport::Tcp),
        save_every_ms: run.save_every.map_or(0, Saving::millis),
        save_every_generations: run.save_every.map_or(0, Saving::generations),
        at_rest,
        grace_ms: grace_ms(run.grace, run.nodes.is_none()),
        save_to: run.save_to.clone(),
        save_rate_bytes: run.save_rate.unwrap_or(0),
        save_key: run.save_key.as_deref().map(key_path),
        ignore_features: run.ignored.ignore_feature.clone(),
        clusters: Clusters::default(),
        ha: None,
        appended: run.exact.appended.into(),
        orphans: run.exact.orphans.into(),
        files: run.exact.files.into(),
        files_limit_bytes: run.exact.files_limit,
        fallback: run.exact.fallback_every,
    }
}

/// Whether images go to a vault, where they share parity.
pub fn has_parity(vault: Scheme) -> bool {
    matches!(vault, Scheme::Rs { .. } | Scheme::Xor { .. })
}

fn policy(asked: Option<CkptPolicy>, vault: Scheme) -> CheckpointPolicy {
    match asked {
        Some(CkptPolicy::Sr) => CheckpointPolicy::Sequential,
        Some(CkptPolicy::Br) => CheckpointPolicy::Batch,
        Some(CkptPolicy::St) => CheckpointPolicy::Timer,
        None if has_parity(vault) => CheckpointPolicy::Batch,
        Some(CkptPolicy::Auto) | None => CheckpointPolicy::Auto,
    }
}

/// Ranks of each router, if there are routers.
fn router_share(run: &Run) -> Option<u32> {
    (run.ft == FtMode::Routed).then(|| run.routers.unwrap_or(ROUTER_SHARE))
}

fn bind(mode: Option<BindMode>, exclusive: bool) -> Bind {
    match mode {
        None if exclusive => Bind::Own,
        None => Bind::Auto,
        Some(BindMode::None) => Bind::None,
        Some(BindMode::Hwthread) => Bind::Thread,
        Some(BindMode::Core) => Bind::Core,
        Some(BindMode::Numa) => Bind::Numa,
        Some(BindMode::Socket) => Bind::Socket,
    }
}

pub fn verify(verify: &Verify) -> Result<i32, Failure> {
    let program = checked_program(&verify.command)?;
    let spec = JobSpec {
        size: verify.size,
        ft: Ft::Verify { seed: verify.seed, seeds: verify.seeds },
        checkpoint_every_ms: 0,
        checkpoint_first_ms: 0,
        checkpoint_policy: CheckpointPolicy::Auto,
        incremental: false,
        freeze: Freeze::Auto,
        dedup: Dedup::Off,
        log_limit_bytes: verify.log_limit.unwrap_or_else(|| default_log(verify.size)),
        name: None,
        keep: false,
        verbose: verify.verbose,
        nodes: 0,
        spares: 0,
        routers: 0,
        router_share: 1,
        netns: false,
        hosts: None,
        cyclic: false,
        homes: Vec::new(),
        bind: Bind::Auto,
        slots: Vec::new(),
        log_replicas: 0,
        wtime: verify.clocks.into(),
        strict_output: true,
        vault: Scheme::Partner,
        manner: Manner::default(),
        program: program.as_os_str().as_bytes().to_vec(),
        argv: argv(&verify.command),
        input_is_file: false,
        controller_limit_ms: 0,
        tls: false,
        transport: Transport::Tcp,
        save_every_ms: 0,
        save_every_generations: 0,
        at_rest: AtRest::Plain,
        grace_ms: 0,
        save_to: None,
        save_rate_bytes: 0,
        save_key: None,
        ignore_features: Vec::new(),
        clusters: Clusters::default(),
        ha: None,
        appended: Appended::Auto,
        orphans: Orphans::Refuse,
        files: Files::Warn,
        files_limit_bytes: 0,
        fallback: Fallback::Off,
    };
    start(spec, verify.label)
}

/// Whether our standard input is a file, which has an end.
pub fn input_is_file() -> bool {
    // SAFETY: stat is plain data for which zero is valid, and a valid place for the answer.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(0, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

fn checked_program(command: &[OsString]) -> Result<PathBuf, Failure> {
    let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let fail = |e: program::ProgramError| Failure::new(e.exit_code(), e);
    let path = program::find(name).map_err(fail)?;
    program::check_mpi(&path).map_err(fail)?;
    warn_of_extensions(&path);
    Ok(path)
}

/// What a program needs of another MPI the loader does not find, and says so in its own way.
fn warn_of_extensions(program: &Path) {
    let lib = std::env::current_exe().ok().and_then(|binary| Prefix::of(&binary).lib);
    let mut missing = program::missing_extensions(program, lib.as_deref());
    if missing.is_empty() {
        return;
    }
    let count = missing.len();
    missing.truncate(4);
    let more = if count > missing.len() { ", ..." } else { "" };
    console::say(&format!(
        "'{}' needs {}{more}: extensions of another MPI, which Eyrie has not: build it with \
         eyrie's mpicc, without them (most programs ask for them in their configuration)",
        program.display(),
        missing.join(", ")
    ));
}

/// The same for a program that hosts run: what is not on this machine may be there.
pub fn program_elsewhere(command: &[OsString]) -> Result<PathBuf, Failure> {
    let name = command.first().map_or(OsStr::new(""), OsString::as_os_str);
    match program::find(name) {
        Err(ProgramError::NotFound(_)) => Ok(PathBuf::from(name)),
        _ => checked_program(command),
    }
}

fn argv(command: &[OsString]) -> Vec<Vec<u8>> {
    command.iter().map(|w| w.as_bytes().to_vec()).collect()
}

/// Half a gibibyte for each rank, but all of them together at most a quarter of the memory.
fn default_log(size: u32) -> u64 {
    let all = eyrie_image::meminfo("MemTotal");
    let share = all.map_or(LOG_BYTES, |bytes| bytes / 4 / u64::from(size));
    LOG_BYTES.min(share).max(LEAST_LOG_BYTES)
}

/// Where `eyrie` itself is; with all that a job which is protected so needs.
pub fn own_binary(ft: Ft) -> Result<PathBuf, Failure> {
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    if ft.protects() && Prefix::of(&binary).restorer.is_none() {
        return Err(Failure::new(
            FAILED,
            anyhow::anyhow!(
                "the program eyrie-restorer is missing beside {} and in ../libexec: install it, \
                 or run with --ft none",
                binary.display()
            ),
        ));
    }
    Ok(binary)
}

fn start(spec: JobSpec, label: bool) -> Result<i32, Failure> {
    let binary = own_binary(spec.ft)?;
    check_store(&spec)?;
    let home = home::home()?;
    if spec.at_rest == AtRest::Kernel && spec.hosts.is_none() {
        at_rest::check(&home)?;
    }
    let folder = home::create(&home)?;
    start_in(&folder, &binary, &ClientMsg::Start(Box::new(spec)), None, label)
}

/// Where a key lies, from wherever it is looked for.
pub fn key_path(path: &Path) -> String {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.into());
    whole.to_string_lossy().into_owned()
}

/// Refuses an object store that cannot be used, before anything begins.
pub fn check_store(spec: &JobSpec) -> Result<(), Failure> {
    let Some(to) = &spec.save_to else { return Ok(()) };
    let place = Place::parse(to).map_err(|e| Failure::new(USAGE, e))?;
    let key = spec.save_key.as_ref().map(|path| vault::key(Some(Path::new(path))));
    let key = key.transpose().map_err(|e| Failure::new(USAGE, e))?.flatten();
    let checked = Depot::open(place, None, key).and_then(|mut depot| depot.check());
    Ok(checked.with_context(|| format!("--save-to {to}"))?)
}

/// Starts the daemon of a job and stays with it to its end. `saved`: it is one that goes on.
pub fn start_in(
    folder: &JobFolder,
    binary: &Path,
    order: &ClientMsg,
    saved: Option<&SavedJob>,
    label: bool,
) -> Result<i32, Failure> {
    match begin_in(folder, binary, order, saved, label)? {
        End::Code(code) => Ok(code),
        End::Deposed(why) => {
            let text = format!("the job goes on without this command: {why}");
            Err(Failure::new(FAILED, anyhow::Error::msg(text)))
        }
    }
}

/// How staying with a daemon has ended.
pub enum End {
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
    label: bool,
) -> Result<End, Failure> {
    let result = stay_with(folder, binary, order, saved, label);
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
    label: bool,
) -> Result<End, Failure> {
    // A shell without job control has it ignored in the background, where a batch system sends it.
    // SAFETY: no other thread is there yet; what is started gets back what was.
    let quit = unsafe { libc::signal(libc::SIGQUIT, libc::SIG_DFL) };
    let held = eyrie_terminal::hold(&console::HELD);
    let mut console = Console::new(label, &folder.path, held.set);
    let nodes = nodes_of(folder, order)?;
    let (mut order, mut short) = (order.clone(), 0);
    loop {
        let (ours, theirs) = UnixStream::pair().context("socket pair")?;
        let begun = Instant::now();
        let mut daemon = spawn_daemon(folder, binary, theirs, (held.before, quit), saved)?;
        let ended = console.converse(ours, &order);
        let status = daemon.wait().context("node daemon")?;
        short = if begun.elapsed() < SHORT { short + 1 } else { 0 };
        let journal = folder.path.join(home::JOURNAL).exists();
        if let Some(why) = console.deposed.take() {
            console.close();
            return Ok(End::Deposed(why));
        }
        match ended? {
            Some(code) => {
                console.close();
                // It was killed when it had nothing left to do but that.
                let finished = journal && status.code().is_none();
                if finished && let Err(error) = home::leave(&folder.path) {
                    let path = folder.path.display();
                    console::say(&format!("cannot clear {path}: {error}"));
                }
                // Where a journal is left, no controller could go on, and nodes wait for one.
                let over = finished || !journal;
                nodes.iter().filter(|_| over).for_each(home::await_nodes);
                return Ok(End::Code(code));
            }
            None if journal && status.code().is_none() && short < SHORT_LIVED => {
                console::say(&format!("the controller died ({status}); another one goes on"));
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

/// Starts the daemon in a session of its own, so that the terminal's signals reach only us.
/// It, and through it the ranks, get the signal `mask` that we were started with.
fn spawn_daemon(
    folder: &JobFolder,
    binary: &Path,
    console: UnixStream,
    (mask, quit): (libc::sigset_t, libc::sighandler_t),
    saved: Option<&SavedJob>,
) -> Result<Child, Failure> {
    let mut log = File::options();
    let log = log.append(true).create(true).mode(0o600).open(folder.path.join(home::LOG));
    let log = log.context("daemon's log")?;
    let (console_fd, lock_fd) = (console.as_raw_fd(), folder.lock.as_raw_fd());
    let mut command = Command::new(binary);
    command.arg("__node").arg("--id").arg(&folder.id).arg("--folder").arg(&folder.path);
    command.arg("--console-fd").arg(console_fd.to_string());
    command.arg("--lock-fd").arg(lock_fd.to_string());
    if let Some(saved) = saved {
        let word = |bytes: &[u8]| OsStr::from_bytes(bytes).to_os_string();
        let then = saved.environment.iter().map(|(name, value)| (word(name), word(value)));
        let then = then.filter(|(name, _)| !is_of_today(name));
        // Collected before all of ours are taken away.
        let now: Vec<_> = std::env::vars_os().filter(|(name, _)| is_of_today(name)).collect();
        command.env_clear().envs(then).envs(now);
        command.current_dir(word(&saved.working_folder));
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().context("log")?).stderr(log);
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            libc::signal(libc::SIGQUIT, quit);
            // We ignore it when we have begun to read standard input.
            libc::signal(libc::SIGTTIN, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            eyrie_node::spawn::shut_inherited();
            for fd in [console_fd, lock_fd] {
                if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    let what = || match saved {
        Some(saved) => {
            let place = String::from_utf8_lossy(&saved.working_folder);
            format!("cannot start the node daemon in {place}, where the job was started")
        }
        None => String::from("cannot start the node daemon"),
    };
    Ok(command.spawn().with_context(what)?)
}

/// Variables that tell of an allocation or a login, which is another when a job goes on.
fn is_of_today(name: &OsStr) -> bool {
    [&b"SLURM"[..], b"SSH_", b"AWS_"].iter().any(|start| name.as_bytes().starts_with(start))
}

/// The daemon's side.
pub fn node(node: Node) -> Result<i32, Failure> {
    log_to_stderr();
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    let options = serve::Options {
        id: node.id,
        folder: node.folder,
        console: inherited(node.console_fd)?,
        lock: inherited(node.lock_fd)?,
        prefix: Prefix::of(&binary),
    };
    Ok(serve::run(options)?)
}

/// A node of a job with several.
pub fn member() -> Result<i32, Failure> {
    log_to_stderr();
    let binary = std::env::current_exe().context("cannot find the eyrie binary itself")?;
    daemon::run(Prefix::of(&binary))?;
    Ok(0)
}

/// A node on another host than its controller.
pub fn host() -> Result<i32, Failure> {
    log_to_stderr();
    Ok(keeper::run()?)
}

/// The gateway of a cluster.
pub fn gateway() -> Result<i32, Failure> {
    log_to_stderr();
    eyrie_node::gateway::run()?;
    Ok(0)
}

fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("EYRIE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Whose log cannot be written is not to die of saying so.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    let log = log.with_writer(std::io::stderr);
    log.log_internal_errors(false).init();
}

/// Takes over a descriptor the CLI handed down; ranks do not inherit it.
fn inherited(fd: i32) -> Result<OwnedFd, Failure> {
    // SAFETY: plain system call; a number that is not open is refused by it.
    if fd < 3 || unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(Failure::new(FAILED, anyhow::anyhow!("descriptor {fd} was not handed down")));
    }
    // SAFETY: the descriptor is open, was handed down for us, and nobody else here knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
