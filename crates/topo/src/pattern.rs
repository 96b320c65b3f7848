//! Which ranks send how much to which: of known kinds of programs, or as lines of text.
//!
//! All messages of a pattern begin at one time. A rank's messages are in the order in which it
//! starts them; `lane` says which of the node's engines sends, and receives, one.

use crate::shape::MOST_NODES;

/// Most messages of a pattern.
pub const MOST_MESSAGES: usize = 1 << 22;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message {
    pub from: u32,
    pub to: u32,
    /// Against the others of the pattern, or in bytes.
    pub bytes: f64,
    pub lane: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    pub ranks: u32,
    pub messages: Vec<Message>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("'{0}' is no pattern: write for example stencil:6x11, ring:64 or random:64:4")]
    Kind(String),
    #[error("'{0}' are no sizes: write for example 6x11")]
    Sizes(String),
    #[error("more than {MOST_NODES} ranks")]
    Ranks,
    #[error("more than {MOST_MESSAGES} messages")]
    Messages,
    #[error("line {line}: '{text}': write two ranks and a number of bytes")]
    Line { line: usize, text: String },
    #[error("line {line}: rank {rank} sends to itself")]
    Itself { line: usize, rank: u32 },
    #[error("no messages")]
    Empty,
}

/// Sizes from `6x11`.
fn sizes(text: &str) -> Result<Vec<u32>, PatternError> {
    let wrong = || PatternError::Sizes(text.into());
    let parts: Result<Vec<u32>, _> = text.split('x').map(str::parse).collect();
    let parts = parts.map_err(|_| wrong())?;
    let mut product = 1u32;
    for part in &parts {
        product =
            product.checked_mul(*part).filter(|n| *n <= MOST_NODES).ok_or(PatternError::Ranks)?;
    }
    if product == 0 || parts.len() > 8 { Err(wrong()) } else { Ok(parts) }
}

impl Pattern {
    /// From `KIND:SIZES`, each message of `bytes`.
    pub fn parse(text: &str, bytes: f64) -> Result<Pattern, PatternError> {
        let kind = || PatternError::Kind(text.into());
        let words: Vec<&str> = text.split(':').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u32>().ok());
        let ranks = |at: usize| match number(at) {
            Some(ranks) if ranks > MOST_NODES => Err(PatternError::Ranks),
            Some(ranks) if ranks > 0 => Ok(ranks),
            _ => Err(kind()),
        };
        let pattern = match words.as_slice() {
            ["stencil", dims] => Pattern::stencil(&sizes(dims)?, false, bytes),
            ["stencil", dims, "periodic"] => Pattern::stencil(&sizes(dims)?, true, bytes),
            ["one-way", dims] => Pattern::one_way(&sizes(dims)?, bytes),
            ["ring", _] => Pattern::ring(ranks(1)?, bytes),
            ["all-to-all", _] => Pattern::all_to_all(ranks(1)?, bytes)?,
            ["transpose", dims] => match sizes(dims)?.as_slice() {
                [columns, rows] => Pattern::transpose(*columns, *rows, bytes)?,
                _ => return Err(PatternError::Sizes((*dims).into())),
            },
            ["random", _, _] => Pattern::random(ranks(1)?, ranks(2)?, 1, bytes)?,
            ["random", _, _, seed] => {
                let seed = seed.parse().map_err(|_| kind())?;
                Pattern::random(ranks(1)?, ranks(2)?, seed, bytes)?
            }
            _ => return Err(kind()),
        };
        if pattern.messages.is_empty() { Err(PatternError::Empty) } else { Ok(pattern) }
    }

    /// From lines of two ranks and bytes. Lines that are empty or begin with `#` say nothing.
    pub fn read(text: &str) -> Result<Pattern, PatternError> {
        let mut pattern = Pattern { ranks: 0, messages: Vec::new() };
        let mut sent: Vec<u32> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let said = text.split('#').next().unwrap_or_default();
            let words: Vec<&str> = said.split_whitespace().collect();
            let wrong = || PatternError::Line { line, text: text.trim().into() };
            let (from, to, bytes) = match words.as_slice() {
                [] => continue,
                [from, to, bytes] => (from.parse::<u32>(), to.parse::<u32>(), bytes.parse::<f64>()),
                _ => return Err(wrong()),
            };
            let (Ok(from), Ok(to), Ok(bytes)) = (from, to, bytes) else { return Err(wrong()) };
            if !(bytes > 0.0 && bytes <= 1e18) {
                return Err(wrong());
            }
            if from == to {
                return Err(PatternError::Itself { line, rank: from });
            }
            if from.max(to) >= MOST_NODES {
                return Err(PatternError::Ranks);
            }
            if pattern.messages.len() == MOST_MESSAGES {
                return Err(PatternError::Messages);
            }
            pattern.ranks = pattern.ranks.max(from.max(to) + 1);
            sent.resize(pattern.ranks as usize, 0);
            let lane = sent[from as usize];
            sent[from as usize] += 1;
            pattern.messages.push(Message { from, to, bytes, lane });
        }
        if pattern.messages.is_empty() { Err(PatternError::Empty) } else { Ok(pattern) }
    }

    /// Each rank of a grid sends to its neighbours: forward and backward along the first dimension,
    /// then along the next.
    pub fn stencil(dims: &[u32], periodic: bool, bytes: f64) -> Pattern {
        let ranks: u32 = dims.iter().product();
        let mut messages = Vec::with_capacity(ranks as usize * dims.len() * 2);
        for from in 0..ranks {
            let mut stride = 1;
            for (axis, size) in (0u32..).zip(dims) {
                let at = from / stride % size;
                let mut send = |is_inside: bool, to: u32, lane: u32| {
                    if is_inside && to != from {
                        messages.push(Message { from, to, bytes, lane });
                    }
                };
                let ahead = from - at * stride + (at + 1) % size * stride;
                send(periodic || at + 1 < *size, ahead, axis * 2);
                let behind = from - at * stride + (at + size - 1) % size * stride;
                send(periodic || at > 0, behind, axis * 2 + 1);
                stride *= size;
            }
        }
        Pattern { ranks, messages }
    }

    /// Only the messages forward along the first dimension.
    pub fn one_way(dims: &[u32], bytes: f64) -> Pattern {
        let mut pattern = Pattern::stencil(dims, false, bytes);
        pattern.messages.retain(|message| message.lane == 0);
        pattern
    }

    pub fn ring(ranks: u32, bytes: f64) -> Pattern {
        let send = |from: u32| Message { from, to: (from + 1) % ranks, bytes, lane: 0 };
        Pattern { ranks, messages: (0..ranks).map(send).filter(|m| m.from != m.to).collect() }
    }

    /// Each rank to each other: in round k to the k-th after it.
    pub fn all_to_all(ranks: u32, bytes: f64) -> Result<Pattern, PatternError> {
        let all: Vec<u32> = (0..ranks).collect();
        let mut messages = Vec::new();
        exchange(&all, bytes, &mut messages)?;
        Ok(Pattern { ranks, messages })
    }

    /// A transpose of a Fourier transform on a grid of ranks: all to all within rows, then within
    /// columns, here at one time.
    pub fn transpose(columns: u32, rows: u32, bytes: f64) -> Result<Pattern, PatternError> {
        let mut messages = Vec::new();
        for row in 0..rows {
            let ranks: Vec<u32> = (0..columns).map(|column| row * columns + column).collect();
            exchange(&ranks, bytes, &mut messages)?;
        }
        for column in 0..columns {
            let ranks: Vec<u32> = (0..rows).map(|row| row * columns + column).collect();
            exchange(&ranks, bytes, &mut messages)?;
        }
        Ok(Pattern { ranks: columns * rows, messages })
    }

    /// Each rank to `degree` others, drawn from a seed.
    pub fn random(ranks: u32, degree: u32, seed: u64, bytes: f64) -> Result<Pattern, PatternError> {
        if u64::from(ranks) * u64::from(degree) > MOST_MESSAGES as u64 {
            return Err(PatternError::Messages);
        }
        let mut state = seed;
        let mut messages = Vec::new();
        for from in 0..ranks {
            for lane in 0..degree.min(ranks - 1) {
                let to = (from + 1 + (draw(&mut state) % u64::from(ranks - 1)) as u32) % ranks;
                messages.push(Message { from, to, bytes, lane });
            }
        }
        Ok(Pattern { ranks, messages })
    }
}

/// Each of `ranks` to each other.
fn exchange(ranks: &[u32], bytes: f64, to: &mut Vec<Message>) -> Result<(), PatternError> {
    let count = ranks.len();
    if count.saturating_mul(count).saturating_add(to.len()) > MOST_MESSAGES {
        return Err(PatternError::Messages);
    }
    for (at, from) in ranks.iter().enumerate() {
        for round in 1..count {
            let other = ranks[(at + round) % count];
            to.push(Message { from: *from, to: other, bytes, lane: round as u32 - 1 });
        }
    }
    Ok(())
}

/// The next number of a sequence (splitmix64).
pub(crate) fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(pattern: &Pattern, rank: u32) -> Vec<(u32, u32)> {
        let own = pattern.messages.iter().filter(|m| m.from == rank);
        own.map(|m| (m.lane, m.to)).collect()
    }

    #[test]
    fn a_stencil_has_its_neighbours() {
        let pattern = Pattern::stencil(&[4, 3], false, 1.0);
        assert_eq!(to(&pattern, 5), [(0, 6), (1, 4), (2, 9), (3, 1)]);
        assert_eq!(to(&pattern, 0), [(0, 1), (2, 4)]);
        // 2 * (3 * 3 + 4 * 2).
        assert_eq!(pattern.messages.len(), 34);
        let round = Pattern::stencil(&[4, 3], true, 1.0);
        assert_eq!(to(&round, 0), [(0, 1), (1, 3), (2, 4), (3, 8)]);
        assert_eq!(to(&Pattern::one_way(&[4, 3], 1.0), 3), []);
        assert_eq!(Pattern::one_way(&[4, 3], 1.0).messages.len(), 9);
    }

    #[test]
    fn other_kinds() {
        assert_eq!(to(&Pattern::ring(3, 1.0), 2), [(0, 0)]);
        assert_eq!(to(&Pattern::all_to_all(4, 1.0).unwrap(), 1), [(0, 2), (1, 3), (2, 0)]);
        let transpose = Pattern::transpose(3, 2, 1.0).unwrap();
        assert_eq!(to(&transpose, 4), [(0, 5), (1, 3), (0, 1)]);
        let random = Pattern::random(10, 3, 7, 1.0).unwrap();
        assert!(random.messages.len() == 30 && random.messages.iter().all(|m| m.from != m.to));
        assert_eq!(random, Pattern::random(10, 3, 7, 1.0).unwrap());
    }

    #[test]
    fn specifications_are_read() {
        assert_eq!(Pattern::parse("stencil:4x3", 2.0), Ok(Pattern::stencil(&[4, 3], false, 2.0)));
        assert_eq!(Pattern::parse("ring:5", 1.0), Ok(Pattern::ring(5, 1.0)));
        for (text, error) in [
            ("stencil", "no pattern"),
            ("stencil:4y3", "no sizes"),
            ("stencil:4x0", "no sizes"),
            ("stencil:99999x99999", "more than 1048576 ranks"),
            ("ring:0", "no pattern"),
            ("ring:1", "no messages"),
            ("ring:99999999", "more than 1048576 ranks"),
            ("all-to-all:4096", "messages"),
            ("transpose:4", "no sizes"),
            ("random:1000000:1000", "messages"),
            ("", "no pattern"),
        ] {
            let found = Pattern::parse(text, 1.0).unwrap_err().to_string();
            assert!(found.contains(error), "{text}: {found}");
        }
    }

    #[test]
    fn lines_are_read() {
        let pattern = Pattern::read("# traffic\n0 1 100\n\n1 0 50 # back\n0 2 7\n").unwrap();
        assert_eq!((pattern.ranks, pattern.messages.len()), (3, 3));
        assert_eq!(to(&pattern, 0), [(0, 1), (1, 2)]);
        for (text, error) in [
            ("0 1\n", "line 1: '0 1': write two ranks"),
            ("0 1 5\n0 x 5\n", "line 2: '0 x 5'"),
            ("0 1 0\n", "line 1"),
            ("0 1 nan\n", "line 1"),
            ("3 3 1\n", "line 1: rank 3 sends to itself"),
            ("0 4000000000 1\n", "more than 1048576 ranks"),
            ("# none\n", "no messages"),
        ] {
            let found = Pattern::read(text).unwrap_err().to_string();
            assert!(found.contains(error), "{text}: {found}");
        }
    }
}
