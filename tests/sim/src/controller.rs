//! What the simulation knows of the controller: its books after its last turn.

use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Planner;
use eyrie_protocol::retention::Retention;
use eyrie_protocol::suspend::SuspendState;
use eyrie_protocol::units::{Extent, Units};
use std::collections::BTreeMap;

#[derive(Clone)]
pub struct Seen {
    pub planner: Planner,
    pub retention: Vec<Retention>,
    /// The connection of each node that lives.
    pub conns: BTreeMap<Member, usize>,
    /// Who wants the job to stand still.
    pub suspend: SuspendState,
    /// It does not just run: all ranks go back, or the job begins or ends.
    pub is_busy: bool,
    /// What came of ranks that have ended.
    pub done: BTreeMap<u32, u64>,
}

impl Seen {
    /// Before its first turn.
    pub fn new(map: Vec<u32>) -> Seen {
        // Two channels from each rank.
        let retention = map.iter().map(|_| Retention::new(map.len() as u32 * 2)).collect();
        Seen {
            planner: Planner::new(Units::new(Extent::Rank, &map, |node| node), map),
            retention,
            conns: BTreeMap::new(),
            suspend: SuspendState::default(),
            is_busy: false,
            done: BTreeMap::new(),
        }
    }
}
