//! Rounds that bring back what lost nodes guarded: how fast nodes send in them, and how far a
//! round is.
//!
//! Kept true: who reads images out of the vault for ranks that come back, and the program itself,
//! are left a part of every link, unless it was said how much such a round may take.

use crate::Job;
use crate::vault::model::{Progress, Vaults};
use eyrie_control::status::VaultRound;
use eyrie_protocol::membership::Member;

/// The lower of two limits, of which 0 is none.
fn lower(one: u64, other: u64) -> u64 {
    match (one, other) {
        (0, limit) | (limit, 0) => limit,
        _ => one.min(other),
    }
}

/// Most bytes a second that a node sends to bring back what was lost, as it was said, or by the
/// slowest link.
fn rebuild_rate(rate: u64, said: Option<u64>, slowest: Option<u64>) -> u64 {
    lower(rate, said.unwrap_or_else(|| slowest.map_or(0, |slowest| (slowest / 2).max(1))))
}

impl Vaults {
    /// The round that is under way.
    pub fn vault_round(&self) -> Option<VaultRound> {
        let round = self.round.as_ref()?;
        let Progress { rebuild, rate, total, sent } = &round.progress;
        let sent_bytes = sent.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
        Some(VaultRound {
            generation: round.generation,
            rebuild: *rebuild,
            images: round.images.len() as u32,
            sent_bytes,
            // It is an estimate.
            total_bytes: sent_bytes.max(*total),
            rate_bytes: *rate,
        })
    }
}

impl Job {
    /// The beginning of a round of these images.
    pub(crate) fn progress(&self, images: &[(u32, u32, Member)]) -> Progress {
        let live = self.recovery.planner.as_ref().map(|p| p.members()).unwrap_or_default();
        let thin = |(rank, generation, _): &(u32, u32, Member)| {
            let place = self.vaults.place((*rank, *generation));
            place.is_some_and(|(_, _, guard)| guard.members.iter().any(|m| !live.contains(m)))
        };
        let (rebuild, manner) = (images.iter().any(thin), &self.spec.storage.manner);
        let rate = if rebuild {
            rebuild_rate(manner.rate, manner.rebuild, self.vaults.links.slowest())
        } else {
            manner.rate
        };
        Progress { rebuild, rate, ..Progress::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_slowest_link_is_taken_unless_it_was_said_how_much() {
        assert_eq!(rebuild_rate(0, None, None), 0, "nothing is measured");
        assert_eq!(rebuild_rate(0, None, Some(1000)), 500);
        assert_eq!(rebuild_rate(300, None, Some(1000)), 300, "--vault-rate holds, too");
        assert_eq!(rebuild_rate(900, None, Some(1000)), 500);
        assert_eq!(rebuild_rate(0, Some(700), Some(1000)), 700);
        assert_eq!(rebuild_rate(300, Some(700), Some(1000)), 300);
        assert_eq!(rebuild_rate(0, Some(0), Some(1000)), 0, "no limit was asked for");
        assert_eq!(rebuild_rate(300, Some(0), Some(1000)), 300);
    }

    #[test]
    fn what_is_sent_is_told_beside_what_is_to_be() {
        let mut progress = Progress { rebuild: true, rate: 1_000_000, ..Progress::default() };
        progress.encodes("rs:4+2".parse().unwrap(), &[10, 20, 0]);
        progress.encodes("rs:4+2".parse().unwrap(), &[5]);
        assert_eq!(progress.total, 70);
        progress.note(1, 7);
        progress.note(1, 9);
        progress.note(2, 1);
        assert_eq!(progress.sent.values().sum::<u64>(), 10);
        assert_eq!(progress.describe(), ", after a loss, at most 1.0 MB/s a node");
        assert_eq!(Progress::default().describe(), "");
    }
}
