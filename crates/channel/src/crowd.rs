//! Whether others want the core that this rank runs on. Who waits in a crowd sleeps soon: a core
//! that is spun on, or yielded, is lost to whom it waits for, and to strangers.
//!
//! The decision (`Crowd::judge`) is pure. Nothing that the program sees depends on it but time.

use std::cell::Cell;
use std::time::Duration;

use eyrie_ledger::clock;
use eyrie_ledger::crowd::{self, Reading};

/// Readings are at least so far apart: one takes some microseconds.
const APART: Duration = Duration::from_millis(4);
/// How long a crowd is believed in without being seen again, at first; each time that it is seen
/// again soon after, twice as long.
const HOLD: Duration = Duration::from_millis(50);
const LONGEST_HOLD: Duration = Duration::from_secs(1);

/// What a thread makes of its readings.
#[derive(Clone, Copy, Debug)]
struct Crowd {
    last: Option<Reading>,
    /// There is a crowd until then, if it is not seen again.
    until: Duration,
    hold: Duration,
}

impl Crowd {
    const fn new() -> Crowd {
        Crowd { last: None, until: Duration::ZERO, hold: HOLD }
    }

    /// Whether it is time for a reading.
    fn is_due(&self, at: Duration) -> bool {
        self.last.is_none_or(|last| at.saturating_sub(last.at) >= APART)
    }

    /// Takes a reading into account; whether there is a crowd.
    fn judge(&mut self, now: Reading) -> bool {
        let before = self.last.replace(now);
        if before.is_some_and(|before| now.is_crowded_since(&before)) {
            let ended = !self.is_here(now.at);
            let again = self.until > Duration::ZERO && now.at < self.until + self.hold;
            self.hold = match (ended, again) {
                // It was believed to be over too soon.
                (true, true) => (self.hold * 2).min(LONGEST_HOLD),
                (true, false) => HOLD,
                (false, _) => self.hold,
            };
            self.until = now.at + self.hold;
        }
        self.is_here(now.at)
    }

    /// Whether there is a crowd, as far as is known.
    fn is_here(&self, at: Duration) -> bool {
        at < self.until
    }
}

thread_local! {
    /// Of each thread that calls MPI: what the kernel counts is its own.
    static CROWD: Cell<Crowd> = const { Cell::new(Crowd::new()) };
}

/// Whether others want this thread's core: a look at the clock, and a reading now and then.
#[cold]
pub fn look() -> bool {
    let at = Duration::from_nanos(clock::now());
    CROWD.with(|cell| {
        let mut crowd = cell.get();
        if !crowd.is_due(at) {
            return crowd.is_here(at);
        }
        let here = crowd.judge(Reading { at, forced: forced(), waited: waited() });
        cell.set(crowd);
        here
    })
}

/// How often the kernel has taken the core from this thread.
fn forced() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills our variable; all zeros are valid, too. Not by the C library's name,
    // which this library has, too.
    let usage = unsafe {
        libc::syscall(libc::SYS_getrusage, libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nivcsw.unsigned_abs()
}

fn waited() -> Option<Duration> {
    let mut text = [0u8; 80];
    let (flags, path) = (libc::O_RDONLY | libc::O_CLOEXEC, c"/proc/thread-self/schedstat");
    // SAFETY: plain system calls on a descriptor that is closed before anybody sees it. Not by the
    // C library's names, as above.
    let got = unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if fd < 0 {
            return None;
        }
        let got = libc::syscall(libc::SYS_read, fd, text.as_mut_ptr(), text.len());
        libc::syscall(libc::SYS_close, fd);
        got
    };
    crowd::waited(text.get(..usize::try_from(got).ok()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_ms: u64, waited_ms: u64) -> Reading {
        let ms = Duration::from_millis;
        Reading { at: ms(at_ms), forced: 0, waited: Some(ms(waited_ms)) }
    }

    #[test]
    fn a_crowd_is_believed_in_for_a_while() {
        let mut crowd = Crowd::new();
        assert!(!crowd.judge(reading(100, 40)), "nothing to compare it with");
        assert!(crowd.judge(reading(110, 45)));
        assert!(crowd.judge(reading(150, 45)));
        assert!(!crowd.judge(reading(161, 45)), "it is over");
        assert!(!crowd.is_due(Duration::from_millis(164)));
        assert!(crowd.is_due(Duration::from_millis(165)));
    }

    #[test]
    fn one_that_comes_again_is_believed_in_for_longer() {
        let (mut crowd, mut at, mut waited) = (Crowd::new(), 0, 0);
        crowd.judge(reading(at, waited));
        for hold in [50, 100, 200, 400, 800, 1000, 1000] {
            (at, waited) = (at + 10, waited + 5);
            assert!(crowd.judge(reading(at, waited)));
            assert!(crowd.judge(reading(at + hold - 1, waited)), "{hold}");
            at += hold;
            assert!(!crowd.judge(reading(at, waited)), "{hold}");
        }
        // After a long time it is another one.
        (at, waited) = (at + 5_000, waited + 1_000);
        assert!(crowd.judge(reading(at, waited)));
        assert!(!crowd.judge(reading(at + 50, waited)));
    }

    #[test]
    fn what_the_kernel_says_grows() {
        let (forced_before, waited_before) = (forced(), waited());
        std::thread::yield_now();
        assert!(forced() >= forced_before && waited() >= waited_before);
        look();
    }
}
