//! ptrace, made to tell apart what can happen: a stop, or the process being gone.
//!
//! A tracee can be killed at any moment; every request here then answers [`TraceError::Gone`] and
//! leaves the exit status to the parent. Stops are waited for in [`crate::kernel::stops`].

use crate::error::{CaptureError, FreezeError, RestoreError};
use crate::kernel::deadlines;
use crate::kernel::procfs::Status;
use crate::kernel::stops::CALL_LIMIT;
use eyrie_image_format::bytes::registers::Regs;
use eyrie_image_format::support::fault;
use std::cell::RefCell;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::time::{Duration, Instant};

pub use crate::kernel::stops::Stop;

/// Highest number of bytes of an XSAVE area that we expect.
const MAX_XSTATE_BYTES: usize = 64 * 1024;
const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
const PTRACE_GETSIGMASK: libc::c_uint = 0x420a;
const PTRACE_SETSIGMASK: libc::c_uint = 0x420b;
const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const PTRACE_PEEKSIGINFO_SHARED: u32 = 1;
/// Mask that blocks all signals that can be blocked.
pub const ALL_SIGNALS: u64 = !0;

/// Why a request failed.
#[derive(Debug)]
pub enum TraceError {
    /// The process has died.
    Gone,
    /// What was waited for has not come.
    Late {
        /// The thread.
        tid: libc::pid_t,
        /// How long that was.
        limit: Duration,
    },
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

    pub(crate) fn from(what: &'static str, source: io::Error) -> TraceError {
        match source.raw_os_error() {
            Some(libc::ESRCH | libc::ECHILD) => TraceError::Gone,
            _ => TraceError::Os { what, source },
        }
    }
}

/// A thread of a process that this thread traces; all that a process with one thread has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    pub fn has_others(pid: libc::pid_t) -> bool {
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

    /// Attaches without stopping. Waits while the process is about to execute another program,
    /// until `end`.
    pub fn seize(self, options: i32, end: Instant) -> Result<(), TraceError> {
        const WHAT: &str = "attach to the process";
        let begun = Instant::now();
        let args = [libc::PTRACE_SEIZE as usize, self.0 as usize, 0, options as usize, 0];
        // SAFETY: numbers only.
        match unsafe { deadlines::call(libc::SYS_ptrace, args, end) } {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(TraceError::Late { tid: self.0, limit: begun.elapsed() }),
            // Where no deadline can be kept.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.request(WHAT, libc::PTRACE_SEIZE, 0, options as usize).map(drop)
            }
            Err(e) => Err(TraceError::from(WHAT, e)),
        }
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

    /// What it stands still for.
    pub fn signal(self) -> Result<libc::siginfo_t, TraceError> {
        // SAFETY: all-zero is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { zeroed() };
        let at = &raw mut info as usize;
        self.request("ask why it stands still", libc::PTRACE_GETSIGINFO, 0, at)?;
        Ok(info)
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
        let limit = fault::limit(CALL_LIMIT);
        if fault::point(fault::CALL_MADE).is_err() {
            std::thread::sleep(limit);
            return Err(TraceError::Late { tid: self.0, limit });
        }
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
    // The first thread of a process last: it is woken by whatever happens to the others.
    going.reverse();
    going.retain(|tracee| {
        let entered = tracee.reach_syscall_stop(&mut None);
        keep(entered.and_then(|()| tracee.resume_to_syscall(0)))
    });
    for tracee in going {
        let left = tracee.reach_syscall_stop(&mut None).and_then(|()| tracee.regs());
        keep(left.map(|regs| results.push(regs.rax as i64)));
    }
    results.reverse();
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

impl From<TraceError> for FreezeError {
    fn from(e: TraceError) -> FreezeError {
        match e {
            TraceError::Gone => FreezeError::Gone,
            TraceError::Late { tid, limit } => FreezeError::Late { tid, limit },
            TraceError::Os { what, source } => FreezeError::Os { what, source },
        }
    }
}

impl From<TraceError> for CaptureError {
    fn from(e: TraceError) -> CaptureError {
        match e {
            TraceError::Gone => CaptureError::Gone,
            TraceError::Late { tid, limit } => CaptureError::Late { tid, limit },
            TraceError::Os { what, source } => CaptureError::Os { what, source },
        }
    }
}

impl From<TraceError> for RestoreError {
    fn from(e: TraceError) -> RestoreError {
        match e {
            TraceError::Gone => RestoreError::Died("it was killed".into()),
            TraceError::Late { tid, limit } => RestoreError::Died(format!(
                "thread {tid} has done nothing for {} s",
                limit.as_secs()
            )),
            TraceError::Os { what, source } => RestoreError::Os { what, source },
        }
    }
}
