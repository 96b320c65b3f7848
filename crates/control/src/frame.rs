//! Length-limited frames: four bytes of length (little endian), then one postcard message.
//!
//! Kept true: a length beyond the bound is refused before anything is allocated for it, and a
//! payload must be used up by its message to the last byte.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most payload bytes in one frame.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// The same between a controller and its nodes, which have proved themselves: determinants of a
/// rank, or its newest output, are one message.
pub const MAX_NODE_FRAME_BYTES: usize = 128 << 20;
/// Bytes of the length field.
pub const HEADER_BYTES: usize = 4;

/// Why a frame cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("frame is empty")]
    Empty,
    #[error("frame does not decode: {0}")]
    Malformed(String),
    #[error("{0} bytes are left over behind the message of a frame")]
    Trailing(usize),
}

/// One message as a frame.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    encode_within(MAX_FRAME_BYTES, message)
}

/// The same with a bound of its own.
pub fn encode_within<T: Serialize>(most: usize, message: &T) -> Result<Vec<u8>, FrameError> {
    let payload = postcard::to_stdvec(message).map_err(|e| FrameError::Malformed(e.to_string()))?;
    if payload.len() > most {
        return Err(FrameError::TooLong(payload.len()));
    }
    let mut frame = Vec::with_capacity(HEADER_BYTES + payload.len());
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(&payload);
    Ok(frame)
}

/// Puts frames together from whatever pieces a socket delivers.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    used: usize,
    most: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::within(MAX_FRAME_BYTES)
    }
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes frames up to `most` bytes.
    pub fn within(most: usize) -> Self {
        Decoder { buffer: Vec::new(), used: 0, most }
    }

    /// Takes bytes as they came.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.used > 0 {
            self.buffer.drain(..self.used);
            self.used = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, if all of it is there. After an error the connection must be closed:
    /// where the next frame begins is no longer known.
    pub fn next_message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        let rest = &self.buffer[self.used..];
        let Some(head) = rest.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*head) as usize;
        if length > self.most {
            return Err(FrameError::TooLong(length));
        }
        if length == 0 {
            return Err(FrameError::Empty);
        }
        let Some(payload) = rest.get(HEADER_BYTES..HEADER_BYTES + length) else {
            return Ok(None);
        };
        let (message, left) =
            postcard::take_from_bytes(payload).map_err(|e| FrameError::Malformed(e.to_string()))?;
        if !left.is_empty() {
            return Err(FrameError::Trailing(left.len()));
        }
        self.used += HEADER_BYTES + length;
        Ok(Some(message))
    }

    /// Bytes that belong to a frame whose end has not come yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ClientMsg, NodeMsg, Stream};
    use proptest::prelude::*;

    fn message() -> impl Strategy<Value = ClientMsg> {
        prop_oneof![
            any::<u32>().prop_map(|protocol| ClientMsg::Hello { protocol }),
            any::<Vec<u8>>().prop_map(ClientMsg::Stdin),
            Just(ClientMsg::StdinEof),
            any::<i32>().prop_map(ClientMsg::Signal),
            any::<Option<u32>>().prop_map(|rank| ClientMsg::Checkpoint { rank }),
            any::<Vec<u32>>().prop_map(|ranks| ClientMsg::Kill { ranks }),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting(messages in prop::collection::vec(message(), 0..8),
                                      cut in 1usize..40) {
            let wire: Vec<u8> = messages.iter().flat_map(|m| encode(m).unwrap()).collect();
            let mut decoder = Decoder::new();
            let mut got = Vec::new();
            for piece in wire.chunks(cut) {
                decoder.push(piece);
                while let Some(m) = decoder.next_message::<ClientMsg>().unwrap() {
                    got.push(m);
                }
            }
            prop_assert_eq!(got, messages);
            prop_assert_eq!(decoder.pending(), 0);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in any::<Vec<u8>>()) {
            let mut decoder = Decoder::new();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_message::<ClientMsg>() {}
            let mut decoder = Decoder::new();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_message::<NodeMsg>() {}
        }
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_at_once() {
        let mut decoder = Decoder::new();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(
            decoder.next_message::<ClientMsg>(),
            Err(FrameError::TooLong(u32::MAX as usize))
        );
        let long = ClientMsg::Stdin(vec![0; MAX_FRAME_BYTES + 1]);
        assert!(matches!(encode(&long), Err(FrameError::TooLong(_))));
    }

    #[test]
    fn an_empty_frame_and_left_over_bytes_are_refused() {
        let mut decoder = Decoder::new();
        decoder.push(&[0; 4]);
        assert_eq!(decoder.next_message::<ClientMsg>(), Err(FrameError::Empty));
        let mut frame = encode(&ClientMsg::StdinEof).unwrap();
        frame.push(9);
        frame[0] += 1;
        let mut decoder = Decoder::new();
        decoder.push(&frame);
        assert_eq!(decoder.next_message::<ClientMsg>(), Err(FrameError::Trailing(1)));
    }

    /// The bytes of `docs/formats/control.md`: a change here is a change of the protocol.
    #[test]
    fn golden_frames() {
        let hello = encode(&ClientMsg::Hello { protocol: 1 }).unwrap();
        assert_eq!(hello, [2, 0, 0, 0, 0, 1]);
        let line = NodeMsg::Output { rank: 2, stream: Stream::Stderr, bytes: b"hi\n".to_vec() };
        assert_eq!(encode(&line).unwrap(), [7, 0, 0, 0, 2, 2, 1, 3, b'h', b'i', b'\n']);
    }
}
