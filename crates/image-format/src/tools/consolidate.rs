//! Putting an image whose content lies in several files into one, or fewer, without the program.
//!
//! Blocks of which all is needed are taken over as they are stored, others are packed anew, by a
//! few threads. The new file takes the place of the old in one step; the files that it needed are
//! left to the caller. What other processes have lent (`eyrie_image::Pool`) may stay where it
//! is.

use crate::PAGE_BYTES;
use crate::bytes::layout::{Ancestor, BLOCK_BYTES, Extent};
use crate::check;
use crate::error::{ImageError, WriteError};
use crate::read::blocks::{Blocks, Piece};
use crate::read::image::{Check, Image};
use crate::state::object_of;
use crate::support::buffer::Buffer;
use crate::support::parallel;
use crate::write::pack::{Packed, Packer};
use crate::write::writer::{Contents, ImageWriter, Written};
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Why an image could not be consolidated; it is what it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConsolidateError {
    /// It, or one that it needs, is damaged.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The new file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// An image that was put together.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Consolidated {
    /// Size of its file.
    pub bytes: u64,
    /// Pages stored in it.
    pub pages: u64,
    /// What tells it from all others.
    pub identity: [u8; 16],
    /// The names of the files that it still needs, in the same folder.
    pub ancestors: Vec<OsString>,
    /// How long it took.
    pub took: Duration,
}

/// Rewrites the image `path` as one that needs no other file. Images that refer to it are of no use
/// afterwards. `None`: it needs none.
pub fn consolidate(path: &Path) -> Result<Option<Consolidated>, ConsolidateError> {
    Ok(rewrite(path, |_| false)?.map(|rewritten| rewritten.report))
}

pub struct Rewritten {
    pub written: Written,
    pub extents: Vec<Extent>,
    pub pages: u64,
    /// Files that it still needs, and the pages in them.
    pub stay: Vec<(Ancestor, u64)>,
    pub report: Consolidated,
}

/// Rewrites an image as one that needs no files but those that `stays` picks out.
pub fn rewrite(
    path: &Path,
    stays: impl Fn(&Ancestor) -> bool,
) -> Result<Option<Rewritten>, ConsolidateError> {
    let begun = Instant::now();
    // Blocks are held against their checksums when they are read.
    let image = Image::open_tree(path, Check::Tables)?;
    if image.parts.len() == 1 {
        return Ok(None);
    }
    let writer = ImageWriter::create(path)?;
    let (stay, homes) = staying(&image, stays);
    let Plan { jobs, mut extents, .. } = Plan::new(&image, &homes);
    let threads = parallel::threads_that_wait();
    parallel::for_each(threads, jobs.len(), Worker::default, |worker, i| {
        worker.rewrite(&image, &writer, i, &jobs[i])
    })?;
    let left = image.extents.iter().filter(|e| homes[e.home as usize] > 0).cloned();
    extents.extend(left.map(|e| Extent { home: homes[e.home as usize], ..e }));
    let extents = joined(extents, &image);
    let pages = writer.pages();
    let counts: Vec<u64> = std::iter::once(pages).chain(stay.iter().map(|s| s.1)).collect();
    check::check(&image.state, &extents, &counts).map_err(ImageError::Invalid)?;
    let (state, meta) = (&image.state, image.meta());
    let ancestors: Vec<Ancestor> = stay.iter().map(|s| s.0.clone()).collect();
    let contents = Contents { state, extents: &extents, ancestors: &ancestors, meta };
    let written = writer.commit(&contents)?;
    let report = Consolidated {
        bytes: written.bytes,
        pages,
        identity: written.identity,
        ancestors: ancestors.into_iter().map(|a| OsString::from_vec(a.name)).collect(),
        took: begun.elapsed(),
    };
    Ok(Some(Rewritten { written, extents, pages, stay, report }))
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

/// What becomes a block of the new file.
enum Job {
    /// A wanted block that is taken over as it is stored.
    Whole(usize),
    /// What is needed of some wanted blocks of one file.
    Parts(Range<usize>),
}

/// The blocks of the new file, in the order of the pages in the old ones, and what lies in them.
#[derive(Default)]
struct Plan {
    jobs: Vec<Job>,
    extents: Vec<Extent>,
    pages: u64,
    /// First of the wanted blocks whose parts are put together, and bytes of these so far.
    begun: usize,
    held: usize,
}

impl Plan {
    /// `homes`: zero for each part of the image that is to be taken over.
    fn new(image: &Image, homes: &[u32]) -> Plan {
        let mut plan = Plan::default();
        let (mut part, mut shared) = (0, false);
        for (i, wanted) in image.wants.blocks.iter().enumerate() {
            if homes[wanted.part] > 0 {
                plan.end_parts(i);
                plan.begun = i + 1;
                continue;
            }
            let pieces = image.wants.pieces_of(wanted);
            let needed: usize = pieces.iter().map(|p| p.bytes).sum();
            let whole = needed == image.parts[wanted.part].blocks()[wanted.block].raw as usize;
            // Memory and shared objects never share a block, in whichever order their file has
            // them, nor do pages of two files.
            let is_shared = |p: Option<&Piece>| p.is_some_and(|p| object_of(p.address).is_some());
            let other = part != wanted.part || shared != is_shared(pieces.first());
            if whole || plan.held + needed > BLOCK_BYTES || other {
                plan.end_parts(i);
            }
            (part, shared) = (wanted.part, is_shared(pieces.last()));
            plan.place(pieces, whole);
            if whole {
                plan.jobs.push(Job::Whole(i));
                plan.begun = i + 1;
            } else {
                plan.held += needed;
            }
        }
        plan.end_parts(image.wants.blocks.len());
        plan
    }

    fn place(&mut self, pieces: &[Piece], whole: bool) {
        let first = self.pages;
        for piece in pieces {
            let pages = piece.bytes as u64 / PAGE_BYTES;
            // In a block that is taken over, each piece stays where it is.
            let first = if whole { first + piece.offset as u64 / PAGE_BYTES } else { self.pages };
            self.extents.push(Extent { start: piece.address, pages, home: 0, reserved: 0, first });
            self.pages += pages;
        }
    }

    fn end_parts(&mut self, next: usize) {
        if self.held > 0 {
            self.jobs.push(Job::Parts(self.begun..next));
        }
        (self.begun, self.held) = (next, 0);
    }
}

/// What a thread needs.
#[derive(Default)]
struct Worker {
    stored: Buffer,
    gathered: Buffer,
    blocks: Blocks,
    packer: Packer,
}

impl Worker {
    /// Writes the `i`-th block of the new file.
    fn rewrite(
        &mut self,
        image: &Image,
        writer: &ImageWriter<'_>,
        i: usize,
        job: &Job,
    ) -> Result<(), ConsolidateError> {
        let turn = writer.turn(i);
        let packed = match job {
            Job::Whole(wanted) => {
                let wanted = &image.wants.blocks[*wanted];
                let part = &image.parts[wanted.part];
                let padded = part.stored(wanted.block, &mut self.stored);
                let padded =
                    padded.map_err(|e| if wanted.part == 0 { e } else { part.blame(e) })?;
                Packed { block: part.blocks()[wanted.block].clone(), padded }
            }
            Job::Parts(range) => {
                self.gathered.resize(BLOCK_BYTES);
                let mut held = 0;
                for wanted in &image.wants.blocks[range.clone()] {
                    let pages = self.blocks.wanted(&image.parts, wanted)?;
                    for piece in image.wants.pieces_of(wanted) {
                        let from = &pages[piece.offset..piece.offset + piece.bytes];
                        self.gathered[held..held + piece.bytes].copy_from_slice(from);
                        held += piece.bytes;
                    }
                }
                let packed = self.packer.pack(&writer.tuner, &self.gathered[..held]);
                packed.map_err(|source| WriteError::Os { what: "compress a block", source })?
            }
        };
        turn.store(Some(&packed), |_| ())?;
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
