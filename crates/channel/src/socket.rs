//! Sockets of the library within the program's process: they do not block, have high numbers, and
//! are noted in the rank's control block, so that no image has them.
//!
//! Kept true: a socket is closed by whoever says so, never by a drop, because after a restore its
//! number may be another's.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::Ordering::{Relaxed, Release};

use eyrie_ledger::segment::{RankCtl, WIRE_SOCKETS};

/// The program's own descriptors keep the numbers that they would have without ours.
const HIGH_FD: i32 = 512;

/// A descriptor of ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Socket {
    fd: RawFd,
    /// Where it is noted.
    slot: usize,
}

/// The same descriptor under a high number, if there is one.
pub(crate) fn high(fd: RawFd) -> RawFd {
    // SAFETY: makes another number for a descriptor that is open, then closes the first one, which
    // is the caller's.
    unsafe {
        let high = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH_FD);
        if high < 0 {
            return fd;
        }
        libc::close(fd);
        high
    }
}

/// Number of the inode of a descriptor.
pub(crate) fn inode(fd: RawFd) -> Option<u32> {
    // SAFETY: the structure is as long as the call expects, and read only if it was filled.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &raw mut stat) == 0).then_some(stat)
    };
    u32::try_from(stat?.st_ino).ok()
}

impl Socket {
    /// Takes over a descriptor that is open and nobody else's. `None`, and closed, if there are too
    /// many.
    fn note(ctl: &RankCtl, fd: RawFd) -> Option<Socket> {
        let fd = high(fd);
        let free = (0..WIRE_SOCKETS).find(|s| ctl.wire_inodes[*s].load(Relaxed) == 0);
        let noted = free.zip(inode(fd));
        let Some((slot, inode)) = noted else {
            // SAFETY: the caller's, and no longer used.
            unsafe { libc::close(fd) };
            return None;
        };
        ctl.wire_inodes[slot].store(inode, Release);
        Some(Socket { fd, slot })
    }

    /// Sockets of an earlier process of the rank are not here.
    pub fn forget_all(ctl: &RankCtl) {
        ctl.wire_inodes.iter().for_each(|slot| slot.store(0, Relaxed));
    }

    /// Listens there.
    pub fn listen(ctl: &RankCtl, address: SocketAddr) -> Option<Socket> {
        let listener = std::net::TcpListener::bind(address).ok()?;
        listener.set_nonblocking(true).ok()?;
        Socket::note(ctl, listener.into_raw_fd())
    }

    /// Who calls, if anybody does. `Err`: the socket is not ours any more.
    pub fn accept(self, ctl: &RankCtl) -> io::Result<Option<Socket>> {
        let none = std::ptr::null_mut();
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: the address of the caller is not asked for.
        let fd = unsafe { libc::accept4(self.fd, none, none.cast(), flags) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            let gone = matches!(error.raw_os_error(), Some(libc::EBADF | libc::ENOTSOCK));
            return if gone { Err(error) } else { Ok(None) };
        }
        Ok(Socket::note(ctl, fd).inspect(|s| s.hurry()))
    }

    /// Begins to call there.
    pub fn call(ctl: &RankCtl, to: SocketAddr) -> Option<Socket> {
        let (family, address, length) = raw(to);
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: no memory is handed over.
        let fd = unsafe { libc::socket(family, kind, 0) };
        if fd < 0 {
            return None;
        }
        let socket = Socket::note(ctl, fd)?;
        socket.hurry();
        // SAFETY: an address of that length.
        let called = unsafe { libc::connect(socket.fd, (&raw const address).cast(), length) };
        let error = io::Error::last_os_error();
        if called < 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
            socket.close(ctl);
            return None;
        }
        Some(socket)
    }

    /// What is small goes at once.
    fn hurry(&self) {
        let one: libc::c_int = 1;
        let size = size_of_val(&one) as libc::socklen_t;
        let value = (&raw const one).cast();
        // SAFETY: an int, as the option takes. If it is refused it is only slower.
        unsafe { libc::setsockopt(self.fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, value, size) };
    }

    /// Writes what it takes of the pieces, of which there are 64 at most. 0: nothing just now.
    ///
    /// # Safety
    /// All must be valid for reading as far as they say.
    pub unsafe fn write(self, pieces: &[(*const u8, usize)]) -> io::Result<usize> {
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 64];
        for (vector, (at, length)) in vectors.iter_mut().zip(pieces) {
            *vector = libc::iovec { iov_base: at.cast_mut().cast(), iov_len: *length };
        }
        // SAFETY: a header of zeros is an empty one.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), pieces.len().min(64));
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the caller's promise for the pieces.
        done(unsafe { libc::sendmsg(self.fd, &raw const message, flags) })
    }

    /// Reads to `buffer`. `Some(0)`: the end; `None`: nothing just now.
    pub fn read(self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let (at, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: as long as stated.
        let got = unsafe { libc::recv(self.fd, at, length, libc::MSG_DONTWAIT) };
        if got == 0 {
            return Ok(Some(0));
        }
        Ok(Some(done(got)?).filter(|got| *got > 0))
    }

    /// Closes it, and nobody has to leave it out of an image any more.
    pub fn close(self, ctl: &RankCtl) {
        // SAFETY: ours, and not used again: there is one owner of each.
        unsafe { libc::close(self.fd) };
        ctl.wire_inodes[self.slot].store(0, Release);
    }
}

/// What a system call came to; 0 if it would have to wait, or was interrupted.
fn done(result: isize) -> io::Result<usize> {
    if result >= 0 {
        return Ok(result as usize);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
        // A connection that is being made.
        _ if error.raw_os_error() == Some(libc::ENOTCONN) => Ok(0),
        _ => Err(error),
    }
}

/// An address as the system takes it: its family, itself, and its length.
fn raw(address: SocketAddr) -> (libc::c_int, libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeros are a valid address of no family.
    let mut out: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let at = &raw mut out;
    match address {
        SocketAddr::V4(v4) => {
            let own = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than any address, and aligned for each.
            unsafe { at.cast::<libc::sockaddr_in>().write(own) };
            (libc::AF_INET, out, size_of_val(&own) as libc::socklen_t)
        }
        SocketAddr::V6(v6) => {
            let own = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { at.cast::<libc::sockaddr_in6>().write(own) };
            (libc::AF_INET6, out, size_of_val(&own) as libc::socklen_t)
        }
    }
}
