//! The memory of a process as an image holds it, by address.

use crate::PAGE_BYTES;
use crate::bytes::layout::Extent;
use crate::error::ImageError;
use crate::read::blocks::Blocks;
use crate::read::image::Image;

impl Image {
    /// Reads stored memory from `address` on; returns how many bytes there are before the first
    /// page that is not stored.
    pub fn read_memory(&self, address: u64, to: &mut [u8]) -> Result<usize, ImageError> {
        let mut blocks = Blocks::default();
        let mut done = 0;
        while done < to.len() {
            let at = address.wrapping_add(done as u64);
            let Some(extent) = self.extent_at(at) else { break };
            let part = &self.parts[extent.home as usize];
            let page = extent.first + (at - extent.start) / PAGE_BYTES;
            let block = part.block_of(page);
            let pages = blocks.pages(part, block)?;
            let offset = (page - part.first_page(block)) * PAGE_BYTES + at % PAGE_BYTES;
            let left = extent.start + extent.pages * PAGE_BYTES - at;
            let offset = offset as usize;
            let here = (pages.len() - offset).min(to.len() - done).min(left as usize);
            to[done..done + here].copy_from_slice(&pages[offset..offset + here]);
            done += here;
        }
        Ok(done)
    }

    /// The stored stretch that holds `address`.
    pub fn extent_at(&self, address: u64) -> Option<&Extent> {
        let after = self.extents.partition_point(|e| e.start <= address);
        let extent = &self.extents[after.checked_sub(1)?];
        (address - extent.start < extent.pages * PAGE_BYTES).then_some(extent)
    }

    /// The stored stretches within a range that begins and ends with regions.
    pub fn extents_in(&self, start: u64, end: u64) -> &[Extent] {
        let first = self.extents.partition_point(|e| e.start < start);
        let last = self.extents.partition_point(|e| e.start < end);
        &self.extents[first..last]
    }

    /// The stored stretches of a region: address and number of pages.
    pub fn stored(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        self.extents_in(start, end).iter().map(|e| (e.start, e.pages))
    }

    /// Hands over all stored content, a piece with its address at a time, in the order of the
    /// files.
    pub fn for_each_piece<E: From<ImageError>>(
        &self,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut blocks = Blocks::default();
        for wanted in &self.wants.blocks {
            let pages = blocks.pages(&self.parts[wanted.part], wanted.block)?;
            for piece in self.wants.pieces_of(wanted) {
                take(piece.address, &pages[piece.offset..piece.offset + piece.bytes])?;
            }
        }
        Ok(())
    }

    /// Strings that follow each other in memory, each ended by a zero.
    pub fn strings(&self, start: u64, end: u64, limit: usize) -> Vec<Vec<u8>> {
        let mut bytes = vec![0; end.saturating_sub(start).min(limit as u64) as usize];
        let read = self.read_memory(start, &mut bytes).unwrap_or(0);
        bytes.truncate(read);
        let mut strings: Vec<Vec<u8>> = bytes.split(|&b| b == 0).map(<[u8]>::to_vec).collect();
        if strings.last().is_some_and(Vec::is_empty) {
            strings.pop();
        }
        strings
    }
}
