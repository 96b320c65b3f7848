//! A stream as it lies on a node, in its sender's log or in a mirror: entries at positions, in
//! chunks that no entry crosses. The model of `ledger::{sendlog, mirror, walk}`.

use std::collections::BTreeMap;

pub const CHUNK_BYTES: u64 = 1024;
/// Entries are as long as so many slots.
pub const SLOT_BYTES: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Bytes of the stream.
    pub size: u64,
    /// Fills a chunk that has no room for the next message.
    pub pad: bool,
    pub sync: bool,
    /// Of the message.
    pub number: u64,
    pub content: u64,
    pub acked: bool,
}

impl Entry {
    /// Bytes that are sent.
    pub fn told(&self) -> u64 {
        if self.pad { SLOT_BYTES } else { self.size }
    }

    /// Says the same, whoever has acknowledged it.
    pub fn is_like(&self, other: &Entry) -> bool {
        Entry { acked: false, ..*self } == Entry { acked: false, ..*other }
    }

    pub fn encode(&self, at: u64, out: &mut Vec<u8>) {
        let end = out.len() + self.told() as usize;
        let flags = u64::from(self.pad) << 1 | u64::from(self.sync);
        for word in [at, self.size, flags, self.number, self.content] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.resize(end, 0x5a);
    }

    /// The entry that `bytes` begin with, and its position.
    pub fn decode(bytes: &[u8]) -> Option<(u64, Entry)> {
        let word = |at: usize| {
            let word = bytes.get(8 * at..8 * at + 8)?;
            Some(u64::from_le_bytes(word.try_into().ok()?))
        };
        let (size, flags) = (word(1)?, word(2)?);
        let (number, content) = (word(3)?, word(4)?);
        let (pad, sync) = (flags & 2 != 0, flags & 1 != 0);
        let entry = Entry { size, pad, sync, number, content, acked: false };
        let whole = bytes.len() as u64 >= entry.told() && size % SLOT_BYTES == 0;
        (whole && size > 0).then_some((word(0)?, entry))
    }
}

/// The beginning of the chunk that a position is in.
pub fn chunk_of(position: u64) -> u64 {
    position / CHUNK_BYTES * CHUNK_BYTES
}

/// Bytes that are left in the chunk of a position.
pub fn left_in_chunk(position: u64) -> u64 {
    CHUNK_BYTES - position % CHUNK_BYTES
}

#[derive(Debug, Clone, Default)]
pub struct Log {
    pub entries: BTreeMap<u64, Entry>,
}

impl Log {
    pub fn at(&self, position: u64) -> Option<&Entry> {
        self.entries.get(&position)
    }

    /// How far it goes without a gap.
    pub fn end(&self, from: u64) -> u64 {
        let mut position = from;
        while let Some(entry) = self.at(position) {
            position += entry.size;
        }
        position
    }

    /// What lies in chunks before that of a position is not needed any more.
    pub fn trim(&mut self, need: u64) {
        self.entries = self.entries.split_off(&chunk_of(need));
    }

    /// What comes behind a gap is not here.
    pub fn cut_off(&mut self, end: u64) {
        self.entries.split_off(&end);
    }
}
