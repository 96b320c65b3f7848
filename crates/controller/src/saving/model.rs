//! What the controller knows of the job on disk, and of what is on its way there.
//!
//! Kept true: attempts have numbers that only grow, so that what comes late is told from what is
//! awaited. Bringing it is left to `saving`, `archive`, `periodic` and `second_level`.

use crate::outside::ClientHandle;
use crate::saving::attempts::Attempts;
use eyrie_control::node::Determinants;
use eyrie_control::{Delivered, SavedSet, SavedWay, Stored, StoredFile, Way};
use eyrie_protocol::consistent_cut;
use eyrie_state::saved_job::{SavedJob, SavedRank};
use eyrie_state::{home, image_names};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// How the job is saved: what is under way, and what there is of it on disk.
#[derive(Default)]
pub(crate) struct Saving {
    pub under_way: Option<Save>,
    /// Over nodes: what it takes to restart it lies here.
    pub archive: Archive,
    pub periodic: Flush,
    /// How often the job was saved.
    pub count: u32,
    /// What it takes to restart it is on disk.
    pub is_saved: bool,
    /// Not all ranks of a saved job run again yet.
    pub restarting: bool,
}

/// The saving of a job that is under way.
#[derive(Default)]
pub(crate) struct Save {
    /// A client that waits for it.
    pub(super) client: Option<ClientHandle>,
    /// Every rank has its last checkpoint.
    pub(super) checkpointed: bool,
    /// No process is left.
    pub(crate) stands: bool,
    /// The segment is being written.
    pub(super) writing: bool,
    /// Each rank has its last checkpoint by itself: there is no snapshot of all of them.
    pub(super) apart: bool,
    /// Its memory was out: ranks have no process, and stay without one.
    pub(crate) swapped: bool,
    /// Over nodes: these bring what they have.
    pub collecting: Option<Collecting>,
    /// What was tried in vain.
    pub(super) attempts: Attempts,
}

impl Save {
    /// Whether the last checkpoint is to be one of all ranks together.
    pub(crate) fn takes_snapshot(&self) -> bool {
        !self.apart && !self.checkpointed && !self.swapped
    }

    /// There was none: each rank has its own.
    pub(crate) fn takes_no_snapshot(&mut self) {
        self.apart = true;
    }
}

/// Where it is, and what is in it.
#[derive(Default)]
pub(crate) struct Archive {
    /// Where nodes reach it; none: it is not open.
    pub(super) places: Vec<SocketAddr>,
    /// What ranks are brought back from; none: nothing is to be.
    pub(super) content: Option<Vec<SavedRank>>,
    /// Files of that which are in an object store, and not in the folder.
    pub(super) stored: Option<Stored>,
    /// Numbers of attempts to save the job.
    pub(super) attempts: u32,
    /// What is saved is of no use any more.
    pub(super) outgrown: bool,
    /// Of another's job that goes on here: how often it was saved by the journal.
    pub(super) noted: u32,
}

/// What another controller needs to know of it; its content is what is saved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(super) places: Vec<SocketAddr>,
    pub(super) holds: bool,
    pub(super) attempts: u32,
}

impl Kept {
    /// What lay on another machine is not here.
    pub(crate) fn leave_behind(&mut self) {
        (self.places, self.holds) = (Vec::new(), false);
    }
}

impl Archive {
    pub(crate) fn kept(&self) -> Kept {
        let (places, attempts) = (self.places.clone(), self.attempts);
        Kept { places, holds: self.holds(), attempts }
    }

    pub(crate) fn of(ranks: Vec<SavedRank>, stored: Option<Stored>) -> Archive {
        Archive { content: Some(ranks), stored, ..Archive::default() }
    }

    /// Whether some of it is in an object store only.
    pub(crate) fn has_stored(&self) -> bool {
        self.stored.is_some()
    }

    /// Whether ranks can be brought back from it.
    pub(crate) fn holds(&self) -> bool {
        self.content.is_some()
    }

    /// Whether nodes reach it.
    pub(crate) fn is_open(&self) -> bool {
        !self.places.is_empty()
    }

    /// What is in it from now on.
    pub(crate) fn hold(&mut self, saved: SavedJob) {
        (self.content, self.stored) = (Some(saved.ranks), saved.stored);
    }

    /// The number of the next attempt to bring something here.
    pub(crate) fn next_attempt(&mut self) -> u32 {
        self.attempts += 1;
        self.attempts
    }

    /// The newest generation in it.
    pub(crate) fn newest(&self) -> u32 {
        let newest = |saved: &SavedRank| Some(saved.retention.newest()?.generation);
        self.content.iter().flatten().filter_map(newest).max().unwrap_or(0)
    }

    /// Whether this image of a rank is what it is brought back from.
    pub(crate) fn is_of(&self, rank: u32, generation: u32) -> bool {
        let saved = self.content.as_ref().and_then(|ranks| ranks.get(rank as usize));
        saved.and_then(|s| s.retention.newest()).is_some_and(|k| k.generation == generation)
    }
}

/// What nodes are bringing.
pub(crate) struct Collecting {
    pub(super) attempt: u32,
    pub(super) left: BTreeSet<u32>,
    pub(super) words: BTreeMap<u32, Determinants>,
}

/// The moment, until all ranks go on.
pub(crate) struct Cut {
    pub(super) attempt: u32,
    pub(super) rule: consistent_cut::ConsistentCut,
    pub(super) words: BTreeMap<u32, Determinants>,
    pub(super) state: SavedJob,
}

/// What is known of the states of the job in an object store.
#[derive(Default)]
pub(crate) struct SecondLevel {
    /// The last of a state could not be brought, of which nodes had brought the rest: until it has
    /// a state again they bring it to the folder.
    pub(crate) refuses: bool,
    /// The last failure that was told.
    pub(super) told: Option<String>,
    /// When the newest one was there.
    pub(super) unix_ms: Option<u64>,
}

/// What is brought to the job's folder, and when.
#[derive(Default)]
pub(crate) struct Flush {
    pub(super) due_ms: u64,
    /// The generation that all ranks had reached when the newest one that is there was begun, or
    /// the last one failed.
    pub(super) reached: u32,
    pub(crate) cut: Option<Cut>,
    pub(super) bringing: Option<Bringing>,
    /// Image files that go when nothing is being brought any more: rank, generations.
    pub(crate) put_off: Vec<(u32, Vec<u32>)>,
    /// The last failure that was told.
    pub(super) told: Option<String>,
    /// Since when the next one has waited, why, and whether that was told.
    pub(super) waits: Option<(u64, String, bool)>,
    /// What is there.
    pub(crate) there: Option<SavedSet>,
    /// Where it is brought besides.
    pub(crate) second_level: SecondLevel,
    /// How the newest one was brought, by node.
    pub(crate) routes: Vec<SavedWay>,
    /// Not to be tried before, whatever falls due.
    pub(super) not_before_ms: u64,
}

/// A state that is being brought.
pub(super) struct Bringing {
    pub(super) attempt: u32,
    pub(super) begun_ms: u64,
    pub(super) reached: u32,
    /// Nodes were told to bring it.
    pub(super) ordered: bool,
    pub(super) left: BTreeSet<u32>,
    pub(super) state: SavedJob,
    /// How ranks were brought.
    pub(super) routes: Routes,
}

impl Flush {
    /// What nodes have sent to the object store of what is being brought.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.bringing.as_ref().map_or(0, |b| b.routes.sent_bytes())
    }

    /// Whether something is being brought.
    pub(crate) fn is_under_way(&self) -> bool {
        self.bringing.is_some()
    }

    /// Whether nodes wait for what is known of the object store, in this attempt.
    pub(crate) fn awaits_survey(&self, attempt: u32) -> bool {
        self.bringing.as_ref().is_some_and(|b| b.attempt == attempt && !b.ordered)
    }

    /// Whether this attempt to bring something is one of these.
    pub(crate) fn is_at(&self, attempt: u32) -> bool {
        self.bringing.as_ref().is_some_and(|b| b.attempt == attempt)
    }
}

/// How far the saving of a rank's log has come.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogSaving {
    No,
    Running,
    Done,
}

/// How the ranks of a state were brought.
#[derive(Default)]
pub(crate) struct Routes {
    /// By node: the way of its ranks, the slowest counts, and why it was no other.
    pub(super) nodes: BTreeMap<u32, (Way, Option<String>)>,
    /// Ranks whose images are in the object store.
    pub(super) stored: BTreeSet<u32>,
    pub(super) files: Vec<StoredFile>,
    pub(super) sent_bytes: u64,
}

impl Routes {
    /// A node has brought a rank.
    pub(crate) fn take(&mut self, node: u32, rank: u32, said: Delivered) -> Result<(), String> {
        let images = format!("{}/", home::IMAGES);
        let of_rank = |file: &StoredFile| {
            let name = file.name.strip_prefix(&images).and_then(image_names::parse);
            let plain = !file.object.is_empty() && !file.object.contains("..");
            plain && name.is_some_and(|named| named.rank == rank)
        };
        if !said.files.iter().all(of_rank) {
            return Err(String::from("its node names files that are not the rank's"));
        }
        if said.way == Way::Store {
            self.stored.insert(rank);
            self.sent_bytes += said.sent_bytes;
            self.files.extend(said.files);
        }
        let known = self.nodes.entry(node).or_insert((said.way, None));
        if said.way <= known.0 {
            *known = (said.way, said.why);
        }
        Ok(())
    }

    /// Whether the images of a rank are in the object store.
    pub(crate) fn is_stored(&self, rank: u32) -> bool {
        self.stored.contains(&rank)
    }

    /// What is there.
    pub(crate) fn files(&self) -> &[StoredFile] {
        &self.files
    }

    pub(crate) fn stored_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes of these that nodes had to send.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// For `eyrie status`.
    pub(crate) fn told(&self) -> Vec<SavedWay> {
        let told = |(node, (way, why)): (&u32, &(Way, Option<String>))| SavedWay {
            node: *node,
            way: way.to_string(),
            why: why.clone(),
        };
        self.nodes.iter().map(told).collect()
    }
}
