//! What is between a controller and a node: machines, which acknowledge what comes as long as they
//! are awake, and TCP, which sends again what was lost, later and later.

use crate::random::Random;
use std::collections::VecDeque;

/// When TCP sends again first.
const AGAIN_MS: u64 = 200;

/// A time in which something is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub until: u64,
}

impl Span {
    pub const NEVER: Span = Span { from: u64::MAX, until: u64::MAX };

    pub fn has(&self, now: u64) -> bool {
        (self.from..self.until).contains(&now)
    }

    pub fn long(&self) -> u64 {
        self.until - self.from
    }

    /// Whether it was within so long before.
    pub fn lately(&self, now: u64, before: u64) -> bool {
        self.from <= now && self.until.saturating_add(before) > now
    }

    /// One of at least and at most so many milliseconds.
    pub fn some(random: &mut Random, least: u64, most: u64) -> Span {
        let from = 4_000 + random.below(12_000);
        Span { from, until: from + least + random.below(most - least) }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Said {
    Beat { says: u64, stamp: Option<u64> },
    End,
}

/// One direction.
#[derive(Debug, Default)]
pub struct Way {
    comes: VecDeque<(u64, Said)>,
    /// Something was lost: when it is sent again, and how much later once more.
    again: Option<(u64, u64)>,
    /// Read by nobody yet.
    pub there: VecDeque<Said>,
}

impl Way {
    pub fn send(&mut self, due: u64, said: Said) {
        self.comes.push_back((due, said));
    }

    /// Takes what comes now to the other machine. Returns how much that is.
    pub fn carry(&mut self, now: u64, open: bool) -> u64 {
        let Some((due, _)) = self.comes.front().copied() else { return 0 };
        if now < due || self.again.is_some_and(|(at, _)| now < at) {
            return 0;
        }
        if !open {
            let (_, gap) = self.again.unwrap_or((0, AGAIN_MS));
            self.again = Some((now + gap, 2 * gap));
            return 0;
        }
        self.again = None;
        let before = self.there.len();
        while let Some((_, said)) = self.comes.pop_front_if(|(due, _)| *due <= now) {
            self.there.push_back(said);
        }
        (self.there.len() - before) as u64
    }
}
