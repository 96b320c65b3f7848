//! The end of a replay without the other ranks (`eyrie replay`): the program asks for what nobody
//! recorded. It stops there, in the middle of its call, for whoever looks at it.

use std::sync::atomic::Ordering::Release;

use crate::segment::{RankCtl, STATE_LOG_ENDED, Segment};

/// Says why the rank cannot go on, and stops it as often as it is continued.
#[cold]
pub fn end_of_log(seg: &Segment, ctl: &RankCtl, why: &str) -> ! {
    ctl.set_text(why);
    ctl.state.store(STATE_LOG_ENDED, Release);
    let bell = &seg.header().bell;
    bell.fetch_add(1, Release);
    // SAFETY: wakes whoever sleeps on the word, which lives in the segment.
    unsafe {
        libc::syscall(libc::SYS_futex, bell.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0);
    }
    loop {
        eyrie_end_of_log();
    }
}

/// Where a debugger finds the program: in a trap. Without a debugger that would kill, so it is a
/// stop.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn eyrie_end_of_log() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let traced = status.lines().any(|l| l.starts_with("TracerPid:") && !l.ends_with("\t0"));
    let signal = if traced { libc::SIGTRAP } else { libc::SIGSTOP };
    // SAFETY: plain system calls; the signal goes to the calling thread.
    unsafe {
        libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
    }
}
