//! Collecting the ended, and leaving nobody behind.
//!
//! Kept true: a rank is only ever collected through its pidfd and only for its exit, so that the
//! stops a checkpoint waits for are never taken away; only descendants of this process are killed.

use crate::monitor::Death;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Longest `clear` waits for killed processes to go.
const CLEAR_LIMIT: Duration = Duration::from_secs(10);

fn waitid(kind: libc::idtype_t, id: libc::id_t) -> io::Result<Option<Death>> {
    // SAFETY: siginfo_t is plain data for which zero is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is a valid place for the answer.
    let rc = unsafe { libc::waitid(kind, id, &mut info, libc::WEXITED | libc::WNOHANG) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: for an answer of waitid these two fields are the ones that are set.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    Ok(Some(match info.si_code {
        libc::CLD_EXITED => Death::Exit(status),
        _ => Death::Signal(status),
    }))
}

/// How the process of `pidfd` ended, if it did; it is gone afterwards.
pub fn collect(pidfd: &OwnedFd) -> io::Result<Option<Death>> {
    waitid(libc::P_PIDFD, pidfd.as_raw_fd() as libc::id_t)
}

/// Children of this process, started by any of its threads or adopted.
pub fn children() -> Vec<libc::pid_t> {
    let mut found = Vec::new();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return found };
    for task in tasks.flatten() {
        if let Ok(list) = std::fs::read_to_string(task.path().join("children")) {
            found.extend(list.split_whitespace().filter_map(|p| p.parse::<libc::pid_t>().ok()));
        }
    }
    found
}

/// Makes this process adopt the orphans among its descendants.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: plain system call.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Collects adopted children that have ended; `spare` are not touched.
pub fn collect_orphans(spare: &[libc::pid_t]) {
    for pid in children() {
        if !spare.contains(&pid) {
            let _ = waitid(libc::P_PID, pid as libc::id_t);
        }
    }
}

/// Kills and collects all descendants, generation after generation. Returns how many are left
/// (stuck in the kernel) when the time is over.
pub fn clear() -> usize {
    let end = Instant::now() + CLEAR_LIMIT;
    loop {
        let left = children();
        if left.is_empty() || Instant::now() > end {
            return left.len();
        }
        for pid in &left {
            // SAFETY: plain system call; the process is our child and not collected yet, so the
            // number is still its own.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        for pid in left {
            // A blocking wait on one that was just killed; another thread's tracee may answer
            // late, so it is polled.
            if matches!(waitid(libc::P_PID, pid as libc::id_t), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
