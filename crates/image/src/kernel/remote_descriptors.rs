//! Descriptors of another process, borrowed for a moment: the same open file descriptions under
//! numbers of ours (`pidfd_getfd`). Held only while their process stands still, so that it never
//! sees a peer that outlives a close.

use crate::error::CaptureError;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A process that lends its descriptors.
pub struct RemoteDescriptors(OwnedFd);

impl RemoteDescriptors {
    /// Starts borrowing from `pid`.
    pub fn new(pid: libc::pid_t) -> Result<RemoteDescriptors, CaptureError> {
        process(pid, 0).map(RemoteDescriptors).map_err(|e| because("open the process as a file", e))
    }

    /// Borrows one descriptor.
    pub fn borrow(&self, fd: u32) -> Result<OwnedFd, CaptureError> {
        fetch(&self.0, fd.into()).map_err(|e| because("borrow a file descriptor", e))
    }
}

/// A process as a file (pidfd).
pub fn process(pid: libc::pid_t, flags: u32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the result is checked.
    made(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) })
}

fn fetch(process: &OwnedFd, fd: u64) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the result is checked.
    made(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })
}

/// Takes over a descriptor of a process (Linux 5.6).
pub fn take(pid: libc::pid_t, fd: u64) -> io::Result<OwnedFd> {
    fetch(&process(pid, 0)?, fd)
}

/// The last system error.
pub fn os(what: &'static str) -> CaptureError {
    because(what, io::Error::last_os_error())
}

fn because(what: &'static str, source: io::Error) -> CaptureError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => CaptureError::Gone,
        _ => CaptureError::Os { what, source },
    }
}

/// Asks for a plain value by `ioctl`.
pub fn ioctl<T: Copy>(fd: &impl AsRawFd, request: u64) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: callers name a request that writes a `T`, which holds for all bit patterns.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), request, value.as_mut_ptr()) };
    if r < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, or written by the kernel.
    Ok(unsafe { value.assume_init() })
}

/// Magic number of the file system that a file is on; 0 if it does not tell.
pub fn file_system(fd: &impl AsRawFd) -> i64 {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: fills a live structure.
    let r = unsafe { libc::fstatfs(fd.as_raw_fd(), &raw mut fs) };
    if r == 0 { fs.f_type } else { 0 }
}

/// Which of `events` hold now, and those that always count.
pub fn poll(fd: &impl AsRawFd, events: i16) -> i16 {
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // SAFETY: one live entry; does not wait.
    unsafe { libc::poll(&raw mut one, 1, 0) };
    one.revents
}

/// A new pipe: its reading and its writing end.
pub fn pipe(flags: i32) -> io::Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: fills a live array; the descriptors are new and ours.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), flags | libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// Takes over a descriptor that a system call has just made.
pub fn made(fd: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(fd) {
        // SAFETY: as above.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
