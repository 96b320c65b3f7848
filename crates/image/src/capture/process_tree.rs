//! Child processes: found, frozen with their parent, and told apart from what cannot be captured.
//!
//! What stays true: a process is only asked for its children when it stands still itself, so that
//! it can have no new ones. Everything that would make the family impossible to bring back is an
//! error that names the process.

use crate::capture::freeze::Frozen;
use crate::error::{CaptureError, FreezeError};
use crate::kernel::procfs::{self, Stat, Status};
use crate::kernel::ptrace::Tracee;
use crate::kernel::remote_calls::Agent;
use eyrie_image_format::state::process_tree::{
    self, Child, Ended, MAX_PROCESSES, Member, TreeNode,
};
use std::fs;
use std::io;

use std::time::{Duration, Instant};

/// How long a process that is ending may take to end, and how often it is looked at.
const END_LIMIT: Duration = Duration::from_secs(5);
const END_PAUSE: Duration = Duration::from_micros(100);
const PR_GET_PDEATHSIG: u64 = 2;
const PR_GET_CHILD_SUBREAPER: u64 = 37;
const KCMP_VM: u64 = 1;
const KCMP_FILES: u64 = 2;
const KCMP_FS: u64 = 3;
/// Namespaces that a process must have in common with us. Its cgroup is the caller's affair; what
/// its time namespace makes of clocks is in the image, and the same for its children.
const NAMESPACES: [&str; 6] = ["user", "pid", "mnt", "net", "ipc", "uts"];

/// Children of a process, of all its threads, in order.
pub(crate) fn children(pid: libc::pid_t) -> Result<Vec<libc::pid_t>, CaptureError> {
    let mut all: Vec<libc::pid_t> = Vec::new();
    for tid in procfs::numbers(pid, "task")? {
        match fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")) {
            Ok(list) => all.extend(list.split_whitespace().filter_map(|n| n.parse::<i32>().ok())),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
                // A thread that has ended, or a kernel without such lists.
                if fs::exists(format!("/proc/{pid}/task/{tid}")).unwrap_or(false) {
                    return search(pid);
                }
            }
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => return Err(CaptureError::Proc(format!("/proc/PID/task/TID/children: {e}"))),
        }
    }
    all.sort_unstable();
    Ok(all)
}

/// The same by looking at all processes.
fn search(parent: libc::pid_t) -> Result<Vec<libc::pid_t>, CaptureError> {
    let numbers = procfs::processes()?.into_iter();
    let is_child = |pid: &i32| Stat::read(*pid).is_ok_and(|s| s.field(4) == parent as u64);
    let mut all: Vec<libc::pid_t> = numbers.filter(is_child).collect();
    all.sort_unstable();
    Ok(all)
}

impl Frozen {
    /// Stops the children of the stopped process, and theirs, until there are no new ones.
    pub(crate) fn stop_children(&mut self, last: Instant) -> Result<(), FreezeError> {
        let mut left = MAX_PROCESSES - 1;
        self.stop_descendants(&mut left, last)
    }

    fn stop_descendants(&mut self, left: &mut usize, last: Instant) -> Result<(), FreezeError> {
        loop {
            let mut news = false;
            for pid in children(self.pid()).map_err(|_| FreezeError::Gone)? {
                let known = self.children.iter().any(|c| c.pid() == pid);
                if known || self.ended.contains(&pid) {
                    continue;
                }
                news = true;
                if *left == 0 {
                    return Err(FreezeError::Processes { limit: MAX_PROCESSES });
                }
                *left -= 1;
                let fail =
                    |why| FreezeError::Child { pid, name: procfs::name(pid), why: Box::new(why) };
                match Frozen::alone_until(pid, last) {
                    Ok(mut child) => {
                        let result = child.stop_descendants(left, last);
                        self.children.push(child);
                        result?;
                    }
                    Err(FreezeError::Gone) if ends(pid) => {
                        // One that its parent does not want to wait for leaves nothing.
                        if Stat::read(pid).is_ok() {
                            self.ended.push(pid);
                        }
                    }
                    Err(FreezeError::Gone) => return Err(fail(FreezeError::Stuck(pid))),
                    Err(why) => return Err(fail(why)),
                }
            }
            if !news {
                return Ok(());
            }
        }
    }
}

/// Waits until a process that is ending has ended; tells whether it has.
fn ends(pid: libc::pid_t) -> bool {
    let end = Instant::now() + END_LIMIT;
    loop {
        // A first thread may have ended before others.
        let alone = procfs::numbers(pid, "task").map_or(0, |tasks| tasks.len()) <= 1;
        if alone && Tracee(pid).has_ended() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(END_PAUSE);
    }
}

/// What an error about a stopped process comes to: where the process was killed meanwhile, it is
/// that. What `/proc` says of one that is ending may be anything, a lack of permission too.
pub(crate) fn gone_or(pid: libc::pid_t, error: CaptureError) -> CaptureError {
    let killed = || {
        let Ok(status) = procfs::Status::read(pid) else { return true };
        status.is_killed()
    };
    if killed() || Tracee(pid).has_ended() { CaptureError::Gone } else { error }
}

/// Asks for what a stopped process is to its relatives. The images of its children do not exist
/// yet; their identities are filled in later.
pub(crate) fn tree_node(
    frozen: &Frozen,
    agent: &Agent,
    stat: &Stat,
) -> Result<TreeNode, CaptureError> {
    let prctl = |option: u64| agent.ask::<1>(libc::SYS_prctl, &[option, 0], 1);
    let [death_signal] = prctl(PR_GET_PDEATHSIG)?.unwrap_or([0]);
    let [adopts] = prctl(PR_GET_CHILD_SUBREAPER)?.unwrap_or([0]);
    if adopts & 0xffff_ffff != 0 && !frozen.children.is_empty() {
        // The twins of its descendants would become its children.
        let what = "adopts orphans (PR_SET_CHILD_SUBREAPER) and has children";
        return Err(CaptureError::Unsupported(what.into()));
    }
    if frozen.children.is_empty() && frozen.ended.is_empty() && waits_for_someone(agent)? {
        let what = "traces or waits for processes that are not its children";
        return Err(CaptureError::Unsupported(what.into()));
    }
    let ended = frozen.ended.iter().map(|&pid| ended(pid, agent)).collect::<Result<_, _>>()?;
    Ok(TreeNode {
        group: stat.field(5) as i32,
        session: stat.field(6) as i32,
        stopped: frozen.group_stopped(),
        death_signal: death_signal as u32 & 0x7f,
        adopts: adopts & 0xffff_ffff != 0,
        children: frozen.children.iter().map(unborn).collect(),
        ended,
    })
}

fn unborn(child: &Frozen) -> Child {
    Child { pid: child.pid(), identity: [0; 16] }
}

/// Whether the process could wait for another.
fn waits_for_someone(agent: &Agent) -> Result<bool, CaptureError> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let args = [libc::P_ALL as u64, 0, 0, options as u64, 0];
    Ok(agent.call(libc::SYS_waitid, &args)? != -i64::from(libc::ECHILD))
}

/// How a child ended that was not waited for yet.
fn ended(pid: libc::pid_t, agent: &Agent) -> Result<Ended, CaptureError> {
    let stat = Stat::read(pid)?;
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    let args = [libc::P_PID as u64, pid as u64, 0, options as u64, 0];
    // siginfo_t: signal and errno, code, number and user, status.
    let Ok([_, code, who, status, ..]) = agent.ask::<16>(libc::SYS_waitid, &args, 2)? else {
        return Err(CaptureError::Unsupported(format!("does not tell how its child {pid} ended")));
    };
    if who & 0xffff_ffff != pid as u64 {
        let what = format!("has a child, {pid}, that is just ending");
        return Err(CaptureError::Unsupported(what).for_now());
    }
    Ok(Ended {
        pid,
        group: stat.field(5) as i32,
        session: stat.field(6) as i32,
        exited: code & 0xffff_ffff == libc::CLD_EXITED as u64,
        status: (status & 0xffff_ffff) as i32,
    })
}

/// Refuses a process of other rights or namespaces than ours.
pub(crate) fn refuse_stranger(pid: libc::pid_t, status: &Status) -> Result<(), CaptureError> {
    let refuse = |what: String| Err(CaptureError::Unsupported(what));
    let own = Status::read(std::process::id() as libc::pid_t)?;
    if status.field("Uid") != own.field("Uid") || status.field("Gid") != own.field("Gid") {
        return refuse("runs as another user".into());
    }
    if status.field("Seccomp_filters") != own.field("Seccomp_filters") {
        return refuse("has installed a seccomp filter".into());
    }
    for space in NAMESPACES {
        let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{space}"));
        let its = of(&pid.to_string());
        // A process gives its namespaces up shortly before it is known to have ended.
        if its.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::NotFound) && of("self").is_ok() {
            return Err(CaptureError::Gone);
        }
        if its.ok() != of("self").ok() {
            return refuse(format!("is in another {space} namespace"));
        }
    }
    Ok(())
}

/// Refuses a child that is not waited for like others (`__WCLONE`).
fn refuse_unusual(child: libc::pid_t) -> Result<(), CaptureError> {
    if Stat::read(child)?.field(38) == libc::SIGCHLD as u64 {
        return Ok(());
    }
    Err(CaptureError::Unsupported("tells of its end by another signal than SIGCHLD".into()))
}

/// Refuses a child that has more in common with its parent than separate processes have.
fn refuse_joined(child: libc::pid_t, parent: libc::pid_t) -> Result<(), CaptureError> {
    let parts = [(KCMP_VM, "memory"), (KCMP_FILES, "open files"), (KCMP_FS, "working folder")];
    for (kind, what) in parts {
        // SAFETY: numbers only. A kernel without the call answers -1.
        let r = unsafe { libc::syscall(libc::SYS_kcmp, child, parent, kind, 0, 0) };
        if r == 0 {
            let refusal = CaptureError::Unsupported(format!("shares its {what} with its parent"));
            // One that was started by `vfork` does until it executes its program.
            return Err(if kind == KCMP_VM { refusal.for_now() } else { refusal });
        }
    }
    let clocks = |pid| fs::read_link(format!("/proc/{pid}/ns/time")).ok();
    if let (Some(its), Some(parents)) = (clocks(child), clocks(parent))
        && its != parents
    {
        let what = "is in another time namespace than its parent";
        return Err(CaptureError::Unsupported(what.into()));
    }
    Ok(())
}

/// Names the process that an error is about, if it is not the first.
pub(crate) fn of_child(pid: libc::pid_t, why: CaptureError) -> CaptureError {
    match why {
        CaptureError::Child { .. } => why,
        _ => CaptureError::Child { pid, name: procfs::name(pid), why: Box::new(why) },
    }
}

/// Refuses, before anything is done, a family that could not be brought back.
pub(crate) fn check_tree(first: &Frozen) -> Result<(), CaptureError> {
    if first.children.is_empty() && first.ended.is_empty() {
        return Ok(());
    }
    let mut members = Vec::new();
    collect(first, 0, &mut members)?;
    process_tree::steps(&members).map(drop).map_err(CaptureError::Unsupported)
}

fn collect(frozen: &Frozen, parent: usize, to: &mut Vec<Member>) -> Result<(), CaptureError> {
    let member = |pid: libc::pid_t, parent: usize| {
        let stat = Stat::read(pid)?;
        let (group, session) = (stat.field(5) as i32, stat.field(6) as i32);
        Ok::<_, CaptureError>(Member { pid, parent, group, session })
    };
    let own = to.len();
    to.push(member(frozen.pid(), parent)?);
    for child in &frozen.children {
        let refused = refuse_joined(child.pid(), frozen.pid());
        refused.and_then(|()| refuse_unusual(child.pid())).map_err(|e| of_child(child.pid(), e))?;
        collect(child, own, to)?;
    }
    for &pid in &frozen.ended {
        refuse_unusual(pid).map_err(|e| of_child(pid, e))?;
        to.push(member(pid, own)?);
    }
    Ok(())
}
