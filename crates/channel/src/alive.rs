//! How the node learns that this process ends before its memory is freed, which takes the kernel
//! 0.1 ms a MiB: by a word of the segment that is marked first, as a robust futex whose owner dies
//! (`get_robust_list(2)`; the kernel's `robust-futex-ABI`).
//!
//! Kept true: of what the C library has registered only the entry that is pending is written, and
//! only while none is. The library sets and clears it within its own calls, of which this is none:
//! if it does, the mark does not come, and the node learns of the end when the memory is free.

use crate::turn_lock::this_thread;
use eyrie_ledger::segment::RankCtl;
use std::ptr;
use std::sync::atomic::Ordering::Release;

/// `struct robust_list_head` of the kernel's interface.
#[repr(C)]
struct Head {
    list: *mut libc::c_void,
    /// From an entry to its futex, in bytes.
    offset: libc::c_long,
    pending: *mut libc::c_void,
}

/// From now on the end of this thread is marked in `ctl.alive`.
pub(crate) fn arm(ctl: &'static RankCtl) {
    let (mut head, mut bytes) = (ptr::null_mut::<Head>(), 0usize);
    // SAFETY: for the calling thread (0) the kernel writes to these two places of our own.
    let rc = unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut bytes) };
    if rc != 0 || head.is_null() || bytes != size_of::<Head>() {
        return;
    }
    // SAFETY: what this thread has registered is its library's, and stays as long as the thread.
    // The kernel reads it when the thread ends: hence volatile. The entry need not be memory, as
    // only the futex is looked at, which is in the segment and is never unmapped.
    unsafe {
        let word = ctl.alive.as_ptr().cast::<u8>();
        let entry = word.wrapping_offset(-((&raw const (*head).offset).read() as isize)).cast();
        let pending = &raw mut (*head).pending;
        let before = pending.read_volatile();
        if !before.is_null() && before != entry {
            return;
        }
        pending.write_volatile(entry);
    }
    // SAFETY: no arguments.
    let thread = unsafe { libc::gettid() };
    ctl.alive.store(thread as u32 | libc::FUTEX_WAITERS, Release);
}

/// Where several threads are in the library: the mark of a process that was restored.
///
/// Kept true: the thread whose end is marked is the one that initialised MPI, as others may end
/// before the process does.
pub struct Mark {
    ctl: &'static RankCtl,
    /// The only thread whose end is marked; 0 while any may be.
    main: usize,
    /// It has yet to be.
    unarmed: bool,
}

impl Mark {
    pub(crate) fn new(ctl: &'static RankCtl) -> Mark {
        Mark { ctl, main: 0, unarmed: false }
    }

    /// From now on the calling thread is the one.
    pub(crate) fn share(&mut self) {
        self.main = this_thread();
    }

    /// In a new process.
    pub(crate) fn renew(&mut self) {
        self.unarmed = true;
        self.arm();
    }

    /// Has the end of this thread marked, if it is the one.
    #[inline]
    pub(crate) fn arm(&mut self) {
        if self.unarmed && (self.main == 0 || this_thread() == self.main) {
            self.unarmed = false;
            arm(self.ctl);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_ledger::segment::{FT_LOGGED, Geometry, Segment};
    use std::sync::atomic::Ordering::Acquire;

    #[test]
    fn the_kernel_marks_the_end_of_a_process() {
        let geometry = Geometry::new(1, 1 << 20);
        let (_fd, segment) = Segment::create("alive", geometry, FT_LOGGED, 1).unwrap();
        let segment: &'static Segment = Box::leak(Box::new(segment));
        let ctl = segment.rank(0);
        // SAFETY: the child makes system calls only.
        let child = unsafe {
            let child = libc::fork();
            if child == 0 {
                arm(ctl);
                loop {
                    libc::pause();
                }
            }
            child
        };
        assert!(child > 0);
        while ctl.alive.load(Acquire) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(ctl.alive.load(Acquire), child as u32 | libc::FUTEX_WAITERS);
        let mut status = 0;
        // SAFETY: our own child; `status` is a place of our own.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        assert_eq!(ctl.alive.load(Acquire), libc::FUTEX_OWNER_DIED | libc::FUTEX_WAITERS);
    }
}
