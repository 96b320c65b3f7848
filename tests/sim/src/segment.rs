//! What a node holds for its ranks: determinant logs, send logs, and mirrors of the streams that
//! come from other nodes. The model of the job segment (`crates/ledger`), without its bytes.

use crate::program::Channel;
use crate::types::Message;
use eyrie_protocol::gate::DetLogs;
use eyrie_protocol::replicas::Words;
use std::collections::BTreeMap;

pub const RUN: u64 = 1 << 56;
const ONE: u64 = 2 << 56;

/// A wildcard or a poll that found a message.
pub fn word_of(source: u32) -> u64 {
    ONE | u64::from(source)
}

/// The source in a word, or how many polls in vain.
pub fn read_word(word: u64) -> Result<u32, u64> {
    if word >= ONE { Ok((word & 0xffff) as u32) } else { Err(word & (RUN - 1)) }
}

/// How many outcomes words stand for.
pub fn outcomes(words: &[u64]) -> u64 {
    words.iter().map(|w| read_word(*w).err().unwrap_or(1)).sum()
}

/// A log or a mirror: the same thing seen from two sides.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    pub messages: BTreeMap<u64, Message>,
    /// How many of them the receiver has told to have received.
    pub taken: u64,
}

/// One node's segment.
#[derive(Debug, Clone, Default)]
pub struct Segment {
    pub det: BTreeMap<u32, Words>,
    pub streams: BTreeMap<Channel, Stream>,
    /// A mutation: the last word of a log is always read as it was first written.
    pub frozen_runs: bool,
}

impl DetLogs for Segment {
    fn tail(&self, rank: u32) -> u64 {
        self.det.get(&rank).map_or(0, Words::end)
    }

    fn trim(&self, rank: u32) -> u64 {
        self.det.get(&rank).map_or(0, |log| log.first)
    }

    fn word(&self, rank: u32, at: u64) -> u64 {
        let word = self.det[&rank].words[(at - self.trim(rank)) as usize];
        if self.frozen_runs && word < ONE { RUN | 1 } else { word }
    }
}

impl Segment {
    /// Adds a word to a rank's determinants.
    pub fn push(&mut self, rank: u32, word: u64) {
        self.det.entry(rank).or_default().words.push(word);
    }

    /// The last word, if the log has any.
    pub fn last(&mut self, rank: u32) -> Option<&mut u64> {
        self.det.get_mut(&rank)?.words.last_mut()
    }

    pub fn trim_determinants(&mut self, rank: u32, upto: u64) {
        if let Some(log) = self.det.get_mut(&rank) {
            let surplus = upto.saturating_sub(log.first).min(log.words.len() as u64);
            log.words.drain(..surplus as usize);
            log.first += surplus;
        }
    }
}
