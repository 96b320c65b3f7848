//! What a rank found outside, and finds again when it comes back: files change meanwhile.
//!
//! Every question to the file system, and every write, has its outcome recorded at the door. Kept
//! true: a rank that repeats itself is told what came out the first time, and changes nothing that
//! it had changed then. What it had written is there; others may have overwritten it since, or have
//! renamed or deleted the file. Only when its machine was started anew, or is another one, does it
//! write again what may have been lost with the machine's memory.
//!
//! What is read is not recorded, but a mark of it is: a rank that would read something else has
//! diverged.

use eyrie_ledger::door::{Call, Outcome, Verdict};

use crate::error::{Class, Res};
use crate::machine::Machine;

const MARK_FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
const ROW_BYTES: usize = 32;
const WORDS: usize = 5;

/// What came of it, where there is more to say than that it went well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Found {
    pub(super) value: u64,
    /// Of what was read.
    pub(super) mark: u64,
}

/// A mark of `bytes` after what `before` is one of.
pub(crate) fn mark(before: u64, bytes: &[u8]) -> u64 {
    let step = |mark: u64, word: u64| {
        let mixed = (mark ^ word).wrapping_mul(MARK_FACTOR);
        mixed ^ mixed >> 32
    };
    // Several at once: each step waits for the one before it.
    let mut lanes = [0, 1, 2, 3].map(|lane| step(before, lane));
    let (rows, rest) = bytes.as_chunks::<ROW_BYTES>();
    for row in rows {
        for (lane, word) in lanes.iter_mut().zip(row.as_chunks::<8>().0) {
            *lane = step(*lane, u64::from_le_bytes(*word));
        }
    }
    let mark = lanes.into_iter().fold(bytes.len() as u64, step);
    rest.chunks(8).fold(mark, |mark, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        step(mark, u64::from_le_bytes(word))
    })
}

/// An error class, number and mark in halves; zeros at the end are left out.
fn packed(outcome: &Res<Found>) -> Outcome {
    let (class, found) = match outcome {
        Ok(found) => (0, *found),
        Err(class) => (class.0 as u32, Found::default()),
    };
    let halves = |n: u64| [n as u32, (n >> 32) as u32];
    let mut words = [&[class][..], &halves(found.value), &halves(found.mark)].concat();
    words.truncate(words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1));
    Outcome::Many(words)
}

fn unpacked(words: &[u32]) -> Option<Res<Found>> {
    let mut all = [0; WORDS];
    all.get_mut(..words.len())?.copy_from_slice(words);
    let [class, a, b, c, d] = all;
    let whole = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let found = Found { value: whole(a, b), mark: whole(c, d) };
    Some(if class == 0 { Ok(found) } else { Err(Class(class as i32)) })
}

impl Machine {
    /// What came of the next call the first time; `None`: this is the first time.
    pub(super) fn file_before(&mut self) -> Option<Res<Found>> {
        match self.ask(Call::File) {
            Verdict::Live => None,
            Verdict::Forced(Outcome::Many(words)) => match unpacked(&words) {
                Some(outcome) => Some(outcome),
                None => self.misreplayed(Call::File),
            },
            Verdict::Forced(Outcome::One(_)) | Verdict::Fruitless => self.misreplayed(Call::File),
        }
    }

    /// Records what came of it.
    pub(super) fn file_now(&mut self, outcome: Res<Found>) -> Res<Found> {
        self.record(Call::File, &packed(&outcome));
        outcome
    }

    /// What is done, and found out, once.
    pub(super) fn file_once(&mut self, find: impl FnOnce() -> Res<u64>) -> Res<u64> {
        let outcome = match self.file_before() {
            Some(outcome) => outcome,
            None => self.file_now(find().map(|value| Found { value, mark: 0 })),
        };
        outcome.map(|found| found.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::class;

    #[test]
    fn outcomes_go_through_words_and_back() {
        let found = Found { value: 5 << 40 | 3, mark: u64::MAX - 7 };
        for outcome in [Ok(Found::default()), Ok(found), Err(class::NO_SPACE)] {
            let Outcome::Many(words) = packed(&outcome) else { panic!() };
            assert_eq!(unpacked(&words), Some(outcome));
        }
        let ok = Ok(Found { value: 9, mark: 0 });
        assert_eq!(packed(&ok), Outcome::Many(vec![0, 9]));
        assert_eq!(unpacked(&[0; 6]), None);
    }

    #[test]
    fn marks_tell_bytes_their_places_and_their_number() {
        let rows = [[7u8; 64].as_slice(), &[7; 65], &[7; 32], &[8; 32]];
        let short = [&b""[..], b"\0", b"\0\0", b"abcdefgh", b"abcdefgi", b"abcdefgh\0"];
        let all = [&rows[..], &short].concat();
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(mark(0, a), mark(0, b));
            }
        }
        assert_ne!(mark(mark(0, b"a"), b"b"), mark(mark(0, b"b"), b"a"));
    }
}
