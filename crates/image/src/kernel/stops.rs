//! Waiting for the stops of a traced thread, with a limit each.
//!
//! What stays true: every wait has a deadline ([`crate::kernel::deadlines`] keeps it where one
//! sleeps in the kernel); an end is seen and left for the parent; and a stop is found also if
//! somebody else has taken the word of it. `waitid` tells the stops of a traced thread to every
//! thread of the tracer's process, also to one that asks for ends only (`WEXITED`), and once: who
//! wants an end looks without taking first ([`collect_end`]).
//!
//! The end of a first thread is not told before its tracer has collected the others; while those
//! are traced, one sleeps until anything happens to any of them, and then looks at the one.

use crate::kernel::deadlines;
use crate::kernel::procfs::Stat;
use crate::kernel::ptrace::{Listed, TraceError, Tracee};
use eyrie_image_format::support::fault;
use std::io;
use std::mem::zeroed;
use std::time::{Duration, Instant};

/// How long a stop may take that follows from what was done to a stopped thread: the entry of a
/// system call made in its name, or its end. It may not be its turn on a busy machine, and a copy
/// of a large process takes its time.
pub(crate) const CALL_LIMIT: Duration = Duration::from_secs(60);
/// How long what is being restored may do nothing at all, neither compute nor load.
const RESTORE_LIMIT: Duration = Duration::from_secs(600);
const RESTORE_LOOK: Duration = Duration::from_secs(1);
/// How long a process that was killed is waited for.
const REAP_LIMIT: Duration = Duration::from_secs(60);

/// How long one sleeps in the kernel before it is looked in another way whether a thread stands.
const SLICE: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// A stop that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// About to be given this signal.
    Signal(i32),
    /// `PTRACE_EVENT_*`, with the signal that came with it.
    Event(i32, i32),
    /// Entering or leaving a system call.
    Syscall,
}

impl Stop {
    /// By the low 16 bits of a status that `wait` tells, without the lowest eight.
    fn of(status: i32) -> Stop {
        match (status >> 8, status & 0xff) {
            (0, s) if s == libc::SIGTRAP | 0x80 => Stop::Syscall,
            (0, s) => Stop::Signal(s),
            (e, s) => Stop::Event(e, s),
        }
    }
}

impl Tracee {
    /// Waits for its next stop. An exit is seen but left for the parent to collect.
    pub fn wait(self) -> Result<Stop, TraceError> {
        let limit = fault::limit(CALL_LIMIT);
        self.wait_until(Instant::now() + limit)?.ok_or(TraceError::Late { tid: self.0, limit })
    }

    /// The same, for as long as it computes or loads.
    pub fn wait_while_busy(self) -> Result<Stop, TraceError> {
        let limit = fault::limit(RESTORE_LIMIT);
        let work = || Stat::read(self.0).map(|stat| [12, 14, 15].map(|field| stat.field(field)));
        let (mut done, mut since) = (work().ok(), Instant::now());
        loop {
            if let Some(stop) = self.wait_until(Instant::now() + RESTORE_LOOK)? {
                return Ok(stop);
            }
            let now = work().ok();
            if now != done {
                (done, since) = (now, Instant::now());
            } else if since.elapsed() >= limit {
                return Err(TraceError::Late { tid: self.0, limit });
            }
        }
    }

    /// Waits for its next stop, but not for longer than to `end`: then `None`.
    pub fn wait_until(self, end: Instant) -> Result<Option<Stop>, TraceError> {
        if fault::point(fault::STOP_AWAITED).is_err() {
            std::thread::sleep(end.saturating_duration_since(Instant::now()));
            return Ok(None);
        }
        let (mut has_slept, mut pause) = (false, FIRST_PAUSE);
        loop {
            // Of several that were set going together most have stopped by now.
            if let Some(stop) = self.take_stop()? {
                return Ok(Some(stop));
            }
            let look = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::WNOHANG;
            let info = wait_id(libc::P_PID, self.0, look)?;
            if is_end(&info) {
                return Err(TraceError::Gone);
            }
            // SAFETY: a SIGCHLD siginfo has a pid; it is zero if there was nothing to report.
            if unsafe { info.si_pid() } != 0 {
                continue;
            }
            if let Some(stop) = self.stands() {
                // It may have come to it since, and nobody has taken it.
                return Ok(Some(self.take_stop()?.unwrap_or(stop)));
            }
            // Only a first thread's end is not told at once.
            if has_slept && self.has_ended() {
                return Err(TraceError::Gone);
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            // On a busy machine whoever looks and yields comes last, and a freeze takes as many
            // turns as there are calls to make: being woken is what is fast there.
            has_slept = true;
            if self.sleep_until(end.min(Instant::now() + SLICE)) {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Sleeps until there may be something to be told of it. Tells whether that was not so, and
    /// sleeping again would not help.
    fn sleep_until(self, end: Instant) -> bool {
        let others = Listed::has_others(self.0);
        let (kind, id) = if others { (libc::P_ALL, 0) } else { (libc::P_PID, self.0) };
        let only = if others { libc::__WNOTHREAD } else { 0 };
        let look = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL | only;
        // SAFETY: all-zero is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        let args = [kind as usize, id as usize, &raw mut info as usize, look as usize, 0];
        // SAFETY: the buffer is live and of the right type.
        match unsafe { deadlines::call(libc::SYS_waitid, args, end) } {
            // SAFETY: a SIGCHLD siginfo has a pid.
            Ok(Some(_)) => unsafe { info.si_pid() != self.0 },
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Whether it has ended, collected or not.
    pub fn has_ended(self) -> bool {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", self.0)) else {
            return true;
        };
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        matches!(state, None | Some('Z' | 'X'))
    }

    /// Takes the stop that it stands in, if it does and nobody has done so before.
    fn take_stop(self) -> Result<Option<Stop>, TraceError> {
        let info = wait_id(libc::P_PID, self.0, libc::WSTOPPED | libc::WNOHANG)?;
        // SAFETY: a SIGCHLD siginfo has a pid and a status.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        Ok((pid != 0).then(|| Stop::of(status)))
    }

    /// The stop that it stands in, also if the word of it was taken. The kernel lets only a thread
    /// that stands be asked.
    fn stands(self) -> Option<Stop> {
        let info = self.signal().ok()?;
        let (code, signal) = (info.si_code, info.si_signo);
        // A stop that is not about a signal has its status here. What a process sends to itself
        // could look alike; such a signal would be lost then, not more.
        let is_status = code == libc::SIGTRAP | 0x80 || code >> 8 != 0 && code & 0x7f == signal;
        Some(if code > 0 && is_status { Stop::of(code) } else { Stop::Signal(signal) })
    }

    /// How it died (`CLD_*` and status or signal), left for its parent to collect.
    pub fn exit_status(self) -> Option<(i32, i32)> {
        peek_end(libc::P_PID, self.0 as libc::id_t).ok().flatten()
    }
}

/// How a process or thread ended (`CLD_*` and status or signal), if it has. It stays to be
/// collected. Arguments as for `waitid`.
pub fn peek_end(kind: libc::idtype_t, id: libc::id_t) -> io::Result<Option<(i32, i32)>> {
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    let info = waitid(kind, id, look)?;
    // SAFETY: a SIGCHLD siginfo has a status.
    Ok(is_end(&info).then(|| (info.si_code, unsafe { info.si_status() })))
}

/// The same, and it is gone afterwards. One that only stands still is left as it is: asked with
/// `WEXITED` alone, the kernel would hand out, and forget, the stop of a traced one.
pub fn collect_end(kind: libc::idtype_t, id: libc::id_t) -> io::Result<Option<(i32, i32)>> {
    let Some(end) = peek_end(kind, id)? else { return Ok(None) };
    let info = waitid(kind, id, libc::WEXITED | libc::WNOHANG)?;
    // SAFETY: as above. Another thread may have collected it since.
    Ok((unsafe { info.si_pid() } != 0).then_some(end))
}

fn is_end(info: &libc::siginfo_t) -> bool {
    // SAFETY: a SIGCHLD siginfo has a pid; it is zero if there was nothing to report.
    let pid = unsafe { info.si_pid() };
    pid != 0 && matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED)
}

fn wait_id(
    kind: libc::idtype_t,
    pid: libc::pid_t,
    options: i32,
) -> Result<libc::siginfo_t, TraceError> {
    waitid(kind, pid as libc::id_t, options).map_err(|e| TraceError::from("wait for a process", e))
}

/// Does not wait: with `WNOHANG`.
fn waitid(kind: libc::idtype_t, id: libc::id_t, options: i32) -> io::Result<libc::siginfo_t> {
    let options = options | libc::WNOHANG | libc::__WALL;
    loop {
        // SAFETY: all-zero is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        // SAFETY: the buffer is live and of the right type.
        if unsafe { libc::waitid(kind, id, &raw mut info, options) } == 0 {
            return Ok(info);
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(source);
        }
    }
}

/// Collects a process that has ended, if it can be collected already or is none of ours.
pub(crate) fn try_reap(pid: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: asks about this one child and writes to a live integer.
    let r = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) };
    r != 0 && !(r == pid && libc::WIFSTOPPED(status))
}

/// Waits until a killed child is gone, through any stops that it may still report. One that the
/// kernel does not let end is left to whoever collects orphans.
pub(crate) fn reap(pid: libc::pid_t) {
    let end = Instant::now() + REAP_LIMIT;
    while !try_reap(pid) && Instant::now() < end {
        let mut status = 0;
        let args = [pid as usize, &raw mut status as usize, libc::__WALL as usize, 0, 0];
        // SAFETY: waits for this one child and writes to a live integer.
        match unsafe { deadlines::call(libc::SYS_wait4, args, end) } {
            // A stop: the end is yet to come.
            Ok(Some(_)) if libc::WIFSTOPPED(status) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(LONGEST_PAUSE),
            _ => return,
        }
    }
}
