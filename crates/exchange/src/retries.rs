//! For how long it is tried to have what does not come.
//!
//! Kept true: it ends; one long file does not end it, nor a loss that is noticed late.

use std::time::{Duration, Instant};

/// Between attempts.
pub const PAUSE: Duration = Duration::from_millis(100);
/// So often it is tried at least, as one attempt may end in the middle of a long file ...
const FEWEST_ATTEMPTS: u32 = 3;
/// ... and no more often while there is no room here, or it does not come out of an object store.
const ATTEMPTS_WHEN_FULL: u32 = 5;

/// Attempts since the last that came.
pub struct Retries {
    since: Instant,
    made: u32,
    /// Of these, such that hardly anything changes about.
    full: u32,
    patience: Duration,
}

impl Retries {
    /// `patience`: so long after the last that came what is not here cannot be had.
    pub fn new(patience: Duration) -> Retries {
        Retries { since: Instant::now(), made: 0, full: 0, patience }
    }

    /// Something has come.
    pub fn anew(&mut self) {
        (self.since, self.made) = (Instant::now(), 0);
    }

    pub fn fails(&mut self, hardly_changes: bool) {
        self.made += 1;
        self.full += u32::from(hardly_changes);
    }

    pub fn are_over(&self) -> bool {
        let late = self.made >= FEWEST_ATTEMPTS && self.since.elapsed() >= self.patience;
        late || self.full >= ATTEMPTS_WHEN_FULL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_come_is_tried_for_a_while_and_a_few_times() {
        let mut tries = Retries::new(Duration::ZERO);
        for made in 1..=FEWEST_ATTEMPTS {
            tries.fails(false);
            assert_eq!(tries.are_over(), made == FEWEST_ATTEMPTS);
        }
        tries.anew();
        assert!(!tries.are_over());
        let mut tries = Retries::new(Duration::from_secs(3600));
        (0..100).for_each(|_| tries.fails(false));
        assert!(!tries.are_over());
        (0..ATTEMPTS_WHEN_FULL).for_each(|_| tries.fails(true));
        assert!(tries.are_over());
    }
}
