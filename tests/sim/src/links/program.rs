//! What the ranks do, and what is true about it.

use super::log::SLOT_BYTES;
use crate::random::{Random, mix};
use eyrie_protocol::link::wire::Stream;

/// Longest message, in slots. At most half a chunk.
const MOST_SLOTS: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `sync`: the rank goes on when it was received.
    Send {
        dst: u32,
        size: u64,
        sync: bool,
    },
    Receive {
        src: u32,
    },
}

/// Programs that end if every message comes: they follow one order of all that happens.
pub fn draw(random: &mut Random, ranks: u32, messages: u64) -> Vec<Vec<Op>> {
    let mut programs = vec![Vec::new(); ranks as usize];
    let mut sent: Vec<Stream> = Vec::new();
    let receive = |programs: &mut Vec<Vec<Op>>, (src, dst): Stream| {
        programs[dst as usize].push(Op::Receive { src });
    };
    for _ in 0..messages {
        let src = random.below(u64::from(ranks)) as u32;
        let dst = (src + 1 + random.below(u64::from(ranks) - 1) as u32) % ranks;
        let size = SLOT_BYTES * (1 + random.below(MOST_SLOTS));
        let sync = random.one_in(6);
        programs[src as usize].push(Op::Send { dst, size, sync });
        sent.push((src, dst));
        if sync {
            sent.iter().filter(|s| **s == (src, dst)).for_each(|s| receive(&mut programs, *s));
            sent.retain(|s| *s != (src, dst));
        }
        while !sent.is_empty() && random.one_in(2) {
            let first = random.below(sent.len() as u64) as usize;
            let stream = sent[first];
            let oldest = sent.iter().position(|s| *s == stream).unwrap_or(first);
            receive(&mut programs, sent.remove(oldest));
        }
    }
    sent.into_iter().for_each(|stream| receive(&mut programs, stream));
    programs
}

/// A rank's own memory.
#[derive(Debug, Clone)]
pub struct State {
    pub pc: usize,
    /// Position and number of the next message to each rank.
    pub sent: Vec<(u64, u64)>,
    /// The same of the next message from each.
    pub received: Vec<(u64, u64)>,
}

impl State {
    pub fn new(ranks: u32) -> State {
        let none = vec![(0, 0); ranks as usize];
        State { pc: 0, sent: none.clone(), received: none }
    }

    pub fn need(&self) -> Vec<u64> {
        self.received.iter().map(|r| r.0).collect()
    }
}

/// What messages say, and what has become of them.
pub struct Truth {
    /// Of each rank, for each of its lives after the loss of all that was only its own: from which
    /// message to each rank on it may say something else.
    lives: Vec<Vec<Vec<u64>>>,
    /// How many messages of each stream were ever received.
    matched: Vec<Vec<u64>>,
}

impl Truth {
    pub fn new(ranks: u32) -> Truth {
        let none = vec![0; ranks as usize];
        Truth {
            lives: vec![vec![none.clone()]; ranks as usize],
            matched: vec![none; ranks as usize],
        }
    }

    /// The life that a rank is in.
    pub fn life(&self, rank: u32) -> usize {
        self.lives[rank as usize].len() - 1
    }

    /// What was only the rank's own is lost: of its messages to each rank so many are known.
    pub fn lose(&mut self, rank: u32, known: Vec<u64>) {
        self.lives[rank as usize].push(known);
    }

    /// What a message says that is sent in this life.
    pub fn content(&self, (src, dst): Stream, number: u64, life: usize) -> u64 {
        let lives = &self.lives[src as usize][..=life];
        let last = lives.iter().rposition(|known| known[dst as usize] <= number);
        mix(mix(u64::from(src) << 32 | u64::from(dst), number), last.unwrap_or(0) as u64)
    }

    pub fn matched(&mut self, (src, dst): Stream, number: u64) {
        let matched = &mut self.matched[src as usize][dst as usize];
        *matched = (*matched).max(number + 1);
    }

    pub fn is_matched(&self, (src, dst): Stream, number: u64) -> bool {
        number < self.matched[src as usize][dst as usize]
    }
}
