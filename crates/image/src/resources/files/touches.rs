//! Who was seen writing to a file, and since when.

use crate::kernel::time::now;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Who was seen changing what has a name.
#[derive(Debug, Default, Clone)]
pub(super) struct Touch {
    pub by: BTreeSet<libc::pid_t>,
    pub others: bool,
    /// Somebody of whom nothing is known.
    pub unknown: bool,
    /// The time of day in ns when that was first seen; 0: before a checkpoint.
    pub since_ns: i64,
}

impl Touch {
    pub fn now() -> Touch {
        Touch { since_ns: now(libc::CLOCK_REALTIME) as i64, ..Touch::default() }
    }

    fn join(&mut self, other: Touch) {
        self.by.extend(other.by);
        self.others |= other.others;
        self.unknown |= other.unknown;
        self.since_ns = self.since_ns.min(other.since_ns);
    }

    pub fn is_shared(&self) -> bool {
        self.others || self.unknown || self.by.len() > 1
    }
}

/// Somebody else, or the same once more.
pub(super) fn touch_of(all: &mut BTreeMap<PathBuf, Touch>, path: &Path, touch: Touch) {
    match all.get_mut(path) {
        Some(known) => known.join(touch),
        None => drop(all.insert(path.to_path_buf(), touch)),
    }
}
