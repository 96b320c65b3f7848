//! The simulated network: connections that keep order, take their time, break with what is on them,
//! and may be replaced by one side before the other has noticed.

use crate::random::Random;
use crate::types::{Endpoint, Packet, Time};
use std::collections::VecDeque;

/// A connection. What is sent by side 0 is in `queues[0]`.
#[derive(Clone)]
pub struct Conn {
    pub ends: [Endpoint; 2],
    /// Whether each side still takes part.
    pub open: [bool; 2],
    pub queues: [VecDeque<(Time, Packet)>; 2],
    last: [Time; 2],
    /// Nothing gets through any more.
    pub broken: bool,
    /// Nothing gets through until it is healed or broken.
    pub blocked: bool,
}

impl Conn {
    pub fn new(a: Endpoint, b: Endpoint) -> Self {
        Conn {
            ends: [a, b],
            open: [true; 2],
            queues: [VecDeque::new(), VecDeque::new()],
            last: [0; 2],
            broken: false,
            blocked: false,
        }
    }

    /// Puts a packet on its way; returns when it arrives.
    pub fn send(&mut self, side: usize, packet: Packet, now: Time, random: &mut Random) -> Time {
        let slow = if random.one_in(20) { 400 } else { 40 };
        let at = (now + 5 + random.below(slow)).max(self.last[side]);
        self.last[side] = at;
        self.queues[side].push_back((at, packet));
        at
    }

    /// Which side `end` is.
    pub fn side(&self, end: Endpoint) -> Option<usize> {
        self.ends.iter().position(|e| *e == end)
    }
}
