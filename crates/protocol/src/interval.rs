//! How long to wait between two checkpoints of a rank: Young's and Daly's optimum from what a
//! checkpoint costs and how often ranks die (J. W. Young, A first order approximation to the
//! optimum checkpoint interval, CACM 17(9), 1974; J. T. Daly, A higher order estimate of the
//! optimum checkpoint interval for restart dumps, FGCS 22(3), 2006).
//!
//! In both the cost is the time that the program does not get on for. The rank stands for a part of
//! a checkpoint only; what follows costs it as much as it lacks the processors meanwhile (`Cost`).
//!
//! Pure. Kept true: never longer than what the user gave, never shorter than `SHORTEST_MS` unless
//! the user gave less.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// No shorter interval is chosen.
pub const SHORTEST_MS: u64 = 1_000;
/// Before anything is known: one death in so much time of one rank (a week).
const PRIOR_MS: f64 = 7.0 * 86_400_000.0;
/// How many seen deaths that is worth.
const PRIOR_DEATHS: f64 = 0.01;
/// How much one more measurement of the cost counts.
const WEIGHT: f64 = 0.3;

/// What a checkpoint costs the program, all in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cost {
    /// From its beginning to the complete image, and what follows for which the rank waits.
    pub took_ms: f64,
    /// The rank stood still.
    pub stood_ms: f64,
    /// Processor time for storing while it ran.
    pub cpu_ms: f64,
    /// Which part of that time no processor was idle, from 0 to 1.
    pub busy: f64,
    /// Nothing of it went on beside the program.
    pub whole: bool,
}

impl Cost {
    /// One that the program waits for from beginning to end.
    pub fn whole(took_ms: f64) -> Cost {
        Cost { took_ms, stood_ms: took_ms, whole: true, ..Cost::default() }
    }

    /// One of ranks that are checkpointed together, given with their nodes. All wait for the one
    /// that stands longest; storing takes from the ranks of a node what it takes of the node's
    /// processors, and nodes store at the same time.
    pub fn of_set(parts: impl IntoIterator<Item = (u32, Cost)>) -> Cost {
        let (mut all, mut nodes) = (Cost::default(), BTreeMap::<u32, (f64, f64)>::new());
        for (node, cost) in parts {
            all.took_ms = all.took_ms.max(cost.took_ms);
            all.stood_ms = all.stood_ms.max(cost.stood_ms);
            all.whole |= cost.whole;
            let (cpu_ms, lost_ms) = nodes.entry(node).or_default();
            *cpu_ms += cost.cpu_ms.max(0.0);
            *lost_ms += cost.lost_ms();
        }
        let most = nodes.into_values().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default();
        let busy = if most.0 > 0.0 { most.1 / most.0 } else { 0.0 };
        Cost { cpu_ms: most.0, busy, ..all }
    }

    /// What storing takes of processors that are not idle.
    fn lost_ms(&self) -> f64 {
        let busy = if self.busy.is_finite() { self.busy.clamp(0.0, 1.0) } else { 1.0 };
        self.cpu_ms.max(0.0) * busy
    }

    /// `stood + cpu * busy`, at most `took`: storing takes from the program what it takes of
    /// processors that are not idle, and never longer than it lasts.
    pub fn ms(&self) -> f64 {
        let took_ms = self.took_ms.max(0.0);
        if self.whole {
            return took_ms;
        }
        (self.stood_ms.max(0.0) + self.lost_ms()).min(took_ms)
    }

    /// What it is made of.
    fn why(&self) -> String {
        if self.whole {
            return String::from("the program waits for all of it");
        }
        let Cost { stood_ms, cpu_ms, busy, took_ms, .. } = self;
        let percent = busy.clamp(0.0, 1.0) * 100.0;
        format!(
            "the last one stood {stood_ms:.1} ms and took {cpu_ms:.1} ms of processors that were \
             busy for {percent:.0} %, in {took_ms:.1} ms"
        )
    }
}

/// What is known of costs and deaths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interval {
    given_ms: u64,
    ranks: u32,
    measured: bool,
    begun_ms: u64,
    cost_ms: Option<f64>,
    /// The last one.
    latest: Cost,
    deaths: u64,
}

impl Interval {
    /// `measured`: by measurement; otherwise always `given_ms`.
    pub fn new(given_ms: u64, ranks: u32, measured: bool, now_ms: u64) -> Self {
        let (cost_ms, latest) = (None, Cost::default());
        Interval { given_ms, ranks, measured, begun_ms: now_ms, cost_ms, latest, deaths: 0 }
    }

    /// The user's interval.
    pub fn longest_ms(&self) -> u64 {
        self.given_ms
    }

    pub fn died(&mut self) {
        self.deaths += 1;
    }

    pub fn cost(&mut self, cost: Cost) {
        let ms = cost.ms().max(0.1);
        let old = self.cost_ms.unwrap_or(ms);
        self.cost_ms = Some(old + (ms - old) * WEIGHT);
        self.latest = cost;
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
        let why = self.latest.why();
        let known =
            format!("a checkpoint costs {cost:.1} ms ({why}), a rank dies every {mean:.1} h");
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
        i.cost(Cost::whole(100.0));
        let young = (2.0 * 100.0 * PRIOR_MS).sqrt();
        assert!((i.every_ms(0) as f64 / young - 1.0).abs() < 0.01);
    }

    #[test]
    fn it_stays_within_what_was_given() {
        let mut i = Interval::new(100, 4, true, 0);
        i.cost(Cost::whole(5000.0));
        assert_eq!(i.every_ms(1000), 100);
        assert!(i.reason(1000).ends_with("not longer than given"));
        let mut i = Interval::new(60_000, 1, true, 0);
        i.cost(Cost::whole(0.1));
        (0..100_000).for_each(|_| i.died());
        assert_eq!(i.every_ms(10), SHORTEST_MS);
        let mut fixed = Interval::new(5000, 1, false, 0);
        fixed.cost(Cost::whole(1.0));
        assert_eq!((fixed.every_ms(1), fixed.reason(1).as_str()), (5000, "as given"));
    }

    #[test]
    fn a_set_costs_the_longest_stand_and_what_storing_takes_of_one_node() {
        let one =
            |stood_ms, cpu_ms, busy| Cost { took_ms: 1000.0, stood_ms, cpu_ms, busy, whole: false };
        let near = [(0, one(5.0, 100.0, 1.0)), (0, one(9.0, 300.0, 0.5))];
        assert_eq!(Cost::of_set(near).ms(), 9.0 + 250.0);
        let far = [(0, one(5.0, 100.0, 1.0)), (1, one(9.0, 300.0, 0.5))];
        assert_eq!(Cost::of_set(far).ms(), 9.0 + 150.0, "nodes store at the same time");
        let many = (0..9).map(|_| (0, one(5.0, 400.0, 1.0)));
        assert_eq!(Cost::of_set(many).ms(), 1000.0, "not longer than it takes");
        let stands = [(0, Cost::whole(70.0)), (0, one(5.0, 1.0, 0.0))];
        assert_eq!(Cost::of_set(stands).ms(), 1000.0);
        assert_eq!(Cost::of_set([]), Cost::default());
    }

    #[test]
    fn storing_costs_what_it_takes_of_busy_processors() {
        let cost = Cost { took_ms: 1000.0, stood_ms: 5.0, cpu_ms: 400.0, busy: 0.0, whole: false };
        assert_eq!(cost.ms(), 5.0, "there is an idle processor all the time");
        assert_eq!(Cost { busy: 0.25, ..cost }.ms(), 105.0);
        assert_eq!(Cost { busy: 1.0, ..cost }.ms(), 405.0);
        // It waits for its storage most of the time, or stores with several threads.
        assert_eq!(Cost { busy: 1.0, cpu_ms: 3000.0, ..cost }.ms(), 1000.0);
        assert_eq!(Cost { whole: true, ..cost }.ms(), 1000.0);
        assert_eq!(Cost::whole(7.0).ms(), 7.0);
        // From another node: nothing of it is believed that cannot be.
        assert_eq!(Cost { busy: f64::NAN, cpu_ms: 1.0, ..cost }.ms(), 6.0);
        assert_eq!(Cost { busy: -3.0, stood_ms: -1.0, ..cost }.ms(), 0.0);
    }

    #[test]
    fn a_cheaper_checkpoint_comes_more_often_and_says_why() {
        let with = |cost| {
            let mut i = Interval::new(u64::MAX, 1, true, 0);
            i.cost(cost);
            i
        };
        let cost = Cost { took_ms: 9000.0, stood_ms: 9.0, cpu_ms: 900.0, busy: 0.1, whole: false };
        let (beside, whole) = (with(cost), with(Cost::whole(9000.0)));
        let times = whole.every_ms(0) as f64 / beside.every_ms(0) as f64;
        let root = (9000.0f64 / 99.0).sqrt();
        assert!((times / root - 1.0).abs() < 0.01, "{times} {root}");
        let why = beside.reason(0);
        assert!(why.contains("costs 99.0 ms (the last one stood 9.0 ms"), "{why}");
        assert!(whole.reason(0).contains("the program waits for all of it"));
    }
}
