//! What the frames of the other end mean.
//!
//! Kept true: what a frame says of a stream that is over, or not there yet, has no effect; what no
//! correct end can say at this point is a fault.

use super::{Event, Fault, Mux, Side};
use crate::frame::{Frame, Reason};
use crate::stream::Stream;
use std::net::SocketAddr;

impl Mux {
    pub(super) fn hear(&mut self, frame: Frame<'_>) -> Result<(), Fault> {
        match frame {
            Frame::Open { stream, target } => return self.hear_open(stream, target),
            Frame::Opened { stream } => {
                if self.is_theirs(stream) {
                    return Err(Fault::Answer(stream));
                }
                let Some(s) = self.known(stream)? else { return Ok(()) };
                if std::mem::replace(&mut s.open, true) {
                    return Err(Fault::Answer(stream));
                }
                self.events.push_back(Event::Opened { stream });
            }
            Frame::Data { .. } if self.silence == Some(true) => return Err(Fault::Silence),
            Frame::Data { stream, bytes } => {
                self.received += bytes.len() as u64;
                let Some(s) = self.known(stream)? else { return Ok(()) };
                if !s.open || !s.take(bytes) {
                    return Err(Fault::Credit(stream));
                }
                self.events.push_back(Event::Input { stream });
            }
            Frame::Credit { stream, bytes } => {
                if let Some(s) = self.known(stream)? {
                    s.credit = s.credit.saturating_add(u64::from(bytes));
                    self.list(stream);
                }
            }
            Frame::End { stream } => {
                let Some(s) = self.known(stream)? else { return Ok(()) };
                if !s.open || std::mem::replace(&mut s.ended, true) {
                    return Err(Fault::Credit(stream));
                }
                self.events.push_back(Event::Input { stream });
            }
            Frame::Reset { stream, reason } => {
                if self.known(stream)?.is_some() {
                    self.forget(stream);
                    self.events.push_back(Event::Reset { stream, reason });
                }
            }
            Frame::Block { number } => {
                self.silenced = Some(number);
                self.answered = false;
            }
            Frame::Unblock { number } => {
                if self.silenced.take_if(|n| *n == number).is_none() {
                    return Err(Fault::Acknowledgement);
                }
                let all = self.streams.keys().map(|stream| Event::Room { stream: *stream });
                self.events.extend(all);
            }
            Frame::Blocked { number, bytes } => return self.hear_blocked(number, bytes),
        }
        Ok(())
    }

    fn hear_open(&mut self, stream: u32, target: SocketAddr) -> Result<(), Fault> {
        if !self.is_theirs(stream) || stream <= self.last {
            return Err(Fault::Number(stream));
        }
        self.last = stream;
        // What crosses our request is refused; whoever wants it tries again.
        if self.silence.is_some() {
            Frame::Reset { stream, reason: Reason::Blocked }.encode(&mut self.control);
            return Ok(());
        }
        // Each end opens as many as there may be in all: both may be at it.
        if self.streams.len() >= 2 * self.limits.streams {
            return Err(Fault::Streams);
        }
        self.streams.insert(stream, Stream::new(&self.limits));
        self.events.push_back(Event::Open { stream, target });
        Ok(())
    }

    fn hear_blocked(&mut self, number: u64, bytes: u64) -> Result<(), Fault> {
        if number != self.asked {
            // It answers a question that was withdrawn.
            let known = number < self.asked;
            return if known { Ok(()) } else { Err(Fault::Acknowledgement) };
        }
        if bytes != self.received {
            return Err(Fault::Count { said: bytes, found: self.received });
        }
        match &mut self.silence {
            Some(true) => Err(Fault::Acknowledgement),
            Some(silent) => {
                *silent = true;
                self.events.push_back(Event::Blocked);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Whether the other end gives this number.
    fn is_theirs(&self, stream: u32) -> bool {
        (stream % 2 == 1) != (self.side == Side::Caller)
    }

    /// The stream, or none if it is over.
    fn known(&mut self, stream: u32) -> Result<Option<&mut Stream>, Fault> {
        let ever = match self.is_theirs(stream) {
            true => stream <= self.last,
            false => stream < self.next,
        };
        if ever { Ok(self.streams.get_mut(&stream)) } else { Err(Fault::Unknown(stream)) }
    }
}
