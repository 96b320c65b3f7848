//! Missing pages: filling the memory of another process page by page by userfaultfd, and being told
//! what becomes of its mappings meanwhile.
//!
//! Only what reports everything is of use: faults of the kernel on the process's behalf, forks,
//! moved, removed and unmapped memory. That takes the right to trace any process.

use crate::PAGE_BYTES;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFDIO_WAKE: libc::c_ulong = 0x8010_aa02;
const UFFDIO_COPY: libc::c_ulong = 0xc028_aa03;
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
const EVENT_FORK: u64 = 1 << 1;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
/// A feature of Linux 5.18. Earlier kernels (before 5.15) forget that a change of the mappings is
/// not reported yet when another one is.
const FEATURE_EXACT_ADDRESS: u64 = 1 << 11;
const MESSAGE_BYTES: usize = 32;

/// What the kernel reports.
#[derive(Debug)]
pub enum Event {
    /// A page without content was touched.
    Fault(u64),
    /// The process was copied; this fills the copy.
    Fork(Uffd),
    /// The mappings have changed, or are about to lose their content.
    Changed(Report),
}

/// How far a copy has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Copied {
    /// All of it.
    All,
    /// So many bytes; the next page has content already.
    Until(u64),
    /// The mappings are being changed: nothing can be copied before that was reported.
    Changing,
    /// The next page cannot be filled in one go with those behind it, or is not there any more.
    Split(u64),
    /// The process is gone.
    Dead,
}

/// The means to fill the memory of one process.
#[derive(Debug)]
pub struct Uffd(OwnedFd);

impl Uffd {
    /// Sets up a fresh descriptor, made by the process itself.
    pub fn new(fd: OwnedFd) -> io::Result<Uffd> {
        let mut api = [API, EVENT_FORK | EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP, 0];
        let uffd = Uffd(fd);
        uffd.ioctl(UFFDIO_API, &mut api)?;
        if api[1] & FEATURE_EXACT_ADDRESS == 0 {
            return Err(io::Error::other("this takes Linux 5.18"));
        }
        Ok(uffd)
    }

    fn ioctl(&self, request: libc::c_ulong, words: &mut [u64]) -> io::Result<()> {
        // SAFETY: callers pass the words that the request reads and writes, all live.
        let r = unsafe { libc::ioctl(self.0.as_raw_fd(), request, words.as_mut_ptr()) };
        if r == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// For `poll`.
    pub fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// From now on pages without content in this range are reported.
    pub fn register(&self, start: u64, end: u64) -> io::Result<()> {
        self.ioctl(UFFDIO_REGISTER, &mut [start, end - start, MODE_MISSING, 0])
    }

    /// Fills pages from `at` on, none of which may have content, and wakes who waits for them.
    pub fn copy(&self, at: u64, pages: &[u8]) -> io::Result<Copied> {
        let mut words = [at, pages.as_ptr() as u64, pages.len() as u64, 0, 0];
        let result = self.ioctl(UFFDIO_COPY, &mut words);
        outcome(result, words[4] as i64)
    }

    /// Fills a page with zeros.
    pub fn zero(&self, page: u64) -> io::Result<Copied> {
        let mut words = [page, PAGE_BYTES, 0, 0];
        let result = self.ioctl(UFFDIO_ZEROPAGE, &mut words);
        outcome(result, words[3] as i64)
    }

    /// Wakes who waits for a page that has content.
    pub fn wake(&self, page: u64) {
        // It fails only if there is nobody to wake.
        let _ = self.ioctl(UFFDIO_WAKE, &mut [page, PAGE_BYTES]);
    }

    /// Whether all changes of the mappings that were begun are reported and read.
    pub fn is_quiet(&self) -> io::Result<bool> {
        // No length: nothing is filled by this. What is said first is whether something could be.
        match self.ioctl(UFFDIO_ZEROPAGE, &mut [0; 4]) {
            Ok(()) => Ok(true),
            Err(e) => match e.raw_os_error() {
                Some(libc::EINVAL | libc::ESRCH) => Ok(true),
                Some(libc::EAGAIN) => Ok(false),
                _ => Err(e),
            },
        }
    }

    /// Whether the memory is gone.
    pub fn is_gone(&self) -> bool {
        // There is nothing at the first address.
        matches!(self.zero(0), Ok(Copied::Dead))
    }

    /// The next report.
    pub fn event(&self) -> io::Result<Option<Event>> {
        loop {
            let mut raw = [0u8; MESSAGE_BYTES];
            // SAFETY: the buffer is live and as long as said.
            let n = unsafe { libc::read(self.fd(), raw.as_mut_ptr().cast(), raw.len()) };
            if n == MESSAGE_BYTES as isize {
                match event(&raw) {
                    None => continue,
                    event => return Ok(event),
                }
            }
            match io::Error::last_os_error() {
                _ if n >= 0 => return Ok(None),
                e if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e => return Err(e),
            }
        }
    }
}

fn outcome(result: io::Result<()>, copied: i64) -> io::Result<Copied> {
    let done = copied.max(0) as u64;
    match result {
        Ok(()) => Ok(Copied::All),
        Err(e) => match e.raw_os_error() {
            Some(libc::EEXIST) => Ok(Copied::Until(done)),
            // Also if it has come some way.
            Some(libc::EAGAIN) if copied > 0 => Ok(Copied::Until(done)),
            Some(libc::EAGAIN) => Ok(Copied::Changing),
            Some(libc::ENOENT | libc::EINVAL | libc::EFAULT) => Ok(Copied::Split(done)),
            Some(libc::ESRCH | libc::ENOSPC) => Ok(Copied::Dead),
            _ => Err(e),
        },
    }
}

fn event(message: &[u8]) -> Option<Event> {
    let word = |i: usize| {
        let bytes = message[8 + i * 8..16 + i * 8].iter().rev();
        bytes.fold(0u64, |w, &b| w << 8 | u64::from(b))
    };
    Some(match message[0] {
        0x12 => Event::Fault(word(1) & !(PAGE_BYTES - 1)),
        // SAFETY: the kernel has just opened this descriptor for us.
        0x13 => Event::Fork(Uffd(unsafe { OwnedFd::from_raw_fd(word(0) as u32 as RawFd) })),
        0x14 => Event::Changed(Report::Moved { from: word(0), to: word(1), bytes: word(2) }),
        0x15 => Event::Changed(Report::Dropped { start: word(0), end: word(1) }),
        0x16 => Event::Changed(Report::Unmapped { start: word(0), end: word(1) }),
        _ => return None,
    })
}

/// A change of the mappings, as reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Memory was moved.
    Moved {
        /// Where it was.
        from: u64,
        /// Where it is.
        to: u64,
        /// Its length.
        bytes: u64,
    },
    /// Memory was unmapped.
    Unmapped {
        /// First address.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// Memory has lost its content and is still there.
    Dropped {
        /// First address.
        start: u64,
        /// One past the last.
        end: u64,
    },
}
