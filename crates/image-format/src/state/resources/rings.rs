//! Rings of `io_uring` at rest: nothing that was handed in is unanswered.

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described};

/// Most entries for requests, and for answers.
pub const MAX_REQUESTS: u32 = 1 << 15;
pub const MAX_ANSWERS: u32 = 1 << 16;
/// Most requests that it has taken: a restore hands as many in again, which do nothing.
pub const MAX_TAKEN: u32 = 1 << 24;
/// Most mappings of one.
pub const MAX_MAPS: usize = 64;
/// Bytes of a request, and of an answer.
pub const REQUEST_BYTES: usize = 64;
pub const ANSWER_BYTES: usize = 16;
/// Where in it the kernel counts what it has taken, and what it has answered.
pub const TAKEN_AT: usize = 0;
pub const ANSWERED_AT: usize = 12;
const PAGE: u64 = crate::PAGE_BYTES;
/// End of what a process can map.
const ADDRESS_LIMIT: u64 = 1 << 56;

wire_struct! {
    /// A mapping of a ring.
    pub struct RingMap {
        /// First address.
        pub start: u64,
        /// One past the last.
        pub end: u64,
        /// `PROT_*` bits.
        pub prot: u32,
        /// Which part of it, as `mmap` takes it.
        pub offset: u64,
        /// Whether children do not have it (`MADV_DONTFORK`).
        pub dont_fork: bool,
    }
}

wire_struct! {
    /// A ring of `io_uring`.
    pub struct Ring {
        /// Entries for requests.
        pub requests: u32,
        /// Entries for answers.
        pub answers: u32,
        /// Where in `shared` the answers begin.
        pub answers_at: u32,
        /// Where in `shared` the numbers of the requests begin; 0 if they are taken in order
        /// (`IORING_SETUP_NO_SQARRAY`).
        pub numbers_at: u32,
        /// Requests that it has taken, and answered.
        pub taken: u32,
        /// What the program and the kernel share: heads, tails, answers, numbers of requests.
        pub shared: Vec<u8>,
        /// The requests.
        pub entries: Vec<u8>,
        /// Where the process has it mapped.
        pub maps: Vec<RingMap>,
    }
}

impl RingMap {
    fn is_sound(&self) -> bool {
        let aligned = self.start.is_multiple_of(PAGE) && self.end.is_multiple_of(PAGE);
        let place = self.start < self.end && self.end <= ADDRESS_LIMIT;
        let write = (libc::PROT_READ | libc::PROT_WRITE) as u32;
        aligned && place && self.prot & !write == 0 && self.offset.is_multiple_of(PAGE)
    }
}

impl Ring {
    /// A word of what is shared.
    pub fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.shared.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    }
}

impl Described for Ring {
    fn holds(&self, _: &Around<'_>) -> bool {
        let counts = self.requests.is_power_of_two()
            && self.answers.is_power_of_two()
            && self.requests <= MAX_REQUESTS
            && (self.requests..=MAX_ANSWERS).contains(&self.answers);
        let (requests, answers) = (self.requests as usize, self.answers as usize);
        let (answers_at, numbers_at) = (self.answers_at as usize, self.numbers_at as usize);
        let answers_end = answers_at.saturating_add(answers * ANSWER_BYTES);
        let end = match numbers_at {
            0 => answers_end,
            at => at.saturating_add(requests * 4),
        };
        let sizes = counts
            && self.entries.len() == requests * REQUEST_BYTES
            && answers_at >= ANSWERED_AT + 4
            && (numbers_at == 0 || answers_end <= numbers_at)
            && end == self.shared.len();
        let counted = [TAKEN_AT, ANSWERED_AT].iter().all(|at| self.word(*at) == Some(self.taken));
        let maps = self.maps.len() <= MAX_MAPS && self.maps.iter().all(RingMap::is_sound);
        sizes && counted && self.taken <= MAX_TAKEN && maps
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        let (requests, taken) = (self.requests, self.taken);
        ("ring", format!("{requests} entries, {taken} requests taken"))
    }

    fn ranges(&self) -> Vec<(u64, u64)> {
        self.maps.iter().map(|map| (map.start, map.end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring {
        let mut shared = vec![0; 2368];
        shared[TAKEN_AT] = 7;
        shared[ANSWERED_AT] = 7;
        let map =
            RingMap { start: PAGE, end: 2 * PAGE, prot: 3, offset: 0x1000_0000, dont_fork: false };
        Ring {
            requests: 64,
            answers: 128,
            answers_at: 64,
            numbers_at: 2112,
            taken: 7,
            shared,
            entries: vec![0; 64 * REQUEST_BYTES],
            maps: vec![map],
        }
    }

    #[test]
    fn one_that_contradicts_itself_is_refused() {
        let around = Around { descriptions: 0, objects: &[] };
        assert!(ring().holds(&around));
        type Change = fn(&mut Ring);
        let changes: &[(&str, Change)] = &[
            ("no entries", |r| r.requests = 0),
            ("no power of two", |r| r.requests = 63),
            ("fewer answers than requests", |r| r.answers = 32),
            ("answers in the head", |r| r.answers_at = 8),
            ("numbers among the answers", |r| r.numbers_at = 2111),
            ("numbers beyond the end", |r| r.numbers_at = u32::MAX),
            ("another length", |r| r.shared.push(0)),
            ("other entries", |r| r.entries.truncate(1)),
            ("another count of requests", |r| r.shared[TAKEN_AT] = 8),
            ("another count of answers", |r| r.shared[ANSWERED_AT] = 6),
            ("too many to be handed in again", |r| {
                r.taken = MAX_TAKEN + 1;
                r.shared[TAKEN_AT..TAKEN_AT + 4].copy_from_slice(&r.taken.to_le_bytes());
                r.shared[ANSWERED_AT..ANSWERED_AT + 4].copy_from_slice(&r.taken.to_le_bytes());
            }),
            ("an empty mapping", |r| r.maps[0].end = PAGE),
            ("an executable mapping", |r| r.maps[0].prot = 7),
            ("too many mappings", |r| r.maps = vec![r.maps[0].clone(); MAX_MAPS + 1]),
        ];
        for (what, change) in changes {
            let mut ring = ring();
            change(&mut ring);
            assert!(!ring.holds(&around), "{what}");
        }
    }
}
