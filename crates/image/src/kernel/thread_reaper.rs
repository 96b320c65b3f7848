//! Collecting threads that end while others of their process are being seized.
//!
//! An exec ends all other threads of its process and waits until their tracer has collected them,
//! holding a lock that `PTRACE_SEIZE` takes. A tracer that seizes one more thread at that moment
//! would wait for the exec and the exec for it. So another thread of ours collects meanwhile: the
//! kernel lets any thread of a tracer's process do that.
//!
//! Kept true: only threads it was told of are collected, never the first one of a process, whose
//! end is its parent's to learn; and only when they have ended. The stop of one that stands still
//! is not touched: the one who traces it would wait for it for ever.

use crate::kernel::stops::collect_end;
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
pub(crate) struct ThreadReaper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadReaper {
    /// For threads that are traced already. Where no thread can be had there is none to help.
    pub fn of(threads: Vec<libc::pid_t>) -> ThreadReaper {
        let shared = Arc::new(Shared { state: Mutex::new((threads, false)), ..Shared::default() });
        let theirs = Arc::clone(&shared);
        let builder = std::thread::Builder::new().name("eyrie-collect".into());
        let thread = builder.spawn(move || theirs.collect()).ok();
        ThreadReaper { shared, thread }
    }

    /// One more is traced.
    pub fn add(&self, thread: libc::pid_t) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).0.push(thread);
    }
}

impl Drop for ThreadReaper {
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
    matches!(collect_end(libc::P_PID, thread as libc::id_t), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::freeze::Frozen;
    use crate::kernel::ptrace::Tracee;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_stop_is_not_taken_for_an_end() {
        let child =
            Sleeper(Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().unwrap());
        let tracee = Tracee(child.0.id() as libc::pid_t);
        let end = Instant::now() + Duration::from_secs(60);
        tracee.seize(0, end).unwrap();
        tracee.interrupt().unwrap();
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", tracee.0)).unwrap();
        while !stat().contains(") t") {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        assert!(!is_collected(tracee.0));
        // SAFETY: all-zero is a valid siginfo_t, and it is live.
        let stop = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
            assert_eq!(libc::waitid(libc::P_PID, child.0.id(), &raw mut info, options), 0);
            (info.si_pid(), info.si_code)
        };
        assert_eq!(stop, (tracee.0, libc::CLD_TRAPPED), "nobody has taken it");
        // Now it was taken, as by a thread that asks for ends only, and is found nevertheless.
        assert!(tracee.wait_until(end).unwrap().is_some());
        tracee.detach(0).unwrap();
        Frozen::stop(tracee.0).unwrap().release().unwrap();
    }
}
