//! Single-copy reads out of a peer's memory (`process_vm_readv`), for large messages of jobs that
//! are not protected. A job that may be replayed never uses them: the bytes must be in the log.

use std::io;

/// Copies `len` bytes at `addr` in process `pid` to `out`.
///
/// # Errors
/// The system call's error; `UnexpectedEof` when the peer's memory ends early.
///
/// # Safety
/// `out` must be valid for writing `len` bytes.
pub unsafe fn read(pid: u32, addr: u64, out: *mut u8, len: u64) -> io::Result<()> {
    let mut done = 0u64;
    while done < len {
        let local = libc::iovec {
            iov_base: out.wrapping_add(done as usize).cast(),
            iov_len: (len - done) as usize,
        };
        let remote = libc::iovec {
            iov_base: std::ptr::without_provenance_mut((addr + done) as usize),
            iov_len: (len - done) as usize,
        };
        // SAFETY: `local` is writable by the caller's promise; the kernel checks `remote`.
        let n = unsafe { libc::process_vm_readv(pid as i32, &local, 1, &remote, 1, 0) };
        match n {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n if n < 0 => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
            n => done += n as u64,
        }
    }
    Ok(())
}

/// Lets the other ranks read this process's memory where the Yama module restricts it.
pub fn permit() {
    // SAFETY: no pointers; a kernel without Yama refuses it, and then nothing is needed.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
}

/// Whether `process_vm_readv` on a process like ourselves works at all here.
pub fn works() -> bool {
    let (from, mut to) = (0x5Au8, 0u8);
    // SAFETY: one byte of our own stack.
    unsafe { read(std::process::id(), (&raw const from) as u64, &raw mut to, 1) }.is_ok()
        && to == from
}
