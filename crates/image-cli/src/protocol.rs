//! What a supervisor is asked and answers: one line of JSON each, over its Unix socket.

use crate::args::Way;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// Longest line of either side.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Write an image now.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Where to; the supervisor chooses if there is none.
    pub output: Option<PathBuf>,
    /// How.
    pub way: Way,
}

/// An image that was written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Written {
    pub image: PathBuf,
    pub bytes: u64,
    /// Pages of 4 KiB that are stored.
    pub pages: u64,
    /// Pages that have not changed and lie in earlier images.
    pub unchanged_pages: u64,
    /// How the content was kept from the freeze on.
    pub mode: String,
    /// How long the program stood still.
    pub pause_ms: f64,
    /// From the request to the durable file.
    pub took_ms: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Written(Written),
    Failed(String),
}

/// Sends one message.
pub fn send(mut socket: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    socket.write_all(&line)
}

/// Receives one message.
pub fn receive<T: for<'a> Deserialize<'a>>(socket: &UnixStream) -> io::Result<T> {
    let mut line = Vec::new();
    BufReader::new(socket.take(MAX_LINE_BYTES)).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}
