//! What the controller knows of ranks that come back: orders, attempts, pauses, what was lost. What
//! is done about it is left to `recovery` and the files of its folder.

use crate::clock::{Moment, Now};
use crate::monitor::Monitor;
use crate::recovery::network::Topology;
use eyrie_control::node::Fault;
use eyrie_protocol::barrier::RestoreBarrier;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Planner;
use eyrie_protocol::replicas::Words;
use eyrie_protocol::socket_restore::SocketRestore;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How ranks come back (`strategy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strategy {
    /// Over nodes: as the planner orders.
    Planned,
    /// On one node, each rank from the newest good image that it has.
    Alone,
    /// On one node, all ranks with a copy of the segment.
    Segment,
}

/// What brings ranks back, and how often that was.
pub(crate) struct Recovery {
    /// Decides what a death means for the job.
    pub monitor: Monitor,
    /// Of a job over nodes, from its beginning on.
    pub planner: Option<Planner>,
    /// Ranks were given homes, and all did not go back to the beginning since.
    pub planned: bool,
    pub ticked_ms: u64,
    /// Images of which no copy was left, the newest of each rank since all began.
    pub lost_images: LostImages,
    /// Why a rank that dies ends the job.
    pub unprotected: Option<String>,
    /// Number of the latest start of a process.
    pub starts: u64,
    pub recoveries: u64,
    pub rollbacks: u64,
    pub failures: Failures,
    /// The network between the nodes, if that is known.
    pub topology: Option<Topology>,
    /// Ranks are to have memory in common, and wait for larger recovery units.
    pub sharing: Option<Sharing>,
}

/// That, of the first of them (`regroup`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sharing {
    pub rank: u32,
    pub peer: u32,
    /// Snapshots that did not come about.
    pub failures: u32,
    /// The one that all ranks go on from.
    pub snapshot: Option<u32>,
}

impl Recovery {
    pub fn new(monitor: Monitor) -> Recovery {
        Recovery {
            monitor,
            planner: None,
            planned: false,
            ticked_ms: 0,
            lost_images: LostImages::new(),
            unprotected: None,
            starts: 0,
            recoveries: 0,
            rollbacks: 0,
            failures: Failures::default(),
            topology: None,
            sharing: None,
        }
    }
}

/// A rank is to be brought to its home, or back.
#[derive(Serialize, Deserialize)]
pub(crate) struct Order {
    pub incarnation: u32,
    pub(super) generation: u32,
    /// Who has the image if the home has not.
    pub(super) from: Option<Member>,
    pub(super) words: Option<Words>,
    /// All begin: there is nothing of it anywhere.
    pub(super) fresh: bool,
}

/// Ranks that come back, and how far that is.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct CoordinatedRestart {
    /// Those that can come back, until all can.
    pub muster: Option<RestoreBarrier>,
    /// All of them, until what is between them is there.
    pub(super) under_way: Option<UnderWay>,
    /// Number of the last step of any.
    pub(super) turn: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct UnderWay {
    pub(super) set: u32,
    pub(super) ranks: BTreeSet<u32>,
    pub(super) rejoin: SocketRestore,
}

impl CoordinatedRestart {
    /// All go back once more.
    pub fn give_up(&mut self) {
        (self.muster, self.under_way) = (None, None);
    }
}

/// Where an image was of which nothing is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostImage {
    pub(super) generation: u32,
    /// Why the vault does not have it.
    pub(super) vault: Option<String>,
}

/// By rank.
pub(crate) type LostImages = BTreeMap<u32, LostImage>;

/// Of a job whose program handles failures itself.
#[derive(Default)]
pub(crate) struct Failures {
    /// In the order in which the nodes were told.
    pub(super) lost: Vec<u32>,
    /// How many of them a rank has handled.
    pub(super) handled: u32,
}

/// When a rank is to be brought back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Later {
    pub(super) since: Moment,
    pub(super) pause: Duration,
}

impl Later {
    pub(super) fn left(&self, clock: Now) -> Duration {
        self.pause.saturating_sub(self.since.elapsed(clock))
    }
}

/// Until the first new attempt; twice as long after each further one, up to `start-pause`.
pub(super) const PAUSE: Duration = Duration::from_millis(100);

/// Attempts to start from an image that may not be right, though each byte of it is.
pub(super) const ATTEMPTS: u32 = 3;

/// Attempts at least where a file is not there that its process needs, is another, or is locked by
/// somebody else: 12 s, unless `start-pause` is shorter.
pub(super) const FILE_ATTEMPTS: u32 = 8;

/// What keeps a rank from being brought back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Retries {
    pub(super) count: u32,
    /// Starts of this image that failed for a reason that is not known.
    pub(super) strange: (u32, u32),
    pub(super) last: Option<Moment>,
    /// The attempt that is to be made anew: the planner's number, and where it was.
    pub(super) waits: Option<(u32, Member)>,
    pub(super) expedited: bool,
    pub(super) why: Option<String>,
    pub(super) told: BTreeSet<u32>,
}

impl Retries {
    /// Whether a start failed for no fault of the image, as far as can be known where there are so
    /// many nodes.
    pub fn is_of_place(&self, fault: Fault, generation: u32, nodes: usize) -> bool {
        let before = if self.strange.0 == generation { self.strange.1 } else { 0 };
        match fault {
            Fault::Place => true,
            Fault::Image => false,
            Fault::Unknown => generation > 0 && before + 1 < ATTEMPTS,
            Fault::Files => generation > 0 && before + 1 < FILE_ATTEMPTS.max(nodes as u32 + 1),
        }
    }

    /// So many starts from this image failed.
    pub fn is_strange(&mut self, generation: u32) {
        let before = if self.strange.0 == generation { self.strange.1 } else { 0 };
        self.strange = (generation, before + 1);
    }

    /// A new attempt is made.
    pub fn tried(&mut self) {
        (self.waits, self.expedited) = (None, false);
    }

    /// The planner waits for its end.
    pub fn expedite(&mut self) {
        self.expedited = true;
    }

    /// For `eyrie status`.
    pub fn why(&self) -> Option<String> {
        self.why.clone()
    }

    pub(super) fn one_more(&mut self, clock: Now, incarnation: u32, at: Member, why: String) {
        self.count += 1;
        self.last = Some(clock.moment());
        self.waits = Some((incarnation, at));
        self.why = Some(why);
    }

    /// How long until the next attempt; `None`: there is none to be made.
    pub(super) fn pause(&self, longest: Duration, clock: Now) -> Option<Duration> {
        let since = self.last.filter(|_| self.waits.is_some())?.elapsed(clock);
        let doubled = PAUSE.saturating_mul(1 << self.count.saturating_sub(1).min(8));
        let pause = if self.expedited { Duration::ZERO } else { doubled.min(longest) };
        Some(pause.saturating_sub(since))
    }
}
