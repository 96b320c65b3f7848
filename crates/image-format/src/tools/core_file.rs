//! An image as an ELF core file, which debuggers open.
//!
//! Memory without a file is there in full (a sparse file: pages of zeros take no room). Of mapped
//! files the debugger finds the unchanged ones itself, as with the kernel's core files; those that
//! the process could write are completed from the file, if that is still what it was. Where it is
//! not, only the stored pages are there: the debugger then says so instead of showing wrong bytes.

use crate::PAGE_BYTES;
use crate::error::ImageError;
use crate::read::image::Image;
use crate::state::{Backing, Region, State, object_of};
use crate::tools::core_notes::notes;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const EHDR_BYTES: u64 = 64;
const PHDR_BYTES: u64 = 56;
const SHDR_BYTES: u64 = 64;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
/// Number of program headers that says: the number stands elsewhere.
const PN_XNUM: usize = 0xffff;
/// Largest region without a file of which also the pages of zeros are part of the core file.
const MAX_WHOLE_BYTES: u64 = 64 << 30;
/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Why no core file could be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The image cannot be read any more.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A mapped file cannot be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The core file cannot be written.
    #[error("cannot write the core file: {0}")]
    Write(io::Error),
}

/// What a core file holds.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct CoreReport {
    /// Its length; it may take less room.
    pub bytes: u64,
    /// Stretches of memory.
    pub segments: usize,
    /// Mapped files that are not what they were: of their regions only stored pages are there.
    pub changed_files: Vec<String>,
}

/// A stretch of memory of which `stored` bytes are in the file.
struct Segment {
    start: u64,
    end: u64,
    flags: u32,
    stored: u64,
    /// What is not stored in the image comes from here: index of the file, and offset.
    rest: Option<(usize, u64)>,
    /// Where it lies in the core file.
    offset: u64,
}

/// A stretch of a shared object that is mapped.
struct View {
    /// Where it begins in the object.
    from: u64,
    bytes: u64,
    /// Where it lies in the core file.
    at: u64,
}

impl View {
    /// Writes what of `bytes`, which are at `offset` of the object, is seen here.
    fn write(&self, offset: u64, bytes: &[u8], to: &File) -> Result<(), CoreError> {
        let (start, end) = (offset.max(self.from), offset + bytes.len() as u64);
        let end = end.min(self.from.saturating_add(self.bytes));
        if start >= end {
            return Ok(());
        }
        let seen = &bytes[(start - offset) as usize..(end - offset) as usize];
        to.write_all_at(seen, self.at + (start - self.from)).map_err(CoreError::Write)
    }
}

impl Image {
    /// Writes the image to an empty file, as an ELF core file. `unchanged` opens a mapped file, by
    /// its number, if it is still what it was.
    pub fn write_core_with(
        &self,
        to: &File,
        unchanged: impl Fn(&State, usize) -> Option<File>,
    ) -> Result<CoreReport, CoreError> {
        let files: Vec<Option<File>> =
            (0..self.state.files.len()).map(|i| unchanged(&self.state, i)).collect();
        let mut segments = Vec::new();
        for r in &self.state.regions {
            self.segments_of(r, &files, &mut segments);
        }
        let vdso = self.vdso_segment();
        let vdso_start = vdso.as_ref().map(|s| s.start);
        segments.extend(vdso);
        segments.sort_by_key(|s| s.start);
        let notes = notes(self);
        let extra = if segments.len() + 1 >= PN_XNUM { SHDR_BYTES } else { 0 };
        let notes_at = EHDR_BYTES + (segments.len() as u64 + 1) * PHDR_BYTES + extra;
        let mut at = (notes_at + notes.len() as u64).next_multiple_of(PAGE_BYTES);
        for segment in &mut segments {
            segment.offset = at;
            at = at.saturating_add(segment.stored);
        }
        let write = |bytes: &[u8], at: u64| to.write_all_at(bytes, at).map_err(CoreError::Write);
        to.set_len(at).map_err(CoreError::Write)?;
        write(&head(&segments, notes_at, notes.len() as u64), 0)?;
        write(&notes, notes_at)?;
        for segment in &segments {
            let Some((index, offset)) = segment.rest else { continue };
            let Some(file) = &files[index] else { continue };
            let read = copy(file, offset, to, segment.offset, segment.stored);
            let path = String::from_utf8_lossy(&self.state.files[index].path);
            read.map_err(|source| CoreError::File { path: path.into(), source })??;
        }
        let shared = self.views(&segments);
        self.for_each_piece(|address, bytes| {
            if let Some((object, offset)) = object_of(address) {
                let views = shared.get(&object).map_or(&[][..], Vec::as_slice);
                return views.iter().try_for_each(|view| view.write(offset, bytes, to));
            }
            let after = segments.partition_point(|s| s.start <= address);
            let segment = after.checked_sub(1).map(|i| &segments[i]);
            match segment.filter(|s| address - s.start + bytes.len() as u64 <= s.stored) {
                Some(segment) => write(bytes, segment.offset + (address - segment.start)),
                None => Ok(()),
            }
        })?;
        if let Some(segment) = segments.iter().find(|s| Some(s.start) == vdso_start) {
            write(&self.state.vdso, segment.offset)?;
        }
        let changed = self.state.files.iter().zip(&files).filter(|(_, file)| file.is_none());
        let changed_files = changed.map(|(id, _)| String::from_utf8_lossy(&id.path).into_owned());
        Ok(CoreReport {
            bytes: at,
            segments: segments.len(),
            changed_files: changed_files.collect(),
        })
    }

    /// The kernel's own code in the process; debuggers look for the end of call chains in it.
    fn vdso_segment(&self) -> Option<Segment> {
        let special = self.state.specials.iter().find(|s| s.name == b"[vdso]")?;
        let bytes = self.state.vdso.len() as u64;
        let code = segment_flags((libc::PROT_READ | libc::PROT_EXEC) as u32);
        let (start, end) = (special.start, special.end);
        (bytes == end - start).then_some(Segment {
            start,
            end,
            flags: code,
            stored: bytes,
            rest: None,
            offset: 0,
        })
    }

    /// Which parts of shared objects are seen where.
    fn views(&self, segments: &[Segment]) -> HashMap<usize, Vec<View>> {
        let mut views: HashMap<usize, Vec<View>> = HashMap::new();
        for r in &self.state.regions {
            let Some((object, offset)) = seen(r) else { continue };
            let i = segments.partition_point(|s| s.start < r.start);
            if let Some(s) = segments.get(i).filter(|s| s.start == r.start && s.stored > 0) {
                let view = View { from: offset, bytes: s.stored, at: s.offset };
                views.entry(object).or_default().push(view);
            }
        }
        views
    }

    /// How a region is shown.
    fn segments_of(&self, r: &Region, files: &[Option<File>], all: &mut Vec<Segment>) {
        let own = self.extents_in(r.start, r.end);
        let bytes = r.end - r.start;
        let flags = segment_flags(r.prot);
        let writable = r.prot & libc::PROT_WRITE as u32 != 0;
        let mut add = |start: u64, end: u64, stored: u64, rest: Option<(usize, u64)>| {
            all.push(Segment { start, end, flags, stored, rest, offset: 0 });
        };
        match &r.backing {
            Backing::Anon {} if own.is_empty() && r.prot == 0 => add(r.start, r.end, 0, None),
            _ if bytes <= MAX_WHOLE_BYTES
                && seen(r).is_some_and(|(object, _)| self.state.anonymous[object].held) =>
            {
                add(r.start, r.end, bytes, None);
            }
            Backing::Anon {} if bytes <= MAX_WHOLE_BYTES => add(r.start, r.end, bytes, None),
            Backing::File { file, offset } if files[*file as usize].is_some() => {
                let rest = Some((*file as usize, *offset));
                let private = r.flags & crate::state::region::SHARED == 0;
                match (own.is_empty(), private && writable) {
                    // The head of a file says which build it is.
                    (true, false) if *offset == 0 => add(r.start, r.end, PAGE_BYTES, rest),
                    (true, false) => add(r.start, r.end, 0, None),
                    _ => add(r.start, r.end, bytes, rest),
                }
            }
            _ => {
                let mut at = r.start;
                for extent in own {
                    if at < extent.start {
                        add(at, extent.start, 0, None);
                    }
                    let end = extent.start + extent.pages * PAGE_BYTES;
                    add(extent.start, end, end - extent.start, None);
                    at = end;
                }
                if at < r.end {
                    add(at, r.end, 0, None);
                }
            }
        }
    }
}

/// The shared object, and where in it, that a region shows all of the time.
fn seen(r: &Region) -> Option<(usize, u64)> {
    match r.backing {
        Backing::Object { object, offset } if r.flags & crate::state::region::SHARED != 0 => {
            Some((object as usize, offset))
        }
        _ => None,
    }
}

fn segment_flags(prot: u32) -> u32 {
    let bit = |prot_bit: i32, flag: u32| if prot & prot_bit as u32 != 0 { flag } else { 0 };
    bit(libc::PROT_READ, 4) | bit(libc::PROT_WRITE, 2) | bit(libc::PROT_EXEC, 1)
}

/// The outer error is of reading, the inner one of writing.
fn copy(
    from: &File,
    offset: u64,
    to: &File,
    at: u64,
    bytes: u64,
) -> io::Result<Result<(), CoreError>> {
    let mut buffer = vec![0; COPY_BYTES.min(bytes as usize)];
    let mut done = 0;
    while done < bytes {
        let wanted = buffer.len().min((bytes - done) as usize);
        let n = match from.read_at(&mut buffer[..wanted], offset + done) {
            // Beyond the end of the file there are zeros.
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        if let Err(error) = to.write_all_at(&buffer[..n], at + done) {
            return Ok(Err(CoreError::Write(error)));
        }
        done += n as u64;
    }
    Ok(Ok(()))
}

/// ELF header and program headers.
fn head(segments: &[Segment], notes_at: u64, notes_bytes: u64) -> Vec<u8> {
    let count = segments.len() + 1;
    let many = count >= PN_XNUM;
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |out: &mut Vec<u8>, n: u16| out.extend_from_slice(&n.to_le_bytes());
    let word = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_le_bytes());
    let long = |out: &mut Vec<u8>, n: u64| out.extend_from_slice(&n.to_le_bytes());
    half(&mut out, 4); // a core file
    half(&mut out, 62); // x86-64
    word(&mut out, 1);
    long(&mut out, 0);
    long(&mut out, EHDR_BYTES);
    long(&mut out, if many { EHDR_BYTES + count as u64 * PHDR_BYTES } else { 0 });
    word(&mut out, 0);
    half(&mut out, EHDR_BYTES as u16);
    half(&mut out, PHDR_BYTES as u16);
    half(&mut out, if many { PN_XNUM as u16 } else { count as u16 });
    half(&mut out, if many { SHDR_BYTES as u16 } else { 0 });
    half(&mut out, u16::from(many));
    half(&mut out, 0);
    let mut header = |kind: u32, flags: u32, fields: [u64; 6]| {
        word(&mut out, kind);
        word(&mut out, flags);
        fields.iter().for_each(|&f| long(&mut out, f));
    };
    header(PT_NOTE, 0, [notes_at, 0, 0, notes_bytes, 0, 4]);
    for s in segments {
        let fields = [s.offset, s.start, 0, s.stored, s.end - s.start, PAGE_BYTES];
        header(PT_LOAD, s.flags, fields);
    }
    if many {
        // The first section header holds the number of program headers.
        let at = out.len();
        out.resize(at + SHDR_BYTES as usize, 0);
        out[at + 44..at + 48].copy_from_slice(&(count as u32).to_le_bytes());
    }
    out
}
