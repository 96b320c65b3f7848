//! Ranks that come back from one snapshot: none of them does before all can.
//!
//! Pure, run by the controller. What a rank had left behind (child processes, twins, the ports that
//! these hold) is cleared away when its image is looked for. So once all are found nothing of any
//! of them is in the way of the others, of whose sockets each may need an address.
//!
//! Kept true: the ranks of a snapshot are given out once, all of them, when the last one is found;
//! what is found of another snapshot, or of a rank that is not awaited, counts for nothing.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Ranks that are to come back from a snapshot, and which of them can.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RestoreBarrier {
    snapshot: u32,
    awaited: BTreeSet<u32>,
    found: BTreeSet<u32>,
}

impl RestoreBarrier {
    /// Of these ranks.
    pub fn new(snapshot: u32, ranks: impl IntoIterator<Item = u32>) -> RestoreBarrier {
        RestoreBarrier { snapshot, awaited: ranks.into_iter().collect(), found: BTreeSet::new() }
    }

    /// The snapshot that they come back from.
    pub fn snapshot(&self) -> u32 {
        self.snapshot
    }

    /// Whether none has come back yet, for want of this one at least.
    pub fn awaits(&self, rank: u32) -> bool {
        self.awaited.contains(&rank) && !self.found.contains(&rank)
    }

    /// Whether all have come back.
    pub fn is_over(&self) -> bool {
        self.awaited.is_empty()
    }

    /// A rank can come back. With the last one all of them do.
    pub fn found(&mut self, rank: u32, snapshot: u32) -> Option<BTreeSet<u32>> {
        if snapshot != self.snapshot || !self.awaited.contains(&rank) {
            return None;
        }
        self.found.insert(rank);
        if self.found.len() < self.awaited.len() {
            return None;
        }
        self.awaited.clear();
        Some(std::mem::take(&mut self.found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_comes_back_before_all_are_found() {
        let mut barrier = RestoreBarrier::new(3, [0, 1, 2]);
        assert_eq!(barrier.found(0, 3), None);
        // Once more, of another snapshot, of one that had ended.
        assert_eq!(barrier.found(0, 3), None);
        assert_eq!(barrier.found(1, 2), None);
        assert_eq!(barrier.found(7, 3), None);
        assert!(barrier.awaits(1) && !barrier.awaits(0) && !barrier.awaits(7));
        assert_eq!(barrier.found(2, 3), None);
        assert_eq!(barrier.found(1, 3), Some(BTreeSet::from([0, 1, 2])));
        // Nobody comes back twice.
        assert_eq!(barrier.found(1, 3), None);
        assert!(barrier.snapshot() == 3 && barrier.is_over() && !barrier.awaits(1));
    }
}
