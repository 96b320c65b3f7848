//! The job itself in the journal: what of it is in no other part. Filled and read by `state`.

use crate::clock::Moment;
use eyrie_protocol::placement::Placement;
use eyrie_state::stdin_file::Cursor;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is neither of a rank nor of a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub epoch: u64,
    pub placement: Placement,
    pub planned: bool,
    pub input: Cursor,
    pub unprotected: Option<String>,
    pub start: u64,
    pub recoveries: u64,
    pub rollbacks: u64,
    pub output_differences: u64,
    pub malformed: u64,
    pub exit_code: Option<i32>,
    /// How often it was saved, whether that is on disk, and not all ranks run again since.
    pub saves: u32,
    pub is_saved: bool,
    pub restarting: bool,
    pub archive: crate::saving::model::Kept,
    pub leaves: BTreeMap<u32, crate::leaving::model::Leave>,
    pub suspension: eyrie_protocol::suspend::SuspendState,
    pub pauses: eyrie_protocol::router_pause::Pauses,
    pub unit_snapshots: Vec<crate::checkpoints::model::Taking>,
    /// Nodes that were told to end, and when.
    pub notices: BTreeMap<u32, Moment>,
    /// The controller was.
    pub here: Option<crate::leaving::model::Here>,
    /// The job was to be saved and to end.
    pub to_be_saved: bool,
    /// Image files that are to go when nothing is being brought any more: rank, generations.
    pub put_off: Vec<(u32, Vec<u32>)>,
    pub blocks: crate::gateways::model::Blocks,
    /// Ranks wait for larger recovery units.
    pub sharing: Option<crate::recovery::model::Sharing>,
}
