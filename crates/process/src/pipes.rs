//! Pipes between a node and the standard streams of its ranks.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Bytes that wait in a pipe.
pub fn queued(pipe: BorrowedFd<'_>) -> u64 {
    let mut n: libc::c_int = 0;
    // SAFETY: FIONREAD stores one int where it is told to.
    let rc = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut n) };
    if rc == 0 { u64::try_from(n).unwrap_or(0) } else { 0 }
}

/// A pipe. `ours` is the end that stays here: 0 to read from, 1 to write to; it does not
/// block.
pub fn pipe(ours: usize) -> io::Result<[OwnedFd; 2]> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let ends = [read, write];
    rustix::io::ioctl_fionbio(&ends[ours], true)?;
    Ok(ends)
}

/// A descriptor whose readiness tasks can wait for.
pub fn watch(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same descriptor and keeps it open until it is dropped,
    // which the `AsyncFd` does only after it has deregistered it.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(io::Error::from)
}
