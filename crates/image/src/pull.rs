//! Getting the content of a twin's memory into the image.
//!
//! Pages are read in blocks with `process_vm_readv`, which is the fastest way measured; what it cannot
//! read (pages without read permission) comes through `/proc/PID/mem`. Reading never faults a page
//! in that the process had not touched. Pages of zeros in memory without a file are left out: they
//! come back by themselves.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::format::BLOCK_BYTES;
use crate::memory::{self, MAX_RANGES};
use crate::scan;
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
    /// A private copy of a file's page.
    File,
    /// A page that stands for one of a lost file: unreadable ones lie beyond its end.
    Lost,
}

/// Queued pages, all of one region.
struct Piece {
    run: Run,
    kind: Kind,
    /// Whether it begins a run of its own even if it touches the last one.
    fresh: bool,
}

/// Pages on their way into an image.
pub struct Puller<'a> {
    pid: libc::pid_t,
    mem: File,
    writer: &'a mut ImageWriter,
    buffer: Vec<u8>,
    /// Pages to be read with the next block.
    queued: Vec<Piece>,
    queued_pages: usize,
    /// What was stored, in order.
    pub runs: Vec<Run>,
    /// Guard pages found, in order.
    pub guards: Vec<Guard>,
}

impl<'a> Puller<'a> {
    /// Reads from `pid` into `writer`.
    pub fn new(pid: libc::pid_t, writer: &'a mut ImageWriter) -> Result<Self, CaptureError> {
        let mem = File::open(format!("/proc/{pid}/mem")).map_err(|_| CaptureError::TwinGone)?;
        Ok(Puller {
            pid,
            mem,
            writer,
            buffer: vec![0; BLOCK_BYTES],
            queued: Vec::new(),
            queued_pages: 0,
            runs: Vec::new(),
            guards: Vec::new(),
        })
    }

    /// Takes the pages of `run`, which lies within one region.
    pub fn take(&mut self, run: &Run, kind: Kind) -> Result<(), CaptureError> {
        let mut left = run.clone();
        while left.pages > 0 {
            let room = (BLOCK_BYTES / PAGE - self.queued_pages) as u64;
            let pages = left.pages.min(room);
            let fresh = left.start == run.start;
            self.queued.push(Piece { run: Run { start: left.start, pages }, kind, fresh });
            self.queued_pages += pages as usize;
            left.start += pages * PAGE_BYTES;
            left.pages -= pages;
            if self.queued_pages == BLOCK_BYTES / PAGE || self.queued.len() == MAX_RANGES {
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
            self.writer.append(block)?;
            self.stored(at, (block.len() / PAGE) as u64, i == 0);
        }
        Ok(())
    }

    /// Reads and writes what is queued.
    pub fn flush(&mut self) -> Result<(), CaptureError> {
        let queued = std::mem::take(&mut self.queued);
        let mut buffer = std::mem::take(&mut self.buffer);
        let total = std::mem::take(&mut self.queued_pages) * PAGE;
        let readable = self.read(&queued, &mut buffer[..total])?;
        let mut kept = 0;
        let mut at = 0;
        for Piece { run, kind, fresh } in &queued {
            for i in 0..run.pages {
                let page = at..at + PAGE;
                at += PAGE;
                let address = run.start + i * PAGE_BYTES;
                if readable.as_ref().is_some_and(|r| !r[page.start / PAGE]) {
                    if *kind == Kind::Anon {
                        self.guard(address);
                    }
                } else if *kind == Kind::File || !is_zero(&buffer[page.clone()]) {
                    if kept != page.start {
                        buffer.copy_within(page, kept);
                    }
                    kept += PAGE;
                    self.stored(address, 1, *fresh && i == 0);
                }
            }
        }
        let result = self.writer.append(&buffer[..kept]);
        self.buffer = buffer;
        result
    }

    fn stored(&mut self, start: u64, pages: u64, fresh: bool) {
        if fresh {
            self.runs.push(Run { start, pages });
        } else {
            scan::push(&mut self.runs, start, start + pages * PAGE_BYTES);
        }
    }

    fn guard(&mut self, page: u64) {
        match self.guards.last_mut() {
            Some(last) if last.end == page => last.end += PAGE_BYTES,
            _ => self.guards.push(Guard { start: page, end: page + PAGE_BYTES }),
        }
    }

    /// Reads the queued pages one after the other; tells which could be read unless all could.
    fn read(&self, queued: &[Piece], to: &mut [u8]) -> Result<Option<Vec<bool>>, CaptureError> {
        let ranges = ranges_from(queued, 0);
        if ranges.is_empty() {
            return Ok(None);
        }
        let mut done = self.read_ranges(&ranges, to)?;
        if done == to.len() {
            return Ok(None);
        }
        let mut readable = vec![true; to.len() / PAGE];
        while done < to.len() {
            let page = done / PAGE;
            readable[page] =
                self.read_one(page_address(queued, page), &mut to[page * PAGE..][..PAGE])?;
            done = (page + 1) * PAGE;
            let ranges = ranges_from(queued, page + 1);
            if !ranges.is_empty() {
                done += self.read_ranges(&ranges, &mut to[done..])?;
            }
        }
        Ok(Some(readable))
    }

    fn read_ranges(&self, ranges: &[libc::iovec], to: &mut [u8]) -> Result<usize, CaptureError> {
        match memory::read_ranges(self.pid, ranges, to) {
            Ok(n) => Ok(n / PAGE * PAGE),
            Err(e) => match e.raw_os_error() {
                Some(libc::EFAULT) => Ok(0),
                Some(libc::ESRCH) => Err(CaptureError::TwinGone),
                _ => Err(CaptureError::Os { what: "read the twin's memory", source: e }),
            },
        }
    }

    /// Reads a page whatever its protection; `false` if it has no content.
    fn read_one(&self, address: u64, to: &mut [u8]) -> Result<bool, CaptureError> {
        match self.mem.read_exact_at(to, address) {
            Ok(()) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::EIO) => Ok(false),
            // The memory of a process that has died reads as empty.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(CaptureError::TwinGone),
            Err(source) => Err(CaptureError::Os { what: "read the twin's memory", source }),
        }
    }
}

/// The queued pages from page number `skip` on, as ranges.
fn ranges_from(queued: &[Piece], skip: usize) -> Vec<libc::iovec> {
    let mut skip = skip as u64;
    let mut ranges = Vec::with_capacity(queued.len());
    for Piece { run, .. } in queued {
        let left_out = skip.min(run.pages);
        skip -= left_out;
        if left_out < run.pages {
            ranges.push(libc::iovec {
                iov_base: (run.start + left_out * PAGE_BYTES) as *mut libc::c_void,
                iov_len: ((run.pages - left_out) * PAGE_BYTES) as usize,
            });
        }
    }
    ranges
}

fn page_address(queued: &[Piece], page: usize) -> u64 {
    let mut page = page as u64;
    for Piece { run, .. } in queued {
        if page < run.pages {
            return run.start + page * PAGE_BYTES;
        }
        page -= run.pages;
    }
    0
}

fn is_zero(page: &[u8]) -> bool {
    // The first bytes decide for nearly every page with content.
    page[..64].iter().all(|&b| b == 0) && page.iter().fold(0, |all, &b| all | b) == 0
}
