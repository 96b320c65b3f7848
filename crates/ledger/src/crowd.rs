//! Whether others want the core that a thread runs on, by what the kernel counts for it anyway.

use std::time::Duration;

/// Which part of the time a thread has waited for a core if others want it: more than what the
/// kernel's own threads take on a quiet machine.
const PART: u32 = 16;
/// If that is not known: one switch in so long a time, and at least so many.
const SWITCH_EVERY: Duration = Duration::from_millis(50);
const SWITCHES: u64 = 2;

/// What a thread has met with since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// When.
    pub at: Duration,
    /// How often the core was taken away from it.
    pub forced: u64,
    /// How long it was ready to run and had no core. `None`: the kernel does not tell.
    pub waited: Option<Duration>,
}

impl Reading {
    /// Whether others have wanted the core since another reading of the same thread.
    pub fn is_crowded_since(&self, before: &Reading) -> bool {
        let span = self.at.saturating_sub(before.at);
        match (before.waited, self.waited) {
            (Some(then), Some(waited)) => waited.saturating_sub(then).saturating_mul(PART) > span,
            _ => {
                let forced = self.forced.saturating_sub(before.forced);
                let most = SWITCH_EVERY.saturating_mul(u32::try_from(forced).unwrap_or(u32::MAX));
                forced >= SWITCHES && most > span
            }
        }
    }
}

/// How long a thread was ready and did not run: the second number of its `schedstat`.
pub fn waited(schedstat: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(schedstat).ok()?;
    let nanos = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_ms: u64, forced: u64, waited_ms: Option<u64>) -> Reading {
        let at = Duration::from_millis(at_ms);
        Reading { at, forced, waited: waited_ms.map(Duration::from_millis) }
    }

    #[test]
    fn who_waits_for_a_core_is_in_a_crowd() {
        let before = reading(1_000, 7, Some(50));
        assert!(reading(1_016, 7, Some(52)).is_crowded_since(&before));
        assert!(
            !reading(1_016, 9, Some(51)).is_crowded_since(&before),
            "a moment's work of others"
        );
        assert!(!reading(1_016, 0, Some(0)).is_crowded_since(&before), "another thread's");
    }

    #[test]
    fn switches_count_where_waits_are_not_told() {
        let before = reading(1_000, 7, None);
        assert!(reading(1_010, 9, None).is_crowded_since(&before));
        assert!(!reading(1_010, 8, None).is_crowded_since(&before), "once");
        assert!(!reading(2_000, 9, None).is_crowded_since(&before), "seldom");
        assert!(reading(1_010, 9, Some(90)).is_crowded_since(&before));
        assert!(reading(1_010, u64::MAX, None).is_crowded_since(&before));
    }

    #[test]
    fn the_kernels_line_is_read() {
        assert_eq!(waited(b"100 2000 30\n"), Some(Duration::from_nanos(2000)));
        assert_eq!(waited(b"100"), None);
        assert_eq!(waited(b"1 x 3"), None);
    }
}
