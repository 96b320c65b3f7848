//! One authenticated connection: what is to be written, and its writing without waiting. It goes
//! over TCP, or over libfabric or several lanes, where the TCP connection says that it ends.
//!
//! Kept true: what is queued is written in order; payload is written from the log it lies in. A
//! connection that failed stays so, and its reader finds out by the shutdown.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eyrie_fabric::{Piece, Pipe};
use eyrie_ledger::segment::Segment;
use eyrie_protocol::membership::Member;
use eyrie_tls::{Session, Stream};

use crate::lanes::{Ends, Receiving, Sending};
use crate::waker::Waker;

/// Payloads up to this size are copied behind their header: a piece of their own costs more.
const COPY_BYTES: usize = 512;
/// Most pieces in one system call.
const MOST_PIECES: usize = 128;
/// Most bytes that are gathered for being encrypted together.
const SEALED_BYTES: usize = 64 * 1024;

pub(crate) enum Part {
    Own {
        bytes: Vec<u8>,
        done: usize,
    },
    /// In a log of the segment.
    Log {
        at: *const u8,
        bytes: usize,
    },
}

// SAFETY: the pointer is into the segment, which the connection holds; any thread may read it.
unsafe impl Send for Part {}

impl Part {
    /// What of it is not written yet.
    fn rest(&self) -> (*const u8, usize) {
        match self {
            Part::Own { bytes, done } => (bytes[*done..].as_ptr(), bytes.len() - done),
            Part::Log { at, bytes } => (*at, *bytes),
        }
    }

    fn piece(&self) -> Piece {
        let (at, bytes) = self.rest();
        Piece { at, bytes, stays: matches!(self, Part::Log { .. }) }
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    parts: VecDeque<Part>,
    pub bytes: usize,
    /// Bytes gathered for encryption.
    gathered: Vec<u8>,
    failed: bool,
}

/// How far a flush came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flushed {
    All,
    /// The socket takes no more just now.
    Blocked,
}

/// What carries bytes.
pub(crate) enum Carrier {
    Stream,
    Pipe(Pipe),
    /// What the caller writes; answers come by the stream.
    Sends(Mutex<Sending>, Ends),
    Takes(Mutex<Receiving>, Ends),
}

pub(crate) struct Connection {
    pub peer: Member,
    stream: Stream,
    /// What goes over libfabric is dropped before the segment that it sends from.
    carrier: Carrier,
    queue: Mutex<Queue>,
    pub sent_bytes: AtomicU64,
    pub received_bytes: AtomicU64,
    segment: Arc<Segment>,
}

impl Connection {
    pub fn new(
        stream: Stream,
        carrier: Carrier,
        peer: Member,
        segment: Arc<Segment>,
        silence: Duration,
    ) -> io::Result<Connection> {
        let socket = stream.socket();
        socket.set_nodelay(true)?;
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        set_silence(socket, silence)?;
        Ok(Connection {
            peer,
            stream,
            carrier,
            queue: Mutex::new(Queue::default()),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            segment,
        })
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes not written yet.
    pub fn pending(&self) -> usize {
        let queue = self.queue();
        if queue.failed { 0 } else { queue.bytes + self.held() }
    }

    /// Bytes that are encrypted, or in lanes, and not written yet.
    fn held(&self) -> usize {
        match &self.carrier {
            Carrier::Sends(lanes, _) => held(lanes).held(),
            _ => self.stream.session().map_or(0, Session::held),
        }
    }

    /// Queues what `write` appends.
    pub fn push(&self, write: impl FnOnce(&mut Vec<u8>)) {
        self.queue().own(write);
    }

    /// Queues a frame whose payload lies in a log of this node's segment.
    ///
    /// # Safety
    /// `at` must be valid for reading `bytes` bytes as long as the segment is mapped.
    pub unsafe fn push_log(&self, head: impl FnOnce(&mut Vec<u8>), at: *const u8, bytes: usize) {
        let mut queue = self.queue();
        queue.own(head);
        if bytes <= COPY_BYTES {
            // SAFETY: the caller's promise.
            let payload = unsafe { std::slice::from_raw_parts(at, bytes) };
            queue.own(|out| out.extend_from_slice(payload));
        } else {
            queue.bytes += bytes;
            queue.parts.push_back(Part::Log { at, bytes });
        }
    }

    /// Writes as much as goes without waiting.
    pub fn flush(&self) -> Flushed {
        let mut queue = self.queue();
        if let Carrier::Sends(lanes, _) = &self.carrier {
            return self.flush_lanes(&mut queue, &mut held(lanes));
        }
        while (queue.bytes > 0 || self.held() > 0) && !queue.failed {
            let written = match (&self.carrier, self.stream.session()) {
                // SAFETY: the pieces are valid for reading; those in a log as long as the segment,
                // which is dropped after the pipe.
                (Carrier::Pipe(pipe), _) => unsafe {
                    pipe.write(queue.parts.iter().map(Part::piece))
                },
                (_, None) => write(self.stream.socket(), &queue.parts),
                (_, Some(session)) => {
                    // What was taken last has to leave first.
                    let most = if session.held() > 0 { 0 } else { SEALED_BYTES };
                    queue.gather(most);
                    session.write_now(self.stream.socket(), &queue.gathered)
                }
            };
            match written {
                Ok(written) => {
                    self.sent_bytes.fetch_add(written as u64, Ordering::Relaxed);
                    queue.drop_front(written);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Flushed::Blocked,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    queue.failed = true;
                    self.close();
                }
            }
        }
        if queue.failed {
            queue.parts.clear();
            queue.bytes = 0;
        }
        Flushed::All
    }

    fn flush_lanes(&self, queue: &mut Queue, lanes: &mut Sending) -> Flushed {
        if queue.failed {
            return Flushed::All;
        }
        match lanes.flush(queue) {
            Ok((written, flushed)) => {
                self.sent_bytes.fetch_add(written as u64, Ordering::Relaxed);
                flushed
            }
            Err(_) => {
                queue.failed = true;
                queue.parts.clear();
                queue.bytes = 0;
                self.close();
                Flushed::All
            }
        }
    }

    /// Waits for bytes and appends them to `buffer`, about `limit` at most. False: the end.
    ///
    /// # Errors
    /// When what came was not encrypted by the other end.
    pub fn read(&self, buffer: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
        let read = match &self.carrier {
            Carrier::Pipe(pipe) => pipe.read_to(buffer, limit, &|| self.segment.ring_links()),
            Carrier::Takes(lanes, _) => held(lanes).read_to(buffer, limit, self.stream.socket()),
            _ => self.stream.read_to(buffer, limit),
        };
        let got = match read {
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(_) => return Ok(false),
        };
        self.received_bytes.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got > 0)
    }

    /// Whether what comes can be received right where it belongs.
    pub fn is_plain(&self) -> bool {
        let by_itself = matches!(self.carrier, Carrier::Stream | Carrier::Sends(..));
        by_itself && self.stream.session().is_none()
    }

    /// Receives, without waiting, `bytes` bytes to `at`, and appends what comes behind them to
    /// `buffer`, at most `spare`. Returns how many there were in all; 0: the end.
    ///
    /// # Safety
    /// `at` must be valid for writing `bytes` bytes; the connection must be plain.
    pub unsafe fn receive_at(
        &self,
        (at, bytes): (*mut u8, usize),
        buffer: &mut Vec<u8>,
        spare: usize,
    ) -> io::Result<usize> {
        buffer.reserve(spare);
        let rest = buffer.spare_capacity_mut().as_mut_ptr();
        let mut pieces = [
            libc::iovec { iov_base: at.cast(), iov_len: bytes },
            libc::iovec { iov_base: rest.cast(), iov_len: spare },
        ];
        // SAFETY: a header of zeros is an empty one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (pieces.as_mut_ptr(), pieces.len());
        let socket = self.stream.socket().as_raw_fd();
        // SAFETY: both pieces may be written: the caller's promise, and what was just reserved.
        let got = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_DONTWAIT) };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        if got > bytes {
            // SAFETY: so many more bytes were written behind it.
            unsafe { buffer.set_len(buffer.len() + got - bytes) };
        }
        self.received_bytes.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }

    /// Waits until something comes, or the end. The connection must be plain.
    pub fn await_bytes(&self) {
        let fd = self.stream.socket().as_raw_fd();
        let mut socket = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor, as stated.
        unsafe { libc::poll(&raw mut socket, 1, -1) };
    }

    /// Ends the connection; its reader notices.
    pub fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Carrier::Sends(_, ends) | Carrier::Takes(_, ends) = &self.carrier {
            ends.close();
        }
    }

    /// Has the sending thread woken when there is room for more.
    pub fn await_room(&self, waker: &Waker) {
        match &self.carrier {
            // Over libfabric who reads wakes it.
            Carrier::Pipe(_) => {}
            Carrier::Sends(lanes, _) => held(lanes).blocked().for_each(|lane| waker.watch(lane)),
            _ => waker.watch(self.stream.socket().as_fd()),
        }
    }

    pub fn is_piped(&self) -> bool {
        matches!(self.carrier, Carrier::Pipe(_))
    }
}

impl Queue {
    pub fn own(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if !matches!(self.parts.back(), Some(Part::Own { .. })) {
            self.parts.push_back(Part::Own { bytes: Vec::with_capacity(256), done: 0 });
        }
        if let Some(Part::Own { bytes, .. }) = self.parts.back_mut() {
            let before = bytes.len();
            write(bytes);
            self.bytes += bytes.len() - before;
        }
    }

    /// Copies the beginning of the queue, at most so many bytes, to where it can be encrypted.
    fn gather(&mut self, most: usize) {
        self.gathered.clear();
        for part in &self.parts {
            let room = most - self.gathered.len();
            let (at, bytes) = part.rest();
            let length = bytes.min(room);
            // SAFETY: valid for reading as far as stated: our own vectors, or the mapped segment.
            let piece = unsafe { std::slice::from_raw_parts(at, length) };
            self.gathered.extend_from_slice(piece);
            if length == room {
                return;
            }
        }
    }

    fn drop_front(&mut self, written: usize) {
        self.bytes -= written;
        drop_front(&mut self.parts, written);
    }

    /// Moves the first `length` bytes to other parts.
    pub fn move_front(&mut self, length: usize, to: &mut VecDeque<Part>) {
        self.bytes -= length;
        let mut rest = length;
        while rest > 0 {
            let Some(part) = self.parts.pop_front() else { return };
            let (at, bytes) = part.rest();
            if bytes <= rest {
                rest -= bytes;
                to.push_back(part);
                continue;
            }
            to.push_back(match &part {
                Part::Own { bytes, done } => {
                    Part::Own { bytes: bytes[*done..*done + rest].to_vec(), done: 0 }
                }
                Part::Log { .. } => Part::Log { at, bytes: rest },
            });
            self.parts.push_front(part);
            return drop_front(&mut self.parts, rest);
        }
    }
}

fn held<T>(lanes: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops what is written.
pub(crate) fn drop_front(parts: &mut VecDeque<Part>, mut written: usize) {
    while written > 0 {
        match parts.front_mut() {
            Some(Part::Own { bytes, done }) => {
                let step = written.min(bytes.len() - *done);
                *done += step;
                written -= step;
                if *done == bytes.len() {
                    parts.pop_front();
                }
            }
            Some(Part::Log { at, bytes }) => {
                let step = written.min(*bytes);
                *at = at.wrapping_add(step);
                *bytes -= step;
                written -= step;
                if *bytes == 0 {
                    parts.pop_front();
                }
            }
            None => return,
        }
    }
}

/// Writes from the beginning of the queue without waiting.
pub(crate) fn write(stream: &TcpStream, parts: &VecDeque<Part>) -> io::Result<usize> {
    let mut pieces = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MOST_PIECES];
    let mut count = 0;
    for (piece, part) in pieces.iter_mut().zip(parts) {
        let (at, length) = part.rest();
        *piece = libc::iovec { iov_base: at.cast_mut().cast(), iov_len: length };
        count += 1;
    }
    // SAFETY: a header of zeros is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = count;
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the pieces are valid for reading: our own vectors, or parts of the mapped segment.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &message, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Lets the kernel end a connection whose other end has gone silent for so long, in whole seconds.
///
/// # Errors
/// When the kernel does not.
pub fn set_silence(stream: &TcpStream, silence: Duration) -> io::Result<()> {
    let seconds = libc::c_int::try_from(silence.as_secs()).unwrap_or(libc::c_int::MAX / 1000);
    let probe = (seconds / 4).max(1);
    let options = [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, probe),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, probe),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, seconds * 1000),
    ];
    for (level, name, value) in options {
        let size = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the value is an int, as all of these options take, and as long as stated.
        let done = unsafe {
            libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), size)
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
