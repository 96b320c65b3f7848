//! Getting the content of a twin's memory into the image.
//!
//! Pages are read through `/proc/PID/mem`. `process_vm_readv` looks like the better choice and is
//! the worse one: it pins pages, and for a page that the twin still shares with the process the
//! kernel then first makes a copy of its own for the twin, which halves the speed and doubles the
//! memory.
//!
//! Only pages that the process has touched are read, so that none is faulted in. Pages of zeros in
//! memory without a file are left out: they come back by themselves.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::fault;
use crate::format::{BLOCK_BYTES, Extent, codec};
use crate::scan::Pagemap;
use crate::state::{Guard, Run};
use crate::write::ImageWriter;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PAGE: usize = PAGE_BYTES as usize;

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

/// Queued pages, all of one region.
struct Piece {
    run: Run,
    kind: Kind,
    /// Whether the program may read them.
    legible: bool,
    /// Whether it begins a run of its own even if it touches the last one.
    fresh: bool,
}

/// Pages on their way into an image.
pub struct Puller<'a> {
    mem: File,
    pagemap: Pagemap,
    writer: &'a mut ImageWriter,
    buffer: Vec<u8>,
    /// Pages to be read with the next block.
    queued: Vec<Piece>,
    queued_pages: usize,
    /// What was stored, in order.
    pub extents: Vec<Extent>,
    /// Pages that were stored or are about to be.
    pages: u64,
    /// Guard pages found, in order.
    pub guards: Vec<Guard>,
}

impl<'a> Puller<'a> {
    /// Reads from `pid` into `writer`.
    pub fn new(pid: libc::pid_t, writer: &'a mut ImageWriter) -> Result<Self, CaptureError> {
        let mem = File::open(format!("/proc/{pid}/mem")).map_err(|_| CaptureError::TwinGone)?;
        let pages = writer.pages();
        Ok(Puller {
            mem,
            pagemap: Pagemap::open(pid)?,
            writer,
            buffer: vec![0; BLOCK_BYTES],
            queued: Vec::new(),
            queued_pages: 0,
            extents: Vec::new(),
            pages,
            guards: Vec::new(),
        })
    }

    /// Takes the pages of a region that have content of their own.
    pub fn take_own(
        &mut self,
        start: u64,
        end: u64,
        kind: Kind,
        legible: bool,
    ) -> Result<(), CaptureError> {
        let mut runs = Vec::new();
        self.pagemap.own_pages(start, end, u64::MAX, &mut runs)?;
        runs.iter().try_for_each(|run| self.take(run, kind, legible))
    }

    /// Takes the pages of `run`, which lies within one region.
    pub fn take(&mut self, run: &Run, kind: Kind, legible: bool) -> Result<(), CaptureError> {
        let mut left = run.clone();
        while left.pages > 0 {
            let room = (BLOCK_BYTES / PAGE - self.queued_pages) as u64;
            let pages = left.pages.min(room);
            let fresh = left.start == run.start;
            self.queued.push(Piece { run: Run { start: left.start, pages }, kind, legible, fresh });
            self.queued_pages += pages as usize;
            left.start += pages * PAGE_BYTES;
            left.pages -= pages;
            if self.queued_pages == BLOCK_BYTES / PAGE {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Takes pages whose content was saved earlier.
    pub fn take_saved(&mut self, start: u64, content: &[u8]) -> Result<(), CaptureError> {
        self.flush()?;
        for (i, block) in content.chunks(BLOCK_BYTES).enumerate() {
            let at = start + (i * BLOCK_BYTES) as u64;
            self.writer.append(codec::NONE, block)?;
            self.stored(at, (block.len() / PAGE) as u64, i == 0);
        }
        Ok(())
    }

    /// Reads and writes what is queued.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        let queued = std::mem::take(&mut self.queued);
        self.queued_pages = 0;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut kept = 0;
        for piece in &queued {
            let mut done = 0;
            while done < piece.run.pages {
                let at = piece.run.start + done * PAGE_BYTES;
                let bytes = ((piece.run.pages - done) * PAGE_BYTES) as usize;
                let read = self.read(at, &mut buffer[kept..kept + bytes])?;
                kept += self.sift(piece, at, &mut buffer[kept..kept + read]);
                done += (read / PAGE) as u64;
                if read < bytes {
                    self.unreadable(piece, piece.run.start + done * PAGE_BYTES)?;
                    done += 1;
                }
            }
        }
        let result = match fault::point(fault::BLOCK_READ) {
            Ok(()) => self.writer.append(codec::NONE, &buffer[..kept]),
            Err(fault) => Err(fault.into()),
        };
        self.buffer = buffer;
        result
    }

    /// Moves the pages that are to be stored to the front and notes them; returns their bytes.
    fn sift(&mut self, piece: &Piece, start: u64, pages: &mut [u8]) -> usize {
        let mut kept = 0;
        for at in (0..pages.len()).step_by(PAGE) {
            if piece.kind != Kind::File && is_zero(&pages[at..at + PAGE]) {
                continue;
            }
            if kept != at {
                pages.copy_within(at..at + PAGE, kept);
            }
            kept += PAGE;
            let address = start + at as u64;
            self.stored(address, 1, piece.fresh && address == piece.run.start);
        }
        kept
    }

    /// Notes that pages follow those that are stored.
    fn stored(&mut self, start: u64, pages: u64, fresh: bool) {
        let first = self.pages;
        self.pages += pages;
        match self.extents.last_mut() {
            Some(last) if !fresh && last.start + last.pages * PAGE_BYTES == start => {
                last.pages += pages;
            }
            _ => self.extents.push(Extent { start, pages, home: 0, reserved: 0, first }),
        }
    }

    /// A page that cannot be read although it is there is a guard page.
    fn unreadable(&mut self, piece: &Piece, page: u64) -> Result<(), CaptureError> {
        if piece.kind == Kind::Lost {
            return Ok(());
        }
        // Where the program may not read either, the kernel must confirm it: it may be one that
        // does not let a tracer read what the program may not.
        if !piece.legible && !self.pagemap.is_guard(page)? {
            let what = "not readable and not shown to us either".into();
            return Err(CaptureError::Mapping { start: page, what });
        }
        match self.guards.last_mut() {
            Some(last) if last.end == page => last.end += PAGE_BYTES,
            _ => self.guards.push(Guard { start: page, end: page + PAGE_BYTES }),
        }
        Ok(())
    }

    /// Reads from `address` on, whatever the protection, up to a page without content.
    fn read(&self, address: u64, to: &mut [u8]) -> Result<usize, CaptureError> {
        let mut done = 0;
        while done < to.len() {
            match self.mem.read_at(&mut to[done..], address + done as u64) {
                // The memory of a process that has died reads as empty.
                Ok(0) => return Err(CaptureError::TwinGone),
                Ok(n) => done += n,
                Err(e) if e.raw_os_error() == Some(libc::EIO) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    return Err(CaptureError::Os { what: "read the twin's memory", source });
                }
            }
        }
        Ok(done / PAGE * PAGE)
    }
}

fn is_zero(page: &[u8]) -> bool {
    // The first bytes decide for nearly every page with content.
    page[..64].iter().all(|&b| b == 0) && page.iter().fold(0, |all, &b| all | b) == 0
}
