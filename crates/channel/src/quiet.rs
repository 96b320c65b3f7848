//! Whether a process stands still: none of its threads computes, whoever they wait for.
//!
//! The decision (`Quiet::judge`) is pure. Nothing that the program sees depends on it but how a
//! replay ends that would not go on.

use std::time::Duration;

use crate::waiting;

/// Readings are at least so far apart.
const APART: Duration = Duration::from_millis(200);
/// A process that used less than this part of the time stands still: who waits looks up now and
/// then, too.
const PART: u32 = 20;

#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet {
    /// The last reading: time, and processor time that the process has used.
    last: Option<(Duration, Duration)>,
    /// It has stood still since then.
    since: Option<Duration>,
}

impl Quiet {
    /// How long it has stood still, as far as is known.
    pub fn look(&mut self) -> Duration {
        let now = waiting::now();
        if self.last.is_none_or(|(at, _)| now.saturating_sub(at) >= APART) {
            self.judge(now, used());
        }
        self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    fn judge(&mut self, now: Duration, used: Duration) {
        let (at, before) = self.last.replace((now, used)).unwrap_or((now, used));
        let stands = now > at && used.saturating_sub(before) < now.saturating_sub(at) / PART;
        self.since = if stands { self.since.or(Some(at)) } else { None };
    }
}

/// Processor time of all threads.
fn used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills our variable. Not by the C library's name, which this library has,
    // too.
    unsafe {
        let id = libc::CLOCK_PROCESS_CPUTIME_ID;
        libc::syscall(libc::SYS_clock_gettime, libc::c_long::from(id), &raw mut time);
    }
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_stands_still_from_the_first_reading_on() {
        let ms = Duration::from_millis;
        let mut quiet = Quiet::default();
        quiet.judge(ms(1000), ms(500));
        assert_eq!(quiet.since, None);
        quiet.judge(ms(1300), ms(505));
        quiet.judge(ms(1600), ms(510));
        assert_eq!(quiet.since, Some(ms(1000)));
        quiet.judge(ms(1900), ms(600));
        assert_eq!(quiet.since, None);
        quiet.judge(ms(2200), ms(600));
        assert_eq!(quiet.since, Some(ms(1900)));
    }

    #[test]
    fn who_computes_does_not_stand_still() {
        let mut quiet = Quiet::default();
        let (begun, before) = (waiting::now(), used());
        while used() < before + Duration::from_millis(20) {}
        quiet.judge(begun, before);
        quiet.judge(begun + Duration::from_millis(40), used());
        assert_eq!(quiet.since, None);
    }
}
