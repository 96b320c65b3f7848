//! A rank's output stream across its incarnations.
//!
//! Kept true: every byte position is forwarded once; a restored rank that writes again what it
//! had written is compared with it, as far as it is remembered, and not forwarded; lines come out
//! whole.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Bytes of output remembered for comparison, each stream.
pub const HISTORY_BYTES: usize = 4 << 20;
/// A line longer than this is forwarded in parts.
pub const MAX_LINE_BYTES: usize = 128 << 10;

/// Where a repeated output differs from the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub position: u64,
    /// What had been written there, and what was written now (up to a line).
    pub before: String,
    pub now: String,
}

/// One stream of one rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tape {
    /// Bytes forwarded: the furthest position any incarnation reached.
    received: u64,
    /// Position of the present incarnation.
    position: u64,
    /// The newest bytes before `received`.
    history: VecDeque<u8>,
    limit: usize,
    compare: bool,
    /// Bytes before this come from a course of the job that was given up.
    foreign: u64,
    pending: Vec<u8>,
}

impl Tape {
    pub fn new(limit: usize) -> Self {
        Tape {
            received: 0,
            position: 0,
            history: VecDeque::new(),
            limit,
            compare: true,
            foreign: 0,
            pending: Vec::new(),
        }
    }

    /// What is remembered: position of its first byte, and the bytes.
    pub fn history(&self) -> (u64, Vec<u8>) {
        let bytes: Vec<u8> = self.history.iter().copied().collect();
        (self.received - bytes.len() as u64, bytes)
    }

    /// A tape that remembers these bytes, and is to be compared from `position` on.
    pub fn recorded(first: u64, bytes: &[u8], position: u64) -> Tape {
        let mut tape = Tape::new(HISTORY_BYTES);
        tape.received = first.saturating_add(bytes.len() as u64);
        tape.history.extend(bytes);
        tape.rewind(position.min(tape.received));
        tape
    }

    /// Bytes received from the present incarnation, counted from the program's start.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes forwarded so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// A new incarnation begins at `position`.
    pub fn rewind(&mut self, position: u64) {
        debug_assert!(position <= self.received);
        self.position = position.min(self.received);
        self.compare = self.position >= self.foreign;
    }

    /// The program begins anew and need not write the same again: what it repeats of the bytes so
    /// far is dropped unseen.
    pub fn give_up(&mut self) {
        self.foreign = self.received;
        self.rewind(0);
    }

    /// So many bytes were printed, as whoever printed them knows; the daemon that forwarded them
    /// may have been killed since it wrote down what it knew.
    pub fn printed(&mut self, bytes: u64) {
        let forwarded = self.received - self.pending.len() as u64;
        if bytes > self.received {
            self.received = bytes;
            self.pending.clear();
            self.history.clear();
        } else if bytes > forwarded {
            self.pending.drain(..(bytes - forwarded) as usize);
        }
    }

    /// What a controller's successor needs of it, if so many bytes were printed.
    pub fn behind(&self, printed: u64) -> Tape {
        let first = self.received - self.history.len() as u64;
        let most = self.history.len().saturating_sub(self.pending.len());
        let skip = (printed.saturating_sub(first) as usize).min(most);
        let history = self.history.iter().skip(skip).copied().collect();
        let pending = self.pending.clone();
        let Tape { received, position, limit, compare, foreign, .. } = *self;
        Tape { received, position, history, limit, compare, foreign, pending }
    }

    /// What was forwarded beyond what was printed.
    pub fn unprinted(&self, printed: u64) -> Vec<u8> {
        let first = self.received - self.history.len() as u64;
        let forwarded = self.received - self.pending.len() as u64;
        let (from, to) = (printed.max(first), forwarded.max(first));
        let skip = (from - first) as usize;
        self.history.iter().skip(skip).take(to.saturating_sub(from) as usize).copied().collect()
    }

    /// Takes bytes as they came from the pipe. Returns complete lines to forward. On a difference
    /// nothing of `bytes` is forwarded.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Difference> {
        let behind = self.received - self.position;
        let repeated = bytes.len().min(usize::try_from(behind).unwrap_or(usize::MAX));
        let (old, fresh) = bytes.split_at(repeated);
        if self.compare {
            self.check(old)?;
        }
        self.position += bytes.len() as u64;
        if fresh.is_empty() {
            return Ok(None);
        }
        self.compare = true;
        self.received += fresh.len() as u64;
        self.remember(fresh);
        self.pending.extend_from_slice(fresh);
        Ok(self.lines())
    }

    /// What is left of an unfinished line.
    pub fn flush(&mut self) -> Option<Vec<u8>> {
        (!self.pending.is_empty()).then(|| std::mem::take(&mut self.pending))
    }

    /// A run is over that ought to have written all that is remembered.
    pub fn check_complete(&self) -> Result<(), Difference> {
        if self.position == self.received {
            return Ok(());
        }
        Err(Difference {
            position: self.position,
            before: self.excerpt(self.position),
            now: String::from("(nothing more)"),
        })
    }

    fn check(&self, old: &[u8]) -> Result<(), Difference> {
        let start = self.received - self.history.len() as u64;
        let unknown = start.saturating_sub(self.position).min(old.len() as u64) as usize;
        let from = (self.position + unknown as u64).saturating_sub(start) as usize;
        let known = &old[unknown..];
        let same = |(a, b): (&u8, &u8)| a == b;
        let equal = self.history.iter().skip(from).zip(known).take_while(|p| same(*p)).count();
        if equal == known.len() {
            return Ok(());
        }
        let position = self.position + (unknown + equal) as u64;
        let now = text_line(&known[equal..]);
        Err(Difference { position, before: self.excerpt(position), now })
    }

    fn excerpt(&self, position: u64) -> String {
        let start = self.received - self.history.len() as u64;
        let skip = position.saturating_sub(start) as usize;
        let bytes: Vec<u8> = self.history.iter().skip(skip).take(160).copied().collect();
        text_line(&bytes)
    }

    fn remember(&mut self, fresh: &[u8]) {
        let keep = &fresh[fresh.len().saturating_sub(self.limit)..];
        let surplus = (self.history.len() + keep.len()).saturating_sub(self.limit);
        self.history.drain(..surplus.min(self.history.len()));
        self.history.extend(keep);
    }

    fn lines(&mut self) -> Option<Vec<u8>> {
        let end = match self.pending.iter().rposition(|b| *b == b'\n') {
            Some(at) => at + 1,
            None if self.pending.len() > MAX_LINE_BYTES => self.pending.len(),
            None => return None,
        };
        let rest = self.pending.split_off(end);
        Some(std::mem::replace(&mut self.pending, rest))
    }
}

fn text_line(bytes: &[u8]) -> String {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_protocol::testing::Random;

    #[test]
    fn lines_come_whole_and_the_last_part_at_the_end() {
        let mut tape = Tape::new(100);
        assert_eq!(tape.feed(b"ab"), Ok(None));
        assert_eq!(tape.feed(b"c\nde\nf"), Ok(Some(b"abc\nde\n".to_vec())));
        assert_eq!(tape.flush(), Some(b"f".to_vec()));
        assert_eq!(tape.flush(), None);
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(tape.feed(&long).unwrap().map(|l| l.len()), Some(MAX_LINE_BYTES + 1));
    }

    #[test]
    fn a_repeated_part_is_not_forwarded() {
        let mut tape = Tape::new(100);
        tape.feed(b"one\ntwo\nth").unwrap();
        tape.rewind(4);
        assert_eq!(tape.feed(b"two\n"), Ok(None));
        assert_eq!(tape.feed(b"three\n"), Ok(Some(b"three\n".to_vec())));
        assert_eq!(tape.position(), tape.received());
    }

    #[test]
    fn a_difference_names_both_versions() {
        let mut tape = Tape::new(100);
        tape.feed(b"one\ntwo\n").unwrap();
        tape.rewind(0);
        let found = tape.feed(b"one\ntoo\n").unwrap_err();
        assert_eq!(found, Difference { position: 5, before: "wo".into(), now: "oo".into() });
        tape.rewind(4);
        assert_eq!(tape.check_complete().unwrap_err().before, "two");
        tape.give_up();
        assert_eq!(tape.feed(b"one\ntoo\n"), Ok(None));
        assert!(tape.check_complete().is_ok());
        tape.feed(b"new\n").unwrap();
        tape.rewind(8);
        assert!(tape.feed(b"nix\n").is_err());
        tape.rewind(4);
        assert_eq!(tape.feed(b"too\nnew\n"), Ok(None));
    }

    #[test]
    fn a_successor_prints_what_was_not_printed() {
        let mut tape = Tape::new(100);
        tape.feed(b"one\ntwo\nth").unwrap();
        assert_eq!(tape.unprinted(0), b"one\ntwo\n");
        assert_eq!(tape.unprinted(4), b"two\n");
        let mut next = tape.behind(4);
        assert_eq!((next.unprinted(4), next.unprinted(8)), (b"two\n".to_vec(), Vec::new()));
        assert_eq!(next.feed(b"ree\n"), Ok(Some(b"three\n".to_vec())));
        let mut next = tape.behind(8);
        assert_eq!(next.flush(), Some(b"th".to_vec()));
        assert_eq!(next.unprinted(8), b"th");
        next.rewind(0);
        assert_eq!(next.feed(b"one\ntwo\nthx\n"), Ok(Some(b"x\n".to_vec())));
    }

    #[test]
    fn what_was_printed_is_not_printed_again() {
        let mut tape = Tape::new(100);
        tape.feed(b"one\ntwo\nth").unwrap();
        let mut known = tape.clone();
        known.printed(8);
        assert_eq!((known.received(), known.pending.len()), (10, 2));
        known.printed(9);
        assert_eq!((known.received(), known.pending.as_slice()), (10, &b"h"[..]));
        known.printed(14);
        known.give_up();
        known.rewind(4);
        assert_eq!(known.feed(b"two\nthree\nfour\n"), Ok(Some(b"four\n".to_vec())));
    }

    /// Random deaths and restores: what comes out is what an undisturbed program writes.
    #[test]
    fn the_forwarded_stream_is_that_of_an_undisturbed_run() {
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let whole: Vec<u8> = (0..2000)
                .map(|_| if random.below(9) == 0 { b'\n' } else { b'a' + random.below(26) as u8 })
                .collect();
            let mut tape = Tape::new(if seed % 2 == 0 { 1 << 20 } else { 64 });
            let mut out = Vec::new();
            let (mut at, mut point) = (0usize, 0usize);
            while at < whole.len() {
                match random.below(12) {
                    0 => point = at,
                    1 => {
                        at = point;
                        tape.rewind(point as u64);
                    }
                    _ => {
                        let n = (1 + random.below(90) as usize).min(whole.len() - at);
                        let lines = tape.feed(&whole[at..at + n]).unwrap();
                        at += n;
                        if let Some(lines) = lines {
                            assert_eq!(lines.last(), Some(&b'\n'), "seed {seed}");
                            out.extend(lines);
                        }
                    }
                }
            }
            out.extend(tape.flush().unwrap_or_default());
            assert_eq!(out, whole, "seed {seed}");
        }
    }
}
