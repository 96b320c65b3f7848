//! What a job has been through, added up from its events: the summary at its end, and its record.
//!
//! Kept true: nothing is taken from anywhere but events, in their order, so that whoever has them
//! comes to the same sums. What nobody measures (the time that logging takes) is not in it.

use crate::event::{Event, EventKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Moments of checkpoints that are remembered, for what is computed again.
const MOMENTS: usize = 64;

/// Upper bounds of the classes that pauses for checkpoints are counted in, in milliseconds; the
/// last class has none.
pub const PAUSE_BOUNDS_MS: [f64; PAUSE_CLASSES - 1] =
    [1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 10e3];
const PAUSE_CLASSES: usize = 13;

/// How ranks die that the end of a job, or a return of all, ends.
const ENDED: &str = "died of SIGKILL";

/// Sums over a job's events so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Times that something died, and was not yet back when it did: kills of ranks, losses of
    /// nodes that had ranks.
    pub deaths: u64,
    pub nodes_lost: u64,
    /// Ranks that came back after that, each time.
    pub recoveries: u64,
    /// Times that all ranks went back together, and how much of each was computed again.
    pub rollbacks: u64,
    pub again_ms: f64,
    /// New controllers.
    pub controllers: u64,
    pub output_differences: u64,
    /// From a death until all ranks were back, in all.
    pub recovery_ms: f64,
    pub checkpoints: u64,
    pub checkpoint_bytes: u64,
    /// How long ranks stood still for them, all ranks together.
    pub stood_ms: f64,
    /// How many checkpoints had pauses of each class (`PAUSE_BOUNDS_MS`).
    #[serde(skip)]
    pub pauses: [u64; PAUSE_CLASSES],
    #[serde(skip)]
    open: Open,
}

/// What is under way.
#[derive(Debug, Clone, Default, PartialEq)]
struct Open {
    down: BTreeSet<u32>,
    since_ms: f64,
    back_ms: f64,
    /// Deaths that belong to it.
    deaths: u64,
    /// Those of them that are the job's own doing if it ends now.
    ended: u64,
    nodes: BTreeMap<u32, u32>,
    /// When a set of checkpoints of this number began.
    moments: BTreeMap<u32, f64>,
}

/// How `checkpointed` says how long the rank stood still.
pub fn stood_text(ms: f64, mode: &str) -> String {
    format!("rank stood still for {ms:.2} ms ({mode})")
}

/// What that text says.
pub fn stood_ms(text: &str) -> Option<f64> {
    let number = text.strip_prefix("rank stood still for ")?.split(' ').next()?;
    number.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0)
}

impl Account {
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Account {
        let mut account = Account::default();
        events.into_iter().for_each(|event| account.take(event));
        account
    }

    /// One more event.
    pub fn take(&mut self, event: &Event) {
        match (event.event, event.rank) {
            (EventKind::Checkpointing, _) => self.begin_checkpoint(event),
            (EventKind::Checkpointed, _) => {
                self.checkpoints += 1;
                self.checkpoint_bytes += event.bytes.unwrap_or(0);
                let stood = stood_ms(&event.text).unwrap_or(0.0);
                self.stood_ms += stood;
                let class = PAUSE_BOUNDS_MS.partition_point(|bound| *bound < stood);
                self.pauses[class] += 1;
            }
            (EventKind::Started, Some(rank)) => self.came(rank, event),
            (EventKind::Detected, Some(rank)) => {
                let alone = !event.text.ends_with(crate::event::WITH_UNIT);
                let later = !self.open.down.is_empty();
                self.died([rank], event.ms, u64::from(alone));
                self.open.ended += u64::from(later && alone && event.text == ENDED);
            }
            (EventKind::NodeLost, _) => self.lose(event),
            (EventKind::Restored, Some(rank)) => {
                self.recoveries += u64::from(event.took_ms.is_some());
                self.came(rank, event);
            }
            (EventKind::CaughtUp, _) => self.open.back_ms = event.ms.max(self.open.back_ms),
            (EventKind::RolledBack, _) => {
                self.rollbacks += 1;
                self.again_ms += event.took_ms.unwrap_or(0.0);
                // The others were ended, to go back, too.
                self.deaths -= self.open.deaths.saturating_sub(1);
                self.open.deaths = self.open.deaths.min(1);
                self.open.ended = 0;
            }
            (EventKind::Exited, Some(rank)) => {
                self.open.nodes.remove(&rank);
                self.open.down.remove(&rank);
            }
            (EventKind::ControllerLost, _) => self.controllers += 1,
            (EventKind::OutputDiffers, _) => self.output_differences += 1,
            (EventKind::Ended, _) => {
                if !self.open.down.is_empty() {
                    self.deaths -= self.open.ended;
                    self.open.ended = 0;
                }
                self.close();
            }
            _ => {}
        }
    }

    /// How long ago a moment was that all ranks go back to: a set of checkpoints, or, for 0, the
    /// beginning. None: it is not known any more.
    pub fn since(&self, generation: u32, now_ms: f64) -> Option<f64> {
        let moment = if generation == 0 { Some(&0.0) } else { self.open.moments.get(&generation) };
        // What was done until the first rank died counts.
        let until = if self.open.down.is_empty() { now_ms } else { self.open.since_ms };
        moment.map(|at| (until - at).max(0.0))
    }

    fn begin_checkpoint(&mut self, event: &Event) {
        let Some(generation) = event.generation else { return };
        self.open.moments.entry(generation).or_insert(event.ms);
        if self.open.moments.len() > MOMENTS {
            self.open.moments.pop_first();
        }
    }

    fn died(&mut self, ranks: impl IntoIterator<Item = u32>, ms: f64, deaths: u64) {
        if self.open.down.is_empty() {
            self.close();
            (self.open.since_ms, self.open.back_ms) = (ms, ms);
            (self.open.deaths, self.open.ended) = (0, 0);
        }
        self.open.down.extend(ranks);
        self.open.deaths += deaths;
        self.deaths += deaths;
    }

    fn lose(&mut self, event: &Event) {
        self.nodes_lost += 1;
        let there = |(rank, node): (&u32, &u32)| (Some(*node) == event.node).then_some(*rank);
        let ranks: Vec<u32> = self.open.nodes.iter().filter_map(there).collect();
        if !ranks.is_empty() {
            self.died(ranks, event.ms, 1);
        }
    }

    fn came(&mut self, rank: u32, event: &Event) {
        if let Some(node) = event.node {
            self.open.nodes.insert(rank, node);
        }
        if self.open.down.remove(&rank) {
            self.open.back_ms = event.ms;
        }
    }

    /// Whatever died is back, or will not be.
    fn close(&mut self) {
        self.recovery_ms += (self.open.back_ms - self.open.since_ms).max(0.0);
        self.open.since_ms = self.open.back_ms;
    }

    /// `recovery_ms` with that of the last deaths, as far as ranks are back.
    pub fn recovery_so_far_ms(&self) -> f64 {
        self.recovery_ms + (self.open.back_ms - self.open.since_ms).max(0.0)
    }

    /// Whether there is anything to tell.
    pub fn is_eventful(&self) -> bool {
        self.recoveries > 0 || self.rollbacks > 0 || self.controllers > 0
    }

    /// Whether nothing had to be done twice by the whole job, and nothing was printed otherwise.
    pub fn lost_nothing(&self) -> bool {
        self.rollbacks == 0 && self.output_differences == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ms: f64, kind: EventKind, rank: Option<u32>) -> Event {
        Event { rank, ..Event::new(ms, kind) }
    }

    fn taken(ms: f64, rank: u32, generation: u32) -> [Event; 2] {
        let mut begun = event(ms, EventKind::Checkpointing, Some(rank));
        begun.generation = Some(generation);
        let mut done = event(ms + 5.0, EventKind::Checkpointed, Some(rank));
        (done.generation, done.bytes) = (Some(generation), Some(100));
        done.text = stood_text(1.5, "twin") + "; 1.0 MiB lie in images of other ranks";
        [begun, done]
    }

    #[test]
    fn a_rank_that_comes_back_is_a_recovery_and_takes_time() {
        let mut all = vec![event(0.0, EventKind::Started, Some(2))];
        all.extend(taken(10.0, 2, 1));
        all.push(event(100.0, EventKind::Detected, Some(2)));
        let mut back = event(120.0, EventKind::Restored, Some(2));
        back.took_ms = Some(20.0);
        all.extend([back, event(150.0, EventKind::CaughtUp, Some(2))]);
        assert_eq!(Account::of(&all).recovery_so_far_ms(), 50.0);
        all.push(event(500.0, EventKind::Ended, None));
        let account = Account::of(&all);
        assert_eq!((account.deaths, account.recoveries, account.recovery_ms), (1, 1, 50.0));
        assert_eq!(account.recovery_so_far_ms(), 50.0);
        assert_eq!((account.checkpoints, account.checkpoint_bytes), (1, 100));
        assert_eq!(account.stood_ms, 1.5);
        assert_eq!((account.pauses[1], account.pauses.iter().sum::<u64>()), (1, 1));
        assert!(account.lost_nothing() && account.is_eventful());
    }

    #[test]
    fn who_is_ended_to_go_back_has_not_died() {
        let mut all: Vec<Event> = (0..4).flat_map(|rank| taken(100.0, rank, 1)).collect();
        all.extend((0..4).map(|rank| event(900.0, EventKind::Detected, Some(rank))));
        let before = Account::of(&all);
        assert_eq!(before.since(1, 901.0), Some(800.0));
        assert_eq!((before.since(0, 901.0), before.since(7, 901.0)), (Some(900.0), None));
        let mut back = event(901.0, EventKind::RolledBack, None);
        back.took_ms = before.since(1, 901.0);
        all.push(back);
        let account = Account::of(&all);
        assert_eq!((account.deaths, account.rollbacks, account.again_ms), (1, 1, 800.0));
        assert!(!account.lost_nothing());
    }

    #[test]
    fn who_is_ended_with_the_job_has_not_died() {
        let mut own = event(10.0, EventKind::Detected, Some(1));
        own.text = String::from("died of SIGSEGV");
        let mut other = event(12.0, EventKind::Detected, Some(0));
        other.text = String::from(ENDED);
        let ended = event(13.0, EventKind::Ended, None);
        assert_eq!(Account::of(&[own.clone(), other.clone(), ended.clone()]).deaths, 1);
        // Who is back had died, and so had who was the first.
        let mut back = event(20.0, EventKind::Restored, Some(1));
        back.took_ms = Some(1.0);
        let two = [back.clone(), event(21.0, EventKind::Restored, Some(0)), ended.clone()];
        let all: Vec<Event> = [own, other.clone()].into_iter().chain(two).collect();
        assert_eq!(Account::of(&all).deaths, 2);
        assert_eq!(Account::of(&[other, ended]).deaths, 1);
    }

    #[test]
    fn a_node_takes_its_ranks_along_and_a_spare_none() {
        let mut all = Vec::new();
        for (rank, node) in [(0, 0), (1, 1), (2, 1)] {
            let mut started = event(1.0, EventKind::Started, Some(rank));
            started.node = Some(node);
            all.push(started);
        }
        for (ms, node) in [(50.0, 1), (60.0, 7)] {
            let mut lost = event(ms, EventKind::NodeLost, None);
            lost.node = Some(node);
            all.push(lost);
        }
        for (ms, rank) in [(80.0, 1), (90.0, 2)] {
            let mut back = event(ms, EventKind::Restored, Some(rank));
            (back.took_ms, back.node) = (Some(30.0), Some(0));
            all.push(back);
        }
        all.push(event(200.0, EventKind::Ended, None));
        let account = Account::of(&all);
        assert_eq!((account.deaths, account.nodes_lost, account.recoveries), (1, 2, 2));
        assert_eq!(account.recovery_ms, 40.0);
    }
}
