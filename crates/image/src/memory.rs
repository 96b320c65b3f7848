//! Reading and writing the memory of another process.

use crate::error::CaptureError;
use std::io;

/// Most ranges in one call (`IOV_MAX`).
pub const MAX_RANGES: usize = 1024;

/// Reads `ranges` (address, bytes) one after the other into `to`; returns the bytes read, fewer than
/// asked for if an address cannot be read.
pub fn read_ranges(
    pid: libc::pid_t,
    ranges: &[libc::iovec],
    to: &mut [u8],
) -> Result<usize, io::Error> {
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    // SAFETY: the local buffer is live and exclusively borrowed; remote addresses are checked by the
    // kernel.
    let n = unsafe {
        libc::process_vm_readv(pid, &raw const local, 1, ranges.as_ptr(), ranges.len() as u64, 0)
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn gone(what: &'static str, source: io::Error) -> CaptureError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => CaptureError::Gone,
        _ => CaptureError::Os { what, source },
    }
}

/// Reads exactly `to.len()` bytes at `at`.
pub fn read_exact(pid: libc::pid_t, at: u64, to: &mut [u8]) -> Result<(), CaptureError> {
    let what = "read the process's memory";
    let range = [libc::iovec { iov_base: at as *mut libc::c_void, iov_len: to.len() }];
    match read_ranges(pid, &range, to) {
        Ok(n) if n == to.len() => Ok(()),
        Ok(_) => Err(gone(what, io::Error::from_raw_os_error(libc::EFAULT))),
        Err(e) => Err(gone(what, e)),
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
