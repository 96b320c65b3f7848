//! The receiving end of streams from other nodes: what is taken, and what the sender is told.
//!
//! Pure, without I/O. The driver puts pieces into the mirrors (`ledger::mirror`) and says how far
//! the rank has read; it sends what is put into `out`.
//!
//! Kept true: a stream is taken in order and without gaps, from the node that its sender has its
//! home on; a piece counts only under the serial that was given last, so that what was on its way
//! when a stream began anew is passed over; every acknowledgement is told on every connection until
//! the receiver has left its message behind, and a sender that was told so is not told less.

use crate::link::wire::{Backward, Stream};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One stream.
#[derive(Clone, Debug, Default)]
struct In {
    /// The connection that stands from the node that it comes from asked for it.
    opened: bool,
    /// Nodes whose connections did.
    opened_by: BTreeSet<u32>,
    /// Its receiver lives here.
    attached: bool,
    serial: u32,
    have: u64,
    /// From where on the receiver read when it started: that may be ahead of what is here.
    began: u64,
    need: u64,
    front: u64,
    /// No more is wanted than is here, for want of room.
    starved: bool,
    told: Acknowledged,
    /// Messages that want an acknowledgement and have none yet.
    pending: VecDeque<u64>,
    /// Those that have one, as long as the receiver may need them.
    acked: BTreeSet<u64>,
}

/// What the sender knows.
#[derive(Clone, Copy, Debug, Default)]
struct Acknowledged {
    have: u64,
    need: u64,
    credit: u64,
}

/// What to do with a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece {
    Take,
    /// It was on its way when the stream began anew or its receiver went.
    Ignore,
}

/// What no correct sender sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    #[error("a piece of a stream that was not opened")]
    NotOpen,
    #[error("a piece with serial {found}, {given} was given last")]
    Serial { found: u32, given: u32 },
    #[error("a piece from position {found}, {want} was due")]
    Position { found: u64, want: u64 },
    #[error("a piece up to position {end}, beyond the credit of {credit}")]
    Credit { end: u64, credit: u64 },
}

/// All streams from other nodes to ranks of this one.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Bytes that may come beyond what the receiver has read.
    window: u64,
    streams: BTreeMap<Stream, In>,
    serials: u32,
    /// How often the recovery unit of a rank went back.
    lives: BTreeMap<u32, u32>,
}

impl Receiver {
    /// `window` is at least a chunk, so that a whole entry always fits.
    pub fn new(window: u64) -> Receiver {
        Receiver { window, streams: BTreeMap::new(), serials: 0, lives: BTreeMap::new() }
    }

    /// A new connection of `node` stands, on which these streams come: nothing was asked or told on
    /// it. What is on its way on another is not taken any more.
    pub fn connected(&mut self, node: u32, comes: impl Fn(Stream) -> bool) {
        for (stream, inbound) in &mut self.streams {
            inbound.opened_by.remove(&node);
            if comes(*stream) {
                self.serials += 1;
                (inbound.opened, inbound.serial) = (false, self.serials);
            }
        }
    }

    /// Streams come from another node now, if `from` names one. It may have heard of that before,
    /// and have asked for them.
    pub fn come_from(&mut self, from: impl Fn(Stream) -> Option<u32>, out: &mut Vec<Backward>) {
        let all = self.streams.iter_mut();
        let moved = all.filter_map(|(stream, inbound)| {
            inbound.opened = inbound.opened_by.contains(&from(*stream)?);
            Some(*stream)
        });
        let moved: Vec<Stream> = moved.collect();
        moved.into_iter().for_each(|stream| self.resume(stream, out));
    }

    /// The sender's node has something in the stream.
    pub fn open(&mut self, stream: Stream, node: u32, out: &mut Vec<Backward>) {
        let inbound = self.streams.entry(stream).or_default();
        inbound.opened = true;
        inbound.opened_by.insert(node);
        self.resume(stream, out);
    }

    /// The receiver is about to start here, reading from `need` on; the stream is here up to
    /// `have`,
    /// in which messages that begin at `sync` want an acknowledgement.
    pub fn attach(
        &mut self,
        stream: Stream,
        (have, need): (u64, u64),
        sync: impl IntoIterator<Item = u64>,
        out: &mut Vec<Backward>,
    ) {
        let inbound = self.streams.entry(stream).or_default();
        *inbound = In {
            opened: inbound.opened,
            opened_by: std::mem::take(&mut inbound.opened_by),
            attached: true,
            have,
            began: need,
            need,
            front: need,
            pending: sync.into_iter().collect(),
            ..In::default()
        };
        self.resume(stream, out);
    }

    /// The receiver has died or ended, or the sender has come here.
    pub fn detach(&mut self, stream: Stream) {
        self.serials += 1;
        let serial = self.serials;
        if let Some(inbound) = self.streams.get_mut(&stream) {
            let opened_by = std::mem::take(&mut inbound.opened_by);
            *inbound = In { opened: inbound.opened, opened_by, serial, ..In::default() };
        }
    }

    /// The recovery unit of this rank has gone back so often.
    pub fn lives(&mut self, rank: u32, life: u32) {
        self.lives.insert(rank, life);
    }

    pub fn is_attached(&self, stream: Stream) -> bool {
        self.streams.get(&stream).is_some_and(|s| s.attached)
    }

    /// Streams whose receivers live here.
    pub fn attached(&self) -> impl Iterator<Item = Stream> {
        self.streams.iter().filter(|(_, s)| s.attached).map(|(stream, _)| *stream)
    }

    fn resume(&mut self, stream: Stream, out: &mut Vec<Backward>) {
        self.serials += 1;
        let (serial, window) = (self.serials, self.window);
        let life = self.lives.get(&stream.1).copied().unwrap_or(0);
        let Some(inbound) = self.streams.get_mut(&stream) else { return };
        inbound.serial = serial;
        if !inbound.opened || !inbound.attached {
            return;
        }
        let (from, need, credit) = (inbound.have, inbound.need, inbound.credit(window));
        inbound.told = Acknowledged { have: from, need, credit };
        out.push(Backward::Resume { stream, serial, life, from, need, credit });
        for &position in &inbound.acked {
            out.push(Backward::Acked { stream, position });
        }
    }

    /// What to do with a piece.
    ///
    /// # Errors
    /// When no correct sender sends it: the connection is to be closed.
    pub fn piece(&self, stream: Stream, serial: u32, from: u64) -> Result<Piece, Wrong> {
        let inbound = self.streams.get(&stream).ok_or(Wrong::NotOpen)?;
        if serial > inbound.serial {
            return Err(Wrong::Serial { found: serial, given: inbound.serial });
        }
        if serial < inbound.serial || !inbound.attached {
            return Ok(Piece::Ignore);
        }
        if !inbound.opened {
            return Err(Wrong::NotOpen);
        }
        if from != inbound.have {
            return Err(Wrong::Position { found: from, want: inbound.have });
        }
        Ok(Piece::Take)
    }

    /// A piece was taken: the stream is here up to `have`, with more messages at `sync`. Whether it
    /// is time to tell the sender (`moved`).
    ///
    /// # Errors
    /// When more came than was asked for.
    pub fn took(
        &mut self,
        stream: Stream,
        have: u64,
        sync: impl IntoIterator<Item = u64>,
    ) -> Result<bool, Wrong> {
        let Some(inbound) = self.streams.get_mut(&stream) else { return Ok(false) };
        inbound.have = have;
        inbound.pending.extend(sync);
        if have > inbound.told.credit {
            return Err(Wrong::Credit { end: have, credit: inbound.told.credit });
        }
        Ok(have - inbound.told.have >= self.window / 4)
    }

    /// The receiver, which took messages early, has passed all of the stream before `to`, and all
    /// that wanted an acknowledgement there has one (`moved` has found it): it is here up to there
    /// from now on, and comes on from there.
    pub fn skip(&mut self, stream: Stream, to: u64, out: &mut Vec<Backward>) {
        self.serials += 1;
        let (serial, window) = (self.serials, self.window);
        let Some(inbound) = self.streams.get_mut(&stream).filter(|s| s.attached) else { return };
        (inbound.serial, inbound.have) = (serial, to);
        (inbound.need, inbound.front) = (inbound.need.max(to), inbound.front.max(to));
        inbound.acked = inbound.acked.split_off(&inbound.need);
        if !inbound.opened {
            return;
        }
        let (need, credit) = (inbound.need, inbound.credit(window).max(inbound.told.credit));
        inbound.told = Acknowledged { have: to, need, credit };
        out.push(Backward::Skip { stream, serial, from: to, need, credit });
    }

    /// The receiver cannot keep what a wire brought it.
    pub fn bring(&self, stream: Stream, out: &mut Vec<Backward>) {
        if self.streams.get(&stream).is_some_and(|s| s.opened && s.attached) {
            out.push(Backward::Bring { stream });
        }
    }

    /// There was no room for a piece: it has to come again when there is.
    pub fn starve(&mut self, stream: Stream, out: &mut Vec<Backward>) {
        if let Some(inbound) = self.streams.get_mut(&stream) {
            inbound.starved = true;
        }
        self.resume(stream, out);
    }

    /// Room has become free in the pool of `src`: the streams that wait for it.
    pub fn feed(&mut self, src: u32) -> Vec<Stream> {
        let mut fed = Vec::new();
        for (stream, inbound) in self.streams.range_mut((src, 0)..=(src, u32::MAX)) {
            if std::mem::take(&mut inbound.starved) {
                fed.push(*stream);
            }
        }
        fed
    }

    /// The receiver has read the stream up to `front`, and may still need it from `need` on.
    /// `is_acked`: whether it has acknowledged the message that begins at a position.
    pub fn moved(
        &mut self,
        stream: Stream,
        (need, front): (u64, u64),
        is_acked: impl Fn(u64) -> bool,
        out: &mut Vec<Backward>,
    ) {
        let window = self.window;
        let Some(inbound) = self.streams.get_mut(&stream).filter(|s| s.attached) else { return };
        // What a rank says is not trusted beyond what is here; where it began is known.
        let most = inbound.have.max(inbound.began);
        let (need, front) = (need.min(most), front.min(most));
        (inbound.need, inbound.front) = (need, front);
        let mut fresh = Vec::new();
        inbound.pending.retain(|&position| {
            let acked = position < need || is_acked(position);
            if acked {
                fresh.push(position);
            }
            !acked
        });
        inbound.acked.extend(&fresh);
        inbound.acked = inbound.acked.split_off(&need);
        if !inbound.opened {
            return;
        }
        out.extend(fresh.into_iter().map(|position| Backward::Acked { stream, position }));
        let (have, credit, told) = (inbound.have, inbound.credit(window), inbound.told);
        let far = |now: u64, then: u64| now.saturating_sub(then) >= window / 4;
        if far(credit, told.credit) || far(have, told.have) || far(need, told.need) {
            inbound.told = Acknowledged { have, need, credit: credit.max(told.credit) };
            out.push(Backward::Progress { stream, have, need, credit: inbound.told.credit });
        }
    }
}

impl In {
    fn credit(&self, window: u64) -> u64 {
        if self.starved { self.have } else { self.have.max(self.front.saturating_add(window)) }
    }
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
