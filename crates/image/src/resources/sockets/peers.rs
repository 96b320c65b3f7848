//! Where the other end of a TCP connection is: with one of the processes that are looked at, or
//! with nobody yet, as one of them listens and has not accepted it. That passes.

use crate::error::CaptureError;
use crate::kernel::remote_descriptors::RemoteDescriptors;
use crate::resources::open::Open;
use crate::resources::sockets::inet::{self, Ends};
use crate::resources::sockets::{self, option};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

/// The other end of a connection, borrowed.
pub fn find(
    this: &Open,
    all: &[Open],
    fd: &OwnedFd,
) -> Result<Option<(u64, OwnedFd)>, CaptureError> {
    let Some(wanted) = Ends::of(fd).map(Ends::turned) else { return Ok(None) };
    for other in all.iter().filter(|o| o.is_socket() && !o.same_file(this)) {
        let fd = RemoteDescriptors::new(other.pid)?.borrow(other.fd)?;
        if Ends::of(&fd).as_ref() == Some(&wanted) {
            return Ok(Some((other.inode(), fd)));
        }
    }
    Ok(None)
}

/// Whether one of these listens where a connection leads, and has some that are not accepted.
pub fn is_queued(fd: &OwnedFd, all: &[Open]) -> Result<bool, CaptureError> {
    let Some(ends) = Ends::of(fd) else { return Ok(false) };
    for other in all.iter().filter(|o| o.is_socket()) {
        let fd = RemoteDescriptors::new(other.pid)?.borrow(other.fd)?;
        if has_waiting(&fd, &ends) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a socket listens where the other end of a connection is.
fn has_waiting(fd: &OwnedFd, ends: &Ends) -> bool {
    let ((ip, port), network) = ends.peer();
    let own = inet::plain(&sockets::address(fd, libc::getsockname));
    let is_it = |(own, here): (IpAddr, u16)| here == port && (own == ip || own.is_unspecified());
    if !own.is_some_and(is_it) {
        return false;
    }
    let info = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).unwrap_or_default();
    let at = inet::WAITING_OFFSET;
    let waiting = info.get(at..at + 4).is_some_and(|bytes| bytes != [0; 4]);
    let same = || option(fd, libc::SOL_SOCKET, inet::SO_NETNS_COOKIE).unwrap_or_default();
    waiting && info.first() == Some(&inet::LISTEN) && same() == network
}
