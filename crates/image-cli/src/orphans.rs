//! What the program has left behind: processes that nobody waits for (daemons). The supervisor
//! adopts them, and so knows them.
//!
//! Kept true: only those that have ended are touched, and never the program, nor what a checkpoint
//! traces.

use eyrie_image::LeftBehind;
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
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let all: Vec<libc::pid_t> =
        lists.flat_map(|list| numbers(&list)).filter(|&pid| pid != program).collect();
    all.into_iter().filter(move |&pid| {
        let its = fs::read_link(format!("/proc/{pid}/exe")).ok();
        !is_traced(pid) && (its.is_none() || its != own)
    })
}

fn numbers(list: &str) -> Vec<libc::pid_t> {
    list.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

fn field(pid: libc::pid_t, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name).map(|rest| rest.trim().to_string()))
}

fn state(pid: libc::pid_t) -> Option<char> {
    field(pid, "State:")?.chars().next()
}

fn is_traced(pid: libc::pid_t) -> bool {
    field(pid, "TracerPid:").is_some_and(|tracer| tracer != "0")
}
