//! What the controller knows of the snapshots that all ranks can return to.

use eyrie_control::Fallback as Every;
use eyrie_protocol::coordinated_snapshot::CoordinatedSnapshot;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// Every so many checkpoints of each rank are one snapshot, as long as none was needed.
pub(super) const USUAL: u32 = 8;

/// As long as none was needed they cost at most this part of the job's time, and else that.
pub(super) const SHARE: f64 = 100.0;

pub(super) const SHARE_IF_NEEDED: f64 = 2.0;

/// Over nodes, where each image of one lies on three, the one before goes with the next.
pub(super) const KEPT_OVER_NODES: usize = 1;

/// One that is being taken.
#[derive(Serialize, Deserialize)]
pub(crate) struct UnderWay {
    pub(crate) generation: u32,
    pub(super) at: SystemTime,
    pub(super) at_ms: u64,
    /// Ranks whose images are not written yet.
    pub(crate) left: BTreeSet<u32>,
    /// Those that have ended.
    pub(super) gone: Vec<bool>,
    /// What was between them is written.
    pub(super) segment: bool,
    /// Ranks stay stopped: the job is to be saved.
    pub(crate) hold: bool,
    /// Why it does not come about; empty: that is told by itself.
    pub(crate) failed: Option<String>,
    /// Over nodes: until when ranks stand.
    pub(crate) set: Option<CoordinatedSnapshot>,
    /// Over nodes, of each rank: how far it had sent to each other. It is too much for the journal:
    /// to a controller that follows no snapshot is proved that it did not begin.
    #[serde(skip)]
    pub(crate) sent: BTreeMap<u32, Vec<u64>>,
}

/// One that counts.
#[derive(Serialize, Deserialize)]
pub(crate) struct Snapshot {
    pub(crate) generation: u32,
    pub(crate) at: SystemTime,
    pub(crate) at_ms: u64,
    pub(crate) gone: Vec<bool>,
}

/// The snapshots of a job.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Fallback {
    pub(crate) under_way: Option<UnderWay>,
    /// Oldest first.
    pub(crate) kept: Vec<Snapshot>,
    /// All ranks are returning to this one.
    pub(crate) returning: Option<u32>,
    /// Checkpoints of each rank since the last one.
    pub(crate) since: Vec<u32>,
    /// When the last one was begun, and what it cost.
    pub(super) last: Option<(u64, f64)>,
    /// The last attempt came to nothing.
    pub(super) not_before_ms: u64,
    pub(super) told: Option<String>,
    /// Ranks are stopped with the last one, or some of them are.
    pub(crate) holds: bool,
    /// This one is to be the first set of all ranks, which are one unit from then on.
    pub(crate) as_set: Option<u32>,
    /// Ranks had to return to one: replays of this program are not to be relied on.
    pub(crate) needed: bool,
}

impl Fallback {
    /// A rank has a checkpoint.
    pub(crate) fn count(&mut self, rank: u32) {
        if self.since.len() <= rank as usize {
            self.since.resize(rank as usize + 1, 0);
        }
        self.since[rank as usize] += 1;
    }

    /// How many checkpoints of each rank there are from one to the next; none: there are none.
    pub(super) fn every(&self, asked: Every) -> Option<u32> {
        match asked {
            Every::Off => None,
            Every::Every(checkpoints) => Some(checkpoints),
            Every::Auto if self.needed => Some(1),
            // Until then all ranks would go back to the beginning.
            Every::Auto if self.last.is_none() => Some(2),
            Every::Auto => Some(USUAL),
        }
    }

    /// Until when the next one waits, by what the last one cost.
    pub(super) fn rests_until_ms(&self, asked: Every) -> u64 {
        let (at, cost_ms) = self.last.unwrap_or_default();
        let share = if self.needed { SHARE_IF_NEEDED } else { SHARE };
        let rest = if asked == Every::Auto { (cost_ms * share) as u64 } else { 0 };
        self.not_before_ms.max(at.saturating_add(rest))
    }

    /// Whether one is being taken.
    pub(crate) fn is_taking(&self) -> bool {
        self.under_way.is_some()
    }

    /// Whether ranks stand with one that may count yet.
    pub(crate) fn holds_well(&self) -> bool {
        self.under_way.as_ref().is_some_and(|u| u.hold && u.failed.is_none())
    }

    /// Checkpoints that one of these ranks is still to have before one is a snapshot; none: there
    /// are none.
    pub(super) fn missing(&self, asked: Every, ranks: impl Iterator<Item = usize>) -> Option<u32> {
        let every = self.every(asked)?;
        let had = ranks.map(|rank| self.since.get(rank).copied().unwrap_or(0)).min();
        Some((every - 1).saturating_sub(had.unwrap_or(0)))
    }
}

impl Fallback {
    /// How far ranks that stand have sent to each other.
    pub(crate) fn note_sent(&mut self, sent: Vec<(u32, Vec<u64>)>) {
        if let Some(under_way) = &mut self.under_way {
            under_way.sent.extend(sent);
        }
    }

    /// Why what is being taken does not come about, if it does not.
    pub(crate) fn fails(&mut self, why: Option<String>) {
        let Some((under_way, why)) = self.under_way.as_mut().zip(why) else { return };
        under_way.failed.get_or_insert(why);
    }
}
