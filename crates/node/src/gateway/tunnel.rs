//! A connection to another gateway: encrypted bytes there, a multiplexer here.
//!
//! Kept true: it never waits; little is kept behind the socket, so that whose turn it is is decided
//! late.

use super::leg::passing;
use eyrie_gateway::{Fault, Limits, Mux, Side};
use eyrie_tls::{Session, Stream};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Bytes that are read, or gathered for writing, at once.
const TURN_BYTES: usize = 128 << 10;
/// Bytes that the kernel holds before it sends them.
const UNSENT_BYTES: libc::c_int = 256 << 10;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("it was closed by the other end")]
    Closed,
    #[error("that gateway is not there any more")]
    Outdated,
    #[error("it broke: {0}")]
    Broke(#[from] io::Error),
    #[error("what comes is malformed: {0}")]
    Malformed(#[from] Fault),
}

pub(super) struct Tunnel {
    pub cluster: u32,
    /// Which start of that cluster's gateway it is to.
    pub number: u64,
    stream: Stream,
    pub mux: Mux,
    /// The connections of streams to nodes here.
    pub legs: BTreeMap<u32, u64>,
    pub readable: bool,
    pub writable: bool,
    input: Vec<u8>,
    out: Vec<u8>,
    done: usize,
    /// What was told to the counters.
    pub told: (u64, u64),
    /// The other gateway made it.
    pub called: bool,
    /// Who made the connection waits until this is dropped.
    _hold: Option<Sender<()>>,
}

impl Tunnel {
    pub fn new(
        (cluster, number): (u32, u64),
        stream: Stream,
        side: Side,
        (rate, silence): (Option<u64>, Duration),
        hold: Option<Sender<()>>,
    ) -> io::Result<Tunnel> {
        let socket = stream.socket();
        socket.set_nonblocking(true)?;
        eyrie_link::set_silence(socket, silence)?;
        set(&stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_BYTES)?;
        if let Some(rate) = rate {
            // A wish that an old kernel does not know by 64 bits is cut to what it knows.
            let rate = u32::try_from(rate).unwrap_or(u32::MAX);
            set(&stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate as libc::c_int)?;
        }
        Ok(Tunnel {
            cluster,
            number,
            stream,
            mux: Mux::new(side, Limits::default()),
            legs: BTreeMap::new(),
            readable: true,
            writable: true,
            input: Vec::new(),
            out: Vec::new(),
            done: 0,
            told: (0, 0),
            called: side == Side::Called,
            _hold: hold,
        })
    }

    pub fn socket(&self) -> &std::net::TcpStream {
        self.stream.socket()
    }

    /// Reads and writes what goes without waiting. Returns whether there may be more.
    pub fn turn(&mut self) -> Result<bool, End> {
        let more = self.read()?;
        Ok(self.write()? || more)
    }

    fn read(&mut self) -> Result<bool, End> {
        if !self.readable {
            return Ok(false);
        }
        self.input.clear();
        match self.stream.read_to(&mut self.input, TURN_BYTES) {
            Ok(0) => Err(End::Closed),
            Ok(_) => {
                self.mux.take(&self.input)?;
                Ok(true)
            }
            Err(error) => {
                self.readable = error.kind() == io::ErrorKind::Interrupted;
                Ok(passing(error)?)
            }
        }
    }

    fn write(&mut self) -> Result<bool, End> {
        let held = |stream: &Stream| stream.session().map_or(0, Session::held);
        if self.done == self.out.len() {
            self.out.clear();
            self.done = 0;
            self.mux.fill(&mut self.out, TURN_BYTES);
        }
        if !self.writable || (self.out.is_empty() && held(&self.stream) == 0) {
            return Ok(false);
        }
        let rest = &self.out[self.done..];
        let written = match self.stream.session() {
            None => self.stream.socket().write(rest),
            Some(session) => session.write_now(self.stream.socket(), rest),
        };
        match written {
            Ok(count) => {
                self.done += count;
                Ok(true)
            }
            Err(error) => {
                self.writable = error.kind() == io::ErrorKind::Interrupted;
                Ok(passing(error)?)
            }
        }
    }
}

/// Sets an option that is an int.
fn set(stream: &Stream, level: i32, name: i32, value: libc::c_int) -> io::Result<()> {
    let size = size_of_val(&value) as libc::socklen_t;
    let fd = stream.socket().as_raw_fd();
    // SAFETY: the value is an int, as all of these options take, and as long as stated.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
