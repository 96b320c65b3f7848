//! The sending end of the streams from this node to one other: which piece goes out next.
//!
//! Pure, without I/O. The driver says what was published (cut in pieces that end where an entry
//! ends) and what the other node answered; it asks for the next thing to send and reads the bytes
//! from the log itself.
//!
//! Kept true: a stream goes on where its receiver said, and never past the credit it gave; what is
//! sent on one connection is forgotten with it. One stream that may not go on holds up no other.
//! Nothing is sent to a rank that is held (`pause`), not even what was cut already.

use crate::link::wire::{Backward, Stream};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The end of a piece, and what must be true before it may leave (`gate::Ticket`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark<T> {
    end: u64,
    /// Less than the stretch of the stream if it ends with padding.
    bytes: u64,
    ticket: T,
}

/// One stream.
#[derive(Clone, Debug)]
struct Out<T> {
    /// `Open` was sent on this connection.
    opened: bool,
    /// Given by the receiver on this connection.
    serial: Option<u32>,
    next: u64,
    credit: u64,
    marks: VecDeque<Mark<T>>,
    queued: bool,
}

/// What is to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Send {
    Open {
        stream: Stream,
    },
    /// `bytes` of the log from position `from` on; they stand for the stream up to `end`.
    Piece {
        stream: Stream,
        serial: u32,
        from: u64,
        end: u64,
        bytes: u64,
    },
}

/// What an answer of the receiver's node means for the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Look at the log again: from `need` on for acknowledgements, from `from` on for pieces.
    Rewind {
        stream: Stream,
        from: u64,
        need: u64,
    },
    /// The receiver has the stream up to `have`, and reads it from `need` on.
    Moved {
        stream: Stream,
        have: u64,
        need: u64,
    },
    /// The message that begins there was matched.
    Acked {
        stream: Stream,
        position: u64,
    },
    /// The receiver has passed all before `from`: look at the log again from there on, for pieces.
    Skip {
        stream: Stream,
        from: u64,
        need: u64,
    },
    /// The receiver cannot keep what was given to a wire.
    Bring {
        stream: Stream,
    },
    /// Determinants up to this number are held.
    Held {
        upto: u64,
    },
    /// The receiver takes early messages there.
    Early {
        stream: Stream,
        port: u16,
        token: [u64; 2],
    },
    Nothing,
}

/// What no correct receiver says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Wrong {
    #[error("positions {0} and {1} of a stream do not go together")]
    Positions(u64, u64),
}

/// All streams from this node to one other node.
#[derive(Clone, Debug)]
pub struct Sender<T> {
    connected: bool,
    streams: BTreeMap<Stream, Out<T>>,
    /// Streams that may have something to send, each once.
    ready: VecDeque<Stream>,
    /// Ranks that nothing is sent to for now.
    held: BTreeSet<u32>,
}

impl<T: Copy> Default for Sender<T> {
    fn default() -> Self {
        let (streams, held) = Default::default();
        Sender { connected: false, streams, ready: VecDeque::new(), held }
    }
}

impl<T: Copy> Sender<T> {
    /// A new connection stands; nothing was sent on it.
    pub fn connected(&mut self) {
        self.disconnected();
        self.connected = true;
        let all: Vec<Stream> = self.streams.keys().copied().collect();
        all.into_iter().for_each(|s| self.queue(s));
    }

    pub fn disconnected(&mut self) {
        self.connected = false;
        self.ready.clear();
        for out in self.streams.values_mut() {
            (out.opened, out.serial, out.queued) = (false, None, false);
            out.marks.clear();
        }
    }

    /// Whether a connection is wanted: there is a stream.
    pub fn is_wanted(&self) -> bool {
        !self.streams.is_empty()
    }

    /// There is something in the stream.
    pub fn news(&mut self, stream: Stream) {
        self.streams.entry(stream).or_insert(Out {
            opened: false,
            serial: None,
            next: 0,
            credit: 0,
            marks: VecDeque::new(),
            queued: false,
        });
        self.queue(stream);
    }

    /// Where pieces are to be cut from on: the receiver has said so, and how far they were cut.
    pub fn cut(&self, stream: Stream) -> Option<u64> {
        let out = self.streams.get(&stream).filter(|o| o.serial.is_some())?;
        Some(out.marks.back().map_or(out.next, |m| m.end))
    }

    /// The next piece ends at `end` and has so many bytes.
    pub fn piece(&mut self, stream: Stream, end: u64, bytes: u64, ticket: T) {
        if let Some(out) = self.streams.get_mut(&stream)
            && out.serial.is_some()
        {
            debug_assert!(end > out.marks.back().map_or(out.next, |m| m.end));
            out.marks.push_back(Mark { end, bytes, ticket });
            self.queue(stream);
        }
    }

    /// Nothing more is to be sent of this stream: its receiver is gone from there.
    pub fn forget(&mut self, which: impl Fn(Stream) -> bool) {
        self.streams.retain(|stream, _| !which(*stream));
        self.ready.retain(|stream| !which(*stream));
    }

    /// Nothing goes to the rank from now on.
    pub fn hold(&mut self, rank: u32) {
        self.held.insert(rank);
    }

    /// What goes to the rank goes on.
    pub fn let_go(&mut self, rank: u32) {
        if self.held.remove(&rank) {
            let to = self.streams.keys().copied().filter(|s| s.1 == rank);
            to.collect::<Vec<_>>().into_iter().for_each(|s| self.queue(s));
        }
    }

    fn queue(&mut self, stream: Stream) {
        if let Some(out) = self.streams.get_mut(&stream)
            && self.connected
            && !out.queued
        {
            out.queued = true;
            self.ready.push_back(stream);
        }
    }

    /// What to send next. `may_leave` says of a piece whether it may.
    pub fn next(&mut self, may_leave: impl Fn(T) -> bool) -> Option<Send> {
        // Those whose turn has not come for want of a ticket stay in the queue, in their order.
        for _ in 0..self.ready.len() {
            let stream = self.ready.pop_front()?;
            let Some(out) = self.streams.get_mut(&stream) else { continue };
            out.queued = false;
            if self.held.contains(&stream.1) {
                continue;
            }
            if !out.opened {
                out.opened = true;
                return Some(Send::Open { stream });
            }
            let (Some(serial), Some(mark)) = (out.serial, out.marks.front().copied()) else {
                continue;
            };
            if mark.end > out.credit {
                continue;
            }
            if !may_leave(mark.ticket) {
                self.queue(stream);
                continue;
            }
            out.marks.pop_front();
            let from = out.next;
            out.next = mark.end;
            self.queue(stream);
            let Mark { end, bytes, .. } = mark;
            return Some(Send::Piece { stream, serial, from, end, bytes });
        }
        None
    }

    /// Takes an answer of the receiver's node.
    ///
    /// # Errors
    /// When no correct receiver sends it: the connection is to be closed.
    pub fn answer(&mut self, answer: Backward) -> Result<Effect, Wrong> {
        let (stream, effect) = match answer {
            Backward::Held { upto } => return Ok(Effect::Held { upto }),
            // They are not about a stream.
            Backward::Marked { .. } | Backward::GoOn { .. } => return Ok(Effect::Nothing),
            Backward::Early { stream, port, token } => {
                let stands = self.open(stream, true).is_some();
                let effect = Effect::Early { stream, port, token };
                return Ok(if stands { effect } else { Effect::Nothing });
            }
            Backward::Resume { stream, serial, from, need, credit, .. } => {
                let Some(out) = self.open(stream, false) else { return Ok(Effect::Nothing) };
                if credit < from {
                    return Err(Wrong::Positions(from, credit));
                }
                (out.serial, out.next, out.credit) = (Some(serial), from, credit);
                out.marks.clear();
                (stream, Effect::Rewind { stream, from, need })
            }
            Backward::Skip { stream, serial, from, need, credit } => {
                let Some(out) = self.open(stream, true) else { return Ok(Effect::Nothing) };
                if credit < from {
                    return Err(Wrong::Positions(from, credit));
                }
                (out.serial, out.next, out.credit) = (Some(serial), from, credit);
                out.marks.clear();
                (stream, Effect::Skip { stream, from, need })
            }
            Backward::Bring { stream } => {
                let Some(_) = self.open(stream, true) else { return Ok(Effect::Nothing) };
                (stream, Effect::Bring { stream })
            }
            Backward::Progress { stream, have, need, credit } => {
                let Some(out) = self.open(stream, true) else { return Ok(Effect::Nothing) };
                if have > out.next || credit < have {
                    return Err(Wrong::Positions(have, out.next));
                }
                out.credit = out.credit.max(credit);
                (stream, Effect::Moved { stream, have, need })
            }
            Backward::Acked { stream, position } => {
                let Some(out) = self.open(stream, true) else { return Ok(Effect::Nothing) };
                if position >= out.next {
                    return Err(Wrong::Positions(position, out.next));
                }
                (stream, Effect::Acked { stream, position })
            }
        };
        self.queue(stream);
        Ok(effect)
    }

    /// The stream an answer is about. `None`: it was forgotten meanwhile, or begins anew.
    fn open(&mut self, stream: Stream, resumed: bool) -> Option<&mut Out<T>> {
        let out = self.streams.get_mut(&stream)?;
        (out.opened && (!resumed || out.serial.is_some())).then_some(out)
    }
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
