//! Direct connections: a TCP connection from this rank to another, on which copies of larger
//! messages go ahead of the log, entry by entry, and those that others have made to this one.
//!
//! As with datagrams (`datagram`) what the links carry is what counts. A direct connection only
//! loses or delays what it was given when it ends, or when the receiver cannot keep what comes;
//! then the links carry it (`datagram::take_back`, `Endpoint::decline`), as they do when what was
//! given to a direct connection stays unread for long.
//!
//! A direct connection is used when its receiver has answered: from then on it looks there while it
//! waits, and does not sleep for long.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use eyrie_ledger::datagram::{self, FRAME_BYTES, PREFIX_BYTES, Prefix, Wish};
use eyrie_ledger::dirty::Bell;
use eyrie_ledger::reader::{Entry, Reader};
use eyrie_ledger::segment::{ChannelCtl, RankCtl, Segment, WIRE_SOCKETS};
use eyrie_ledger::walk;

use crate::socket::Socket;

/// Looks until somebody who calls is answered.
const ACCEPT_LOOKS: u32 = 32;
/// Callers who have not said yet who they are.
const MOST_STRANGERS: usize = 4;
/// Bytes that are received at once.
const READ_BYTES: usize = 4 * (PREFIX_BYTES + FRAME_BYTES);
/// Fruitless tries, at some 0.3 us each, before a rank that leaves the library has the links carry
/// what its direct connections do not take.
const TRIES: u32 = 100;
/// So much of a message is written at once, so that packets are large; more of it is logged while
/// the receiver reads that.
const TOGETHER_BYTES: u64 = 64 * 1024;
/// Most entries that are written at once.
const MOST_TOGETHER: usize = 16;
/// Most messages that are not given to a direct connection after those that were to no use, as a
/// power of two.
const MOST_SKIPPED_LOG2: u32 = 10;

/// A direct connection to another rank.
struct Out {
    socket: Socket,
    token: [u64; 2],
    /// The other rank has answered.
    up: bool,
    /// What of an entry could not be written yet, with its prefix, and how much of that was since.
    rest: Vec<u8>,
    written: usize,
    queue: VecDeque<Given>,
    /// Bytes of those that were not tried yet.
    fresh: u64,
}

/// An entry of a stream that is new in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// What is new begins there: with the entry, or with padding before it.
    pub before: u64,
    /// The entry.
    pub from: u64,
    pub end: u64,
    /// It is the first of its message, or the last.
    pub first: bool,
    pub last: bool,
}

/// A direct connection from another rank, or a caller of whom that is not known yet.
struct In {
    socket: Socket,
    /// What came is at `used..end`.
    buffer: Box<[u8]>,
    used: usize,
    end: usize,
}

/// How direct connections to a receiver fare.
#[derive(Clone, Copy, Default)]
struct Trust {
    strikes: u32,
    skip: u32,
    /// Messages since the last strike, or since one was forgiven.
    good: u32,
    /// How often its node had to ask for what a direct connection brought.
    brought: u64,
}

/// A direct connection that has ended.
struct Over;

/// A rank's wires.
pub(crate) struct DirectConnections {
    listener: Option<Socket>,
    rank: u32,
    to: Vec<Option<Out>>,
    from: Vec<Option<In>>,
    strangers: VecDeque<In>,
    trust: Vec<Trust>,
    looks: u32,
    /// Some direct connection has not taken all it was given.
    unsent: bool,
}

impl DirectConnections {
    /// Listens for `rank`, which takes datagrams at `address`. `None`: not in this job, or not
    /// possible.
    pub fn open(seg: &Segment, rank: u32, address: SocketAddr) -> Option<DirectConnections> {
        let ctl = seg.rank(rank);
        Socket::forget_all(ctl);
        if !Wish::has_wires(seg) {
            return None;
        }
        let listener = Some(Socket::listen(ctl, address)?);
        let ranks = seg.geometry().ranks;
        (0..ranks).for_each(|dst| datagram::take_back(seg.channel(rank, dst)));
        Some(DirectConnections {
            listener,
            rank,
            to: (0..ranks).map(|_| None).collect(),
            from: (0..ranks).map(|_| None).collect(),
            strangers: VecDeque::new(),
            trust: (0..ranks).map(|dst| Trust::new(seg.channel(rank, dst))).collect(),
            looks: 0,
            unsent: false,
        })
    }

    // ---- sending

    /// Whether a direct connection has still to write something.
    #[inline]
    pub fn is_unsent(&self) -> bool {
        self.unsent
    }

    /// Whether what goes to `dst` just now goes over a direct connection.
    pub fn runs(&self, seg: &Segment, dst: u32) -> bool {
        self.to[dst as usize].is_some() && !datagram::run(seg.channel(self.rank, dst)).is_empty()
    }

    /// Gives an entry of the stream to `dst` to a direct connection. Whether it will bring it.
    pub fn give(&mut self, seg: &Segment, dst: u32, entry: Given) -> bool {
        let ctl = seg.channel(self.rank, dst);
        let follows = datagram::continues(ctl, entry.before);
        if !(follows || entry.first) || !self.is_trusted(dst, ctl, entry.first) {
            return false;
        }
        let Some(address) = datagram::door_of(seg.rank(dst)) else { return false };
        if !self.stands(seg, dst, address) || !datagram::may_leave(seg) {
            return false;
        }
        let Some(out) = &mut self.to[dst as usize] else { return false };
        if !out.rest.is_empty() && !follows {
            // Of a run that the links have carried.
            if out.write_rest().is_err() {
                self.end(seg, dst);
                return false;
            }
            if !out.rest.is_empty() {
                return false;
            }
        }
        datagram::give(ctl, entry.before, entry.end);
        fence(SeqCst);
        // The links take all that was given back when they hear of another process of the receiver;
        // then its address is not the one that it was.
        if datagram::door_of(seg.rank(dst)) != Some(address) {
            datagram::take_back(ctl);
            return false;
        }
        let Some(out) = &mut self.to[dst as usize] else { return false };
        out.queue.push_back(entry);
        out.fresh += entry.end - entry.from;
        if entry.last || out.fresh >= TOGETHER_BYTES {
            out.fresh = 0;
            self.push(seg, dst);
        } else {
            self.unsent = true;
        }
        self.to[dst as usize].is_some()
    }

    /// Whether messages to `dst` have not been given to direct connections in vain too often.
    fn is_trusted(&mut self, dst: u32, ctl: &ChannelCtl, first: bool) -> bool {
        let trust = &mut self.trust[dst as usize];
        let brought = ctl.brought.load(Relaxed);
        if trust.brought != brought {
            trust.brought = brought;
            trust.strike();
        }
        if !first {
            return true;
        }
        if trust.skip > 0 {
            trust.skip -= 1;
            return false;
        }
        trust.forgive();
        true
    }

    /// Whether a direct connection to `dst` stands; calls if there is none.
    fn stands(&mut self, seg: &Segment, dst: u32, of: (SocketAddr, [u64; 2])) -> bool {
        let (address, token) = of;
        let ctl = seg.rank(self.rank);
        if self.to[dst as usize].as_ref().is_some_and(|out| out.token != token) {
            self.end(seg, dst);
        }
        let Some(out) = &mut self.to[dst as usize] else {
            let prefix = Prefix { src: self.rank, dst, token, from: 0 };
            let Some(socket) = Socket::call(ctl, address) else {
                self.trust[dst as usize].strike();
                return false;
            };
            let rest = prefix.on_wire(0, false).to_vec();
            let queue = VecDeque::new();
            let mut out = Out { socket, token, up: false, rest, written: 0, queue, fresh: 0 };
            // Most likely the connection does not stand yet.
            let _ = out.write_rest();
            self.to[dst as usize] = Some(out);
            return false;
        };
        if !out.up {
            let mut answer = [0];
            let heard = out
                .write_rest()
                .map_err(drop)
                .and_then(|_| out.socket.read(&mut answer).map_err(drop));
            match heard {
                Ok(Some(1)) => out.up = true,
                Ok(None) => {}
                _ => {
                    self.trust[dst as usize].strike();
                    self.end(seg, dst);
                    return false;
                }
            }
        }
        self.to[dst as usize].as_ref().is_some_and(|out| out.up)
    }

    /// The direct connection to `dst` is over: the links carry what it was given.
    fn end(&mut self, seg: &Segment, dst: u32) {
        if let Some(out) = self.to[dst as usize].take() {
            out.socket.close(seg.rank(self.rank));
        }
        self.take_back(seg, dst);
    }

    fn take_back(&self, seg: &Segment, dst: u32) {
        let ctl = seg.channel(self.rank, dst);
        if !datagram::run(ctl).is_empty() {
            datagram::take_back(ctl);
            fence(SeqCst);
            seg.mark_dirty(self.rank, dst, Bell::Ring);
        }
    }

    /// Writes what the direct connection to `dst` takes. Whether that was anything.
    fn push(&mut self, seg: &Segment, dst: u32) -> bool {
        let rank = self.rank;
        let Some(out) = &mut self.to[dst as usize] else { return false };
        match out.write(seg, rank, dst) {
            Ok(moved) => {
                self.unsent |= !out.is_empty();
                moved
            }
            Err(Over) => {
                self.end(seg, dst);
                true
            }
        }
    }

    /// Writes what the direct connections take. Whether that was anything.
    #[cold]
    pub fn push_all(&mut self, seg: &Segment) -> bool {
        self.unsent = false;
        (0..self.to.len() as u32).fold(false, |moved, dst| {
            let waits = self.to[dst as usize].as_ref().is_some_and(|out| !out.is_empty());
            (waits && self.push(seg, dst)) || moved
        })
    }

    /// The rank leaves the library: as long as its direct connections take what they were given it
    /// stays, and what they do not take the links carry.
    #[cold]
    pub fn settle(&mut self, seg: &Segment) {
        let mut tries = 0;
        while self.unsent && tries < TRIES {
            tries = if self.push_all(seg) { 0 } else { tries + 1 };
        }
        if !std::mem::take(&mut self.unsent) {
            return;
        }
        for dst in 0..self.to.len() as u32 {
            let Some(out) = self.to[dst as usize].as_mut().filter(|out| !out.is_empty()) else {
                continue;
            };
            // What was begun has to be ended, or the other end would not know where it is.
            out.queue.clear();
            self.trust[dst as usize].strike();
            self.take_back(seg, dst);
        }
    }

    // ---- receiving

    /// Whether somebody may send something over a direct connection, so that the rank must not
    /// sleep for long.
    pub fn hears(&self) -> bool {
        self.unsent || self.from.iter().any(Option::is_some)
    }

    /// Whether `src` may.
    pub fn hears_from(&self, src: u32) -> bool {
        self.from[src as usize].is_some()
    }

    /// Answers who calls, now and then, and writes what could not be written.
    #[inline]
    pub fn look(&mut self, seg: &Segment) {
        if self.unsent {
            self.push_all(seg);
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(ACCEPT_LOOKS) {
            self.answer(seg);
        }
    }

    #[cold]
    fn answer(&mut self, seg: &Segment) {
        let ctl = seg.rank(self.rank);
        let Some(listener) = self.listener else { return };
        match listener.accept(ctl) {
            Ok(None) => {}
            Ok(Some(socket)) => {
                if self.strangers.len() == MOST_STRANGERS
                    && let Some(oldest) = self.strangers.pop_front()
                {
                    oldest.socket.close(ctl);
                }
                let buffer = vec![0; READ_BYTES].into_boxed_slice();
                self.strangers.push_back(In { socket, buffer, used: 0, end: 0 });
            }
            // The program closed it.
            Err(_) => self.listener = None,
        }
        for _ in 0..self.strangers.len() {
            let Some(mut caller) = self.strangers.pop_front() else { break };
            match self.meet(ctl, &mut caller) {
                Ok(Some(src)) => {
                    if let Some(before) = self.from[src].replace(caller) {
                        before.socket.close(ctl);
                    }
                }
                Ok(None) => self.strangers.push_back(caller),
                Err(Over) => caller.socket.close(ctl),
            }
        }
    }

    /// Who it is that calls, once that is known.
    fn meet(&self, ctl: &RankCtl, caller: &mut In) -> Result<Option<usize>, Over> {
        let Some((prefix, frame, _)) = caller.frame()? else { return Ok(None) };
        let src = prefix.src as usize;
        if !frame.is_empty() || !is_for(&prefix, self.rank, ctl) || src >= self.from.len() {
            return Err(Over);
        }
        caller.used += PREFIX_BYTES;
        // SAFETY: one byte of our own.
        let answered = unsafe { caller.socket.write(&[([1].as_ptr(), 1)]) };
        if answered.is_ok_and(|bytes| bytes == 1) { Ok(Some(src)) } else { Err(Over) }
    }

    /// The entry at the position of `reader`, if a direct connection has brought it. Valid until
    /// the next call for the same source.
    pub fn entry(&mut self, seg: &Segment, reader: &mut Reader) -> Option<Entry> {
        let (ctl, src) = (seg.rank(self.rank), reader.src());
        let connection = self.from[src as usize].as_mut()?;
        match connection.entry(|p| p.src == src && is_for(p, self.rank, ctl), reader) {
            Ok(entry) => entry,
            Err(Over) => {
                connection.socket.close(ctl);
                self.from[src as usize] = None;
                // What it was given may never come by it.
                ask(seg, (src, self.rank), reader.pos);
                None
            }
        }
    }
}

/// Has the links bring what comes next in a stream to this rank.
pub(crate) fn ask(seg: &Segment, (src, dst): (u32, u32), from: u64) {
    let bring = &seg.channel(src, dst).bring;
    if bring.load(Relaxed) != from + 1 {
        bring.store(from + 1, Relaxed);
        fence(SeqCst);
        seg.mark_dirty(src, dst, Bell::Ring);
    }
}

fn is_for(prefix: &Prefix, rank: u32, ctl: &RankCtl) -> bool {
    prefix.dst == rank && prefix.token == datagram::token(ctl)
}

impl Trust {
    fn new(ctl: &ChannelCtl) -> Trust {
        Trust { brought: ctl.brought.load(Relaxed), ..Trust::default() }
    }

    fn strike(&mut self) {
        self.strikes = (self.strikes + 1).min(MOST_SKIPPED_LOG2);
        (self.skip, self.good) = (1 << self.strikes, 0);
    }

    /// A message is given to a direct connection: as many as were left out last make good for one
    /// strike.
    fn forgive(&mut self) {
        self.good += 1;
        if self.good > 1 << self.strikes {
            (self.strikes, self.good) = (self.strikes.saturating_sub(1), 0);
        }
    }
}

impl Out {
    fn is_empty(&self) -> bool {
        self.rest.is_empty() && self.queue.is_empty()
    }

    /// Whether anything was written of what was begun.
    fn write_rest(&mut self) -> Result<bool, Over> {
        let mut moved = false;
        while self.written < self.rest.len() {
            let rest = &self.rest[self.written..];
            // SAFETY: bytes of our own.
            match unsafe { self.socket.write(&[(rest.as_ptr(), rest.len())]) } {
                Ok(0) => return Ok(moved),
                Ok(bytes) => (self.written, moved) = (self.written + bytes, true),
                Err(_) => return Err(Over),
            }
        }
        self.rest.clear();
        self.written = 0;
        Ok(moved)
    }

    /// Writes what the socket takes of what waits, entries from the log of `rank`. Whether that was
    /// anything.
    fn write(&mut self, seg: &Segment, rank: u32, dst: u32) -> Result<bool, Over> {
        let mut moved = false;
        if !self.rest.is_empty() {
            moved = self.write_rest()?;
        }
        while self.rest.is_empty() && !self.queue.is_empty() {
            let mut heads = [[0; PREFIX_BYTES]; MOST_TOGETHER];
            let mut pieces = [(std::ptr::null(), 0); 2 * MOST_TOGETHER];
            let mut count = 0;
            for (entry, head) in self.queue.iter().zip(&mut heads) {
                let (from, bytes) = (entry.from, entry.end - entry.from);
                // Released: the receiver has passed it.
                let at = walk::stretch(seg, rank, dst, from, bytes);
                if let Some(at) = at {
                    let prefix = Prefix { src: rank, dst, token: self.token, from };
                    *head = prefix.on_wire(bytes as u32, entry.before != from);
                    pieces[2 * count] = (head.as_ptr(), PREFIX_BYTES);
                    pieces[2 * count + 1] = (at, bytes as usize);
                }
                count += 1;
            }
            // SAFETY: `stretch` vouches for so many bytes of this rank's own log, which nobody else
            // writes but for acknowledgements, which these entries do not have.
            let mut wrote = match unsafe { self.socket.write(&pieces[..2 * count]) } {
                Ok(0) if pieces[..2 * count].iter().any(|(_, bytes)| *bytes > 0) => break,
                Ok(wrote) => wrote,
                Err(_) => return Err(Over),
            };
            moved = true;
            for piece in pieces[..2 * count].chunks(2) {
                let length = piece[0].1 + piece[1].1;
                if wrote == 0 && length > 0 {
                    break;
                }
                self.queue.pop_front();
                self.keep(piece, wrote);
                wrote -= wrote.min(length);
            }
        }
        Ok(moved)
    }

    /// Keeps what was not written of an entry: it may be gone from the log when it is.
    fn keep(&mut self, pieces: &[(*const u8, usize)], mut wrote: usize) {
        for &(at, bytes) in pieces {
            let done = wrote.min(bytes);
            wrote -= done;
            if done < bytes {
                // SAFETY: as in `write`.
                let rest = unsafe { std::slice::from_raw_parts(at.add(done), bytes - done) };
                self.rest.extend_from_slice(rest);
            }
        }
    }
}

impl In {
    /// The first prefix that came, where its entry lies if all of that is here, and whether padding
    /// is before it.
    fn frame(&mut self) -> Result<Option<(Prefix, Range<usize>, bool)>, Over> {
        loop {
            let here = &self.buffer[self.used..self.end];
            if let Some(head) = here.first_chunk::<PREFIX_BYTES>() {
                let (prefix, bytes, padded) = Prefix::of_wire(head).ok_or(Over)?;
                let from = self.used + PREFIX_BYTES;
                if here.len() >= PREFIX_BYTES + bytes {
                    return Ok(Some((prefix, from..from + bytes, padded)));
                }
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Reads more. Whether anything came.
    fn fill(&mut self) -> Result<bool, Over> {
        if self.used == self.end {
            (self.used, self.end) = (0, 0);
        } else if self.buffer.len() - self.used < PREFIX_BYTES + FRAME_BYTES {
            self.buffer.copy_within(self.used..self.end, 0);
            (self.used, self.end) = (0, self.end - self.used);
        }
        match self.socket.read(&mut self.buffer[self.end..]) {
            Ok(Some(0)) | Err(_) => Err(Over),
            Ok(Some(got)) => {
                self.end += got;
                Ok(true)
            }
            Ok(None) => Ok(false),
        }
    }

    /// The entry at the position of `reader`, if it is here.
    fn entry(
        &mut self,
        is_right: impl Fn(&Prefix) -> bool,
        reader: &mut Reader,
    ) -> Result<Option<Entry>, Over> {
        while let Some((prefix, frame, padded)) = self.frame()? {
            if !is_right(&prefix) || frame.is_empty() {
                return Err(Over);
            }
            if prefix.from < reader.pos {
                // The links were sooner, or it was taken.
                self.used = frame.end;
                continue;
            }
            let bytes = &self.buffer[frame];
            return match reader.part((prefix.from, padded), bytes) {
                Some(entry) => Ok(Some(entry)),
                None if prefix.from == reader.pos => Err(Over),
                // What is between goes over the links.
                None => Ok(None),
            };
        }
        Ok(None)
    }
}

const _: () = assert!(WIRE_SOCKETS > MOST_STRANGERS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strikes_are_forgiven_in_time() {
        let mut trust = Trust::default();
        (0..20).for_each(|_| trust.strike());
        assert_eq!(trust.skip, 1 << MOST_SKIPPED_LOG2);
        (0..4000).for_each(|_| trust.forgive());
        assert_eq!(trust.strikes, 0);
        trust.strike();
        assert_eq!(trust.skip, 2);
    }
}
