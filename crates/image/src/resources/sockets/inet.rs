//! TCP and UDP sockets.
//!
//! A connection both of whose ends are in the image is made anew: connected and accepted once more
//! under the same addresses, and what was in flight is sent again. That takes no privileges, and
//! sequence numbers are nothing that a program can see. What the sender still held back is waited
//! for, or, where the reader does not make room for it, read with `TCP_REPAIR`, which does take
//! `CAP_NET_ADMIN`. Sockets that listen do so again. `SO_REUSEADDR` is switched on for all of them.
//! A connection to anybody else is refused: to them it ends with this process. Datagrams in flight
//! are dropped, as the network may do with them.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::remote_descriptors::{self, ioctl};
use crate::resources::open::{Open, cannot, refused, refused_now};
use crate::resources::sockets::connections::Connections;
use crate::resources::sockets::taken_port::bind_caller;
use crate::resources::sockets::{self, option, peek, peers, set_option};
use eyrie_image_format::state::resources::{Message, Socket, SocketOption};
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// `tcpi_state`, and where it lies in `struct tcp_info`.
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
const CLOSED: u8 = 7;
/// The other end is closed.
const CLOSE_WAIT: u8 = 8;
pub(super) const LISTEN: u8 = 10;
/// States in which this side has shut its direction.
const SHUT_STATES: [u8; 5] = [4, 5, 6, 9, 11];
pub(super) const WAITING_OFFSET: usize = 24;
const BACKLOG_OFFSET: usize = 28;
const SIOCOUTQ: u64 = 0x5411;
const SIOCINQ: u64 = 0x541b;
const REPAIR_OFF_SILENTLY: i32 = -1;
const RECEIVE_QUEUE: i32 = 1;
const SEND_QUEUE: i32 = 2;
/// How long is waited for data to arrive that is on its way, at all sockets that are looked at
/// together.
const ARRIVAL_LIMIT: Duration = Duration::from_millis(100);
/// The same for other nodes, which confirm it up to 200 ms late.
const FAR_ARRIVAL_LIMIT: Duration = Duration::from_millis(300);
/// How long making a connection again may take (an old one of the same addresses may have to fade).
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
const MAX_FLIGHT_BYTES: usize = 32 << 20;
const ROOM_BYTES: i32 = 64 << 20;
const SO_BUF_LOCK: i32 = 72;
pub(super) const SO_NETNS_COOKIE: i32 = 71;

/// How long data may still take to arrive: the time begins with the first that is waited for.
pub struct Patience {
    limit: Duration,
    end: Cell<Option<Instant>>,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { limit: ARRIVAL_LIMIT, end: Cell::default() }
    }
}

impl Patience {
    /// For data that is on its way to another node.
    pub fn far() -> Patience {
        Patience { limit: FAR_ARRIVAL_LIMIT, end: Cell::default() }
    }

    fn end(&self) -> Instant {
        let end = self.end.get().unwrap_or_else(|| Instant::now() + self.limit);
        self.end.set(Some(end));
        end
    }
}

/// An address of a socket, for messages.
pub fn shown(name: &[u8]) -> String {
    match parts(name) {
        Some((ip, port)) => std::net::SocketAddr::new(ip, port).to_string(),
        None => "no address".into(),
    }
}

/// IP address and port of a `sockaddr`.
fn parts(name: &[u8]) -> Option<(IpAddr, u16)> {
    let port = u16::from_be_bytes(name.get(2..4)?.try_into().ok()?);
    match i32::from(u16::from_le_bytes(name.get(..2)?.try_into().ok()?)) {
        libc::AF_INET => Some((<[u8; 4]>::try_from(name.get(4..8)?).ok()?.into(), port)),
        libc::AF_INET6 => Some((<[u8; 16]>::try_from(name.get(8..24)?).ok()?.into(), port)),
        _ => None,
    }
}

/// An address as one of TCP, if it is one.
pub fn socket_address(name: &[u8]) -> Option<SocketAddr> {
    plain(name).map(SocketAddr::from)
}

/// The same kind of address for another place, if it can be one for that.
pub fn moved(name: &[u8], to: SocketAddr) -> Option<Vec<u8>> {
    let (from, _) = plain(name)?;
    let new = rewritten(name, &[(from, to.ip())]);
    (socket_address(&new) == Some(to)).then_some(new)
}

/// Whether this node has an IP address.
pub fn is_here(ip: IpAddr) -> bool {
    std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// The same address on this node, by the caller's rule.
fn rewritten(name: &[u8], rule: &[(IpAddr, IpAddr)]) -> Vec<u8> {
    let mut new = name.to_vec();
    let Some((ip, _)) = parts(name) else { return new };
    match rule.iter().find(|(from, _)| *from == ip).map(|(_, to)| to) {
        Some(IpAddr::V4(to)) if ip.is_ipv4() => new[4..8].copy_from_slice(&to.octets()),
        Some(IpAddr::V6(to)) if ip.is_ipv6() => new[8..24].copy_from_slice(&to.octets()),
        _ => {}
    }
    // An IPv4 address in a socket for both kinds.
    if let (IpAddr::V6(_), IpAddr::V4(mapped)) = (ip, ip.to_canonical())
        && let Some((_, IpAddr::V4(to))) = rule.iter().find(|(from, _)| *from == mapped)
    {
        new[20..24].copy_from_slice(&to.octets());
    }
    new
}

/// Completes what is known about a TCP or UDP socket; tells whether it can be made again.
pub fn capture(
    this: &Open,
    all: &[Open],
    fd: &OwnedFd,
    patience: &Patience,
    socket: &mut Socket,
) -> Result<bool, CaptureError> {
    socket.name = sockets::address(fd, libc::getsockname);
    socket.peer_name = sockets::address(fd, libc::getpeername);
    if socket.kind == libc::SOCK_DGRAM as u32 {
        socket.connected = !socket.peer_name.is_empty();
        return Ok(!this.is_handed_over(all));
    }
    if socket.kind != libc::SOCK_STREAM as u32 || socket.protocol != libc::IPPROTO_TCP as u32 {
        return Err(refused(this, format!("a raw or unusual socket ({})", shown(&socket.name))));
    }
    let failed = || sockets::failed("look into a TCP socket");
    // Without it nobody gets its address as long as the connection fades after a kill. It changes
    // nothing else for the program.
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_le_bytes()).map_err(failed())?;
    let info = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).map_err(failed())?;
    let word = |at: usize| {
        info.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    match info.first().copied().unwrap_or(CLOSED) {
        LISTEN if word(WAITING_OFFSET) > 0 => {
            let what = format!(
                "a TCP socket listening on {} with connections that the program has not accepted \
                 yet; try again when it has",
                shown(&socket.name)
            );
            Err(refused_now(this, what))
        }
        LISTEN => {
            socket.listens = Some(word(BACKLOG_OFFSET));
            Ok(true)
        }
        CLOSED => Ok(true),
        SYN_SENT | SYN_RECEIVED => {
            let what = format!("a TCP socket that is connecting to {}", shown(&socket.peer_name));
            Err(refused_now(this, format!("{what}; try again when it is connected")))
        }
        state => {
            socket.shut = if SHUT_STATES.contains(&state) { 2 } else { 0 };
            let ending = state == CLOSE_WAIT;
            connected(this, all, fd, patience, socket).map_err(|e| match e {
                // The program closes it as soon as it looks.
                CaptureError::Descriptor { .. } if ending => e.for_now(),
                e => e,
            })
        }
    }
}

fn connected(
    this: &Open,
    all: &[Open],
    fd: &OwnedFd,
    patience: &Patience,
    socket: &mut Socket,
) -> Result<bool, CaptureError> {
    let (name, peer_name) = (socket.name.clone(), socket.peer_name.clone());
    let Some((peer, other)) = peers::find(this, all, fd)? else {
        if this.is_handed_over(all) {
            return Ok(false);
        }
        let (here, there) = (shown(&name), shown(&peer_name));
        if peers::is_queued(fd, all)? {
            let what = "whose other end the program has not accepted yet; try again when it has";
            return Err(refused_now(this, format!("a TCP socket ({here} to {there}) {what}")));
        }
        let what = format!(
            "a TCP socket ({here} to {there}) whose other end is in no process that is \
             checkpointed with this one; close it before a checkpoint"
        );
        return Err(refused(this, what));
    };
    socket.connected = true;
    socket.peer = peer;
    let arrived = wait_for_arrival(&other, fd, patience)
        .map_err(sockets::failed("look into a TCP socket"))?;
    let data = if arrived { received(this, fd)? } else { in_flight(this, &other, fd)? };
    if !data.is_empty() {
        socket.received = vec![Message { data, from: vec![] }];
    }
    Ok(true)
}

/// The two ends of a connection, by which the other socket of it is found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Ends {
    own: (IpAddr, u16),
    peer: (IpAddr, u16),
    /// Network that they are in.
    network: Vec<u8>,
}

impl Ends {
    /// Those of a TCP socket that is connected.
    pub fn of(fd: &OwnedFd) -> Option<Ends> {
        let tcp = option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL).ok()?;
        if tcp != libc::IPPROTO_TCP.to_le_bytes() {
            return None;
        }
        Some(Ends {
            own: plain(&sockets::address(fd, libc::getsockname))?,
            peer: plain(&sockets::address(fd, libc::getpeername))?,
            // Kernels before 5.14 do not tell.
            network: option(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE).unwrap_or_default(),
        })
    }

    /// Where the other one is, and in which network.
    pub(super) fn peer(&self) -> ((IpAddr, u16), &[u8]) {
        (self.peer, &self.network)
    }

    /// The same as the other end has them.
    pub fn turned(self) -> Ends {
        Ends { own: self.peer, peer: self.own, network: self.network }
    }
}

/// An address by which the two families can be compared.
pub(super) fn plain(name: &[u8]) -> Option<(IpAddr, u16)> {
    parts(name).map(|(ip, port)| (ip.to_canonical(), port))
}

/// Waits until all that `from` has sent has arrived at `to`; tells whether it has.
fn wait_for_arrival(from: &OwnedFd, to: &OwnedFd, patience: &Patience) -> io::Result<bool> {
    let end = patience.end();
    let yes = 1i32.to_le_bytes();
    loop {
        // Acknowledged at once instead of a little later.
        let _ = set_option(to, libc::IPPROTO_TCP, libc::TCP_QUICKACK, &yes);
        if ioctl::<i32>(from, SIOCOUTQ)? == 0 {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Copies what was received and not read.
fn received(this: &Open, fd: &OwnedFd) -> Result<Vec<u8>, CaptureError> {
    let failed = || sockets::failed("copy what a socket has received");
    let bytes = ioctl::<i32>(fd, SIOCINQ).map_err(failed())? as usize;
    if bytes > MAX_FLIGHT_BYTES {
        return Err(refused_now(this, format!("a TCP socket with {bytes} bytes in flight")));
    }
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let (data, ..) = peek(fd, bytes).map_err(failed())?;
    if data.len() == bytes {
        return Ok(data);
    }
    Err(refused_now(this, "a TCP socket with urgent data in flight".into()))
}

/// What `from` has sent and `this`, borrowed as `to`, has not read, though it does not all get
/// there. Some may arrive while we look: so the sender's end is read first, and what both have is
/// told by its numbers.
fn in_flight(this: &Open, from: &OwnedFd, to: &OwnedFd) -> Result<Vec<u8>, CaptureError> {
    let refuse = |e: io::Error| {
        let from = shown(&sockets::address(to, libc::getpeername));
        let here = shown(&sockets::address(to, libc::getsockname));
        let what = format!(
            "a TCP socket ({here} from {from}) that has no room for what was sent to it, which \
             takes CAP_NET_ADMIN to read ({e}); try again when the program has read on"
        );
        refused_now(this, what)
    };
    let (begin, kept) = repaired(from, kept).map_err(refuse)?;
    let expected = || repaired(to, |fd| sequence(fd, RECEIVE_QUEUE)).map_err(refuse);
    let mut next = expected()?;
    loop {
        let mut data = received(this, to)?;
        let before = std::mem::replace(&mut next, expected()?);
        if before == next {
            let known = next.wrapping_sub(begin) as usize;
            if known > kept.len() + 1 {
                return Err(refuse(io::ErrorKind::InvalidData.into()));
            }
            data.extend(kept.get(known..).unwrap_or_default());
            return Ok(data);
        }
    }
}

/// What a socket in repair mode has sent and is not acknowledged, and the number of its first byte.
/// If it has shut its direction, that takes a number too, behind all bytes.
fn kept(fd: &OwnedFd) -> io::Result<(u32, Vec<u8>)> {
    let end = sequence(fd, SEND_QUEUE)?;
    let bytes = ioctl::<i32>(fd, SIOCOUTQ)? as usize;
    if bytes == 0 {
        return Ok((end, Vec::new()));
    }
    if bytes > MAX_FLIGHT_BYTES {
        return Err(io::Error::other(format!("{bytes} bytes are too many")));
    }
    let (queue, ..) = peek(fd, bytes)?;
    match bytes - queue.len() {
        0 | 1 => Ok((end.wrapping_sub(bytes as u32), queue)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn sequence(fd: &OwnedFd, queue: i32) -> io::Result<u32> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, &queue.to_le_bytes())?;
    let value = option(fd, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ)?;
    value.first_chunk().map(|b| u32::from_le_bytes(*b)).ok_or(io::ErrorKind::InvalidData.into())
}

/// Does something to a socket in repair mode, and leaves it as it was.
fn repaired<T>(fd: &OwnedFd, work: impl FnOnce(&OwnedFd) -> io::Result<T>) -> io::Result<T> {
    let reuse = option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, &1i32.to_le_bytes())?;
    let result = work(fd);
    let off = REPAIR_OFF_SILENTLY.to_le_bytes();
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, &off)?;
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &reuse)?;
    result
}

/// Both addresses of a TCP socket that is connected.
pub fn both_ends(fd: &OwnedFd) -> Option<(SocketAddr, SocketAddr)> {
    let Ends { own, peer, .. } = Ends::of(fd)?;
    Some((own.into(), peer.into()))
}

/// What tells the network that a socket is in from others, also of other machines.
pub fn network(fd: &OwnedFd) -> Vec<u8> {
    let mut network = sockets::machine();
    // Kernels before 5.14 do not tell.
    network.extend(option(fd, libc::SOL_SOCKET, SO_NETNS_COOKIE).unwrap_or_default());
    network
}

/// The same of this process.
pub fn this_network() -> Vec<u8> {
    match std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0)) {
        Ok(socket) => network(&socket.into()),
        Err(_) => sockets::machine(),
    }
}

/// What a socket has sent to another node and does not get there in time, and the number of its
/// first byte.
pub fn held_back(
    this: &Open,
    fd: &OwnedFd,
    patience: &Patience,
) -> Result<(u32, Vec<u8>), CaptureError> {
    let failed = || sockets::failed("look into a TCP socket");
    loop {
        if ioctl::<i32>(fd, SIOCOUTQ).map_err(failed())? == 0 {
            return Ok((0, Vec::new()));
        }
        if Instant::now() >= patience.end() {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    repaired(fd, kept).map_err(|e| no_room(this, fd, e))
}

/// Completes what is known of a TCP socket whose other end is on another node, with what it has
/// received. If that end keeps something, returns the number of the byte that is to come next.
pub fn far(
    this: &Open,
    fd: &OwnedFd,
    behind: bool,
    socket: &mut Socket,
) -> Result<u32, CaptureError> {
    let failed = || sockets::failed("look into a TCP socket");
    socket.name = sockets::address(fd, libc::getsockname);
    socket.peer_name = sockets::address(fd, libc::getpeername);
    socket.connected = !socket.peer_name.is_empty();
    // As for those of one node.
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_le_bytes()).map_err(failed())?;
    let info = option(fd, libc::IPPROTO_TCP, libc::TCP_INFO).map_err(failed())?;
    let state = info.first().copied().unwrap_or(CLOSED);
    socket.shut = if SHUT_STATES.contains(&state) { 2 } else { 0 };
    let expected = || match behind {
        true => repaired(fd, |fd| sequence(fd, RECEIVE_QUEUE)).map_err(|e| no_room(this, fd, e)),
        false => Ok(0),
    };
    let mut next = expected()?;
    loop {
        let data = received(this, fd)?;
        let before = std::mem::replace(&mut next, expected()?);
        if before == next {
            if !data.is_empty() {
                socket.received = vec![Message { data, from: vec![] }];
            }
            return Ok(next);
        }
    }
}

fn no_room(this: &Open, fd: &OwnedFd, e: io::Error) -> CaptureError {
    let here = shown(&sockets::address(fd, libc::getsockname));
    let there = shown(&sockets::address(fd, libc::getpeername));
    let what = format!(
        "a TCP socket ({here} to {there}, on another node) with more in flight than the reader has \
         room for, which takes CAP_NET_ADMIN to read ({e}); try again when the program has read on"
    );
    refused_now(this, what)
}

/// Makes the socket of a description.
pub fn restore(connections: &mut Connections, socket: &Socket) -> Result<OwnedFd, RestoreError> {
    let fail = |e| cannot(sockets::AGAIN, e);
    let name = rewritten(&socket.name, &connections.addresses);
    let peer_name = rewritten(&socket.peer_name, &connections.addresses);
    let at = |e: io::Error| {
        let (here, there) = (shown(&name), shown(&peer_name));
        fail(io::Error::new(e.kind(), format!("{here} to {there}: {e}")))
    };
    if let Some(ends) = connections.ends.remove(&socket.id) {
        return finish(connections, ends.own, ends.other, socket).map_err(at);
    }
    if socket.connected && socket.kind == libc::SOCK_STREAM as u32 {
        let (own, other) = pair(connections, socket, &name, &peer_name).map_err(at)?;
        let ends = (other.try_clone().map_err(fail)?, own.try_clone().map_err(fail)?);
        connections.ends.insert(
            socket.peer,
            crate::resources::sockets::unix::Ends { own: ends.0, other: ends.1 },
        );
        return finish(connections, own, other, socket).map_err(at);
    }
    let fd = fresh(socket, &name).map_err(at)?;
    if let Some(backlog) = socket.listens {
        // SAFETY: a socket of ours.
        if unsafe { libc::listen(fd.as_raw_fd(), backlog as i32) } != 0 {
            return Err(at(io::Error::last_os_error()));
        }
        connections.listeners.push((name, fd.try_clone().map_err(fail)?));
    } else if socket.connected {
        connect(&fd, &peer_name).map_err(at)?;
    }
    connections.made.push((fd.try_clone().map_err(fail)?, socket.clone()));
    Ok(fd)
}

/// Notes what is to be sent and set when all sockets are there.
fn finish(
    connections: &mut Connections,
    own: OwnedFd,
    other: OwnedFd,
    socket: &Socket,
) -> io::Result<OwnedFd> {
    for message in &socket.received {
        connections.in_flight.push((other.try_clone()?, message.data.clone()));
    }
    connections.made.push((own.try_clone()?, socket.clone()));
    Ok(own)
}

/// Sends all of `data`; where the buffer is too small for it, that is made larger meanwhile.
fn send(fd: &OwnedFd, data: &[u8]) -> io::Result<()> {
    let end = Instant::now() + CONNECT_LIMIT;
    let mut sent = 0;
    let mut enlarged = false;
    while sent < data.len() {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        let left = &data[sent..];
        // SAFETY: reads live bytes.
        let n = unsafe { libc::send(fd.as_raw_fd(), left.as_ptr().cast(), left.len(), flags) };
        if let Ok(n) = usize::try_from(n) {
            sent += n;
            continue;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::WouldBlock || Instant::now() >= end {
            return Err(error);
        }
        if enlarged {
            std::thread::sleep(PAUSE);
        } else {
            let room = ROOM_BYTES.to_le_bytes();
            let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &room);
            let _ = set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room);
            enlarged = true;
        }
    }
    if enlarged {
        // Its size is the kernel's to choose again, unless the program had set it.
        let _ = set_option(fd, libc::SOL_SOCKET, SO_BUF_LOCK, &0i32.to_le_bytes());
    }
    Ok(())
}

fn new(socket: &Socket) -> io::Result<OwnedFd> {
    let (family, kind) = (socket.family as i32, socket.kind as i32 | libc::SOCK_CLOEXEC);
    // SAFETY: numbers only.
    let fd = unsafe { libc::socket(family, kind, socket.protocol as i32) };
    remote_descriptors::made(fd.into())
}

/// A new socket with an address, if it had one.
fn fresh(socket: &Socket, name: &[u8]) -> io::Result<OwnedFd> {
    let fd = new(socket)?;
    // What must be set before there is an address.
    let early = [(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), (libc::SOL_SOCKET, libc::SO_REUSEPORT)];
    for o in &socket.options {
        if early.contains(&(o.level as i32, o.name as i32)) {
            let _ = set_option(&fd, o.level as i32, o.name as i32, &o.value);
        }
    }
    if parts(name).is_some_and(|(_, port)| port != 0) {
        bind(&fd, name)?;
    }
    Ok(fd)
}

/// Gives a socket an address.
pub fn bind(fd: &OwnedFd, name: &[u8]) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &1i32.to_le_bytes())?;
    // SAFETY: a live address with its length.
    let r = unsafe { libc::bind(fd.as_raw_fd(), name.as_ptr().cast(), name.len() as u32) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn connect(fd: &OwnedFd, name: &[u8]) -> io::Result<()> {
    // SAFETY: as above.
    let r = unsafe { libc::connect(fd.as_raw_fd(), name.as_ptr().cast(), name.len() as u32) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Connects a new socket within a time.
pub fn connect_until(fd: &OwnedFd, name: &[u8], end: Instant) -> io::Result<()> {
    let set = |on: i32| {
        let mut on = on;
        // SAFETY: reads a live number.
        match unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONBIO, &raw mut on) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    set(1)?;
    match connect(fd, name) {
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {
            while remote_descriptors::poll(fd, libc::POLLOUT) == 0 {
                if Instant::now() >= end {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::sleep(PAUSE);
            }
            let error = option(fd, libc::SOL_SOCKET, libc::SO_ERROR)?;
            match error.first_chunk().map_or(0, |b| i32::from_le_bytes(*b)) {
                0 => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            }
        }
        result => result?,
    }
    set(0)
}

/// Takes a connection that is there.
pub fn accept_one(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let none = std::ptr::null_mut();
    // SAFETY: no address is asked for.
    let far = unsafe {
        let flags = libc::SOCK_CLOEXEC;
        libc::accept4(listener.as_raw_fd(), none, std::ptr::null_mut(), flags)
    };
    remote_descriptors::made(far.into())
}

/// One end of a connection to be made.
pub struct End<'a> {
    /// Its `AF_*`.
    pub family: u32,
    /// Its address.
    pub at: &'a [u8],
}

impl End<'_> {
    /// A new socket for it.
    pub fn socket(&self) -> io::Result<OwnedFd> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: numbers only.
        remote_descriptors::made(
            unsafe { libc::socket(self.family as i32, kind, libc::IPPROTO_TCP) }.into(),
        )
    }

    /// Its address as a socket of this family has it.
    fn seen_by(&self, family: u32) -> Vec<u8> {
        match (parts(self.at), family as i32) {
            (Some((IpAddr::V4(ip), port)), libc::AF_INET6) => {
                let mut name = (libc::AF_INET6 as u16).to_le_bytes().to_vec();
                name.extend(port.to_be_bytes());
                name.extend([0; 4]);
                name.extend(ip.to_ipv6_mapped().octets());
                name.extend([0; 4]);
                name
            }
            (Some((IpAddr::V6(ip), port)), libc::AF_INET) => {
                let Some(ip) = ip.to_ipv4_mapped() else { return self.at.to_vec() };
                let mut name = (libc::AF_INET as u16).to_le_bytes().to_vec();
                name.extend(port.to_be_bytes());
                name.extend(ip.octets());
                name.extend([0; 8]);
                name
            }
            _ => self.at.to_vec(),
        }
    }
}

/// Makes a connection between the two addresses, by way of a socket that listens on one of them:
/// one that the program has, or one made for this.
fn pair(
    connections: &Connections,
    socket: &Socket,
    name: &[u8],
    peer_name: &[u8],
) -> io::Result<(OwnedFd, OwnedFd)> {
    let family = connections.families.get(&socket.peer).copied().unwrap_or(socket.family);
    let own = End { family: socket.family, at: name };
    let peer = End { family, at: peer_name };
    let listens = |at: &[u8]| {
        let at = plain(at);
        let serves = |l: &[u8]| match (plain(l), at) {
            (Some((ip, port)), Some((to, to_port))) => {
                port == to_port && (ip == to || ip.is_unspecified())
            }
            _ => false,
        };
        connections.listeners.iter().find(|(l, _)| serves(l)).map(|(_, fd)| fd)
    };
    let end = Instant::now() + CONNECT_LIMIT;
    let mut turned = false;
    loop {
        let made = if let Some(listener) = listens(name) {
            link(listener, &peer, &own).map(|(far, own)| (own, far))
        } else if let Some(listener) = listens(peer_name) {
            link(listener, &own, &peer)
        } else if turned {
            linked(&peer, &own).map(|(far, own)| (own, far))
        } else {
            linked(&own, &peer)
        };
        match made {
            // An old connection of these addresses may still be fading: where the calling end
            // would have to wait for long, the other one need not.
            Err(e) if fades(&e) && Instant::now() < end => {
                turned = !turned;
                std::thread::sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Connects from one end to the other, where a socket listens for this alone.
fn linked(from: &End<'_>, to: &End<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
    let listener = to.socket()?;
    bind(&listener, &to.seen_by(to.family))?;
    // SAFETY: a socket of ours.
    match unsafe { libc::listen(listener.as_raw_fd(), 1) } {
        0 => link(&listener, from, to),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether it may be an old connection of the same address that is in the way.
pub fn fades(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse)
}

/// Connects from one end to the other, where `listener` listens; returns both, in this order.
pub fn link(listener: &OwnedFd, from: &End<'_>, to: &End<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
    let near = from.socket()?;
    bind_caller(&near, &from.seen_by(from.family))?;
    connect(&near, &to.seen_by(from.family))?;
    let own = |far: &OwnedFd| plain(&sockets::address(far, libc::getpeername)) == plain(from.at);
    Ok((near, sockets::accept(listener, own)?))
}

/// Gives the sockets their options, sends what was in flight, and shuts what was shut. Buffers have
/// their sizes before anything is sent: the sender makes its packets by them.
pub fn settle(made: &[(OwnedFd, Socket)], in_flight: &[(OwnedFd, Vec<u8>)]) -> io::Result<()> {
    let inet = || made.iter().filter(|(_, s)| s.family as i32 != libc::AF_UNIX);
    inet().for_each(|(fd, socket)| sockets::set_options(fd, &socket.options));
    in_flight.iter().try_for_each(|(fd, data)| send(fd, data))?;
    for (fd, socket) in inet() {
        let size = |o: &&SocketOption| o.name as i32 == libc::SO_SNDBUF;
        let size: Vec<SocketOption> = socket.options.iter().filter(size).cloned().collect();
        sockets::set_options(fd, &size);
        if socket.shut & 2 != 0 {
            // SAFETY: a socket of ours.
            unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn what_does_not_arrive_is_waited_for_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stuck = || {
            let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let to = listener.accept().unwrap().0;
            from.set_nonblocking(true).unwrap();
            while from.write(&[0; 1 << 16]).is_ok() {}
            (OwnedFd::from(from), OwnedFd::from(to))
        };
        let patience = Patience::default();
        let wait = |(from, to): &(OwnedFd, OwnedFd)| wait_for_arrival(from, to, &patience).unwrap();
        let (one, other) = (stuck(), stuck());
        assert!(!wait(&one));
        let end = patience.end();
        assert!(!wait(&other) && patience.end() == end);
        // What is there already counts when the time is over, too.
        let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let to = listener.accept().unwrap().0;
        assert!(wait(&(from.into(), to.into())));
    }

    #[test]
    fn addresses_are_rewritten_by_the_rule() {
        let name = [2, 0, 0x1f, 0x90, 10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(shown(&name), "10.0.0.7:8080");
        let rule = [("10.0.0.7".parse().unwrap(), "10.0.0.9".parse().unwrap())];
        assert_eq!(shown(&rewritten(&name, &rule)), "10.0.0.9:8080");
        let rule = [("10.0.0.8".parse().unwrap(), "10.0.0.9".parse().unwrap())];
        assert_eq!(rewritten(&name, &rule), name);
        assert_eq!(shown(&[1, 0]), "no address");
    }

    #[test]
    fn an_address_is_seen_by_both_families() {
        let v4 = [2, 0, 0x1f, 0x90, 10, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        let end = End { family: libc::AF_INET as u32, at: &v4 };
        let v6 = end.seen_by(libc::AF_INET6 as u32);
        assert_eq!((shown(&v6).as_str(), v6.len()), ("[::ffff:10.0.0.7]:8080", 28));
        let end = End { family: libc::AF_INET6 as u32, at: &v6 };
        assert_eq!(end.seen_by(libc::AF_INET as u32), v4);
        assert_eq!(plain(&v4), plain(&v6));
    }

    #[test]
    fn an_address_in_a_socket_for_both_kinds_is_rewritten_too() {
        let mut name = vec![10, 0, 0x1f, 0x90, 0, 0, 0, 0];
        name.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 7]);
        name.extend([0; 4]);
        let rule = [("10.0.0.7".parse().unwrap(), "10.0.0.9".parse().unwrap())];
        assert_eq!(shown(&rewritten(&name, &rule)), "[::ffff:10.0.0.9]:8080");
    }
}
