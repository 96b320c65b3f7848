//! A rank's output stream across its incarnations.
//!
//! Kept true: every line is forwarded once and whole; a restored rank that writes again what it had
//! written is compared with it, as far as it is remembered, and not forwarded. Where it writes
//! something else (a time, a process number), what was printed stays: the lines that it repeats are
//! left out by their number, however long they are, and positions are those of the newest course.
//! Whoever wants another answer to a difference makes the tape strict.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Bytes of output remembered for comparison, each stream.
pub const HISTORY_BYTES: usize = 4 << 20;
/// A line longer than this is forwarded in parts.
pub const MAX_LINE_BYTES: usize = 128 << 10;
/// Checkpoints whose place is known in lines, too.
const MARKS: usize = 16;

/// Where a repeated output differs from the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub position: u64,
    /// What had been written there, and what was written now (up to a line).
    pub before: String,
    pub now: String,
}

/// What was printed beyond the end of the present course.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Ahead {
    /// Lines, the first being the one that the course is in.
    lines: u64,
    /// ... and so many bytes of the one after them.
    part: u64,
    /// Bytes that the course has of the line that it is in.
    at: u64,
}

/// How many lines there are before a position; not known before the position is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    position: u64,
    lines: Option<u64>,
}

/// One stream of one rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Tape {
    /// The furthest position that any incarnation of this course reached.
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
    /// A difference is refused.
    strict: bool,
    /// Ends of lines before `received`.
    lines: u64,
    /// Bytes that the line which `received` is in has before it, remembered or not.
    column: u64,
    marks: VecDeque<Mark>,
    ahead: Option<Ahead>,
    /// Bytes forwarded, of whichever course.
    forwarded: u64,
    /// The newest of them, once they are not those of `history`.
    sent: Option<VecDeque<u8>>,
    /// The most that was forwarded or stood behind that.
    furthest: u64,
    #[serde(skip)]
    differed: Option<Difference>,
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
            strict: false,
            lines: 0,
            column: 0,
            marks: VecDeque::from([Mark { position: 0, lines: Some(0) }]),
            ahead: None,
            forwarded: 0,
            sent: None,
            furthest: 0,
            differed: None,
        }
    }

    /// One on which every difference is an error.
    pub fn strict(self) -> Self {
        Tape { strict: true, ..self }
    }

    /// What is remembered: position of its first byte, and the bytes.
    pub fn history(&self) -> (u64, Vec<u8>) {
        (self.start(), self.history.iter().copied().collect())
    }

    fn start(&self) -> u64 {
        self.received - self.history.len() as u64
    }

    /// A strict tape that remembers these bytes, and is to be compared from `position` on.
    pub fn recorded(first: u64, bytes: &[u8], position: u64) -> Tape {
        let mut tape = Tape::new(HISTORY_BYTES).strict();
        tape.received = first.saturating_add(bytes.len() as u64);
        tape.forwarded = tape.received;
        tape.history.extend(bytes);
        tape.rewind(position.min(tape.received));
        tape
    }

    /// Bytes received from the present incarnation, counted from the program's start.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Bytes of this course so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// A mark that grows with what was never written before, and with nothing else.
    pub fn progress(&self) -> u64 {
        self.furthest
    }

    /// A new incarnation begins at `position`.
    pub fn rewind(&mut self, position: u64) {
        self.position = position.min(self.received);
        self.compare = self.position >= self.foreign;
    }

    /// A checkpoint was taken at `position`: whoever comes back from it begins there.
    pub fn mark(&mut self, position: u64) {
        if self.marks.iter().any(|m| m.position == position) {
            return;
        }
        let lines = if position > self.received { None } else { self.lines_at(position) };
        if lines.is_none() && position <= self.received {
            return;
        }
        self.marks.push_back(Mark { position, lines });
        if self.marks.len() > MARKS {
            self.marks.remove(1);
        }
    }

    /// The program begins anew and need not write the same again: what it repeats of the lines so
    /// far is dropped unseen.
    pub fn give_up(&mut self) {
        self.foreign = self.received;
        self.rewind(0);
    }

    /// So many bytes were printed, as whoever printed them knows; the daemon that forwarded them
    /// may have been killed since it wrote down what it knew.
    pub fn printed(&mut self, bytes: u64) {
        let Some(more) = bytes.checked_sub(self.forwarded) else { return };
        let known = more.min(self.pending.len() as u64);
        let known: Vec<u8> = self.pending.drain(..known as usize).collect();
        self.forward(&known);
        let unknown = bytes - self.forwarded;
        if unknown > 0 {
            let beyond = self.bytes_ahead() + unknown;
            self.received += beyond;
            self.column += beyond;
            self.forwarded = bytes;
            self.furthest = self.furthest.max(bytes);
            self.ahead = None;
            self.history.clear();
            self.sent.iter_mut().for_each(VecDeque::clear);
            // Nobody knows how many lines that were.
            self.marks.clear();
        }
    }

    /// Bytes that were printed beyond the end of the present course; as if all courses were alike
    /// where they are not remembered.
    fn bytes_ahead(&self) -> u64 {
        let Some(ahead) = self.ahead else { return 0 };
        if ahead.lines == 0 {
            return ahead.part.saturating_sub(ahead.at);
        }
        let sent = self.sent.as_ref().unwrap_or(&self.history);
        // The end of the line before those that are ahead.
        let mut ends = sent.iter().rev().enumerate().filter(|(_, byte)| **byte == b'\n');
        match ends.nth(ahead.lines as usize) {
            Some((bytes, _)) => (bytes as u64).saturating_sub(ahead.at),
            None => self.forwarded.saturating_sub(self.received),
        }
    }

    /// What a controller's successor needs of it, if so many bytes were printed.
    pub fn behind(&self, printed: u64) -> Tape {
        let mut tape = self.clone();
        tape.mark(self.position);
        let unprinted = self.forwarded.saturating_sub(printed) as usize;
        let mut keep = self.pending.len();
        match &mut tape.sent {
            Some(sent) => drop(sent.drain(..sent.len().saturating_sub(unprinted))),
            None => keep += unprinted,
        }
        tape.history.drain(..self.history.len().saturating_sub(keep));
        tape
    }

    /// What was forwarded beyond what was printed.
    pub fn unprinted(&self, printed: u64) -> Vec<u8> {
        let unprinted = self.forwarded.saturating_sub(printed) as usize;
        let (from, end) = match &self.sent {
            Some(sent) => (sent, sent.len()),
            None => (&self.history, self.history.len().saturating_sub(self.pending.len())),
        };
        from.iter().take(end).skip(end.saturating_sub(unprinted)).copied().collect()
    }

    /// Takes bytes as they came from the pipe. Returns complete lines to forward. On a difference
    /// that is refused nothing of `bytes` is forwarded.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, Difference> {
        // What is not remembered, or comes from elsewhere, is not held against this.
        let unknown = self.position < self.foreign || self.position < self.start();
        if unknown && !self.strict {
            self.leave_old_course();
        }
        let behind = self.received - self.position;
        let repeated = bytes.len().min(usize::try_from(behind).unwrap_or(usize::MAX));
        let (old, mut fresh) = bytes.split_at(repeated);
        let mut same = repeated;
        if self.compare
            && let Err(difference) = self.check(old)
        {
            if self.strict {
                return Err(difference);
            }
            same = difference.position.saturating_sub(self.position) as usize;
            self.differed = Some(difference);
        }
        self.position += same as u64;
        if same < repeated {
            self.leave_old_course();
            fresh = &bytes[same..];
        }
        if fresh.is_empty() {
            return Ok(None);
        }
        self.compare = true;
        self.append(fresh);
        let fresh = self.beyond_printed(fresh);
        self.pending.extend_from_slice(fresh);
        let lines = self.lines();
        self.forward(lines.as_deref().unwrap_or_default());
        Ok(lines)
    }

    /// Where the last bytes differed from what had been written there, if that was accepted.
    pub fn differed(&mut self) -> Option<Difference> {
        self.differed.take()
    }

    /// Whether there is an unfinished line.
    pub fn is_unfinished(&self) -> bool {
        !self.pending.is_empty()
    }

    /// What is left of an unfinished line.
    pub fn flush(&mut self) -> Option<Vec<u8>> {
        let rest = std::mem::take(&mut self.pending);
        self.forward(&rest);
        (!rest.is_empty()).then_some(rest)
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
        let start = self.start();
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

    /// The course ends where the present incarnation is, and another one begins. What was printed
    /// of the old one is ahead of it, as so many lines. Not done if nobody knows how many.
    fn leave_old_course(&mut self) {
        let Some(lines) = self.lines_at(self.position) else { return };
        let kept = self.position.saturating_sub(self.start()) as usize;
        let begin = |end: usize| {
            let before = self.history.iter().take(end);
            end - before.rev().take_while(|b| **b != b'\n').count()
        };
        // What is remembered may begin within a line. Where another line has begun since, nothing
        // depends on how much of this one there is.
        let at = if lines == self.lines {
            self.column.saturating_sub(self.received - self.position)
        } else {
            (kept - begin(kept)) as u64
        };
        let printed = self.column.saturating_sub(self.pending.len() as u64);
        let before = self.ahead.unwrap_or(Ahead { lines: 0, part: printed, at: 0 });
        let ahead = Ahead { lines: before.lines + (self.lines - lines), at, ..before };
        if self.sent.is_none() {
            let forwarded = self.history.len().saturating_sub(self.pending.len());
            self.sent = Some(self.history.iter().take(forwarded).copied().collect());
        }
        self.pending.clear();
        self.history.truncate(kept);
        (self.received, self.lines, self.column) = (self.position, lines, at);
        (self.foreign, self.compare) = (0, true);
        self.marks.retain(|m| m.position <= self.received);
        self.ahead = Some(ahead);
        if ahead.lines == 0 && ahead.at >= ahead.part {
            self.ahead = None;
            let from = kept.saturating_sub((ahead.at - ahead.part) as usize);
            self.pending = self.history.iter().skip(from).copied().collect();
        }
    }

    /// Ends of lines before a position.
    fn lines_at(&self, position: u64) -> Option<u64> {
        if position >= self.start() {
            let behind = self.received.saturating_sub(position) as usize;
            let after = self.history.iter().rev().take(behind).filter(|b| **b == b'\n').count();
            return Some(self.lines - after as u64);
        }
        self.marks.iter().find(|m| m.position == position)?.lines
    }

    /// What is new in this course.
    fn append(&mut self, fresh: &[u8]) {
        let ends = |bytes: &[u8]| bytes.iter().filter(|b| **b == b'\n').count() as u64;
        for mark in self.marks.iter_mut().filter(|m| m.lines.is_none()) {
            let within = mark.position.saturating_sub(self.received) as usize;
            mark.lines = fresh.get(..within).map(|bytes| self.lines + ends(bytes));
        }
        self.lines += ends(fresh);
        self.column = match fresh.iter().rposition(|b| *b == b'\n') {
            Some(end) => (fresh.len() - end - 1) as u64,
            None => self.column + fresh.len() as u64,
        };
        self.position += fresh.len() as u64;
        self.received += fresh.len() as u64;
        remember(&mut self.history, self.limit, fresh);
    }

    /// What is left of bytes when what was printed already is taken away.
    fn beyond_printed<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        let Some(ahead) = &mut self.ahead else { return bytes };
        while ahead.lines > 0 {
            let Some(end) = bytes.iter().position(|b| *b == b'\n') else {
                ahead.at += bytes.len() as u64;
                return &[];
            };
            (ahead.lines, ahead.at) = (ahead.lines - 1, 0);
            bytes = &bytes[end + 1..];
        }
        let left = usize::try_from(ahead.part.saturating_sub(ahead.at)).unwrap_or(usize::MAX);
        // A line that ends sooner than it did ends all the same.
        let known = bytes.iter().take(left).take_while(|b| **b != b'\n').count();
        ahead.at += known as u64;
        bytes = &bytes[known..];
        if known == left || !bytes.is_empty() {
            self.ahead = None;
        }
        bytes
    }

    fn forward(&mut self, bytes: &[u8]) {
        self.forwarded += bytes.len() as u64;
        if let Some(sent) = &mut self.sent {
            remember(sent, self.limit, bytes);
        }
        self.furthest = self.furthest.max(self.forwarded + self.pending.len() as u64);
    }

    fn excerpt(&self, position: u64) -> String {
        let skip = position.saturating_sub(self.start()) as usize;
        let bytes: Vec<u8> = self.history.iter().skip(skip).take(160).copied().collect();
        text_line(&bytes)
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

/// Appends to what is remembered, which stays as short as `limit`.
fn remember(history: &mut VecDeque<u8>, limit: usize, fresh: &[u8]) {
    let keep = &fresh[fresh.len().saturating_sub(limit)..];
    let surplus = (history.len() + keep.len()).saturating_sub(limit);
    history.drain(..surplus.min(history.len()));
    history.extend(keep);
}

fn text_line(bytes: &[u8]) -> String {
    let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned()
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
