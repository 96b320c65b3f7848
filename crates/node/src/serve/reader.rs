//! What the console and clients say to the daemon.

use eyrie_control::{ClientMsg, Decoder, FrameError};
use tokio::io::AsyncReadExt;
use tokio::net::unix::OwnedReadHalf;

const READ_BYTES: usize = 64 * 1024;

/// The receiving side of a connection.
pub struct Reader {
    socket: OwnedReadHalf,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl Reader {
    pub fn new(socket: OwnedReadHalf) -> Reader {
        Reader { socket, decoder: Decoder::new(), buffer: vec![0; READ_BYTES] }
    }

    /// The next message; `None` when the connection is over.
    pub async fn next(&mut self) -> Result<Option<ClientMsg>, FrameError> {
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(Some(message));
            }
            match self.socket.read(&mut self.buffer).await {
                Ok(0) | Err(_) => return Ok(None),
                Ok(count) => self.decoder.push(&self.buffer[..count]),
            }
        }
    }
}
