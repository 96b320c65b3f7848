//! Which way a connection takes by its ports, as this machine's routes have it, and which of
//! several ports are taken so that all ways carry something.
//!
//! Where several routes are as good, the kernel picks one by the ends of a connection, if
//! `net.ipv4.fib_multipath_hash_policy` is 1. What it would pick for a source port it tells.
//! Routers beyond pick by ports, too, and tell nobody: there it is left to the number of
//! connections.
//!
//! Kept true: nothing depends on what is found but how evenly ways are used.

use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, connect, getsockname, recv, send, socket_with};

/// For each connection so many ports are looked at, and so many in all.
const TRIES: usize = 8;
const MOST_TRIES: usize = 128;

/// The first step of a way: a device, and who is next there, if that is not the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    device: u32,
    next: Vec<u8>,
}

/// Of candidates whose ways are these: which `count` to take, so that each way gets as many as any
/// other, as far as there are candidates. The first ones first.
pub(crate) fn evenly<W: PartialEq>(ways: &[W], count: usize) -> Vec<usize> {
    let mut taken: Vec<usize> = Vec::new();
    while taken.len() < count.min(ways.len()) {
        let load = |at: &usize| taken.iter().filter(|t| ways[**t] == ways[*at]).count();
        let left = (0..ways.len()).filter(|at| !taken.contains(at));
        let Some(best) = left.min_by_key(load) else { break };
        taken.push(best);
    }
    taken
}

/// How many different ones there are.
pub(crate) fn distinct<W: PartialEq>(ways: &[W]) -> usize {
    ways.iter().enumerate().filter(|(at, way)| !ways[..*at].contains(way)).count()
}

/// Opens so many connections from an address here, over as many ways as there are. How many those
/// are, as far as this machine knows.
pub(crate) fn open(
    from: IpAddr,
    to: SocketAddr,
    count: usize,
    limit: Duration,
) -> io::Result<(Vec<TcpStream>, usize)> {
    let mut candidates = Vec::new();
    let mut ways: Vec<Option<Way>> = Vec::new();
    while candidates.len() < (count * TRIES).min(MOST_TRIES).max(count) {
        let socket = bound(from)?;
        let port = SocketAddr::try_from(getsockname(&socket)?)?.port();
        ways.push(way(SocketAddr::new(from, port), to).ok().flatten());
        candidates.push(Some(socket));
        // Where the kernel tells nothing, or there is one way, one port is as good as another.
        let enough = candidates.len() >= count;
        if enough
            && (ways.contains(&None) || (distinct(&ways) == 1 && candidates.len() >= 2 * count))
        {
            break;
        }
    }
    let taken = evenly(&ways, count);
    let used: Vec<&Option<Way>> = taken.iter().map(|at| &ways[*at]).collect();
    let used = distinct(&used);
    let mut open = Vec::new();
    for socket in taken.into_iter().filter_map(|at| candidates.get_mut(at)?.take()) {
        // A connect waits as long as a write does.
        socket.set_write_timeout(Some(limit))?;
        connect(&socket, &to)?;
        open.push(socket);
    }
    Ok((open, used))
}

/// The called one's side: so many connections that begin with the token. Others are let go.
pub(crate) fn accept(
    listener: &TcpListener,
    count: usize,
    token: &[u8],
    limit: Duration,
) -> io::Result<Vec<TcpStream>> {
    let (mut open, until) = (Vec::new(), Instant::now() + limit);
    while open.len() < count {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut wanted = [PollFd::new(listener, PollFlags::IN)];
        if left.is_zero() || poll(&mut wanted, Some(&wait))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let (mut socket, _) = listener.accept()?;
        socket.set_read_timeout(Some(left))?;
        let mut said = vec![0; token.len()];
        if socket.read_exact(&mut said).is_ok() && said == token {
            open.push(socket);
        }
    }
    Ok(open)
}

/// A socket that has its port.
fn bound(from: IpAddr) -> io::Result<TcpStream> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    Ok(TcpStream::from(socket))
}

const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
const ANSWER_BYTES: usize = 4096;
const TCP: u8 = libc::IPPROTO_TCP as u8;

/// The way of a TCP connection between these; none: the kernel does not know one.
fn way(from: SocketAddr, to: SocketAddr) -> io::Result<Option<Way>> {
    let flags = SocketFlags::CLOEXEC;
    // The first of its protocols is NETLINK_ROUTE.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, None)?;
    send(&socket, &question(from, to), SendFlags::empty())?;
    let mut answer = [0; ANSWER_BYTES];
    let (length, _) = recv(&socket, &mut answer, RecvFlags::empty())?;
    Ok(answer.get(..length).and_then(told))
}

/// `RTM_GETROUTE` of a connection.
fn question(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8;
    let width = if to.is_ipv4() { 32 } else { 128 };
    let mut body = vec![family, width, width];
    body.resize(ROUTE_BYTES, 0);
    let mut attribute = |kind: u16, value: &[u8]| {
        body.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
        body.extend_from_slice(&kind.to_ne_bytes());
        body.extend_from_slice(value);
        body.resize(body.len().next_multiple_of(4), 0);
    };
    attribute(libc::RTA_DST, &bytes(to.ip()));
    attribute(libc::RTA_SRC, &bytes(from.ip()));
    attribute(RTA_IP_PROTO, &[TCP]);
    attribute(RTA_SPORT, &from.port().to_be_bytes());
    attribute(RTA_DPORT, &to.port().to_be_bytes());
    let mut question = Vec::with_capacity(HEADER_BYTES + body.len());
    question.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    question.extend_from_slice(&libc::RTM_GETROUTE.to_ne_bytes());
    question.extend_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    question.extend_from_slice(&[0; 8]);
    question.extend_from_slice(&body);
    question
}

// Of <linux/rtnetlink.h>.
const RTA_IP_PROTO: u16 = 27;
const RTA_SPORT: u16 = 28;
const RTA_DPORT: u16 = 29;

/// What the kernel has answered.
fn told(answer: &[u8]) -> Option<Way> {
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    if half(4)? != libc::RTM_NEWROUTE {
        return None;
    }
    let (mut way, mut at) = (Way { device: 0, next: Vec::new() }, HEADER_BYTES + ROUTE_BYTES);
    while let (Some(length), Some(kind)) = (half(at), half(at + 2)) {
        let value = answer.get(at + 4..at + usize::from(length))?;
        match kind {
            libc::RTA_OIF => way.device = u32::from_ne_bytes(value.try_into().ok()?),
            libc::RTA_GATEWAY => way.next = value.to_vec(),
            _ => {}
        }
        // Each says at least its own length, or nothing is there.
        at += usize::from(length).next_multiple_of(4);
    }
    (way.device != 0).then_some(way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_get_as_many_as_there_are() {
        assert_eq!(evenly(&[1, 1, 1, 2, 2], 4), [0, 3, 1, 4]);
        assert_eq!(evenly(&[1, 1, 1, 2], 3), [0, 3, 1]);
        assert_eq!(evenly(&[5, 5], 4), [0, 1]);
        assert_eq!((distinct(&[3, 4, 3]), distinct::<u8>(&[])), (2, 0));
    }

    #[test]
    fn the_kernel_tells_the_way_of_a_connection() {
        let (from, to) = ("127.0.0.1:4000".parse().unwrap(), "127.0.0.1:5000".parse().unwrap());
        let found = way(from, to).unwrap().unwrap();
        assert!(found.device > 0 && found.next.is_empty(), "{found:?}");
    }

    #[test]
    fn answers_that_are_cut_are_no_ways() {
        let attribute = |kind: u16, value: &[u8]| {
            [&(value.len() as u16 + 4).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
        };
        let mut answer = vec![0; HEADER_BYTES + ROUTE_BYTES];
        answer[4..6].copy_from_slice(&libc::RTM_NEWROUTE.to_ne_bytes());
        answer.extend(attribute(libc::RTA_OIF, &7u32.to_ne_bytes()));
        answer.extend(attribute(libc::RTA_GATEWAY, &[10, 0, 0, 1]));
        assert_eq!(told(&answer), Some(Way { device: 7, next: vec![10, 0, 0, 1] }));
        for length in 0..HEADER_BYTES + ROUTE_BYTES + 8 {
            assert_eq!(told(&answer[..length]), None, "{length}");
        }
        let at = HEADER_BYTES + ROUTE_BYTES;
        answer[at..at + 2].copy_from_slice(&0u16.to_ne_bytes());
        assert_eq!(told(&answer), None);
    }

    #[test]
    fn connections_come_about_from_ports_of_their_own() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let (open, ways) = open(to.ip(), to, 3, Duration::from_secs(5)).unwrap();
        assert_eq!((open.len(), ways), (3, 1));
        assert!(open.iter().all(|socket| socket.peer_addr().unwrap() == to));
    }
}
