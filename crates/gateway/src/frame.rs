//! Frames between two gateways (`docs/formats/gateway.md`).
//!
//! Kept true: a frame's length is bounded by its kind before anything of it is used; what is taken
//! is encoded to the same bytes again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of a frame's head: length of the body, kind, zero, stream.
pub const HEAD_BYTES: usize = 8;
/// Most bytes of a stream in one frame.
pub const MAX_DATA_BYTES: usize = 16 << 10;
/// Bytes of an address.
pub const TARGET_BYTES: usize = 20;

const OPEN: u8 = 1;
const OPENED: u8 = 2;
const DATA: u8 = 3;
const CREDIT: u8 = 4;
const END: u8 = 5;
const RESET: u8 = 6;
const BLOCK: u8 = 7;
const BLOCKED: u8 = 8;
const UNBLOCK: u8 = 9;

/// Why a stream is not opened, or ends before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Reason {
    #[error("there is no way to the other cluster's gateway just now")]
    NoWay = 1,
    #[error("the node does not answer its gateway")]
    Unreachable = 2,
    #[error("the connection behind it broke")]
    Broke = 3,
    #[error("the gateways have as many streams as they can")]
    Full = 4,
    #[error("the other cluster takes nothing just now")]
    Blocked = 5,
}

impl Reason {
    /// That of a byte on the wire.
    pub fn of(byte: u8) -> Option<Reason> {
        [Reason::NoWay, Reason::Unreachable, Reason::Broke, Reason::Full, Reason::Blocked]
            .into_iter()
            .find(|reason| *reason as u8 == byte)
    }
}

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A new stream, to this address in the other cluster.
    Open {
        stream: u32,
        target: SocketAddr,
    },
    /// It stands.
    Opened {
        stream: u32,
    },
    Data {
        stream: u32,
        bytes: &'a [u8],
    },
    /// So many bytes more may be sent.
    Credit {
        stream: u32,
        bytes: u32,
    },
    /// No bytes follow in this direction.
    End {
        stream: u32,
    },
    /// The stream is over in both directions, and what is under way is lost.
    Reset {
        stream: u32,
        reason: Reason,
    },
    /// Take nothing new, send what is taken, and say so.
    Block {
        number: u64,
    },
    /// Done; all streams together had so many bytes on this connection.
    Blocked {
        number: u64,
        bytes: u64,
    },
    /// Go on.
    Unblock {
        number: u64,
    },
}

/// What no correct gateway sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a frame of unknown kind {0}")]
    Kind(u8),
    #[error("a frame of kind {kind} with {bytes} bytes")]
    Length { kind: u8, bytes: u16 },
    #[error("a frame of kind {0} that does not decode")]
    Body(u8),
}

/// Bytes of an address: 4 or 6, zero, port, and the address with zeros behind it.
pub fn put_target(target: &SocketAddr) -> [u8; TARGET_BYTES] {
    let mut out = [0; TARGET_BYTES];
    out[2..4].copy_from_slice(&target.port().to_le_bytes());
    match target.ip() {
        IpAddr::V4(ip) => {
            out[0] = 4;
            out[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out[0] = 6;
            out[4..].copy_from_slice(&ip.octets());
        }
    }
    out
}

/// The address of these bytes, if they are one.
pub fn target(bytes: &[u8; TARGET_BYTES]) -> Option<SocketAddr> {
    let mut long = [0; 16];
    long.copy_from_slice(&bytes[4..]);
    let [a, b, c, d, rest @ ..] = long;
    let ip = match bytes[0] {
        4 if rest == [0; 12] => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        6 => IpAddr::V6(Ipv6Addr::from(long)),
        _ => return None,
    };
    let port = u16::from_le_bytes([bytes[2], bytes[3]]);
    (bytes[1] == 0 && port > 0).then(|| SocketAddr::new(ip, port))
}

/// Whether a body of a kind may be so long.
fn fits(kind: u8, bytes: usize) -> Result<bool, FrameError> {
    Ok(match kind {
        OPEN => bytes == TARGET_BYTES,
        OPENED | END => bytes == 0,
        DATA => (1..=MAX_DATA_BYTES).contains(&bytes),
        CREDIT => bytes == 4,
        RESET => bytes == 1,
        BLOCK | UNBLOCK => bytes == 8,
        BLOCKED => bytes == 16,
        kind => return Err(FrameError::Kind(kind)),
    })
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl<'a> Frame<'a> {
    /// The first frame of `bytes` and how many it has. `None`: it is not whole yet.
    ///
    /// # Errors
    /// When no correct gateway sends this.
    pub fn split(bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, FrameError> {
        let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else { return Ok(None) };
        let length = u16::from_le_bytes([head[0], head[1]]);
        let kind = head[2];
        if !fits(kind, usize::from(length))? {
            return Err(FrameError::Length { kind, bytes: length });
        }
        let stream = word(&head[4..]) as u32;
        let of_stream = !matches!(kind, BLOCK | BLOCKED | UNBLOCK);
        if head[3] != 0 || of_stream != (stream > 0) {
            return Err(FrameError::Body(kind));
        }
        let Some(body) = rest.get(..usize::from(length)) else { return Ok(None) };
        let frame = Frame::of(kind, stream, body).ok_or(FrameError::Body(kind))?;
        Ok(Some((frame, HEAD_BYTES + body.len())))
    }

    /// The body has the length of its kind.
    fn of(kind: u8, stream: u32, body: &'a [u8]) -> Option<Frame<'a>> {
        Some(match kind {
            OPEN => Frame::Open { stream, target: target(body.try_into().ok()?)? },
            OPENED => Frame::Opened { stream },
            DATA => Frame::Data { stream, bytes: body },
            CREDIT => {
                let bytes = word(body) as u32;
                return (bytes > 0).then_some(Frame::Credit { stream, bytes });
            }
            END => Frame::End { stream },
            RESET => Frame::Reset { stream, reason: Reason::of(body[0])? },
            BLOCK => Frame::Block { number: word(body) },
            BLOCKED => Frame::Blocked { number: word(&body[..8]), bytes: word(&body[8..]) },
            _ => Frame::Unblock { number: word(body) },
        })
    }

    /// Appends its bytes. Data is at most `MAX_DATA_BYTES` long.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |kind: u8, stream: u32, body: &[u8]| {
            out.extend_from_slice(&(body.len() as u16).to_le_bytes());
            out.extend_from_slice(&[kind, 0]);
            out.extend_from_slice(&stream.to_le_bytes());
            out.extend_from_slice(body);
        };
        match self {
            Frame::Open { stream, target } => put(OPEN, *stream, &put_target(target)),
            Frame::Opened { stream } => put(OPENED, *stream, &[]),
            Frame::Data { stream, bytes } => put(DATA, *stream, bytes),
            Frame::Credit { stream, bytes } => put(CREDIT, *stream, &bytes.to_le_bytes()),
            Frame::End { stream } => put(END, *stream, &[]),
            Frame::Reset { stream, reason } => put(RESET, *stream, &[*reason as u8]),
            Frame::Block { number } => put(BLOCK, 0, &number.to_le_bytes()),
            Frame::Blocked { number, bytes } => {
                let mut body = [0; 16];
                body[..8].copy_from_slice(&number.to_le_bytes());
                body[8..].copy_from_slice(&bytes.to_le_bytes());
                put(BLOCKED, 0, &body);
            }
            Frame::Unblock { number } => put(UNBLOCK, 0, &number.to_le_bytes()),
        }
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
