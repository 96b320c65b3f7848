//! The right to choose numbers of processes, which this program may have by its file (`setcap`).
//!
//! The kernel would give it to this program alone. But a process is restored by calls in its own
//! name, and what a process may do must be what the one may do who checkpoints it: both have to
//! inherit the right.

use std::io;

const CAP_CHECKPOINT_RESTORE: u32 = 40;
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
