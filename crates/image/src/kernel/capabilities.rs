//! Rights of this program, and the one to choose numbers of processes, which it may have by its
//! file (`setcap`).
//!
//! The kernel would give that one to this program alone. But a process is restored by calls in its
//! own name, and what a process may do must be what the one may do who checkpoints it: both have to
//! inherit the right.

use std::fs;
use std::io;

pub(crate) const CAP_SYS_ADMIN: u32 = 21;
pub(crate) const CAP_CHECKPOINT_RESTORE: u32 = 40;
const VERSION_3: u32 = 0x2008_0522;
const PR_CAP_AMBIENT: i32 = 47;
const PR_CAP_AMBIENT_RAISE: libc::c_ulong = 2;

#[repr(C)]
struct Head {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Has the programs that this one starts inherit the right to choose numbers of processes, if this
/// one has it, and is not root, whose programs have all rights anyway. To be called before there
/// are other threads.
pub fn pass_on_rights() -> io::Result<()> {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    let mut head = Head { version: VERSION_3, pid: 0 };
    let mut sets = [Sets::default(); 2];
    let checked = |r: i64| if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let (word, bit) = ((CAP_CHECKPOINT_RESTORE / 32) as usize, 1 << (CAP_CHECKPOINT_RESTORE % 32));
    // SAFETY: the kernel fills two live structures, and reads them.
    unsafe {
        checked(libc::syscall(libc::SYS_capget, &raw mut head, sets.as_mut_ptr()))?;
        if sets[word].permitted & bit == 0 {
            return Ok(());
        }
        sets[word].inheritable |= bit;
        sets[word].effective |= bit;
        checked(libc::syscall(libc::SYS_capset, &raw mut head, sets.as_ptr()))?;
        let which = libc::c_ulong::from(CAP_CHECKPOINT_RESTORE);
        checked(libc::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, which, 0, 0).into())
    }
}

/// Asks for a process with the number that we have: where numbers may be chosen it is taken, where
/// not it is not permitted, and neither makes a process.
pub(crate) fn chosen_numbers() -> Result<String, String> {
    let own = std::process::id() as libc::pid_t;
    let mut args = [0u64; 10];
    args[4] = libc::SIGCHLD as u64;
    args[8] = &raw const own as u64;
    args[9] = 1;
    // SAFETY: arguments are live and of the size told. It fails in any case: the number is taken.
    let result = unsafe { libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args)) };
    match (result, io::Error::last_os_error()) {
        (-1, e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(String::new()),
        (-1, e) => Err(reason(e)),
        // SAFETY: ends the process that should not be.
        (0, _) => unsafe { libc::_exit(0) },
        _ => Err("unexpected answer".into()),
    }
}

/// Whether a capability is in force.
pub(crate) fn capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let set = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok()).unwrap_or(0);
    set >> number & 1 != 0
}

pub(crate) fn reason(error: io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::ENOTTY) => "the kernel does not have it".into(),
        Some(libc::EPERM | libc::EACCES) => "not permitted".into(),
        Some(libc::EINVAL) => "the kernel is too old for it".into(),
        _ => error.to_string(),
    }
}

/// Whether a process restored from here can be given the number it had. Without that a program with
/// child processes cannot be restored: they know each other by number. A right may be there, but
/// not in the namespace that owns those numbers, so the kernel is asked.
pub fn may_choose_numbers() -> bool {
    let has = |number| capability(number);
    (has(CAP_SYS_ADMIN) || has(CAP_CHECKPOINT_RESTORE)) && chosen_numbers().is_ok()
}
