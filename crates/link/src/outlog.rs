//! A stream's log on its way to another node: where pieces are cut, and which messages still want
//! an acknowledgement.
//!
//! What the rank gave to a direct connection (`ledger::early`) is set aside, as long as nothing
//! follows it that was not: the receiver will have passed it, and say so. If that takes long it is
//! carried.
//!
//! Kept true: a piece ends where an entry ends and lies in one chunk; an acknowledgement is written
//! only into an entry that was found in the log and wants one; nothing overtakes what is set aside.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

use eyrie_ledger::datagram;
use eyrie_ledger::reader::Damaged;
use eyrie_ledger::segment::Segment;
use eyrie_ledger::walk::{self, Walk};
use eyrie_protocol::link::wire::{PIECE_BYTES, Stream};

/// A piece: the position it ends at, and its bytes.
pub(crate) type Piece = (u64, u64);

/// So long something is set aside. It is not lost by then: nobody has to wait for that who looks.
const ASIDE: Duration = Duration::from_millis(20);

/// What a walk ended with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Damaged(#[from] Damaged),
    #[error("the other node wants to go on inside of the entry at position {0}")]
    Inside(u64),
}

/// A piece that is being cut.
#[derive(Clone, Copy)]
struct Open {
    bytes: u64,
    /// It is set aside.
    aside: bool,
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
    acked_ahead: BTreeSet<u64>,
    /// What is set aside: pieces, where they begin, and since when.
    aside: Vec<Piece>,
    begin: u64,
    since: Option<Instant>,
    /// Nothing before this is set aside.
    carried: u64,
}

impl OutLog {
    /// The receiver wants the stream from `from` on; it knows what it acknowledged from `need` on.
    pub fn rewind(&mut self, segment: &Segment, (src, dst): Stream, from: u64, need: u64) {
        *self = OutLog { need: need.min(from), cut: from, have: from, ..OutLog::default() };
        segment.channel(src, dst).need.store(need, Release);
        self.carry(segment, (src, dst));
    }

    /// The receiver has passed all before `from`, which begins a chunk.
    pub fn skip(&mut self, segment: &Segment, stream: Stream, from: u64, need: u64) {
        self.aside.clear();
        // What was not walked over yet wants no acknowledgement, as it came ahead of the log, and
        // may be released from now on.
        self.walk = None;
        self.need = self.need.max(need);
        self.cut = from;
        self.moved(segment, stream, from, need);
    }

    /// What was given to a direct connection by now is carried.
    pub fn carry(&mut self, segment: &Segment, (src, dst): Stream) {
        self.carried = datagram::run(segment.channel(src, dst)).end;
    }

    /// Whether something has been set aside for too long, or `None` if nothing is.
    pub fn is_overdue(&self) -> Option<bool> {
        let since = self.since.filter(|_| !self.aside.is_empty())?;
        Some(since.elapsed() >= ASIDE)
    }

    /// What is in the run is set aside; if that is not so any more of what was, it goes out.
    fn run(&mut self, segment: &Segment, (src, dst): Stream, out: &mut Vec<Piece>) -> Range<u64> {
        let run = datagram::run(segment.channel(src, dst));
        let run = run.start.max(self.carried)..run.end;
        let end = self.aside.last().map_or(0, |(end, _)| *end);
        let stands = run.start <= self.begin && end <= run.end;
        if !stands || self.is_overdue() == Some(true) {
            out.append(&mut self.aside);
        }
        run
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
        let run = self.run(segment, stream, out);
        let mut piece = Open { bytes: 0, aside: false };
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
            let aside = run.start <= at && walk.pos() <= run.end;
            let full = piece.bytes + spot.told > PIECE_BYTES || at % chunk == 0;
            if piece.bytes > 0 && (full || aside != piece.aside) {
                self.close(at, piece, out);
                piece.bytes = 0;
            }
            if piece.bytes == 0 {
                piece.aside = aside;
                if aside && self.aside.is_empty() {
                    (self.begin, self.since) = (at, Some(Instant::now()));
                }
            }
            piece.bytes += spot.told;
            self.cut = walk.pos();
        };
        if piece.bytes > 0 {
            self.close(self.cut, piece, out);
        }
        self.walk = Some(walk);
        stepped
    }

    /// The piece ends at `end`.
    fn close(&mut self, end: u64, piece: Open, out: &mut Vec<Piece>) {
        if piece.aside {
            self.aside.push((end, piece.bytes));
        } else {
            out.append(&mut self.aside);
            out.push((end, piece.bytes));
        }
    }

    /// Where the walk begins: where acknowledgements may be needed, as far as it is not released
    /// by now, or, if it is not kept, where pieces are. `None`: the sender repeats itself and is
    /// not there yet.
    fn begin(&self, segment: &Segment, (src, dst): Stream, released: u64) -> Option<Walk> {
        let chunk = u64::from(segment.geometry().chunk_bytes);
        let header = segment.header();
        let retained = header.recording().retains() && header.unprotected.load(Relaxed) == 0;
        let walk = Walk::from_chunk(segment, src, dst, self.need.max(released) / chunk);
        match walk {
            None if !retained => Walk::from_chunk(segment, src, dst, self.cut / chunk),
            walk => walk,
        }
    }

    fn found(&mut self, segment: &Segment, (src, dst): Stream, at: u64) {
        if self.acked_ahead.remove(&at) {
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
            self.acked_ahead.insert(at);
        }
    }

    /// The receiver has the stream up to `have` and needs it from `need` on.
    pub fn moved(&mut self, segment: &Segment, stream: Stream, have: u64, need: u64) {
        self.have = have;
        segment.channel(stream.0, stream.1).need.store(need, Release);
        self.acked_ahead = self.acked_ahead.split_off(&need);
        self.publish(segment, stream);
    }

    /// What is not retained may be released up to what the receiver's node has, but no further than
    /// the first message whose acknowledgement is to be written into it. Where ranks are brought
    /// back it stays until the receiver needs it no more: its node may be lost.
    fn publish(&self, segment: &Segment, (src, dst): Stream) {
        let had = self.wanting.first().map_or(self.have, |first| self.have.min(*first));
        if !segment.header().recording().protects() {
            segment.channel(src, dst).had.store(had, Release);
        }
        if segment.rank(src).pressure.load(Acquire) != 0 {
            segment.rank(src).wake();
        }
    }
}
