//! Writing an image file: whole and durable under its name, or not there at all.

use crate::codec::Codec;
use crate::error::CaptureError;
use crate::fault;
use crate::format::{
    self, Ancestor, BLOCK_BYTES, Block, Extent, HEADER_BYTES, Header, MACHINE, MAGIC, Section,
    VERSION, codec, section,
};
use crate::state::State;
use crate::wire;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// An image being written under a temporary name, `.NAME.PID.tmp` beside it. Dropped before it is
/// committed it leaves nothing behind.
pub struct ImageWriter {
    file: File,
    path: PathBuf,
    temporary: PathBuf,
    committed: bool,
    blocks: Vec<Block>,
    pages: u64,
    page_bytes: u64,
    codec: Codec,
    packed: Vec<u8>,
}

/// What an image holds besides the pages.
pub struct Contents<'a> {
    /// The process.
    pub state: &'a State,
    /// Where its pages are, in this file and in earlier ones.
    pub extents: &'a [Extent],
    /// The earlier files, in the order in which the extents number them from 1 on.
    pub ancestors: &'a [Ancestor],
    /// The caller's bytes.
    pub meta: &'a [u8],
}

/// A finished image.
#[derive(Debug, Clone, Copy)]
pub struct Written {
    /// Length of the file.
    pub bytes: u64,
    /// What tells it from all others.
    pub identity: [u8; 16],
}

impl ImageWriter {
    /// Starts the image `path`.
    pub fn create(path: &Path) -> Result<ImageWriter, CaptureError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| {
                file.write_all(&[0; HEADER_BYTES as usize])?;
                Ok(file)
            })
            .map_err(|e| {
                let _ = fs::remove_file(&temporary);
                write_error(path, e)
            })?;
        let path = path.to_path_buf();
        let writer = ImageWriter {
            file,
            path,
            temporary,
            committed: false,
            blocks: vec![],
            pages: 0,
            page_bytes: 0,
            codec: Codec::default(),
            packed: vec![],
        };
        fault::point(fault::FILE_BEGUN)?;
        Ok(writer)
    }

    /// Number of pages so far: the index of the next one.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Appends content of pages, at most a block of it, compressed as `how` says ([`codec`]) if
    /// that saves enough.
    pub fn append(&mut self, how: u32, pages: &[u8]) -> Result<(), CaptureError> {
        debug_assert!(pages.len() <= BLOCK_BYTES);
        if pages.is_empty() {
            return Ok(());
        }
        let (raw, hash) = (pages.len() as u32, format::hash(pages));
        let plain =
            Block { raw, stored: raw, codec: codec::NONE, reserved: 0, hash, stored_hash: hash };
        let mut packed = std::mem::take(&mut self.packed);
        let compressed = self.codec.compress(how, pages, &mut packed);
        let result = match compressed.map_err(|e| write_error(&self.path, e))? {
            true => {
                let stored_hash = format::hash(&packed);
                let stored = packed.len() as u32;
                self.append_block(Block { stored, codec: how, stored_hash, ..plain }, &packed)
            }
            false => self.append_block(plain, pages),
        };
        self.packed = packed;
        result
    }

    /// Appends a block that is ready to be stored.
    pub fn append_block(&mut self, block: Block, stored: &[u8]) -> Result<(), CaptureError> {
        debug_assert!(block.stored as usize == stored.len());
        self.pages += u64::from(block.raw) / crate::PAGE_BYTES;
        self.page_bytes += u64::from(block.stored);
        self.blocks.push(block);
        self.file.write_all(stored).map_err(|e| write_error(&self.path, e))?;
        Ok(fault::point(fault::BLOCK_WRITTEN)?)
    }

    /// Appends whatever the test wants to stand there.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn append_raw(&mut self, blocks: &[Block], stored: &[u8]) -> io::Result<()> {
        self.pages += blocks.iter().map(|b| u64::from(b.raw) / crate::PAGE_BYTES).sum::<u64>();
        self.page_bytes += stored.len() as u64;
        self.blocks.extend_from_slice(blocks);
        self.file.write_all(stored)
    }

    /// Writes the tables, makes everything durable and gives it its name.
    pub fn commit(mut self, contents: &Contents<'_>) -> Result<Written, CaptureError> {
        let written = self.finish(contents).map_err(|e| write_error(&self.path, e))?;
        self.committed = true;
        Ok(written)
    }

    fn finish(&mut self, contents: &Contents<'_>) -> io::Result<Written> {
        let mut at = HEADER_BYTES;
        let mut table = Vec::new();
        let mut put = |kind: u32, bytes: u64, hash: [u8; 16]| {
            wire::Wire::put(&Section { kind, reserved: 0, offset: at, bytes, hash }, &mut table);
            at += bytes;
        };
        put(section::PAGES, self.page_bytes, [0; 16]);
        let parts = [
            (section::BLOCKS, list(&self.blocks)),
            (section::ANCESTORS, wire::encode(&contents.ancestors.to_vec())),
            (section::RUNS, list(contents.extents)),
            (section::STATE, wire::encode(contents.state)),
            (section::META, contents.meta.to_vec()),
        ];
        for (kind, bytes) in &parts {
            put(*kind, bytes.len() as u64, format::hash(bytes));
        }
        let header = Header {
            magic: MAGIC,
            version: VERSION,
            machine: MACHINE,
            file_bytes: at + table.len() as u64,
            table_offset: at,
            table_entries: parts.len() as u32 + 1,
            page_bytes: crate::PAGE_BYTES as u32,
            table_hash: format::hash(&table),
            hash: [0; 16],
        };
        for (_, bytes) in &parts {
            self.file.write_all(bytes)?;
        }
        self.file.write_all(&table)?;
        fault::point(fault::TABLES_WRITTEN)?;
        // The header comes last: a file torn by a crash has none.
        let page = format::header_page(&header);
        self.file.write_all_at(&page, 0)?;
        fault::point(fault::HEADER_WRITTEN)?;
        self.file.sync_all()?;
        fault::point(fault::SYNCED)?;
        fs::rename(&self.temporary, &self.path)?;
        fault::point(fault::RENAMED)?;
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Written { bytes: header.file_bytes, identity: format::identity(&page, &table) })
    }
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        if !self.committed {
            // Best effort: the error that brought us here is the one to report.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Elements one after the other; their number follows from the section's length.
fn list<T: wire::Wire>(items: &[T]) -> Vec<u8> {
    let mut out = Vec::with_capacity(items.len() * T::MIN_BYTES);
    items.iter().for_each(|item| item.put(&mut out));
    out
}

fn write_error(path: &Path, source: io::Error) -> CaptureError {
    let path = path.to_path_buf();
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => CaptureError::NoSpace { path, source },
        _ => CaptureError::Write { path, source },
    }
}
