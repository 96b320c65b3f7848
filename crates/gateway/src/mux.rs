//! One end of a connection that many streams share.
//!
//! Kept true: a stream is sent no faster than its receiver grants, so one that is not read holds
//! up itself alone; streams take turns, a frame each; what was asked to stop is not taken, what had
//! been taken is sent.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use crate::frame::{Frame, FrameError, HEAD_BYTES, MAX_DATA_BYTES, Reason};
use crate::limits::Limits;
use crate::stream::Stream;

/// Which end: both open streams, by numbers of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It made the connection: odd numbers.
    Caller,
    Called,
}

/// What happens at the other end, or is possible here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The other end wants a stream to this address: to be answered by `accept` or `reset`.
    Open { stream: u32, target: SocketAddr },
    /// A stream of ours stands.
    Opened { stream: u32 },
    /// There is more to deliver, or the end.
    Input { stream: u32 },
    /// Bytes are taken again.
    Room { stream: u32 },
    /// It is over, with all that is under way.
    Reset { stream: u32, reason: Reason },
    /// The other end sends nothing any more that it had not sent before: see `is_drained`.
    Blocked,
}

/// What no correct gateway sends. The connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("stream {0} is opened out of turn")]
    Number(u32),
    #[error("stream {0} was never opened")]
    Unknown(u32),
    #[error("stream {0} has more bytes than were granted, or some behind its end")]
    Credit(u32),
    #[error("stream {0} is answered, which was not asked for, or twice")]
    Answer(u32),
    #[error("more streams than there may be")]
    Streams,
    #[error("{found} bytes came, {said} were sent")]
    Count { said: u64, found: u64 },
    #[error("bytes came after it was said that none would")]
    Silence,
    #[error("an acknowledgement that nobody waits for")]
    Acknowledgement,
}

/// Why no stream can be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there are as many streams as there may be")]
    Full,
    #[error("the other end takes nothing just now")]
    Blocked,
}

/// One end.
pub struct Mux {
    side: Side,
    limits: Limits,
    streams: BTreeMap<u32, Stream>,
    /// The next number here, and the last there.
    next: u32,
    last: u32,
    /// Streams with something to send, in turn.
    ready: VecDeque<u32>,
    /// Frames that are no streams' bytes, encoded.
    control: Vec<u8>,
    /// What came of a frame that is not whole.
    partial: Vec<u8>,
    events: VecDeque<Event>,
    /// What is left for windows to grow by.
    budget: u64,
    /// Bytes of all streams, ever.
    sent: u64,
    received: u64,
    /// The other end asked for silence: the number to answer with.
    silenced: Option<u64>,
    answered: bool,
    /// Silence was asked for here, how often, and whether it has come.
    silence: Option<bool>,
    asked: u64,
}

impl Mux {
    pub fn new(side: Side, limits: Limits) -> Mux {
        let (next, last) = if side == Side::Caller { (1, 0) } else { (2, 0) };
        Mux {
            side,
            limits,
            streams: BTreeMap::new(),
            next,
            last,
            ready: VecDeque::new(),
            control: Vec::new(),
            partial: Vec::new(),
            events: VecDeque::new(),
            budget: limits.budget_bytes,
            sent: 0,
            received: 0,
            silenced: None,
            answered: false,
            silence: None,
            asked: 0,
        }
    }

    /// What happened, in order.
    pub fn poll(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Streams that are not over.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of streams that were sent and received.
    pub fn carried(&self) -> (u64, u64) {
        (self.sent, self.received)
    }

    /// A new stream. `Opened` or `Reset` follows.
    ///
    /// # Errors
    /// When there is no room for one, or the other end asked for silence.
    pub fn open(&mut self, target: SocketAddr) -> Result<u32, Refusal> {
        if self.silenced.is_some() {
            return Err(Refusal::Blocked);
        }
        let stream = self.next;
        if self.streams.len() >= self.limits.streams || stream > u32::MAX - 2 {
            return Err(Refusal::Full);
        }
        self.next += 2;
        self.streams.insert(stream, Stream::new(&self.limits));
        Frame::Open { stream, target }.encode(&mut self.control);
        Ok(stream)
    }

    /// What the other end wanted stands. False: it does not want it any more.
    pub fn accept(&mut self, stream: u32) -> bool {
        let Some(s) = self.streams.get_mut(&stream) else { return false };
        s.open = true;
        Frame::Opened { stream }.encode(&mut self.control);
        true
    }

    /// Ends a stream at once: what is under way is lost.
    pub fn reset(&mut self, stream: u32, reason: Reason) {
        if self.forget(stream) {
            Frame::Reset { stream, reason }.encode(&mut self.control);
        }
    }

    fn forget(&mut self, stream: u32) -> bool {
        let Some(gone) = self.streams.remove(&stream) else { return false };
        self.budget += gone.growth(&self.limits);
        true
    }

    /// How many bytes of the stream are taken now.
    pub fn room(&self, stream: u32) -> usize {
        match self.streams.get(&stream) {
            Some(s) if s.open && !s.closing && self.silenced.is_none() => {
                self.limits.out_bytes.saturating_sub(s.out.len())
            }
            _ => 0,
        }
    }

    /// Takes bytes to be sent, at most `room`. Returns how many.
    pub fn send(&mut self, stream: u32, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room(stream));
        if let Some(s) = self.streams.get_mut(&stream).filter(|_| count > 0) {
            s.out.extend(&bytes[..count]);
            self.list(stream);
        }
        count
    }

    /// No more is sent; what was taken is.
    pub fn end(&mut self, stream: u32) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.closing = true;
            self.list(stream);
        }
    }

    /// What is to be delivered, a part of it or all. Nothing, and `true`: the end.
    pub fn input(&self, stream: u32) -> (&[u8], bool) {
        match self.streams.get(&stream) {
            Some(s) => (s.input.as_slices().0, s.ended && s.input.is_empty()),
            None => (&[], false),
        }
    }

    /// So many bytes of that were delivered; none: the end was.
    pub fn deliver(&mut self, stream: u32, count: usize) {
        let Some(s) = self.streams.get_mut(&stream) else { return };
        if let Some((bytes, growth)) = s.deliver(count, &self.limits, self.budget) {
            self.budget -= growth;
            Frame::Credit { stream, bytes }.encode(&mut self.control);
        }
        self.forget_if_over(stream);
    }

    fn forget_if_over(&mut self, stream: u32) {
        if self.streams.get(&stream).is_some_and(Stream::is_over) {
            self.forget(stream);
        }
    }

    fn list(&mut self, stream: u32) {
        if let Some(s) = self.streams.get_mut(&stream).filter(|s| !s.listed && s.can_send()) {
            s.listed = true;
            self.ready.push_back(stream);
        }
    }

    /// Asks the other end to take nothing new and to send what it has taken: `Blocked` follows.
    /// What comes until then is delivered as ever.
    pub fn block(&mut self) {
        if self.silence.is_none() {
            self.asked += 1;
            self.silence = Some(false);
            Frame::Block { number: self.asked }.encode(&mut self.control);
        }
    }

    /// The other end may go on.
    pub fn unblock(&mut self) {
        if self.silence.take().is_some() {
            Frame::Unblock { number: self.asked }.encode(&mut self.control);
        }
    }

    /// The other end is silent, and all that came is delivered.
    pub fn is_drained(&self) -> bool {
        self.silence == Some(true) && self.streams.values().all(|s| s.input.is_empty())
    }

    /// Appends what is to be sent, until `out` has about `limit` bytes.
    pub fn fill(&mut self, out: &mut Vec<u8>, limit: usize) {
        out.append(&mut self.control);
        while out.len() < limit {
            let Some(stream) = self.ready.pop_front() else { break };
            self.send_one(stream, out);
        }
        if let Some(number) = self.silenced.filter(|_| !self.answered && self.is_idle()) {
            self.answered = true;
            Frame::Blocked { number, bytes: self.sent }.encode(out);
        }
    }

    /// Whether all that was taken is sent.
    fn is_idle(&self) -> bool {
        self.streams.values().all(|s| s.out.is_empty())
    }

    /// The stream's turn: one frame.
    fn send_one(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Some(s) = self.streams.get_mut(&stream) else { return };
        s.listed = false;
        let was_full = s.out.len() >= self.limits.out_bytes;
        let credit = usize::try_from(s.credit).unwrap_or(usize::MAX);
        let count = s.out.len().min(MAX_DATA_BYTES).min(credit);
        if count > 0 {
            let bytes = &s.out.make_contiguous()[..count];
            Frame::Data { stream, bytes }.encode(out);
            s.out.drain(..count);
            s.credit -= count as u64;
            self.sent += count as u64;
        }
        if s.out.is_empty() && s.closing && !s.end_sent {
            s.end_sent = true;
            Frame::End { stream }.encode(out);
        }
        if was_full && !s.closing {
            self.events.push_back(Event::Room { stream });
        }
        self.list(stream);
        self.forget_if_over(stream);
    }

    /// Takes what comes from the other end, however it is cut.
    ///
    /// # Errors
    /// When no correct gateway sends this.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let mut partial = std::mem::take(&mut self.partial);
        let mut rest = bytes;
        // What is left of the last time is made whole first; the rest is used where it lies.
        while !partial.is_empty() && !rest.is_empty() {
            let lacks = lacking(&partial).min(rest.len());
            partial.extend_from_slice(&rest[..lacks]);
            rest = &rest[lacks..];
            if let Some((frame, _)) = Frame::split(&partial)? {
                self.hear(frame)?;
                partial.clear();
            }
        }
        while let Some((frame, used)) = Frame::split(rest)? {
            self.hear(frame)?;
            rest = &rest[used..];
        }
        partial.extend_from_slice(rest);
        self.partial = partial;
        Ok(())
    }
}

/// Bytes that the frame which begins so needs to go on: to its head, or to its end.
fn lacking(partial: &[u8]) -> usize {
    match partial {
        [a, b, ..] if partial.len() >= HEAD_BYTES => {
            HEAD_BYTES + usize::from(u16::from_le_bytes([*a, *b])) - partial.len()
        }
        _ => HEAD_BYTES - partial.len(),
    }
}

mod hearing;

#[cfg(test)]
#[path = "mux_tests.rs"]
mod tests;
