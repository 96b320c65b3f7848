//! `eyrie verify` on its node: the record of the first run, the second run that is forced to it,
//! and the comparison of the two.
//!
//! Kept true: every channel's count, size and hash chain, and every recorded outcome, is compared.

use super::Agent;
use super::start::Replay;
use eyrie_control::node::{FromNode, Judgement};
use eyrie_ledger::compare;
use eyrie_ledger::door;
use eyrie_ledger::segment::{self, Segment};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Looks without any progress (100 ms apart) after which a forced run counts as stuck.
const STUCK_LOOKS: u32 = 100;

/// One channel of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Course {
    messages: u64,
    bytes: u64,
    hash: u64,
}

/// What a run left in its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Record {
    ranks: u32,
    determinants: Vec<Vec<u64>>,
    /// By source, then destination.
    channels: Vec<Course>,
}

/// The state of a verification.
#[derive(Default)]
pub(super) struct Verify {
    recorded: Option<Record>,
    /// The logs of the recorded run, as far as they hold what was sent.
    logs: Option<Arc<Segment>>,
    progress: u64,
    looks: u32,
}

impl Record {
    fn of(segment: &Segment) -> Record {
        let size = segment.geometry().ranks;
        let words = |rank: u32| {
            let tail = segment.rank(rank).det_tail.load(Ordering::Acquire);
            let tail = tail.min(segment.geometry().det_words);
            (0..tail).map(|n| segment.det(rank, n).load(Ordering::Acquire)).collect()
        };
        let course = |pair: u32| {
            let c = segment.channel(pair / size, pair % size);
            Course {
                messages: c.msgs.load(Ordering::Acquire),
                bytes: c.bytes.load(Ordering::Acquire),
                hash: c.hash.load(Ordering::Acquire),
            }
        };
        Record {
            ranks: size,
            determinants: (0..size).map(words).collect(),
            channels: (0..size * size).map(course).collect(),
        }
    }

    /// Dictates this run's outcomes to the ranks of a fresh segment.
    fn preload(&self, segment: &Segment) {
        for (rank, words) in (0..self.ranks).zip(&self.determinants) {
            for (n, word) in (0u64..).zip(words) {
                segment.det(rank, n).store(*word, Ordering::Relaxed);
            }
            segment.rank(rank).det_tail.store(words.len() as u64, Ordering::Release);
        }
    }

    /// What is different in `forced`, if anything.
    fn difference(&self, forced: &Record, logs: (&Segment, &Segment)) -> Option<String> {
        let all = (0u32..).zip(self.channels.iter().zip(&forced.channels));
        let differ: Vec<_> = all.filter(|(_, (before, now))| before != now).collect();
        // Of several channels the one that differs by its earliest message.
        let whole = [logs.0, logs.1].iter().all(|s| s.header().forgot.load(Ordering::Relaxed) == 0);
        let named = differ.iter().filter(|_| whole).filter_map(|(pair, _)| {
            let pair = (pair / self.ranks, pair % self.ranks);
            compare::first_difference(logs.0, logs.1, pair)
        });
        if let Some((_, text)) = named.min() {
            return Some(text);
        }
        if let Some((pair, (before, now))) = differ.first() {
            let (source, destination) = (pair / self.ranks, pair % self.ranks);
            return Some(format!(
                "channel {source} -> {destination} differs: recorded {} messages, {} bytes, \
                 hash {:016x}; forced {} messages, {} bytes, hash {:016x} (which message is not \
                 known, as the logs did not hold all: a larger --log-limit helps)",
                before.messages, before.bytes, before.hash, now.messages, now.bytes, now.hash
            ));
        }
        let pairs = self.determinants.iter().zip(&forced.determinants);
        let (rank, (before, now)) = (0u32..).zip(pairs).find(|(_, (a, b))| a != b)?;
        Some(format!(
            "rank {rank} had other outcomes: {} words recorded, {} when forced",
            before.len(),
            now.len()
        ))
    }
}

impl Agent {
    /// Prepares a run under the first one's outcomes.
    pub(super) fn force(&mut self, seed: u32) {
        if let Some(verify) = self.verify.as_mut().filter(|v| v.recorded.is_none()) {
            verify.recorded = Some(Record::of(&self.segment));
            verify.logs = Some(Arc::clone(&self.segment));
        }
        if let Err(error) = self.renew_segment() {
            return self.say(FromNode::Forced { error: Some(error.to_string()) });
        }
        self.segment.header().whim.store(seed, Ordering::Relaxed);
        if let Some(recorded) = self.verify.as_ref().and_then(|v| v.recorded.as_ref()) {
            recorded.preload(&self.segment);
        }
        for r in &mut self.ranks {
            (r.deaths, r.restart.replay) = (0, Replay::No);
        }
        self.say(FromNode::Forced { error: None });
    }

    pub(super) fn judge(&mut self) {
        let known = self.verify.as_ref().and_then(|v| v.recorded.as_ref().zip(v.logs.as_ref()));
        let Some((recorded, logs)) = known else {
            let text = String::from("there is no recorded run to compare with");
            return self.say(FromNode::Failed { text });
        };
        let forced = Record::of(&self.segment);
        let unused = (0..self.spec.program.size).find(|r| !used_all(&self.segment, *r));
        let replayed = |r| self.segment.rank(r).replayed.load(Ordering::Acquire);
        let judgement = Judgement {
            difference: recorded.difference(&forced, (&**logs, &*self.segment)),
            unused: unused.map(|r| format!("rank {r} did not use all recorded outcomes")),
            messages: recorded.channels.iter().map(|c| c.messages).sum(),
            channels: recorded.channels.iter().filter(|c| c.messages > 0).count() as u64,
            events: (0..self.spec.program.size).map(replayed).sum(),
        };
        self.say(FromNode::Judged(Box::new(judgement)));
    }

    /// A forced run in which everybody waits for something that does not come has diverged.
    pub(super) fn watch_forced_run(&mut self) {
        let Some(verify) = &mut self.verify else { return };
        if verify.recorded.is_none() {
            return;
        }
        let live: Vec<u32> =
            (0u32..).zip(&self.ranks).filter_map(|(n, r)| r.proc.is_some().then_some(n)).collect();
        let waits = |r: &u32| {
            let ctl = self.segment.rank(*r);
            ctl.lib.load(Ordering::Acquire) == segment::LIB_WAIT
                && ctl.state.load(Ordering::Acquire) == segment::STATE_RUNNING
        };
        let progress = (0..self.spec.program.size).fold(0u64, |sum, r| {
            let ctl = self.segment.rank(r);
            let counters = [&ctl.det_pos, &ctl.msgs_sent, &ctl.msgs_received, &ctl.replayed];
            counters.iter().fold(sum, |n, c| n.wrapping_add(c.load(Ordering::Acquire)))
        });
        if live.is_empty() || !live.iter().all(waits) || progress != verify.progress {
            (verify.progress, verify.looks) = (progress, 0);
            return;
        }
        verify.looks += 1;
        if verify.looks == STUCK_LOOKS {
            let rank = live[0];
            let ctl = self.segment.rank(rank);
            let (at, end) =
                (ctl.det_pos.load(Ordering::Acquire), ctl.det_tail.load(Ordering::Acquire));
            let text = format!(
                "the forced run is stuck: rank {rank} waits for a message that does not come \
                 (at word {at} of {end} recorded)"
            );
            self.say(FromNode::Stuck { text });
        }
    }
}

/// Whether a rank has used all outcomes that are recorded of it. One whose log ends with a run of
/// fruitless calls stands before that, however many it has made, as the run may still grow.
fn used_all(segment: &Segment, rank: u32) -> bool {
    let ctl = segment.rank(rank);
    let (at, end) = (ctl.det_pos.load(Ordering::Acquire), ctl.det_tail.load(Ordering::Acquire));
    let last = || segment.det(rank, at).load(Ordering::Relaxed);
    let made = || ctl.replaying.load(Ordering::Acquire) == 0;
    at >= end || (at + 1 == end && door::is_run(last()) && made())
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_ledger::segment::Geometry;

    fn empty() -> Segment {
        Segment::create("e", Geometry::new(2, 1 << 20), 0, 1).unwrap().1
    }

    fn record(change: impl Fn(&Segment)) -> Record {
        let (_fd, segment) = Segment::create("v", Geometry::new(2, 1 << 20), 0, 1).unwrap();
        let channel = segment.channel(1, 0);
        channel.msgs.store(3, Ordering::Relaxed);
        channel.bytes.store(24, Ordering::Relaxed);
        channel.hash.store(7, Ordering::Relaxed);
        segment.det(1, 0).store(42, Ordering::Relaxed);
        segment.rank(1).det_tail.store(1, Ordering::Relaxed);
        change(&segment);
        Record::of(&segment)
    }

    #[test]
    fn equal_runs_are_equal_and_the_first_difference_is_named() {
        let base = record(|_| {});
        let logs = (&empty(), &empty());
        assert_eq!(base.difference(&record(|_| {}), logs), None);
        let other = record(|s| s.channel(1, 0).hash.store(8, Ordering::Relaxed));
        let text = base.difference(&other, logs).unwrap();
        assert!(text.starts_with("channel 1 -> 0 differs: recorded 3 messages, 24 bytes"));
        let other = record(|s| s.det(1, 0).store(43, Ordering::Relaxed));
        assert!(base.difference(&other, logs).unwrap().starts_with("rank 1 had other outcomes"));
    }

    #[test]
    fn a_run_of_fruitless_calls_at_the_end_may_be_used_up() {
        let (_fd, segment) = Segment::create("u", Geometry::new(1, 1 << 20), 0, 1).unwrap();
        let ctl = segment.rank(0);
        ctl.det_tail.store(1, Ordering::Relaxed);
        assert!(!used_all(&segment, 0), "another word");
        segment.det(0, 0).store(1 << 56 | 3, Ordering::Relaxed);
        assert!(used_all(&segment, 0));
        ctl.replaying.store(1, Ordering::Relaxed);
        assert!(!used_all(&segment, 0), "not all of its calls were made");
        ctl.det_pos.store(1, Ordering::Relaxed);
        assert!(used_all(&segment, 0));
    }

    #[test]
    fn recorded_outcomes_are_laid_before_a_fresh_segment() {
        let base = record(|_| {});
        let (_fd, fresh) = Segment::create("w", Geometry::new(2, 1 << 20), 0, 1).unwrap();
        base.preload(&fresh);
        assert_eq!(fresh.rank(1).det_tail.load(Ordering::Relaxed), 1);
        assert_eq!(fresh.det(1, 0).load(Ordering::Relaxed), 42);
        assert_eq!(fresh.rank(0).det_tail.load(Ordering::Relaxed), 0);
    }
}
