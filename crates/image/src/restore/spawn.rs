//! Starting the restorer as a traced child that has the right descriptors and, where the system
//! lets us choose it, the right number.

use crate::error::RestoreError;
use crate::kernel::clone::CloneArgs;
use crate::kernel::holder::with_signals_blocked;
use crate::kernel::procfs;
use crate::resources::clocks;
use crate::resources::limits;
use crate::restore::plan::SIGNAL_SET_BYTES;
use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Exit status of a child that did not get as far as its program.
const EXIT_SETUP: i32 = 120;
const EXIT_EXEC: i32 = 121;
const LAST_SIGNAL: i32 = 64;

/// What the child is given.
pub struct Start<'a> {
    /// The restorer's path.
    pub program: &'a Path,
    /// Descriptors of ours that it gets, under our numbers.
    pub descriptors: &'a [RawFd],
    /// Higher than all numbers that it will have for a moment.
    pub limit: u64,
    /// The number it should have.
    pub pid: libc::pid_t,
    /// Whether no other will do.
    pub only_this: bool,
    /// How far its clocks are to be ahead of the machine's, if not as far as ours.
    pub clocks: Option<clocks::Ahead>,
}

/// A child that was started.
pub struct Started {
    pub pid: libc::pid_t,
    /// Its clocks are as was asked for.
    pub clocks: bool,
}

/// Why a child died before its first instruction, by its exit status.
pub fn explain_exit(status: i32) -> &'static str {
    match status {
        EXIT_SETUP => "its descriptors could not be set up",
        EXIT_EXEC => "its program could not be executed",
        _ => "it stopped working",
    }
}

/// Starts the child; it stops with `SIGTRAP` when its program is loaded.
pub fn start(start: &Start<'_>) -> Result<Started, RestoreError> {
    let fail = |what| RestoreError::Os { what, source: io::Error::last_os_error() };
    let invalid = |_| RestoreError::Machine("path of the restorer".into());
    let program = CString::new(start.program.as_os_str().as_bytes()).map_err(invalid)?;
    let name = CString::from(c"eyrie-restorer");
    let argv = [name.as_ptr(), std::ptr::null()];
    let envp = [std::ptr::null()];
    // SAFETY: no arguments.
    let parent = unsafe { libc::getpid() };
    // SAFETY: of a new process with one thread; everything that it uses was made before.
    let live = || unsafe { child(start, parent, &program, argv.as_ptr(), envp.as_ptr()) };
    let (Born { pid, refused }, clocks, error) = with_signals_blocked(|| {
        let elsewhere = start.clocks.and_then(|ahead| bear_in_other_time(start, ahead, &live));
        let clocks = elsewhere.is_some() || start.clocks.is_none();
        let born = elsewhere.unwrap_or_else(|| bear(start, 0, &live));
        (born, clocks, fail("start the restorer"))
    });
    let pid = libc::pid_t::try_from(pid).ok().filter(|&p| p > 0);
    pid.map(|pid| Started { pid, clocks }).ok_or_else(|| match start.only_this {
        true => number_refused(start.pid, -refused),
        false => error,
    })
}

/// A child's number, or a negative one, and why its number was refused.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Born {
    pid: i64,
    refused: i64,
}

/// Makes the child, which is to `live`; with `CLONE_PARENT` as a child of our parent.
fn bear(start: &Start<'_>, flags: i32, live: &dyn Fn() -> Infallible) -> Born {
    let mut pid = clone(Some(start.pid), flags);
    let refused = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    if pid < 0 && !start.only_this {
        // No right to choose numbers, or the number is taken, or no clone3: take what comes.
        pid = clone(None, flags);
    }
    if pid == 0 {
        live();
    }
    Born { pid, refused: i64::from(refused) }
}

/// Makes the child in a time namespace of its own. It takes a process between that makes that: our
/// own other children are to stay in ours. `None`: it cannot be had.
fn bear_in_other_time(
    start: &Start<'_>,
    ahead: clocks::Ahead,
    live: &dyn Fn() -> Infallible,
) -> Option<Born> {
    let words = clocks::words(ahead);
    let (read, write) = io::pipe().ok()?;
    let between = clone(None, 0);
    if between == 0 {
        // SAFETY: system calls on numbers and live memory only, in a process with one thread.
        unsafe {
            let path = c"/proc/self/timens_offsets".as_ptr();
            let made = libc::unshare(libc::CLONE_NEWTIME) == 0 && {
                let fd = libc::open(path, libc::O_WRONLY | libc::O_CLOEXEC);
                libc::write(fd, words.as_ptr().cast(), words.len()) == words.len() as isize
            };
            if made {
                let born = bear(start, libc::CLONE_PARENT, live);
                libc::write(write.as_raw_fd(), (&raw const born).cast(), size_of::<Born>());
            }
            libc::_exit(0)
        }
    }
    drop(write);
    let mut born = Born::default();
    let bytes = size_of::<Born>();
    // SAFETY: reads into a live structure of integers, and waits for our own child.
    let told = unsafe {
        let told = libc::read(read.as_raw_fd(), (&raw mut born).cast(), bytes);
        while between > 0
            && libc::waitpid(between as libc::pid_t, std::ptr::null_mut(), libc::__WALL) < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
        told
    };
    (told == bytes as isize).then_some(born)
}

fn clone(pid: Option<libc::pid_t>, flags: i32) -> libc::c_long {
    // A child of our parent ends for it as we do.
    let signal = if flags & libc::CLONE_PARENT == 0 { libc::SIGCHLD } else { 0 };
    let Some(pid) = pid else {
        // SAFETY: a plain fork without libc's handlers: the child only makes system calls.
        return unsafe { libc::syscall(libc::SYS_clone, flags | signal, 0, 0, 0, 0) };
    };
    let mut args = CloneArgs::numbered(signal, &raw const pid as u64);
    args.flags = flags as u64;
    // SAFETY: as above; args and pid are live.
    unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) }
}

/// The child's way to its program.
///
/// # Safety
/// Runs in a new process with one thread; must make nothing but system calls.
unsafe fn child(
    start: &Start<'_>,
    parent: libc::pid_t,
    program: &CString,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
) -> Infallible {
    // SAFETY: system calls on numbers and live memory only; see the function's contract.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(EXIT_SETUP);
        }
        limits::raise(start.limit);
        // What we ignore, as every program in Rust does SIGPIPE, an exec would hand on; the plan
        // sets what the process ignored.
        let default = [0u64; 4];
        for signal in 1..=LAST_SIGNAL {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, SIGNAL_SET_BYTES);
        }
        for &fd in start.descriptors {
            if libc::fcntl(fd, libc::F_SETFD, 0) < 0 {
                libc::_exit(EXIT_SETUP);
            }
        }
        // The stop at execve comes as a SIGTRAP, which must not be blocked.
        let mut trap = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(trap.as_mut_ptr());
        libc::sigaddset(trap.as_mut_ptr(), libc::SIGTRAP);
        libc::sigprocmask(libc::SIG_UNBLOCK, trap.as_ptr(), std::ptr::null_mut());
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
        libc::execve(program.as_ptr(), argv, envp);
        libc::_exit(EXIT_EXEC)
    }
}

/// Why a number could not be had.
pub(crate) fn number_refused(pid: libc::pid_t, result: i64) -> RestoreError {
    let error = io::Error::from_raw_os_error((-result) as i32);
    let why = match error.raw_os_error() {
        Some(libc::EEXIST) => format!("another process ({}) has it", procfs::name(pid)),
        Some(libc::EPERM) => "choosing numbers takes CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN, \
                              which a program with child processes cannot be restored without"
            .into(),
        Some(libc::ENOSYS | libc::E2BIG) => "choosing numbers takes Linux 5.5 or newer".to_string(),
        _ => error.to_string(),
    };
    RestoreError::Number { pid, why }
}
