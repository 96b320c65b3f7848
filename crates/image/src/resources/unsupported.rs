//! What a process can have of the kernel that nobody but itself is told about, and that cannot be
//! given to it again: refused by name, as it would go on without.

use crate::error::CaptureError;
use crate::kernel::procfs::Status;
use crate::kernel::ptrace::Tracee;
use crate::kernel::remote_calls::Agent;

const PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG: libc::c_uint = 0x4211;
const ARCH_GET_CPUID: u64 = 0x1011;
const KEYCTL_GET_KEYRING_ID: u64 = 0;
/// Special numbers of keyrings.
const THREAD_KEYRING: i32 = -1;
const PROCESS_KEYRING: i32 = -2;
/// Bytes that are asked for of a table of segments.
const TABLE_BYTES: u64 = 64;

/// `struct ptrace_sud_config`.
#[repr(C)]
#[derive(Default)]
struct Dispatch {
    mode: u64,
    selector: u64,
    offset: u64,
    len: u64,
}

fn refuse(what: &str) -> Result<(), CaptureError> {
    Err(CaptureError::Unsupported(what.into()))
}

/// Refuses a thread that has its system calls dispatched to a handler of its own (Wine).
pub(crate) fn refuse_dispatch(thread: Tracee) -> Result<(), CaptureError> {
    let mut dispatch = Dispatch::default();
    let request = PTRACE_GET_SYSCALL_USER_DISPATCH_CONFIG;
    // SAFETY: fills a live structure of the size that is said; older kernels refuse.
    let r = unsafe {
        libc::ptrace(request, thread.0, size_of::<Dispatch>(), (&raw mut dispatch).cast::<u8>())
    };
    if r == 0 && dispatch.mode != 0 {
        return refuse("dispatches system calls to itself (PR_SET_SYSCALL_USER_DISPATCH)");
    }
    Ok(())
}

/// Asks the process.
pub(crate) fn refuse_unusual(agent: &Agent, status: &Status) -> Result<(), CaptureError> {
    let mask = status.field("untag_mask");
    if !mask.is_empty() && mask != "0xffffffffffffffff" {
        return refuse("uses tagged addresses (ARCH_ENABLE_TAGGED_ADDR)");
    }
    // 0: the instruction faults.
    if agent.call(libc::SYS_arch_prctl, &[ARCH_GET_CPUID, 0])? == 0 {
        return refuse("has forbidden itself the instruction cpuid (ARCH_SET_CPUID)");
    }
    let table =
        agent.ask::<{ TABLE_BYTES as usize / 8 }>(libc::SYS_modify_ldt, &[0, 0, TABLE_BYTES], 1)?;
    if let Ok(entries) = table
        && entries.iter().any(|&word| word != 0)
    {
        return refuse("has a table of segments of its own (modify_ldt)");
    }
    for (ring, whose) in [(THREAD_KEYRING, "a thread"), (PROCESS_KEYRING, "the process")] {
        let args = [KEYCTL_GET_KEYRING_ID, ring as u64, 0];
        if agent.call(libc::SYS_keyctl, &args)? > 0 {
            return refuse(&format!("has keys in a keyring of {whose} (keyctl)"));
        }
    }
    Ok(())
}
