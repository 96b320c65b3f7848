//! Waiting for a queue: for its descriptor and for the leash, when the library says that it may be.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use crate::Error;
use crate::endpoint::{Handle, Queue};
use crate::library::Library;
use crate::sys::{FI_EAGAIN, Fid, FidFabric};

/// What was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Woken {
    /// There may be something, or nothing was to be waited for.
    Look,
    /// The leash has ended.
    Ended,
    /// The time is over.
    Late,
}

/// One wait, of several queues of a connection.
pub(crate) struct Wait<'a> {
    library: &'a Library,
    fabric: &'a Handle<FidFabric>,
    fids: [*mut Fid; 2],
    polled: [libc::pollfd; 4],
    queues: usize,
    others: usize,
}

fn polled(fd: RawFd, events: i16) -> libc::pollfd {
    libc::pollfd { fd, events, revents: 0 }
}

impl<'a> Wait<'a> {
    /// The leash wakes who waits when it is readable, or over.
    pub fn new(library: &'a Library, fabric: &'a Handle<FidFabric>, leash: BorrowedFd<'_>) -> Self {
        let nothing = polled(-1, 0);
        let leash = polled(leash.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP);
        let polled = [leash, nothing, nothing, nothing];
        Wait { library, fabric, fids: [std::ptr::null_mut(); 2], polled, queues: 0, others: 1 }
    }

    pub fn queue<T>(mut self, queue: &Queue<T>) -> Self {
        self.fids[self.queues] = queue.handle.fid();
        self.queues += 1;
        self.descriptor(queue.fd)
    }

    /// A descriptor that wakes, too.
    pub fn descriptor(mut self, fd: RawFd) -> Self {
        self.polled[self.others] = polled(fd, libc::POLLIN);
        self.others += 1;
        self
    }

    /// Waits until then at most.
    pub fn until(&mut self, end: Instant) -> Result<Woken, Error> {
        let count = self.queues as c_int;
        // SAFETY: the fabric and the queues are open, and so many.
        let returned = unsafe {
            let fabric = self.fabric.at();
            ((*(*fabric).ops).trywait)(fabric, self.fids.as_mut_ptr(), count)
        };
        let busy = returned as isize == -FI_EAGAIN;
        if !busy {
            self.library.check("fi_trywait", returned)?;
        }
        let left = end.saturating_duration_since(Instant::now());
        let left = if busy { Duration::ZERO } else { left };
        // At least as long as was asked for, as else it would be called again and again.
        let millis = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as c_int;
        // SAFETY: the array has so many.
        let ready = unsafe { libc::poll(self.polled.as_mut_ptr(), self.others as _, millis) };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(Woken::Look),
                _ => Err(error.into()),
            };
        }
        if self.polled[0].revents != 0 {
            return Ok(Woken::Ended);
        }
        Ok(if ready == 0 && !busy { Woken::Late } else { Woken::Look })
    }
}
