//! What comes on a connection of another node, cut in frames. The payload of a large entry goes
//! from the socket right into the mirror where it belongs; all else is received into a buffer.
//!
//! Kept true: bytes are received into a mirror only while `inbound` is locked and has just said
//! where they belong. If it says otherwise in the middle of an entry, the rest of that is dropped,
//! as pieces are that nobody wants any more.

use std::{io, ptr};

use eyrie_protocol::link::wire::{self, Forward, WireError};

use crate::connection::Connection;
use crate::inbound::{Fault, Inbound, Single};

/// Bytes received at once.
const READ_BYTES: usize = 256 * 1024;
/// The same where a large entry is likely to come: its header, and little of its payload.
const BRIEF_BYTES: usize = 512;
/// Less of a payload than this is awaited in the buffer.
const LEAST_REST_BYTES: usize = 4096;

/// What is to be done next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// Take the next frame.
    Next,
    /// Give the lock to others before that.
    Yield,
    /// Wait for more.
    Wait,
    /// The connection has ended.
    Over,
}

/// An entry of which some has come.
struct Placing {
    entry: Single,
    /// Where its payload goes.
    at: *mut u8,
    bytes: usize,
    done: usize,
}

/// What came on a connection and was not taken yet.
#[derive(Default)]
pub(crate) struct Incoming {
    /// From `used` on. Empty while an entry is received elsewhere.
    buffer: Vec<u8>,
    used: usize,
    placing: Option<Placing>,
    /// Bytes still to come of an entry that is not wanted any more.
    dropped: usize,
    /// What came last was a large entry.
    brief: bool,
    /// Bytes that went to mirrors since others could have the lock.
    placed: usize,
}

impl Incoming {
    /// Waits for more. False: the end.
    ///
    /// # Errors
    /// When what came was not encrypted by the other end.
    pub fn wait(&mut self, connection: &Connection) -> io::Result<bool> {
        if self.placing.is_some() {
            connection.await_bytes();
            return Ok(true);
        }
        self.buffer.drain(..std::mem::take(&mut self.used));
        let brief = self.brief && self.buffer.is_empty();
        connection.read(&mut self.buffer, if brief { BRIEF_BYTES } else { READ_BYTES })
    }

    /// Kind and body of the next frame, if it is here whole.
    ///
    /// # Errors
    /// When it can never become a frame.
    pub fn next(&mut self) -> Result<Option<(u32, &[u8])>, WireError> {
        let dropped = self.dropped.min(self.buffer.len() - self.used);
        self.dropped -= dropped;
        self.used += dropped;
        let here = &self.buffer[self.used..];
        let Some((kind, body)) = wire::split(here)? else { return Ok(None) };
        self.used += body.end;
        self.brief = false;
        Ok(Some((kind, &here[body])))
    }

    /// The next frame is not here whole: receives it into its place, if it has one.
    ///
    /// # Errors
    /// When no correct node sends it.
    pub fn place(&mut self, connection: &Connection, inbound: &mut Inbound) -> Result<Turn, Fault> {
        let node = connection.peer.node;
        let begun = self.placing.is_some();
        if !begun && connection.is_plain() {
            self.begin(node, inbound);
        }
        let Some(placing) = &mut self.placing else { return Ok(Turn::Wait) };
        if begun && inbound.place(node, &placing.entry) != Some(placing.at) {
            self.dropped = placing.bytes - placing.done;
            (self.placing, self.brief) = (None, false);
            return Ok(Turn::Next);
        }
        while placing.done < placing.bytes {
            let rest = (placing.at.wrapping_add(placing.done), placing.bytes - placing.done);
            // SAFETY: `inbound`, which is locked, has just said that they belong there.
            match unsafe { connection.receive_at(rest, &mut self.buffer, BRIEF_BYTES) } {
                Ok(0) => return Ok(Turn::Over),
                Ok(got) => placing.done += got.min(rest.1),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.placed = 0;
                    return Ok(Turn::Wait);
                }
                Err(_) => return Ok(Turn::Over),
            }
        }
        inbound.placed(node, &placing.entry)?;
        self.placed += placing.bytes;
        (self.placing, self.brief) = (None, true);
        if self.placed < READ_BYTES {
            return Ok(Turn::Next);
        }
        self.placed = 0;
        Ok(Turn::Yield)
    }

    /// Finds the place of a large entry of which the header is here.
    fn begin(&mut self, node: u32, inbound: &mut Inbound) {
        let data = wire::begun(&self.buffer[self.used..]);
        let Some((Forward::Data { stream, serial, from, chain, bytes: here }, payload)) = data
        else {
            return;
        };
        let Some((head, rest)) = here.split_first_chunk() else { return };
        if self.dropped > 0 || payload - here.len() < LEAST_REST_BYTES {
            return;
        }
        let entry = Single { stream, serial, from, chain, head: *head, bytes: payload as u64 };
        let Some(at) = inbound.place(node, &entry) else { return };
        // SAFETY: the entry is `payload` bytes long, and what follows its head belongs there.
        unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), at, rest.len()) };
        let (bytes, done) = (payload - head.len(), rest.len());
        self.placing = Some(Placing { entry, at, bytes, done });
        self.buffer.clear();
        self.used = 0;
    }
}
