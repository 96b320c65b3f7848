//! Putting an image whose content lies in several files into one, without the program.
//!
//! Blocks of which all is needed are taken over as they are stored, others are packed anew. The new
//! file takes the place of the old in one step; the files that it needed are left to the caller.
//! What other processes have lent ([`crate::pool`]) may stay where it is.

use crate::aligned::Buffer;
use crate::blocks::{Blocks, Wanted};
use crate::chain::Known;
use crate::check;
use crate::error::{CaptureError, ImageError};
use crate::format::{Ancestor, BLOCK_BYTES, Extent};
use crate::image::Image;
use crate::pack::{Packed, Packer};
use crate::track::Tracker;
use crate::write::{Contents, ImageWriter, Written};
use crate::{ImageReport, PAGE_BYTES};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Instant;

/// Why an image could not be consolidated; it is what it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsolidateError {
    /// It, or one that it needs, is damaged.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The new file could not be written.
    #[error(transparent)]
    Write(#[from] CaptureError),
}

impl Tracker {
    /// Whether it is time for [`Tracker::consolidate`]: the last image needs many earlier files, or
    /// more than half of what these hold is of no use to it.
    pub fn is_scattered(&self) -> bool {
        self.base().is_some_and(|base| base.index.is_scattered())
    }

    /// Rewrites the last image as one that needs no earlier one of its process, under the same
    /// name. To be called only while no image is being made. `None`: there is nothing to do.
    pub fn consolidate(&mut self) -> Result<Option<ImageReport>, ConsolidateError> {
        let Some(base) = self.base().filter(|_| self.is_idle()).cloned() else { return Ok(None) };
        if base.index.ancestors().iter().all(|known| known.lent) {
            return Ok(None);
        }
        let name = base.index.files()[0].file.name.clone();
        let path = base.folder.join(OsStr::from_bytes(&name));
        let is_lent = |a: &Ancestor| base.index.files().iter().any(|k| k.lent && k.file == *a);
        let Some(Rewritten { written, extents, pages, lent, report }) = rewrite(&path, is_lent)?
        else {
            return Ok(None);
        };
        let file = Ancestor { name, identity: written.identity };
        let mut files = vec![Known { file, pages, lent: false }];
        files.extend(lent.into_iter().map(|(file, pages)| Known { file, pages, lent: true }));
        let index = base.index.consolidated(files, extents);
        drop(base);
        self.rewritten(index);
        Ok(Some(report))
    }
}

/// Rewrites the image `path` as one that needs no other file. Images that refer to it are of no use
/// afterwards. `None`: it needs none.
pub fn consolidate(path: &Path) -> Result<Option<ImageReport>, ConsolidateError> {
    Ok(rewrite(path, |_| false)?.map(|rewritten| rewritten.report))
}

struct Rewritten {
    written: Written,
    extents: Vec<Extent>,
    pages: u64,
    /// Files that it still needs, and the pages in them.
    lent: Vec<(Ancestor, u64)>,
    report: ImageReport,
}

/// Rewrites an image as one that needs no files but those that `stays` picks out.
fn rewrite(
    path: &Path,
    stays: impl Fn(&Ancestor) -> bool,
) -> Result<Option<Rewritten>, ConsolidateError> {
    let begun = Instant::now();
    let image = Image::open(path)?;
    if image.parts.len() == 1 {
        return Ok(None);
    }
    let writer = ImageWriter::create(path)?;
    let mut gatherer = Gatherer::new(&writer);
    let mut blocks = Blocks::default();
    let (lent, homes) = staying(&image, stays);
    for wanted in image.wants.blocks.iter().filter(|wanted| homes[wanted.part] == 0) {
        gatherer.take(&image, wanted, &mut blocks)?;
    }
    gatherer.flush()?;
    let mut extents = std::mem::take(&mut gatherer.extents);
    let stay = image.extents.iter().filter(|e| homes[e.home as usize] > 0).cloned();
    extents.extend(stay.map(|e| Extent { home: homes[e.home as usize], ..e }));
    let extents = joined(extents, &image);
    let pages = writer.pages();
    let counts: Vec<u64> = std::iter::once(pages).chain(lent.iter().map(|l| l.1)).collect();
    check::check(&image.state, &extents, &counts).map_err(ImageError::Invalid)?;
    let (state, meta) = (&image.state, image.meta());
    let ancestors: Vec<Ancestor> = lent.iter().map(|l| l.0.clone()).collect();
    let contents = Contents { state, extents: &extents, ancestors: &ancestors, meta };
    let written = writer.commit(&contents)?;
    let report = ImageReport {
        bytes: written.bytes,
        identity: written.identity,
        pages,
        ancestors: ancestors.into_iter().map(|a| OsString::from_vec(a.name)).collect(),
        write: begun.elapsed(),
        ..ImageReport::default()
    };
    Ok(Some(Rewritten { written, extents, pages, lent, report }))
}

/// The files that stay needed with their pages, and for each part of an image its number among
/// them, counted from 1; 0 for those that do not stay.
fn staying(image: &Image, stays: impl Fn(&Ancestor) -> bool) -> (Vec<(Ancestor, u64)>, Vec<u32>) {
    let (mut files, mut homes) = (Vec::new(), vec![0]);
    for (ancestor, part) in image.ancestors.iter().zip(&image.parts[1..]) {
        let stays = stays(ancestor);
        if stays {
            files.push((ancestor.clone(), part.pages()));
        }
        homes.push(if stays { files.len() as u32 } else { 0 });
    }
    (files, homes)
}

/// Pages on their way into the new file, in the order in which they lie in the old ones.
struct Gatherer<'a> {
    writer: &'a ImageWriter<'a>,
    /// Pages that are not written yet, and how many bytes they are.
    buffer: Buffer,
    held: usize,
    packer: Packer,
    /// File that the last pages are from.
    part: usize,
    /// Blocks written.
    blocks: usize,
    extents: Vec<Extent>,
}

impl<'a> Gatherer<'a> {
    fn new(writer: &'a ImageWriter<'a>) -> Gatherer<'a> {
        let mut buffer = Buffer::default();
        buffer.resize(BLOCK_BYTES);
        let packer = Packer::default();
        Gatherer { writer, buffer, held: 0, packer, part: 0, blocks: 0, extents: vec![] }
    }

    fn take(
        &mut self,
        image: &Image,
        wanted: &Wanted,
        blocks: &mut Blocks,
    ) -> Result<(), ConsolidateError> {
        let part = &image.parts[wanted.part];
        let pieces = image.wants.pieces_of(wanted);
        let block = &part.blocks()[wanted.block];
        let needed: usize = pieces.iter().map(|p| p.bytes).sum();
        let whole = needed == block.raw as usize;
        // Shared objects lie behind all else in their block: pages of two files never share one.
        if whole || self.held + needed > BLOCK_BYTES || self.part != wanted.part {
            self.flush()?;
        }
        self.part = wanted.part;
        let first = self.writer.pages() + self.held as u64 / PAGE_BYTES;
        let mut next = first;
        for piece in pieces {
            // In a block that is taken over, each piece stays where it is.
            let first = if whole { first + piece.offset as u64 / PAGE_BYTES } else { next };
            let pages = piece.bytes as u64 / PAGE_BYTES;
            let extent = Extent { start: piece.address, pages, home: 0, reserved: 0, first };
            self.extents.push(extent);
            next += pages;
        }
        if whole {
            let mut stored = Vec::new();
            part.stored(wanted.block, &mut stored)?;
            stored.resize(stored.len().next_multiple_of(PAGE_BYTES as usize), 0);
            let packed = Packed { block: block.clone(), padded: &stored };
            self.writer.turn(self.blocks).store(Some(&packed), |_| ())?;
            self.blocks += 1;
            return Ok(());
        }
        let pages = blocks.pages(part, wanted.block)?;
        for piece in pieces {
            let from = &pages[piece.offset..piece.offset + piece.bytes];
            self.buffer[self.held..self.held + piece.bytes].copy_from_slice(from);
            self.held += piece.bytes;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        if self.held == 0 {
            return Ok(());
        }
        let pages = &self.buffer[..std::mem::take(&mut self.held)];
        let packed = self.packer.pack(&self.writer.tuner, pages);
        let packed =
            packed.map_err(|source| CaptureError::Os { what: "compress a block", source })?;
        self.writer.turn(self.blocks).store(Some(&packed), |_| ())?;
        self.blocks += 1;
        Ok(())
    }
}

/// Extents in order of address, joined where they follow each other in memory, in the file, and in
/// an extent of the old image.
fn joined(mut extents: Vec<Extent>, image: &Image) -> Vec<Extent> {
    extents.sort_unstable_by_key(|e| e.start);
    let mut all: Vec<Extent> = Vec::new();
    let mut old = image.extents.iter().peekable();
    for extent in extents {
        while old.next_if(|o| o.start + o.pages * PAGE_BYTES <= extent.start).is_some() {}
        let begins = old.peek().is_some_and(|o| o.start == extent.start);
        match all.last_mut() {
            Some(last)
                if !begins
                    && last.home == extent.home
                    && last.start + last.pages * PAGE_BYTES == extent.start
                    && last.first + last.pages == extent.first =>
            {
                last.pages += extent.pages;
            }
            _ => all.push(extent),
        }
    }
    all
}
