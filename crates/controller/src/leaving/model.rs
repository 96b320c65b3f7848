//! What the controller knows of nodes that leave, and of the rounds of their ranks. What is done
//! about it is left to `leaving`, `drain`, `notices` and `precopy`.

use crate::clock::{Moment, Now};
use crate::outside::ClientHandle;
use eyrie_control::{LeaveStep, Leaving, NodeMsg};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A round that took no longer than this leaves little for the last one.
pub(super) const LITTLE_MS: f64 = 100.0;
/// Most rounds before the last.
pub(super) const ROUNDS: u32 = 16;
/// A round that is not smaller than the one before by this share ends them: the rank writes as fast
/// as it is copied.
pub(super) const LEAST_GAIN: f64 = 0.2;
/// A rank that does not get smaller runs one part in so many of the time; or in so many, if it has
/// written to most of its memory in the round, or that was not enough.
pub(super) const SLOW: u32 = 8;
pub(super) const SLOWEST: u32 = 256;
/// As slow as it may be, its rounds vary with what else the machine does: it writes as fast as it
/// is copied if so many of them bring nothing, or one that is as large as this share of the first.
pub(super) const FUTILE: u32 = 3;
pub(super) const LARGE: f64 = 0.25;
/// What is most of a rank's memory.
pub(super) const MOST: f64 = 0.5;

/// Nodes that leave, who waits for that, and which were told to end.
#[derive(Default)]
pub(crate) struct Departures {
    pub nodes: BTreeMap<u32, Leave>,
    pub watchers: Vec<Watcher>,
    /// Nodes that are to leave when it is known what memory there is; of a node that does not
    /// answer in time that is what it said last.
    pub waiting: Vec<Departure>,
    pub notices: Notices,
}

/// A node that is to leave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Leave {
    pub(crate) begun: Moment,
    pub(crate) limit_ms: Option<u64>,
    /// Its ranks are copied while they run, before they are stopped.
    pub(crate) precopy: bool,
    pub(crate) step: Option<LeaveStep>,
    pub(super) dismissed: Option<Moment>,
    /// It was told that it waits for the vault.
    #[serde(skip)]
    pub(super) detained: bool,
    /// The exit code of its daemon.
    pub(super) code: Option<i32>,
    /// The first node of those that it leaves with.
    pub(super) party: u32,
    pub(crate) end: End,
}

impl Leave {
    /// Nothing hangs on it any more.
    pub(crate) fn is_dismissed(&self) -> bool {
        self.dismissed.is_some()
    }
}

/// What becomes of nodes whose ranks have moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    /// Each leaves the job, whether others do or not.
    Left,
    /// All leave, or none.
    AllLeft,
    /// All are spares, or nobody's ranks move.
    Spare,
}

/// Somebody waits until nodes have left.
pub(crate) struct Watcher {
    pub(super) nodes: BTreeSet<u32>,
    pub(super) client: ClientHandle,
}

/// Nodes that are to leave, and who waits for that.
pub(crate) struct Departure {
    pub(super) nodes: BTreeSet<u32>,
    /// Where their ranks are to go; nothing: anywhere.
    pub(super) to: BTreeSet<u32>,
    pub(super) terms: Terms,
    pub(super) client: ClientHandle,
}

/// How nodes leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub limit_ms: Option<u64>,
    pub end: End,
    /// Of the request.
    pub number: Option<u64>,
}

impl Departure {
    /// One of them is not to leave.
    pub(super) fn stays(&mut self, node: u32, why: &str) {
        self.nodes.remove(&node);
        let (step, took_ms, text) = (LeaveStep::Stays, 0.0, why.to_string());
        self.client.send(&NodeMsg::Leaving(Box::new(Leaving { node, step, took_ms, text })));
        if self.nodes.is_empty() {
            self.client.send(&NodeMsg::Done);
        }
    }
}

/// What nodes were told.
#[derive(Default)]
pub(crate) struct Notices {
    pub(super) nodes: BTreeMap<u32, Moment>,
    /// A look at them is on the way.
    pub(super) armed: bool,
    /// What keeps the job from doing what it should, as it was told last.
    pub(super) obstacle: Option<String>,
    /// The controller, or its machine, is told to end.
    pub(super) here: Option<Here>,
}

/// The controller is to end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Here {
    pub(super) since: Moment,
    /// The job ends with it, also if it cannot be saved.
    pub(super) ends: bool,
}

/// A rank takes more than its pages: a part of that for the kernel's tables and the log.
pub(crate) const OVERHEAD_PART: u64 = 16;

/// What a party of ranks does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Round {
    /// It waits for what is under way.
    None,
    /// Those of its ranks that have not begun the round of this number are copied while they run.
    Live(u32),
    /// They are stopped for that.
    Last,
}

/// A rank, as far as it leaves its node.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Moves {
    /// The number of its latest round among those of its party.
    #[serde(skip)]
    pub turn: u32,
    /// How often it was copied while it ran, and the bytes of the last time.
    pub(super) rounds: u32,
    pub(super) bytes: u64,
    /// Most bytes of a round, and the best rate: bytes in a millisecond.
    pub(super) all_bytes: u64,
    pub(super) rate: f64,
    /// It runs one part in so many of the time; 0: all of it.
    pub part: u32,
    /// Rounds that brought nothing, although it was as slow as may be.
    #[serde(skip)]
    pub(super) futile: u32,
    /// After the last round little is left, or another would not bring more.
    pub copied: bool,
    pub stop: Option<Stop>,
    /// The node that it has left, until it runs elsewhere.
    pub from: Option<u32>,
    #[serde(skip)]
    pub ordered: Option<Moment>,
    /// How long its last image took until it counted.
    pub counted_ms: Option<f64>,
}

/// An image of a rank that leaves.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Stop {
    pub generation: u32,
    pub since: Moment,
    /// The rank does not go on.
    pub holds: bool,
    pub counts: bool,
}

impl Moves {
    /// A process of the rank is ordered.
    pub fn begins(&mut self) {
        self.again();
        self.stop = None;
    }

    /// It is copied from the beginning.
    pub fn again(&mut self) {
        (self.copied, self.turn, self.rounds, self.bytes) = (false, 0, 0, 0);
        (self.all_bytes, self.rate, self.part, self.futile) = (0, 0.0, 0, 0);
    }

    /// A round of so many bytes is over, after this time. `slows`: the rank may be slowed down.
    pub fn round(&mut self, bytes: u64, took_ms: f64, slows: bool) {
        self.rate = self.rate.max(bytes as f64 / took_ms.max(1.0));
        self.all_bytes = self.all_bytes.max(bytes);
        // What goes over in that time is little, however long it takes to begin and to end.
        let little = took_ms <= LITTLE_MS || bytes as f64 <= self.rate * LITTLE_MS;
        let gains = bytes as f64 <= self.bytes as f64 * (1.0 - LEAST_GAIN);
        let outruns = self.rounds > 0 && !gains && !little;
        let slower = match bytes as f64 <= self.all_bytes as f64 * MOST {
            true if self.part == 0 => SLOW,
            _ => SLOWEST,
        };
        let slowest = outruns && slows && slower <= self.part;
        self.futile += u32::from(slowest);
        let large = bytes as f64 >= self.all_bytes as f64 * LARGE;
        let futile = slowest && (large || self.futile >= FUTILE);
        let ahead = outruns && (!slows || futile);
        self.rounds += 1;
        self.bytes = bytes;
        if outruns && !ahead && !slowest {
            self.part = slower;
            // The next round brings what was written before that.
            self.bytes = u64::MAX;
        }
        self.copied = little || ahead || self.rounds >= ROUNDS;
    }

    /// It runs. Returns the node that it has left for that.
    pub fn arrives(&mut self) -> Option<u32> {
        self.from.take()
    }

    /// A checkpoint of it is ordered.
    pub fn ordered(&mut self, clock: Now) {
        self.ordered = Some(clock.moment());
    }
}
