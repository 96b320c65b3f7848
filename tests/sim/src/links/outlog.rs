//! A stream's log on its way to another node, as `crates/link/src/outlog.rs` has it.

use super::log::{CHUNK_BYTES, Log, chunk_of};
use std::collections::BTreeSet;

/// Longest piece, in bytes.
const PIECE_BYTES: u64 = 700;

/// Where a piece ends, and its bytes.
pub type Piece = (u64, u64);

#[derive(Debug, Default)]
pub struct OutLog {
    need: u64,
    cut: u64,
    walk: Option<u64>,
    wanting: BTreeSet<u64>,
    early: BTreeSet<u64>,
}

impl OutLog {
    pub fn rewind(&mut self, from: u64, need: u64) {
        *self = OutLog { need: need.min(from), cut: from, ..OutLog::default() };
    }

    /// The receiver has passed all before `from`.
    pub fn skip(&mut self, from: u64, need: u64) {
        (self.cut, self.walk) = (from, None);
        self.need = self.need.max(need);
        self.early = self.early.split_off(&need);
    }

    /// Cuts what is new. Err: the other node wants to go on inside of an entry.
    pub fn cut(&mut self, log: &mut Log, floor: u64, out: &mut Vec<Piece>) -> Result<(), u64> {
        // What is released is passed over.
        let released = chunk_of(floor.min(self.cut));
        let begin = chunk_of(self.need).max(released);
        let walk = self.walk.take().filter(|pos| *pos >= released);
        let Some(mut pos) = walk.or_else(|| log.at(begin).map(|_| begin)) else {
            return Ok(());
        };
        let mut bytes = 0;
        let mut inside = None;
        while let Some(entry) = log.at(pos).copied() {
            let at = pos;
            pos += entry.size;
            if entry.sync && at >= self.need {
                self.found(log, at);
            }
            if pos <= self.cut {
                continue;
            }
            if at < self.cut {
                inside = Some(at);
                break;
            }
            if bytes > 0 && (bytes + entry.told() > PIECE_BYTES || at % CHUNK_BYTES == 0) {
                out.push((at, bytes));
                bytes = 0;
            }
            bytes += entry.told();
            self.cut = pos;
        }
        if bytes > 0 {
            out.push((self.cut, bytes));
        }
        self.walk = Some(pos);
        inside.map_or(Ok(()), Err)
    }

    fn found(&mut self, log: &mut Log, at: u64) {
        let Some(entry) = log.entries.get_mut(&at) else { return };
        if self.early.remove(&at) {
            entry.acked = true;
        } else if !entry.acked {
            self.wanting.insert(at);
        }
    }

    pub fn acked(&mut self, log: &mut Log, at: u64) {
        let walked = self.walk.unwrap_or(self.need);
        if self.wanting.remove(&at) {
            log.entries.get_mut(&at).into_iter().for_each(|entry| entry.acked = true);
        } else if at >= walked {
            self.early.insert(at);
        }
    }

    pub fn moved(&mut self, need: u64) {
        self.early = self.early.split_off(&need);
    }
}
