//! Images that are being brought to the archive: by which ways, and how many at a time.
//!
//! Kept true: no more bring something than may. What is brought, and how, is left to `archive`.

use eyrie_exchange::second_level::Ways;
use eyrie_objects::RateLimit;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Ranks whose images are brought at a time; of each a part of an object is in memory.
pub(crate) const AT_A_TIME: u32 = 4;

/// How long the end of a node waits for what is being brought, which ends with the piece that is
/// under way.
pub(crate) const ENDING: Duration = Duration::from_secs(5);

/// What is being brought from here.
#[derive(Default)]
pub(crate) struct Deposits {
    /// The ways past the controller, and the number that they are for.
    pub(crate) ways: Option<(u32, Arc<Offered>)>,
    pub(crate) given_up: Arc<AtomicBool>,
    pub(crate) turns: Arc<Turns>,
}

/// Ways past the controller.
pub(crate) struct Offered {
    pub(crate) ways: Ways,
    pub(crate) pace: RateLimit,
}

/// How many are bringing something, and how many may at a time.
#[derive(Default)]
pub(crate) struct Turns {
    busy: Mutex<u32>,
    left: Condvar,
}

/// The turn of one who brings something, to its end.
pub(crate) struct Turn(Arc<Turns>);

impl Turns {
    pub(crate) fn take(self: Arc<Turns>) -> Turn {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.left.wait_while(busy, |busy| *busy >= AT_A_TIME);
        *free.unwrap_or_else(PoisonError::into_inner) += 1;
        Turn(self)
    }

    /// Waits until nobody brings anything, but not for long.
    pub(crate) fn wait(&self) {
        let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.left.wait_timeout_while(busy, ENDING, |busy| *busy > 0));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.busy.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.left.notify_all();
    }
}
