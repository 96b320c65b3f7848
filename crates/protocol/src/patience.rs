//! How long the other end of a connection may be silent before it counts as lost.
//!
//! Pure: the caller says what time it is. Kept true: the limit follows the longest silence that
//! turned out to be none, within bounds; time in which the caller itself did not run (a machine
//! that stood still) hardly counts; who is told the other end's limit bears more than that.

/// The clock is to be looked at so often; of a longer gap twice this counts.
pub const TICK_MS: u64 = 100;
/// Silence that is always borne.
pub const LEAST_MS: u64 = 2_000;
/// Silence that is never borne, unless the other end bears it.
pub const MOST_MS: u64 = 20_000;
/// The limit, in longest silences.
const TIMES: u64 = 8;

/// What is known of one connection.
#[derive(Debug, Clone)]
pub struct Patience {
    /// When the clock was looked at last.
    seen_ms: u64,
    /// Silence up to then.
    silent_ms: u64,
    /// Longest silence that ended, slowly forgotten.
    longest_ms: u64,
    /// What the other end bears.
    other_ms: u64,
}

impl Patience {
    pub fn new(now_ms: u64) -> Patience {
        Patience { seen_ms: now_ms, silent_ms: 0, longest_ms: 0, other_ms: 0 }
    }

    /// Something came.
    pub fn heard(&mut self, now_ms: u64) {
        self.pass(now_ms);
        self.longest_ms = self.silent_ms.max(self.longest_ms * 31 / 32);
        self.silent_ms = 0;
    }

    /// The other end says what it bears itself.
    pub fn told(&mut self, other_ms: u64) {
        self.other_ms = other_ms.min(MOST_MS);
    }

    /// Whether the other end has been silent for too long.
    pub fn over(&mut self, now_ms: u64) -> bool {
        self.pass(now_ms);
        self.silent_ms > self.limit_ms()
    }

    pub fn silent_ms(&self) -> u64 {
        self.silent_ms
    }

    pub fn limit_ms(&self) -> u64 {
        let own = (self.longest_ms * TIMES).clamp(LEAST_MS, MOST_MS);
        own.max(self.other_ms * 5 / 4)
    }

    fn pass(&mut self, now_ms: u64) {
        self.silent_ms += now_ms.saturating_sub(self.seen_ms).min(2 * TICK_MS);
        self.seen_ms = now_ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at the clock as a reader does; returns when the other end was given up.
    fn silence(patience: &mut Patience, from_ms: u64) -> u64 {
        let mut now = from_ms;
        while !patience.over(now) {
            now += TICK_MS;
        }
        now
    }

    #[test]
    fn silence_is_noticed_and_not_before_the_limit() {
        let mut patience = Patience::new(5_000);
        assert_eq!(silence(&mut patience, 5_000), 5_000 + LEAST_MS + TICK_MS);
    }

    #[test]
    fn the_limit_follows_what_it_was_used_to() {
        let mut patience = Patience::new(0);
        let mut now = 0;
        (0..10).for_each(|_| {
            now += TICK_MS;
            assert!(!patience.over(now));
        });
        patience.heard(now);
        assert_eq!(patience.limit_ms(), 8_000);
        assert_eq!(silence(&mut patience, now), now + 8_000 + TICK_MS);
        (0..300).for_each(|_| {
            now += TICK_MS;
            patience.heard(now);
        });
        assert_eq!(patience.limit_ms(), LEAST_MS);
    }

    #[test]
    fn no_silence_however_long_makes_it_boundless() {
        let mut patience = Patience::new(0);
        (1..1_000).for_each(|n| assert!(!patience.over(n * TICK_MS) || n > 20));
        patience.heard(1_000 * TICK_MS);
        assert_eq!(patience.limit_ms(), MOST_MS);
        patience.told(u64::MAX);
        assert_eq!(patience.limit_ms(), MOST_MS * 5 / 4);
    }

    #[test]
    fn time_in_which_nobody_looked_hardly_counts() {
        let mut patience = Patience::new(0);
        assert!(!patience.over(3_600_000));
        assert_eq!(patience.silent_ms(), 2 * TICK_MS);
        patience.heard(7_200_000);
        assert_eq!(patience.limit_ms(), 4 * TICK_MS * TIMES);
    }

    #[test]
    fn who_is_told_bears_more_than_the_other_end() {
        let (mut here, mut there) = (Patience::new(0), Patience::new(0));
        (1..=5).for_each(|n| assert!(!here.over(n * TICK_MS)));
        here.heard(500);
        there.heard(500);
        there.told(here.limit_ms());
        assert!(silence(&mut there, 500) > silence(&mut here, 500));
    }
}
