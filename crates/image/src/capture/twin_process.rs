//! The process that is a frozen twin: made by the one that it is a copy of, and ended when nobody
//! has it any more.

use crate::error::CaptureError;
use crate::kernel::procfs;
use crate::kernel::ptrace::{Listed, Stop, TraceError, Tracee, is_traced_by_us};
use crate::kernel::remote_calls::Agent;
use crate::kernel::stops::reap;
use crate::resources::shared_memory::named::Still;
use eyrie_image_format::support::fault;
use std::path::Path;
use std::time::{Duration, Instant};

/// The twin's process, killed and reaped when dropped.
pub(crate) struct Process(
    Tracee,
    #[allow(dead_code, reason = "held for its drop")] Listed,
    #[allow(dead_code, reason = "held for its drop")] Still,
);

impl Process {
    pub fn new(pid: libc::pid_t) -> Process {
        Process(Tracee(pid), Listed::new(pid), Still::new(pid))
    }

    /// Where memory runs out it is to die before the process, which has as much of it. It has its
    /// memory for itself, so the process's own score stays.
    pub fn die_first(&self) {
        let path = format!("/proc/{}/oom_score_adj", self.pid());
        // As high as it can be; a kernel that does not take it chooses for itself.
        let _ = std::fs::write(path, "1000");
    }

    /// Has it leave the process's group and session: while it lives, a number that its group or
    /// session bears could not be given to the process again, should that be killed and restored.
    pub fn leave_group(&self, agent: &Agent) -> Result<(), CaptureError> {
        match agent.of_twin(self.0).call(libc::SYS_setsid, &[]) {
            // A copy leads no group, so nothing refuses it this.
            Ok(_) => Ok(()),
            Err(CaptureError::Gone) => Err(CaptureError::TwinGone),
            Err(e) => Err(e),
        }
    }

    /// Its process number.
    pub fn pid(&self) -> libc::pid_t {
        self.0.0
    }

    /// Ends it, which is waited for when it is dropped.
    pub fn kill(&self) {
        // SAFETY: the twin is our traced child and not reaped before it is dropped, so the number
        // is its own.
        unsafe { libc::kill(self.pid(), libc::SIGKILL) };
    }

    /// Whether somebody has killed it.
    pub fn is_gone(&self) -> bool {
        self.0.regs().is_err()
    }

    /// Has the agent's process make another, which stands still; `born` gets its number.
    pub fn fork(
        agent: &Agent,
        flags: i32,
        born: &mut Option<libc::pid_t>,
    ) -> Result<Process, CaptureError> {
        let result = agent.fork(flags, born);
        let process = born.map(Process::new);
        if result.is_err() && process.is_none() {
            reap_unannounced();
        }
        result?;
        let process = process.ok_or(CaptureError::Gone)?;
        fault::point(fault::TWIN_BORN)?;
        match process.0.wait() {
            Ok(Stop::Event(..) | Stop::Signal(_)) => Ok(process),
            Ok(Stop::Syscall) | Err(TraceError::Gone) => Err(CaptureError::TwinGone),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes a copy of a process that is not our child: its parent, or it itself, would learn of a
    /// child that is not its own. So it makes a process that shares its memory, that makes the
    /// copy, and is killed and collected at once; the copy goes to who takes orphans.
    pub fn fork_orphan(agent: &Agent) -> Result<Process, CaptureError> {
        let shared = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES;
        let mut number = None;
        let between = Process::fork(agent, shared, &mut number);
        // It is killed and collected, by us, at the end of this line.
        let twin = between.and_then(|b| Process::fork(&agent.of_twin(b.0), 0, &mut None));
        if let Some(number) = number {
            let options = (libc::__WALL | libc::WNOHANG) as u64;
            let collected = agent.call(libc::SYS_wait4, &[number as u64, 0, options, 0]);
            if collected.is_err() {
                reap_orphan(number);
            }
            collected?;
        }
        twin
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        reap(self.pid());
    }
}

/// Collects a process that has ended and whose parent has died: it comes to us when the kernel is
/// done with the parent, if we take orphans; else somebody else collects it.
fn reap_orphan(pid: libc::pid_t) {
    let end = Instant::now() + ORPHAN_LIMIT;
    while Path::new(&format!("/proc/{pid}")).exists() && Instant::now() < end {
        // SAFETY: asks about this one process, whose status nobody wants.
        let r = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
        if r == pid {
            return;
        }
        std::thread::sleep(ORPHAN_PAUSE);
    }
}

/// A process killed in the middle of the clone may leave a twin whose number was never told. It is
/// a child of ours that this thread traces and does not know.
fn reap_unannounced() {
    for pid in procfs::processes().unwrap_or_default() {
        // The child of a process that was killed too may have gone to another parent.
        if is_traced_by_us(pid) && !Listed::has(pid) {
            drop(Process::new(pid));
        }
    }
}

/// Ends and collects a twin that nobody has.
pub(crate) fn end_twin(pid: libc::pid_t) {
    drop(Process::new(pid));
}

/// How long an orphan is waited for, and how often it is looked for.
const ORPHAN_LIMIT: Duration = Duration::from_secs(1);

const ORPHAN_PAUSE: Duration = Duration::from_micros(200);
