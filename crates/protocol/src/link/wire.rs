//! Frames of a link: eight bytes of length and kind, then a body of a fixed form.
//!
//! A connection carries the streams of one direction. The node that opened it sends `Open`, `Data`
//! and `Dets`, a router also `Mark`; the other answers with `Resume`, `Progress`, `Acked`, `Held`,
//! `Early`, `Skip` and `Bring`, to a router also with `Marked` and `GoOn`. Numbers are little
//! endian; the bytes are in `docs/formats/link.md`.
//!
//! Kept true: a length beyond the bound is refused before anything is stored for it; what is not
//! exactly a frame of the direction ends the connection.

use std::ops::Range;

/// Bytes before the body of a frame.
pub const HEADER_BYTES: usize = 8;
/// Bytes of the body of `Data` before its payload.
pub const DATA_BYTES: usize = 32;
/// Most payload bytes of a `Data`.
pub const PIECE_BYTES: u64 = 64 * 1024;
/// Longest body.
pub const MAX_BODY_BYTES: usize = 1 << 20;

const OPEN: u32 = 1;
const DATA: u32 = 2;
const DETS: u32 = 3;
const MARK: u32 = 4;
const RESUME: u32 = 17;
const PROGRESS: u32 = 18;
const ACKED: u32 = 19;
const HELD: u32 = 20;
const EARLY: u32 = 21;
const MARKED: u32 = 22;
const GO_ON: u32 = 23;
const SKIP: u32 = 24;
const BRING: u32 = 25;

/// What does not decode.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    #[error("a frame of {0} bytes is longer than {MAX_BODY_BYTES}")]
    TooLong(usize),
    #[error("a frame of kind {0} is not one of this direction")]
    Kind(u32),
    #[error("a frame of kind {kind} has {found} bytes")]
    Length { kind: u32, found: usize },
}

/// A stream: source and destination.
pub type Stream = (u32, u32);

/// From the sender's node to the receiver's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Forward<'a> {
    /// There is something in this stream: where may it go on?
    Open { stream: Stream },
    /// A piece of a stream from position `from` on. `chain`: over the headers before it, at the
    /// beginning of a chunk.
    Data { stream: Stream, serial: u32, from: u64, chain: u64, bytes: &'a [u8] },
    /// Determinants (`gate::ToReplica`, postcard).
    Dets { bytes: &'a [u8] },
    /// From a router: nothing more comes to this rank, until it is let go on (`pause`).
    Mark { rank: u32, generation: u32 },
}

/// From the receiver's node to the sender's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backward {
    /// Go on from here, up to `credit`. Pieces bear `serial` from now on. The receiver may have
    /// acknowledged entries from `need` on, and says which right behind this. `life`: how often its
    /// recovery unit went back, as far as its node has heard.
    Resume {
        stream: Stream,
        serial: u32,
        life: u32,
        from: u64,
        need: u64,
        credit: u64,
    },
    Progress {
        stream: Stream,
        have: u64,
        need: u64,
        credit: u64,
    },
    /// The message that begins there was matched.
    Acked {
        stream: Stream,
        position: u64,
    },
    /// All determinants up to this number are held.
    Held {
        upto: u64,
    },
    /// The receiver takes early messages at this UDP port if they bear the token.
    Early {
        stream: Stream,
        port: u16,
        token: [u64; 2],
    },
    /// All that came before this mark was taken.
    Marked {
        rank: u32,
        generation: u32,
    },
    /// The rank runs again: what goes to it goes on.
    GoOn {
        rank: u32,
        generation: u32,
    },
    /// The receiver has passed all before `from`, as it came early: go on from there, as after a
    /// `Resume`; all else that was said stands.
    Skip {
        stream: Stream,
        serial: u32,
        from: u64,
        need: u64,
        credit: u64,
    },
    /// What was given to a wire is to be carried: the receiver cannot keep it.
    Bring {
        stream: Stream,
    },
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from(half(bytes, at)) | u64::from(half(bytes, at + 4)) << 32
}

fn frame(out: &mut Vec<u8>, kind: u32, body: usize, halves: &[u32], words: &[u64]) {
    out.extend_from_slice(&(body as u32).to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    halves.iter().for_each(|h| out.extend_from_slice(&h.to_le_bytes()));
    words.iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
}

/// Kind and body of the first frame in `bytes`, if it is there whole, and where it ends.
///
/// # Errors
/// When it can never become a frame.
pub fn split(bytes: &[u8]) -> Result<Option<(u32, Range<usize>)>, WireError> {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (length, kind) = (half(head, 0) as usize, half(head, 4));
    if length > MAX_BODY_BYTES {
        return Err(WireError::TooLong(length));
    }
    let body = HEADER_BYTES..HEADER_BYTES + length;
    Ok((bytes.len() >= body.end).then_some((kind, body)))
}

/// The `Data` that `bytes` begin with but do not hold whole, with the beginning of its payload, and
/// how long that is in all. `None`: it is none, or no correct one, or its fixed part is not here.
pub fn begun(bytes: &[u8]) -> Option<(Forward<'_>, usize)> {
    let head = bytes.first_chunk::<HEADER_BYTES>()?;
    let payload = (half(head, 0) as usize).checked_sub(DATA_BYTES)?;
    let here = bytes.len().checked_sub(HEADER_BYTES + DATA_BYTES)?;
    if here >= payload {
        return None;
    }
    match Forward::decode(half(head, 4), &bytes[HEADER_BYTES..]) {
        Ok(data @ Forward::Data { .. }) if payload as u64 <= PIECE_BYTES => Some((data, payload)),
        _ => None,
    }
}

impl<'a> Forward<'a> {
    /// Appends the frame; the payload of `Data` is left to the caller, who says how long it is.
    pub fn encode(&self, out: &mut Vec<u8>, payload: usize) {
        match self {
            Forward::Open { stream: (s, d) } => frame(out, OPEN, 8, &[*s, *d], &[]),
            Forward::Data { stream: (s, d), serial, from, chain, .. } => {
                let halves = [*s, *d, *serial, 0];
                frame(out, DATA, DATA_BYTES + payload, &halves, &[*from, *chain]);
            }
            Forward::Dets { bytes } => {
                frame(out, DETS, bytes.len(), &[], &[]);
                out.extend_from_slice(bytes);
            }
            Forward::Mark { rank, generation } => {
                frame(out, MARK, 8, &[*rank, *generation], &[]);
            }
        }
    }

    /// # Errors
    /// When the body is not one of this kind.
    pub fn decode(kind: u32, body: &'a [u8]) -> Result<Self, WireError> {
        let wrong = WireError::Length { kind, found: body.len() };
        let stream = |body: &[u8]| (half(body, 0), half(body, 4));
        match kind {
            OPEN if body.len() == 8 => Ok(Forward::Open { stream: stream(body) }),
            DATA if body.len() > DATA_BYTES && half(body, 12) == 0 => {
                let (serial, from, chain) = (half(body, 8), word(body, 16), word(body, 24));
                let bytes = &body[DATA_BYTES..];
                if bytes.len() as u64 > PIECE_BYTES {
                    return Err(wrong);
                }
                Ok(Forward::Data { stream: stream(body), serial, from, chain, bytes })
            }
            DETS => Ok(Forward::Dets { bytes: body }),
            MARK if body.len() == 8 => {
                Ok(Forward::Mark { rank: half(body, 0), generation: half(body, 4) })
            }
            OPEN | DATA | MARK => Err(wrong),
            _ => Err(WireError::Kind(kind)),
        }
    }
}

impl Backward {
    /// Appends the frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Backward::Resume { stream: (s, d), serial, life, from, need, credit } => {
                frame(out, RESUME, 40, &[s, d, serial, life], &[from, need, credit]);
            }
            Backward::Progress { stream: (s, d), have, need, credit } => {
                frame(out, PROGRESS, 32, &[s, d], &[have, need, credit]);
            }
            Backward::Acked { stream: (s, d), position } => {
                frame(out, ACKED, 16, &[s, d], &[position]);
            }
            Backward::Held { upto } => frame(out, HELD, 8, &[], &[upto]),
            Backward::Early { stream: (s, d), port, token } => {
                frame(out, EARLY, 32, &[s, d, u32::from(port), 0], &token);
            }
            Backward::Marked { rank, generation } => {
                frame(out, MARKED, 8, &[rank, generation], &[]);
            }
            Backward::GoOn { rank, generation } => {
                frame(out, GO_ON, 8, &[rank, generation], &[]);
            }
            Backward::Skip { stream: (s, d), serial, from, need, credit } => {
                frame(out, SKIP, 40, &[s, d, serial, 0], &[from, need, credit]);
            }
            Backward::Bring { stream: (s, d) } => frame(out, BRING, 8, &[s, d], &[]),
        }
    }

    /// # Errors
    /// When the body is not one of this kind.
    pub fn decode(kind: u32, body: &[u8]) -> Result<Self, WireError> {
        let stream = || (half(body, 0), half(body, 4));
        match (kind, body.len()) {
            (RESUME, 40) => Ok(Backward::Resume {
                stream: stream(),
                serial: half(body, 8),
                life: half(body, 12),
                from: word(body, 16),
                need: word(body, 24),
                credit: word(body, 32),
            }),
            (PROGRESS, 32) => Ok(Backward::Progress {
                stream: stream(),
                have: word(body, 8),
                need: word(body, 16),
                credit: word(body, 24),
            }),
            (ACKED, 16) => Ok(Backward::Acked { stream: stream(), position: word(body, 8) }),
            (HELD, 8) => Ok(Backward::Held { upto: word(body, 0) }),
            (EARLY, 32) if half(body, 12) == 0 => Ok(Backward::Early {
                stream: stream(),
                port: u16::try_from(half(body, 8)).map_err(|_| WireError::Kind(kind))?,
                token: [word(body, 16), word(body, 24)],
            }),
            (MARKED, 8) => Ok(Backward::Marked { rank: half(body, 0), generation: half(body, 4) }),
            (GO_ON, 8) => Ok(Backward::GoOn { rank: half(body, 0), generation: half(body, 4) }),
            (SKIP, 40) if half(body, 12) == 0 => Ok(Backward::Skip {
                stream: stream(),
                serial: half(body, 8),
                from: word(body, 16),
                need: word(body, 24),
                credit: word(body, 32),
            }),
            (BRING, 8) => Ok(Backward::Bring { stream: stream() }),
            (RESUME..=BRING, found) => Err(WireError::Length { kind, found }),
            _ => Err(WireError::Kind(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_encoded_decodes() {
        let stream = (3, 4);
        let frames = [
            Backward::Resume { stream, serial: 5, life: 2, from: 64, need: 6, credit: 1 << 40 },
            Backward::Progress { stream, have: 1, need: 2, credit: 3 },
            Backward::Acked { stream, position: 64 },
            Backward::Held { upto: 9 },
            Backward::Early { stream, port: 40_000, token: [7, 1 << 63] },
            Backward::Marked { rank: 3, generation: 1 << 31 },
            Backward::GoOn { rank: 4, generation: 9 },
            Backward::Skip { stream, serial: 6, from: 1 << 18, need: 64, credit: 1 << 41 },
            Backward::Bring { stream },
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|f| f.encode(&mut bytes));
        for frame in frames {
            let (kind, body) = split(&bytes).unwrap().unwrap();
            assert_eq!(Backward::decode(kind, &bytes[body.clone()]), Ok(frame));
            bytes.drain(..body.end);
        }
        let data = Forward::Data { stream, serial: 1, from: 128, chain: 7, bytes: &[1; 64] };
        data.encode(&mut bytes, 64);
        bytes.extend([1; 64]);
        let (kind, body) = split(&bytes).unwrap().unwrap();
        assert_eq!(Forward::decode(kind, &bytes[body]), Ok(data));
        assert_eq!(begun(&bytes), None, "it is here whole");
        let part = Forward::Data { stream, serial: 1, from: 128, chain: 7, bytes: &[1; 40] };
        assert_eq!(begun(&bytes[..bytes.len() - 24]), Some((part, 64)));
        assert_eq!(begun(&bytes[..HEADER_BYTES + DATA_BYTES]), None);
        bytes.clear();
        let mark = Forward::Mark { rank: 5, generation: 6 };
        mark.encode(&mut bytes, 0);
        let (kind, body) = split(&bytes).unwrap().unwrap();
        assert_eq!(Forward::decode(kind, &bytes[body]), Ok(mark));
    }

    /// The bytes of `docs/formats/link.md`: a change here is a change of the protocol.
    #[test]
    fn golden_frames() {
        let mut out = Vec::new();
        Forward::Open { stream: (1, 2) }.encode(&mut out, 0);
        assert_eq!(out, [8, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
        out.clear();
        Backward::Held { upto: 258 }.encode(&mut out);
        assert_eq!(out, [8, 0, 0, 0, 20, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]);
        out.clear();
        Forward::Mark { rank: 1, generation: 2 }.encode(&mut out, 0);
        assert_eq!(out, [8, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in any::<Vec<u8>>(), kind in 0u32..28) {
            let _ = split(&bytes);
            if let Some((Forward::Data { bytes: here, .. }, payload)) = begun(&bytes) {
                prop_assert!(!here.is_empty() && here.len() < payload);
            }
            let _ = (Forward::decode(kind, &bytes), Backward::decode(kind, &bytes));
        }
    }
}
