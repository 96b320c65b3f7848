//! Signals: held before any thread begins, passed on to the program.
//!
//! Kept true: one that a terminal sends to its whole foreground group is not passed on a second
//! time.

use anyhow::Context;
use eyrie_terminal::Held;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PASSED: [i32; 7] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
];

/// Blocks the signals that are passed on.
pub fn hold() -> Held {
    eyrie_terminal::hold(&PASSED)
}

/// Signals that the program got through us or with us, a bit each.
#[derive(Clone, Default)]
pub struct Seen(Arc<AtomicU64>);

impl Seen {
    /// Whether `signal` was among them.
    pub fn has(&self, signal: i32) -> bool {
        (1..=64).contains(&signal) && self.0.load(Ordering::Acquire) >> (signal - 1) as u64 & 1 != 0
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
            seen.0.fetch_or(1 << (signal - 1), Ordering::AcqRel);
            if same_group && info.si_code > 0 {
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
