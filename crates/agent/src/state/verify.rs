//! The state of a verification: what a run left in its segment, and how two runs compare.
//!
//! Kept true: every channel's count, size and hash chain, and every recorded outcome, is compared.
//! The order of runs is left to the outer `verify`.

use eyrie_ledger::compare;
use eyrie_ledger::segment::Segment;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One channel of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Course {
    pub(crate) messages: u64,
    bytes: u64,
    hash: u64,
}

/// What a run left in its segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    ranks: u32,
    determinants: Vec<Vec<u64>>,
    /// By source, then destination.
    pub(crate) channels: Vec<Course>,
}

/// The state of a verification.
#[derive(Default)]
pub(crate) struct Verify {
    pub(crate) recorded: Option<Record>,
    /// The logs of the recorded run, as far as they hold what was sent.
    pub(crate) logs: Option<Arc<Segment>>,
    pub(crate) progress: u64,
    pub(crate) looks: u32,
}

impl Record {
    pub(crate) fn of(segment: &Segment) -> Record {
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
    pub(crate) fn preload(&self, segment: &Segment) {
        for (rank, words) in (0..self.ranks).zip(&self.determinants) {
            for (n, word) in (0u64..).zip(words) {
                segment.det(rank, n).store(*word, Ordering::Relaxed);
            }
            segment.rank(rank).det_tail.store(words.len() as u64, Ordering::Release);
        }
    }

    /// What is different in `forced`, if anything.
    pub(crate) fn difference(&self, forced: &Record, logs: (&Segment, &Segment)) -> Option<String> {
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
