//! One connection's bytes over several TCP connections, its *lanes*, so that they take several ways
//! through a network which sends each connection its own way (ECMP by ports).
//!
//! What is to be written is cut in chunks with numbers. A lane takes the next chunk when the kernel
//! has taken its last one, so lanes carry what their ways let through, whatever their rates are.
//! The reader takes chunks by their numbers: one that is ahead waits in the kernel, whose bounds
//! hold up its lane.
//!
//! Kept true: bytes are read in the order in which they were written; all lanes end together, and
//! with the connection that they belong to.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::connection::{Flushed, Part, Queue, drop_front, set_silence, write};

/// Bytes of a chunk at most: some packets of the largest kind each.
const CHUNK_BYTES: usize = 128 * 1024;
/// Bytes that a lane takes before its way does: what is in it is late for the other ways.
const UNSENT_BYTES: libc::c_int = 64 * 1024;
/// Number of a chunk, and its length.
const HEAD_BYTES: usize = 12;

fn prepare(sockets: Vec<TcpStream>, silence: Duration) -> io::Result<Vec<TcpStream>> {
    let unsent = UNSENT_BYTES;
    for socket in &sockets {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        socket.set_nonblocking(true)?;
        set_silence(socket, silence)?;
        let size = size_of_val(&unsent) as libc::socklen_t;
        // SAFETY: the value is an int, as this option takes, and as long as stated.
        let done = unsafe {
            let value = (&raw const unsent).cast();
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
            libc::setsockopt(socket.as_raw_fd(), level, name, value, size)
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(sockets)
}

/// A lane that is written to.
struct Out {
    socket: TcpStream,
    /// What of a chunk is not written yet.
    parts: VecDeque<Part>,
    bytes: usize,
    /// All that was written, for tests.
    sent: u64,
}

/// The caller's end.
pub(crate) struct Sending {
    lanes: Vec<Out>,
    next: u64,
}

impl Sending {
    pub fn new(sockets: Vec<TcpStream>, silence: Duration) -> io::Result<Sending> {
        let out = |socket| Out { socket, parts: VecDeque::new(), bytes: 0, sent: 0 };
        let lanes = prepare(sockets, silence)?.into_iter().map(out).collect();
        Ok(Sending { lanes, next: 0 })
    }

    /// Bytes that were taken and are not written yet.
    pub fn held(&self) -> usize {
        self.lanes.iter().map(|lane| lane.bytes).sum()
    }

    /// Writes as much as goes without waiting; how many bytes, and whether that is all.
    pub fn flush(&mut self, queue: &mut Queue) -> io::Result<(usize, Flushed)> {
        let mut written = 0;
        loop {
            let mut moved = false;
            for lane in &mut self.lanes {
                if lane.bytes == 0 && queue.bytes > 0 {
                    lane.take(self.next, queue);
                    self.next += 1;
                }
                let done = lane.write()?;
                written += done;
                moved |= done > 0;
            }
            if queue.bytes == 0 && self.held() == 0 {
                return Ok((written, Flushed::All));
            }
            if !moved {
                return Ok((written, Flushed::Blocked));
            }
        }
    }

    /// Lanes that have to write something.
    pub fn blocked(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.lanes.iter().filter(|lane| lane.bytes > 0).map(|lane| lane.socket.as_fd())
    }

    /// What each lane has sent.
    #[cfg(test)]
    pub fn shares(&self) -> Vec<u64> {
        self.lanes.iter().map(|lane| lane.sent).collect()
    }
}

impl Out {
    /// Takes a chunk off the queue.
    fn take(&mut self, number: u64, queue: &mut Queue) {
        let length = queue.bytes.min(CHUNK_BYTES);
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&number.to_le_bytes());
        head.extend_from_slice(&(length as u32).to_le_bytes());
        self.parts.push_back(Part::Own { bytes: head, done: 0 });
        queue.move_front(length, &mut self.parts);
        self.bytes = HEAD_BYTES + length;
    }

    fn write(&mut self) -> io::Result<usize> {
        let mut written = 0;
        while self.bytes > 0 {
            match write(&self.socket, &self.parts) {
                Ok(done) => {
                    drop_front(&mut self.parts, done);
                    self.bytes -= done;
                    written += done;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.sent += written as u64;
        Ok(written)
    }
}

/// A lane that is read from.
struct In {
    socket: TcpStream,
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that have come.
    known: usize,
    /// Bytes of the chunk that are still to come, once the head has.
    rest: usize,
}

/// The called one's end.
pub(crate) struct Receiving {
    lanes: Vec<In>,
    next: u64,
}

/// What a lane has for its reader.
enum Here {
    /// So many bytes.
    Read(usize),
    /// Nothing now.
    Nothing,
    /// A chunk that is not the next one.
    Ahead,
}

impl Receiving {
    pub fn new(sockets: Vec<TcpStream>, silence: Duration) -> io::Result<Receiving> {
        let lane = |socket| In { socket, head: [0; HEAD_BYTES], known: 0, rest: 0 };
        let lanes = prepare(sockets, silence)?.into_iter().map(lane).collect();
        Ok(Receiving { lanes, next: 0 })
    }

    /// Waits for bytes and appends them to `buffer`, at most `limit`. 0: the end, which anything
    /// that comes on the leash is, too.
    pub fn read_to(
        &mut self,
        buffer: &mut Vec<u8>,
        limit: usize,
        leash: &TcpStream,
    ) -> io::Result<usize> {
        loop {
            let (mut got, mut waits) = (0, Vec::new());
            let mut at = 0;
            while let Some(lane) = self.lanes.get_mut(at) {
                match lane.read(self.next, buffer, limit - got)? {
                    Here::Read(bytes) => {
                        got += bytes;
                        if lane.known == HEAD_BYTES && lane.rest == 0 {
                            // The next one may have come on any lane.
                            (lane.known, self.next) = (0, self.next + 1);
                            (at, waits) = (0, Vec::new());
                        }
                        if got == limit {
                            return Ok(got);
                        }
                    }
                    Here::Nothing => {
                        waits.push(at);
                        at += 1;
                    }
                    Here::Ahead => at += 1,
                }
            }
            if got > 0 {
                return Ok(got);
            }
            let sockets = waits.iter().filter_map(|at| self.lanes.get(*at)).map(|l| &l.socket);
            let wanted = |socket| PollFd::new(socket, PollFlags::IN);
            let mut all: Vec<PollFd<'_>> =
                std::iter::once(leash).chain(sockets).map(wanted).collect();
            poll(&mut all, None)?;
            if all.first().is_some_and(|leash| !leash.revents().is_empty()) {
                return Ok(0);
            }
        }
    }
}

impl In {
    fn read(&mut self, next: u64, buffer: &mut Vec<u8>, limit: usize) -> io::Result<Here> {
        while self.known < HEAD_BYTES {
            let Some(got) = read(&self.socket, &mut self.head[self.known..])? else {
                return Ok(Here::Nothing);
            };
            self.known += got;
            if self.known == HEAD_BYTES {
                self.rest = self.length(next)?;
            }
        }
        if self.number() != next {
            return Ok(Here::Ahead);
        }
        let before = buffer.len();
        buffer.resize(before + self.rest.min(limit), 0);
        let got = read(&self.socket, &mut buffer[before..]);
        buffer.truncate(before + got.as_ref().map_or(0, |got| got.unwrap_or(0)));
        let Some(got) = got? else { return Ok(Here::Nothing) };
        self.rest -= got;
        Ok(Here::Read(got))
    }

    fn number(&self) -> u64 {
        self.head.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))
    }

    /// Bytes of the chunk, which no correct node says wrongly.
    fn length(&self, next: u64) -> io::Result<usize> {
        let length =
            self.head.last_chunk().map_or(0, |length| u32::from_le_bytes(*length)) as usize;
        if self.number() < next || !(1..=CHUNK_BYTES).contains(&length) {
            return Err(io::Error::other("a chunk that nobody writes"));
        }
        Ok(length)
    }
}

/// What is there; none: nothing now. The end is an error.
fn read(mut socket: &TcpStream, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match socket.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => return Ok(Some(got)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// Ends of lanes, by which they end whoever holds them.
pub(crate) struct Ends(Vec<TcpStream>);

impl Ends {
    pub fn of(sockets: &[TcpStream]) -> io::Result<Ends> {
        sockets.iter().map(TcpStream::try_clone).collect::<io::Result<_>>().map(Ends)
    }

    pub fn close(&self) {
        for socket in &self.0 {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
