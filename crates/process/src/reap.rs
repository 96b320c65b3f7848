//! Collecting the ended, and leaving nobody behind.
//!
//! Kept true: a rank is only ever collected through its pidfd and only for its exit, so that the
//! stops a checkpoint waits for are never taken away; only descendants of this process are killed.

use eyrie_control::Death;
use eyrie_image::{LeftBehind, children_of, collect_end, is_traced, peek_end, while_starting};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest `clear` waits for killed processes to go.
const CLEAR_LIMIT: Duration = Duration::from_secs(10);
/// Children that were started on purpose, which no dead daemon has left.
static STARTED: Mutex<Vec<libc::pid_t>> = Mutex::new(Vec::new());

/// Starts a process that is never taken for what a dead daemon has left behind, however soon after
/// its death; to be forgotten when it was collected.
pub fn start(command: &mut Command) -> io::Result<Child> {
    // Held meanwhile: nobody sees it before it is known.
    let mut started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    let child = while_starting(|| command.spawn())?;
    started.push(child.id() as libc::pid_t);
    Ok(child)
}

/// One of those was collected.
pub fn forget(pid: libc::pid_t) {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner).retain(|started| *started != pid);
}

/// Kept true: only an end is taken. With `WEXITED` alone the kernel would hand out the stop of a
/// process that a checkpoint traces, and the checkpoint would wait for it.
fn waitid(kind: libc::idtype_t, id: libc::id_t) -> io::Result<Option<Death>> {
    Ok(collect_end(kind, id)?.map(death))
}

fn death((code, status): (libc::c_int, libc::c_int)) -> Death {
    if code == libc::CLD_EXITED { Death::Exit(status) } else { Death::Signal(status) }
}

/// How the process of `pidfd` ended, if it did; it is gone afterwards.
pub fn collect(pidfd: &OwnedFd) -> io::Result<Option<Death>> {
    waitid(libc::P_PIDFD, pidfd.as_raw_fd() as libc::id_t)
}

/// The same, and it stays to be collected.
pub fn peek(pidfd: &OwnedFd) -> io::Result<Option<Death>> {
    Ok(peek_end(libc::P_PIDFD, pidfd.as_raw_fd() as libc::id_t)?.map(death))
}

/// Whether the kernel wrote a core file of a process that has ended, and was not collected.
pub fn left_core(pidfd: &OwnedFd) -> Option<bool> {
    let end = peek_end(libc::P_PIDFD, pidfd.as_raw_fd() as libc::id_t).ok().flatten();
    end.map(|(code, _)| code == libc::CLD_DUMPED)
}

/// Children of this process, started by any of its threads or adopted.
pub fn children() -> Vec<libc::pid_t> {
    children_of("self")
}

/// Makes this process adopt the orphans among its descendants.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: plain system call.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Collects adopted children that have ended; `spare` are not touched, nor is what a checkpoint
/// thread traces.
pub fn collect_orphans(spare: &[libc::pid_t]) {
    for pid in children() {
        if !spare.contains(&pid) && !is_traced(pid) {
            let _ = waitid(libc::P_PID, pid as libc::id_t);
        }
    }
}

fn has_marks(pid: libc::pid_t, marks: &[String]) -> bool {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let has = |mark: &String| environ.split(|&b| b == 0).any(|v| v == mark.as_bytes());
    marks.iter().all(has)
}

/// What marks the processes of a rank.
fn marks(job: &str, rank: u32) -> [String; 2] {
    [format!("EYRIE_JOB={job}"), format!("EYRIE_RANK={rank}")]
}

/// The name of who has this number, if that is no process of this rank: one that moves within a
/// machine has it until it ends.
pub fn stranger(job: &str, rank: u32, number: libc::pid_t) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
    (!has_marks(number, &marks(job, rank))).then(|| name.trim_end().to_string())
}

/// What a rank whose processes are `family` has left behind and lives: adopted processes that were
/// started with its environment. Twins of it are traced, and do not count. Those that are older
/// than the first of the family are of a life of the rank that is over, and are killed: one that
/// was just being executed when that life ended showed no environment then.
pub fn orphans_of(job: &str, rank: u32, family: &[libc::pid_t]) -> LeftBehind {
    let marks = marks(job, rank);
    let begun = family.first().and_then(|first| born(*first)).unwrap_or(0);
    let is_left = |pid: &libc::pid_t| {
        let of_this_life = || match born(*pid) {
            Some(born) if born < begun => {
                // SAFETY: our child, and not collected yet.
                unsafe { libc::kill(*pid, libc::SIGKILL) };
                false
            }
            born => born.is_some(),
        };
        !family.contains(pid) && has_marks(*pid, &marks) && !is_traced(*pid) && of_this_life()
    };
    LeftBehind::of(children().into_iter().filter(is_left))
}

/// Kills what the dead process of a rank has left behind: adopted processes that were started with
/// the rank's environment, and their descendants. Twins of it are traced, and stay. Returns them.
/// Whoever is started when it is not `wanted` any more is not taken for one of them.
pub fn kill_left(job: &str, rank: u32, wanted: impl Fn() -> bool) -> Vec<libc::pid_t> {
    let marks = marks(job, rank);
    let is_left = |pid: &libc::pid_t| has_marks(*pid, &marks) && !is_traced(*pid);
    let mut left: Vec<libc::pid_t> = children().into_iter().filter(is_left).collect();
    // What these have started is adopted when they are gone, which may be too late.
    let mut at = 0;
    while let Some(pid) = left.get(at) {
        left.extend(children_of(&pid.to_string()).into_iter().filter(|pid| !is_traced(*pid)));
        at += 1;
    }
    // Asked when they were found, so all were started before.
    if !wanted() {
        return Vec::new();
    }
    for &pid in &left {
        // SAFETY: our child, and not collected yet: collecting is for those that have ended. Or one
        // of its descendants, found just now.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    left
}

/// Kills what the dead process of a rank has left behind, generation after generation, and waits
/// until it is gone, or not `wanted` any more. Returns how many processes do not go.
pub fn clear_left(job: &str, rank: u32, wanted: impl Fn() -> bool) -> usize {
    let end = Instant::now() + CLEAR_LIMIT;
    let mut killed: Vec<libc::pid_t> = Vec::new();
    loop {
        killed.extend(kill_left(job, rank, &wanted));
        killed.sort_unstable();
        killed.dedup();
        // Those that nobody has collected are collected here, and then are no children any more.
        killed.retain(|&pid| matches!(waitid(libc::P_PID, pid as libc::id_t), Ok(None)));
        // The children of the killed are ours when their parent has gone.
        if !wanted() || killed.is_empty() && kill_left(job, rank, &wanted).is_empty() {
            return 0;
        }
        if Instant::now() > end {
            return killed.len();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills and collects all descendants but those that were started on purpose and what these lead,
/// generation after generation. Returns how many do not go.
pub fn clear_left_behind() -> usize {
    clear_these(|| {
        let started = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = children();
        left.retain(|pid| !started.contains(pid));
        left
    })
}

fn clear_these(children: impl Fn() -> Vec<libc::pid_t>) -> usize {
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
            if matches!(waitid(libc::P_PID, pid as libc::id_t), Ok(None)) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

/// The signal that ended a process which was not collected yet, once none of its threads returns
/// to the program: its memory may still be there.
///
/// # Errors
/// Whether it is on its way out: a signal has ended it, and some of its threads may run yet.
pub fn killed(pid: libc::pid_t) -> Result<i32, bool> {
    /// The kernel's `PF_EXITING` among the flags of a thread.
    const EXITING: u64 = 0x4;
    // The 9th and the 52nd of proc_pid_stat(5). A thread that has been collected is gone.
    let look = |task: &Path| {
        let stat = std::fs::read_to_string(task.join("stat")).ok()?;
        let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| words.get(at - 3)?.parse::<u64>().ok();
        Some((number(9)? & EXITING != 0, number(52)? as i32 & 0x7f))
    };
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    // First: from then on no thread begins.
    let Some((true, signal @ 1..)) = look(&tasks.join(pid.to_string())) else { return Err(false) };
    let tasks = std::fs::read_dir(tasks).map_err(|_| false)?;
    let runs = |task: std::fs::DirEntry| look(&task.path()).is_some_and(|(exits, _)| !exits);
    if tasks.flatten().any(runs) { Err(true) } else { Ok(signal) }
}

/// The signal by which a process is on its way out, or has ended and was not collected yet; 0: by
/// itself.
pub fn ending(pid: libc::pid_t) -> Option<i32> {
    const EXITING: u64 = 0x4;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| words.get(at - 3)?.parse::<u64>().ok();
    let is_ending = number(9)? & EXITING != 0;
    is_ending.then_some(number(52)? as i32 & 0x7f)
}

/// When a process started, as the kernel counts. None: it is gone, or has ended.
pub fn born(pid: libc::pid_t) -> Option<u64> {
    let (state, _, born) = stat(pid)?;
    (!"ZX".contains(&state)).then_some(born)
}

/// State, parent and birth of a process.
fn stat(pid: libc::pid_t) -> Option<(String, libc::pid_t, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.to_string();
    let parent = words.next()?.parse().ok()?;
    Some((state, parent, words.nth(17)?.parse().ok()?))
}

/// A descriptor that says, as that of a process does, that it has ended.
pub fn ended() -> io::Result<OwnedFd> {
    let flags = rustix::event::EventfdFlags::CLOEXEC;
    Ok(rustix::event::eventfd(1, flags)?)
}

/// Kills the processes of a job that none of the daemons `live` leads, wherever they are, and
/// waits until they are gone. Returns how many do not go.
pub fn clear_strays(job: &str, live: &[libc::pid_t]) -> usize {
    let end = Instant::now() + CLEAR_LIMIT;
    loop {
        let left = strays(job, live);
        if left.is_empty() || Instant::now() > end {
            return left.len();
        }
        for pid in left {
            // SAFETY: plain system call. It bears the job's mark, and had not ended just now.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn strays(job: &str, live: &[libc::pid_t]) -> Vec<libc::pid_t> {
    let mark = format!("EYRIE_JOB={job}");
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let is_stray = |pid: &libc::pid_t| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let marked = environ.split(|&b| b == 0).any(|v| v == mark.as_bytes());
        // Twice: a parent that ends while it is looked for hides who is above it.
        marked && born(*pid).is_some() && !is_led(*pid, live) && !is_led(*pid, live)
    };
    pids.filter(is_stray).collect()
}

/// Whether one of these is a process's ancestor.
fn is_led(mut pid: libc::pid_t, live: &[libc::pid_t]) -> bool {
    while let Some((_, parent, _)) = stat(pid).filter(|s| s.1 > 1) {
        if live.contains(&parent) {
            return true;
        }
        pid = parent;
    }
    false
}

/// Kills and collects all descendants, generation after generation. Returns how many are left
/// (stuck in the kernel) when the time is over.
pub fn clear() -> usize {
    clear_these(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_killed_is_known_before_it_is_collected() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id() as libc::pid_t;
        assert_eq!(killed(pid), Err(false));
        child.kill().unwrap();
        while killed(pid) != Ok(libc::SIGKILL) {
            std::thread::yield_now();
        }
        assert!(!child.wait().unwrap().success());
        assert_eq!(killed(pid), Err(false));
    }

    #[test]
    fn who_ends_by_itself_was_not_killed() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id() as libc::pid_t;
        // SAFETY: `info` is a valid place for the answer; the child stays to be collected.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let how = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, how), 0);
        }
        assert_eq!(killed(pid), Err(false));
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn what_a_rank_has_left_is_killed_while_that_is_wanted() {
        let job = format!("left-{}", std::process::id());
        let mut left = Command::new("sleep");
        let mut left =
            left.arg("600").env("EYRIE_JOB", &job).env("EYRIE_RANK", "1").spawn().unwrap();
        // The kernel shows a program's environment a moment after it has begun.
        while !has_marks(left.id() as libc::pid_t, &marks(&job, 1)) {
            std::thread::yield_now();
        }
        assert!(kill_left(&job, 1, || false).is_empty());
        assert!(kill_left(&job, 2, || true).is_empty());
        assert!(left.try_wait().unwrap().is_none());
        assert_eq!(kill_left(&job, 1, || true), [left.id() as libc::pid_t]);
        assert!(!left.wait().unwrap().success());
    }

    #[test]
    fn what_is_left_of_a_life_that_is_over_is_killed_and_not_told() {
        let job = format!("lives-{}", std::process::id());
        let start = || {
            let mut left = Command::new("sleep");
            let left = left.arg("600").env("EYRIE_JOB", &job).env("EYRIE_RANK", "1").spawn();
            let left = left.unwrap();
            while !has_marks(left.id() as libc::pid_t, &marks(&job, 1)) {
                std::thread::yield_now();
            }
            left
        };
        let pid = |child: &Child| child.id() as libc::pid_t;
        let mut old = start();
        // The kernel counts births in ticks.
        let (mut first, mut left) = (start(), start());
        while born(pid(&first)) == born(pid(&old)) {
            drop((first.kill(), first.wait(), left.kill(), left.wait()));
            (first, left) = (start(), start());
        }
        let told = orphans_of(&job, 1, &[pid(&first)]).to_string();
        assert_eq!(told, format!("process {} (sleep 600)", pid(&left)));
        assert!(!old.wait().unwrap().success());
        for child in [&mut first, &mut left] {
            assert!(child.try_wait().unwrap().is_none());
            drop((child.kill(), child.wait()));
        }
    }
}
