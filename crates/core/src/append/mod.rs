//! What a rank appends to a file, which others may append to as well: once, however often the rank
//! dies.
//!
//! Two events of the determinant log belong to it: that it begins, with the file's size before it
//! ([`What::AppendBegun`]), and what came of it, with the place behind it and a mark of its bytes
//! ([`What::Appended`]). A rank that repeats itself and finds both is told what came of it, and
//! writes again only what is not in the file any more: a restore has cut it back, or the machine
//! was lost with it. One that finds the first alone died in between, and looks for its bytes behind
//! that size ([`search`]).
//!
//! Kept true: nothing is written before its beginning and all that it may depend on are held by
//! other nodes, where there are any. So what stands in a file is of a course that will be repeated.

mod claims;
mod search;

use eyrie_ledger::door::What;

use crate::file::mark;
use crate::machine::Machine;

/// A file that is appended to, and what is to be appended.
pub trait Tail {
    /// Stands for the file on this machine.
    fn id(&self) -> u64;
    fn size(&self) -> u64;
    /// Reads at a place. How many bytes; fewer only where the file ends or cannot be read.
    fn read(&self, at: u64, room: &mut [u8]) -> usize;
    /// Appends, once. What was returned, and `errno`.
    fn append(&mut self, bytes: &[u8]) -> (i64, i32);
    /// Where the descriptor is.
    fn place(&self) -> u64;
    fn go_to(&self, place: u64);
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Appended {
    pub result: i64,
    pub error: i32,
    /// The place behind it.
    end: u64,
    mark: u64,
}

const APPENDED_BYTES: usize = 28;
const BEGUN_BYTES: usize = 16;

fn number(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..at + 8).and_then(|b| b.first_chunk::<8>());
    found.map_or(0, |b| u64::from_le_bytes(*b))
}

impl Appended {
    fn put(&self, room: &mut [u8]) -> usize {
        room[..8].copy_from_slice(&self.result.to_le_bytes());
        room[8..16].copy_from_slice(&self.end.to_le_bytes());
        room[16..24].copy_from_slice(&self.mark.to_le_bytes());
        room[24..APPENDED_BYTES].copy_from_slice(&self.error.to_le_bytes());
        APPENDED_BYTES
    }

    fn of(bytes: &[u8]) -> Appended {
        Appended {
            result: number(bytes, 0) as i64,
            end: number(bytes, 8),
            mark: number(bytes, 16),
            error: bytes
                .get(24..)
                .and_then(|b| b.first_chunk::<4>())
                .map_or(0, |b| i32::from_le_bytes(*b)),
        }
    }

    /// How many bytes were appended.
    fn count(&self) -> u64 {
        u64::try_from(self.result).unwrap_or(0)
    }

    /// Of bytes that stand before `end`.
    fn whole(bytes: &[u8], end: u64) -> Appended {
        Appended { result: bytes.len() as i64, error: 0, end, mark: mark(0, bytes) }
    }
}

impl Machine {
    /// Appends, or finds that it was done.
    pub fn append(&mut self, bytes: &[u8], file: &mut impl Tail) -> Appended {
        let again = self.repeats();
        let before = self.begin_append(file);
        if self.repeats() {
            return self.appended_before(bytes, file);
        }
        self.endpoint.await_held();
        let done = match again {
            true => self.append_missing(bytes, before, file),
            false => append_once(bytes, file),
        };
        self.end_append(done)
    }

    fn begin_append(&mut self, file: &impl Tail) -> u64 {
        let find = |room: &mut [u8]| {
            room[..8].copy_from_slice(&file.size().to_le_bytes());
            room[8..BEGUN_BYTES].copy_from_slice(&file.id().to_le_bytes());
            BEGUN_BYTES
        };
        self.tell(What::AppendBegun, find, |bytes| number(bytes, 0))
    }

    fn end_append(&mut self, done: Appended) -> Appended {
        self.tell(What::Appended, |room| done.put(room), Appended::of)
    }

    /// What came of it the first time.
    fn appended_before(&mut self, bytes: &[u8], file: &mut impl Tail) -> Appended {
        let done = self.end_append(Appended::default());
        let count = done.count();
        if count == 0 || stands(&done, file) {
            file.go_to(done.end);
        } else {
            write_all(&bytes[..bytes.len().min(count as usize)], file);
        }
        done
    }

    /// It was begun, and what came of it is not recorded.
    fn append_missing(&mut self, bytes: &[u8], before: u64, file: &mut impl Tail) -> Appended {
        let taken = self.claims(file.id(), before);
        match search::find(bytes, before, &taken, file) {
            search::Found::At(place) => {
                let end = place + bytes.len() as u64;
                file.go_to(end);
                Appended::whole(bytes, end)
            }
            search::Found::Torn(count) => {
                write_all(&bytes[count..], file);
                Appended::whole(bytes, file.place())
            }
            search::Found::Nowhere => append_once(bytes, file),
        }
    }
}

fn append_once(bytes: &[u8], file: &mut impl Tail) -> Appended {
    let (result, error) = file.append(bytes);
    let count = usize::try_from(result).unwrap_or(0).min(bytes.len());
    Appended { result, error, end: file.place(), mark: mark(0, &bytes[..count]) }
}

/// Writes what a life before this one had written: nobody is told if that fails.
fn write_all(mut bytes: &[u8], file: &mut impl Tail) {
    while !bytes.is_empty() {
        match usize::try_from(file.append(bytes).0) {
            Ok(count) if count > 0 => bytes = &bytes[count.min(bytes.len())..],
            _ => return,
        }
    }
}

/// Whether the file still has what was appended.
fn stands(done: &Appended, file: &impl Tail) -> bool {
    let (count, size) = (done.count(), file.size());
    let Some(at) = done.end.checked_sub(count).filter(|_| done.end <= size) else { return false };
    let mut found = vec![0; count as usize];
    match file.read(at, &mut found) as u64 {
        // It may be written and not read: it is as long as it was.
        0 => true,
        all => all == count && mark(0, &found) == done.mark,
    }
}

#[cfg(test)]
mod tests;
