//! The frame of one file: header, section table, and how its pages are stored. What is here was
//! checked against its checksums and against itself, except for the content of the blocks
//! ([`crate::read::blocks`]).

use crate::PAGE_BYTES;
use crate::bytes::codec::Codec;
use crate::bytes::encoding::{self, Reader, Wire};
use crate::bytes::layout::{
    self, BLOCK_BYTES, BadHeader, Block, HEADER_BYTES, Header, MAX_STATE_BYTES, MAX_TABLE_BYTES,
    SEALED_VERSION, SECTIONS, Section, codec, section,
};
use crate::bytes::seal::{self, Key, Seal, TAG_BYTES};
use crate::error::ImageError;
use crate::read::incoming::{self, Growing};
use crate::state::{AnonymousObject, State};
use crate::support::buffer::Buffer;
use crate::support::page_cache;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// An opened file.
#[derive(Debug)]
pub struct Part {
    file: File,
    /// Who writes it, if it is still coming.
    growing: Option<Arc<dyn Growing>>,
    /// The same file past the page cache, once it was wanted, where that can be.
    direct: OnceLock<Option<File>>,
    path: PathBuf,
    table: Vec<Section>,
    blocks: Vec<Block>,
    /// For each block its first page and where it lies in the file; one more for their end.
    starts: Vec<(u64, u64)>,
    /// What tells it from all others.
    pub identity: [u8; 16],
    /// Length of the file.
    pub file_bytes: u64,
    version: u32,
    /// If it is encrypted.
    seal: Option<Seal>,
}

impl Part {
    /// Opens a file and checks its frame.
    pub fn open(path: &Path) -> Result<Part, ImageError> {
        Part::open_with(path, seal::own_key())
    }

    /// The same of one that was sealed with this key, if there is one.
    pub fn open_with(path: &Path, key: Option<&Key>) -> Result<Part, ImageError> {
        let fail = |source| ImageError::Read { path: path.to_path_buf(), source };
        let (file, growing) = incoming::open(path).map_err(fail)?;
        let ready = |at, bytes| growing.as_ref().map_or(Ok(()), |g| g.wait(at, bytes));
        let found = file.metadata().map_err(fail)?.len();
        if found < HEADER_BYTES {
            return Err(ImageError::NotAnImage);
        }
        let mut page = vec![0; HEADER_BYTES as usize];
        ready(0, HEADER_BYTES).map_err(fail)?;
        file.read_exact_at(&mut page, 0).map_err(fail)?;
        let header = layout::parse_header(&page).map_err(|bad| match bad {
            BadHeader::Magic => ImageError::NotAnImage,
            BadHeader::Checksum => ImageError::Checksum("the header".into()),
            BadHeader::Version(v) => ImageError::Other(format!("version {v}")),
            BadHeader::Machine => ImageError::Other("made for another machine".into()),
        })?;
        if header.file_bytes != found {
            return Err(ImageError::Length { expected: header.file_bytes, found });
        }
        ready(header.table_offset, found.saturating_sub(header.table_offset)).map_err(fail)?;
        let raw = raw_table(&file, &header, &fail)?;
        let seal = seal_of(&page, header.version, &raw, key)?;
        let mut part = Part {
            table: section_table(&raw, &header)?,
            identity: layout::identity(&page, &raw),
            path: path.to_path_buf(),
            blocks: Vec::new(),
            starts: Vec::new(),
            file_bytes: found,
            version: header.version,
            direct: OnceLock::new(),
            file,
            growing,
            seal,
        };
        part.blocks = part.list(section::BLOCKS, "block table", MAX_TABLE_BYTES)?;
        part.starts = starts(&part.blocks, part.find(section::PAGES)?, part.seal.is_some())?;
        Ok(part)
    }

    /// Opens the same file once more.
    pub fn again(&self) -> Result<Part, ImageError> {
        Part::open_with(&self.path, self.seal.as_ref().map(Seal::key))
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its blocks.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Number of pages in it.
    pub fn pages(&self) -> u64 {
        self.starts.last().map_or(0, |s| s.0)
    }

    /// First page of block `i`.
    pub fn first_page(&self, i: usize) -> u64 {
        self.starts[i].0
    }

    /// The block that holds `page`, which must be less than [`Part::pages`].
    pub fn block_of(&self, page: u64) -> usize {
        self.starts.partition_point(|s| s.0 <= page) - 1
    }

    /// Returns when block `i` is there, if the file is still coming.
    pub fn wait_for(&self, i: usize) -> Result<(), ImageError> {
        self.ready(self.starts[i].1, padded(&self.blocks[i]))
    }

    fn ready(&self, at: u64, bytes: u64) -> Result<(), ImageError> {
        let ready = self.growing.as_ref().map_or(Ok(()), |growing| growing.wait(at, bytes));
        ready.map_err(|e| self.fail(e))
    }

    /// Reads one section, whose checksum must hold.
    pub fn section(&self, kind: u32, name: &str, limit: u64) -> Result<Vec<u8>, ImageError> {
        let section = self.find(kind)?;
        let beside = self.seal.as_ref().map_or(0, |_| TAG_BYTES as u64);
        if section.bytes > limit + beside {
            return Err(ImageError::Invalid(format!("{name} has {} bytes", section.bytes)));
        }
        // It lies inside the file, which bounds what is allocated.
        let mut bytes = vec![0; section.bytes as usize];
        self.read(&mut bytes, section.offset)?;
        if layout::hash(&bytes) != section.hash {
            return Err(ImageError::Checksum(format!("the {name}")));
        }
        match &self.seal {
            Some(seal) if !seal.open_section(kind, &mut bytes) => {
                Err(ImageError::Key(format!("the {name} of the image")))
            }
            _ => Ok(bytes),
        }
    }

    /// Reads what it holds of the process besides its memory. It was not held against itself yet.
    pub fn state(&self) -> Result<State, ImageError> {
        let mut bytes = self.section(section::STATE, "state", MAX_STATE_BYTES)?;
        bytes.extend(State::what_was_added_since(self.version));
        let malformed = |e| ImageError::Invalid(format!("state cannot be decoded ({e:?})"));
        let mut state: State = encoding::decode(&bytes).map_err(malformed)?;
        state.anonymous.iter_mut().for_each(AnonymousObject::renew);
        Ok(state)
    }

    /// Reads a section that is a list of elements of one size.
    pub fn list<T: Wire>(&self, kind: u32, name: &str, limit: u64) -> Result<Vec<T>, ImageError> {
        let bytes = self.section(kind, name, limit)?;
        let mut from = Reader::new(&bytes);
        let count = bytes.len() / T::MIN_BYTES;
        let invalid = |_| ImageError::Invalid(format!("{name} is malformed"));
        let list = (0..count).map(|_| T::get(&mut from)).collect::<Result<_, _>>();
        let list = list.map_err(invalid)?;
        from.finish().map_err(invalid)?;
        Ok(list)
    }

    /// Reads block `i` as it is stored, with the zeros behind it, holds it against its checksum,
    /// and decrypts it if it is sealed.
    pub fn stored<'a>(&self, i: usize, to: &'a mut Buffer) -> Result<&'a [u8], ImageError> {
        self.checked(i, to, |at, to| self.read_announced(i, to, at))
    }

    /// The same of a file that is not read again soon: what is not in the page cache is read past
    /// it, which spares a copy, and memory for pages that nobody wants.
    pub fn stored_once<'a>(&self, i: usize, to: &'a mut Buffer) -> Result<&'a [u8], ImageError> {
        self.checked(i, to, |at, to| match page_cache::bytes(&self.file, at, to.len() as u64) {
            Some(0) => self.read_past_cache(i, to, at),
            _ => self.read_announced(i, to, at),
        })
    }

    fn checked<'a>(
        &self,
        i: usize,
        to: &'a mut Buffer,
        read: impl FnOnce(u64, &mut [u8]) -> Result<(), ImageError>,
    ) -> Result<&'a [u8], ImageError> {
        let block = &self.blocks[i];
        let bytes = padded(block) as usize;
        self.wait_for(i)?;
        to.resize(bytes);
        let to = &mut to[..bytes];
        read(self.starts[i].1, to)?;
        let (stored, padding) = to.split_at_mut(block.stored as usize);
        if layout::hash(stored) != block.stored_hash || padding.iter().any(|&b| b != 0) {
            return Err(damaged(i));
        }
        match &self.seal {
            Some(seal) if !seal.open_block(block.reserved, stored, &block.hash) => {
                Err(ImageError::Key(format!("block {i} of the pages")))
            }
            _ => Ok(to),
        }
    }

    fn read_past_cache(&self, i: usize, to: &mut [u8], at: u64) -> Result<(), ImageError> {
        let direct = self.direct.get_or_init(|| page_cache::open_direct(&self.path, &self.file));
        match direct.as_ref().map(|file| file.read_exact_at(to, at)) {
            // There is no such way, or the file system turns out not to want it so.
            None => {}
            Some(Err(e)) if e.raw_os_error() == Some(libc::EINVAL) => {}
            Some(result) => return result.map_err(|e| self.fail(e)),
        }
        self.read_announced(i, to, at)
    }

    fn read_announced(&self, i: usize, to: &mut [u8], at: u64) -> Result<(), ImageError> {
        self.announce(i);
        self.read(to, at)
    }

    /// Has the kernel read block `i` in one go: threads that take turns defeat its own read-ahead.
    /// To ask for blocks that come later is no help: the reads were slower for it.
    fn announce(&self, i: usize) {
        let Some(block) = self.blocks.get(i) else { return };
        let (at, bytes) = (self.starts[i].1 as libc::off_t, padded(block) as libc::off_t);
        // SAFETY: numbers only; it is advice.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), at, bytes, libc::POSIX_FADV_WILLNEED) };
    }

    /// Decodes block `i` from what is stored to its pages.
    pub fn decode(
        &self,
        i: usize,
        stored: &[u8],
        codec: &mut Codec,
        to: &mut Vec<u8>,
    ) -> Result<(), ImageError> {
        let block = &self.blocks[i];
        to.resize(block.raw as usize, 0);
        let whole = codec.decode(block.codec, stored, to).map_err(|e| self.fail(e))?;
        // Of what is sealed the tag stands for both.
        if !whole || (self.seal.is_none() && layout::hash(to) != block.hash) {
            return Err(damaged(i));
        }
        Ok(())
    }

    /// An error of this file as one of the image that needs it.
    pub fn blame(&self, source: ImageError) -> ImageError {
        let name = self.path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        ImageError::Ancestor { name, source: Box::new(source) }
    }

    fn read(&self, to: &mut [u8], at: u64) -> Result<(), ImageError> {
        self.ready(at, to.len() as u64)?;
        self.file.read_exact_at(to, at).map_err(|e| self.fail(e))
    }

    fn fail(&self, source: io::Error) -> ImageError {
        ImageError::Read { path: self.path.clone(), source }
    }

    fn find(&self, kind: u32) -> Result<&Section, ImageError> {
        let missing = || ImageError::Invalid("a section is missing".into());
        self.table.iter().find(|s| s.kind == kind).ok_or_else(missing)
    }
}

/// Length of a block in the file with the zeros behind it.
fn padded(block: &Block) -> u64 {
    u64::from(block.stored).next_multiple_of(PAGE_BYTES)
}

fn damaged(block: usize) -> ImageError {
    ImageError::Checksum(format!("block {block} of the pages"))
}

fn raw_table(
    file: &File,
    header: &Header,
    fail: &impl Fn(io::Error) -> ImageError,
) -> Result<Vec<u8>, ImageError> {
    let bytes = SECTIONS.len() * Section::MIN_BYTES;
    let end = header.table_offset.checked_add(bytes as u64);
    if header.table_entries as usize != SECTIONS.len() || end != Some(header.file_bytes) {
        return Err(ImageError::Invalid("section table has another length".into()));
    }
    let mut raw = vec![0; bytes];
    file.read_exact_at(&mut raw, header.table_offset).map_err(fail)?;
    if layout::hash(&raw) != header.table_hash {
        return Err(ImageError::Checksum("the section table".into()));
    }
    Ok(raw)
}

/// What opens a file, if it is to be sealed.
fn seal_of(
    page: &[u8],
    version: u32,
    table: &[u8],
    key: Option<&Key>,
) -> Result<Option<Seal>, ImageError> {
    let key = match (version == SEALED_VERSION, key) {
        (false, None) => return Ok(None),
        (false, Some(_)) => return Err(ImageError::Plain),
        (true, None) => return Err(ImageError::Sealed),
        (true, Some(key)) => key,
    };
    let (salt, signature) = layout::sealed_with(page);
    let seal = Seal::of(key, salt).map_err(|e| ImageError::Other(e.to_string()))?;
    match layout::is_signed(page, table, &signature, &seal) {
        true => Ok(Some(seal)),
        false => Err(ImageError::Key("the image".into())),
    }
}

/// The entries are those of [`SECTIONS`] in order, without gaps.
fn section_table(raw: &[u8], header: &Header) -> Result<Vec<Section>, ImageError> {
    let invalid = |what: &str| ImageError::Invalid(what.into());
    let mut from = Reader::new(raw);
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

/// Where the blocks begin; they must make sense and fill their section.
fn starts(blocks: &[Block], pages: &Section, sealed: bool) -> Result<Vec<(u64, u64)>, ImageError> {
    let invalid = |i: usize| ImageError::Invalid(format!("block {i} is not valid"));
    let (mut page, mut at) = (0, pages.offset);
    let mut starts = vec![(page, at)];
    for (i, block) in blocks.iter().enumerate() {
        let raw = u64::from(block.raw);
        let sized = raw > 0 && raw.is_multiple_of(PAGE_BYTES) && raw <= BLOCK_BYTES as u64;
        let coded = match block.codec {
            codec::NONE => block.stored == block.raw && (sealed || block.stored_hash == block.hash),
            codec::LZ4 | codec::ZSTD => block.stored > 0 && block.stored < block.raw,
            _ => false,
        };
        let end = at + padded(block);
        let numbered = sealed || block.reserved == 0;
        if !sized || !coded || !numbered || end > pages.offset + pages.bytes {
            return Err(invalid(i));
        }
        page += raw / PAGE_BYTES;
        at = end;
        starts.push((page, at));
    }
    if at != pages.offset + pages.bytes {
        return Err(ImageError::Invalid("blocks do not fill their section".into()));
    }
    Ok(starts)
}
