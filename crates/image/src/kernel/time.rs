//! Times as the kernel takes and shows them.

const SECOND_NS: u64 = 1_000_000_000;

pub fn nanoseconds(time: &libc::timespec) -> u64 {
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

pub fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / SECOND_NS) as i64, tv_nsec: (ns % SECOND_NS) as i64 }
}

/// What a clock shows, 0 if there is no such clock.
pub fn now(clock: i32) -> u64 {
    let mut time = timespec(0);
    // SAFETY: fills a live structure; its zeros stay if the clock is refused.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    nanoseconds(&time)
}
