//! Putting an image whose content lies in several files into one, or fewer, without the program.
//!
//! Blocks of which all is needed are taken over as they are stored, others are packed anew, by a
//! few threads. The new file takes the place of the old in one step; the files that it needed are
//! left to the caller. What other processes have lent ([`crate::pool`]) may stay where it is.

use crate::aligned::Buffer;
use crate::blocks::{Blocks, Piece};
use crate::chain::{Index, Known};
use crate::check;
use crate::error::{CaptureError, ImageError};
use crate::format::{Ancestor, BLOCK_BYTES, Extent};
use crate::image::{Check, Image};
use crate::pack::{Packed, Packer};
use crate::parallel;
use crate::state::orphan_of;
use crate::track::Tracker;
use crate::write::{Contents, ImageWriter, Written};
use crate::{ImageReport, PAGE_BYTES};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
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
    /// Whether it is time for [`Tracker::tidy`]: the last image needs many earlier files, or more
    /// than half of what these hold is of no use to it.
    pub fn is_scattered(&self) -> bool {
        self.base().is_some_and(|base| base.index.is_scattered())
    }

    /// Rewrites the last image as one that needs no earlier one of its process, under the same
    /// name. To be called only while no image is being made. `None`: there is nothing to do.
    pub fn consolidate(&mut self) -> Result<Option<ImageReport>, ConsolidateError> {
        self.put_together(|index| index.files().iter().map(|known| known.lent).collect())
    }

    /// The same, but as one that still needs the earlier ones that are large and of use: what is
    /// written anew is about what has changed.
    pub fn tidy(&mut self) -> Result<Option<ImageReport>, ConsolidateError> {
        self.put_together(Index::staying)
    }

    fn put_together(
        &mut self,
        staying: impl Fn(&Index) -> Vec<bool>,
    ) -> Result<Option<ImageReport>, ConsolidateError> {
        let Some(base) = self.base().filter(|_| self.is_idle()).cloned() else { return Ok(None) };
        let staying = staying(&base.index);
        let stay: Vec<&Known> =
            base.index.files().iter().zip(staying).filter(|f| f.1).map(|f| f.0).collect();
        if stay.len() == base.index.ancestors().len() {
            return Ok(None);
        }
        let name = base.index.files()[0].file.name.clone();
        let path = base.folder.join(OsStr::from_bytes(&name));
        let stays = |a: &Ancestor| stay.iter().any(|known| known.file == *a);
        let Some(Rewritten { written, extents, pages, stay: left, report }) =
            rewrite(&path, stays)?
        else {
            return Ok(None);
        };
        let file = Ancestor { name, identity: written.identity };
        let mut files = vec![Known { file, pages, lent: false }];
        let is_lent = |a: &Ancestor| stay.iter().any(|known| known.lent && known.file == *a);
        files.extend(left.into_iter().map(|(file, pages)| {
            let lent = is_lent(&file);
            Known { file, pages, lent }
        }));
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
    stay: Vec<(Ancestor, u64)>,
    report: ImageReport,
}

/// Rewrites an image as one that needs no files but those that `stays` picks out.
fn rewrite(
    path: &Path,
    stays: impl Fn(&Ancestor) -> bool,
) -> Result<Option<Rewritten>, ConsolidateError> {
    let begun = Instant::now();
    // Blocks are held against their checksums when they are read.
    let image = Image::open_family(path, Check::Tables)?;
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
    let report = ImageReport {
        bytes: written.bytes,
        identity: written.identity,
        pages,
        ancestors: ancestors.into_iter().map(|a| OsString::from_vec(a.name)).collect(),
        write: begun.elapsed(),
        ..ImageReport::default()
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
            let is_shared = |p: Option<&Piece>| p.is_some_and(|p| orphan_of(p.address).is_some());
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
                packed.map_err(|source| CaptureError::Os { what: "compress a block", source })?
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
