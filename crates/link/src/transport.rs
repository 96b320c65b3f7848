//! What carries a connection's bytes: its TCP connection, or over libfabric, with that as the
//! leash of it (`docs/formats/link.md`).
//!
//! The caller names its provider, the called one says where it listens with the same, or that it
//! does not. Both prove themselves once more over what they then have.
//!
//! Kept true: nothing but this is said on the TCP connection of one that goes over libfabric; in a
//! job over TCP nothing of it is said at all.

use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_control::auth::{self, AuthError, Hello, Key, Role};
use eyrie_fabric::{Listener, Pipe, Provider, TOKEN_BYTES, Token, connect};
use eyrie_protocol::membership::Member;
use eyrie_tls::Stream;

use crate::shared::Shared;

/// How the bytes between nodes of a cluster go.
#[derive(Clone, Debug)]
pub enum LinkTransport {
    Tcp,
    Fabric(Provider),
    /// Over libfabric where both ends have this provider, else over TCP.
    Either(Option<Provider>),
}

impl LinkTransport {
    fn provider(&self) -> Option<&Provider> {
        match self {
            LinkTransport::Tcp => None,
            LinkTransport::Fabric(provider) => Some(provider),
            LinkTransport::Either(provider) => provider.as_ref(),
        }
    }

    /// As `eyrie status` shows it.
    pub fn name(&self) -> String {
        self.provider().map_or_else(|| "tcp".into(), |p| format!("libfabric:{}", p.name()))
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

/// The caller's side: the connection over libfabric to go on with, if there is to be one.
pub(crate) fn offer(
    shared: &Shared,
    mut stream: &Stream,
    to: Member,
) -> Result<Option<Pipe>, AuthError> {
    if matches!(shared.transport, LinkTransport::Tcp) {
        return Ok(None);
    }
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

/// The called one's side.
pub(crate) fn take(
    shared: &Shared,
    mut stream: &Stream,
    from: Member,
) -> Result<Option<Pipe>, AuthError> {
    if matches!(shared.transport, LinkTransport::Tcp) {
        return Ok(None);
    }
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
