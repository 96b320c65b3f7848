//! Futexes in the segment: shared between processes, never private.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` is `value`, at most `limit`. Spurious returns are normal.
pub fn wait(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    };
    // SAFETY: the word lives in the segment; the kernel only reads it. Not FUTEX_PRIVATE: other
    // processes wake it.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &limit, 0, 0);
    }
}

/// Wakes all that sleep on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: as above; the kernel does not touch the word.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0);
    }
}
