//! `eyrie __host`: the keeper of a node on another machine than the controller's. A remote shell
//! starts it there; it starts the node's daemon, in the working folder and with the environment of
//! the job, and clears away what that leaves.
//!
//! Kept true: what it is told comes through standard input and stands in no argument; when that
//! input says so, the daemon ends, or a signal asks it to, all processes of the node and its
//! storage go, and then the keeper. SIGTERM, SIGUSR1 and SIGUSR2 leave the job time to take its
//! ranks away (`--grace`): the daemon passes them on. The input's end says so, too, but where nodes
//! outlive their controller: there the daemon knows best how long. If the keeper is killed, the
//! daemon notices by its lost controller, and clears away itself; storage that both leave is
//! removed by the next keeper here.

use crate::node_storage::NodeStorage;
use crate::notice;
use eyrie_connection::stdin_protocol::{StdinError, StdinReader};
use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::node::{Enlist, Lodge};
use eyrie_control::{Death, encode_within};
use eyrie_process::program::{self, ProgramError};
use eyrie_process::reap;
use eyrie_process::spawn;
use eyrie_state::home::{self, HomeError};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for a killed daemon to be gone.
const DEATH_LIMIT_MS: libc::c_int = 10_000;
/// A daemon's own storage, in that of the node.
const STORE: &str = "store";
/// In its input: the node is not wanted any more.
pub const DISMISSED: u8 = 4;
/// Signals that ask it to end.
const ENDING: [libc::c_int; 5] =
    [libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2, libc::SIGINT, libc::SIGHUP];
/// Those of them that leave it time: what machines, batch systems (LSF: SIGUSR2) and `eyrie notice`
/// send.
const PATIENT: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Why there is no node here.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    #[error("{what}: {source}")]
    Os { what: &'static str, source: io::Error },
    #[error(transparent)]
    Stdin(#[from] StdinError),
    #[error(
        "working folder {folder}: {source}; have it there, too, or start the job in a folder that \
         all hosts have"
    )]
    WorkingFolder { folder: String, source: io::Error },
    #[error("{0}")]
    Program(#[from] ProgramError),
    #[error("storage: {0}")]
    Home(#[from] HomeError),
    #[error("the node's daemon died of {}", eyrie_process::signals::signal_name(*.0))]
    Died(i32),
}

fn os(what: &'static str) -> impl Fn(io::Error) -> KeeperError {
    move |source| KeeperError::Os { what, source }
}

/// Keeps a node until its end. Returns the exit code.
pub fn run() -> Result<i32, KeeperError> {
    reap::adopt_orphans().map_err(os("subreaper"))?;
    let (asked, before) = hold_signals().map_err(os("signals"))?;
    let Some(mut lodge) = read_lodge()? else { return Ok(0) };
    for (name, value) in std::mem::take(&mut lodge.environment) {
        let (name, value) = (OsString::from_vec(name), OsString::from_vec(value));
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var(name, value) };
    }
    if lodge.enlist.spec.is_journaled() {
        // Of a remote shell that has executed this, and the controller's death.
        // SAFETY: plain system call on this process.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
    }
    let folder = Path::new(OsStr::from_bytes(&lodge.working_folder));
    std::env::set_current_dir(folder).map_err(|source| KeeperError::WorkingFolder {
        folder: folder.display().to_string(),
        source,
    })?;
    // SAFETY: as above.
    unsafe { std::env::set_var("PWD", folder) };
    let program = program::find(OsStr::from_bytes(&lodge.enlist.spec.program.path))?;
    program::check_mpi(&program)?;
    lodge.enlist.spec.program.path = program.into_os_string().into_vec();
    let name = format!("{}-{}", lodge.enlist.job, lodge.enlist.node);
    let storage = NodeStorage::create(&home::home()?, &name)?;
    notice::sign(&storage.path).map_err(os("storage"))?;
    let store = storage.path.join(STORE);
    lodge.enlist.lodged = true;
    lodge.enlist.folder = store.clone().into_os_string().into_vec();
    let ended = keep(&lodge.enlist, &storage.lock, &asked, &before);
    reap::clear();
    match &ended {
        // It is left by a daemon that carried everything out.
        Ok(Some(Death::Exit(0))) if lodge.enlist.spec.storage.keep && store.exists() => {
            storage.keep()
        }
        _ => storage.remove(),
    }
    match ended? {
        None => Ok(0),
        Some(Death::Exit(code)) => Ok(code),
        Some(Death::Signal(signal)) => Err(KeeperError::Died(signal)),
    }
}

/// Blocks the signals that ask for the end; returns where they are told, and the mask before.
fn hold_signals() -> io::Result<(OwnedFd, libc::sigset_t)> {
    // SAFETY: zero is a valid sigset_t to be initialised, all places are valid, and signalfd's
    // result is checked before it is owned.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in ENDING {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, &mut before);
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok((OwnedFd::from_raw_fd(fd), before)),
        }
    }
}

/// Reads what it is told. None: it is not wanted any more by then.
fn read_lodge() -> Result<Option<Lodge>, StdinError> {
    let mut told = StdinReader::begin()?;
    let lodge = told.need()?;
    // Nothing comes behind that but the dismissal.
    Ok(told.is_empty().then_some(lodge))
}

/// Starts the daemon and stays until it ends, or is to end: then there is no exit status.
fn keep(
    enlist: &Enlist,
    lock: &File,
    asked: &OwnedFd,
    before: &libc::sigset_t,
) -> Result<Option<Death>, KeeperError> {
    let frame = encode_within(MAX_NODE_FRAME_BYTES, enlist);
    let frame = frame.map_err(io::Error::other).map_err(os("daemon"))?;
    let mut command = Command::new(std::env::current_exe().map_err(os("eyrie itself"))?);
    command.arg("__member").stdin(Stdio::piped());
    let (lock, mask) = (lock.as_raw_fd(), *before);
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::setpgid(0, 0);
            libc::sigprocmask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
            spawn::shut_inherited();
            // The storage is in use as long as the daemon lives.
            match libc::fcntl(lock, libc::F_SETFD, 0) {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        });
    }
    let mut child = eyrie_image::while_starting(|| command.spawn()).map_err(os("daemon"))?;
    let pidfd = spawn::pidfd(child.id() as libc::pid_t).map_err(os("daemon"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&frame).map_err(os("daemon"))?;
    }
    let grace = Duration::from_millis(enlist.spec.timing.grace_ms);
    if wanted(&pidfd, asked, grace, enlist.spec.is_journaled()) {
        return reap::collect(&pidfd).map_err(os("daemon"));
    }
    child.kill().map_err(os("daemon"))?;
    let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which is ours.
    unsafe { libc::poll(&mut poll, 1, DEATH_LIMIT_MS) };
    Ok(None)
}

/// The signal that asked for the end.
fn signal_of(asked: &OwnedFd) -> Option<libc::c_int> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let bytes = size_of_val(&info);
    // SAFETY: writes at most as many bytes as the structure has.
    let count = unsafe { libc::read(asked.as_raw_fd(), (&raw mut info).cast(), bytes) };
    (count == bytes as isize).then_some(info.ssi_signo as libc::c_int)
}

/// Waits until the daemon has ended (true) or is to end. `grace`: how long it has from the first
/// signal that leaves it time. `stays`: not because the input ends.
fn wanted(pidfd: &OwnedFd, asked: &OwnedFd, grace: Duration, stays: bool) -> bool {
    let mut end: Option<Instant> = None;
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polls = [entry(pidfd.as_raw_fd()), entry(0), entry(asked.as_raw_fd())];
    let mut buffer = [0; 4096];
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let wait = left.map_or(-1, |left| left.as_millis().min(1 << 30) as libc::c_int + 1);
        // SAFETY: three entries, which are ours.
        let count = unsafe { libc::poll(polls.as_mut_ptr(), 3, wait) };
        if polls[0].revents != 0 {
            return true;
        }
        if left.is_some_and(|left| left.is_zero()) {
            return false;
        }
        if count > 0 && polls[2].revents != 0 {
            let leaves_time = signal_of(asked).is_some_and(|signal| PATIENT.contains(&signal));
            if !leaves_time || grace.is_zero() {
                return false;
            }
            end.get_or_insert_with(|| Instant::now() + grace);
            // It passes that on.
            notice::signal(pidfd);
        }
        if count <= 0 || polls[1].revents == 0 {
            continue;
        }
        // A shell may be at its end without a word; what it says besides is none of ours.
        let over = match io::stdin().read(&mut buffer) {
            Ok(0) => true,
            Ok(count) if buffer[..count].contains(&DISMISSED) => return false,
            Ok(_) => false,
            Err(error) => error.kind() != io::ErrorKind::Interrupted,
        };
        if over && !stays {
            return false;
        }
        if over {
            polls[1].fd = -1;
        }
    }
}
