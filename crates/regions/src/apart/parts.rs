//! Parts of those who share a folder with a member, handed to it through MPI: where a process may
//! be restored alone, what it gets from others has to come to it again, and files do not.
//!
//! Kept true: who hands over answers its member only, until that says that it has what it wants.

use super::packet::{Area, MAX_READ_BYTES, Packet, hear, say};
use crate::error::RegionsError;
use crate::peers::Peers;
use std::io::{self, Read};

/// The part of another process.
pub struct Asked<'a> {
    peers: &'a Peers,
    rank: u32,
    at: u64,
}

impl<'a> Asked<'a> {
    pub fn new(peers: &'a Peers, rank: u32) -> Asked<'a> {
        Asked { peers, rank, at: 0 }
    }

    fn piece(&self, most: usize) -> Result<Vec<u8>, RegionsError> {
        let (name, at) = (String::new(), self.at);
        let bytes = u32::try_from(most.min(MAX_READ_BYTES)).unwrap_or(0);
        say(self.peers, self.rank, &Packet::Read { area: Area::Parts, name, at, bytes }, &[])?;
        match hear(self.peers)? {
            (from, Packet::Bytes { good: true }, piece)
                if from == self.rank && piece.len() <= bytes as usize =>
            {
                Ok(piece)
            }
            _ => Err(RegionsError::Use("something else is said than a part".into())),
        }
    }
}

impl Read for Asked<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let piece = self.piece(to.len()).map_err(|error| io::Error::other(error.to_string()))?;
        to[..piece.len()].copy_from_slice(&piece);
        self.at += piece.len() as u64;
        Ok(piece.len())
    }
}

/// A member asks these for nothing more.
pub fn release(peers: &Peers, ranks: impl Iterator<Item = u32>) -> Result<(), RegionsError> {
    for rank in ranks {
        say(peers, rank, &Packet::Done, &[])?;
    }
    peers.flush()
}

/// Hands this process's part to its member, as far as that asks for it.
pub fn hand_over(peers: &Peers, member: u32, part: &[u8]) -> Result<(), RegionsError> {
    loop {
        match hear(peers)? {
            (from, Packet::Read { at, bytes, .. }, _) if from == member => {
                let rest = usize::try_from(at).ok().and_then(|at| part.get(at..));
                let rest = rest.unwrap_or_default();
                let piece = &rest[..rest.len().min(bytes as usize).min(MAX_READ_BYTES)];
                say(peers, member, &Packet::Bytes { good: true }, piece)?;
            }
            (from, Packet::Done, _) if from == member => return peers.flush(),
            _ => return Err(RegionsError::Use("something else is said than of parts".into())),
        }
    }
}
