//! Who checkpoints when, and why then: all ranks once soon after the start, then by a policy;
//! requests and full logs before their turn.
//!
//! Pure: time comes in as milliseconds. Kept true: never two checkpoints of one rank are under way,
//! and no more at once than the policy has; every live rank gets its turn; a request is served
//! once, after the moment it was made; a rank that falls due while the store is at work waits for
//! that, once; however short the interval, the measured policy leaves the
//! job half of the time without any.

use crate::interval::{Cost, Interval};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// Checkpoints under way at one time, where the policy does not want more.
pub const MAX_RUNNING: usize = 1;
/// A log that is so full has checkpoints brought forward.
pub const PRESSED_PERCENT: u64 = 75;

/// In which order ranks are checkpointed (the first three are the Eagle paper's).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
pub enum Policy {
    /// At each interval one after the other, without a pause
    #[value(name = "sr")]
    Sequential,
    /// At each interval all at once
    #[value(name = "br")]
    Batch,
    /// Each by a timer of its own, spread over the interval
    #[value(name = "st")]
    Timer,
    /// One at a time, spread over an interval that follows from what a checkpoint costs and how
    /// often ranks die, and is at most --ckpt-every
    #[default]
    Auto,
}

impl Policy {
    pub fn name(self) -> &'static str {
        match self {
            Policy::Sequential => "sr",
            Policy::Batch => "br",
            Policy::Timer => "st",
            Policy::Auto => "auto",
        }
    }

    fn most_running(self, ranks: usize) -> usize {
        match self {
            Policy::Sequential | Policy::Auto => MAX_RUNNING,
            Policy::Batch | Policy::Timer => ranks,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Slot {
    due_ms: u64,
    /// Its first turn in the stagger.
    turn_ms: u64,
    live: bool,
    busy: bool,
    /// When its last checkpoint began.
    begun_ms: u64,
    /// Whose log is how full, if that brought it forward.
    pressed: Option<(u32, u64)>,
}

/// Why the next checkpoint of a rank is when it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There is no process, or checkpoints are taken on request only.
    Never,
    UnderWay,
    Asked,
    /// The log of `of` is so full, and this rank's checkpoint frees it.
    Log {
        of: u32,
        percent: u64,
    },
    /// It is due, and the store is at work on what it has.
    Store,
    /// In so many milliseconds, by the interval; `first`: before the first interval is over.
    Due {
        in_ms: u64,
        every_ms: u64,
        first: bool,
        reason: String,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Never => write!(f, "only on request"),
            Why::UnderWay => write!(f, "under way"),
            Why::Asked => write!(f, "as soon as it can be: it was asked for"),
            Why::Log { of, percent } => {
                write!(f, "as soon as it can be: the log of rank {of} is {percent} % full")
            }
            Why::Store => write!(f, "when the vault has what it is taking"),
            Why::Due { in_ms, first: true, .. } => {
                write!(f, "in {:.1} s: soon after the start", seconds(*in_ms))
            }
            Why::Due { in_ms, every_ms, reason, .. } => {
                let (in_s, every_s) = (seconds(*in_ms), seconds(*every_ms));
                write!(f, "in {in_s:.1} s: every {every_s:.1} s ({reason})")
            }
        }
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// The order of checkpoints in one job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Scheduler {
    policy: Policy,
    interval: Interval,
    slots: Vec<Slot>,
    asked: VecDeque<u32>,
    running: usize,
    /// Until then only requests and full logs are served.
    rest_until_ms: u64,
    /// Since when the store of images is at work on some.
    store_since_ms: Option<u64>,
}

impl Scheduler {
    /// By measurement: see `with`.
    pub fn new(ranks: u32, every_ms: u64, first_ms: u64, now_ms: u64) -> Self {
        Scheduler::with(Policy::Auto, ranks, every_ms, first_ms, now_ms)
    }

    /// `every_ms` = 0: only on request. `first_ms`: when all have been checkpointed once, at most
    /// `every_ms`.
    pub fn with(policy: Policy, ranks: u32, every_ms: u64, first_ms: u64, now_ms: u64) -> Self {
        let spread = |over: u64, r: u64| match policy {
            Policy::Sequential | Policy::Batch => now_ms + over,
            Policy::Timer | Policy::Auto => now_ms + over * (r + 1) / u64::from(ranks),
        };
        let slots = (0..u64::from(ranks))
            .map(|r| Slot {
                due_ms: spread(first_ms.min(every_ms), r),
                turn_ms: spread(every_ms, r),
                live: false,
                busy: false,
                begun_ms: 0,
                pressed: None,
            })
            .collect();
        let interval = Interval::new(every_ms, ranks, policy == Policy::Auto, now_ms);
        Scheduler {
            policy,
            interval,
            slots,
            asked: VecDeque::new(),
            running: 0,
            rest_until_ms: 0,
            store_since_ms: None,
        }
    }

    /// Whether `rank` has a process that could be checkpointed.
    pub fn set_live(&mut self, rank: u32, live: bool) {
        self.slots[rank as usize].live = live;
        if !live {
            self.asked.retain(|r| *r != rank);
            self.slots[rank as usize].pressed = None;
        }
    }

    /// A rank died of a fault.
    pub fn died(&mut self) {
        self.interval.died();
    }

    /// What a checkpoint cost.
    pub fn cost(&mut self, cost: Cost) {
        self.interval.cost(cost);
    }

    /// Since when the store of images is at work on some; `None`: it rests. What falls due
    /// meanwhile waits, requests and full logs do not.
    pub fn load(&mut self, since_ms: Option<u64>) {
        self.store_since_ms = since_ms;
    }

    /// Whether the store was at work already when it fell due.
    fn waits(&self, slot: &Slot) -> bool {
        self.store_since_ms.is_some_and(|since| since <= slot.due_ms)
    }

    /// Asks for a checkpoint of `rank` out of turn. False: it has no process.
    pub fn request(&mut self, rank: u32) -> bool {
        if !self.slots[rank as usize].live {
            return false;
        }
        if !self.asked.contains(&rank) {
            self.asked.push_back(rank);
        }
        true
    }

    /// Whether a request of `rank` waits for its turn.
    pub fn requested(&self, rank: u32) -> bool {
        self.asked.contains(&rank)
    }

    /// The log of `of` is `percent` full, and a checkpoint of `rank` frees most of it.
    pub fn press(&mut self, rank: u32, of: u32, percent: u64) {
        let slot = &mut self.slots[rank as usize];
        if percent >= PRESSED_PERCENT && slot.live && !slot.busy {
            slot.pressed = Some((of, percent));
        }
    }

    pub fn busy(&self, rank: u32) -> bool {
        self.slots[rank as usize].busy
    }

    pub fn idle(&self) -> bool {
        self.running == 0
    }

    /// Whether `pick` would give a rank now.
    pub fn is_due(&self, now_ms: u64) -> bool {
        let asked = self.asked.iter().any(|r| !self.slots[*r as usize].busy);
        self.running < self.policy.most_running(self.slots.len())
            && (asked || self.pressed().or_else(|| self.longest_due(now_ms)).is_some())
    }

    /// The rank to checkpoint now, if any; it counts as under way until `finished`.
    pub fn pick(&mut self, now_ms: u64) -> Option<u32> {
        if self.running >= self.policy.most_running(self.slots.len()) {
            return None;
        }
        let asked = self.asked.iter().position(|r| !self.slots[*r as usize].busy);
        let rank = match asked {
            Some(i) => self.asked.remove(i)?,
            None => self.pressed().or_else(|| self.longest_due(now_ms))?,
        };
        let every_ms = self.interval.every_ms(now_ms);
        let slot = &mut self.slots[rank as usize];
        slot.busy = true;
        slot.begun_ms = now_ms;
        slot.pressed = None;
        slot.due_ms = if now_ms < slot.turn_ms && self.policy != Policy::Auto {
            slot.turn_ms
        } else if now_ms < slot.turn_ms {
            slot.turn_ms.min(now_ms + every_ms)
        } else if [Policy::Sequential, Policy::Batch].contains(&self.policy) {
            // The next round begins when the interval is over, whenever this turn came.
            let rounds = (now_ms - slot.turn_ms) / every_ms.max(1) + 1;
            slot.turn_ms + rounds * every_ms
        } else {
            now_ms.max(slot.due_ms).saturating_add(every_ms)
        };
        self.running += 1;
        Some(rank)
    }

    /// A checkpoint of `rank` begins out of turn, whatever else is under way; it counts until
    /// `finished`. False: there can be none now.
    pub fn begin(&mut self, rank: u32, now_ms: u64) -> bool {
        let slot = &mut self.slots[rank as usize];
        if !slot.live || slot.busy {
            return false;
        }
        (slot.busy, slot.begun_ms, slot.pressed) = (true, now_ms, None);
        self.asked.retain(|r| *r != rank);
        self.running += 1;
        true
    }

    /// A checkpoint of `rank` that came together with those of all others was in place of its own:
    /// the next one comes an interval later.
    pub fn had_turn(&mut self, rank: u32, now_ms: u64) {
        let every_ms = self.interval.every_ms(now_ms);
        let slot = &mut self.slots[rank as usize];
        if slot.due_ms <= now_ms.saturating_add(every_ms / 2) {
            slot.due_ms = now_ms.max(slot.due_ms).saturating_add(every_ms);
        }
    }

    fn pressed(&self) -> Option<u32> {
        let full = |s: &(usize, &Slot)| s.1.pressed.filter(|_| s.1.live && !s.1.busy);
        let most = self.slots.iter().enumerate().filter(|s| full(s).is_some());
        most.max_by_key(|s| s.1.pressed.map(|p| p.1)).map(|s| s.0 as u32)
    }

    fn longest_due(&self, now_ms: u64) -> Option<u32> {
        if self.interval.longest_ms() == 0 || now_ms < self.rest_until_ms {
            return None;
        }
        let due =
            |s: &&(usize, &Slot)| s.1.live && !s.1.busy && s.1.due_ms <= now_ms && !self.waits(s.1);
        let all: Vec<(usize, &Slot)> = self.slots.iter().enumerate().collect();
        all.iter().filter(due).min_by_key(|s| s.1.due_ms).map(|s| s.0 as u32)
    }

    /// The checkpoint of `rank` is over, well or badly.
    pub fn finished(&mut self, rank: u32, now_ms: u64) {
        let every_ms = self.interval.every_ms(now_ms);
        let slot = &mut self.slots[rank as usize];
        if slot.busy {
            slot.busy = false;
            self.running -= 1;
            if self.policy == Policy::Auto {
                // As long as it took: on a slow node the ranks would else hardly get on.
                self.rest_until_ms = now_ms.saturating_add(now_ms.saturating_sub(slot.begun_ms));
            }
        }
        // A checkpoint that took longer than the interval does not call for the next at once.
        slot.due_ms = slot.due_ms.max(now_ms.saturating_add(every_ms / 4));
    }

    /// When `pick` should be asked next, if nothing else happens before.
    pub fn next_due_ms(&self) -> Option<u64> {
        let full = self.running >= self.policy.most_running(self.slots.len());
        if self.interval.longest_ms() == 0 || full {
            return None;
        }
        let next = self.slots.iter().filter(|s| s.live && !s.busy && !self.waits(s));
        let due = next.map(|s| s.due_ms).min();
        due.map(|at| at.max(self.rest_until_ms))
    }

    /// When the next checkpoint of `rank` comes, and why then.
    pub fn why(&self, rank: u32, now_ms: u64) -> Why {
        let slot = &self.slots[rank as usize];
        if slot.busy {
            return Why::UnderWay;
        }
        if self.asked.contains(&rank) {
            return Why::Asked;
        }
        if let Some((of, percent)) = slot.pressed {
            return Why::Log { of, percent };
        }
        if !slot.live || self.interval.longest_ms() == 0 {
            return Why::Never;
        }
        if slot.due_ms <= now_ms && self.waits(slot) {
            return Why::Store;
        }
        Why::Due {
            in_ms: slot.due_ms.saturating_sub(now_ms),
            every_ms: self.interval.every_ms(now_ms),
            first: slot.due_ms < slot.turn_ms,
            reason: format!("{}: {}", self.policy.name(), self.interval.reason(now_ms)),
        }
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
