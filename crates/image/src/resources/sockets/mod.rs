//! Sockets: options that all of them have, and which kind is whose affair. Those between Unix
//! sockets of the processes frozen are made again as pairs.

pub(crate) mod between_images;
pub(crate) mod connections;
pub(crate) mod cross_node;
pub(crate) mod inet;
pub(crate) mod kind;
mod peers;
pub(crate) mod taken_port;
pub(crate) mod unix;

use crate::error::{CaptureError, RestoreError};
use crate::kernel::remote_descriptors::{self, RemoteDescriptors};
use crate::resources::open::{Open, refused};
use crate::resources::sockets::connections::Connections;
use eyrie_image_format::state::resources::{Socket, SocketOption};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// What fails when one cannot be made.
pub const AGAIN: &str = "make its socket again";
/// How long a connection made just now may take to be accepted.
const ACCEPT_LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);
/// Longest `sockaddr`.
const ADDRESS_BYTES: usize = 128;
/// Longest value of an option that is kept.
const VALUE_BYTES: usize = 256;

/// Options of all sockets that are kept.
const GENERAL: [i32; 10] = [
    libc::SO_RCVLOWAT,
    libc::SO_PRIORITY,
    libc::SO_KEEPALIVE,
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_BROADCAST,
    libc::SO_PASSCRED,
    libc::SO_LINGER,
    libc::SO_RCVTIMEO,
    libc::SO_SNDTIMEO,
];
/// Options of TCP and UDP sockets that are kept.
const OF_INET: [(i32, i32); 8] = [
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, libc::TCP_CORK),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
];
/// Sizes of buffers, with the bit of `SO_BUF_LOCK` that tells that the program has set it.
const BUFFERS: [(i32, u8); 2] = [(libc::SO_SNDBUF, 1), (libc::SO_RCVBUF, 2)];
const SO_BUF_LOCK: i32 = 72;
/// The kernel's numbers of sockets have so many bits.
const INODE_BITS: u32 = 32;

/// What the socket behind `this` is, if it can be made again. `None` if it leads to somebody
/// outside.
pub fn capture(
    this: &Open,
    all: &[Open],
    remote: &RemoteDescriptors,
    patience: &inet::Patience,
) -> Result<Option<Socket>, CaptureError> {
    let fd = remote.borrow(this.fd)?;
    let mut socket = described(this, &fd);
    let own = match socket.family as i32 {
        libc::AF_UNIX => unix::capture(this, all, &fd, &mut socket)?,
        libc::AF_INET | libc::AF_INET6 => inet::capture(this, all, &fd, patience, &mut socket)?,
        _ if this.is_handed_over(all) => false,
        family => {
            let what = format!("a socket of family {family} ({})", this.shown());
            return Err(refused(this, what));
        }
    };
    socket.id = unique(socket.id);
    socket.peer = unique(socket.peer);
    Ok(own.then_some(socket))
}

/// What all sockets have.
pub fn described(this: &Open, fd: &OwnedFd) -> Socket {
    let ask = |name: i32| number(fd, name);
    let family = family(fd);
    Socket {
        id: this.inode(),
        family,
        kind: ask(libc::SO_TYPE),
        protocol: ask(libc::SO_PROTOCOL),
        name: vec![],
        listens: None,
        peer: 0,
        peer_name: vec![],
        connected: false,
        shut: 0,
        options: options(fd, family as i32),
        received: vec![],
    }
}

/// The number of a socket, which is not that of one on another machine: images of several may come
/// back on one.
pub fn unique(ino: u64) -> u64 {
    static MACHINE: OnceLock<u64> = OnceLock::new();
    let machine = MACHINE.get_or_init(|| xxhash_rust::xxh3::xxh3_64(&machine()) << INODE_BITS);
    if ino == 0 { 0 } else { ino ^ machine }
}

/// What tells this start of this machine from all others.
pub fn machine() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Makes the socket of a description.
pub fn restore(connections: &mut Connections, socket: &Socket) -> Result<OwnedFd, RestoreError> {
    match socket.family as i32 {
        libc::AF_UNIX => unix::restore(connections, socket),
        _ => inet::restore(connections, socket),
    }
}

/// Why a connection between images cannot be made for one of them.
pub fn alone(socket: &Socket) -> io::Error {
    let (here, there) = shown(socket);
    io::Error::other(format!(
        "{here} was connected to {there}, of a process whose image is another one of the same set: \
         they come back together only"
    ))
}

/// An option of all sockets that is a number; 0 if it cannot be asked for.
fn number(fd: &impl AsRawFd, name: i32) -> u32 {
    let value = option(fd, libc::SOL_SOCKET, name).unwrap_or_default();
    value.first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b))
}

/// Its `AF_*`.
pub fn family(fd: &impl AsRawFd) -> u32 {
    number(fd, libc::SO_DOMAIN)
}

/// Whether it may receive messages of anybody, which are not lost.
pub fn takes_messages(fd: &impl AsRawFd) -> bool {
    let kind = number(fd, libc::SO_TYPE);
    family(fd) == libc::AF_UNIX as u32 && kind == libc::SOCK_DGRAM as u32
}

/// Its address and that of its peer, for messages.
pub fn shown(socket: &Socket) -> (String, String) {
    let shown = |name: &[u8]| match socket.family as i32 {
        libc::AF_UNIX => unix::shown(name),
        _ => inet::shown(name),
    };
    (shown(&socket.name), shown(&socket.peer_name))
}

/// Value of an option.
pub fn option(fd: &impl AsRawFd, level: i32, name: i32) -> io::Result<Vec<u8>> {
    let mut value = [0u8; VALUE_BYTES];
    let mut bytes = VALUE_BYTES as libc::socklen_t;
    // SAFETY: a live buffer with its length.
    let r = unsafe {
        let at = value.as_mut_ptr().cast();
        libc::getsockopt(fd.as_raw_fd(), level, name, at, &raw mut bytes)
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(value[..bytes as usize].to_vec()) }
}

/// Sets an option.
pub fn set_option(fd: &impl AsRawFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: reads live bytes.
    let r = unsafe {
        let bytes = value.len() as libc::socklen_t;
        libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), bytes)
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn options(fd: &OwnedFd, family: i32) -> Vec<SocketOption> {
    let mut all = Vec::new();
    let general = GENERAL.into_iter().map(|name| (libc::SOL_SOCKET, name));
    let inet = OF_INET.into_iter().filter(|_| family != libc::AF_UNIX);
    for (level, name) in general.chain(inet) {
        let Ok(value) = option(fd, level, name) else { continue };
        if value.iter().any(|&b| b != 0) {
            all.push(SocketOption { level: level as u32, name: name as u32, value });
        }
    }
    // Those of TCP grow by themselves unless the program has set them; kernels before 5.14 do not
    // tell.
    let set = option(fd, libc::SOL_SOCKET, SO_BUF_LOCK).ok().and_then(|v| v.first().copied());
    let set = set.unwrap_or(if family == libc::AF_UNIX { 3 } else { 0 });
    for (name, bit) in BUFFERS {
        let size = option(fd, libc::SOL_SOCKET, name).ok();
        let size = size.as_deref().and_then(|v| v.first_chunk::<4>().copied());
        if let Some(size) = size.filter(|_| set & bit != 0 || family == libc::AF_UNIX) {
            // The kernel answers with twice what was set.
            let value = (u32::from_le_bytes(size) / 2).to_le_bytes().to_vec();
            all.push(SocketOption { level: libc::SOL_SOCKET as u32, name: name as u32, value });
        }
    }
    all
}

/// Sets the options that a socket had, as far as the kernel takes them.
pub fn set_options(fd: &impl AsRawFd, options: &[SocketOption]) {
    for o in options {
        let _ = set_option(fd, o.level as i32, o.name as i32, &o.value);
    }
}

/// Accepts the connection that is `ours`, which was made just now. Others that call at this address
/// in this moment find nobody there.
pub fn accept(listener: &OwnedFd, ours: impl Fn(&OwnedFd) -> bool) -> io::Result<OwnedFd> {
    let end = Instant::now() + ACCEPT_LIMIT;
    while Instant::now() < end {
        if remote_descriptors::poll(listener, libc::POLLIN) & libc::POLLIN == 0 {
            std::thread::sleep(PAUSE);
            continue;
        }
        let none = std::ptr::null_mut();
        // SAFETY: no address is asked for; there is a connection to be accepted.
        let far = unsafe {
            let flags = libc::SOCK_CLOEXEC;
            libc::accept4(listener.as_raw_fd(), none, std::ptr::null_mut(), flags)
        };
        let far = remote_descriptors::made(far.into())?;
        if ours(&far) {
            return Ok(far);
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// An address asked for by `getsockname` or `getpeername`.
pub fn address(
    fd: &impl AsRawFd,
    ask: unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut libc::socklen_t) -> i32,
) -> Vec<u8> {
    let mut name = [0u8; ADDRESS_BYTES];
    let mut bytes = ADDRESS_BYTES as libc::socklen_t;
    // SAFETY: a live buffer with its length.
    let r = unsafe { ask(fd.as_raw_fd(), name.as_mut_ptr().cast(), &raw mut bytes) };
    if r < 0 { Vec::new() } else { name[..(bytes as usize).min(ADDRESS_BYTES)].to_vec() }
}

/// The next message without taking it: its bytes, its sender, and what the kernel says of it.
pub fn peek(fd: &impl AsRawFd, room: usize) -> io::Result<(Vec<u8>, Vec<u8>, i32)> {
    let mut data = vec![0u8; room];
    let mut from = [0u8; ADDRESS_BYTES];
    let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: room };
    // SAFETY: all-zero is a valid msghdr.
    let mut head: libc::msghdr = unsafe { std::mem::zeroed() };
    head.msg_name = from.as_mut_ptr().cast();
    head.msg_namelen = ADDRESS_BYTES as libc::socklen_t;
    head.msg_iov = &raw mut part;
    head.msg_iovlen = 1;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: all parts of the header are live; there is no room for descriptors.
    let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut head, flags) };
    data.truncate(usize::try_from(n).map_err(|_| io::Error::last_os_error())?);
    let from = from[..(head.msg_namelen as usize).min(ADDRESS_BYTES)].to_vec();
    Ok((data, from, head.msg_flags))
}

/// Reports a failure to look into a socket.
pub fn failed(what: &'static str) -> impl FnOnce(io::Error) -> CaptureError {
    move |source| CaptureError::Os { what, source }
}
