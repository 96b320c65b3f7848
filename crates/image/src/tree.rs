//! Child processes: found, frozen with their parent, and told apart from what cannot be captured.
//!
//! What stays true: a process is only asked for its children when it stands still itself, so that
//! it can have no new ones. Everything that would make the family impossible to bring back is an
//! error that names the process.

use crate::agent::Agent;
use crate::error::{CaptureError, FreezeError};
use crate::family::{self, Child, Ended, Kin, Member};
use crate::freeze::Frozen;
use crate::procfs::{self, Stat, Status};
use std::fs;

/// Most processes that are frozen together.
pub(crate) const MAX_PROCESSES: usize = 256;
const PR_GET_PDEATHSIG: u64 = 2;
const PR_GET_CHILD_SUBREAPER: u64 = 37;
const KCMP_VM: u64 = 1;
const KCMP_FILES: u64 = 2;
const KCMP_FS: u64 = 3;
/// Namespaces that a process must have in common with us. Its cgroup is the caller's affair.
const NAMESPACES: [&str; 7] = ["user", "pid", "mnt", "net", "ipc", "uts", "time"];

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
    let entries = fs::read_dir("/proc").map_err(|e| CaptureError::Proc(format!("/proc: {e}")))?;
    let numbers = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    let is_child = |pid: &i32| Stat::read(*pid).is_ok_and(|s| s.field(4) == parent as u64);
    let mut all: Vec<libc::pid_t> = numbers.filter(is_child).collect();
    all.sort_unstable();
    Ok(all)
}

/// Name of a process, for messages.
pub(crate) fn name(pid: libc::pid_t) -> String {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned()
}

impl Frozen {
    /// Stops the children of the stopped process, and theirs, until there are no new ones.
    pub(crate) fn stop_children(&mut self) -> Result<(), FreezeError> {
        let mut left = MAX_PROCESSES - 1;
        self.stop_descendants(&mut left)
    }

    fn stop_descendants(&mut self, left: &mut usize) -> Result<(), FreezeError> {
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
                let fail = |why| FreezeError::Child { pid, name: name(pid), why: Box::new(why) };
                match Frozen::alone(pid) {
                    Ok(mut child) => {
                        let result = child.stop_descendants(left);
                        self.children.push(child);
                        result?;
                    }
                    Err(FreezeError::Gone) => self.ended.push(pid),
                    Err(why) => return Err(fail(why)),
                }
            }
            if !news {
                return Ok(());
            }
        }
    }
}

/// Asks for what a stopped process is to its relatives. The images of its children do not exist
/// yet; their identities are filled in later.
pub(crate) fn kin(frozen: &Frozen, agent: &Agent, stat: &Stat) -> Result<Kin, CaptureError> {
    let prctl = |option: u64| Ok(agent.ask::<1>(libc::SYS_prctl, &[option, 0], 1)?.unwrap_or([0]));
    let [death_signal] = prctl(PR_GET_PDEATHSIG)?;
    let [adopts] = prctl(PR_GET_CHILD_SUBREAPER)?;
    if frozen.children.is_empty() && frozen.ended.is_empty() && waits_for_someone(agent)? {
        let what = "traces or waits for processes that are not its children";
        return Err(CaptureError::Unsupported(what.into()));
    }
    let ended = frozen.ended.iter().map(|&pid| ended(pid, agent)).collect::<Result<_, _>>()?;
    Ok(Kin {
        group: stat.field(5) as i32,
        session: stat.field(6) as i32,
        stopped: frozen.group_stopped(),
        death_signal: death_signal as u32 & 0x7f,
        adopts: adopts & 0xffff_ffff != 0,
        children: frozen.children.iter().map(|c| Child { pid: c.pid(), identity: [0; 16] }).collect(),
        ended,
    })
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
        return Err(CaptureError::Unsupported(format!("has a child, {pid}, that is just ending")));
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
        let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/{space}")).ok();
        if of(&pid.to_string()) != of("self") {
            return refuse(format!("is in another {space} namespace"));
        }
    }
    Ok(())
}

/// Refuses a child that has more in common with its parent than separate processes have.
fn refuse_joined(child: libc::pid_t, parent: libc::pid_t) -> Result<(), CaptureError> {
    let parts = [(KCMP_VM, "memory"), (KCMP_FILES, "open files"), (KCMP_FS, "working folder")];
    for (kind, what) in parts {
        // SAFETY: numbers only. A kernel without the call answers -1.
        let r = unsafe { libc::syscall(libc::SYS_kcmp, child, parent, kind, 0, 0) };
        if r == 0 {
            return Err(CaptureError::Unsupported(format!("shares its {what} with its parent")));
        }
    }
    Ok(())
}

/// Names the process that an error is about, if it is not the first.
pub(crate) fn of_child(pid: libc::pid_t, why: CaptureError) -> CaptureError {
    match why {
        CaptureError::Child { .. } => why,
        _ => CaptureError::Child { pid, name: name(pid), why: Box::new(why) },
    }
}

/// Refuses, before anything is done, a family that could not be brought back.
pub(crate) fn check_family(first: &Frozen) -> Result<(), CaptureError> {
    if first.children.is_empty() && first.ended.is_empty() {
        return Ok(());
    }
    let mut members = Vec::new();
    collect(first, 0, &mut members)?;
    family::steps(&members).map(drop).map_err(CaptureError::Unsupported)
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
        refuse_joined(child.pid(), frozen.pid()).map_err(|e| of_child(child.pid(), e))?;
        collect(child, own, to)?;
    }
    for &pid in &frozen.ended {
        to.push(member(pid, own)?);
    }
    Ok(())
}
