//! What the ends of a job's connections know and nobody else does, and how they begin with it.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use eyrie_control::auth::{self, AuthError, Hello, Key, Role};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConnection, Connection, Error, ServerConnection};

use crate::Stream;
use crate::identity::Identity;
use crate::session::Session;

/// Longest handshake, beside the longest silence that the socket bears.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The key of a job, and whether its connections are encrypted.
#[derive(Clone)]
pub struct Secret {
    key: Key,
    identity: Option<Identity>,
}

impl Secret {
    /// # Errors
    /// When there is no pair of keys, which every key makes.
    pub fn new(key: Key, encrypted: bool) -> io::Result<Secret> {
        let identity = encrypted.then(|| Identity::of(&key)).transpose();
        Ok(Secret { key, identity: identity.map_err(io::Error::other)? })
    }

    /// Without encryption.
    pub fn plain(key: Key) -> Secret {
        Secret { key, identity: None }
    }

    pub fn key(&self) -> &Key {
        &self.key
    }

    pub fn encrypts(&self) -> bool {
        self.identity.is_some()
    }

    /// Speaks first. The socket's timeouts are to be those of a beginning.
    ///
    /// # Errors
    /// When the other end is not one of this job's.
    pub fn call(
        &self,
        socket: TcpStream,
        own: &Hello,
        wanted: Role,
    ) -> Result<(Stream, Hello), AuthError> {
        let session = match &self.identity {
            None => None,
            Some(identity) => {
                let name = ServerName::from(socket.peer_addr()?.ip());
                let client = ClientConnection::new(identity.client.clone(), name);
                Some(shake(&socket, Connection::Client(client.map_err(refusal)?))?)
            }
        };
        let mut stream = Stream::new(socket, session);
        let other = auth::call(&mut stream, &self.key, own, wanted)?;
        Ok((stream, other))
    }

    /// Speaks second, with the hello that `own` makes of the caller's.
    ///
    /// # Errors
    /// When the other end is not one of this job's.
    pub fn answer(
        &self,
        socket: TcpStream,
        job: &str,
        wanted: Role,
        own: impl FnOnce(&Hello) -> io::Result<Hello>,
    ) -> Result<(Stream, Hello), AuthError> {
        let session = match &self.identity {
            None => None,
            Some(identity) => {
                let server = ServerConnection::new(identity.server.clone()).map_err(refusal)?;
                Some(shake(&socket, Connection::Server(server))?)
            }
        };
        let mut stream = Stream::new(socket, session);
        let other = auth::answer(&mut stream, &self.key, job, wanted, own)?;
        Ok((stream, other))
    }
}

/// A socket while hands are shaken, for so long and no longer.
struct Hurried<'a> {
    socket: &'a TcpStream,
    end: Instant,
}

impl Read for Hurried<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() > self.end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.read(buffer)
    }
}

impl Write for Hurried<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    /// An alert is the last of several pieces, which are tried once.
    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn shake(socket: &TcpStream, mut tls: Connection) -> Result<Session, AuthError> {
    let mut hurried = Hurried { socket, end: Instant::now() + HANDSHAKE };
    while tls.is_handshaking() {
        tls.complete_io(&mut hurried).map_err(|error| match why(&error) {
            Some(why) => refusal(why.clone()),
            None => error.into(),
        })?;
    }
    Ok(Session::new(tls))
}

fn why(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref::<Error>())
}

/// In words that say what to look for.
fn refusal(error: Error) -> AuthError {
    use AlertDescription::{AccessDenied, BadCertificate, CertificateRequired, DecryptError};
    match error {
        // The other end's key is not this job's, or it has said that ours is not its.
        Error::InvalidCertificate(_)
        | Error::NoCertificatesPresented
        | Error::AlertReceived(
            AccessDenied | BadCertificate | CertificateRequired | DecryptError,
        ) => AuthError::Key,
        Error::InvalidMessage(_) => AuthError::Plain,
        other => AuthError::Tls(other.to_string()),
    }
}
