//! Notices (`notices`) that meet nodes which leave already: those of nodes that do, and those of
//! nodes that their ranks were to go to.
//!
//! Kept true: a node that is told to end has no more time than its machine, whoever had it leave
//! and however long that was to take, and leaves also if only its ranks were to move; ranks that
//! were to migrate to such nodes only stay where they are, and their node with them.

use crate::Job;
use crate::leaving::model::{Departures, End};
use crate::leaving::seconds;
use std::collections::BTreeSet;
use std::time::Duration;

/// What is less is no news: the time is computed anew at each look.
const SHORTER_BY_MS: u64 = 200;

/// How long after its beginning a node is to have left that has so long from now on, if that is
/// less than it had.
fn shorter(had_ms: Option<u64>, passed: Duration, left_ms: u64) -> Option<u64> {
    let limit_ms = (passed.as_millis() as u64).saturating_add(left_ms);
    let news = had_ms.is_none_or(|had| limit_ms.saturating_add(SHORTER_BY_MS) < had);
    news.then_some(limit_ms)
}

impl Departures {
    /// Whether a node is only about to give its ranks away, and stays then.
    pub fn some_become_spares(&self, going: &BTreeSet<u32>) -> bool {
        self.nodes.iter().any(|(node, l)| l.end == End::Spare && !going.contains(node))
    }
}

impl Job {
    /// A node that leaves, or whose ranks move, is told to end, and has so long.
    pub(crate) fn preempt(&mut self, node: u32, left_ms: u64) {
        let clock = self.clock.now();
        let name = self.nodes.node_name(node);
        let needed_ms = self.leave_estimate(node);
        let Some(leave) = self.leaving.nodes.get_mut(&node).filter(|l| !l.is_dismissed()) else {
            return;
        };
        let Some(limit_ms) = shorter(leave.limit_ms, leave.begun.elapsed(clock), left_ms) else {
            return;
        };
        leave.limit_ms = Some(limit_ms);
        let spare = leave.end == End::Spare;
        leave.end = End::Left;
        let late = needed_ms.filter(|needed| leave.precopy && *needed > left_ms as f64);
        if late.is_some() {
            leave.precopy = false;
        }
        let instead = if spare { ", in place of being a spare" } else { "" };
        let left = seconds(left_ms as f64);
        self.journal
            .say(format!("{name} leaves the job already, and is to within {left}{instead}"));
        if let Some(needed_ms) = late {
            self.tell_late(node, left_ms, needed_ms);
        }
    }

    /// Ranks that were to move to nodes that are to end, and to no others, do not.
    pub(crate) fn call_off_futile(&mut self, noticed: &BTreeSet<u32>) {
        let moves = self.leaving.nodes.iter().filter(|(node, l)| {
            l.end == End::Spare && !l.is_dismissed() && !noticed.contains(*node)
        });
        let moves: Vec<u32> = moves.map(|(node, _)| *node).collect();
        for node in moves {
            if self.is_futile(node, noticed)
                && let Ok(all) = self.call_off_with(node)
            {
                let why = "where its ranks were to go is about to end";
                all.into_iter().for_each(|node| self.stays(node, why));
            }
        }
    }

    /// Whether all ranks that move with those of a node were to go to these.
    fn is_futile(&self, node: u32, noticed: &BTreeSet<u32>) -> bool {
        let ranks = self.party_of(node).into_iter().flat_map(|n| self.nodes.placement.ranks_on(n));
        let to = |rank: u32| {
            self.recovery.planner.as_ref().and_then(|p| p.partner(rank)).map(|m| m.node)
        };
        let mut places = ranks.filter_map(to).peekable();
        places.peek().is_some() && places.all(|place| noticed.contains(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_no_more_time_than_it_had() {
        let passed = Duration::from_secs(60);
        assert_eq!(shorter(None, passed, 24_000), Some(84_000));
        assert_eq!(shorter(Some(600_000), passed, 24_000), Some(84_000));
        assert_eq!(shorter(Some(70_000), passed, 24_000), None);
        assert_eq!(shorter(Some(84_000), passed, 24_000), None, "the next look");
        assert_eq!(shorter(Some(84_000), passed + Duration::from_secs(1), 22_990), None);
        assert_eq!(shorter(None, passed, u64::MAX), Some(u64::MAX));
    }
}
