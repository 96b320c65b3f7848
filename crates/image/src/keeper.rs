//! A process that does nothing but hold a descriptor for as long as another process lives.

use crate::twin::reap;
use std::io;
use std::os::fd::RawFd;

/// The keeper, ended when dropped. If our process dies first it ends with the one it watches.
pub struct Keeper(libc::pid_t);

impl Keeper {
    /// Starts one that holds `held` until the process behind the pidfd `watched` ends.
    pub fn start(watched: RawFd, held: RawFd) -> io::Result<Keeper> {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // The keeper has all signals blocked: handlers of ours must not run in it.
        // SAFETY: both sets are live; the first is filled before it is used.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
        }
        // Without a signal at its end: nobody else here is to hear of it.
        // SAFETY: a plain fork without libc's handlers: the child only makes system calls.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        if pid == 0 {
            // SAFETY: we are the only thread of the new process.
            unsafe { keep(watched, held) }
        }
        let error = io::Error::last_os_error();
        // SAFETY: restores the mask filled above.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
        if pid < 0 { Err(error) } else { Ok(Keeper(pid as libc::pid_t)) }
    }
}

impl Drop for Keeper {
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
unsafe fn keep(watched: RawFd, held: RawFd) -> ! {
    // SAFETY: system calls on numbers and live memory only.
    unsafe {
        // Both out of the way of the places that they get.
        let watched = libc::fcntl(watched, libc::F_DUPFD, 3);
        let held = libc::fcntl(held, libc::F_DUPFD, 3);
        if watched < 0 || held < 0 || libc::dup2(watched, 0) < 0 || libc::dup2(held, 1) < 0 {
            libc::_exit(1);
        }
        libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
        let mut polled = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
        while libc::poll(&raw mut polled, 1, -1) < 1 {}
        libc::_exit(0)
    }
}
