//! Where the bytes of a rank stand that died after it began to append them.
//!
//! Kept true: what another rank of the node has recorded as its own is not taken, however equal.
//! Lines begin where lines end: `1` is not found in `11`.

use super::Tail;

/// How much of a file is read at a time.
const BLOCK_BYTES: usize = 256 << 10;
/// How much of what is looked for is looked for first.
const KEY_BYTES: usize = 4 << 10;
/// A write that a death ends goes up to a multiple of this.
const PAGE_BYTES: u64 = 4 << 10;

/// What is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// All of it, here.
    At(u64),
    /// So many of its first bytes, as the file's last ones.
    Torn(usize),
    Nowhere,
}

/// Looks for `bytes` at `from` and behind it, where nobody has `taken` what stands there.
pub(super) fn find(bytes: &[u8], from: u64, taken: &[(u64, u64)], file: &impl Tail) -> Found {
    let key = &bytes[..bytes.len().min(KEY_BYTES)];
    if key.is_empty() {
        return Found::Nowhere;
    }
    // One byte more in front shows where a line ends.
    let mut at = from.saturating_sub(1);
    let mut block = vec![0; BLOCK_BYTES + key.len()];
    loop {
        let count = file.read(at, &mut block);
        let starts = block[..count].windows(key.len()).enumerate();
        for (n, _) in starts.filter(|(_, window)| *window == key) {
            let place = at + n as u64;
            let whole = || {
                let lined = place == from
                    || bytes.last() != Some(&b'\n')
                    || n.checked_sub(1).is_none_or(|before| block[before] == b'\n');
                lined && is_free(place, bytes.len(), taken) && is_there(place, bytes, file)
            };
            if place >= from && whole() {
                return Found::At(place);
            }
        }
        if count < block.len() {
            return torn(bytes, from, taken, file);
        }
        at += (BLOCK_BYTES - 1) as u64;
    }
}

fn is_free(place: u64, count: usize, taken: &[(u64, u64)]) -> bool {
    let end = place + count as u64;
    taken.iter().all(|(from, to)| end <= *from || *to <= place)
}

fn is_there(place: u64, bytes: &[u8], file: &impl Tail) -> bool {
    let mut found = vec![0; bytes.len()];
    file.read(place, &mut found) == bytes.len() && found == bytes
}

/// A write that did not come to its end, behind which nobody has written.
fn torn(bytes: &[u8], from: u64, taken: &[(u64, u64)], file: &impl Tail) -> Found {
    let size = file.size();
    if !size.is_multiple_of(PAGE_BYTES) || size <= from {
        return Found::Nowhere;
    }
    let most = bytes.len().saturating_sub(1).min((size - from) as usize);
    // One byte more in front, as above.
    let at = (size - most as u64).saturating_sub(1);
    let mut tail = vec![0; (size - at) as usize];
    let count = file.read(at, &mut tail);
    tail.truncate(count);
    let begins = |count: &usize| {
        let Some(n) = tail.len().checked_sub(*count) else { return false };
        let place = at + n as u64;
        let lined = place == from || n.checked_sub(1).is_none_or(|before| tail[before] == b'\n');
        lined && tail[n..] == bytes[..*count] && is_free(place, *count, taken)
    };
    match (1..=most).rev().find(begins) {
        Some(count) => Found::Torn(count),
        None => Found::Nowhere,
    }
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
