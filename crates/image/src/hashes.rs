//! Finding changed pages by their content, where the kernel does not note writes.
//!
//! Two pages with the same 128-bit hash are taken for the same. The hashes are kept by the caller,
//! 16 bytes for each page.

use crate::PAGE_BYTES;
use crate::spans::{Span, Spans};
use xxhash_rust::xxh3::xxh3_128;

/// Hashes of the pages of a process at one instant.
#[derive(Debug, Clone, Default)]
pub struct Hashes {
    /// Stretches in order: address of the first page, hash of each.
    stretches: Vec<(u64, Vec<u128>)>,
}

impl Hashes {
    /// Notes a page at a higher address than all before.
    pub fn push(&mut self, address: u64, page: &[u8]) {
        let hash = xxh3_128(page);
        match self.stretches.last_mut() {
            Some((start, list)) if *start + list.len() as u64 * PAGE_BYTES == address => {
                list.push(hash);
            }
            _ => self.stretches.push((address, vec![hash])),
        }
    }

    fn get(&self, address: u64) -> Option<u128> {
        let after = self.stretches.partition_point(|(start, _)| *start <= address);
        let (start, list) = self.stretches.get(after.checked_sub(1)?)?;
        list.get(((address - start) / PAGE_BYTES) as usize).copied()
    }

    /// The pages of this set that are not the same in `before`.
    pub fn changed_since(&self, before: &Hashes) -> Spans {
        let mut changed = Spans::default();
        for (start, list) in &self.stretches {
            for (i, hash) in list.iter().enumerate() {
                let page = start + i as u64 * PAGE_BYTES;
                if before.get(page) != Some(*hash) {
                    changed.push(page, page + PAGE_BYTES);
                }
            }
        }
        changed
    }

    /// The pages that are known.
    pub fn pages(&self) -> Spans {
        let span = |(start, list): &(u64, Vec<u128>)| Span {
            start: *start,
            end: start + list.len() as u64 * PAGE_BYTES,
        };
        Spans::of(self.stretches.iter().map(span).collect())
    }

    /// Memory that the hashes take.
    pub fn bytes(&self) -> usize {
        self.stretches.iter().map(|(_, list)| list.len() * 16).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_differ_are_new_or_moved_are_found() {
        let page = |byte: u8| vec![byte; PAGE_BYTES as usize];
        let of = |list: &[(u64, u8)]| {
            let mut all = Hashes::default();
            list.iter().for_each(|&(n, byte)| all.push(n * PAGE_BYTES, &page(byte)));
            all
        };
        let before = of(&[(1, 1), (2, 2), (3, 3), (9, 9)]);
        let after = of(&[(1, 1), (2, 7), (3, 3), (8, 9), (9, 9), (10, 9)]);
        let changed: Vec<u64> = after
            .changed_since(&before)
            .iter()
            .flat_map(|s| s.start / PAGE_BYTES..s.end / PAGE_BYTES)
            .collect();
        assert_eq!(changed, [2, 8, 10]);
        assert!(after.changed_since(&after).is_empty());
        assert_eq!(after.pages().bytes(), 6 * PAGE_BYTES);
        assert_eq!(after.bytes(), 6 * 16);
    }
}
