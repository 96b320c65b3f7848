//! Making the other threads of a restored process.
//!
//! They are made by the first thread when its own plan is done, and stand still under trace from
//! the moment they exist: what each registers with the kernel is called in its name, with the
//! `syscall` instruction of the process's vdso. None runs an instruction of the program before all
//! are complete. Arguments lie where the plan was.

use crate::error::RestoreError;
use crate::kernel::free_pids;
use crate::kernel::memory;
use crate::kernel::ptrace::{Listed, Tracee};
use crate::resources::numa::{self, Here};
use crate::restore::steps::{explain_failure, wait_for};
use eyrie_image_format::bytes::registers::{Regs, words_to_regs};
use eyrie_image_format::state::{State, Thread};
use std::time::Instant;

const FLAGS: u64 = (libc::CLONE_VM
    | libc::CLONE_FS
    | libc::CLONE_FILES
    | libc::CLONE_SIGHAND
    | libc::CLONE_THREAD
    | libc::CLONE_SYSVSEM) as u64;
/// Options of the child's trace.
pub(crate) const OPTIONS: i32 = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
/// Words of `struct clone_args` up to `set_tid_size`.
const CLONE_ARGS_WORDS: usize = 10;
/// Where among the arguments a thread's number for `clone3` lies.
const NUMBER_OFFSET: u64 = 256;
/// Where code lies, and behind it what it reads.
const CODE_OFFSET: u64 = 4096;
/// Where ptrace's XSAVE layout tells which states are in use.
const XSTATE_BV_OFFSET: usize = 512;
const TILE_DATA: u64 = 1 << 18;

/// A thread that was made.
pub(crate) struct Made {
    pub tracee: Tracee,
    #[allow(dead_code, reason = "held for its drop")]
    listed: Listed,
}

/// Makes all threads but the first of a process whose plan is done and still mapped. `made` gets
/// them in the order of the image, also before a failure.
pub(crate) fn make(
    first: Tracee,
    state: &State,
    site: u64,
    room: u64,
    policies: &Here,
    made: &mut Vec<Made>,
) -> Result<(), RestoreError> {
    if state.threads.len() < 2 {
        return Ok(());
    }
    let base = words_to_regs(&state.leader().regs);
    let uses_tiles = |t: &Thread| {
        let bytes = t.xstate.get(XSTATE_BV_OFFSET..XSTATE_BV_OFFSET + 8).unwrap_or(&[]);
        bytes.iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b)) & TILE_DATA != 0
    };
    let others = &state.threads[1..];
    if others.iter().any(uses_tiles) {
        put_tile_code(Caller { tracee: first, site, base, room })?;
    }
    // A thread is traced before we know its number.
    let _more = Listed::more_to_come(first.0);
    first.set_options(OPTIONS | libc::PTRACE_O_TRACECLONE)?;
    for (i, thread) in others.iter().enumerate() {
        let tracee = Tracee(start(Caller { tracee: first, site, base, room }, thread.tid)?);
        made.push(Made { tracee, listed: Listed::thread(tracee.0, first.0) });
        wait_for(tracee, libc::SIGSTOP)?;
        let caller = Caller { tracee, site, base: words_to_regs(&thread.regs), room };
        if uses_tiles(thread) {
            Caller { site: room + CODE_OFFSET, ..caller }.call("use AMX", libc::SYS_gettid, &[])?;
        }
        if let Some(policy) = policies.thread(i + 1) {
            let nodes = caller.put(caller.room, &numa::words(policy))?;
            let args = numa::set_args(policy, nodes);
            // It was made with the policy of the first one. Whether the kernel takes this one was
            // found out before.
            tracee.syscall(site, &caller.base, libc::SYS_set_mempolicy, &args, &mut None)?;
        }
        register(caller, thread, first.0)?;
    }
    first.set_options(OPTIONS)?;
    Ok(())
}

/// A stopped thread in whose name calls are made.
#[derive(Clone, Copy)]
struct Caller {
    tracee: Tracee,
    site: u64,
    base: Regs,
    /// Where arguments lie.
    room: u64,
}

impl Caller {
    fn call(self, what: &str, nr: libc::c_long, args: &[u64]) -> Result<i64, RestoreError> {
        let result = self.tracee.syscall(self.site, &self.base, nr, args, &mut None)?;
        if (-4095..0).contains(&result) { Err(explain_failure(what, result)) } else { Ok(result) }
    }

    /// Puts words where arguments lie.
    fn put(self, at: u64, words: &[u64]) -> Result<u64, RestoreError> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put_bytes(at, &bytes)
    }

    fn put_bytes(self, at: u64, bytes: &[u8]) -> Result<u64, RestoreError> {
        memory::write_exact(self.tracee.0, at, bytes)
            .map_err(|e| RestoreError::Died(e.to_string()))?;
        Ok(at)
    }
}

/// Starts a thread, with the number it had if we may choose and the number is free.
fn start(first: Caller, number: libc::pid_t) -> Result<libc::pid_t, RestoreError> {
    let set_tid = first.put(first.room + NUMBER_OFFSET, &[u64::from(number as u32)])?;
    let mut args = [0; CLONE_ARGS_WORDS];
    (args[0], args[8], args[9]) = (FLAGS, set_tid, 1);
    let args = first.put(first.room, &args)?;
    let mut born = None;
    let bytes = CLONE_ARGS_WORDS as u64 * 8;
    let tracee = first.tracee;
    let end = Instant::now() + free_pids::LIMIT;
    loop {
        let numbered = &[args, bytes];
        let r = tracee.syscall(first.site, &first.base, libc::SYS_clone3, numbered, &mut born)?;
        if let Some(tid) = born {
            return Ok(tid);
        }
        // A thread that has died is gone for everybody before the kernel gives its number back
        // (Linux 6.15 on), and its process may have been collected by then.
        let held = free_pids::is_held(number);
        if r != -i64::from(libc::EEXIST) || held || Instant::now() > end {
            break;
        }
        std::thread::sleep(free_pids::PAUSE);
    }
    let args = [FLAGS, 0, 0, 0, 0];
    let result = tracee.syscall(first.site, &first.base, libc::SYS_clone, &args, &mut born)?;
    born.ok_or_else(|| explain_failure("start its threads", result))
}

/// Tells the kernel what it knew about the thread.
fn register(caller: Caller, thread: &Thread, pid: libc::pid_t) -> Result<(), RestoreError> {
    let mut name = thread.comm.clone();
    name.push(0);
    let at = caller.put_bytes(caller.room, &name)?;
    caller.call("name a thread", libc::SYS_prctl, &[libc::PR_SET_NAME as u64, at])?;
    if thread.schedule.timer_slack_ns != 0 {
        let args = [libc::PR_SET_TIMERSLACK as u64, thread.schedule.timer_slack_ns];
        caller.call("set the timer slack of a thread", libc::SYS_prctl, &args)?;
    }
    let at = caller.put(caller.room, &thread.altstack)?;
    caller.call("set the alternate signal stack of a thread", libc::SYS_sigaltstack, &[at, 0])?;
    let what = "set the cleared address of a thread";
    caller.call(what, libc::SYS_set_tid_address, &[thread.tid_address])?;
    if thread.robust[0] != 0 {
        let what = "set the robust futex list of a thread";
        caller.call(what, libc::SYS_set_robust_list, &thread.robust)?;
    }
    for pending in &thread.pending {
        let info = caller.put(caller.room, &pending.info)?;
        let args = [pid as u64, caller.tracee.0 as u64, u64::from(pending.signal()), info];
        caller.call("queue a signal of a thread", libc::SYS_rt_tgsigqueueinfo, &args)?;
    }
    if let Some(rseq) = &thread.rseq {
        let args = [rseq.addr, u64::from(rseq.bytes), 0, u64::from(rseq.signature)];
        caller.call("register restartable sequences of a thread", libc::SYS_rseq, &args)?;
    }
    Ok(())
}

/// Puts code at [`CODE_AT`] that uses AMX once and then makes a system call. The kernel takes the
/// first use as the occasion to grow the thread's state buffer, without which AMX registers cannot
/// be set from outside.
fn put_tile_code(caller: Caller) -> Result<(), RestoreError> {
    const CODE: [u8; 21] = [
        0xc4, 0xe2, 0x78, 0x49, 0x05, 55, 0, 0,
        0, // ldtilecfg [rip + 55], 64 behind the start
        0xc4, 0xe2, 0x7b, 0x49, 0xc0, // tilezero tmm0
        0xc4, 0xe2, 0x78, 0x49, 0xc0, // tilerelease
        0x0f, 0x05, // syscall
    ];
    let mut page = [0u8; 128];
    page[..CODE.len()].copy_from_slice(&CODE);
    // Palette 1 with one tile of 16 rows and 64 bytes a row.
    (page[64], page[64 + 16], page[64 + 48]) = (1, 64, 16);
    let code = caller.room + CODE_OFFSET;
    caller.put_bytes(code, &page)?;
    let rwx = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64;
    caller.call("make room for code", libc::SYS_mprotect, &[code, 4096, rwx]).map(drop)
}

/// Collects the threads of a killed process, whose end would otherwise not be told.
pub(crate) fn collect_killed(pid: libc::pid_t) {
    for tid in crate::kernel::procfs::numbers(pid, "task").unwrap_or_default() {
        let tid = tid as libc::pid_t;
        if tid != pid {
            crate::kernel::stops::reap(tid);
        }
    }
}
