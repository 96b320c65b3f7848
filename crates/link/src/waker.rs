//! Wakes the sending thread when a socket takes bytes again: that thread waits on a futex, which
//! sockets know nothing of.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use eyrie_ledger::segment::Segment;

/// What the end of the thread is announced by.
const END: u64 = u64::MAX;

pub(crate) struct Waker {
    epoll: OwnedFd,
    end: OwnedFd,
}

impl Waker {
    pub fn new() -> io::Result<Waker> {
        // SAFETY: plain system calls; each descriptor is checked and owned by nobody else.
        let (epoll, end) = unsafe {
            (libc::epoll_create1(libc::EPOLL_CLOEXEC), libc::eventfd(0, libc::EFD_CLOEXEC))
        };
        let own = |fd: i32| {
            if fd < 0 {
                Err(io::Error::last_os_error())
            } else {
                // SAFETY: as above.
                Ok(unsafe { OwnedFd::from_raw_fd(fd) })
            }
        };
        let (epoll, end) = (own(epoll), own(end));
        let waker = Waker { epoll: epoll?, end: end? };
        waker.control(libc::EPOLL_CTL_ADD, waker.end.as_raw_fd(), libc::EPOLLIN, END)?;
        Ok(waker)
    }

    fn control(&self, op: i32, fd: i32, events: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: data };
        // SAFETY: the event outlives the call.
        let done = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &raw mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Wakes once when `socket` takes bytes. A socket that was closed is forgotten by the kernel.
    pub fn watch(&self, socket: BorrowedFd<'_>) {
        let (fd, events) = (socket.as_raw_fd(), libc::EPOLLOUT | libc::EPOLLONESHOT);
        let again = self.control(libc::EPOLL_CTL_MOD, fd, events, 0);
        if again.is_err() {
            // If this fails too, the backstop of the sending thread's sleep is left.
            let _ = self.control(libc::EPOLL_CTL_ADD, fd, events, 0);
        }
    }

    /// The thread's work: until `end`.
    pub fn run(&self, segment: &Arc<Segment>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 32];
        loop {
            // SAFETY: the array is as long as stated.
            let count = unsafe {
                let most = events.len() as i32;
                libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), most, -1)
            };
            let found = &events[..count.max(0) as usize];
            if found.iter().any(|e| e.u64 == END) {
                return;
            }
            segment.ring_links();
        }
    }

    pub fn end(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes of our own.
        unsafe { libc::write(self.end.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}
