//! Unix sockets: connected pairs both of whose ends are in the image, or one of whose ends is
//! closed.
//!
//! What was received and not read is copied by peeking. At restore it is sent again by the other
//! end of the new pair, which may be one that nobody holds any more.

use crate::descriptors::{Open, refused};
use crate::error::{CaptureError, RestoreError};
use crate::lend;
use crate::reopen::{Reopener, cannot};
use crate::sockdiag;
use crate::sockets::{self, option, peek, set_option};
use crate::state::{Description, Message, Socket};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
/// Room for one message, in bytes; it grows where that is not enough.
const FIRST_ROOM_BYTES: usize = 256 << 10;
/// Most bytes in flight in one socket.
const MAX_FLIGHT_BYTES: usize = 32 << 20;
/// Size of the buffers of new sockets while they are filled.
const ROOM_BYTES: i32 = 64 << 20;
/// What is set for the time of looking: (option, value while we look).
const QUIET: [(i32, i32); 2] = [(libc::SO_PASSCRED, 0), (libc::SO_PEEK_OFF, -1)];

/// Completes what is known about a Unix socket; tells whether it can be made again.
pub fn capture(
    this: &Open,
    all: &[Open],
    fd: &OwnedFd,
    socket: &mut Socket,
) -> Result<bool, CaptureError> {
    let info = sockdiag::unix(this.inode()).map_err(|e| {
        refused(this, format!("a Unix socket about which the kernel tells nothing ({e})"))
    })?;
    socket.peer = u64::from(info.peer);
    socket.shut = u32::from(info.shut);
    socket.name = sockets::address(fd, libc::getsockname);
    socket.peer_name = sockets::address(fd, libc::getpeername);
    let paired = info.state == ESTABLISHED || info.peer != 0 || !socket.peer_name.is_empty();
    if info.state == LISTEN {
        return Err(refused(this, format!("a listening Unix socket ({})", this.shown())));
    }
    let hung = lend::poll(fd, 0) & libc::POLLHUP != 0;
    socket.connected = paired || hung;
    if !socket.connected {
        return fresh(this, socket);
    }
    if socket.peer == 0 {
        // The other end is closed. As a standard stream it is given anew all the same.
        if this.is_handed_over(all) {
            return Ok(false);
        }
    } else if !all.iter().any(|o| o.is_socket() && o.inode() == socket.peer) {
        return Ok(false);
    } else if !sockdiag::unix(socket.peer).is_ok_and(|p| u64::from(p.peer) == socket.id) {
        return Err(refused(this, "a Unix socket connected to one that is not to it".into()));
    }
    socket.received = received(this, fd, socket.kind as i32)?;
    Ok(true)
}

/// A socket that was made and not used yet.
fn fresh(this: &Open, socket: &Socket) -> Result<bool, CaptureError> {
    if socket.name.len() <= 2 {
        return Ok(true);
    }
    Err(refused(this, format!("a Unix socket with a name ({})", this.shown())))
}

/// Copies what was received and not read.
fn received(this: &Open, fd: &OwnedFd, kind: i32) -> Result<Vec<Message>, CaptureError> {
    let mut before = Vec::new();
    for (name, quiet) in QUIET {
        let value = option(fd, libc::SOL_SOCKET, name).unwrap_or_default();
        if !value.is_empty() && value != quiet.to_le_bytes() {
            before.push((name, value));
            let _ = set_option(fd, libc::SOL_SOCKET, name, &quiet.to_le_bytes());
        }
    }
    let result = match kind {
        libc::SOCK_STREAM => stream(this, fd),
        _ => messages(this, fd),
    };
    if kind != libc::SOCK_STREAM {
        let none = (-1i32).to_le_bytes();
        let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &none);
    }
    for (name, value) in before {
        set_option(fd, libc::SOL_SOCKET, name, &value)
            .map_err(sockets::failed("put back an option of a socket"))?;
    }
    result
}

fn carries(this: &Open) -> CaptureError {
    let what = "a Unix socket with file descriptors in flight: wait until the program has received \
                them";
    refused(this, what.into())
}

fn stream(this: &Open, fd: &OwnedFd) -> Result<Vec<Message>, CaptureError> {
    let failed = || sockets::failed("copy what a socket has received");
    let bytes = lend::ioctl::<i32>(fd, libc::FIONREAD).map_err(failed())? as usize;
    if bytes > MAX_FLIGHT_BYTES {
        return Err(refused(this, format!("a Unix socket with {bytes} bytes in flight")));
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let (data, _, flags) = peek(fd, bytes + 1).map_err(failed())?;
    if flags & libc::MSG_CTRUNC != 0 || data.len() != bytes {
        return Err(carries(this));
    }
    Ok(vec![Message { data, from: vec![] }])
}

fn messages(this: &Open, fd: &OwnedFd) -> Result<Vec<Message>, CaptureError> {
    let failed = || sockets::failed("copy what a socket has received");
    let mut room = FIRST_ROOM_BYTES;
    'again: loop {
        let start = 0i32.to_le_bytes();
        set_option(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &start).map_err(failed())?;
        let (mut all, mut bytes) = (Vec::new(), 0);
        loop {
            let (data, from, flags) = match peek(fd, room) {
                Ok(next) => next,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(all),
                // The other end is closed and nothing is left.
                Err(e) if e.raw_os_error() == Some(libc::ECONNRESET) => return Ok(all),
                Err(e) => return Err(failed()(e)),
            };
            if data.is_empty() && lend::poll(fd, libc::POLLIN) & libc::POLLRDHUP != 0 {
                return Ok(all);
            }
            if flags & libc::MSG_CTRUNC != 0 {
                return Err(carries(this));
            }
            bytes += data.len();
            if bytes > MAX_FLIGHT_BYTES {
                return Err(refused(this, format!("a Unix socket with {bytes} bytes in flight")));
            }
            if flags & libc::MSG_TRUNC != 0 {
                room *= 2;
                continue 'again;
            }
            let from = if from.len() > 2 { from } else { vec![] };
            all.push(Message { data, from });
        }
    }
}

/// Makes the socket of a description, and with it the other end.
pub fn restore(
    reopener: &mut Reopener<'_>,
    description: &Description,
    socket: &Socket,
) -> Result<OwnedFd, RestoreError> {
    let fail = |e| cannot(description, e);
    let kind = socket.kind as i32;
    if !socket.connected {
        // SAFETY: numbers only.
        let fd = unsafe { libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0) };
        let fd = lend::made(fd.into()).map_err(fail)?;
        sockets::set_options(&fd, &socket.options);
        return Ok(fd);
    }
    let ends = match reopener.sockets.remove(&socket.id) {
        Some(ends) => ends,
        None => {
            let (own, other) = pair(kind).map_err(fail)?;
            let (again, mine) = (other.try_clone().map_err(fail)?, own.try_clone().map_err(fail)?);
            if socket.peer != 0 {
                reopener.sockets.insert(socket.peer, Ends { own: again, other: mine });
            }
            Ends { own, other }
        }
    };
    for message in &socket.received {
        send(ends.other.as_raw_fd(), &message.data).map_err(fail)?;
    }
    reopener.sockets_made.push((ends.own.try_clone().map_err(fail)?, socket.clone()));
    Ok(ends.own)
}

/// A socket being restored, and the one that it is connected to.
pub struct Ends {
    own: OwnedFd,
    other: OwnedFd,
}

fn pair(kind: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: fills a live array.
    let r =
        unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    let ends = (lend::made(ends[0].into())?, lend::made(ends[1].into())?);
    for end in [&ends.0, &ends.1] {
        // Room for what was in flight; the sizes they had come last. Without privileges the
        // kernel's limit for users stays, which held for the old ones too.
        let _ = set_option(end, libc::SOL_SOCKET, libc::SO_SNDBUF, &ROOM_BYTES.to_le_bytes());
        let _ = set_option(end, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &ROOM_BYTES.to_le_bytes());
    }
    Ok(ends)
}

fn send(fd: RawFd, data: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let mut sent = 0;
    loop {
        // SAFETY: reads live bytes.
        let n = unsafe { libc::send(fd, data[sent..].as_ptr().cast(), data.len() - sent, flags) };
        sent += usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        if sent >= data.len() {
            return Ok(());
        }
    }
}

/// Gives a socket its options and shuts what was shut, when all that was in flight is in it.
pub fn settle(fd: &OwnedFd, socket: &Socket) {
    sockets::set_options(fd, &socket.options);
    let how = match socket.shut & 3 {
        1 => libc::SHUT_RD,
        2 => libc::SHUT_WR,
        3 if socket.peer != 0 => libc::SHUT_RDWR,
        _ => return,
    };
    // SAFETY: a socket of ours.
    unsafe { libc::shutdown(fd.as_raw_fd(), how) };
}
