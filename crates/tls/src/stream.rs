//! A connection on which both ends have proved themselves.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};

use rustix::buffer::spare_capacity;
use rustix::io::Errno;

use crate::session::Session;

/// Bytes of a file that are encrypted at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Most bytes of a file that are sent at once without.
const MOST_PAGES_BYTES: usize = 8 << 20;

/// A connection, encrypted or not. One thread may read while others write.
pub struct Stream {
    socket: TcpStream,
    session: Option<Session>,
}

impl Stream {
    pub(crate) fn new(socket: TcpStream, session: Option<Session>) -> Stream {
        Stream { socket, session }
    }

    /// For its options. What is read or written there is not what the other end means.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Its encryption.
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Waits for bytes and appends them to `buffer`, about `limit` at most. 0: the end.
    ///
    /// # Errors
    /// When the connection broke, or nothing came in the socket's time.
    pub fn read_to(&self, buffer: &mut Vec<u8>, limit: usize) -> io::Result<usize> {
        let Some(session) = &self.session else {
            buffer.reserve(limit);
            return Ok(rustix::io::read(&self.socket, spare_capacity(buffer))?);
        };
        let mut room = limit;
        session.read(&self.socket, |chunk| {
            let count = chunk.len().min(room);
            room -= count;
            buffer.extend_from_slice(&chunk[..count]);
            count
        })
    }

    /// Sends so many bytes of a file, which nobody may change before the other end has read them:
    /// its pages themselves are on their way.
    ///
    /// # Errors
    /// When the file is shorter, or the connection broke.
    pub fn send_file(&self, mut file: &File, bytes: u64) -> io::Result<()> {
        let Some(session) = &self.session else { return self.send_pages(file, bytes) };
        let mut buffer = vec![0; PIECE_BYTES];
        let mut left = bytes;
        while left > 0 {
            let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let piece = &mut buffer[..most];
            file.read_exact(piece)?;
            let mut rest = &piece[..];
            while !rest.is_empty() {
                rest = &rest[session.write(&self.socket, rest)?..];
            }
            left -= most as u64;
        }
        Ok(())
    }

    /// The same without encryption: by the kernel alone, where it can. ([`io::copy`] never leaves
    /// it to that, and reads 8 KiB at a time.)
    fn send_pages(&self, file: &File, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(MOST_PAGES_BYTES);
            match rustix::fs::sendfile(&self.socket, file, None, most) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(sent) => left -= sent as u64,
                Err(Errno::INTR) => {}
                // The file system has no pages.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    let sent = io::copy(&mut file.take(left), &mut &self.socket)?;
                    let all = sent == left;
                    return if all { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Ends the connection, or one direction of it; who waits in it is woken.
    ///
    /// # Errors
    /// When the other end has done so before.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if let (Some(session), Shutdown::Write | Shutdown::Both) = (&self.session, how) {
            session.say_end(&self.socket);
        }
        self.socket.shutdown(how)
    }
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &self.session else { return self.socket().read(buffer) };
        let mut at = 0;
        session.read(&self.socket, |chunk| {
            let count = chunk.len().min(buffer.len() - at);
            buffer[at..at + count].copy_from_slice(&chunk[..count]);
            at += count;
            count
        })
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.session {
            None => self.socket().write(bytes),
            Some(session) => session.write(&self.socket, bytes),
        }
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.session {
            None => self.socket().write_vectored(pieces),
            Some(session) => session.write_vectored(&self.socket, pieces),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
