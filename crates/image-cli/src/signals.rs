//! Signals: held before any thread begins, passed on to the program.
//!
//! Kept true: one that a terminal sends to its whole foreground group is not passed on a second
//! time, and counts as seen also when the program has died of it before we came to look at it.

use anyhow::Context;
use eyrie_terminal::Held;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The last of all signals, and so the last to be taken of those that wait: what came before it has
/// been seen.
const MARK: i32 = 64;
/// How long is waited for it.
const LIMIT: Duration = Duration::from_secs(1);

const HELD: [i32; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    MARK,
];

/// Blocks the signals that are passed on.
pub fn hold() -> Held {
    eyrie_terminal::hold(&HELD)
}

/// Signals that the program got through us or with us, a bit each.
#[derive(Clone, Default)]
pub struct Seen(Arc<(Mutex<u64>, Condvar)>);

fn bit(signal: i32) -> u64 {
    1u64.checked_shl((signal - 1) as u32).unwrap_or(0)
}

impl Seen {
    /// Whether `signal` was among them. The thread that sees them has been started.
    pub fn has(&self, signal: i32) -> bool {
        let (bits, changed) = &*self.0;
        // SAFETY: plain system calls.
        if unsafe { libc::kill(libc::getpid(), MARK) } < 0 {
            return false;
        }
        let bits = bits.lock().unwrap_or_else(PoisonError::into_inner);
        // Who started us may have it ignored.
        let marked = changed.wait_timeout_while(bits, LIMIT, |bits| *bits & bit(MARK) == 0);
        *marked.unwrap_or_else(PoisonError::into_inner).0 & bit(signal) != 0
    }

    fn add(&self, signal: i32) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) |= bit(signal);
        self.0.1.notify_all();
    }
}

/// Starts the thread that passes signals on to the process of `pidfd`. `same_group`: the terminal
/// reaches the program as well as us.
pub fn pass_on(
    set: libc::sigset_t,
    pidfd: OwnedFd,
    same_group: bool,
    seen: Seen,
) -> anyhow::Result<()> {
    let wait = move || {
        loop {
            // SAFETY: siginfo_t is plain data for which zero is valid.
            let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
            // SAFETY: both places are valid; the set was blocked before any thread began.
            let signal = unsafe { libc::sigwaitinfo(&set, &mut info) };
            if signal <= 0 {
                continue;
            }
            seen.add(signal);
            if signal == MARK || (same_group && info.si_code > 0) {
                continue;
            }
            // SAFETY: a plain system call; a process that is gone is refused by it.
            unsafe {
                let fd = pidfd.as_raw_fd();
                let none = std::ptr::null::<libc::siginfo_t>();
                libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, none, 0);
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).context("thread")?;
    Ok(())
}
