//! A userfaultfd of another process, worked from outside.
//!
//! The frozen process is made to open it, we take the descriptor over and close it there. What it
//! was opened for stays with its memory: the kernel notes by itself which pages are written
//! (`WP_ASYNC`, Linux 6.7), no fault is ever sent to anybody, and nothing in the program waits. It
//! needs no privileges: it is opened for faults of user mode only, and for these alone it is
//! permitted to everybody.
//!
//! It belongs to the address space that it was opened in: a program that is executed anew, or
//! restored, has none.

use crate::error::CaptureError;
use crate::kernel::remote_calls::Agent;
use crate::kernel::remote_descriptors;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const UFFD_USER_MODE_ONLY: u64 = 1;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
const UFFD_API: u64 = 0xaa;
const FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_WP: u64 = 1 << 1;

/// Write-protect tracking of one address space; ends when dropped.
#[derive(Debug)]
pub struct Uffd(OwnedFd);

impl Uffd {
    /// Opens one in the process of `agent`, which is left as it was. The inner error says why there
    /// is none; the process is none the worse for it.
    pub fn open(
        pid: libc::pid_t,
        agent: &Agent,
    ) -> Result<Result<Uffd, (&'static str, io::Error)>, CaptureError> {
        let flags = libc::O_CLOEXEC as u64 | UFFD_USER_MODE_ONLY;
        let theirs = agent.call(libc::SYS_userfaultfd, &[flags])?;
        if theirs < 0 {
            let error = io::Error::from_raw_os_error(-theirs as i32);
            return Ok(Err(("userfaultfd", error)));
        }
        let ours = remote_descriptors::take(pid, theirs as u64);
        agent.call(libc::SYS_close, &[theirs as u64])?;
        let uffd = match ours {
            Ok(fd) => Uffd(fd),
            Err(error) => return Ok(Err(("pidfd_getfd", error))),
        };
        Ok(uffd.choose().map(|()| uffd).map_err(|error| ("userfaultfd of Linux 6.7", error)))
    }

    fn choose(&self) -> io::Result<()> {
        let wanted = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED | FEATURE_WP_HUGETLBFS_SHMEM;
        let mut api = [UFFD_API, wanted, 0];
        self.ioctl(UFFDIO_API, &mut api)
    }

    /// Has writes to the mappings between two addresses noted from now on. Pages that are there
    /// count as written until they are armed. `EBUSY`: another userfaultfd watches them.
    pub fn register(&self, start: u64, end: u64) -> io::Result<()> {
        self.ioctl(UFFDIO_REGISTER, &mut [start, end - start, REGISTER_MODE_WP, 0])
    }

    /// Makes all pages between two addresses count as written.
    pub fn unmark(&self, start: u64, end: u64) -> io::Result<()> {
        self.ioctl(UFFDIO_WRITEPROTECT, &mut [start, end - start, 0])
    }

    fn ioctl<const N: usize>(&self, call: libc::c_ulong, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: every call here takes a structure of `N` words, which is live.
        let r = unsafe { libc::ioctl(self.0.as_raw_fd(), call, words.as_mut_ptr()) };
        if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}
