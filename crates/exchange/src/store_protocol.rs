//! What nodes say to each other's stores: who they are, what they ask and are answered.
//!
//! Kept true: no length that comes from another node is taken at its word; a file that is taken
//! appears under its name when all of it is there.

use crate::expected_images::Token;
use eyrie_control::auth::AuthError;
use eyrie_control::frame::{HEADER_BYTES, MAX_FRAME_BYTES};
use eyrie_control::{Decoder, FrameError, encode};
use eyrie_image::{ImageError, create_private};
use eyrie_tls::{Call, Routes, Secret, Stream};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longest silence in the middle of a conversation while the other end looks whether the process of
/// an image can run there, for which it reads the files that this has mapped.
pub const FITTING: Duration = Duration::from_secs(60);
/// Longest silence between the parts of two sums of the vault.
pub(crate) const ENCODING: Duration = Duration::from_secs(600);
/// Bytes that are read ahead: words are short, and a part of a sum follows its own at once.
pub(crate) const AHEAD_BYTES: usize = 16 << 10;
/// So much of a file is taken at once: little enough to be in a cache when it is written.
pub const COPY_BYTES: usize = 256 << 10;
/// Longest file that is taken.
pub const MAX_FILE_BYTES: u64 = 1 << 46;

/// Most bytes of the vault that are read at once.
pub const MAX_RANGE_BYTES: u32 = 1 << 20;

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Take this file, whose bytes follow, unless it is there.
    Put { name: String, bytes: u64 },
    /// Give this file. With `here`: from here, also if it is in an object store.
    Get { name: String, here: bool },
    /// Take this of a sum that the vault makes; so many bytes follow. It is not answered.
    Part { generation: u64, task: (usize, usize), row: Option<u64>, bytes: u32 },
    /// Give these bytes of a file of the vault, as many as there are.
    Range { name: String, at: u64, bytes: u32 },
    /// How long is this file of the vault?
    Length { name: String },
    /// Take this image, which is just being written, unless it is there (`image_stream`), by this
    /// key (`expected_images`).
    Stream { name: String, key: Token },
    /// Take more of this image, which comes by another connection, by the same key.
    Beside { name: String, key: Token },
    /// Take so many bytes, which follow, and leave them: how fast is the way here?
    Probe { bytes: u32 },
    /// The gateway of this node's cluster is there now.
    Gateway { at: SocketAddr },
}

/// The number by which a gateway calls the store of a node, to say where it is; its epoch is that
/// of its start.
pub(crate) const HERALD: u32 = u32::MAX - 8;

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Put: go on. Get, range: so many bytes follow. Length, probe: it is that.
    Go(u64),
    /// Put: it is there. Length: it is not.
    Done,
    Failed(String),
    /// Get: it is in an object store, and this says how it is fetched (`second_level::FetchOrder`).
    Elsewhere(Vec<u8>),
    /// Get: it is in an object store, from which it does not come now, for this reason.
    Later(String),
}

/// Why a file cannot be brought or fetched.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("node {0} is no member of the job")]
    NoMember(u32),
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the other node answers: {0}")]
    Refused(String),
    #[error("the other node cannot give it now: {0}")]
    Later(String),
    #[error("it does not keep to the protocol")]
    Protocol,
    #[error("it is not brought: {0}")]
    Image(#[from] ImageError),
    #[error("an image comes without a key for that, or with one that was used before")]
    Uninvited,
}

/// Who a node of the job is.
#[derive(Clone)]
pub struct Identity {
    pub job: String,
    pub node: u32,
    pub epoch: u64,
    pub secret: Secret,
    /// How the others are reached.
    pub routes: Routes,
    /// Longest silence in the middle of a conversation.
    pub silence: Duration,
}

/// The other members, by node: epoch, and where their store is.
pub type Members = Arc<Mutex<Vec<(u32, u64, SocketAddr)>>>;

/// A connection, and what ends it when the other node is no member any more.
pub type Way = (Stream, Call);

/// A connection of which is read ahead. What is written goes by its stream.
pub type Talk = BufReader<Stream>;

pub fn send<T: Serialize>(stream: &mut Stream, message: &T) -> Result<(), StoreError> {
    Ok(stream.write_all(&encode(message)?)?)
}

pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, StoreError> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(FrameError::TooLong(length).into());
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    let mut decoder = Decoder::new();
    decoder.push(&head);
    decoder.push(&payload);
    decoder.next_message()?.ok_or(StoreError::Protocol)
}

/// Writes all pieces, one behind the other.
pub(crate) fn write_all(stream: &mut Stream, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Those that are empty are passed by.
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match stream.write_vectored(pieces) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut pieces, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Copies all there is. [`io::copy`] would ask for 8 KiB at a time.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<u64> {
    let (mut buffer, mut all) = (vec![0; COPY_BYTES], 0);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(all),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                all += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes `bytes` from `from` into the file `name`, if they are admitted when all are there.
pub(crate) fn take(
    from: &mut impl Read,
    folder: &Path,
    name: &str,
    bytes: u64,
    admit: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    // The same file may be on its way twice.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let unborn = folder.join(format!(".{name}.{count}.part"));
    let result = create_private(&unborn)
        .and_then(|mut file| copy(&mut from.take(bytes), &mut file))
        .and_then(
            |got| if got == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) },
        )
        .map_err(StoreError::Io)
        .and_then(|()| admit())
        .and_then(|()| Ok(std::fs::rename(&unborn, folder.join(name))?));
    if result.is_err() {
        let _ = std::fs::remove_file(&unborn);
    }
    result
}
