//! eventfd: what `/proc` tells about one is all there is to it.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::remote_descriptors::{self, RemoteDescriptors};
use crate::resources::open::{Open, cannot, unclear};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::resources::Event;
use eyrie_image_format::state::{Description, Target};
use std::io;
use std::os::fd::AsRawFd;

impl Resource for Event {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if this.anonymous_inode() != Some(b"[eventfd]") {
            return Ok(None);
        }
        let count = this.info.number("eventfd-count", 16).ok_or_else(|| unclear(this))?;
        let semaphore = match this.info.number("eventfd-semaphore", 10) {
            Some(semaphore) => semaphore != 0,
            None => is_semaphore(this, look.remote, count)?,
        };
        Ok(Some(Target::Event(Event { count, semaphore })))
    }

    fn restore(&self, _: &Description, _: &mut Making<'_>) -> Result<Made, RestoreError> {
        let fail = |e| cannot("make its eventfd again", e);
        let kind = if self.semaphore { libc::EFD_SEMAPHORE } else { 0 };
        // SAFETY: numbers only.
        let fd = unsafe { libc::eventfd(0, kind | libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let fd = remote_descriptors::made(fd.into()).map_err(fail)?;
        let count = self.count;
        // SAFETY: writes a live word.
        if count > 0 && unsafe { libc::write(fd.as_raw_fd(), (&raw const count).cast(), 8) } != 8 {
            return Err(fail(io::Error::last_os_error()));
        }
        Ok(Made::New(fd))
    }
}

/// Kernels before 6.5 do not tell: see what a read takes, and put it back.
fn is_semaphore(this: &Open, remote: &RemoteDescriptors, count: u64) -> Result<bool, CaptureError> {
    let fd = remote.borrow(this.fd)?.as_raw_fd();
    let what = "look into an eventfd";
    let add = |value: u64| {
        // SAFETY: writes a live word.
        let n = unsafe { libc::write(fd, (&raw const value).cast(), 8) };
        if n == 8 { Ok(()) } else { Err(remote_descriptors::os(what)) }
    };
    let filled = count.max(2);
    if filled != count {
        add(filled - count)?;
    }
    let mut taken = 0u64;
    // SAFETY: fills a live word; there is something to read.
    if unsafe { libc::read(fd, (&raw mut taken).cast(), 8) } != 8 {
        return Err(remote_descriptors::os(what));
    }
    let semaphore = taken == 1;
    let mut left = filled - taken;
    while semaphore && left > count {
        // SAFETY: as above.
        unsafe { libc::read(fd, (&raw mut taken).cast(), 8) };
        left -= 1;
    }
    if left < count {
        add(count - left)?;
    }
    Ok(semaphore)
}
