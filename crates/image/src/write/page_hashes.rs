//! Finding changed pages by their content, where the kernel does not note writes.
//!
//! Two pages with the same 128-bit hash are taken for the same. The hashes are kept by the caller,
//! 16 bytes for each page.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::write::page_source::Source;
use eyrie_image_format::support::parallel;
use eyrie_image_format::support::spans::{Span, Spans};
use std::sync::Mutex;
use xxhash_rust::xxh3::xxh3_128;

/// Bytes read at once.
const BLOCK_BYTES: u64 = 1 << 20;

/// Hashes of the pages of a process at one instant.
#[derive(Debug, Clone, Default)]
pub struct Hashes {
    /// Stretches in order: address of the first page, hash of each.
    stretches: Vec<(u64, Vec<u128>)>,
}

impl Hashes {
    /// Hashes what can be read of some pages, by a few threads.
    pub fn of(source: &Source, spans: &Spans) -> Result<Hashes, CaptureError> {
        let mut blocks = Vec::new();
        for span in spans.iter() {
            let starts = (span.start..span.end).step_by(BLOCK_BYTES as usize);
            blocks.extend(starts.map(|s| Span { start: s, end: span.end.min(s + BLOCK_BYTES) }));
        }
        let done: Vec<Mutex<Hashes>> = blocks.iter().map(|_| Mutex::default()).collect();
        parallel::for_each(
            parallel::threads(),
            blocks.len(),
            Vec::new,
            |buffer: &mut Vec<u8>, i| {
                let mut list = done[i].lock().unwrap_or_else(|e| e.into_inner());
                let mut at = blocks[i].start;
                while at < blocks[i].end {
                    buffer.resize((blocks[i].end - at) as usize, 0);
                    let read = source.read(at, buffer)?;
                    for page in buffer[..read].chunks(PAGE_BYTES as usize) {
                        list.push(at, xxh3_128(page));
                        at += PAGE_BYTES;
                    }
                    if read < buffer.len() {
                        at += PAGE_BYTES;
                    }
                }
                Ok::<(), CaptureError>(())
            },
        )?;
        let mut all = Hashes::default();
        for list in done {
            all.append(list.into_inner().unwrap_or_else(|e| e.into_inner()));
        }
        Ok(all)
    }

    /// Notes those of pages at higher addresses than all before.
    fn append(&mut self, others: Hashes) {
        for (start, list) in others.stretches {
            match self.stretches.last_mut() {
                Some((last, all)) if *last + all.len() as u64 * PAGE_BYTES == start => {
                    all.extend(list);
                }
                _ => self.stretches.push((start, list)),
            }
        }
    }

    /// Notes a page at a higher address than all before.
    fn push(&mut self, address: u64, hash: u128) {
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

    /// The pages that are the same in `before`.
    pub fn same_as(&self, before: &Hashes) -> Spans {
        let mut same = Spans::default();
        for (start, list) in &self.stretches {
            for (i, hash) in list.iter().enumerate() {
                let page = start + i as u64 * PAGE_BYTES;
                if before.get(page) == Some(*hash) {
                    same.push(page, page + PAGE_BYTES);
                }
            }
        }
        same
    }

    /// Memory that the hashes take.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.stretches.iter().map(|(_, list)| list.len() * 16).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_differ_are_new_or_moved_are_not_the_same() {
        let of = |list: &[(u64, u128)]| {
            let mut all = Hashes::default();
            list.iter().for_each(|&(n, hash)| all.push(n * PAGE_BYTES, hash));
            all
        };
        let before = of(&[(1, 1), (2, 2), (3, 3), (9, 9)]);
        let after = of(&[(1, 1), (2, 7), (3, 3), (8, 9), (9, 9), (10, 9)]);
        let pages = |spans: Spans| -> Vec<u64> {
            spans.iter().flat_map(|s| s.start / PAGE_BYTES..s.end / PAGE_BYTES).collect()
        };
        assert_eq!(pages(after.same_as(&before)), [1, 3, 9]);
        assert_eq!(pages(after.same_as(&after)), [1, 2, 3, 8, 9, 10]);
        assert_eq!(after.same_as(&Hashes::default()), Spans::default());
        assert_eq!(after.bytes(), 6 * 16);
    }

    #[test]
    fn memory_is_hashed_page_by_page() {
        let pages: Vec<u8> = (0..300u64 * PAGE_BYTES).map(|i| (i / PAGE_BYTES) as u8).collect();
        let start = (pages.as_ptr() as u64).next_multiple_of(PAGE_BYTES);
        let span = Span { start, end: start + 299 * PAGE_BYTES };
        let spans = Spans::of(vec![span]);
        let source = Source::open(std::process::id() as i32).unwrap();
        let hashes = Hashes::of(&source, &spans).unwrap();
        assert_eq!(hashes.bytes(), 299 * 16);
        assert_eq!(hashes.same_as(&hashes), spans);
        for page in (span.start..span.end).step_by(PAGE_BYTES as usize) {
            let from = (page - pages.as_ptr() as u64) as usize;
            let hash = xxh3_128(&pages[from..from + PAGE_BYTES as usize]);
            assert_eq!(hashes.get(page), Some(hash));
        }
    }
}
