//! Opening an image: every byte is under a checksum, and every checksum is checked before anything
//! in the file is believed. Then the content is held against itself ([`crate::check`]).

use crate::check;
use crate::error::ImageError;
use crate::format::{
    self, BLOCK_BYTES, BadHeader, Block, HEADER_BYTES, Header, MAX_META_BYTES, MAX_STATE_BYTES,
    SECTIONS, Section,
};
use crate::state::{Run, State, Target};
use crate::wire::{self, Reader, Wire};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An opened and fully verified image.
#[derive(Debug)]
pub struct Image {
    pub(crate) file: File,
    pub(crate) state: State,
    pub(crate) runs: Vec<Run>,
    meta: Vec<u8>,
    file_bytes: u64,
}

/// What an image holds, in figures.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Process number at capture.
    pub pid: i32,
    /// Name of the program.
    pub comm: String,
    /// Threads.
    pub threads: usize,
    /// Memory mappings.
    pub regions: usize,
    /// Open files (without standard streams and devices).
    pub files: usize,
    /// Pages of 4 KiB stored.
    pub pages: u64,
    /// Size of the file.
    pub bytes: u64,
}

impl Image {
    /// Opens and verifies the image; an error says what is wrong with it.
    pub fn open(path: &Path) -> Result<Image, ImageError> {
        let fail = |source| ImageError::Read { path: path.to_path_buf(), source };
        let file = File::open(path).map_err(fail)?;
        let found = file.metadata().map_err(fail)?.len();
        Image::verify(file, found, fail)
    }

    fn verify(
        file: File,
        found: u64,
        fail: impl Fn(io::Error) -> ImageError,
    ) -> Result<Image, ImageError> {
        if found < HEADER_BYTES {
            return Err(ImageError::NotAnImage);
        }
        let mut page = vec![0; HEADER_BYTES as usize];
        file.read_exact_at(&mut page, 0).map_err(&fail)?;
        let header = format::parse_header(&page).map_err(|bad| match bad {
            BadHeader::Magic => ImageError::NotAnImage,
            BadHeader::Checksum => ImageError::Checksum("the header".into()),
            BadHeader::Version(v) => ImageError::Other(format!("version {v}")),
            BadHeader::Machine => ImageError::Other("made for another machine".into()),
        })?;
        if header.file_bytes != found {
            return Err(ImageError::Length { expected: header.file_bytes, found });
        }
        let table = section_table(&file, &header, &fail)?;
        let blocks: Vec<Block> = load_list(&file, &table[1], "block table", &fail)?;
        verify_blocks(&file, &table[0], &blocks, &fail)?;
        let runs: Vec<Run> = load_list(&file, &table[2], "run table", &fail)?;
        let state = load(&file, &table[3], "state", MAX_STATE_BYTES, &fail)?;
        let meta = load(&file, &table[4], "caller's part", MAX_META_BYTES, &fail)?;
        let state: State = wire::decode(&state)
            .map_err(|e| ImageError::Invalid(format!("state cannot be decoded ({e:?})")))?;
        check::check(&state, &runs, table[0].bytes).map_err(ImageError::Invalid)?;
        Ok(Image { file, state, runs, meta, file_bytes: found })
    }

    /// The caller's bytes.
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    /// Reads pages of its content, from page `first` of all that are stored.
    pub(crate) fn read_pages(&self, first: u64, to: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(to, HEADER_BYTES + first * crate::PAGE_BYTES)
    }

    /// What it holds, in figures.
    pub fn summary(&self) -> Summary {
        let is_file = |t: &Target| matches!(t, Target::File { .. });
        Summary {
            pid: self.state.pid,
            comm: String::from_utf8_lossy(&self.state.leader().comm).into_owned(),
            threads: self.state.threads.len(),
            regions: self.state.regions.len(),
            files: self.state.descriptions.iter().filter(|d| is_file(&d.target)).count(),
            pages: self.runs.iter().map(|r| r.pages).sum(),
            bytes: self.file_bytes,
        }
    }
}

/// Reads the section table; its entries are those of [`SECTIONS`] in order, without gaps.
fn section_table(
    file: &File,
    header: &Header,
    fail: &impl Fn(io::Error) -> ImageError,
) -> Result<Vec<Section>, ImageError> {
    let invalid = |what: &str| ImageError::Invalid(what.into());
    let bytes = SECTIONS.len() * Section::MIN_BYTES;
    let end = header.table_offset.checked_add(bytes as u64);
    if header.table_entries as usize != SECTIONS.len() || end != Some(header.file_bytes) {
        return Err(invalid("section table has another length"));
    }
    let mut raw = vec![0; bytes];
    file.read_exact_at(&mut raw, header.table_offset).map_err(fail)?;
    if format::hash(&raw) != header.table_hash {
        return Err(ImageError::Checksum("the section table".into()));
    }
    let mut from = Reader::new(&raw);
    let mut table = Vec::new();
    let mut at = HEADER_BYTES;
    for kind in SECTIONS {
        let section = Section::get(&mut from).map_err(|_| invalid("section table is short"))?;
        if section.kind != kind || section.reserved != 0 || section.offset != at {
            return Err(invalid("sections are not in order"));
        }
        at = at.checked_add(section.bytes).ok_or_else(|| invalid("section is too long"))?;
        table.push(section);
    }
    if at != header.table_offset {
        return Err(invalid("sections do not fill the file"));
    }
    Ok(table)
}

/// Reads one section, which is known to lie inside the file.
fn load(
    file: &File,
    section: &Section,
    name: &str,
    limit: u64,
    fail: &impl Fn(io::Error) -> ImageError,
) -> Result<Vec<u8>, ImageError> {
    if section.bytes > limit {
        return Err(ImageError::Invalid(format!("{name} has {} bytes", section.bytes)));
    }
    let mut bytes = vec![0; section.bytes as usize];
    file.read_exact_at(&mut bytes, section.offset).map_err(fail)?;
    if format::hash(&bytes) != section.hash {
        return Err(ImageError::Checksum(format!("the {name}")));
    }
    Ok(bytes)
}

/// Reads a section of equal elements. They are few against the pages they describe, which bounds
/// them.
fn load_list<T: Wire>(
    file: &File,
    section: &Section,
    name: &str,
    fail: &impl Fn(io::Error) -> ImageError,
) -> Result<Vec<T>, ImageError> {
    // At most one element for a page, and one more.
    let limit = (section.offset / crate::PAGE_BYTES + 1) * T::MIN_BYTES as u64;
    let bytes = load(file, section, name, limit, fail)?;
    let mut from = Reader::new(&bytes);
    let count = bytes.len() / T::MIN_BYTES;
    let invalid = |_| ImageError::Invalid(format!("{name} is malformed"));
    let list = (0..count).map(|_| T::get(&mut from)).collect::<Result<_, _>>().map_err(invalid)?;
    from.finish().map_err(invalid)?;
    Ok(list)
}

fn verify_blocks(
    file: &File,
    pages: &Section,
    blocks: &[Block],
    fail: &impl Fn(io::Error) -> ImageError,
) -> Result<(), ImageError> {
    let invalid = || ImageError::Invalid("blocks do not fill their section".into());
    let mut buffer = vec![0; BLOCK_BYTES];
    let (mut at, end) = (pages.offset, pages.offset + pages.bytes);
    for (i, block) in blocks.iter().enumerate() {
        let fits = block.bytes <= (end - at).min(BLOCK_BYTES as u64);
        if block.bytes == 0 || !block.bytes.is_multiple_of(crate::PAGE_BYTES) || !fits {
            return Err(invalid());
        }
        let bytes = &mut buffer[..block.bytes as usize];
        file.read_exact_at(bytes, at).map_err(fail)?;
        if format::hash(bytes) != block.hash {
            return Err(ImageError::Checksum(format!("block {i} of the pages")));
        }
        at += block.bytes;
    }
    if at == end { Ok(()) } else { Err(invalid()) }
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
