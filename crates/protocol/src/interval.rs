//! How long to wait between two checkpoints of a rank: Young's and Daly's optimum from what a
//! checkpoint costs and how often ranks die.
//!
//! Pure. Kept true: never longer than what the user gave, never shorter than `SHORTEST_MS` unless
//! the user gave less.

use serde::{Deserialize, Serialize};

/// No shorter interval is chosen.
pub const SHORTEST_MS: u64 = 1_000;
/// Before anything is known: one death in so much time of one rank (a week).
const PRIOR_MS: f64 = 7.0 * 86_400_000.0;
/// How many seen deaths that is worth.
const PRIOR_DEATHS: f64 = 0.01;
/// How much one more measurement of the cost counts.
const WEIGHT: f64 = 0.3;

/// What is known of costs and deaths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interval {
    given_ms: u64,
    ranks: u32,
    measured: bool,
    begun_ms: u64,
    cost_ms: Option<f64>,
    deaths: u64,
}

impl Interval {
    /// `measured`: by measurement; otherwise always `given_ms`.
    pub fn new(given_ms: u64, ranks: u32, measured: bool, now_ms: u64) -> Self {
        Interval { given_ms, ranks, measured, begun_ms: now_ms, cost_ms: None, deaths: 0 }
    }

    /// The user's interval.
    pub fn longest_ms(&self) -> u64 {
        self.given_ms
    }

    pub fn died(&mut self) {
        self.deaths += 1;
    }

    pub fn cost(&mut self, took_ms: f64) {
        let took_ms = took_ms.max(0.1);
        let old = self.cost_ms.unwrap_or(took_ms);
        self.cost_ms = Some(old + (took_ms - old) * WEIGHT);
    }

    /// Mean time between two deaths of one rank: what was seen, and a little of the prior.
    fn between_deaths_ms(&self, now_ms: u64) -> f64 {
        let seen = now_ms.saturating_sub(self.begun_ms) as f64 * f64::from(self.ranks);
        (seen + PRIOR_DEATHS * PRIOR_MS) / (self.deaths as f64 + PRIOR_DEATHS)
    }

    /// The interval now.
    pub fn every_ms(&self, now_ms: u64) -> u64 {
        let Some(best) = self.best_ms(now_ms) else { return self.given_ms };
        (best as u64).max(SHORTEST_MS).min(self.given_ms)
    }

    /// Daly's optimum to the second order, where it holds.
    fn best_ms(&self, now_ms: u64) -> Option<f64> {
        let cost = self.cost_ms.filter(|_| self.measured && self.given_ms > 0)?;
        let mean = self.between_deaths_ms(now_ms);
        if cost >= 2.0 * mean {
            return Some(mean);
        }
        let part = cost / (2.0 * mean);
        Some((2.0 * cost * mean).sqrt() * (1.0 + part.sqrt() / 3.0 + part / 9.0) - cost)
    }

    /// Why it is that long.
    pub fn reason(&self, now_ms: u64) -> String {
        let Some(best) = self.best_ms(now_ms) else { return String::from("as given") };
        let (cost, mean) = (self.cost_ms.unwrap_or(0.0), self.between_deaths_ms(now_ms) / 3.6e6);
        let known = format!("a checkpoint costs {cost:.1} ms, a rank dies every {mean:.1} h");
        if best as u64 > self.given_ms { format!("{known}; not longer than given") } else { known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_optimum_is_youngs_for_cheap_checkpoints() {
        let mut i = Interval::new(u64::MAX, 1, true, 0);
        assert_eq!(i.every_ms(0), u64::MAX, "nothing is known");
        i.cost(100.0);
        let young = (2.0 * 100.0 * PRIOR_MS).sqrt();
        assert!((i.every_ms(0) as f64 / young - 1.0).abs() < 0.01);
    }

    #[test]
    fn it_stays_within_what_was_given() {
        let mut i = Interval::new(100, 4, true, 0);
        i.cost(5000.0);
        assert_eq!(i.every_ms(1000), 100);
        assert!(i.reason(1000).ends_with("not longer than given"));
        let mut i = Interval::new(60_000, 1, true, 0);
        i.cost(0.1);
        (0..100_000).for_each(|_| i.died());
        assert_eq!(i.every_ms(10), SHORTEST_MS);
        let mut fixed = Interval::new(5000, 1, false, 0);
        fixed.cost(1.0);
        assert_eq!((fixed.every_ms(1), fixed.reason(1).as_str()), (5000, "as given"));
    }
}
