//! A connection as a stream of bytes in both directions: cut in messages on one side, put together
//! on the other.
//!
//! One thread reads; any thread writes, without waiting. Who reads also looks after what was sent:
//! it says when there is room again, and notices what never arrives.
//!
//! Kept true: messages are taken in the order in which their buffers were posted, which is the one
//! in which they were sent; a slot for sending is used again when the library is done with it.

use std::ffi::c_void;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;
use crate::endpoint::{Ends, Handle, MOST_PIECES};
use crate::slots::{RECEIVES, SENDS, SLOT_BYTES, Slots};
use crate::sys::{CqErrEntry, CqMsgEntry, FI_EAGAIN, FI_EAVAIL, FidCq, Msg};
use crate::wait::{Wait, Woken};

/// Pieces up to this size are copied into the message's slot: one of its own costs more.
const COPY_BYTES: usize = 2048;
/// How often who reads looks after what was sent.
const TICK: Duration = Duration::from_secs(1);
/// What the other end has not taken by then, it never will on this connection.
const SILENCE: Duration = Duration::from_secs(20);

/// Bytes to be written.
#[derive(Clone, Copy)]
pub struct Piece {
    pub at: *const u8,
    pub bytes: usize,
    /// They stay where they are as long as the connection, and need not be copied.
    pub stays: bool,
}

/// An open connection.
pub struct Pipe {
    // Closed before the memory that it uses goes.
    pub(crate) ends: Ends,
    slots: Slots,
    leash: OwnedFd,
    nudge: OwnedFd,
    receiving: Mutex<Receiving>,
    sending: Mutex<Sending>,
    /// Somebody could not write and wants to know when it can.
    starved: AtomicBool,
}

struct Receiving {
    /// Bytes of the message in each slot, if one is there.
    arrived: [Option<usize>; RECEIVES],
    /// The slot that the next message is in, and how far it is read.
    next: usize,
    offset: usize,
    over: bool,
}

struct Sending {
    free: Vec<usize>,
    /// Since when nothing was taken of what is under way.
    since: Instant,
    failed: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broken() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl Pipe {
    /// With buffers for what may come.
    pub(crate) fn new(ends: Ends, slots: Slots, leash: OwnedFd) -> Result<Pipe, Error> {
        let nudge = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let nudge = nudge.map_err(io::Error::from)?;
        let receiving = Receiving { arrived: [None; RECEIVES], next: 0, offset: 0, over: false };
        let free = (RECEIVES..RECEIVES + SENDS).collect();
        let sending = Sending { free, since: Instant::now(), failed: false };
        let (receiving, sending) = (Mutex::new(receiving), Mutex::new(sending));
        let starved = AtomicBool::new(false);
        let pipe = Pipe { ends, slots, leash, nudge, receiving, sending, starved };
        (0..RECEIVES).try_for_each(|slot| pipe.post(slot))?;
        Ok(pipe)
    }

    pub(crate) fn leash(&self) -> BorrowedFd<'_> {
        self.leash.as_fd()
    }

    /// Hands a slot over to be received into.
    fn post(&self, slot: usize) -> Result<(), Error> {
        let (ep, context) = (self.ends.ep.at(), self.slots.context(slot));
        let (at, desc) = (self.slots.slot(slot).cast(), self.ends.descriptor());
        // SAFETY: it is open; the slot is nobody's, and as long as that.
        let posted = unsafe { ((*(*ep).msg).recv)(ep, at, SLOT_BYTES, desc, 0, context) };
        self.ends.library.check("fi_recv", posted as i64)
    }

    /// Waits for bytes and appends them to `buffer`, about `limit` at most; `room` is called when
    /// there is room for who could not write. 0: the end.
    ///
    /// # Errors
    /// When the library fails.
    pub fn read_to(
        &self,
        buffer: &mut Vec<u8>,
        limit: usize,
        room: &dyn Fn(),
    ) -> io::Result<usize> {
        self.read_until(buffer, limit, None, room)
    }

    fn read_until(
        &self,
        buffer: &mut Vec<u8>,
        limit: usize,
        end: Option<Instant>,
        room: &dyn Fn(),
    ) -> io::Result<usize> {
        let mut receiving = lock(&self.receiving);
        loop {
            let got = self.deliver(&mut receiving, buffer, limit)?;
            if got > 0 {
                return Ok(got);
            }
            if self.collect(&mut receiving) {
                continue;
            }
            if receiving.over {
                return Ok(0);
            }
            if self.starved.load(SeqCst) && self.relieve(false)? {
                room();
            }
            let tick = Instant::now() + TICK;
            match self.wait(end.map_or(tick, |end| end.min(tick)))? {
                Woken::Look => {}
                Woken::Ended => {
                    self.collect(&mut receiving);
                    receiving.over = true;
                }
                Woken::Late if end.is_some_and(|end| Instant::now() >= end) => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Woken::Late => {
                    if self.relieve(true)? {
                        room();
                    }
                }
            }
        }
    }

    /// Waits for something to do.
    fn wait(&self, end: Instant) -> Result<Woken, Error> {
        let Ends { library, fabric, received, sent, .. } = &self.ends;
        let wait = Wait::new(library, fabric, self.leash()).queue(received);
        let wait = wait.descriptor(self.nudge.as_raw_fd());
        match self.starved.load(SeqCst) {
            true => wait.queue(sent).until(end),
            false => { wait }.until(end),
        }
    }

    /// Appends what has arrived, and hands the slots over again.
    fn deliver(
        &self,
        receiving: &mut Receiving,
        buffer: &mut Vec<u8>,
        limit: usize,
    ) -> Result<usize, Error> {
        let mut got = 0;
        while got < limit
            && let slot = receiving.next
            && let Some(bytes) = receiving.arrived[slot]
        {
            let count = (bytes - receiving.offset).min(limit - got);
            // SAFETY: the slot was filled so far, and is not posted.
            let part = unsafe {
                let at = self.slots.slot(slot).add(receiving.offset);
                std::slice::from_raw_parts(at, count)
            };
            buffer.extend_from_slice(part);
            got += count;
            receiving.offset += count;
            if receiving.offset == bytes {
                receiving.offset = 0;
                receiving.arrived[slot] = None;
                receiving.next = (slot + 1) % RECEIVES;
                if let Err(error) = self.post(slot) {
                    // What is read already is not lost.
                    receiving.over = true;
                    return if got > 0 { Ok(got) } else { Err(error) };
                }
            }
        }
        Ok(got)
    }

    /// Notes what has arrived. False: nothing.
    fn collect(&self, receiving: &mut Receiving) -> bool {
        let mut any = false;
        let whole = completions(&self.ends.received.handle, |entry| {
            match self.slots.of_context(entry.op_context) {
                Some(slot) if slot < RECEIVES && entry.len <= SLOT_BYTES => {
                    receiving.arrived[slot] = Some(entry.len);
                    any = true;
                }
                _ => receiving.over = true,
            }
        });
        receiving.over |= whole.is_err();
        any
    }

    /// Takes back what was sent. True: who could not write may try again.
    fn relieve(&self, late: bool) -> io::Result<bool> {
        let mut sending = lock(&self.sending);
        let reaped = self.reap(&mut sending)?;
        let stuck = sending.free.len() < SENDS && sending.since.elapsed() > SILENCE;
        if stuck {
            sending.failed = true;
            return Err(io::ErrorKind::TimedOut.into());
        }
        if !self.starved.load(SeqCst) || !(reaped || late) {
            return Ok(false);
        }
        // Under the lock, like the nudge itself, so that none is left behind.
        let _ = rustix::io::read(&self.nudge, &mut [0; 8]);
        self.starved.store(false, SeqCst);
        Ok(true)
    }

    /// Takes back the slots of what was sent. Whether there were any.
    fn reap(&self, sending: &mut Sending) -> io::Result<bool> {
        let before = sending.free.len();
        let whole = completions(&self.ends.sent.handle, |entry| {
            let slot = self.slots.of_context(entry.op_context);
            sending.free.extend(slot.filter(|slot| *slot >= RECEIVES));
        });
        if whole.is_err() {
            sending.failed = true;
        }
        if sending.failed {
            return Err(broken());
        }
        let reaped = sending.free.len() > before;
        if reaped {
            sending.since = Instant::now();
        }
        Ok(reaped)
    }

    /// Writes as much as goes without waiting. Returns the bytes that were taken.
    ///
    /// # Errors
    /// `WouldBlock`: nothing goes just now, and who reads will say when it does. Others: the
    /// connection broke.
    ///
    /// # Safety
    /// Pieces must be valid for reading; those that stay, until the connection is dropped.
    pub unsafe fn write(&self, pieces: impl Iterator<Item = Piece>) -> io::Result<usize> {
        let mut sending = lock(&self.sending);
        if sending.failed {
            return Err(broken());
        }
        // Looking costs, too.
        if sending.free.len() <= SENDS / 2 {
            self.reap(&mut sending)?;
        }
        let (mut total, mut rest) = (0, Rest { pieces, first: None });
        while let Some(slot) = sending.free.last().copied() {
            // SAFETY: the caller's promise; the slot is free.
            let message = unsafe { self.gather(slot, &mut rest) };
            if message.bytes == 0 {
                break;
            }
            if sending.free.len() == SENDS {
                sending.since = Instant::now();
            }
            // SAFETY: its pieces are as they were given, or lie in the slot.
            match unsafe { self.send(slot, &message) } {
                Sent::Copied => {}
                Sent::UnderWay => {
                    sending.free.pop();
                }
                Sent::Not => break,
                Sent::Failed => {
                    sending.failed = true;
                    return Err(broken());
                }
            }
            total += message.bytes;
        }
        if total > 0 {
            return Ok(total);
        }
        self.starved.store(true, SeqCst);
        let _ = rustix::io::write(&self.nudge, &1u64.to_ne_bytes());
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Puts the next message together.
    ///
    /// # Safety
    /// As `write`; the slot must be free.
    unsafe fn gather(&self, slot: usize, rest: &mut Rest<impl Iterator<Item = Piece>>) -> Message {
        let at = self.slots.slot(slot);
        let empty = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut message = Message { parts: [empty; MOST_PIECES], count: 0, bytes: 0, whole: true };
        let (mut copied, mut extends) = (0, false);
        while message.bytes < SLOT_BYTES
            && let Some(piece) = rest.first()
        {
            let bytes = piece.bytes.min(SLOT_BYTES - message.bytes);
            let copies = !piece.stays || bytes <= COPY_BYTES || self.ends.is_registered();
            if !(copies && extends) {
                if message.count == self.ends.limits.pieces {
                    break;
                }
                // SAFETY: no more is copied than the slot has.
                let from = if copies { unsafe { at.add(copied) } } else { piece.at.cast_mut() };
                message.parts[message.count] = libc::iovec { iov_base: from.cast(), iov_len: 0 };
                message.count += 1;
            }
            if copies {
                // SAFETY: the piece is readable; as above.
                unsafe { ptr::copy_nonoverlapping(piece.at, at.add(copied), bytes) };
                copied += bytes;
            }
            message.whole &= copies;
            extends = copies;
            message.parts[message.count - 1].iov_len += bytes;
            message.bytes += bytes;
            rest.pass(bytes);
        }
        message
    }

    /// # Safety
    /// The message's pieces must be valid until it is sent.
    unsafe fn send(&self, slot: usize, message: &Message) -> Sent {
        let (ep, context) = (self.ends.ep.at(), self.slots.context(slot));
        if message.whole && message.bytes <= self.ends.limits.inject_bytes {
            let at = message.parts[0].iov_base;
            // SAFETY: it is open; so many bytes lie in the slot. They are the library's at once.
            let sent = unsafe { ((*(*ep).msg).inject)(ep, at, message.bytes, 0) };
            return match sent {
                0 => Sent::Copied,
                again if again == -FI_EAGAIN => Sent::Not,
                _ => Sent::Failed,
            };
        }
        let mut desc = [self.ends.descriptor(); MOST_PIECES];
        let message = Msg {
            msg_iov: message.parts.as_ptr(),
            desc: desc.as_mut_ptr(),
            iov_count: message.count,
            addr: 0,
            context,
            data: 0,
        };
        // SAFETY: it is open; the pieces are valid by the caller's promise.
        match unsafe { ((*(*ep).msg).sendmsg)(ep, &message, 0) } {
            0 => Sent::UnderWay,
            again if again == -FI_EAGAIN => Sent::Not,
            _ => Sent::Failed,
        }
    }

    /// For who speaks and listens in turn, for so long at most.
    pub fn timed(&self, patience: Duration) -> Timed<'_> {
        Timed { pipe: self, end: Instant::now() + patience }
    }

    /// Waits until something that was sent is taken.
    fn await_room(&self, end: Instant) -> io::Result<()> {
        let Ends { library, fabric, sent, .. } = &self.ends;
        while !self.relieve(false)? {
            match Wait::new(library, fabric, self.leash()).queue(sent).until(end)? {
                Woken::Look => {}
                Woken::Ended => return Err(broken()),
                Woken::Late => return Err(io::ErrorKind::TimedOut.into()),
            }
        }
        Ok(())
    }
}

/// Pieces that are not written yet.
struct Rest<I> {
    pieces: I,
    first: Option<Piece>,
}

impl<I: Iterator<Item = Piece>> Rest<I> {
    fn first(&mut self) -> Option<Piece> {
        while self.first.is_none_or(|piece| piece.bytes == 0) {
            self.first = Some(self.pieces.next()?);
        }
        self.first
    }

    fn pass(&mut self, bytes: usize) {
        if let Some(piece) = &mut self.first {
            piece.at = piece.at.wrapping_add(bytes);
            piece.bytes -= bytes;
        }
    }
}

struct Message {
    parts: [libc::iovec; MOST_PIECES],
    count: usize,
    bytes: usize,
    /// All of it was copied into the slot, as one.
    whole: bool,
}

enum Sent {
    /// The slot is free at once.
    Copied,
    UnderWay,
    /// Not just now.
    Not,
    Failed,
}

/// Takes all completions of a queue.
fn completions(queue: &Handle<FidCq>, mut take: impl FnMut(CqMsgEntry)) -> Result<(), ()> {
    let cq = queue.at();
    loop {
        let mut entries = [MaybeUninit::<CqMsgEntry>::uninit(); 16];
        // SAFETY: it is open, and there is room for so many entries of its format.
        let read = unsafe {
            ((*(*cq).ops).read)(cq, entries.as_mut_ptr().cast::<c_void>(), entries.len())
        };
        if read == -FI_EAGAIN || read == 0 {
            return Ok(());
        }
        if read < 0 {
            if read == -FI_EAVAIL {
                // SAFETY: for which zeros are valid.
                let mut entry: CqErrEntry = unsafe { std::mem::zeroed() };
                // SAFETY: it is open; the entry outlives the call.
                unsafe { ((*(*cq).ops).readerr)(cq, &mut entry, 0) };
            }
            return Err(());
        }
        for entry in &entries[..(read as usize).min(entries.len())] {
            // SAFETY: so many were written.
            take(unsafe { entry.assume_init() });
        }
    }
}

/// A connection on which nothing is waited for longer than was said.
pub struct Timed<'a> {
    pipe: &'a Pipe,
    end: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut got = Vec::with_capacity(buffer.len());
        let count = self.pipe.read_until(&mut got, buffer.len(), Some(self.end), &|| {})?;
        buffer[..count].copy_from_slice(&got);
        Ok(count)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Piece { at: bytes.as_ptr(), bytes: bytes.len(), stays: false };
        if bytes.is_empty() {
            return Ok(0);
        }
        loop {
            // SAFETY: a piece of our own, which need not stay.
            match unsafe { self.pipe.write(std::iter::once(piece)) } {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.pipe.await_room(self.end)?;
                }
                done => return done,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
