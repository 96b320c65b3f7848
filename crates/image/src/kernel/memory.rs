//! Reading and writing a few bytes in the memory of another process.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::kernel::procfs::Mapping;
use std::io;

fn gone(what: &'static str, source: io::Error) -> CaptureError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => CaptureError::Gone,
        _ => CaptureError::Os { what, source },
    }
}

/// Reads exactly `to.len()` bytes at `at`.
pub fn read_exact(pid: libc::pid_t, at: u64, to: &mut [u8]) -> Result<(), CaptureError> {
    let what = "read the process's memory";
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: the local buffer is live and exclusively borrowed; the remote address is checked by
    // the kernel.
    let n = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(n) {
        Ok(n) if n == to.len() => Ok(()),
        Ok(_) => Err(gone(what, io::Error::from_raw_os_error(libc::EFAULT))),
        Err(_) => Err(gone(what, io::Error::last_os_error())),
    }
}

/// Reads little-endian words at `at`.
pub fn read_words<const N: usize>(pid: libc::pid_t, at: u64) -> Result<[u64; N], CaptureError> {
    let mut raw = vec![0u8; N * 8];
    read_exact(pid, at, &mut raw)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(raw.chunks_exact(8)) {
        *word = bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b));
    }
    Ok(words)
}

/// Writes `from` at `at`.
pub fn write_exact(pid: libc::pid_t, at: u64, from: &[u8]) -> Result<(), CaptureError> {
    let what = "write the process's memory";
    let local = libc::iovec { iov_base: from.as_ptr().cast_mut().cast(), iov_len: from.len() };
    let remote = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: from.len() };
    // SAFETY: the local buffer is only read; the remote address is checked by the kernel.
    let n = unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(n) {
        Ok(n) if n == from.len() => Ok(()),
        Ok(_) => Err(gone(what, io::Error::from_raw_os_error(libc::EFAULT))),
        Err(_) => Err(gone(what, io::Error::last_os_error())),
    }
}

/// The bytes of the vdso of `pid`.
pub(crate) fn vdso(pid: libc::pid_t, maps: &[Mapping]) -> Result<Vec<u8>, CaptureError> {
    let mut bytes = Vec::new();
    for m in maps.iter().filter(|m| m.path == b"[vdso]") {
        let mut part = vec![0; (m.end - m.start).next_multiple_of(PAGE_BYTES) as usize];
        read_exact(pid, m.start, &mut part)?;
        bytes.append(&mut part);
    }
    Ok(bytes)
}
