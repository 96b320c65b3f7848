//! A stream's connection to a node of this cluster.
//!
//! Kept true: nothing is read from it that its stream does not take, nothing is dropped that the
//! stream has; it never waits.

use eyrie_gateway::{Mux, Reason};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Most bytes that are read or written in one turn.
const TURN_BYTES: usize = 64 << 10;

/// How a turn came out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// There is nothing to do until something happens.
    Idle,
    /// Another turn does more.
    More,
    /// Both directions have ended.
    Over,
    Broke,
}

pub(super) struct Leg {
    pub socket: TcpStream,
    /// Its tunnel, and its stream there.
    pub tunnel: u64,
    pub stream: u32,
    /// The node at its other end, if that one's machine is watched.
    pub watched: Option<u32>,
    /// A node waits to hear whether its way stands.
    pub waits: bool,
    pub readable: bool,
    pub writable: bool,
    read_over: bool,
    write_over: bool,
}

impl Leg {
    pub fn new(socket: TcpStream, tunnel: u64, stream: u32, waits: bool) -> Leg {
        let (readable, writable) = (true, true);
        let (read_over, write_over) = (false, false);
        let watched = None;
        Leg { socket, tunnel, stream, watched, waits, readable, writable, read_over, write_over }
    }

    /// Tells the node that its way stands, or why there is none.
    pub fn answer(&mut self, reason: Option<Reason>) {
        if std::mem::take(&mut self.waits) {
            // The first byte ever: there is room for it.
            let _ = self.socket.write(&[reason.map_or(0, |r| r as u8)]);
        }
    }

    /// Carries what goes without waiting.
    pub fn turn(&mut self, mux: &mut Mux, buffer: &mut [u8]) -> Turn {
        match self.read(mux, buffer).and_then(|read| Ok(self.write(mux)? || read)) {
            Err(_) => Turn::Broke,
            Ok(_) if self.read_over && self.write_over => Turn::Over,
            Ok(true) => Turn::More,
            Ok(false) => Turn::Idle,
        }
    }

    /// Returns whether there may be more.
    fn read(&mut self, mux: &mut Mux, buffer: &mut [u8]) -> io::Result<bool> {
        let room = mux.room(self.stream).min(buffer.len()).min(TURN_BYTES);
        if !self.readable || self.read_over || room == 0 {
            return Ok(false);
        }
        match self.socket.read(&mut buffer[..room]) {
            Ok(0) => {
                self.read_over = true;
                mux.end(self.stream);
                Ok(false)
            }
            Ok(count) => {
                mux.send(self.stream, &buffer[..count]);
                Ok(true)
            }
            Err(error) => {
                self.readable = error.kind() == io::ErrorKind::Interrupted;
                passing(error)
            }
        }
    }

    /// Returns whether there may be more.
    fn write(&mut self, mux: &mut Mux) -> io::Result<bool> {
        if self.write_over {
            return Ok(false);
        }
        let (bytes, end) = mux.input(self.stream);
        if end {
            self.write_over = true;
            // Whoever it called has given it up: it may be dead, and its end never comes.
            self.watched = None;
            // Lets the multiplexer see that its end was delivered.
            mux.deliver(self.stream, 0);
            // A node that has hung up says so by reading, too.
            let _ = self.socket.shutdown(Shutdown::Write);
            return Ok(false);
        }
        if bytes.is_empty() || !self.writable {
            return Ok(false);
        }
        match self.socket.write(&bytes[..bytes.len().min(TURN_BYTES)]) {
            Ok(count) => {
                mux.deliver(self.stream, count);
                Ok(true)
            }
            Err(error) => {
                self.writable = error.kind() == io::ErrorKind::Interrupted;
                passing(error)
            }
        }
    }
}

/// Whether it is no error but a wait.
pub(super) fn passing(error: io::Error) -> io::Result<bool> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(false),
        io::ErrorKind::Interrupted => Ok(true),
        _ => Err(error),
    }
}
