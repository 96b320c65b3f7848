//! The free chunks of a rank's own log pool, in two parts.
//!
//! The first chunk of each channel comes from the end of the pool, which is in ordinary pages: of
//! many channels that is all that is ever used, and of that a little. What channels fill beyond
//! comes from the beginning, which is in huge pages where there are some.

use crate::segment::Geometry;

const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Chunks at the beginning of a pool that are worth huge pages: as many as fill whole ones, besides
/// one chunk for each channel.
pub fn in_huge_pages(geo: &Geometry) -> u32 {
    let a_page = (HUGE_PAGE_BYTES / u64::from(geo.chunk_bytes)).max(1) as u32;
    let firsts = geo.ranks.min(geo.pool_chunks / 2);
    (geo.pool_chunks - firsts) / a_page * a_page
}

/// Free chunks, by their index in the pool. The last of a list is taken first.
#[derive(Debug, Default)]
pub struct Free {
    /// Where the ordinary pages begin.
    border: u32,
    huge: Vec<u32>,
    plain: Vec<u32>,
}

impl Free {
    /// All chunks that are not `used`.
    pub fn new(geo: &Geometry, used: &[bool]) -> Free {
        let border = in_huge_pages(geo);
        let free = (0..used.len() as u32).rev().filter(|i| !used[*i as usize]);
        let (huge, plain) = free.partition(|i| *i < border);
        Free { border, huge, plain }
    }

    pub fn is_empty(&self) -> bool {
        self.huge.is_empty() && self.plain.is_empty()
    }

    pub fn count(&self) -> usize {
        self.huge.len() + self.plain.len()
    }

    /// A chunk to be number `n` of a channel.
    pub fn take(&mut self, n: u64) -> Option<u32> {
        if n == 0 {
            return self.plain.pop().or_else(|| self.huge.pop());
        }
        self.huge.pop().or_else(|| self.plain.pop())
    }

    pub fn give_back(&mut self, index: u32) {
        if index < self.border { self.huge.push(index) } else { self.plain.push(index) }
    }

    /// Those that are filled next, the next one first.
    pub fn next(&self) -> impl Iterator<Item = u32> {
        self.huge.iter().rev().chain(self.plain.iter().rev()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_chunks_come_from_the_end_and_all_are_had_in_the_end() {
        // 64 chunks of 256 KiB, so eight to a huge page.
        let geo = Geometry::new(4, 16 << 20);
        assert_eq!((geo.pool_chunks, in_huge_pages(&geo)), (64, 56));
        let mut used = vec![false; 64];
        used[0] = true;
        let mut free = Free::new(&geo, &used);
        assert_eq!((free.take(0), free.take(1), free.take(7)), (Some(56), Some(1), Some(2)));
        assert_eq!(free.next().take(2).collect::<Vec<_>>(), [3, 4]);
        free.give_back(56);
        free.give_back(2);
        assert_eq!((free.take(0), free.take(1)), (Some(56), Some(2)));
        let rest: Vec<u32> = (0..free.count()).map_while(|_| free.take(0)).collect();
        assert_eq!((rest.len(), free.is_empty(), free.take(1)), (60, true, None));
    }

    #[test]
    fn a_small_pool_has_ordinary_pages_only() {
        assert_eq!(in_huge_pages(&Geometry::new(4, 1 << 20)), 0);
        assert_eq!(in_huge_pages(&Geometry::new(1024, 1 << 20)), 1024);
    }
}
