//! Which blocks of which files hold the memory of a process, and what of them belongs where.

use crate::PAGE_BYTES;
use crate::bytes::codec::Codec;
use crate::bytes::layout::Extent;
use crate::error::ImageError;
use crate::read::frame::Part;
use crate::support::buffer::Buffer;
use crate::support::parallel;
use std::io;
use std::ops::Range;

/// Part of a block that belongs in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Address in the process.
    pub address: u64,
    /// Where it begins in the block's pages.
    pub offset: usize,
    /// Its length.
    pub bytes: usize,
}

/// A block that is needed.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Index of its file.
    pub part: usize,
    /// Index in that file.
    pub block: usize,
    /// Its pieces.
    pub pieces: Range<usize>,
}

/// All blocks that are needed, in the order of the files.
#[derive(Debug, Default)]
pub struct Wants {
    /// The blocks, none of them twice.
    pub blocks: Vec<Wanted>,
    /// Their pieces.
    pub pieces: Vec<Piece>,
}

impl Wants {
    /// Finds the blocks of checked extents. No page belongs in two places
    /// ([`crate::check`]), which bounds the number of pieces.
    pub fn new(parts: &[Part], extents: &[Extent]) -> Wants {
        let mut order: Vec<&Extent> = extents.iter().collect();
        order.sort_unstable_by_key(|e| (e.home, e.first));
        let mut wants = Wants::default();
        for extent in order {
            let part = extent.home as usize;
            let (mut page, mut address) = (extent.first, extent.start);
            let end = extent.first + extent.pages;
            let mut block = parts[part].block_of(page);
            while page < end {
                let after = parts[part].first_page(block + 1).min(end);
                let offset = (page - parts[part].first_page(block)) * PAGE_BYTES;
                let bytes = (after - page) * PAGE_BYTES;
                let (offset, bytes) = (offset as usize, bytes as usize);
                wants.add(part, block, Piece { address, offset, bytes });
                address += bytes as u64;
                page = after;
                block += 1;
            }
        }
        wants
    }

    fn add(&mut self, part: usize, block: usize, piece: Piece) {
        self.pieces.push(piece);
        let end = self.pieces.len();
        match self.blocks.last_mut() {
            Some(last) if (last.part, last.block) == (part, block) => last.pieces.end = end,
            _ => self.blocks.push(Wanted { part, block, pieces: end - 1..end }),
        }
    }

    /// The pieces of a block.
    pub fn pieces_of(&self, wanted: &Wanted) -> &[Piece] {
        &self.pieces[wanted.pieces.clone()]
    }
}

/// Holds against their checksums all blocks of the first file and those of the others that are
/// needed.
pub fn verify(parts: &[Part], wants: &Wants) -> Result<(), ImageError> {
    verify_others(parts, wants, |_| false, &|_| Ok(()))
}

/// Is told how many bytes are about to be read, and may take its time; an error ends it.
pub type Pace<'a> = &'a (dyn Fn(u64) -> io::Result<()> + Sync);

/// The same without the parts that are known to be right.
pub fn verify_others(
    parts: &[Part],
    wants: &Wants,
    known: impl Fn(usize) -> bool,
    pace: Pace<'_>,
) -> Result<(), ImageError> {
    let own = if known(0) { 0 } else { parts[0].blocks().len() };
    let others: Vec<(usize, usize)> = wants
        .blocks
        .iter()
        .filter(|w| w.part > 0 && !known(w.part))
        .map(|w| (w.part, w.block))
        .collect();
    let threads = parallel::threads_that_wait();
    parallel::for_each(threads, own + others.len(), Buffer::default, |buffer, i| {
        let (part, block) = if i < own { (0, i) } else { others[i - own] };
        let slowed = pace(u64::from(parts[part].blocks()[block].stored));
        slowed.map_err(|source| ImageError::Read { path: parts[part].path().into(), source })?;
        parts[part].stored(block, buffer).map(drop).map_err(|e| match part {
            0 => e,
            _ => parts[part].blame(e),
        })
    })
}

/// A thread's means to read blocks.
#[derive(Default)]
pub struct Blocks {
    codec: Codec,
    stored: Buffer,
    pages: Vec<u8>,
    /// Nothing is read again soon.
    once: bool,
}

impl Blocks {
    /// For files that are not read again soon.
    pub fn once() -> Blocks {
        Blocks { once: true, ..Blocks::default() }
    }

    /// The pages of a block that is needed; damage of an earlier file is told as such.
    pub fn wanted(&mut self, parts: &[Part], wanted: &Wanted) -> Result<&[u8], ImageError> {
        let part = &parts[wanted.part];
        let pages = self.pages(part, wanted.block);
        pages.map_err(|e| if wanted.part == 0 { e } else { part.blame(e) })
    }

    /// The pages of a block.
    pub fn pages(&mut self, part: &Part, block: usize) -> Result<&[u8], ImageError> {
        let stored = match self.once {
            true => part.stored_once(block, &mut self.stored)?,
            false => part.stored(block, &mut self.stored)?,
        };
        let told = &part.blocks()[block];
        let stored = &stored[..told.stored as usize];
        if told.codec == crate::bytes::layout::codec::NONE {
            // One hash stands for both.
            return Ok(stored);
        }
        part.decode(block, stored, &mut self.codec, &mut self.pages)?;
        Ok(&self.pages)
    }
}
