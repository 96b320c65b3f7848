//! The calls of a node to others: each is noted from before its connection is made until it is
//! over, and ends when the other end is a member no more, or the gateway on the way is gone.
//!
//! Kept true: what is noted is ended by either, whenever that was heard of: while the connection is
//! being made, while the ends prove themselves, and later. A machine that is gone tells nobody: who
//! waits for it hears of that here.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use eyrie_control::auth::{self, AuthError, Hello, Role};
use eyrie_gateway::Reason;
use eyrie_gateway::frame::put_target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::route::{End, Routes, prepare};
use crate::secret::Secret;

/// What is known of one.
struct Noted {
    to: End,
    /// The gateway that it goes through.
    gateway: Option<SocketAddr>,
    /// Of the same connection.
    socket: Option<TcpStream>,
    is_over: bool,
}

/// Those that are not over.
#[derive(Default)]
pub(crate) struct Calls {
    noted: BTreeMap<u64, Noted>,
    next: u64,
}

impl Calls {
    /// Notes one. Returns its number.
    pub fn note(&mut self, to: End, gateway: Option<SocketAddr>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.noted.insert(number, Noted { to, gateway, socket: None, is_over: false });
        number
    }

    /// Its connection is about to be made by this socket.
    pub fn uses(&mut self, number: u64, socket: &TcpStream) -> io::Result<()> {
        if let Some(noted) = self.noted.get_mut(&number) {
            noted.socket = Some(socket.try_clone()?);
        }
        Ok(())
    }

    pub fn forget(&mut self, number: u64) {
        self.noted.remove(&number);
    }

    pub fn is_over(&self, number: u64) -> bool {
        self.noted.get(&number).is_none_or(|noted| noted.is_over)
    }

    /// Ends those of which this holds: whom they call, and through which gateway.
    pub fn end(&mut self, which: impl Fn(End, Option<SocketAddr>) -> bool) {
        for noted in self.noted.values_mut().filter(|noted| which(noted.to, noted.gateway)) {
            noted.is_over = true;
            // It may have ended by itself, or is not connected yet: that is looked at then.
            let _ = noted.socket.as_ref().map(|socket| socket.shutdown(Shutdown::Both));
        }
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.noted.len()
    }
}

/// A call, for as long as this is kept.
pub struct Call {
    pub(crate) routes: Routes,
    pub(crate) number: u64,
    /// The cluster where the other end is and the gateway that leads there, if only gateways do.
    pub(crate) through: Option<(u32, Option<SocketAddr>)>,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.routes.calls(|calls| calls.forget(self.number));
    }
}

impl Call {
    /// Makes the connection, to an address of the other end. Its timeouts are `patience`.
    ///
    /// # Errors
    /// When there is no way just now, or the call was ended.
    pub fn connect(
        &self,
        (secret, job): (&Secret, &str),
        own: End,
        address: SocketAddr,
        patience: Duration,
    ) -> Result<TcpStream, AuthError> {
        let Some((cluster, gateway)) = self.through else {
            return Ok(self.reach(address, patience)?);
        };
        let mut socket = self.reach(gateway.ok_or_else(|| refused(Reason::NoWay))?, patience)?;
        let hello = Hello::new(Role::Passenger, job, own, (cluster, 0))?;
        auth::call(&mut socket, secret.key(), &hello, Role::Gateway)?;
        socket.write_all(&put_target(&address))?;
        let mut answer = [0];
        socket.read_exact(&mut answer)?;
        match answer {
            [0] => Ok(socket),
            [why] => Err(Reason::of(why).map_or(AuthError::Malformed, refused)),
        }
    }

    /// The first step of the way. [`TcpStream::connect_timeout`] cannot be ended by others.
    ///
    /// # Errors
    /// When nobody takes the connection in that time, or the call was ended.
    pub fn reach(&self, at: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let socket = TcpStream::from(made);
        self.routes.calls(|calls| calls.uses(self.number, &socket))?;
        let begun = rustix::net::connect(&socket, &at);
        // Whoever ends it from here on ends the attempt.
        if self.routes.calls(|calls| calls.is_over(self.number)) {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        match begun {
            Ok(()) => {}
            Err(Errno::INPROGRESS) => wait(&socket, patience)?,
            Err(error) => return Err(error.into()),
        }
        socket.set_nonblocking(false)?;
        prepare(&socket, patience)?;
        Ok(socket)
    }
}

/// Waits until a connection that is being made stands.
fn wait(socket: &TcpStream, patience: Duration) -> io::Result<()> {
    let end = Instant::now() + patience;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut sockets = [PollFd::new(socket, PollFlags::OUT)];
        match poll(&mut sockets, Some(&limit)) {
            Ok(0) if Instant::now() >= end => return Err(io::ErrorKind::TimedOut.into()),
            Ok(0) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => break,
        }
    }
    match socket.take_error()? {
        Some(error) => Err(error),
        // It was ended; without an error nobody else closes it so soon.
        None => socket.peer_addr().map(|_| ()),
    }
}

fn refused(reason: Reason) -> AuthError {
    AuthError::Io(io::Error::new(io::ErrorKind::HostUnreachable, reason.to_string()))
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
