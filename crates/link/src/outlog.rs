//! A stream's log on its way to another node: where pieces are cut, and which messages still want
//! an acknowledgement.
//!
//! Kept true: a piece ends where an entry ends and lies in one chunk; an acknowledgement is written
//! only into an entry that was found in the log and wants one.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use eyrie_ledger::reader::Damaged;
use eyrie_ledger::segment::{FT_PROTECT, FT_RETAIN, Segment};
use eyrie_ledger::walk::{self, Walk};
use eyrie_protocol::link::wire::{PIECE_BYTES, Stream};

/// A piece: the position it ends at, and its bytes.
pub(crate) type Piece = (u64, u64);

/// What a walk ended with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Damaged(#[from] Damaged),
    #[error("the other node wants to go on inside of the entry at position {0}")]
    Inside(u64),
}

#[derive(Debug, Default)]
pub(crate) struct OutLog {
    /// The receiver may acknowledge entries from here on.
    need: u64,
    /// Position up to which pieces were cut.
    cut: u64,
    walk: Option<Walk>,
    /// Position up to which the receiver's node has the stream.
    have: u64,
    /// Entries that want an acknowledgement.
    wanting: BTreeSet<u64>,
    /// Acknowledgements for entries that the sender, which repeats itself, has yet to write.
    early: BTreeSet<u64>,
}

impl OutLog {
    /// The receiver wants the stream from `from` on; it knows what it acknowledged from `need` on.
    pub fn rewind(&mut self, segment: &Segment, (src, dst): Stream, from: u64, need: u64) {
        *self = OutLog { need: need.min(from), cut: from, have: from, ..OutLog::default() };
        segment.channel(src, dst).need.store(need, Release);
    }

    /// Cuts what was published since.
    pub fn cut(
        &mut self,
        segment: &Segment,
        stream: Stream,
        out: &mut Vec<Piece>,
    ) -> Result<(), Fault> {
        let chunk = u64::from(segment.geometry().chunk_bytes);
        // Of what the receiver has left behind some may never be written again.
        let released = segment.channel(stream.0, stream.1).trim.load(Acquire).min(self.cut);
        let walk = self.walk.take().filter(|walk| walk.pos() / chunk >= released / chunk);
        let Some(mut walk) = walk.or_else(|| self.begin(segment, stream, released)) else {
            return Ok(());
        };
        let mut bytes = 0;
        let stepped = loop {
            let at = walk.pos();
            let spot = match walk.step(segment) {
                Ok(Some(spot)) => spot,
                Ok(None) => break Ok(()),
                Err(damaged) => break Err(Fault::Damaged(damaged)),
            };
            if spot.wants_ack() && at >= self.need {
                self.found(segment, stream, at);
            }
            if walk.pos() <= self.cut {
                continue;
            }
            if at < self.cut {
                break Err(Fault::Inside(at));
            }
            if bytes > 0 && (bytes + spot.told > PIECE_BYTES || at % chunk == 0) {
                out.push((at, bytes));
                bytes = 0;
            }
            bytes += spot.told;
            self.cut = walk.pos();
        };
        if bytes > 0 {
            out.push((self.cut, bytes));
        }
        self.walk = Some(walk);
        stepped
    }

    /// Where the walk begins: where acknowledgements may be needed, as far as it is not released
    /// by now, or, if it is not kept, where pieces are. `None`: the sender repeats itself and is
    /// not there yet.
    fn begin(&self, segment: &Segment, (src, dst): Stream, released: u64) -> Option<Walk> {
        let chunk = u64::from(segment.geometry().chunk_bytes);
        let header = segment.header();
        let retained =
            header.ft.load(Relaxed) & FT_RETAIN != 0 && header.unprotected.load(Relaxed) == 0;
        let walk = Walk::from_chunk(segment, src, dst, self.need.max(released) / chunk);
        match walk {
            None if !retained => Walk::from_chunk(segment, src, dst, self.cut / chunk),
            walk => walk,
        }
    }

    fn found(&mut self, segment: &Segment, (src, dst): Stream, at: u64) {
        if self.early.remove(&at) {
            walk::acknowledge(segment, src, dst, at);
            segment.rank(src).wake();
        } else if !walk::is_acknowledged(segment, src, dst, at) {
            self.wanting.insert(at);
        }
    }

    /// The message that begins at `at` was matched.
    pub fn acked(&mut self, segment: &Segment, (src, dst): Stream, at: u64) {
        let walked = self.walk.as_ref().map_or(self.need, Walk::pos);
        if self.wanting.remove(&at) {
            walk::acknowledge(segment, src, dst, at);
            segment.rank(src).wake();
            self.publish(segment, (src, dst));
        } else if at >= walked {
            self.early.insert(at);
        }
    }

    /// The receiver has the stream up to `have` and needs it from `need` on.
    pub fn moved(&mut self, segment: &Segment, stream: Stream, have: u64, need: u64) {
        self.have = have;
        segment.channel(stream.0, stream.1).need.store(need, Release);
        self.early = self.early.split_off(&need);
        self.publish(segment, stream);
    }

    /// What is not retained may be released up to what the receiver's node has, but no further than
    /// the first message whose acknowledgement is to be written into it. Where ranks are brought
    /// back it stays until the receiver needs it no more: its node may be lost.
    fn publish(&self, segment: &Segment, (src, dst): Stream) {
        let had = self.wanting.first().map_or(self.have, |first| self.have.min(*first));
        if segment.header().ft.load(Relaxed) & FT_PROTECT == 0 {
            segment.channel(src, dst).had.store(had, Release);
        }
        if segment.rank(src).pressure.load(Acquire) != 0 {
            segment.rank(src).wake();
        }
    }
}
