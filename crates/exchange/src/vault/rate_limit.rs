//! The rate at which a node sends for the vault, or reads what it keeps.
//!
//! Kept true: over any time no more leaves than the rate allows for it, and one burst.

use std::time::{Duration, Instant};

/// What may leave at once after a pause.
const BURST_BYTES: u64 = 256 << 10;

/// A limit.
pub struct Pace {
    /// Bytes a second; 0: no limit.
    rate: u64,
    /// When all that has left would have, at that rate.
    paid: Instant,
}

impl Pace {
    pub fn new(rate: u64) -> Pace {
        Pace { rate, paid: Instant::now() }
    }

    /// How long so many bytes, which are about to leave, are to wait.
    pub fn wait(&mut self, bytes: u64, now: Instant) -> Duration {
        if self.rate == 0 {
            return Duration::ZERO;
        }
        let time = |bytes: u64| Duration::from_secs_f64(bytes as f64 / self.rate as f64);
        let earliest = now.checked_sub(time(BURST_BYTES)).unwrap_or(now);
        self.paid = self.paid.max(earliest) + time(bytes);
        self.paid.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_leaves_than_the_rate_allows() {
        let begun = Instant::now();
        let (mut pace, mut now) = (Pace::new(1 << 20), begun + Duration::from_secs(9));
        let start = now;
        for _ in 0..64 {
            now += pace.wait(64 << 10, now);
        }
        let took = (now - start).as_secs_f64();
        assert!((3.7..4.0).contains(&took), "4 MiB at 1 MiB/s, less a burst: {took}");
        assert_eq!(Pace::new(0).wait(1 << 40, now), Duration::ZERO);
    }
}
