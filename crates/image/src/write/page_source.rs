//! Where the pages of an image are read from: the memory of a process that stands still, what it
//! shares with others, or a copy made of the pages that matter while it did.
//!
//! A process is read through `/proc/PID/mem`. `process_vm_readv` looks like the better choice and
//! for a twin is the worse one: it pins pages, and for a page that the twin still shares with the
//! process the kernel then first makes a copy of its own for the twin, which halves the speed and
//! doubles the memory. A process that has no twin shares nothing, and is copied that way.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::resources::shared_memory::content::Objects;
use eyrie_image_format::support::spans::{Span, Spans};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Ranges of one call (`IOV_MAX`).
const MAX_RANGES: usize = 1024;

/// Memory that stands still.
pub enum Source {
    /// That of a process, by its `/proc/PID/mem`.
    Process(File),
    /// Copied pages.
    Copied(Copied),
    /// Shared objects.
    Shared(Objects),
}

impl Source {
    /// The memory of a process.
    pub fn open(pid: libc::pid_t) -> Result<Source, CaptureError> {
        let file = File::open(format!("/proc/{pid}/mem")).map_err(|_| CaptureError::TwinGone)?;
        Ok(Source::Process(file))
    }

    /// Reads from `address` on, whatever the protection, up to a page without content; whole pages.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<usize, CaptureError> {
        let done = match self {
            Source::Process(file) => read_process(file, address, to)?,
            Source::Copied(copied) => copied.read(address, to),
            Source::Shared(objects) => objects.read(address, to).map(|()| to.len())?,
        };
        Ok(done - done % PAGE_BYTES as usize)
    }
}

fn read_process(file: &File, address: u64, to: &mut [u8]) -> Result<usize, CaptureError> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], address + done as u64) {
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
    Ok(done)
}

/// Pages that were copied while their process stood still.
#[derive(Default)]
pub struct Copied {
    bytes: Vec<u8>,
    /// What was read, in order, and where it lies in `bytes`.
    parts: Vec<(Span, usize)>,
    wanted: Spans,
}

impl Copied {
    /// Copies pages of a process that has no twin to `buffer`, which has room for them.
    pub fn new(pid: libc::pid_t, spans: &Spans, buffer: Vec<u8>) -> Result<Copied, CaptureError> {
        let list: Vec<Span> = spans.iter().collect();
        let (parts, wanted) = (Vec::with_capacity(list.len()), spans.clone());
        let mut copied = Copied { bytes: buffer, parts, wanted };
        let mem = Source::open(pid)?;
        let mut at = 0;
        for batch in list.chunks(MAX_RANGES) {
            let bytes: usize = batch.iter().map(|s| (s.end - s.start) as usize).sum();
            let to = &mut copied.bytes[at..at + bytes];
            if read_batch(pid, batch, to) {
                let mut from = at;
                for span in batch {
                    copied.parts.push((*span, from));
                    from += (span.end - span.start) as usize;
                }
            } else {
                copied.singly(&mem, batch, at)?;
            }
            at += bytes;
        }
        Ok(copied)
    }

    /// Copies pages that can all be read.
    pub fn of(source: &Source, spans: &Spans) -> Result<Copied, CaptureError> {
        let bytes = vec![0; spans.bytes() as usize];
        let mut copied = Copied { bytes, parts: Vec::new(), wanted: spans.clone() };
        let mut at = 0;
        for span in spans.iter() {
            let end = at + (span.end - span.start) as usize;
            let read = source.read(span.start, &mut copied.bytes[at..end])?;
            copied.parts.push((Span { start: span.start, end: span.start + read as u64 }, at));
            at = end;
        }
        Ok(copied)
    }

    /// How much was to be read.
    pub fn bytes(&self) -> u64 {
        self.wanted.bytes()
    }

    /// Reads stretches one by one, and what can be read of them.
    fn singly(&mut self, mem: &Source, batch: &[Span], mut at: usize) -> Result<(), CaptureError> {
        for span in batch {
            let mut start = span.start;
            while start < span.end {
                let bytes = (span.end - start) as usize;
                let read = mem.read(start, &mut self.bytes[at..at + bytes])?;
                let end = start + read as u64;
                if read > 0 {
                    self.parts.push((Span { start, end }, at));
                }
                // One page that cannot be read is left out.
                let skipped = if read < bytes { PAGE_BYTES } else { 0 };
                start = end + skipped;
                at += read + skipped as usize;
            }
        }
        Ok(())
    }

    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            let at = address + done as u64;
            let after = self.parts.partition_point(|(span, _)| span.start <= at);
            let part = after.checked_sub(1).and_then(|i| self.parts.get(i));
            let Some((span, from)) = part.filter(|(span, _)| at < span.end) else { break };
            let n = ((span.end - at) as usize).min(to.len() - done);
            let from = from + (at - span.start) as usize;
            to[done..done + n].copy_from_slice(&self.bytes[from..from + n]);
            done += n;
        }
        done
    }

    /// The pages of `spans` that could not be read.
    pub fn missing(&self) -> Vec<u64> {
        let mut read = Spans::default();
        self.parts.iter().for_each(|(span, _)| read.push(span.start, span.end));
        let rest = self.wanted.without(&read);
        rest.iter().flat_map(|s| (s.start..s.end).step_by(PAGE_BYTES as usize)).collect()
    }

    /// All that was to be copied.
    pub fn wanted(&self) -> &Spans {
        &self.wanted
    }

    /// The memory it took, to be used again.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads stretches one behind the other; `false` if not all of it can be had this way.
fn read_batch(pid: libc::pid_t, batch: &[Span], to: &mut [u8]) -> bool {
    let remote: Vec<libc::iovec> = batch
        .iter()
        .map(|s| libc::iovec {
            iov_base: s.start as *mut libc::c_void,
            iov_len: (s.end - s.start) as usize,
        })
        .collect();
    let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let count = remote.len() as libc::c_ulong;
    // SAFETY: the local buffer is live and exclusively borrowed; the kernel checks the others.
    let n = unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), count, 0) };
    usize::try_from(n) == Ok(to.len())
}
