//! What the program has left behind: processes that nobody waits for (daemons). The supervisor
//! adopts them, and so knows them.
//!
//! Kept true: only those that have ended are touched, and never the program, nor what a checkpoint
//! traces.

use eyrie_image::{LeftBehind, children_of, is_traced};
use std::fs;

/// Has this process adopt the orphans among its descendants.
pub fn adopt() {
    // SAFETY: a plain system call. Where it fails they go to another, as ever.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Those that live.
pub fn alive(program: libc::pid_t) -> LeftBehind {
    let lives = |pid: &libc::pid_t| !matches!(state(*pid), None | Some('Z' | 'X'));
    LeftBehind::of(adopted(program).filter(lives))
}

/// Collects those that have ended.
pub fn collect(program: libc::pid_t) {
    for pid in adopted(program).filter(|pid| state(*pid) == Some('Z')) {
        // SAFETY: asks about one child of ours, whose end nobody wants to know.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
    }
}

/// Children of ours but for the program, what a checkpoint traces, and helpers of ours.
fn adopted(program: libc::pid_t) -> impl Iterator<Item = libc::pid_t> {
    let own = fs::read_link("/proc/self/exe").ok();
    children_of("self").into_iter().filter(move |&pid| {
        let its = fs::read_link(format!("/proc/{pid}/exe")).ok();
        pid != program && !is_traced(pid) && (its.is_none() || its != own)
    })
}

fn state(pid: libc::pid_t) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("State:"))?.trim_start().chars().next()
}
