//! What a node holds of other nodes' determinants, in memory, to give it back when they die.
//!
//! Pure. Kept true: what is held of a rank is one contiguous piece of its log, and only ever grows
//! at its end or is trimmed at its beginning; nothing is taken from an incarnation of a node after
//! this node was told that it is dead, so what was answered in a recovery stays all there is.

use crate::gate::{Piece, ToReplica};
use crate::membership::Member;
use eyrie_ledger::door;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Words of one rank's determinant log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// Position of the first.
    pub first: u64,
    pub words: Vec<u64>,
}

impl Words {
    pub fn end(&self) -> u64 {
        self.first + self.words.len() as u64
    }
}

/// What a node answers in a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The ranks asked for of which it holds something.
    pub held: BTreeMap<u32, Words>,
    /// The homes with which it was in step: of these it holds all that anything depends on.
    pub in_step: Vec<Member>,
    /// More of the answer follows.
    pub partly: bool,
}

impl Answer {
    /// The same in parts of one rank each: of a rank everything fits into one message, of all that
    /// a node had perhaps not.
    pub fn parts(self) -> impl Iterator<Item = Answer> {
        let Answer { held, in_step, .. } = self;
        let (mut held, mut in_step) = (held.into_iter(), Some(in_step));
        std::iter::from_fn(move || {
            let own = held.next();
            let partly = held.len() > 0;
            let in_step = if partly { Vec::new() } else { in_step.take()? };
            Some(Answer { held: own.into_iter().collect(), in_step, partly })
        })
    }
}

/// Why a frame is not taken. The connection it came by is to be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("determinants of {0}, which is no longer a member, are refused")]
    Fenced(Member),
    #[error("determinants of rank {rank} from position {first} on leave a gap after {end}")]
    Gap { rank: u32, first: u64, end: u64 },
    #[error("determinants of rank {rank} differ at position {at} from those held")]
    Differs { rank: u32, at: u64 },
}

#[derive(Debug, Clone, Default)]
struct ReplicaLog {
    first: u64,
    words: VecDeque<u64>,
}

impl ReplicaLog {
    fn end(&self) -> u64 {
        self.first + self.words.len() as u64
    }

    fn trim(&mut self, upto: u64) {
        let surplus = upto.saturating_sub(self.first).min(self.words.len() as u64);
        self.words.drain(..surplus as usize);
        self.first += surplus;
    }

    fn take(&mut self, piece: &Piece) -> Result<(), Refused> {
        let (rank, first) = (piece.rank, piece.first);
        if first > self.end() {
            if !piece.base {
                return Err(Refused::Gap { rank, first, end: self.end() });
            }
            *self = ReplicaLog { first, words: VecDeque::new() };
        }
        if piece.base {
            self.trim(first);
        }
        let end = self.end();
        for (at, &word) in (first..).zip(&piece.words).skip_while(|(at, _)| *at < self.first) {
            if at >= end {
                self.words.push_back(word);
                continue;
            }
            let held = &mut self.words[(at - self.first) as usize];
            if *held == word {
                continue;
            }
            // Only a run of fruitless calls changes, by growing, and only at the end. A smaller one
            // is an older frame.
            let runs = door::is_run(*held) && door::is_run(word);
            if !runs || (word > *held && at + 1 < end) {
                return Err(Refused::Differs { rank, at });
            }
            *held = word.max(*held);
        }
        Ok(())
    }
}

/// All that one node holds for others.
#[derive(Debug, Clone, Default)]
pub struct Replicas {
    ranks: BTreeMap<u32, ReplicaLog>,
    /// For each rank: words before this are not needed, whenever they come.
    floors: BTreeMap<u32, u64>,
    /// Members that have sent everything up to some moment.
    in_step: Vec<Member>,
    /// For each node that died: epochs up to this one are refused.
    fences: BTreeMap<u32, u64>,
}

impl Replicas {
    /// Takes a frame from the gate of `home`. Returns the number to acknowledge.
    pub fn take(&mut self, home: Member, frame: &ToReplica) -> Result<Option<u64>, Refused> {
        if self.fences.get(&home.node).is_some_and(|fence| home.epoch <= *fence) {
            return Err(Refused::Fenced(home));
        }
        for piece in &frame.pieces {
            let held = self.ranks.entry(piece.rank).or_default();
            held.take(piece)?;
            held.trim(self.floors.get(&piece.rank).copied().unwrap_or(0));
        }
        if frame.upto.is_some() && !self.in_step.contains(&home) {
            self.in_step.push(home);
        }
        Ok(frame.upto)
    }

    /// `dead` is no member any more: whatever still comes from it is refused. To be called before
    /// `answer` in the recovery of its ranks.
    pub fn fence(&mut self, dead: Member) {
        let fence = self.fences.entry(dead.node).or_default();
        *fence = (*fence).max(dead.epoch);
    }

    /// What is held of `ranks`.
    pub fn answer(&self, ranks: &[u32]) -> Answer {
        let held = ranks.iter().filter_map(|rank| {
            let held = self.ranks.get(rank)?;
            let words = held.words.iter().copied().collect();
            Some((*rank, Words { first: held.first, words }))
        });
        Answer { held: held.collect(), in_step: self.in_step.clone(), partly: false }
    }

    /// No kept checkpoint of `rank` needs words before `upto`.
    pub fn trim(&mut self, rank: u32, upto: u64) {
        let floor = self.floors.entry(rank).or_default();
        *floor = upto.max(*floor);
        if let Some(held) = self.ranks.get_mut(&rank) {
            held.trim(upto);
            if held.words.is_empty() {
                held.first = held.first.max(upto);
            }
        }
    }

    /// `rank` has ended well: it is never restored.
    pub fn forget(&mut self, rank: u32) {
        self.ranks.remove(&rank);
    }

    /// All ranks go back to the beginning: what was recorded so far never happened. (The nodes get
    /// new epochs, so that nothing of it is taken afterwards.)
    pub fn restart(&mut self, dead: &[Member]) {
        self.ranks.clear();
        self.floors.clear();
        self.in_step.clear();
        dead.iter().for_each(|m| self.fence(*m));
    }

    /// Words held, for `eyrie status`.
    pub fn words(&self) -> u64 {
        self.ranks.values().map(|h| h.words.len() as u64).sum()
    }
}

/// The longest of several holdings of one rank's log; all are beginnings of one history, the last
/// word of each possibly still growing.
pub fn longest(all: impl IntoIterator<Item = Words>) -> Option<Words> {
    all.into_iter().max_by_key(|w| (w.end(), w.words.last().copied(), w.words.len()))
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;
