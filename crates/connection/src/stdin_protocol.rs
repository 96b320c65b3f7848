//! What a process of a job is told on its standard input: the protocol's number, then frames.
//!
//! Kept true: nothing is taken from who speaks another protocol; nothing is read beyond what was
//! asked for but what came with it.

use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::{Decoder, PROTOCOL};
use serde::de::DeserializeOwned;
use std::io::{self, Read};

/// Why a process does not know what it is to do.
#[derive(Debug, thiserror::Error)]
pub enum StdinError {
    #[error("standard input: {0}")]
    Input(io::Error),
    #[error("what it is told on standard input ends too early, or does not decode")]
    Malformed,
    #[error(
        "the eyrie here speaks protocol {PROTOCOL}, the job's {0}: install the same version on all \
         hosts"
    )]
    Protocol(u32),
}

/// Standard input.
pub struct StdinReader(Decoder);

impl StdinReader {
    /// Whoever speaks there speaks this protocol.
    pub fn begin() -> Result<StdinReader, StdinError> {
        let mut told = StdinReader(Decoder::within(MAX_NODE_FRAME_BYTES));
        match told.need()? {
            PROTOCOL => Ok(told),
            other => Err(StdinError::Protocol(other)),
        }
    }

    /// What comes next. None: the input has ended.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, StdinError> {
        let mut buffer = [0; 16 * 1024];
        loop {
            if let Some(message) = self.0.next_message().map_err(|_| StdinError::Malformed)? {
                return Ok(Some(message));
            }
            match io::stdin().read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.0.push(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StdinError::Input(error)),
            }
        }
    }

    /// The same, where it has to come.
    pub fn need<T: DeserializeOwned>(&mut self) -> Result<T, StdinError> {
        self.next_message()?.ok_or(StdinError::Malformed)
    }

    /// Whether nothing came behind what was taken.
    pub fn is_empty(&self) -> bool {
        self.0.pending() == 0
    }
}
