//! Unix sockets: connected pairs both of whose ends are in the image, or one of whose ends is
//! closed; sockets that listen under a name; those that receive datagrams under one.
//!
//! What was received and not read is copied by peeking. At restore it is sent again by the other
//! end of the new pair, which may be one that nobody holds any more.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::procfs;
use crate::kernel::remote_descriptors;
use crate::kernel::sockdiag::{self, UnixInfo};
use crate::resources::open::{Open, cannot, refused, refused_now};
use crate::resources::sockets::connections::Connections;
use crate::resources::sockets::{self, option, peek, set_option};
use eyrie_image_format::state::resources::{Message, Socket};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a `sockaddr` before the name, and of the longest one.
const FAMILY_BYTES: usize = 2;
const MAX_NAME_BYTES: usize = 110;
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
    // One that receives datagrams counts as connected as soon as anybody is connected to it.
    let stream = socket.kind != libc::SOCK_DGRAM as u32;
    let paired =
        (stream && info.state == ESTABLISHED) || info.peer != 0 || !socket.peer_name.is_empty();
    if info.state == LISTEN {
        return listening(this, socket, &info);
    }
    socket.connected = paired;
    if !socket.connected {
        return unconnected(this, fd, socket);
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

/// One that listens.
fn listening(this: &Open, socket: &mut Socket, info: &UnixInfo) -> Result<bool, CaptureError> {
    if info.queue > 0 {
        let what = format!(
            "a Unix socket listening on {} with connections that the program has not accepted yet; \
             try again when it has",
            shown(&socket.name)
        );
        return Err(refused_now(this, what));
    }
    socket.listens = Some(info.limit);
    socket.name = absolute(this, &socket.name)?;
    Ok(true)
}

/// One that is connected to nobody: with a name or without.
fn unconnected(this: &Open, fd: &OwnedFd, socket: &mut Socket) -> Result<bool, CaptureError> {
    socket.name = absolute(this, &socket.name)?;
    if socket.kind != libc::SOCK_STREAM as u32 && socket.name.len() > FAMILY_BYTES {
        socket.received = received(this, fd, socket.kind as i32)?;
    }
    Ok(true)
}

/// An address without the zeros behind it, for messages.
pub fn shown(name: &[u8]) -> String {
    let path = name.get(FAMILY_BYTES..).unwrap_or_default();
    if path.is_empty() {
        return String::from("a Unix socket without a name");
    }
    match path.strip_prefix(&[0]) {
        Some(name) => format!("@{}", String::from_utf8_lossy(name)),
        None => String::from_utf8_lossy(path).trim_end_matches('\0').to_owned(),
    }
}

/// Path of an address in the file system.
fn path(name: &[u8]) -> Option<PathBuf> {
    let path = name.get(FAMILY_BYTES..)?.split(|&b| b == 0).next()?;
    (!path.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(path)))
}

/// An address whose path does not depend on the working folder.
fn absolute(this: &Open, name: &[u8]) -> Result<Vec<u8>, CaptureError> {
    let Some(path) = path(name).filter(|path| path.is_relative()) else { return Ok(name.to_vec()) };
    let folder = procfs::link(this.pid, "cwd")?;
    let path = PathBuf::from(OsStr::from_bytes(&folder)).join(path);
    let new = [&name[..FAMILY_BYTES], path.as_os_str().as_bytes(), &[0]].concat();
    if new.len() > MAX_NAME_BYTES {
        let what = format!("a Unix socket with a path that is too long, {}", path.display());
        return Err(refused(this, what));
    }
    Ok(new)
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
    refused_now(this, what.into())
}

fn stream(this: &Open, fd: &OwnedFd) -> Result<Vec<Message>, CaptureError> {
    let failed = || sockets::failed("copy what a socket has received");
    let bytes = remote_descriptors::ioctl::<i32>(fd, libc::FIONREAD).map_err(failed())? as usize;
    if bytes > MAX_FLIGHT_BYTES {
        return Err(refused_now(this, format!("a Unix socket with {bytes} bytes in flight")));
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
            // The end is told as an empty message, as often as it is asked for.
            if data.is_empty() && is_over(fd, bytes) {
                return Ok(all);
            }
            if flags & libc::MSG_CTRUNC != 0 {
                return Err(carries(this));
            }
            bytes += data.len();
            if bytes > MAX_FLIGHT_BYTES {
                let what = format!("a Unix socket with {bytes} bytes in flight");
                return Err(refused_now(this, what));
            }
            if flags & libc::MSG_TRUNC != 0 {
                room *= 2;
                continue 'again;
            }
            let from = if from.len() > FAMILY_BYTES { from } else { vec![] };
            all.push(Message { data, from });
        }
    }
}

/// Whether nothing comes any more to a socket of which so many bytes are known. An empty message
/// that is the last one is nothing then: whoever reads it sees the same.
fn is_over(fd: &OwnedFd, known: usize) -> bool {
    let over = libc::POLLRDHUP | libc::POLLHUP;
    let there = remote_descriptors::ioctl::<i32>(fd, libc::FIONREAD).unwrap_or_default();
    remote_descriptors::poll(fd, libc::POLLIN | over) & over != 0 && there as usize <= known
}

/// Makes the socket of a description, and with it the other end.
pub fn restore(connections: &mut Connections, socket: &Socket) -> Result<OwnedFd, RestoreError> {
    let fail = |e| cannot(sockets::AGAIN, e);
    if !socket.connected {
        let fd = named(socket)
            .map_err(|e| fail(io::Error::new(e.kind(), format!("{}: {e}", shown(&socket.name)))))?;
        if socket.listens.is_some() {
            connections.listeners.push((socket.name.clone(), fd.try_clone().map_err(fail)?));
        }
        sockets::set_options(&fd, &socket.options);
        return Ok(fd);
    }
    let ends = match connections.ends.remove(&socket.id) {
        Some(ends) => ends,
        None => {
            let (own, other) = connected(connections, socket).map_err(fail)?;
            let (again, mine) = (other.try_clone().map_err(fail)?, own.try_clone().map_err(fail)?);
            if socket.peer != 0 {
                connections.ends.insert(socket.peer, Ends { own: again, other: mine });
            }
            Ends { own, other }
        }
    };
    for message in &socket.received {
        send(ends.other.as_raw_fd(), &message.data).map_err(fail)?;
    }
    connections.made.push((ends.own.try_clone().map_err(fail)?, socket.clone()));
    Ok(ends.own)
}

/// A socket that is connected to nobody, under its name, with what it had received.
fn named(socket: &Socket) -> io::Result<OwnedFd> {
    let fd = new(socket)?;
    if socket.name.len() <= FAMILY_BYTES {
        return Ok(fd);
    }
    if let Some(path) = path(&socket.name) {
        make_room(&path, socket)?;
    }
    // SAFETY: a live address with its length.
    let r = unsafe {
        let name = &socket.name;
        libc::bind(fd.as_raw_fd(), name.as_ptr().cast(), name.len() as u32)
    };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(backlog) = socket.listens {
        // SAFETY: a socket of ours.
        if unsafe { libc::listen(fd.as_raw_fd(), backlog as i32) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    if !socket.received.is_empty() {
        let sender = new(socket)?;
        connect(&sender, &socket.name)?;
        for message in &socket.received {
            send(sender.as_raw_fd(), &message.data)?;
        }
    }
    Ok(fd)
}

/// Takes away what the killed process has left at a path: a socket that nobody serves.
fn make_room(path: &Path, socket: &Socket) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => {}
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => return Ok(()),
    }
    match connect(&new(socket)?, &socket.name) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

fn new(socket: &Socket) -> io::Result<OwnedFd> {
    let kind = socket.kind as i32 | libc::SOCK_CLOEXEC;
    // SAFETY: numbers only.
    remote_descriptors::made(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }.into())
}

fn connect(fd: &OwnedFd, name: &[u8]) -> io::Result<()> {
    // SAFETY: a live address with its length.
    let r = unsafe { libc::connect(fd.as_raw_fd(), name.as_ptr().cast(), name.len() as u32) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Two connected sockets: through the one that listens under the name of one of them, so that the
/// names are right, or else without names.
fn connected(connections: &Connections, socket: &Socket) -> io::Result<(OwnedFd, OwnedFd)> {
    let through = |name: &[u8]| -> Option<io::Result<(OwnedFd, OwnedFd)>> {
        let serves = |at: &[u8]| match (path(at), path(name)) {
            (Some(at), Some(name)) => at.ends_with(name),
            _ => at == name,
        };
        let known = |l: &&(Vec<u8>, OwnedFd)| name.len() > FAMILY_BYTES && serves(&l.0);
        let (at, listener) = connections.listeners.iter().find(known)?;
        Some(new(socket).and_then(|near| {
            connect(&near, at)?;
            // SAFETY: a query.
            let own = unsafe { libc::getpid() };
            let far = sockets::accept(listener, |far| caller(far) == Some(own))?;
            enlarge(&near);
            enlarge(&far);
            Ok((near, far))
        }))
    };
    if let Some(made) = through(&socket.peer_name) {
        return made;
    }
    match through(&socket.name) {
        Some(made) => made.map(|(near, far)| (far, near)),
        None => pair(socket.kind as i32),
    }
}

/// Who has called a socket.
fn caller(fd: &OwnedFd) -> Option<libc::pid_t> {
    let who = option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED).ok()?;
    who.first_chunk().map(|pid| libc::pid_t::from_le_bytes(*pid))
}

/// Room for what was in flight; the sizes they had come last. Without privileges the kernel's limit
/// for users stays, which held for the old ones too.
fn enlarge(fd: &OwnedFd) {
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &ROOM_BYTES.to_le_bytes());
    let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &ROOM_BYTES.to_le_bytes());
}

/// A socket being restored, and the one that it is connected to.
pub struct Ends {
    /// It.
    pub own: OwnedFd,
    /// The other one.
    pub other: OwnedFd,
}

fn pair(kind: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: fills a live array.
    let r =
        unsafe { libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()) };
    if r != 0 {
        return Err(io::Error::last_os_error());
    }
    let ends =
        (remote_descriptors::made(ends[0].into())?, remote_descriptors::made(ends[1].into())?);
    enlarge(&ends.0);
    enlarge(&ends.1);
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
