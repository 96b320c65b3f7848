//! What the kernel tells about a Unix socket by its number (`NETLINK_SOCK_DIAG`).

use crate::kernel::remote_descriptors;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SHOW_PEER: u32 = 4;
const SHOW_QUEUE: u32 = 16;
const ATTR_PEER: u16 = 2;
const ATTR_QUEUE: u16 = 4;
const ATTR_SHUTDOWN: u16 = 6;
const HEADER_BYTES: usize = 16;
const MESSAGE_BYTES: usize = 16;

/// What it tells.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UnixInfo {
    /// `TCP_*` state, which Unix sockets use too.
    pub state: u8,
    /// Inode number of the socket that it is connected to.
    pub peer: u32,
    /// Bytes to read; for one that listens, connections to accept.
    pub queue: u32,
    /// Bytes not read by the peer; for one that listens, the longest queue.
    pub limit: u32,
    /// Which directions were shut.
    pub shut: u8,
}

/// Asks about the socket with inode number `ino`.
pub fn unix(ino: u64) -> io::Result<UnixInfo> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: numbers only.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
    let fd = remote_descriptors::made(fd.into())?;
    let mut request = Vec::new();
    request.extend_from_slice(&40u32.to_le_bytes());
    request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_le_bytes());
    request.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_le_bytes());
    request.extend_from_slice(&[0; 8]);
    // struct unix_diag_req: family, protocol, pad, states, inode, what to show, cookie.
    request.extend_from_slice(&(libc::AF_UNIX as u32).to_le_bytes());
    request.extend_from_slice(&(!0u32).to_le_bytes());
    request.extend_from_slice(&(ino as u32).to_le_bytes());
    request.extend_from_slice(&(SHOW_PEER | SHOW_QUEUE).to_le_bytes());
    request.extend_from_slice(&[0xff; 8]);
    let answer = exchange(&fd, &request)?;
    parse(&answer)
}

fn exchange(fd: &OwnedFd, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; 8192];
    // SAFETY: live buffers with their lengths.
    let n = unsafe {
        let fd = fd.as_raw_fd();
        if libc::send(fd, request.as_ptr().cast(), request.len(), 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::recv(fd, answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    answer.truncate(usize::try_from(n).map_err(|_| io::Error::last_os_error())?);
    Ok(answer)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn parse(answer: &[u8]) -> io::Result<UnixInfo> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    if half(answer, 4) == Some(libc::NLMSG_ERROR as u16) {
        let error = word(answer, HEADER_BYTES).ok_or_else(bad)? as i32;
        return Err(io::Error::from_raw_os_error(-error));
    }
    let state = *answer.get(HEADER_BYTES + 2).ok_or_else(bad)?;
    let mut info = UnixInfo { state, ..UnixInfo::default() };
    let mut rest = answer.get(HEADER_BYTES + MESSAGE_BYTES..).ok_or_else(bad)?;
    while let (Some(bytes), Some(kind)) = (half(rest, 0), half(rest, 2)) {
        let bytes = usize::from(bytes);
        let value = rest.get(4..bytes).ok_or_else(bad)?;
        match kind {
            ATTR_PEER => info.peer = word(value, 0).ok_or_else(bad)?,
            ATTR_QUEUE => {
                info.queue = word(value, 0).ok_or_else(bad)?;
                info.limit = word(value, 4).ok_or_else(bad)?;
            }
            ATTR_SHUTDOWN => info.shut = *value.first().ok_or_else(bad)?,
            _ => {}
        }
        rest = rest.get(bytes.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_pair_names_its_peer() {
        let (a, b) = UnixStream::pair().unwrap();
        let ino = |s: &UnixStream| {
            let path = format!("/proc/self/fd/{}", s.as_raw_fd());
            std::fs::metadata(path).unwrap().ino()
        };
        let (a_ino, b_ino) = (ino(&a), ino(&b));
        assert_eq!(u64::from(unix(a_ino).unwrap().peer), b_ino);
        drop(b);
        // What another test forks has it open, too, until its exec.
        while unix(a_ino).unwrap().peer != 0 {
            std::thread::yield_now();
        }
        assert!(unix(b_ino).is_err());
    }
}
