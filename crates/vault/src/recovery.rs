//! What is done with generations when a vault is opened, after whatever happened to it: without
//! I/O.
//!
//! A generation exists if some member has its commit and none says that it was dropped. If no
//! member has its commit, and in no group more are missing than the scheme tolerates, it was never
//! reported as committed: it is dropped, and the members note that, as one of the missing ones may
//! come back with half a commit. If more are missing nothing is decided.
//!
//! Kept true: what was reported as committed is never dropped here.

use std::collections::{BTreeMap, BTreeSet};

/// What a member has of the generations.
#[derive(Debug, Clone, Default)]
pub struct Found {
    /// Of which it has the record of a commit.
    pub committed: BTreeSet<u64>,
    /// Of which it has any other file.
    pub begun: BTreeSet<u64>,
    /// Which it knows to be dropped.
    pub dropped: BTreeSet<u64>,
}

/// What becomes of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It exists: every member is to have its commit.
    Exists,
    /// It does not: every member is to note that, and remove what it has of it.
    Dropped,
    /// Too many are missing to know.
    Unknown,
}

/// Decides over all generations of which anything was found. `missing`: how many members of each
/// group are not there.
pub fn decide(found: &[Found], missing: &[usize], tolerates: usize) -> BTreeMap<u64, Verdict> {
    let known = missing.iter().all(|missing| *missing <= tolerates);
    let seen = |f: &Found| f.committed.union(&f.begun).copied().collect::<Vec<u64>>();
    let all: BTreeSet<u64> = found.iter().flat_map(seen).collect();
    let verdict = |generation: u64| {
        let any = |of: fn(&Found) -> &BTreeSet<u64>| {
            found.iter().any(|member| of(member).contains(&generation))
        };
        match () {
            () if any(|member| &member.dropped) => Verdict::Dropped,
            () if any(|member| &member.committed) => Verdict::Exists,
            () if known => Verdict::Dropped,
            () => Verdict::Unknown,
        }
    };
    all.into_iter().map(|generation| (generation, verdict(generation))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(committed: &[u64], begun: &[u64], dropped: &[u64]) -> Found {
        let set = |of: &[u64]| of.iter().copied().collect();
        Found { committed: set(committed), begun: set(begun), dropped: set(dropped) }
    }

    #[test]
    fn a_commit_anywhere_counts_and_a_drop_counts_more() {
        let members =
            [found(&[1, 2], &[3], &[]), found(&[1], &[2, 3, 4], &[]), found(&[], &[], &[2])];
        let verdicts = decide(&members, &[1], 1);
        let expected = [
            (1, Verdict::Exists),
            (2, Verdict::Dropped),
            (3, Verdict::Dropped),
            (4, Verdict::Dropped),
        ];
        assert_eq!(verdicts, BTreeMap::from(expected));
    }

    #[test]
    fn nothing_is_dropped_while_too_many_are_missing() {
        let members = [found(&[1], &[2], &[])];
        let verdicts = decide(&members, &[0, 3], 2);
        assert_eq!(verdicts, BTreeMap::from([(1, Verdict::Exists), (2, Verdict::Unknown)]));
    }
}
