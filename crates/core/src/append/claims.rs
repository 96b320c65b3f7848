//! Which parts of a file the ranks of this node have recorded as appended by them.

use std::time::{Duration, Instant};

use eyrie_ledger::door::{Told, What};

use super::{Appended, number};
use crate::machine::Machine;

/// How long is waited for a rank that is between its write and its record: it takes a few
/// microseconds when it runs, and for ever if it died, too.
const BETWEEN: Duration = Duration::from_secs(1);

impl Machine {
    /// What was appended to the file `id` behind `before`, by ranks of this node: from, to.
    pub(super) fn claims(&self, id: u64, before: u64) -> Vec<(u64, u64)> {
        let since = Instant::now();
        let (own, count) = self.world();
        let mut all = Vec::new();
        for rank in (0..count).filter(|rank| *rank != own) {
            loop {
                let (parts, is_between) = self.claims_of(rank, id, before);
                if !is_between || since.elapsed() > BETWEEN {
                    all.extend(parts);
                    break;
                }
                std::thread::yield_now();
            }
        }
        all
    }

    /// Those of one rank, and whether it has begun one whose end is not recorded.
    fn claims_of(&self, rank: u32, id: u64, before: u64) -> (Vec<(u64, u64)>, bool) {
        let (mut parts, mut begun) = (Vec::new(), false);
        let kinds = [What::AppendBegun, What::Appended];
        self.endpoint.told(rank, &kinds, |told: Told<'_>| match told.what {
            What::AppendBegun => begun = number(told.bytes, 8) == id,
            What::Appended if begun => {
                let done = Appended::of(told.bytes);
                if done.end > before {
                    parts.push((done.end - done.count().min(done.end), done.end));
                }
                begun = false;
            }
            _ => {}
        });
        (parts, begun)
    }
}
