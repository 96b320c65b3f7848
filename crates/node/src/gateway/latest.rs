//! Which starts of other clusters' gateways may still be there, by what the controller says.
//!
//! Kept true: one that has a successor, or is listed no more, never counts again; one that calls
//! before the controller's word of it has come does.

use eyrie_control::gateway::Gate;
use std::collections::BTreeMap;

/// By cluster.
#[derive(Default)]
pub(super) struct Latest {
    listed: BTreeMap<u32, u64>,
    /// Earlier ones are gone, or are not to be there.
    least: BTreeMap<u32, u64>,
}

impl Latest {
    /// All that there are, of other clusters and of one's own.
    pub fn know(&mut self, gates: &[Gate]) {
        let now: BTreeMap<u32, u64> = gates.iter().map(|g| (g.cluster, g.number)).collect();
        // The next one may have called before it was heard of.
        let gone = self.listed.iter().filter(|(cluster, _)| !now.contains_key(*cluster));
        self.least.extend(gone.map(|(cluster, number)| (*cluster, number + 1)));
        self.least.extend(&now);
        self.listed = now;
    }

    pub fn is_outdated(&self, cluster: u32, number: u64) -> bool {
        self.least.get(&cluster).is_some_and(|least| number < *least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gates(all: &[(u32, u64)]) -> Vec<Gate> {
        let gate = |(cluster, number)| Gate { cluster, number, at: ([127, 0, 0, 1], 9).into() };
        all.iter().copied().map(gate).collect()
    }

    #[test]
    fn who_has_a_successor_or_is_gone_does_not_count_and_who_calls_early_does() {
        let mut latest = Latest::default();
        let outdated = |latest: &Latest| [1, 2, 3].map(|number| latest.is_outdated(1, number));
        assert_eq!(outdated(&latest), [false; 3]);
        latest.know(&gates(&[(0, 7), (1, 1)]));
        assert_eq!(outdated(&latest), [false; 3]);
        // Another gateway came up; that of cluster 1 is gone.
        latest.know(&gates(&[(0, 8)]));
        assert_eq!(outdated(&latest), [true, false, false]);
        latest.know(&gates(&[(0, 9)]));
        assert_eq!(outdated(&latest), [true, false, false], "not listed for long");
        latest.know(&gates(&[(0, 9), (1, 3)]));
        assert_eq!(outdated(&latest), [true, true, false]);
        assert!(!latest.is_outdated(2, 1));
    }
}
