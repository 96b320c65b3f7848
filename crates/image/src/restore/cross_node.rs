//! Connections between two nodes being made again, each end by the daemon of its node: one listens
//! and one calls, both show what only those know who were told, give each other what was in flight
//! to them, and send it.
//!
//! Kept true: an end counts as made when all of what was in flight to the other one is sent on it;
//! what was made in an attempt that failed at either end is thrown away whole, and made anew from
//! the images.

use crate::kernel::remote_descriptors;
use crate::resources::sockets;
use crate::resources::sockets::inet::{self, End};
use crate::resources::sockets::taken_port::bind_caller;
use eyrie_image_format::state::resources::Socket;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(1);
/// Most bytes that an end is told to be in flight to the other one.
const MAX_FLIGHT_BYTES: u64 = 64 << 20;
/// Connections that nobody has taken yet, at one address.
const BACKLOG: i32 = 128;
/// Time left to tell the other end that it waits in vain.
const TO_TELL: Duration = Duration::from_millis(200);
const TOKEN_BYTES: usize = 32;
/// What a caller says: that it calls, or that it cannot from the address that it is to have.
const CALLS: u8 = 1;
const CANNOT: u8 = 2;
/// Word, connection, and its half of the token.
const GREETING_BYTES: usize = 1 + 16 + TOKEN_BYTES / 2;

/// What a connection of a set is known by at both ends.
pub type Link = [u64; 2];

/// An end of a connection whose other end is in none of these images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackEnd {
    /// The connection.
    pub link: Link,
    /// Its address at the checkpoint.
    pub own: SocketAddr,
    /// That of the other end.
    pub peer: SocketAddr,
    /// Whether this node has the address.
    pub has: bool,
}

/// How such an end is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// The connection.
    pub link: Link,
    /// The address that it gets.
    pub own: SocketAddr,
    /// That of the other end.
    pub peer: SocketAddr,
    /// It calls, and the other end listens; or the other way round.
    pub calls: bool,
    /// What the two ends show each other.
    pub token: [u8; TOKEN_BYTES],
}

/// An end, and what is known of it.
pub struct CrossNodeSocket {
    pub socket: Socket,
    /// What it had sent and was not known to have arrived, and the number of its first byte.
    pub kept: Vec<u8>,
    pub kept_from: u32,
    /// The number of the byte after those that it received.
    pub arrived: u32,
    pub made: Option<OwnedFd>,
}

/// One end in one attempt.
struct Attempt<'a> {
    call: &'a Call,
    far: &'a CrossNodeSocket,
    name: Vec<u8>,
    peer_name: Vec<u8>,
}

/// Makes these ends, within a time; `patient`: also those whose addresses are taken at first.
/// Returns those that could not be, and why.
pub fn join(
    all: &mut BTreeMap<Link, CrossNodeSocket>,
    calls: &[Call],
    limit: Duration,
    patient: bool,
) -> Vec<(Link, String)> {
    for call in calls {
        if let Some(far) = all.get_mut(&call.link) {
            far.made = None;
        }
    }
    let end = Instant::now() + limit;
    let (mut failed, mut places) = (Vec::new(), BTreeMap::<Vec<u8>, Vec<Attempt<'_>>>::new());
    for call in calls {
        match all.get(&call.link).map(|far| Attempt::of(call, far)) {
            Some(Ok(attempt)) => places.entry(attempt.name.clone()).or_default().push(attempt),
            Some(Err(why)) => failed.push((call.link, why)),
            None => failed.push((call.link, "it is not known here".into())),
        }
    }
    let made: Vec<(Link, io::Result<OwnedFd>)> = thread::scope(|scope| {
        let at = |attempts: Vec<Attempt<'_>>| at_one_address(&attempts, limit, end, patient);
        let threads: Vec<_> = places.into_values().map(|a| scope.spawn(move || at(a))).collect();
        threads.into_iter().flat_map(|t| t.join().unwrap_or_default()).collect()
    });
    for (link, result) in made {
        match (result, all.get_mut(&link)) {
            (Ok(fd), Some(far)) => far.made = Some(fd),
            (Err(error), Some(far)) => {
                let (here, there) = sockets::shown(&far.socket);
                failed.push((link, format!("{here} to {there}: {error}")));
            }
            (_, None) => {}
        }
    }
    failed
}

impl<'a> Attempt<'a> {
    fn of(call: &'a Call, far: &'a CrossNodeSocket) -> Result<Attempt<'a>, String> {
        let socket = &far.socket;
        let at = |name: &[u8], to: SocketAddr| {
            inet::moved(name, to).ok_or_else(|| {
                let (here, there) = sockets::shown(socket);
                format!("{here} to {there} cannot become one to {to}, an address of another kind")
            })
        };
        let (name, peer_name) = (at(&socket.name, call.own)?, at(&socket.peer_name, call.peer)?);
        Ok(Attempt { call, far, name, peer_name })
    }

    fn own(&self) -> End<'_> {
        End { family: self.far.socket.family, at: &self.name }
    }

    fn greeting(&self, word: u8) -> Vec<u8> {
        let [a, b] = self.call.link.map(u64::to_le_bytes);
        [&[word][..], &a, &b, &self.call.token[..TOKEN_BYTES / 2]].concat()
    }

    fn answer(&self) -> &[u8] {
        &self.call.token[TOKEN_BYTES / 2..]
    }
}

/// Those that have one address. They call first, as nobody can have an address at which another
/// socket listens already.
fn at_one_address(
    attempts: &[Attempt<'_>],
    limit: Duration,
    end: Instant,
    patient: bool,
) -> Vec<(Link, io::Result<OwnedFd>)> {
    let (calling, listening): (Vec<&Attempt<'_>>, Vec<_>) =
        attempts.iter().partition(|a| a.call.calls);
    let until = if listening.is_empty() { end } else { end - limit / 2 };
    let mut made: Vec<(Link, io::Result<OwnedFd>)> = thread::scope(|scope| {
        let call = |a: &Attempt<'_>| (a.call.link, call(a, until, patient));
        let threads: Vec<_> = calling.iter().map(|a| scope.spawn(move || call(a))).collect();
        threads.into_iter().filter_map(|t| t.join().ok()).collect()
    });
    if !listening.is_empty() {
        made.extend(listen(&listening, end, patient));
    }
    made
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other end did not come in time")
}

/// Calls the other end, which may not listen yet.
fn call(attempt: &Attempt<'_>, end: Instant, patient: bool) -> io::Result<OwnedFd> {
    loop {
        let fd = attempt.own().socket()?;
        let reached = bind_caller(&fd, &attempt.name)
            .and_then(|()| inet::connect_until(&fd, &attempt.peer_name, end));
        match reached {
            Ok(()) => {
                let stream = ready(fd, end)?;
                (&stream).write_all(&attempt.greeting(CALLS))?;
                let mut answer = [0; TOKEN_BYTES / 2];
                (&stream).read_exact(&mut answer)?;
                if !is_same(&answer, attempt.answer()) {
                    return Err(io::Error::other("somebody else answers there"));
                }
                return exchange(stream, attempt);
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < end => {
                thread::sleep(PAUSE);
            }
            Err(e) if patient && inet::fades(&e) && Instant::now() + TO_TELL < end => {
                thread::sleep(PAUSE);
            }
            Err(e) => {
                // An old connection of these addresses fades here: the other end is to call.
                tell_that_it_cannot(attempt, end);
                return Err(e);
            }
        }
    }
}

/// Who listens need not wait for a caller that will not come.
fn tell_that_it_cannot(attempt: &Attempt<'_>, end: Instant) {
    while Instant::now() < end {
        let Ok(fd) = attempt.own().socket() else { return };
        match inet::connect_until(&fd, &attempt.peer_name, end) {
            Ok(()) => {
                let told = ready(fd, end).and_then(|stream| {
                    (&stream).write_all(&attempt.greeting(CANNOT))?;
                    // It is read when the other end closes.
                    stream.shutdown(Shutdown::Write)?;
                    (&stream).read(&mut [0])
                });
                return drop(told);
            }
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => thread::sleep(PAUSE),
            Err(_) => return,
        }
    }
}

/// Waits for the callers of these ends, which have one address.
fn listen(
    attempts: &[&Attempt<'_>],
    end: Instant,
    patient: bool,
) -> Vec<(Link, io::Result<OwnedFd>)> {
    let listener = || {
        let first = attempts.first().ok_or_else(late)?;
        let fd = first.own().socket()?;
        inet::bind(&fd, &first.name)?;
        // SAFETY: a socket of ours.
        match unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) } {
            0 => Ok(fd),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let mut made = listener();
    while patient && made.as_ref().is_err_and(inet::fades) && Instant::now() < end {
        thread::sleep(PAUSE);
        made = listener();
    }
    let listener = match made {
        Ok(listener) => listener,
        Err(e) => {
            let again = || io::Error::new(e.kind(), e.to_string());
            return attempts.iter().map(|a| (a.call.link, Err(again()))).collect();
        }
    };
    let mut made = BTreeMap::new();
    let claimed = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        while made.len() < attempts.len() && Instant::now() < end {
            made.extend(told.try_iter());
            if remote_descriptors::poll(&listener, libc::POLLIN) & libc::POLLIN == 0 {
                thread::sleep(PAUSE);
                continue;
            }
            let Ok(far) = inet::accept_one(&listener) else { continue };
            let (tell, claimed) = (tell.clone(), &claimed);
            scope.spawn(move || {
                if let Some((link, result)) = greet(far, attempts, claimed, end) {
                    let _ = tell.send((link, result));
                }
            });
        }
        // Nobody else is let in; who is, comes to an end.
        drop((tell, listener));
        made.extend(told.iter());
    });
    let one =
        |a: &&Attempt<'_>| (a.call.link, made.remove(&a.call.link).unwrap_or_else(|| Err(late())));
    attempts.iter().map(one).collect()
}

/// Finds out who calls. None: nobody who is awaited.
fn greet(
    far: OwnedFd,
    attempts: &[&Attempt<'_>],
    claimed: &Mutex<BTreeSet<Link>>,
    end: Instant,
) -> Option<(Link, io::Result<OwnedFd>)> {
    let stream = ready(far, end).ok()?;
    let mut greeting = [0; GREETING_BYTES];
    (&stream).read_exact(&mut greeting).ok()?;
    let known = |a: &&&Attempt<'_>| is_same(&a.greeting(greeting[0]), &greeting);
    let attempt = attempts.iter().find(known)?;
    let link = attempt.call.link;
    if !claimed.lock().unwrap_or_else(PoisonError::into_inner).insert(link) {
        return None;
    }
    match greeting[0] {
        CALLS => {
            let answered = (&stream).write_all(attempt.answer());
            Some((link, answered.and_then(|()| exchange(stream, attempt))))
        }
        _ => Some((link, Err(io::Error::other("an old connection of these addresses is fading")))),
    }
}

fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// A connection that leaves nothing behind if it is given up, and on which nobody waits for long.
fn ready(fd: OwnedFd, end: Instant) -> io::Result<TcpStream> {
    linger(&fd, true)?;
    let left = end.saturating_duration_since(Instant::now()).max(PAUSE);
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(left))?;
    stream.set_write_timeout(Some(left))?;
    Ok(stream)
}

/// Whether closing it breaks it off.
fn linger(fd: &OwnedFd, breaks: bool) -> io::Result<()> {
    let value = [i32::from(breaks).to_le_bytes(), 0i32.to_le_bytes()].concat();
    sockets::set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &value)
}

/// Gives the other end what was in flight to this one, and sends it what was to that. Then the
/// socket is as it was.
fn exchange(stream: TcpStream, attempt: &Attempt<'_>) -> io::Result<OwnedFd> {
    let far = attempt.far;
    let received: Vec<u8> = far.socket.received.iter().flat_map(|m| m.data.clone()).collect();
    let head = [&(received.len() as u64).to_le_bytes()[..], &far.arrived.to_le_bytes()].concat();
    let (mut theirs, arrived) = thread::scope(|scope| {
        let write = scope.spawn(|| {
            (&stream).write_all(&head)?;
            (&stream).write_all(&received)
        });
        let read = read_flight(&stream);
        let written = write.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        written.and(read)
    })?;
    if !far.kept.is_empty() {
        let known = arrived.wrapping_sub(far.kept_from) as usize;
        // A direction that was shut takes a number, too.
        if known > far.kept.len() + 1 {
            return Err(io::Error::other("what is in flight does not fit together"));
        }
        theirs.extend(far.kept.get(known..).unwrap_or_default());
    }
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    stream.set_nodelay(false)?;
    let fd = OwnedFd::from(stream);
    let made = [(fd.try_clone()?, far.socket.clone())];
    inet::settle(&made, &[(fd.try_clone()?, theirs)])?;
    if !far.socket.options.iter().any(|o| o.name as i32 == libc::SO_LINGER) {
        linger(&fd, false)?;
    }
    Ok(fd)
}

fn read_flight(stream: &TcpStream) -> io::Result<(Vec<u8>, u32)> {
    let mut stream = stream;
    let (mut length, mut arrived) = ([0; 8], [0; 4]);
    stream.read_exact(&mut length)?;
    stream.read_exact(&mut arrived)?;
    let length = u64::from_le_bytes(length);
    if length > MAX_FLIGHT_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok((data, u32::from_le_bytes(arrived)))
}
