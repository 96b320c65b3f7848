//! What processes say to one another between the functions that all call together.
//!
//! Kept true: whatever comes is looked at before it is used, and no longer than `MAX_BYTES`.

use crate::error::RegionsError;
use crate::peers::Peers;
use eyrie_vault::encoding::Message;
use eyrie_vault::geometry::CHUNK_BYTES;
use serde::{Deserialize, Serialize};

/// Bytes of a file that are asked for at once.
pub const MAX_READ_BYTES: usize = CHUNK_BYTES as usize;
/// Longest name of a file that is asked for.
const MAX_NAME_BYTES: usize = 512;
/// Longest packet: a chunk, a name, and numbers.
const MAX_BYTES: usize = MAX_READ_BYTES + MAX_NAME_BYTES + 256;

/// Which of a node's folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Area {
    Vault,
    Parts,
}

/// What is said; bytes stand behind it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Packet {
    /// Of a sum: a row, whose bytes follow, or credit for one more.
    Sum { task: (usize, usize), row: Option<u64> },
    /// Nothing more of sums comes from it. Whether it has all that it is to have.
    Ended { well: bool },
    /// Wants bytes of a file.
    Read { area: Area, name: String, at: u64, bytes: u32 },
    /// Wants the length of a file.
    Length { area: Area, name: String },
    /// Here they are; or it is not so.
    Bytes { good: bool },
    /// `None`: it is not there.
    Is(Option<u64>),
    /// It asks for nothing more.
    Done,
    /// Nobody does.
    Over,
    /// Bytes follow that are of no use but to find out how fast they come; more do unless these are
    /// the last.
    Probe { last: bool },
    /// They have come.
    Probed,
}

/// Says something to a process.
pub fn say(peers: &Peers, to: u32, packet: &Packet, bytes: &[u8]) -> Result<(), RegionsError> {
    let strange = |_| RegionsError::Use("a packet cannot be written".into());
    let mut all = postcard::to_allocvec(packet).map_err(strange)?;
    all.extend_from_slice(bytes);
    peers.send(to, &all)
}

/// Waits for what is said next.
pub fn hear(peers: &Peers) -> Result<(u32, Packet, Vec<u8>), RegionsError> {
    let (from, bytes) = peers.receive(MAX_BYTES)?;
    let strange = |_| RegionsError::Use(format!("process {from} says what nobody understands"));
    let (packet, rest) = postcard::take_from_bytes(&bytes).map_err(strange)?;
    Ok((from, packet, rest.to_vec()))
}

/// A member's message to another.
pub fn of_sum(message: &Message) -> (Packet, &[u8]) {
    let Message { task, block } = message;
    let (row, bytes) = block.as_ref().map_or((None, &[][..]), |(row, bytes)| (Some(*row), bytes));
    (Packet::Sum { task: *task, row }, bytes)
}

pub fn to_sum(task: (usize, usize), row: Option<u64>, bytes: Vec<u8>) -> Message {
    Message { task, block: row.map(|row| (row, bytes.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_packet_has_room() {
        let name = "x".repeat(MAX_NAME_BYTES);
        let (at, bytes) = (u64::MAX, u32::MAX);
        let read = Packet::Read { area: Area::Parts, name, at, bytes };
        assert!(postcard::to_allocvec(&read).unwrap().len() <= MAX_BYTES);
        let sum = Packet::Sum { task: (usize::MAX, usize::MAX), row: Some(u64::MAX) };
        assert!(postcard::to_allocvec(&sum).unwrap().len() + MAX_READ_BYTES <= MAX_BYTES);
    }
}
