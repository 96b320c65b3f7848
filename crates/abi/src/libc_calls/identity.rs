//! Who the process is: its numbers.
//!
//! A program takes it that its number stays what it is. So it is told that of the process in which
//! it called MPI_Init first, also where it came back as another one; who it sends a signal to by
//! that number is the process itself.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::machine::Machine;
use eyrie_ledger::door::What;
use libc::{c_long, pid_t};

use super::tells::TELLS;
use super::told::{fail, told};
use crate::global;

/// What the program is told; 0 as long as it is told the truth.
static TOLD: AtomicI32 = AtomicI32::new(0);

fn plain() -> pid_t {
    // SAFETY: has no preconditions.
    unsafe { libc::syscall(libc::SYS_getpid) as pid_t }
}

fn thread() -> pid_t {
    // SAFETY: has no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as pid_t }
}

/// At MPI_Init: the number of the process that called it first.
pub(super) fn begin(m: &mut Machine) {
    m.enter();
    let find = |room: &mut [u8]| {
        room[..4].copy_from_slice(&plain().to_ne_bytes());
        4
    };
    let pid = m.tell(What::Pid, find, |bytes| bytes.try_into().map_or(0, i32::from_ne_bytes));
    m.leave();
    TOLD.store(pid, Relaxed);
}

/// The number of the rank's process, as the segment has it: not a child's.
fn of_rank() -> pid_t {
    global::process()
}

/// Whether it is this process's number, as it is or as it was told.
pub(super) fn is_this(pid: pid_t) -> bool {
    pid == plain() || pid == TOLD.load(Relaxed)
}

/// Who is meant by a number that the program may have been told.
fn meant(pid: pid_t) -> pid_t {
    let told_pid = TOLD.load(Relaxed);
    if told_pid != 0 && pid == told_pid && TELLS.load(Relaxed) { of_rank() } else { pid }
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_getpid() -> pid_t {
    let own = plain();
    let told_pid = TOLD.load(Relaxed);
    if !TELLS.load(Relaxed) || told_pid == 0 || told_pid == own {
        return own;
    }
    // The first thread may be in this library, which wants the truth. If it is not, the call makes
    // a rank that was restored under another number find that out.
    if global::is_main_thread() && told(|_| ()).is_none() {
        return own;
    }
    if own == of_rank() { told_pid } else { own }
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_gettid() -> pid_t {
    let own = thread();
    // The first thread has the process's number.
    if TELLS.load(Relaxed) && own == of_rank() { eyrie_libc_getpid() } else { own }
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_getppid() -> pid_t {
    // SAFETY: has no preconditions.
    let plain = || unsafe { libc::syscall(libc::SYS_getppid) as pid_t };
    let find = |room: &mut [u8]| {
        room[..4].copy_from_slice(&plain().to_ne_bytes());
        4
    };
    let take = |bytes: &[u8]| bytes.try_into().map_or(0, i32::from_ne_bytes);
    if let Some(pid) = told(|m| m.tell(What::ParentPid, find, take)) {
        return pid;
    }
    // A child of the rank knows it by the number that the rank was told.
    let (own, told_pid) = (plain(), TOLD.load(Relaxed));
    if told_pid != 0 && own == of_rank() && own != 0 { told_pid } else { own }
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_kill(pid: pid_t, signal: c_int) -> c_int {
    // A group has the number of its first process; its sign is turned.
    let to = if pid < -1 { pid } else { meant(pid) };
    // SAFETY: the program's own wish.
    unsafe { libc::syscall(libc::SYS_kill, c_long::from(to), c_long::from(signal)) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_sigqueue(
    pid: pid_t,
    signal: c_int,
    value: *mut c_void,
) -> c_int {
    const SI_QUEUE: c_int = -1;
    // SAFETY: it consists of numbers; those that `sigqueue` sets are at these places.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (info.si_signo, info.si_code) = (signal, SI_QUEUE);
        let fields = (&raw mut info).cast::<u8>().add(16);
        fields.cast::<pid_t>().write(plain());
        fields.add(4).cast::<libc::uid_t>().write(libc::getuid());
        fields.add(8).cast::<*mut c_void>().write(value);
        let to = c_long::from(meant(pid));
        let to_queue = libc::SYS_rt_sigqueueinfo;
        libc::syscall(to_queue, to, c_long::from(signal), &raw const info) as c_int
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_uname(at: *mut libc::utsname) -> c_int {
    if at.is_null() {
        return fail(libc::EFAULT);
    }
    // SAFETY: the program's variable.
    unsafe { super::names::uname(at) }
}
