//! One connection's encryption, used by a thread that reads and others that write.
//!
//! Kept true: nobody waits for the socket while holding `tls`, so that reading and writing do not
//! wait for each other; records leave in the order they were made in, as who writes holds
//! `outgoing` until they are gone.

use std::io::{self, BufRead, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use rustix::net::SendFlags;
use rustls::Connection;

/// Most plaintext that is encrypted at once: four records.
const PIECE_BYTES: usize = 64 * 1024;
/// Most pieces that this is put together of.
const MAX_PIECES: usize = 16;
/// Most bytes read from the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// What TLS knows of a connection.
pub struct Session {
    tls: Mutex<Connection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

/// What came and is not decrypted yet.
struct Incoming {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

/// What is encrypted and not sent yet.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    done: usize,
}

/// A poisoned lock is no reason to stop: panics end the process here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn new(tls: Connection) -> Session {
        let bytes = vec![0; READ_BYTES].into_boxed_slice();
        Session {
            tls: Mutex::new(tls),
            incoming: Mutex::new(Incoming { bytes, from: 0, to: 0 }),
            outgoing: Mutex::default(),
        }
    }

    /// Waits for bytes, and lets `take` have some, which says how many it took. 0: the end, which
    /// is not told from a cut: whoever can cut the connection can do so anywhere.
    pub(crate) fn read(
        &self,
        mut socket: &TcpStream,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> io::Result<usize> {
        let mut incoming = lock(&self.incoming);
        loop {
            if let Some(count) = self.decrypt(&mut incoming, &mut take)? {
                return Ok(count);
            }
            let count = socket.read(&mut incoming.bytes)?;
            if count == 0 {
                return Ok(0);
            }
            (incoming.from, incoming.to) = (0, count);
        }
    }

    /// Lets `take` have what there is. `None`: there is no whole record.
    fn decrypt(
        &self,
        incoming: &mut Incoming,
        take: &mut impl FnMut(&[u8]) -> usize,
    ) -> io::Result<Option<usize>> {
        let mut tls = lock(&self.tls);
        let mut all = 0;
        loop {
            let mut reader = tls.reader();
            let count = match reader.fill_buf() {
                Ok([]) => return Ok(Some(all)),
                Ok(chunk) => take(chunk),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut rest = &incoming.bytes[incoming.from..incoming.to];
                    if rest.is_empty() {
                        return Ok(Some(all).filter(|all| *all > 0));
                    }
                    incoming.from += tls.read_tls(&mut rest)?;
                    tls.process_new_packets()
                        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            reader.consume(count);
            all += count;
            if count == 0 {
                return Ok(Some(all));
            }
        }
    }

    /// Writes some of `bytes`, and waits until that has left.
    pub(crate) fn write(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(socket, &[IoSlice::new(bytes)])
    }

    /// Writes some of what all `pieces` have, one behind the other, and waits until that has left.
    pub(crate) fn write_vectored(
        &self,
        socket: &TcpStream,
        pieces: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let mut outgoing = lock(&self.outgoing);
        outgoing.send(socket)?;
        let count = self.encrypt(pieces, &mut outgoing)?;
        outgoing.send(socket)?;
        Ok(count)
    }

    /// Takes some of `bytes` and writes what goes without waiting. Nothing is taken, with an error
    /// that says so, as long as what was taken before has not left.
    ///
    /// # Errors
    /// When it would have to wait, and when the connection is broken.
    pub fn write_now(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let mut outgoing = lock(&self.outgoing);
        outgoing.send_now(socket)?;
        let count = self.encrypt(&[IoSlice::new(bytes)], &mut outgoing)?;
        match outgoing.send_now(socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Bytes that were taken by `write_now` and have not left, encrypted.
    pub fn held(&self) -> usize {
        let outgoing = lock(&self.outgoing);
        outgoing.bytes.len() - outgoing.done
    }

    fn encrypt(&self, pieces: &[IoSlice<'_>], outgoing: &mut Outgoing) -> io::Result<usize> {
        let mut tls = lock(&self.tls);
        let mut room = PIECE_BYTES;
        let mut now: Vec<IoSlice<'_>> = Vec::with_capacity(pieces.len().min(MAX_PIECES));
        for piece in pieces.iter().filter(|piece| !piece.is_empty()).take(MAX_PIECES) {
            let part = &piece[..piece.len().min(room)];
            room -= part.len();
            now.push(IoSlice::new(part));
        }
        let count = tls.writer().write_vectored(&now)?;
        while tls.wants_write() {
            tls.write_tls(&mut outgoing.bytes)?;
        }
        Ok(count)
    }

    /// Says that nothing more will come, if that goes without waiting.
    pub(crate) fn say_end(&self, socket: &TcpStream) {
        let mut outgoing = match self.outgoing.try_lock() {
            Ok(outgoing) => outgoing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        lock(&self.tls).send_close_notify();
        let _ = self.encrypt(&[], &mut outgoing).and_then(|_| outgoing.send_now(socket));
    }
}

impl Outgoing {
    fn send(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        let sent = socket.write_all(&self.bytes[self.done..]);
        self.clear();
        sent
    }

    fn send_now(&mut self, socket: &TcpStream) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while self.done < self.bytes.len() {
            match rustix::net::send(socket, &self.bytes[self.done..], flags) {
                Ok(count) => self.done += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.clear();
        Ok(())
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.done = 0;
    }
}
