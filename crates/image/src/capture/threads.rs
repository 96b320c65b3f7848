//! The kernel's side of the threads of a stopped process: registers, masks, registrations.

use crate::capture::freeze::Frozen;
use crate::error::CaptureError;
use crate::kernel::interrupted_calls;
use crate::kernel::memory;
use crate::kernel::procfs::{self, Mapping, Status};
use crate::kernel::ptrace::{ALL_SIGNALS, Stop, Tracee};
use crate::kernel::remote_calls::{AT_ONCE, Agent, Borrowed};
use crate::resources::attributes::{self, affinity};
use crate::resources::numa;
use eyrie_image_format::bytes::registers::{Regs, regs_to_words};
use eyrie_image_format::state::{Pending, Policy, Rseq, Thread};

/// Most instructions stepped to get out of the vdso.
const MAX_STEPS: usize = 4096;
const USER_CODE_SEGMENT: u64 = 0x33;
const PR_GET_TID_ADDRESS: u64 = 40;
const KCMP_FILES: u64 = 2;
const KCMP_FS: u64 = 3;
/// `SIGTRAP` in a mask of signals.
pub(crate) const TRAP: u64 = 1 << (libc::SIGTRAP - 1);

/// Refuses a thread that differs from the first of its process, whose status is `status`, in what
/// is restored for all of them at once.
pub(crate) fn refuse_unlike(
    thread: Tracee,
    first: Tracee,
    status: &Status,
) -> Result<(), CaptureError> {
    let refuse = |what: &str| Err(CaptureError::Unsupported(what.into()));
    let own = Status::read(thread.0)?;
    if own.field("x86_Thread_features").contains("shstk") {
        return refuse("uses a shadow stack (CET)");
    }
    if thread == first {
        return Ok(());
    }
    let same = ["Uid", "Gid", "Seccomp_filters", "NoNewPrivs", "CapEff"];
    if same.iter().any(|name| own.field(name) != status.field(name)) {
        return refuse("has threads with different rights");
    }
    let differs = |kind: u64| {
        // SAFETY: numbers only. A kernel without the call answers -1.
        unsafe { libc::syscall(libc::SYS_kcmp, first.0, thread.0, kind, 0, 0) > 0 }
    };
    if differs(KCMP_FILES) || differs(KCMP_FS) {
        return refuse("has threads that do not share their files or working folder");
    }
    Ok(())
}

/// Reads what can be seen of a thread from outside. From here on it is changed; what is to be put
/// back is noted in `frozen`.
pub(crate) fn read(
    frozen: &mut Frozen,
    tracee: Tracee,
    maps: &[Mapping],
    traps_ignored: bool,
) -> Result<Thread, CaptureError> {
    let tid = tracee.0;
    let sigmask = tracee.sigmask()?;
    let mut regs = tracee.regs()?;
    if regs.cs != USER_CODE_SEGMENT {
        return Err(CaptureError::Unsupported("runs 32-bit code".into()));
    }
    interrupted_calls::not_by_us(&mut regs);
    let rseq = leave_critical_section(tracee, &mut regs)?;
    tracee.set_regs(&regs)?;
    let at = frozen.borrowed.len();
    frozen.borrowed.push(Borrowed { tracee, regs, sigmask });
    if !traps_ignored {
        leave_vdso(&mut frozen.borrowed[at], maps)?;
    }
    // As the image tells it; the kernel knows how the thread itself goes on.
    let mut regs = frozen.borrowed[at].regs;
    interrupted_calls::name_call(tracee, &mut regs);
    let comm = procfs::read(tid, "comm")?;
    Ok(Thread {
        tid,
        comm: comm.strip_suffix(b"\n").unwrap_or(&comm).to_vec(),
        affinity: affinity(tid),
        schedule: attributes::schedule(tid),
        regs: regs_to_words(&regs),
        xstate: tracee.xstate()?,
        sigmask,
        altstack: [0, 2, 0],
        robust: robust_list(tid),
        tid_address: 0,
        rseq,
        pending: pending(tracee, false)?,
    })
}

/// Asks the kernel in the name of each thread, many at a time, for what it tells nobody else.
pub(crate) fn ask(
    threads: &mut [Thread],
    borrowed: &[Borrowed],
    agent: &Agent,
) -> Result<Vec<Policy>, CaptureError> {
    let mut modes = Vec::with_capacity(threads.len());
    for (threads, borrowed) in threads.chunks_mut(AT_ONCE).zip(borrowed.chunks(AT_ONCE)) {
        let slack = [libc::PR_GET_TIMERSLACK as u64, 0];
        let slacks = agent.call_each(borrowed, libc::SYS_prctl, slack)?;
        let addresses = agent.ask_each::<1>(borrowed, libc::SYS_prctl, Some(PR_GET_TID_ADDRESS))?;
        let stacks = agent.ask_each::<3>(borrowed, libc::SYS_sigaltstack, Some(0))?;
        // A kernel without nodes has no policies either.
        let policies = agent.ask_each::<1>(borrowed, libc::SYS_get_mempolicy, None)?;
        modes.extend(policies.into_iter().map(|mode| mode.map_or(0, |[mode]| mode as u32)));
        let answers = slacks.into_iter().zip(addresses).zip(stacks);
        for (thread, ((slack, address), stack)) in threads.iter_mut().zip(answers) {
            thread.schedule.timer_slack_ns = u64::try_from(slack).unwrap_or(0);
            thread.tid_address = address.map_or(0, |[address]| address);
            if let Ok([sp, flags, bytes]) = stack {
                // SS_ONSTACK says where the stack pointer is and cannot be set.
                let flags = flags & 0xffff_ffff & !(libc::SS_ONSTACK as u64);
                thread.altstack = [sp, flags, bytes];
            }
        }
    }
    numa::of_threads(agent, borrowed, &modes)
}

/// Signals that wait for the thread alone, or for its process as a whole.
pub(crate) fn pending(tracee: Tracee, shared: bool) -> Result<Vec<Pending>, CaptureError> {
    Ok(tracee.pending(shared)?.into_iter().map(|info| Pending { info }).collect())
}

/// A thread that was interrupted in a restartable sequence is sent to its abort handler, as the
/// kernel would have done on its next return to it; whatever we do in its name would hide that it
/// must.
fn leave_critical_section(tracee: Tracee, regs: &mut Regs) -> Result<Option<Rseq>, CaptureError> {
    let Some(config) = tracee.rseq()?.filter(|c| c.pointer != 0) else { return Ok(None) };
    let section_at = config.pointer.wrapping_add(8);
    let [section] = memory::read_words(tracee.0, section_at)?;
    if section != 0 {
        let [_, start, length, abort] = memory::read_words(tracee.0, section)?;
        if regs.rip.wrapping_sub(start) < length {
            regs.rip = abort;
            memory::write_exact(tracee.0, section_at, &[0; 8])?;
        }
    }
    Ok(Some(Rseq { addr: config.pointer, bytes: config.size, signature: config.signature }))
}

/// Steps a thread out of the vdso, whose code belongs to the kernel it runs on. Not where `SIGTRAP`
/// is ignored: the kernel would reset that for good; such a thread stays where it is, which a
/// restore under the same kernel bears.
fn leave_vdso(borrowed: &mut Borrowed, maps: &[Mapping]) -> Result<(), CaptureError> {
    let tracee = borrowed.tracee;
    let inside =
        |rip: u64| maps.iter().any(|m| m.path == b"[vdso]" && (m.start..m.end).contains(&rip));
    if borrowed.regs.orig_rax as i64 >= 0 || !inside(borrowed.regs.rip) {
        return Ok(());
    }
    tracee.set_sigmask(ALL_SIGNALS & !TRAP)?;
    let mut signal = 0;
    for _ in 0..MAX_STEPS {
        tracee.step(signal)?;
        signal = match tracee.wait()? {
            // A SIGSTOP from elsewhere: let it become a group stop.
            Stop::Signal(stop) if stop != libc::SIGTRAP => stop,
            _ => 0,
        };
        borrowed.regs = tracee.regs()?;
        if !inside(borrowed.regs.rip) {
            break;
        }
    }
    Ok(())
}

fn robust_list(pid: libc::pid_t) -> [u64; 2] {
    let (mut head, mut bytes) = (0u64, 0u64);
    // SAFETY: both results are live words of the kernel's size.
    let r = unsafe { libc::syscall(libc::SYS_get_robust_list, pid, &raw mut head, &raw mut bytes) };
    if r == 0 { [head, bytes] } else { [0, 0] }
}
