//! Time that goes on while this machine sleeps, and that nobody sets.
//!
//! `Instant` stands still while a machine is suspended: a node that wakes up after an hour would
//! take itself for one that was heard of a moment ago, while its ranks run elsewhere.

use std::time::{Duration, Instant};

/// A moment.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Since the machine was started; None: the kernel has no such clock.
    boot: Option<Duration>,
    at: Instant,
}

impl Moment {
    pub fn now() -> Moment {
        Moment { boot: since_boot(), at: Instant::now() }
    }

    pub fn elapsed(&self) -> Duration {
        match (self.boot, since_boot()) {
            (Some(begun), Some(now)) => now.saturating_sub(begun),
            _ => self.at.elapsed(),
        }
    }
}

fn since_boot() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a structure that is ours.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let (secs, nanos) = (u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?);
    (done == 0).then(|| Duration::new(secs, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_as_other_clocks_do() {
        let begun = Instant::now();
        let moment = Moment::now();
        assert!(moment.boot.is_some());
        std::thread::sleep(Duration::from_millis(20));
        let passed = moment.elapsed();
        assert!(passed >= Duration::from_millis(20) && passed <= begun.elapsed());
    }
}
