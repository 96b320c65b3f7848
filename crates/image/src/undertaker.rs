//! Collecting threads that end while others of their process are being seized.
//!
//! An exec ends all other threads of its process and waits until their tracer has collected them,
//! holding a lock that `PTRACE_SEIZE` takes. A tracer that seizes one more thread at that moment
//! would wait for the exec and the exec for it. So another thread of ours collects meanwhile: the
//! kernel lets any thread of a tracer's process do that.
//!
//! Kept true: only threads it was told of are collected, never the first one of a process, whose
//! end is its parent's to learn.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a seizure may take before it is thought to be stuck.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Shared {
    /// Threads that are traced, and whether all is over.
    state: Mutex<(Vec<libc::pid_t>, bool)>,
    changed: Condvar,
}

/// Collects as long as it lives.
pub(crate) struct Undertaker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Undertaker {
    /// For threads that are traced already. Where no thread can be had there is none to help.
    pub fn of(threads: Vec<libc::pid_t>) -> Undertaker {
        let shared = Arc::new(Shared { state: Mutex::new((threads, false)), ..Shared::default() });
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("eyrie-collect".into());
        let thread = builder.spawn(move || theirs.collect()).ok();
        Undertaker { shared, thread }
    }

    /// One more is traced.
    pub fn add(&self, thread: libc::pid_t) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).0.push(thread);
    }
}

impl Drop for Undertaker {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn collect(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.1 {
            let waited = self.changed.wait_timeout(state, PAUSE);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if timeout.timed_out() {
                state.0.retain(|&thread| !is_collected(thread));
            }
        }
    }
}

/// Collects a thread if it has ended; its stops are left to the one who traces it.
fn is_collected(thread: libc::pid_t) -> bool {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
    // SAFETY: asks about one thread and writes to a live structure.
    let r = unsafe { libc::waitid(libc::P_PID, thread as u32, &raw mut info, options) };
    // SAFETY: a SIGCHLD siginfo has a pid; it is zero if there was nothing to report.
    r == 0 && unsafe { info.si_pid() } != 0
}
