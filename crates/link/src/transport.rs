//! What carries a connection's bytes: its TCP connection, or libfabric or several other ones, with
//! that as the leash of it (`docs/formats/link.md`).
//!
//! The caller names its provider, the called one says where it listens with the same, or that it
//! does not. Both prove themselves once more over what they then have.
//!
//! Kept true: nothing but this is said on the TCP connection of one that goes over libfabric; in a
//! job over TCP nothing of it is said at all.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_control::auth::{self, AuthError, Hello, Key, Role};
use eyrie_fabric::{Listener, Pipe, Provider, TOKEN_BYTES, Token, connect};
use eyrie_protocol::membership::Member;
use eyrie_tls::Stream;

use crate::connection::Carrier;
use crate::lanes::{Ends, Receiving, Sending};
use crate::shared::Shared;
use crate::ways;

/// How the bytes between nodes of a cluster go.
#[derive(Clone, Debug)]
pub enum LinkTransport {
    Tcp,
    /// So many TCP connections for each.
    Lanes(u8),
    Fabric(Provider),
    /// Over libfabric where both ends have this provider, else over TCP.
    Either(Option<Provider>),
}

impl LinkTransport {
    fn provider(&self) -> Option<&Provider> {
        match self {
            LinkTransport::Tcp | LinkTransport::Lanes(_) => None,
            LinkTransport::Fabric(provider) => Some(provider),
            LinkTransport::Either(provider) => provider.as_ref(),
        }
    }

    /// As `eyrie status` shows it.
    pub fn name(&self) -> String {
        match (self, self.provider()) {
            (LinkTransport::Lanes(count), _) => format!("tcp:{count}"),
            (_, provider) => provider.map_or("tcp".into(), |p| format!("libfabric:{}", p.name())),
        }
    }
}

/// The called one's answers.
const NO: u8 = 0;
const YES: u8 = 1;

fn failed(error: eyrie_fabric::Error) -> AuthError {
    AuthError::Io(io::Error::other(error))
}

/// The end of a connection's TCP connection, for libfabric to hang on, and the address here.
fn leash(stream: &Stream) -> io::Result<(OwnedFd, IpAddr)> {
    let socket = stream.socket();
    Ok((socket.try_clone()?.into(), socket.local_addr()?.ip().to_canonical()))
}

fn hello(shared: &Shared, role: Role, to: Member) -> io::Result<Hello> {
    let own = (shared.own.node, shared.own.epoch);
    Hello::new(role, &shared.job, own, (to.node, to.epoch))
}

/// Whether the other end is who it was before.
fn judge(found: &Hello, shared: &Shared, wanted: Member) -> Result<(), AuthError> {
    let own = (shared.own.node, shared.own.epoch);
    let same = (found.node, found.epoch, found.to) == (wanted.node, wanted.epoch, own);
    if same { Ok(()) } else { Err(AuthError::Malformed) }
}

/// The caller's side: what to go on over.
pub(crate) fn offer(shared: &Shared, stream: &Stream, to: Member) -> Result<Carrier, AuthError> {
    match shared.transport {
        LinkTransport::Tcp => Ok(Carrier::Stream),
        LinkTransport::Lanes(count) => offer_lanes(shared, stream, to, count),
        _ => offer_pipe(shared, stream, to).map(|p| p.map_or(Carrier::Stream, Carrier::Pipe)),
    }
}

/// The called one's side.
pub(crate) fn take(shared: &Shared, stream: &Stream, from: Member) -> Result<Carrier, AuthError> {
    match shared.transport {
        LinkTransport::Tcp => Ok(Carrier::Stream),
        LinkTransport::Lanes(_) => take_lanes(shared, stream),
        _ => take_pipe(shared, stream, from).map(|p| p.map_or(Carrier::Stream, Carrier::Pipe)),
    }
}

fn offer_lanes(
    shared: &Shared,
    mut stream: &Stream,
    to: Member,
    count: u8,
) -> Result<Carrier, AuthError> {
    if shared.routes.abroad(shared.own.node, to.node).is_some() {
        stream.write_all(&[0])?;
        return Ok(Carrier::Stream);
    }
    stream.write_all(&[count])?;
    let (mut port, mut token) = ([0; 2], Token::default());
    stream.read_exact(&mut port)?;
    stream.read_exact(&mut token)?;
    let (here, there) = (stream.socket().local_addr()?.ip(), stream.socket().peer_addr()?.ip());
    let there = SocketAddr::new(there, u16::from_be_bytes(port));
    let limit = shared.connect_limit();
    let (sockets, ways) = ways::open(here, there, count.into(), limit)?;
    for mut socket in &sockets {
        socket.write_all(&token)?;
    }
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer != [YES] {
        return Err(AuthError::Malformed);
    }
    tracing::info!("link to {to}: {count} connections, by {ways} ways from here");
    let ends = Ends::of(&sockets)?;
    Ok(Carrier::Sends(Mutex::new(Sending::new(sockets, shared.silence())?), ends))
}

fn take_lanes(shared: &Shared, mut stream: &Stream) -> Result<Carrier, AuthError> {
    let mut count = [0];
    stream.read_exact(&mut count)?;
    if count == [0] {
        return Ok(Carrier::Stream);
    }
    let listener = TcpListener::bind((stream.socket().local_addr()?.ip(), 0))?;
    let Key(random) = Key::new()?;
    let mut token = Token::default();
    token.copy_from_slice(&random[..TOKEN_BYTES]);
    let port = listener.local_addr()?.port();
    stream.write_all(&[&port.to_be_bytes()[..], &token].concat())?;
    let limit = shared.connect_limit();
    let sockets = ways::accept(&listener, count[0].into(), &token, limit)?;
    stream.write_all(&[YES])?;
    let ends = Ends::of(&sockets)?;
    Ok(Carrier::Takes(Mutex::new(Receiving::new(sockets, shared.silence())?), ends))
}

/// The connection over libfabric to go on with, if there is to be one.
fn offer_pipe(shared: &Shared, mut stream: &Stream, to: Member) -> Result<Option<Pipe>, AuthError> {
    let abroad = shared.routes.abroad(shared.own.node, to.node).is_some();
    let Some(provider) = shared.transport.provider().filter(|_| !abroad) else {
        stream.write_all(&[0])?;
        return Ok(None);
    };
    let name = provider.name().as_bytes();
    let length = u8::try_from(name.len()).map_err(|_| AuthError::Malformed)?;
    stream.write_all(&[&[length], name].concat())?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    match (answer, &shared.transport) {
        ([YES], _) => {}
        ([NO], LinkTransport::Either(_)) => return Ok(None),
        ([NO], _) => {
            let text = format!("it has no libfabric provider '{}' there", provider.name());
            return Err(AuthError::Io(io::Error::other(text)));
        }
        _ => return Err(AuthError::Malformed),
    }
    let (mut length, mut token) = ([0], Token::default());
    stream.read_exact(&mut length)?;
    let mut address = vec![0; usize::from(length[0])];
    stream.read_exact(&mut address)?;
    stream.read_exact(&mut token)?;
    let (leash, here) = leash(stream)?;
    let limit = shared.connect_limit();
    let pipe = connect(provider, here, (&address, &token), leash, limit).map_err(failed)?;
    let own = hello(shared, Role::LinkSender, to)?;
    let key = shared.secret.key();
    let other = auth::call(&mut pipe.timed(limit), key, &own, Role::LinkReceiver)?;
    judge(&other, shared, to)?;
    shared.piped.fetch_add(1, Relaxed);
    Ok(Some(pipe))
}

/// The called one's side of that.
fn take_pipe(
    shared: &Shared,
    mut stream: &Stream,
    from: Member,
) -> Result<Option<Pipe>, AuthError> {
    let mut length = [0];
    stream.read_exact(&mut length)?;
    if length == [0] {
        return Ok(None);
    }
    let mut name = vec![0; usize::from(length[0])];
    stream.read_exact(&mut name)?;
    let same = shared.transport.provider().filter(|p| p.name().as_bytes() == name);
    let Some(provider) = same else {
        stream.write_all(&[NO])?;
        return Ok(None);
    };
    let (leash, here) = leash(stream)?;
    let Key(random) = Key::new()?;
    let mut token = Token::default();
    token.copy_from_slice(&random[..TOKEN_BYTES]);
    let listener = match Listener::new(provider, here, token) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!("libfabric cannot listen at {here}: {error}");
            stream.write_all(&[NO])?;
            return Ok(None);
        }
    };
    let address = listener.address();
    let length = u8::try_from(address.len()).map_err(|_| AuthError::Malformed)?;
    stream.write_all(&[&[YES, length], address, &token].concat())?;
    let limit = shared.connect_limit();
    let pipe = listener.accept(leash, limit).map_err(failed)?;
    let own = |_: &Hello| hello(shared, Role::LinkReceiver, from);
    let (key, job) = (shared.secret.key(), &shared.job);
    let other = auth::answer(&mut pipe.timed(limit), key, job, Role::LinkSender, own)?;
    judge(&other, shared, from)?;
    shared.piped.fetch_add(1, Relaxed);
    Ok(Some(pipe))
}
