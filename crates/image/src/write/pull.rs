//! Getting the content of a twin's memory into the image.
//!
//! First it is noted what is to be read; then a few threads read, hash, compress and write it, each
//! a block at a time, so that nothing is staged anywhere and the memory used is a few blocks.
//!
//! Only pages that the process has touched are read, so that none is faulted in. Pages of zeros in
//! memory without a file are left out: they come back by themselves.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::kernel::pagemap::Pagemap;
use crate::write::dedup;
use crate::write::object_hashes::Held;
use crate::write::page_source::Source;
use crate::write::time_limit::Until;
use eyrie_image_format::bytes::layout::{BLOCK_BYTES, Extent};
use eyrie_image_format::state::{Guard, Run};
use eyrie_image_format::support::buffer::Buffer;
use eyrie_image_format::support::fault;
use eyrie_image_format::support::parallel;
use eyrie_image_format::support::spans::Spans;
use eyrie_image_format::write::pack::Packer;
use eyrie_image_format::write::writer::ImageWriter;
use std::ops::Range;
use std::sync::Mutex;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_128;

const PAGE: usize = PAGE_BYTES as usize;
const BLOCK_PAGES: usize = BLOCK_BYTES / PAGE;

/// What to do about a page that turns out to be unreadable or zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No file behind: zero pages are left out, unreadable ones are guard pages.
    Anon,
    /// A private copy of a file's page; unreadable ones are guard pages.
    File,
    /// A page that stands for one of a lost file: unreadable ones lie beyond its end.
    Lost,
}

/// Pages of one region that go into one block. There can be half a million.
struct Piece {
    start: u64,
    pages: u32,
    kind: Kind,
    /// Whether the program may read them.
    legible: bool,
    /// Whether it begins an extent of its own even if it touches the last one.
    fresh: bool,
}

/// What becomes a block.
enum Job<'a> {
    /// Pieces to be read.
    Read(Range<usize>),
    /// Content that was saved earlier, from this address on.
    Saved { start: u64, content: &'a [u8], fresh: bool },
}

/// Pages that a block holds, and where they belong.
#[derive(Default)]
struct Found {
    /// Start, number of pages, whether it must not be joined to the one before.
    runs: Vec<(u64, u64, bool)>,
    /// Pages of zeros that are left out.
    blank: Spans,
    guards: Vec<Guard>,
    hashes: Vec<u64>,
}

/// Pages on their way into an image.
pub struct Puller<'a> {
    reader: Reader<'a>,
    writer: &'a ImageWriter<'a>,
    jobs: Vec<Job<'a>>,
    pieces: Vec<Piece>,
    /// First piece of the block that is being put together, and its pages so far.
    begun: (usize, usize),
    /// What was stored, in order.
    pub extents: Vec<Extent>,
    /// Pages without a file that were zeros and are not stored.
    pub blank: Spans,
    /// Guard pages found, in order.
    pub guards: Vec<Guard>,
    /// Hashes of all pages that were stored, if they are wanted.
    pub hashes: Option<Vec<u64>>,
    /// Gets what all pages were that were read, also those of zeros, if that is wanted.
    pub seen: Option<&'a Held>,
    /// What makes it fail.
    pub until: Until<'a>,
}

/// What is known of the pages that were stored.
#[derive(Default)]
struct Stored {
    extents: Vec<Extent>,
    blank: Spans,
    guards: Vec<Guard>,
    hashes: Vec<u64>,
}

/// What is read.
struct Reader<'a> {
    source: &'a Source,
    /// Is to be told what each page was.
    seen: Option<&'a Held>,
    /// Where the source is a process.
    pagemap: Option<&'a Pagemap>,
}

/// What a thread needs.
#[derive(Default)]
struct Worker {
    buffer: Buffer,
    packer: Packer,
}

impl<'a> Puller<'a> {
    /// Reads from `source` into `writer`; without `pagemap` all that cannot be read is known to be
    /// a guard page.
    pub fn new(
        source: &'a Source,
        pagemap: Option<&'a Pagemap>,
        writer: &'a ImageWriter<'a>,
    ) -> Self {
        Puller {
            reader: Reader { source, seen: None, pagemap },
            writer,
            jobs: Vec::new(),
            pieces: Vec::new(),
            begun: (0, 0),
            extents: Vec::new(),
            blank: Spans::default(),
            guards: Vec::new(),
            hashes: None,
            seen: None,
            until: Until::default(),
        }
    }

    /// Takes the pages of `run`, which lies within one region.
    pub fn take(&mut self, run: &Run, kind: Kind, legible: bool) {
        let mut left = run.clone();
        while left.pages > 0 {
            let pages = left.pages.min((BLOCK_PAGES - self.begun.1) as u64);
            let (start, fresh) = (left.start, left.start == run.start);
            self.pieces.push(Piece { start, pages: pages as u32, kind, legible, fresh });
            self.begun.1 += pages as usize;
            left.start += pages * PAGE_BYTES;
            left.pages -= pages;
            if self.begun.1 == BLOCK_PAGES {
                self.end_block();
            }
        }
    }

    /// Takes pages whose content was saved earlier.
    pub fn take_saved(&mut self, start: u64, content: &'a [u8]) {
        self.end_block();
        for (i, content) in content.chunks(BLOCK_BYTES).enumerate() {
            let start = start + (i * BLOCK_BYTES) as u64;
            self.jobs.push(Job::Saved { start, content, fresh: i == 0 });
        }
    }

    fn end_block(&mut self) {
        if self.begun.1 > 0 {
            self.jobs.push(Job::Read(self.begun.0..self.pieces.len()));
        }
        self.begun = (self.pieces.len(), 0);
    }

    /// Reads and writes all that was taken.
    pub fn pull(&mut self) -> Result<(), CaptureError> {
        self.end_block();
        let (jobs, pieces) = (std::mem::take(&mut self.jobs), std::mem::take(&mut self.pieces));
        self.begun = (0, 0);
        let hashing = self.hashes.is_some();
        self.reader.seen = self.seen;
        let all = Mutex::new(Stored {
            extents: std::mem::take(&mut self.extents),
            blank: std::mem::take(&mut self.blank),
            guards: std::mem::take(&mut self.guards),
            hashes: self.hashes.take().unwrap_or_default(),
        });
        self.writer.restart_turns();
        let work =
            |worker: &mut Worker, i: usize| {
                let turn = self.writer.turn(i);
                self.until.check()?;
                let tuner = &self.writer.tuner;
                let begun = Instant::now();
                worker.buffer.resize(BLOCK_BYTES);
                let (mut found, kept) = match &jobs[i] {
                    Job::Read(range) => self.reader.read_block(&pieces[range.clone()], worker)?,
                    Job::Saved { start, content, fresh } => {
                        worker.buffer[..content.len()].copy_from_slice(content);
                        let runs = vec![(*start, (content.len() / PAGE) as u64, *fresh)];
                        (Found { runs, ..Found::default() }, content.len())
                    }
                };
                if hashing {
                    let pages = worker.buffer[..kept].chunks_exact(PAGE);
                    found.hashes = pages.map(dedup::hash).collect();
                }
                tuner.pulled(kept, begun.elapsed());
                fault::point(fault::BLOCK_READ)?;
                let packed =
                    match kept {
                        0 => None,
                        _ => Some(worker.packer.pack(tuner, &worker.buffer[..kept]).map_err(
                            |source| CaptureError::Os { what: "compress a block", source },
                        )?),
                    };
                turn.store(packed.as_ref(), |first| {
                    let mut all = all.lock().unwrap_or_else(|e| e.into_inner());
                    found.add_to(&mut all, first);
                })?;
                self.until.stored();
                Ok(())
            };
        let result =
            parallel::for_each(parallel::threads_that_wait(), jobs.len(), Worker::default, work);
        let all = all.into_inner().unwrap_or_else(|e| e.into_inner());
        (self.extents, self.blank, self.guards) = (all.extents, all.blank, all.guards);
        self.hashes = hashing.then_some(all.hashes);
        result
    }
}

impl Found {
    /// Joins the next pages to those before; `first` is the number of the first of them.
    fn add_to(self, all: &mut Stored, mut first: u64) {
        let Stored { extents, blank, guards, hashes } = all;
        hashes.extend(self.hashes);
        self.blank.iter().for_each(|s| blank.push(s.start, s.end));
        for (start, pages, fresh) in self.runs {
            match extents.last_mut() {
                Some(last)
                    if !fresh
                        && last.start + last.pages * PAGE_BYTES == start
                        && (last.home, last.first + last.pages) == (0, first) =>
                {
                    last.pages += pages;
                }
                _ => extents.push(Extent { start, pages, home: 0, reserved: 0, first }),
            }
            first += pages;
        }
        for guard in self.guards {
            match guards.last_mut() {
                Some(last) if last.end == guard.start => last.end = guard.end,
                _ => guards.push(guard),
            }
        }
    }
}

impl Reader<'_> {
    /// Reads what goes into one block; returns how much of the buffer is filled.
    fn read_block(
        &self,
        pieces: &[Piece],
        worker: &mut Worker,
    ) -> Result<(Found, usize), CaptureError> {
        let (mut found, mut kept) = (Found::default(), 0);
        for piece in pieces {
            let mut done = 0;
            while done < u64::from(piece.pages) {
                let at = piece.start + done * PAGE_BYTES;
                let bytes = ((u64::from(piece.pages) - done) * PAGE_BYTES) as usize;
                let read = self.source.read(at, &mut worker.buffer[kept..kept + bytes])?;
                if let Some(seen) = self.seen {
                    let pages = worker.buffer[kept..kept + read].chunks_exact(PAGE);
                    seen.note(at, &pages.map(xxh3_128).collect::<Vec<_>>());
                }
                kept += found.sift(piece, at, &mut worker.buffer[kept..kept + read]);
                done += (read / PAGE) as u64;
                if read < bytes {
                    let page = piece.start + done * PAGE_BYTES;
                    self.unreadable(piece, page, &mut found.guards)?;
                    done += 1;
                }
            }
        }
        Ok((found, kept))
    }

    /// A page that cannot be read although it is there is a guard page.
    fn unreadable(
        &self,
        piece: &Piece,
        page: u64,
        guards: &mut Vec<Guard>,
    ) -> Result<(), CaptureError> {
        if piece.kind == Kind::Lost {
            return Ok(());
        }
        // Where the program may not read either, the kernel must confirm it: it may be one that
        // does not let a tracer read what the program may not.
        let pagemap = self.pagemap.filter(|_| !piece.legible);
        if let Some(pagemap) = pagemap
            && !pagemap.is_guard(page)?
        {
            return Err(illegible(page));
        }
        guards.push(Guard { start: page, end: page + PAGE_BYTES });
        Ok(())
    }
}

impl Found {
    /// Moves the pages that are to be stored to the front and notes all; returns their bytes.
    fn sift(&mut self, piece: &Piece, start: u64, pages: &mut [u8]) -> usize {
        let mut kept = 0;
        for at in (0..pages.len()).step_by(PAGE) {
            let address = start + at as u64;
            if piece.kind != Kind::File && is_zero(&pages[at..at + PAGE]) {
                if piece.kind == Kind::Anon {
                    self.blank.push(address, address + PAGE_BYTES);
                }
                continue;
            }
            if kept != at {
                pages.copy_within(at..at + PAGE, kept);
            }
            kept += PAGE;
            let fresh = piece.fresh && address == piece.start;
            match self.runs.last_mut() {
                Some((start, pages, _)) if !fresh && *start + *pages * PAGE_BYTES == address => {
                    *pages += 1;
                }
                _ => self.runs.push((address, 1, fresh)),
            }
        }
        kept
    }
}

/// Whether a page is all zeros.
pub fn is_zero(page: &[u8]) -> bool {
    // The first bytes decide for nearly every page with content.
    page[..64].iter().all(|&b| b == 0) && page.iter().fold(0, |all, &b| all | b) == 0
}

/// A page that is there but cannot be read, although it is no guard page.
pub(crate) fn illegible(page: u64) -> CaptureError {
    CaptureError::Mapping { start: page, what: "not readable and not shown to us either".into() }
}
