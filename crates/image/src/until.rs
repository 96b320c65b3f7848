//! How long a process stands still for what is stored of it meanwhile.

use crate::error::CaptureError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long it stands still for that at most, ...
const LEAST_LIMIT: Duration = Duration::from_secs(60);
/// ... or as long as what is to be stored takes at this rate.
const SLOWEST_BYTES_PER_S: u64 = 64 << 20;

/// What ends work for an image before it is done; nothing by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Until<'a> {
    /// Once this is true, the image is not wanted any more.
    pub called_off: Option<&'a AtomicBool>,
    /// It took too long then, if it began so long before.
    pub end: Option<(Instant, Duration)>,
}

impl<'a> Until<'a> {
    /// Until this is true.
    pub fn called_off(flag: &'a AtomicBool) -> Until<'a> {
        Until { called_off: Some(flag), end: None }
    }

    /// Fails once it is to end. To be asked between blocks.
    pub fn check(&self) -> Result<(), CaptureError> {
        if self.called_off.is_some_and(|off| off.load(Ordering::Relaxed)) {
            return Err(CaptureError::CalledOff);
        }
        match self.end {
            Some((end, limit)) if Instant::now() >= end => Err(CaptureError::Slow { limit }),
            _ => Ok(()),
        }
    }
}

/// How long a family of processes stands still while its shared memory is stored.
#[derive(Debug)]
pub struct Stand {
    begun: Option<Instant>,
    bytes: u64,
    least: Duration,
}

impl Default for Stand {
    fn default() -> Stand {
        Stand { begun: None, bytes: 0, least: LEAST_LIMIT }
    }
}

impl Stand {
    /// Another limit where little is to be stored.
    pub fn at_least(least: Duration) -> Stand {
        Stand { least, ..Stand::default() }
    }

    /// So much more is to be stored from now on. Returns when that has to be done, and how long it
    /// may take.
    pub fn store(&mut self, bytes: u64) -> (Instant, Duration) {
        self.bytes = self.bytes.saturating_add(bytes);
        let limit = self.least.max(Duration::from_secs(self.bytes / SLOWEST_BYTES_PER_S));
        let begun = *self.begun.get_or_insert_with(Instant::now);
        (begun + limit, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_takes_it_for_all_processes_together() {
        let mut stand = Stand::default();
        let (end, limit) = stand.store(1 << 30);
        assert_eq!(limit, LEAST_LIMIT);
        // 64 s at the slowest rate, from the same moment on.
        let (later, limit) = stand.store(3 << 30);
        assert_eq!((later - end, limit), (Duration::from_secs(4), Duration::from_secs(64)));
        assert!(Until { called_off: None, end: Some((later, limit)) }.check().is_ok());
        let past = Until { called_off: None, end: Some((Instant::now(), limit)) };
        assert!(matches!(past.check(), Err(CaptureError::Slow { .. })));
    }

    #[test]
    fn who_does_not_want_it_is_heard_first() {
        let flag = AtomicBool::new(false);
        assert!(Until::called_off(&flag).check().is_ok());
        flag.store(true, Ordering::Relaxed);
        let end = Some((Instant::now(), Duration::ZERO));
        let both = Until { called_off: Some(&flag), end };
        assert!(matches!(both.check(), Err(CaptureError::CalledOff)));
    }
}
