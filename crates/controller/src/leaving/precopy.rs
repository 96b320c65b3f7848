//! The rounds in which ranks that move are copied while they run, before they are stopped.
//!
//! A rank that writes as fast as it is copied is slowed down (`ToNode::Slow`), so that what is left
//! when it is stopped is little all the same.
//!
//! Kept true: the ranks of a party have their rounds at one time, so nobody waits long for others
//! and changes much meanwhile; they are stopped at one time, when another round would bring little
//! to any of them: when the last one was short, or not much smaller than the one before although
//! the rank is slowed down as far as may be, or the last of as many as may be.

use crate::leaving::model::Round;
use crate::{Job, Rank};
use std::time::Duration;

/// Making a process from its image.
const START_MS: f64 = 100.0;

/// How long it may take a rank to move: a copy, what has changed since, and starting elsewhere. By
/// the time that its last image took until it counted, else by the memory that it has, which goes
/// over at so many bytes in a millisecond.
pub(crate) fn time_to_move(counted_ms: Option<f64>, bytes: u64, rate: f64) -> Option<f64> {
    let copy = || (bytes > 0).then(|| 2.0 * bytes as f64 / rate.max(1.0) + START_MS);
    counted_ms.map(|ms| 3.0 * ms).or_else(copy)
}

impl Job {
    /// What the ranks of a node do next, which is what all of its party do: they are stopped at one
    /// time, when all were copied and none is just being copied again.
    pub(crate) fn round_of(&self, node: u32) -> Round {
        let clock = self.clock.now();
        let Some(leave) = self.leaving.nodes.get(&node) else { return Round::None };
        let half = |ms: u64| leave.begun.elapsed(clock) >= Duration::from_millis(ms / 2);
        let party = self.party_of(node).into_iter().flat_map(|n| self.nodes.placement.ranks_on(n));
        let party: Vec<&Rank> =
            party.map(|r| &self.ranks.all[r as usize]).filter(|r| !r.gone).collect();
        let stops = |r: &&Rank| r.moves.stop.as_ref().is_some_and(|s| s.holds);
        if !leave.precopy || party.iter().any(stops) {
            return Round::Last;
        }
        let late = leave.limit_ms.is_some_and(half);
        let idle = party.iter().all(|r| r.capture.generation.is_none());
        if !late && !party.iter().all(|r| r.moves.copied) {
            return Round::Live(next_turn(party.iter().map(|r| r.moves.turn), idle));
        }
        if idle { Round::Last } else { Round::None }
    }
}

/// The round that those have who have not begun it, of some that have begun these: all begin the
/// next one when all have ended theirs and are `idle`.
fn next_turn(turns: impl Iterator<Item = u32> + Clone, idle: bool) -> u32 {
    let last = turns.clone().max().unwrap_or(0);
    let together = idle && turns.min() == Some(last);
    if together { last + 1 } else { last.max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leaving::model::{FUTILE, Moves, ROUNDS, SLOW, SLOWEST};

    fn rounds(all: &[(u64, f64)]) -> Moves {
        let mut moves = Moves::default();
        all.iter().for_each(|(bytes, took_ms)| moves.round(*bytes, *took_ms, false));
        moves
    }

    #[test]
    fn rounds_end_when_little_is_left() {
        assert!(!rounds(&[(1 << 30, 9000.0)]).copied);
        assert!(!rounds(&[(1 << 30, 9000.0), (1 << 29, 4000.0)]).copied);
        let moves = rounds(&[(1 << 30, 9000.0), (1 << 29, 4000.0), (1 << 20, 50.0)]);
        assert!(moves.copied);
    }

    #[test]
    fn rounds_end_when_the_rank_writes_as_fast_as_it_is_copied() {
        assert!(rounds(&[(1 << 30, 9000.0), ((1 << 30) - 1, 9000.0)]).copied);
    }

    #[test]
    fn a_rank_that_writes_as_fast_as_it_is_copied_is_slowed_down() {
        let mut moves = rounds(&[(1 << 30, 9000.0)]);
        moves.round((1 << 30) - 1, 9000.0, true);
        assert_eq!((moves.copied, moves.part), (false, SLOWEST), "it writes to all of its memory");
        moves.round(1 << 30, 9000.0, true);
        assert_eq!((moves.copied, moves.part), (false, SLOWEST), "written before");
        moves.round(1 << 28, 2300.0, true);
        assert_eq!((moves.copied, moves.part), (false, SLOWEST));
        moves.round(1 << 28, 2300.0, true);
        assert!(moves.copied, "no slower");
        let mut moves = rounds(&[(1 << 30, 9000.0), (1 << 28, 2300.0)]);
        moves.round(1 << 28, 2300.0, true);
        assert_eq!((moves.copied, moves.part), (false, SLOW));
        moves.round(1 << 28, 2300.0, true);
        moves.round(1 << 28, 2300.0, true);
        assert_eq!((moves.copied, moves.part), (false, SLOWEST));
        moves.begins();
        assert_eq!(moves.part, 0, "another process");
    }

    #[test]
    fn rounds_of_a_slow_rank_may_vary() {
        let mut moves = rounds(&[(1 << 30, 9000.0)]);
        moves.round(1 << 30, 9000.0, true);
        moves.round(1 << 30, 9000.0, true);
        moves.round(1 << 27, 1200.0, true);
        for _ in 1..FUTILE {
            moves.round(1 << 27, 1200.0, true);
            assert!(!moves.copied);
        }
        moves.round(1 << 26, 600.0, true);
        assert!(!moves.copied, "it becomes less");
        moves.round(1 << 26, 600.0, true);
        assert!(moves.copied, "not any more");
    }

    #[test]
    fn what_a_round_takes_besides_its_bytes_is_not_much_to_copy() {
        assert!(rounds(&[(1 << 30, 9000.0), (1 << 20, 700.0)]).copied);
    }

    #[test]
    fn there_are_so_many_rounds_and_no_more() {
        let bytes = |n: u32| (1e12 * 0.75f64.powi(n as i32)) as u64;
        let all: Vec<(u64, f64)> = (0..ROUNDS).map(|n| (bytes(n), 9000.0)).collect();
        assert!(!rounds(&all[1..]).copied && rounds(&all).copied);
    }

    #[test]
    fn who_has_waited_for_others_is_copied_with_them_again() {
        let mut moves = rounds(&[(1 << 30, 9000.0), (1 << 20, 50.0)]);
        moves.round(1 << 29, 4500.0, true);
        assert!(!moves.copied, "much has changed meanwhile");
        moves.round(1 << 20, 50.0, true);
        assert!(moves.copied);
        moves.begins();
        assert!(!moves.copied, "another process");
    }

    #[test]
    fn what_was_never_copied_is_estimated_by_its_memory() {
        assert_eq!(time_to_move(None, 0, 1e5), None);
        assert_eq!(time_to_move(Some(100.0), 1 << 30, 1e5), Some(300.0));
        assert_eq!(time_to_move(None, 100_000_000, 1e5), Some(2000.0 + START_MS));
    }

    #[test]
    fn rounds_of_a_party_begin_together() {
        let next = |turns: &[u32], idle| next_turn(turns.iter().copied(), idle);
        assert_eq!(next(&[0, 0], false), 1, "one is just having its checkpoint: it follows");
        assert_eq!(next(&[1, 0], true), 1);
        assert_eq!(next(&[1, 1], false), 1, "one still has its round");
        assert_eq!(next(&[1, 1], true), 2);
        assert_eq!(next(&[3, 3, 0], true), 3, "it is another process now");
    }
}
