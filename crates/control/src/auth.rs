//! Who may join a job's connections: both ends prove that they know the job's key.
//!
//! Each end sends a hello with a number nobody has used before, then a keyed hash over both hellos;
//! so a proof is good for this one connection, and for one of its ends. The key is never sent.
//! This keeps strangers and other jobs out; it does not encrypt (`eyrie_tls` does, around it).
//!
//! Pure: bytes in and out. Kept true: a hello has a fixed length, so nothing that was not checked
//! decides how much is read.

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Bytes of a job's key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a hello on the wire.
pub const HELLO_BYTES: usize = 80;
/// Bytes of a proof on the wire.
pub const PROOF_BYTES: usize = 32;
/// Longest name of a job.
pub const JOB_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"EYRIENET";
const VERSION: u32 = 1;

/// The key of a job.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key(pub [u8; KEY_BYTES]);

impl Key {
    /// A key that nobody knows yet.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new() -> io::Result<Key> {
        let mut key = [0; KEY_BYTES];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        Ok(Key(key))
    }

    /// A key that is made of this one, for one purpose.
    pub fn derived(&self, purpose: &str) -> [u8; KEY_BYTES] {
        blake3::derive_key(purpose, &self.0)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Role {
    /// The controller of a job.
    Controller = 1,
    /// A node, towards the controller.
    Node = 2,
    /// A node that sends streams.
    LinkSender = 3,
    /// A node that receives streams.
    LinkReceiver = 4,
    /// A node that brings or fetches images.
    StoreClient = 5,
    /// The node that has them.
    StoreServer = 6,
    /// The first process of an `eyrie join`.
    Board = 7,
    /// Another one, which calls it.
    Seat = 8,
    /// A node that wants to reach one of another cluster, towards its own cluster's gateway.
    Passenger = 9,
    /// That gateway.
    Gateway = 10,
    /// A gateway that calls another cluster's.
    TunnelCaller = 11,
    /// The one that is called.
    TunnelServer = 12,
}

/// How one end of a connection introduces itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    pub role: Role,
    pub job: String,
    pub node: u32,
    pub epoch: u64,
    /// Whom it wants to speak to: node and epoch; zeros where that says nothing.
    pub to: (u32, u64),
    pub nonce: [u8; 16],
}

/// Why a connection was refused.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("the other end does not speak this protocol")]
    Malformed,
    #[error("the other end speaks version {0} of the protocol, this release knows {VERSION}")]
    Version(u32),
    #[error("it belongs to job '{0}'")]
    Job(String),
    #[error("it came as {found:?}, {wanted:?} was due")]
    Role { found: Role, wanted: Role },
    #[error("it does not know the job's key")]
    Key,
    #[error("it does not speak TLS, as this job does (--tls)")]
    Plain,
    #[error("its TLS handshake failed: {0}")]
    Tls(String),
    #[error("it did not introduce itself in time")]
    Silent,
    #[error(transparent)]
    Io(io::Error),
}

impl From<io::Error> for AuthError {
    fn from(error: io::Error) -> AuthError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AuthError::Silent,
            _ => AuthError::Io(error),
        }
    }
}

impl Hello {
    /// A hello with a new number.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(
        role: Role,
        job: &str,
        (node, epoch): (u32, u64),
        to: (u32, u64),
    ) -> io::Result<Hello> {
        let Key(random) = Key::new()?;
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&random[..16]);
        Ok(Hello { role, job: job.into(), node, epoch, to, nonce })
    }

    /// The bytes of `docs/formats/link.md`.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&(self.role as u32).to_le_bytes());
        let name = self.job.as_bytes();
        let length = name.len().min(JOB_BYTES);
        out[16..16 + length].copy_from_slice(&name[..length]);
        out[32..36].copy_from_slice(&self.node.to_le_bytes());
        out[36..40].copy_from_slice(&self.to.0.to_le_bytes());
        out[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        out[48..56].copy_from_slice(&self.to.1.to_le_bytes());
        out[56..72].copy_from_slice(&self.nonce);
        out
    }

    /// # Errors
    /// When the bytes are not a hello of this version.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, AuthError> {
        let half = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        if bytes[..8] != MAGIC {
            return Err(AuthError::Malformed);
        }
        if half(8) != VERSION {
            return Err(AuthError::Version(half(8)));
        }
        let role = match half(12) {
            1 => Role::Controller,
            2 => Role::Node,
            3 => Role::LinkSender,
            4 => Role::LinkReceiver,
            5 => Role::StoreClient,
            6 => Role::StoreServer,
            7 => Role::Board,
            8 => Role::Seat,
            9 => Role::Passenger,
            10 => Role::Gateway,
            11 => Role::TunnelCaller,
            12 => Role::TunnelServer,
            _ => return Err(AuthError::Malformed),
        };
        let name = &bytes[16..16 + JOB_BYTES];
        let length = name.iter().position(|b| *b == 0).unwrap_or(JOB_BYTES);
        let clean = name[length..].iter().chain(&bytes[72..]).all(|b| *b == 0);
        let job = std::str::from_utf8(&name[..length]).map_err(|_| AuthError::Malformed)?;
        if !clean || job.chars().any(char::is_control) {
            return Err(AuthError::Malformed);
        }
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&bytes[56..72]);
        let to = (half(36), word(48));
        Ok(Hello { role, job: job.into(), node: half(32), epoch: word(40), to, nonce })
    }
}

/// What the end that sent `own` has to send to prove itself to the end that sent `other`.
pub fn proof(key: &Key, own: &Hello, other: &Hello) -> [u8; PROOF_BYTES] {
    let mut both = [0; 2 * HELLO_BYTES];
    both[..HELLO_BYTES].copy_from_slice(&own.encode());
    both[HELLO_BYTES..].copy_from_slice(&other.encode());
    *blake3::keyed_hash(&key.0, &both).as_bytes()
}

/// Whether `found` is the proof of the end that sent `other`, towards the one that sent `own`.
pub fn proves(key: &Key, own: &Hello, other: &Hello, found: &[u8; PROOF_BYTES]) -> bool {
    // This comparison takes the same time wherever the difference is.
    blake3::Hash::from_bytes(proof(key, other, own)) == blake3::Hash::from_bytes(*found)
}

/// Speaks first: introduces this end, and has the other, which must come as `wanted`, prove itself.
///
/// # Errors
/// When the other end is not one of this job's. The connection is to be closed.
pub fn call(
    stream: &mut (impl Read + Write),
    key: &Key,
    own: &Hello,
    wanted: Role,
) -> Result<Hello, AuthError> {
    stream.write_all(&own.encode())?;
    let other = hear(stream, &own.job, wanted)?;
    stream.write_all(&proof(key, own, &other))?;
    judge(stream, key, own, &other)?;
    Ok(other)
}

/// Speaks second, with the hello that `own` makes of the caller's; a stranger learns nothing that
/// it could not see without the key.
///
/// # Errors
/// When the other end is not one of this job's. The connection is to be closed.
pub fn answer(
    stream: &mut (impl Read + Write),
    key: &Key,
    job: &str,
    wanted: Role,
    own: impl FnOnce(&Hello) -> io::Result<Hello>,
) -> Result<Hello, AuthError> {
    let other = hear(stream, job, wanted)?;
    let own = own(&other)?;
    stream.write_all(&own.encode())?;
    judge(stream, key, &own, &other)?;
    stream.write_all(&proof(key, &own, &other))?;
    Ok(other)
}

fn hear(stream: &mut impl Read, job: &str, wanted: Role) -> Result<Hello, AuthError> {
    let mut hello = [0; HELLO_BYTES];
    stream.read_exact(&mut hello)?;
    let other = Hello::decode(&hello)?;
    if other.job != job {
        return Err(AuthError::Job(other.job));
    }
    if other.role != wanted {
        return Err(AuthError::Role { found: other.role, wanted });
    }
    Ok(other)
}

fn judge(stream: &mut impl Read, key: &Key, own: &Hello, other: &Hello) -> Result<(), AuthError> {
    let mut found = [0; PROOF_BYTES];
    stream.read_exact(&mut found)?;
    if proves(key, own, other, &found) { Ok(()) } else { Err(AuthError::Key) }
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
