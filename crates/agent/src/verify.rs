//! `eyrie verify` on its node: the record of the first run, the second run that is forced to it,
//! and the comparison of the two.
//!
//! Kept true: every channel's count, size and hash chain, and every recorded outcome, is compared.

use super::Agent;
use super::state::restart::Replay;
use super::state::verify::Record;
use eyrie_control::node::{FromNode, Judgement};
use eyrie_ledger::door;
use eyrie_ledger::segment::{self, Segment};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Looks without any progress (100 ms apart) after which a forced run counts as stuck.
const STUCK_LOOKS: u32 = 100;

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
