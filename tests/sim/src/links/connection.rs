//! Connections as bytes on their way: in portions, up to where it breaks.

use crate::random::Random;
use eyrie_protocol::membership::Member;
use std::collections::VecDeque;

/// Bytes on their way from which on a socket takes no more.
pub const FULL_BYTES: usize = 3000;

/// Side 0 has called and sends streams, side 1 answers.
pub struct Connection {
    pub ends: [Member; 2],
    /// Whether each side takes part (still).
    pub open: [bool; 2],
    /// What each side has sent, and has not come.
    pub flight: [VecDeque<u8>; 2],
    /// What has come to each side, and is no whole frame yet.
    pub read: [Vec<u8>; 2],
    /// Nothing gets on it any more.
    pub broken: bool,
    /// One of the two has closed it.
    pub shut: bool,
    /// Nothing comes before.
    pub stalled_until: u64,
}

impl Connection {
    pub fn new(caller: Member, called: Member) -> Connection {
        Connection {
            ends: [caller, called],
            open: [false; 2],
            flight: Default::default(),
            read: Default::default(),
            broken: false,
            shut: false,
            stalled_until: 0,
        }
    }

    /// False: it is lost.
    pub fn send(&mut self, side: usize, bytes: &[u8]) -> bool {
        if self.broken || !self.open[side] {
            return false;
        }
        self.flight[side].extend(bytes);
        true
    }

    /// Moves a portion of what is for `side` to it. Whether more is on its way.
    pub fn arrive(&mut self, side: usize, random: &mut Random) -> bool {
        let flight = &mut self.flight[1 - side];
        let length = flight.len() as u64;
        if length == 0 {
            return false;
        }
        let portion = if random.one_in(2) { length } else { 1 + random.below(length) };
        self.read[side].extend(flight.drain(..portion as usize));
        !flight.is_empty()
    }

    /// What is on its way gets there up to any byte.
    pub fn tear(&mut self, random: &mut Random) {
        self.broken = true;
        for flight in &mut self.flight {
            let left = random.below(flight.len() as u64 + 1);
            flight.truncate(left as usize);
        }
    }
}
