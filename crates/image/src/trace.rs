//! ptrace, made to tell apart what can happen: a stop, or the process being gone.
//!
//! A tracee can be killed at any moment; every request here then answers [`TraceError::Gone`] and
//! leaves the exit status to the parent. Stops are taken for one thread at a time, never for all.
//! The end of a first thread is not told before its tracer has collected the others; while those
//! are traced, one sleeps until anything happens to any of them, and then looks at the one.

use crate::procfs::Status;
use std::cell::RefCell;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::time::{Duration, Instant};

/// Highest number of bytes of an XSAVE area that we expect.
const MAX_XSTATE_BYTES: usize = 64 * 1024;
const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const PTRACE_PEEKSIGINFO_SHARED: u32 = 1;
/// Looks for a stop that only give way to others, before there are pauses between them.
const EAGER_LOOKS: u32 = 16;
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// Mask that blocks all signals that can be blocked.
pub const ALL_SIGNALS: u64 = !0;

/// General registers.
pub type Regs = libc::user_regs_struct;

/// Why a request failed.
#[derive(Debug)]
pub enum TraceError {
    /// The process has died.
    Gone,
    /// The kernel refused.
    Os {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl TraceError {
    /// The last system error, told apart.
    pub fn last(what: &'static str) -> TraceError {
        TraceError::from(what, io::Error::last_os_error())
    }

    fn from(what: &'static str, source: io::Error) -> TraceError {
        match source.raw_os_error() {
            Some(libc::ESRCH | libc::ECHILD) => TraceError::Gone,
            _ => TraceError::Os { what, source },
        }
    }
}

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

/// A thread of a process that this thread traces; all that a process with one thread has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tracee(pub libc::pid_t);

thread_local! {
    /// Threads that are traced, each with the first of its process.
    static KNOWN: RefCell<Vec<(libc::pid_t, libc::pid_t)>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a thread on this thread's list of those that it traces, as long as it lives.
pub struct Listed(libc::pid_t);

impl Listed {
    /// Puts the first thread of a process on the list.
    pub fn new(pid: libc::pid_t) -> Listed {
        Listed::thread(pid, pid)
    }

    /// Puts a thread of the process `pid` on the list.
    pub fn thread(tid: libc::pid_t, pid: libc::pid_t) -> Listed {
        KNOWN.with_borrow_mut(|known| known.push((tid, pid)));
        Listed(tid)
    }

    /// Notes that the process `pid` is about to have more threads that are traced.
    pub fn more_to_come(pid: libc::pid_t) -> Listed {
        Listed::thread(-pid, pid)
    }

    /// Whether a thread is on the list.
    pub fn has(tid: libc::pid_t) -> bool {
        KNOWN.with_borrow(|known| known.iter().any(|k| k.0 == tid))
    }

    /// Whether another thread of the process `pid` is on the list.
    fn has_others(pid: libc::pid_t) -> bool {
        KNOWN.with_borrow(|known| known.iter().any(|k| k.1 == pid && k.0 != pid))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        KNOWN.with_borrow_mut(|known| known.retain(|k| k.0 != self.0));
    }
}

/// Whether a process or thread is traced by this thread.
pub fn is_traced_by_us(pid: libc::pid_t) -> bool {
    // SAFETY: no arguments.
    let own = unsafe { libc::gettid() };
    let tracer = Status::read(pid).and_then(|status| status.number("TracerPid", 10));
    tracer.is_ok_and(|tracer| tracer == own as u64)
}

impl Tracee {
    fn request(
        self,
        what: &'static str,
        request: libc::c_uint,
        addr: usize,
        data: usize,
    ) -> Result<libc::c_long, TraceError> {
        // SAFETY: callers pass addresses of live buffers of the size that the request needs.
        let r = unsafe { libc::ptrace(request, self.0, addr, data) };
        if r == -1 { Err(TraceError::last(what)) } else { Ok(r) }
    }

    /// Attaches without stopping.
    pub fn seize(self, options: i32) -> Result<(), TraceError> {
        self.request("attach to the process", libc::PTRACE_SEIZE, 0, options as usize).map(drop)
    }

    /// Changes the options.
    pub fn set_options(self, options: i32) -> Result<(), TraceError> {
        self.request("set trace options", libc::PTRACE_SETOPTIONS, 0, options as usize).map(drop)
    }

    /// Asks for a stop.
    pub fn interrupt(self) -> Result<(), TraceError> {
        match self.request("interrupt the process", libc::PTRACE_INTERRUPT, 0, 0) {
            // Seized as it was about to end.
            Err(TraceError::Os { source, .. }) if source.raw_os_error() == Some(libc::EIO) => {
                Err(TraceError::Gone)
            }
            other => other.map(drop),
        }
    }

    /// Lets it run, giving it `signal` unless 0.
    pub fn resume(self, signal: i32) -> Result<(), TraceError> {
        self.request("continue the process", libc::PTRACE_CONT, 0, signal as usize).map(drop)
    }

    /// Lets it run to the next entry to or exit from a system call, giving it `signal` unless 0.
    pub fn resume_to_syscall(self, signal: i32) -> Result<(), TraceError> {
        let what = "continue to a system call";
        self.request(what, libc::PTRACE_SYSCALL, 0, signal as usize).map(drop)
    }

    /// Lets it execute one instruction, giving it `signal` unless 0.
    pub fn step(self, signal: i32) -> Result<(), TraceError> {
        let what = "single-step the process";
        self.request(what, libc::PTRACE_SINGLESTEP, 0, signal as usize).map(drop)
    }

    /// Detaches, giving it `signal` unless 0.
    pub fn detach(self, signal: i32) -> Result<(), TraceError> {
        self.request("detach from the process", libc::PTRACE_DETACH, 0, signal as usize).map(drop)
    }

    /// Number that came with the last event.
    pub fn event_message(self) -> Result<u64, TraceError> {
        let mut message: libc::c_ulong = 0;
        let at = &raw mut message as usize;
        self.request("read a trace event", libc::PTRACE_GETEVENTMSG, 0, at)?;
        Ok(message)
    }

    /// Waits for its next stop. An exit is seen but left for the parent to collect.
    pub fn wait(self) -> Result<Stop, TraceError> {
        if Listed::has_others(self.0) {
            return self.wait_until(None)?.ok_or(TraceError::Gone);
        }
        let info = wait_for(self.0, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)?;
        self.collect(&info)
    }

    /// The same, but not for longer than to `end`: then `None`.
    pub fn wait_until(self, end: Option<Instant>) -> Result<Option<Stop>, TraceError> {
        let look = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::WNOHANG;
        let (mut looks, mut pause) = (0, FIRST_PAUSE);
        // Of several that were set going together most have stopped by now.
        if let Some(stop) = self.take_stop()? {
            return Ok(Some(stop));
        }
        loop {
            let info = wait_for(self.0, look)?;
            // SAFETY: a SIGCHLD siginfo has a pid; it is zero if there was nothing to report.
            if unsafe { info.si_pid() } != 0 {
                return self.collect(&info).map(Some);
            }
            looks += 1;
            if looks <= EAGER_LOOKS {
                std::thread::yield_now();
                continue;
            }
            if self.has_ended() {
                return Err(TraceError::Gone);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(None);
            }
            // On a busy machine whoever looks and yields comes last, and a freeze takes as many
            // turns as there are calls to make: being woken is what is fast there.
            if end.is_none() && self.woken_by() == Some(self.0) {
                continue;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
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

    /// Sleeps until something is to be told of a thread that this thread traces (or a child that it
    /// made); tells of which.
    fn woken_by(self) -> Option<libc::pid_t> {
        let look = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WNOTHREAD;
        let info = wait_id(libc::P_ALL, 0, look).ok()?;
        // SAFETY: a SIGCHLD siginfo has a pid.
        Some(unsafe { info.si_pid() })
    }

    /// Takes the stop that was seen.
    fn collect(self, info: &libc::siginfo_t) -> Result<Stop, TraceError> {
        if !matches!(info.si_code, libc::CLD_TRAPPED | libc::CLD_STOPPED) {
            return Err(TraceError::Gone);
        }
        // It may be killed between the two calls.
        self.take_stop()?.ok_or(TraceError::Gone)
    }

    /// Takes the stop that it stands in, if it does.
    fn take_stop(self) -> Result<Option<Stop>, TraceError> {
        let info = wait_for(self.0, libc::WSTOPPED | libc::WNOHANG)?;
        // SAFETY: a SIGCHLD siginfo has a pid and a status.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        let (signal, event) = (status & 0xff, status >> 8);
        Ok((pid != 0).then_some(match (event, signal) {
            (0, s) if s == libc::SIGTRAP | 0x80 => Stop::Syscall,
            (0, s) => Stop::Signal(s),
            (e, s) => Stop::Event(e, s),
        }))
    }

    /// How it died (`CLD_*` and status or signal), left for its parent to collect.
    pub fn exit_status(self) -> Option<(i32, i32)> {
        let info = wait_for(self.0, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT).ok()?;
        // SAFETY: a SIGCHLD siginfo has a pid and a status.
        let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
        (pid != 0).then_some((info.si_code, status))
    }

    /// General registers.
    pub fn regs(self) -> Result<Regs, TraceError> {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut regs: Regs = unsafe { zeroed() };
        let at = &raw mut regs;
        let iov = libc::iovec { iov_base: at.cast(), iov_len: size_of::<Regs>() };
        self.request(
            "read registers",
            libc::PTRACE_GETREGSET,
            NT_PRSTATUS,
            &raw const iov as usize,
        )?;
        Ok(regs)
    }

    /// Sets the general registers.
    pub fn set_regs(self, regs: &Regs) -> Result<(), TraceError> {
        let at = (&raw const *regs).cast_mut();
        let iov = libc::iovec { iov_base: at.cast(), iov_len: size_of::<Regs>() };
        let iov = &raw const iov as usize;
        self.request("set registers", libc::PTRACE_SETREGSET, NT_PRSTATUS, iov).map(drop)
    }

    /// The XSAVE area.
    pub fn xstate(self) -> Result<Vec<u8>, TraceError> {
        let mut area = vec![0u8; MAX_XSTATE_BYTES];
        let iov = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
        let iov_at = &raw const iov as usize;
        self.request("read vector registers", libc::PTRACE_GETREGSET, NT_X86_XSTATE, iov_at)?;
        // SAFETY: the kernel has written the length it filled into this live structure.
        let filled = unsafe { (&raw const iov.iov_len).read_volatile() };
        area.truncate(filled);
        Ok(area)
    }

    /// Sets the XSAVE area.
    pub fn set_xstate(self, area: &[u8]) -> Result<(), TraceError> {
        let at = area.as_ptr().cast_mut();
        let iov = libc::iovec { iov_base: at.cast(), iov_len: area.len() };
        let iov = &raw const iov as usize;
        self.request("set vector registers", libc::PTRACE_SETREGSET, NT_X86_XSTATE, iov).map(drop)
    }

    /// Blocked signals, as the program believes them to be.
    pub fn sigmask(self) -> Result<u64, TraceError> {
        let mut mask = 0u64;
        let at = &raw mut mask as usize;
        self.request("read the signal mask", PTRACE_GETSIGMASK, 8, at)?;
        Ok(mask)
    }

    /// Sets the blocked signals.
    pub fn set_sigmask(self, mask: u64) -> Result<(), TraceError> {
        let at = &raw const mask as usize;
        self.request("set the signal mask", PTRACE_SETSIGMASK, 8, at).map(drop)
    }

    /// Registration of restartable sequences; `None` where the kernel cannot tell (before 5.13).
    pub fn rseq(self) -> Result<Option<RseqConfig>, TraceError> {
        let mut config = MaybeUninit::<RseqConfig>::zeroed();
        let at = config.as_mut_ptr() as usize;
        let size = size_of::<RseqConfig>();
        match self.request("read rseq", PTRACE_GET_RSEQ_CONFIGURATION, size, at) {
            // SAFETY: the kernel filled it, and all bit patterns are valid.
            Ok(_) => Ok(Some(unsafe { config.assume_init() })),
            Err(TraceError::Os { .. }) => Ok(None),
            Err(gone) => Err(gone),
        }
    }

    /// Pending signals of the thread, or of the whole process.
    pub fn pending(self, shared: bool) -> Result<Vec<[u64; 16]>, TraceError> {
        const BATCH: usize = 32;
        const _: () = assert!(size_of::<libc::siginfo_t>() == 128);
        let mut all = Vec::new();
        loop {
            let mut batch = [[0u64; 16]; BATCH];
            let args = PeekArgs {
                off: all.len() as u64,
                flags: if shared { PTRACE_PEEKSIGINFO_SHARED } else { 0 },
                nr: BATCH as i32,
            };
            let n = self.request(
                "read pending signals",
                libc::PTRACE_PEEKSIGINFO as libc::c_uint,
                &raw const args as usize,
                &raw mut batch as usize,
            )?;
            let n = usize::try_from(n).unwrap_or(0).min(BATCH);
            all.extend_from_slice(&batch[..n]);
            if n < BATCH {
                return Ok(all);
            }
        }
    }

    /// Makes one system call in the stopped process, at the `syscall` instruction at `site`. `base`
    /// supplies the registers that are not arguments. Leaves it in the exit stop. A clone puts the
    /// number of the new process in `born`, also if the caller dies before it returns.
    pub fn syscall(
        self,
        site: u64,
        base: &Regs,
        nr: libc::c_long,
        args: &[u64],
        born: &mut Option<libc::pid_t>,
    ) -> Result<i64, TraceError> {
        self.begin_syscall(site, base, nr, args)?;
        self.reach_syscall_stop(born)?;
        self.resume_to_syscall(0)?;
        self.reach_syscall_stop(born)?;
        Ok(self.regs()?.rax as i64)
    }

    /// Sets it on its way to the entry of a system call.
    fn begin_syscall(
        self,
        site: u64,
        base: &Regs,
        nr: libc::c_long,
        args: &[u64],
    ) -> Result<(), TraceError> {
        #[cfg(test)]
        CALLS.set(CALLS.get() + 1);
        let mut regs = *base;
        let arg = |i: usize| args.get(i).copied().unwrap_or(0);
        regs.rip = site;
        regs.rax = nr as u64;
        regs.orig_rax = u64::MAX;
        (regs.rdi, regs.rsi, regs.rdx) = (arg(0), arg(1), arg(2));
        (regs.r10, regs.r8, regs.r9) = (arg(3), arg(4), arg(5));
        self.set_regs(&regs)?;
        self.resume_to_syscall(0)
    }

    /// Waits until it enters or leaves a system call.
    fn reach_syscall_stop(self, born: &mut Option<libc::pid_t>) -> Result<(), TraceError> {
        loop {
            let signal = match self.wait()? {
                Stop::Syscall => return Ok(()),
                Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK, _) => {
                    *born = libc::pid_t::try_from(self.event_message()?).ok();
                    0
                }
                // A group stop: the kernel remembers it and it holds again when we detach.
                Stop::Event(..) => 0,
                // Callers block all signals, so this is SIGSTOP: let it become a group stop.
                Stop::Signal(stop) => stop,
            };
            self.resume_to_syscall(signal)?;
        }
    }
}

#[cfg(test)]
thread_local! {
    /// How many system calls this thread has made in other processes' names.
    pub static CALLS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A system call for one of several threads: the thread, the registers that are not arguments, and
/// the arguments.
pub type Call = (Tracee, Regs, [u64; 2]);

/// The same as [`Tracee::syscall`] for several stopped threads of a process at once, which takes
/// hardly more turns of the scheduler than one. All of them stand still again when it returns, also
/// if one of them failed.
pub fn syscall_in_each(
    site: u64,
    nr: libc::c_long,
    calls: &[Call],
) -> Result<Vec<i64>, TraceError> {
    let mut failure = None;
    let mut going: Vec<Tracee> = Vec::with_capacity(calls.len());
    let mut results = Vec::with_capacity(calls.len());
    let mut keep = |result: Result<(), TraceError>| match result {
        Ok(()) => true,
        Err(e) => {
            failure.get_or_insert(e);
            false
        }
    };
    for (tracee, base, args) in calls {
        if keep(tracee.begin_syscall(site, base, nr, args)) {
            going.push(*tracee);
        }
    }
    going.retain(|tracee| {
        let entered = tracee.reach_syscall_stop(&mut None);
        keep(entered.and_then(|()| tracee.resume_to_syscall(0)))
    });
    for tracee in going {
        let left = tracee.reach_syscall_stop(&mut None).and_then(|()| tracee.regs());
        keep(left.map(|regs| results.push(regs.rax as i64)));
    }
    failure.map_or(Ok(results), Err)
}

/// Answer to `PTRACE_GET_RSEQ_CONFIGURATION`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RseqConfig {
    /// Address of the area, 0 if none is registered.
    pub pointer: u64,
    /// Its size.
    pub size: u32,
    /// Signature.
    pub signature: u32,
    /// Flags.
    pub flags: u32,
    /// Padding.
    pub pad: u32,
}

#[repr(C)]
struct PeekArgs {
    off: u64,
    flags: u32,
    nr: i32,
}

fn wait_for(pid: libc::pid_t, options: i32) -> Result<libc::siginfo_t, TraceError> {
    wait_id(libc::P_PID, pid, options)
}

fn wait_id(
    kind: libc::idtype_t,
    pid: libc::pid_t,
    options: i32,
) -> Result<libc::siginfo_t, TraceError> {
    loop {
        // SAFETY: all-zero is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        // SAFETY: the buffer is live and of the right type.
        let r =
            unsafe { libc::waitid(kind, pid as libc::id_t, &raw mut info, options | libc::__WALL) };
        if r == 0 {
            return Ok(info);
        }
        let source = io::Error::last_os_error();
        if source.kind() != io::ErrorKind::Interrupted {
            return Err(TraceError::from("wait for the process", source));
        }
    }
}
