//! Reading the content of shared objects ([`crate::resources::shared_memory::objects`]) where it
//! lies, whatever part of it is wanted: nothing of it is kept here.
//!
//! Kept true: what is not there is not read, so that holes stay holes; what lies beyond the end of
//! an object reads as zeros.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::kernel::holes::next_part;
use eyrie_image_format::state::{object_at, object_of};
use eyrie_image_format::support::spans::Spans;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The objects of one process, in the order of their indices. Their content is at the addresses
/// that it has in an image ([`object_at`]).
#[derive(Default)]
pub struct Objects {
    ids: Vec<u64>,
    list: Vec<Object>,
}

/// One of them.
pub enum Object {
    /// The image of another process has its content.
    Elsewhere,
    /// It cannot be opened, and was not looked for in the process's mappings yet.
    Unseen,
    /// It is a file, as far as that goes.
    File {
        /// To be read.
        file: File,
        /// Its size.
        bytes: u64,
    },
    /// It is where a process has it.
    Mapped {
        /// The memory of the process.
        mem: Arc<File>,
        /// Parts of the object, in order and apart.
        pieces: Vec<Piece>,
        /// Offsets of the pages that are there.
        there: Spans,
    },
}

/// A part of an object that is mapped.
pub struct Piece {
    /// Where it begins in the object.
    pub offset: u64,
    /// One past its last byte there.
    pub end: u64,
    /// Where it begins in the process.
    pub address: u64,
}

impl Objects {
    /// Adds one.
    pub fn push(&mut self, id: u64, object: Object) {
        self.ids.push(id);
        self.list.push(object);
    }

    /// Replaces one.
    pub fn set(&mut self, index: usize, object: Object) {
        self.list[index] = object;
    }

    /// Whether it was not found where one of them lies.
    pub fn is_unseen(&self, index: usize) -> bool {
        matches!(self.list.get(index), Some(Object::Unseen))
    }

    /// Whether it was not found where some of them lie.
    pub fn some_unseen(&self) -> bool {
        self.list.iter().any(|object| matches!(object, Object::Unseen))
    }

    /// Their numbers.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Their numbers, and how many pages they have as far as they can be read.
    pub fn sizes(&self) -> Vec<(u64, u64)> {
        let pages = |object: &Object| match object {
            Object::Elsewhere | Object::Unseen => 0,
            Object::File { bytes, .. } => bytes.div_ceil(PAGE_BYTES),
            Object::Mapped { pieces, .. } => {
                pieces.last().map_or(0, |piece| piece.end.div_ceil(PAGE_BYTES))
            }
        };
        self.ids.iter().copied().zip(self.list.iter().map(pages)).collect()
    }

    /// Their pages that are there.
    pub fn present(&self) -> Result<Spans, CaptureError> {
        let mut all = Spans::default();
        for (i, object) in self.list.iter().enumerate() {
            let at = object_at(i);
            match object {
                Object::Elsewhere | Object::Unseen => {}
                Object::File { file, bytes } => data(file, *bytes, at, &mut all),
                Object::Mapped { there, .. } => {
                    there.iter().for_each(|span| all.push(at + span.start, at + span.end));
                }
            }
        }
        Ok(all)
    }

    /// Reads pages of one object.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), CaptureError> {
        let place = object_of(address).and_then(|(i, at)| Some((self.list.get(i)?, at)));
        match place {
            Some((Object::File { file, .. }, offset)) => read_file(file, offset, to),
            Some((Object::Mapped { mem, pieces, .. }, offset)) => {
                read_mapped(mem, pieces, offset, to)
            }
            Some((Object::Elsewhere | Object::Unseen, _)) | None => {
                let what = "has shared memory that was not looked at";
                Err(CaptureError::Unsupported(what.into()))
            }
        }
    }
}

fn os(what: &'static str) -> impl Fn(io::Error) -> CaptureError {
    move |source| CaptureError::Os { what, source }
}

/// Adds the pages of a file that have content, from address `base` on.
fn data(file: &File, bytes: u64, base: u64, to: &mut Spans) {
    let mut at = 0;
    while let Some((start, end)) = next_part(file, at, bytes) {
        at = end.next_multiple_of(PAGE_BYTES);
        to.push(base + start / PAGE_BYTES * PAGE_BYTES, base + at);
    }
}

fn read_file(file: &File, offset: u64, to: &mut [u8]) -> Result<(), CaptureError> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(os("read a shared object")(e)),
        }
    }
    to[done..].fill(0);
    Ok(())
}

fn read_mapped(
    mem: &File,
    pieces: &[Piece],
    offset: u64,
    to: &mut [u8],
) -> Result<(), CaptureError> {
    let mut done = 0;
    while done < to.len() {
        let at = offset + done as u64;
        let after = pieces.partition_point(|piece| piece.offset <= at);
        let piece = after.checked_sub(1).map(|i| &pieces[i]).filter(|piece| at < piece.end);
        let Some(piece) = piece else {
            let what = "has shared memory that is not mapped any more";
            return Err(CaptureError::Unsupported(what.into()));
        };
        let bytes = ((piece.end - at) as usize).min(to.len() - done);
        read_memory(mem, piece.address + (at - piece.offset), &mut to[done..done + bytes])?;
        done += bytes;
    }
    Ok(())
}

/// Reads pages of a process; those beyond the end of the object are zeros.
fn read_memory(mem: &File, start: u64, to: &mut [u8]) -> Result<(), CaptureError> {
    if mem.read_exact_at(to, start).is_ok() {
        return Ok(());
    }
    let page_bytes = PAGE_BYTES as usize;
    for (i, page) in to.chunks_mut(page_bytes).enumerate() {
        match mem.read_exact_at(page, start + (i * page_bytes) as u64) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EIO) => page.fill(0),
            Err(e) => return Err(os("read shared memory")(e)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found_and_read() {
        // SAFETY: a live C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"objects".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: just made, and nobody else's.
        let file: File = unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) };
        let bytes = 40 * PAGE_BYTES + 100;
        file.set_len(bytes).unwrap();
        file.write_all_at(&[7; 5000], 3 * PAGE_BYTES).unwrap();
        file.write_all_at(&[8; 100], 40 * PAGE_BYTES).unwrap();
        let mut objects = Objects::default();
        objects.push(1, Object::Elsewhere);
        objects.push(2, Object::File { file, bytes });
        let at = object_at(1);
        let pages: Vec<(u64, u64)> = objects
            .present()
            .unwrap()
            .iter()
            .map(|s| ((s.start - at) / PAGE_BYTES, (s.end - at) / PAGE_BYTES))
            .collect();
        assert_eq!(pages, [(3, 5), (40, 41)]);
        let mut page = vec![1; PAGE_BYTES as usize];
        objects.read(at + 40 * PAGE_BYTES, &mut page).unwrap();
        assert!(page[..100].iter().all(|&b| b == 8) && page[100..].iter().all(|&b| b == 0));
        assert!(objects.read(object_at(0), &mut page).is_err());
    }
}
