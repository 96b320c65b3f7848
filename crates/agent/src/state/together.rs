//! A checkpoint of all ranks together, until they go on. Taking it is left to `coordinated`.

use crate::checkpoint::Stands;
use crate::state::image_copy::Sent;
use eyrie_control::cross_node_sockets::SocketEnd;
use eyrie_image::Between;
use std::collections::{BTreeMap, BTreeSet};

/// The checkpoint, until the ranks go on.
pub(crate) struct Together {
    pub(crate) generation: u32,
    /// Name of the segment's file; none: over nodes.
    pub(crate) segment: Option<String>,
    /// Ranks that do not stand still yet.
    pub(crate) left: BTreeSet<u32>,
    /// Those that do: number of the start, and who waits.
    pub(crate) standing: BTreeMap<u32, (u64, Stands)>,
    /// The segment is being copied, which is told by itself.
    pub(crate) copying: bool,
    /// Over nodes: what each rank has sent.
    pub(crate) logs: Logs,
    /// Over nodes: what was found between these and others.
    pub(crate) between: Between,
}

impl Together {
    pub(crate) fn has(&self, rank: u32) -> bool {
        self.left.contains(&rank) || self.standing.contains_key(&rank)
    }
}

/// What is known of the ranks of a node, of a set of several, when they stand.
pub struct Copied {
    pub logs: Logs,
    /// Of ranks that else have their checkpoints alone: how far each has sent to each other.
    pub sent: Ends,
    pub between: Between,
    pub ends: Vec<SocketEnd>,
}

/// How far ranks have sent to each other.
pub(crate) type Ends = Vec<(u32, Vec<u64>)>;

/// Copies of what ranks have sent.
pub type Logs = BTreeMap<u32, Sent>;
