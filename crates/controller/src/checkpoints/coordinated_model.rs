//! What the controller knows of coordinated snapshots, and when the next one is due.
//!
//! Kept true: numbers of sets only grow. Taking one is `coordinated` and `coordinated_nodes`.

use crate::checkpoints::failures::{Failures, Refusals};
use crate::checkpoints::model::Voided;
use crate::clock::Now;
use crate::leaving::model::Round;
use eyrie_control::node::Taken;
use eyrie_protocol::coordinated_snapshot::CoordinatedSnapshot;
use eyrie_protocol::interval::{Cost, Interval};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A set of checkpoints that is being taken.
pub(super) struct UnderWay {
    pub(super) generation: u32,
    pub(super) begun_ms: u64,
    /// Ranks whose images are not written yet.
    pub(super) left: BTreeSet<u32>,
    pub(super) taken: BTreeMap<u32, Box<Taken>>,
    /// The segment's file is written.
    pub(super) segment: bool,
    /// Ranks stay stopped.
    pub(super) hold: bool,
    pub(super) failed: Option<String>,
    pub(super) refusals: Refusals,
}

/// A set that counts.
pub(super) struct Set {
    pub(super) generation: u32,
    /// Ranks that had ended.
    pub(super) gone: Vec<bool>,
}

/// The sets of a job. What is skipped is of one node only, and nobody follows its controller.
#[derive(Serialize, Deserialize)]
pub(crate) struct Coordinated {
    /// Of all ranks, which die and are checkpointed as one.
    pub(super) interval: Interval,
    pub(super) due_ms: u64,
    /// The next one comes soon after the start.
    pub(super) early: bool,
    /// Those in a row that did not come about.
    pub(super) failures: Failures,
    /// All stood with this set, to go on elsewhere.
    pub(crate) moves: Option<u32>,
    /// All stood with this set, and their memory went out with it (`swap`).
    pub(crate) out: Option<u32>,
    /// Somebody waits for one.
    pub(super) wanted: bool,
    /// Over nodes: it is one of the rounds of nodes that leave.
    pub(crate) round: Option<Round>,
    /// Number of the last one that was begun.
    pub(super) last: u32,
    #[serde(skip)]
    pub(super) under_way: Option<UnderWay>,
    /// Oldest first.
    #[serde(skip)]
    pub(super) kept: Vec<Set>,
    /// The set that ranks are being brought back from.
    #[serde(skip)]
    pub(super) going_back: Option<u32>,
    /// How far that is.
    pub(crate) back: crate::recovery::model::CoordinatedRestart,
    /// The last failure that was told.
    pub(crate) told: Option<String>,
    /// Over nodes: the set that is being taken.
    pub(crate) taking: Option<Taking>,
    /// Over nodes: a rank that has ended, after which there are no more.
    pub(super) ended: Option<u32>,
}

impl Coordinated {
    /// `every_ms` = 0: only on request.
    pub(crate) fn new(every_ms: u64, first_ms: u64, now_ms: u64) -> Coordinated {
        let first = if every_ms == 0 { u64::MAX } else { every_ms.min(first_ms) };
        Coordinated {
            interval: Interval::new(every_ms, 1, true, now_ms),
            due_ms: now_ms.saturating_add(first),
            early: first < every_ms,
            failures: Failures::default(),
            moves: None,
            out: None,
            wanted: false,
            round: None,
            last: 0,
            under_way: None,
            kept: Vec::new(),
            going_back: None,
            back: Default::default(),
            told: None,
            taking: None,
            ended: None,
        }
    }

    /// Over nodes: the number of the set that is to be taken now, if one is due.
    pub(crate) fn next_snapshot(&mut self, now_ms: u64) -> Option<u32> {
        let due = self.wanted || now_ms >= self.due_ms;
        if self.taking.is_some() || self.ended.is_some() || !due {
            return None;
        }
        self.wanted = false;
        self.last += 1;
        Some(self.last)
    }

    /// A simulator shows that a successor has to know of the set that is being taken.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn forget_taking(&mut self) {
        self.last -= u32::from(self.taking.take().is_some());
    }

    /// The interval now; there is none if sets are taken on request only.
    pub(super) fn every_ms(&self, now_ms: u64) -> u64 {
        let asked = self.interval.longest_ms() == 0;
        if asked { u64::MAX } else { self.interval.every_ms(now_ms) }
    }

    /// The next one comes so long after the last that they take at most half of the job's time.
    pub(crate) fn rest(&mut self, now_ms: u64, begun_ms: u64) {
        let pause = self.every_ms(now_ms).max(now_ms.saturating_sub(begun_ms));
        (self.due_ms, self.early) = (now_ms.saturating_add(pause), false);
    }

    /// What a set cost that counts.
    pub(crate) fn cost(&mut self, cost: Cost) {
        self.interval.cost(cost);
    }

    /// All go back, as a rank died or a node was lost.
    pub(crate) fn died(&mut self) {
        self.interval.died();
    }

    /// Over nodes: there are no more sets.
    pub(crate) fn end(&mut self, rank: u32) {
        self.wanted = false;
        self.ended.get_or_insert(rank);
    }

    /// Over nodes: all ranks go back. Returns the set that was being taken.
    pub(crate) fn go_back(&mut self, now_ms: u64, asked: bool) -> Option<Taking> {
        self.wanted |= asked;
        (self.ended, self.round) = (None, None);
        self.back.give_up();
        (self.due_ms, self.early) = (now_ms.saturating_add(self.every_ms(now_ms)), false);
        self.taking.take()
    }

    /// Sets of more than one node that were there before: numbers go on.
    pub(crate) fn go_on_after(&mut self, generation: u32) {
        self.last = self.last.max(generation);
    }

    /// A set that was there before the daemon.
    pub(crate) fn take_over(&mut self, generation: u32, gone: Vec<bool>) {
        self.last = generation;
        self.kept.push(Set { generation, gone });
        self.going_back = Some(generation);
    }

    /// A set is wanted now.
    pub(crate) fn request(&mut self) {
        self.wanted = true;
    }

    /// One is wanted now that is a round of nodes that leave.
    pub(crate) fn request_round(&mut self, round: Round) {
        // Of several parties one may have no time left for the rounds of another.
        if self.round != Some(Round::Last) {
            self.round = Some(round);
        }
        self.request();
    }

    /// Ranks do not stay stopped with the set that is being taken. `asked`: somebody waits for one.
    pub(crate) fn let_go(&mut self, asked: bool) {
        self.wanted &= asked;
        self.under_way.iter_mut().for_each(|set| set.hold = false);
        self.taking.iter_mut().for_each(Taking::let_go);
    }

    /// Whether somebody waits for one.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// One counts.
    pub(crate) fn succeeded(&mut self) {
        (self.told, self.failures) = (None, Failures::default());
    }

    /// What did not come about long ago keeps nobody from leaving.
    pub(crate) fn tries_anew(&mut self) {
        self.failures = Failures::default();
    }

    /// Whether the next one has to wait a little, as the last one did not come about.
    pub(crate) fn pause(&self, clock: Now) -> Option<Duration> {
        self.failures.pause(clock)
    }

    /// A part of the set that is being taken was refused, for what lasts or for what passes.
    pub(super) fn refused(&mut self, lasting: bool) {
        self.taking.iter_mut().for_each(|t| t.refusals.one_more(lasting));
    }

    /// Why sets do not come about, if that lasts, or has for so long.
    pub(crate) fn fails(&mut self, patience: Duration, clock: Now) -> Option<String> {
        let why = self.told.clone().filter(|_| self.failures.given_up(patience, clock))?;
        self.failures = Failures::default();
        Some(format!("no checkpoint of all ranks can be taken: {why}"))
    }

    /// Whether a set is being taken.
    pub(crate) fn is_taking(&self) -> bool {
        self.under_way.is_some() || self.taking.is_some()
    }

    pub(crate) fn due_ms(&self) -> u64 {
        let none = self.under_way.is_some() || self.taking.is_some() || self.ended.is_some();
        if none { u64::MAX } else { self.due_ms }
    }

    /// When the next one comes.
    pub(crate) fn why(&self, now_ms: u64) -> String {
        if self.under_way.is_some() || self.taking.is_some() {
            return String::from("under way, all ranks together");
        }
        if let Some(rank) = self.ended {
            return format!("none any more: rank {rank} has ended");
        }
        if self.due_ms == u64::MAX {
            return String::from("on request, all ranks together");
        }
        let left = self.due_ms.saturating_sub(now_ms) as f64 / 1e3;
        if self.early {
            return format!("in {left:.1} s, all ranks together: soon after the start");
        }
        let (every, reason) = (self.every_ms(now_ms) as f64 / 1e3, self.interval.reason(now_ms));
        format!("in {left:.1} s, all ranks together: every {every:.1} s ({reason})")
    }

    pub(crate) fn newest(&self) -> Option<u32> {
        self.kept.last().map(|s| s.generation)
    }
}

/// A set that is being taken.
#[derive(Serialize, Deserialize)]
pub(crate) struct Taking {
    pub(crate) set: CoordinatedSnapshot,
    pub(super) begun_ms: u64,
    /// Ranks stay stopped.
    pub(super) hold: bool,
    pub(super) refusals: Refusals,
}

impl Taking {
    pub(crate) fn let_go(&mut self) {
        self.hold = false;
    }
}

impl Coordinated {
    /// What is being taken, if one part of it is missing and it is known how all others came out.
    pub(crate) fn void_snapshot(&mut self, now_ms: u64) -> Option<Voided> {
        let void = |t: &mut Taking| t.set.is_over() && t.set.failed().is_some();
        let Taking { set, begun_ms, hold, refusals } = self.taking.take_if(void)?;
        self.rest(now_ms, begun_ms);
        Some(Voided { set, lasting: refusals.are_lasting(), hold })
    }
}
