//! A process that does nothing but hold a descriptor for as long as another process lives.

use crate::kernel::starting::Starting;
use crate::kernel::stops::reap;
use std::convert::Infallible;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};

/// Does something while this thread has all signals blocked: a process that it makes keeps them so,
/// as handlers of ours must not run in it.
pub(crate) fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are live; the first is filled before it is used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
    }
    let done = work();
    // SAFETY: restores the mask filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    done
}

/// Starts a process that is to `live`, with all signals blocked. Nobody else here hears of its end:
/// it is waited for by its number with `__WALL`. It has one thread, and must make nothing but
/// system calls.
pub(crate) fn start_quietly(live: &dyn Fn() -> Infallible) -> io::Result<libc::pid_t> {
    with_signals_blocked(|| {
        // SAFETY: a plain fork without libc's handlers: the child only makes system calls.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        if pid == 0 {
            live();
        }
        if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid as libc::pid_t) }
    })
}

/// The keeper, ended when dropped. If our process dies first it ends with the one it watches.
pub struct DescriptorHolder(libc::pid_t);

impl DescriptorHolder {
    /// Starts one that holds `held` until the process behind the pidfd `watched` ends, and nothing
    /// else any more when this returns.
    pub fn start(watched: RawFd, held: RawFd) -> io::Result<DescriptorHolder> {
        let _starting = Starting::begin();
        let (mut told, tells) = io::pipe()?;
        let number = tells.as_raw_fd();
        // SAFETY: of a new process with one thread.
        let holder =
            start_quietly(&|| unsafe { keep(watched, held, number) }).map(DescriptorHolder)?;
        drop(tells);
        // If it dies before, it holds nothing either.
        let _ = told.read_exact(&mut [0]);
        Ok(holder)
    }
}

impl Drop for DescriptorHolder {
    fn drop(&mut self) {
        // SAFETY: our own child, not reaped yet.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        reap(self.0);
    }
}

/// The keeper's life.
///
/// # Safety
/// Runs in a new process with one thread; makes nothing but system calls.
unsafe fn keep(watched: RawFd, held: RawFd, tells: RawFd) -> Infallible {
    // SAFETY: system calls on numbers and live memory only.
    unsafe {
        // All out of the way of the places that they get.
        let all = [watched, held, tells].map(|fd| libc::fcntl(fd, libc::F_DUPFD, 3));
        if (0..).zip(all).any(|(place, fd)| fd < 0 || libc::dup2(fd, place) < 0) {
            libc::_exit(1);
        }
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        libc::write(2, [0u8].as_ptr().cast(), 1);
        libc::close(2);
        let mut polled = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
        while libc::poll(&raw mut polled, 1, -1) < 1 {}
        libc::_exit(0)
    }
}
