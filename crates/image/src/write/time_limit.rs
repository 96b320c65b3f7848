//! How long a process stands still for what is stored of it meanwhile.

use crate::error::CaptureError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it stands still at most while nothing of it could be stored.
const LIMIT: Duration = Duration::from_secs(60);

/// What ends work for an image before it is done; nothing by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Until<'a> {
    /// Once this is true, the image is not wanted any more.
    pub called_off: Option<&'a AtomicBool>,
    /// Once this has had no news for long, it takes too long.
    pub stand: Option<&'a Stand>,
}

impl<'a> Until<'a> {
    /// Until this is true.
    pub fn called_off(flag: &'a AtomicBool) -> Until<'a> {
        Until { called_off: Some(flag), stand: None }
    }

    /// Fails once it is to end. To be asked between blocks.
    pub fn check(&self) -> Result<(), CaptureError> {
        if self.called_off.is_some_and(|off| off.load(Ordering::Relaxed)) {
            return Err(CaptureError::CalledOff);
        }
        match self.stand {
            Some(stand) if stand.is_over() => Err(CaptureError::Slow { limit: stand.limit }),
            _ => Ok(()),
        }
    }

    /// A block was stored.
    pub fn stored(&self) {
        self.stand.into_iter().for_each(Stand::stored);
    }
}

/// How long a family of processes stands still while nothing of its shared memory is stored: not
/// how long all of it takes. Nothing is kept of an image that is given up, so the next one would
/// have to store the same again, and where the storage is only slow, none would ever be done.
#[derive(Debug)]
pub struct Stand {
    limit: Duration,
    /// When the last block was stored, or the first one was begun.
    last: Mutex<Option<Instant>>,
}

impl Default for Stand {
    fn default() -> Stand {
        Stand::at_most(LIMIT)
    }
}

impl Stand {
    /// Another limit. [`Duration::MAX`] is none.
    pub fn at_most(limit: Duration) -> Stand {
        Stand { limit, last: Mutex::default() }
    }

    /// Blocks are stored from now on.
    pub fn begin(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn is_over(&self) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| last.elapsed() >= self.limit)
    }

    /// One was stored. That it took too long stays so: nobody can look before it is done.
    fn stored(&self) {
        if !self.is_over() {
            self.begin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::sleep;

    #[test]
    fn as_long_as_something_is_stored_it_goes_on() {
        let limit = Duration::from_secs(2);
        let stand = Stand::at_most(limit);
        let until = Until { called_off: None, stand: Some(&stand) };
        until.check().unwrap();
        stand.begin();
        let begun = Instant::now();
        while begun.elapsed() < limit + limit / 2 {
            sleep(limit / 40);
            until.check().unwrap();
            until.stored();
        }
        sleep(limit);
        assert!(matches!(until.check(), Err(CaptureError::Slow { .. })));
        // A block that took so long.
        until.stored();
        assert!(matches!(until.check(), Err(CaptureError::Slow { .. })));
        // The next process of the family.
        stand.begin();
        until.check().unwrap();
        let endless = Stand::at_most(Duration::MAX);
        endless.begin();
        Until { called_off: None, stand: Some(&endless) }.check().unwrap();
    }

    #[test]
    fn who_does_not_want_it_is_heard_first() {
        let flag = AtomicBool::new(false);
        assert!(Until::called_off(&flag).check().is_ok());
        flag.store(true, Ordering::Relaxed);
        let stand = Stand::at_most(Duration::ZERO);
        stand.begin();
        let both = Until { called_off: Some(&flag), stand: Some(&stand) };
        assert!(matches!(both.check(), Err(CaptureError::CalledOff)));
    }
}
