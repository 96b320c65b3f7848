//! Starting a rank's process from the program's beginning.
//!
//! Kept true: called from the daemon's main thread only (the death signal is tied to the thread
//! that forks); a rank has its own process group, mostly its own session (`session`), dies with the
//! daemon, and inherits nothing but its standard streams and the job segment.

use crate::cores;
use crate::session;
use crate::slice;
use eyrie_state::home::HOME_OF_JOB;
use eyrie_state::local::LOCAL_OF_JOB;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Descriptor numbers below this are left to the program.
const HIGH_FD: libc::c_int = 200;

/// What Python's hashes of texts, and so the order in its sets, depend on: it finds out before MPI
/// begins, so that nobody can tell it again.
const HASH_SEED: &str = "PYTHONHASHSEED";

/// Where Eyrie's own parts are installed.
#[derive(Debug, Clone)]
pub struct Prefix {
    pub lib: Option<PathBuf>,
    pub restorer: Option<PathBuf>,
}

impl Prefix {
    /// Found from the place of the `eyrie` binary: `../lib`, `../libexec/eyrie-restorer`, or the
    /// restorer beside it (build folder).
    pub fn of(binary: &Path) -> Prefix {
        let bin = binary.parent().unwrap_or(Path::new("/"));
        let root = bin.parent().unwrap_or(Path::new("/"));
        let lib = Some(root.join("lib")).filter(|p| p.is_dir());
        let places = [root.join("libexec/eyrie-restorer"), bin.join("eyrie-restorer")];
        Prefix { lib, restorer: places.into_iter().find(|p| p.is_file()) }
    }
}

/// What a rank is started with.
pub struct Launch<'a> {
    pub program: &'a Path,
    /// First the name, then the arguments.
    pub argv: &'a [OsString],
    pub rank: u32,
    pub size: u32,
    pub job: &'a str,
    pub segment: BorrowedFd<'a>,
    pub lib: Option<&'a Path>,
    /// Bind all symbols at start, so that an image holds no half-resolved ones.
    pub bind_now: bool,
    /// Whether it may be restored without the others, and repeat what it did since its image.
    pub repeats: bool,
    /// Whether each start of it is to be like the others: its memory lies where it lay, and
    /// Python's hashes are the same.
    pub alike: bool,
    /// Processors it is to run on, as a mask.
    pub bound: Option<Vec<u8>>,
    pub stdio: [OwnedFd; 3],
}

/// Moves a descriptor out of the way of programs that use fixed small numbers.
pub fn high(fd: OwnedFd) -> OwnedFd {
    // SAFETY: duplicates an open descriptor; the result is checked.
    let raw = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH_FD) };
    if raw < 0 {
        return fd;
    }
    // SAFETY: fcntl just made this descriptor and nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Starts the process and returns its number.
pub fn spawn(launch: Launch<'_>) -> io::Result<libc::pid_t> {
    let (name, args) =
        launch.argv.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    eyrie_image::check_executable(launch.program)?;
    let daemon = std::process::id();
    let segment = launch.segment.as_raw_fd();
    let [stdin, stdout, stderr] = launch.stdio;
    let bound = launch.bound;
    let (own_session, alike) = (session::is_for_each(), launch.alike);
    let mut command = Command::new(launch.program);
    command.arg0(name).args(args);
    command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
    command.env("EYRIE_RANK", launch.rank.to_string());
    command.env("EYRIE_SIZE", launch.size.to_string());
    // What packages for Open MPI ask before they call MPI, or to choose how they were built.
    command.env("OMPI_COMM_WORLD_RANK", launch.rank.to_string());
    command.env("OMPI_COMM_WORLD_SIZE", launch.size.to_string());
    command.env("EYRIE_SEGMENT_FD", segment.to_string());
    // The first addresses of a stack depend on how long the environment is.
    command.env("EYRIE_NODE_PID", format!("{daemon:010}"));
    command.env("EYRIE_JOB", launch.job);
    for name in [HOME_OF_JOB, LOCAL_OF_JOB] {
        command.env_remove(name);
    }
    if launch.repeats {
        // What a library does that is no call of MPI is repeated, too: it has to know.
        command.env("EYRIE_REPEATS", "1");
    } else {
        // Around this job there may be one that repeats.
        command.env_remove("EYRIE_REPEATS");
    }
    if alike && std::env::var_os(HASH_SEED).is_none() {
        command.env(HASH_SEED, "0");
    }
    if let Some(lib) = launch.lib {
        command.env("LD_LIBRARY_PATH", library_path(lib));
    }
    if launch.bind_now {
        command.env("LD_BIND_NOW", "1");
    }
    // SAFETY: the closure makes only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) < 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::getppid() != daemon as libc::pid_t {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            session::begin(own_session);
            slice::shorten();
            if alike {
                keep_addresses();
            }
            if let Some(mask) = &bound {
                cores::bind(0, mask)?;
            }
            // The daemon ignores it (a full disk must not kill it); the program need not.
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
            shut_inherited();
            if libc::fcntl(segment, libc::F_SETFD, 0) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let child = eyrie_image::while_starting(|| command.spawn())
        .map_err(|error| eyrie_image::name_interpreter(launch.program, error))?;
    Ok(child.id() as libc::pid_t)
}

/// Has the program that is executed next find its memory at the same addresses as in its other
/// lives: what follows from them, such as numbers seeded by one, is repeated then. Some containers
/// forbid that. Async-signal-safe.
fn keep_addresses() {
    const ASK: libc::c_ulong = 0xffff_ffff;
    // SAFETY: plain system calls with numbers.
    unsafe {
        let now = libc::personality(ASK);
        if now >= 0 {
            libc::personality(now as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        }
    }
}

/// Lets no descriptor beyond the standard streams through an exec; an image could not bring
/// strangers' descriptors back, and they would keep strangers' pipes open.
pub fn shut_inherited() {
    // SAFETY: plain system calls, async-signal-safe; they only set a flag, and the limit is
    // written to a place of our own.
    unsafe {
        let flag = libc::CLOSE_RANGE_CLOEXEC;
        if libc::syscall(libc::SYS_close_range, 3, u32::MAX, flag) == 0 {
            return;
        }
        // Before Linux 5.11: one by one.
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        for fd in 3..limit.rlim_cur.min(1 << 20) as i32 {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

fn library_path(lib: &Path) -> OsString {
    let mut path = lib.as_os_str().to_os_string();
    if let Some(old) = std::env::var_os("LD_LIBRARY_PATH").filter(|p| !p.is_empty()) {
        path.push(OsStr::new(":"));
        path.push(old);
    }
    path
}

/// A descriptor that becomes readable when the process has ended. The process must be a child
/// that was not reaped yet.
pub fn pidfd(pid: libc::pid_t) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid)
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?)
}
