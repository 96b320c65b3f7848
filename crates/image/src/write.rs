//! Writing an image file: whole and durable under its name, or not there at all.

use crate::error::CaptureError;
use crate::fault;
use crate::format::{
    self, BLOCK_BYTES, Block, HEADER_BYTES, Header, MACHINE, MAGIC, Section, VERSION, section,
};
use crate::state::{Run, State};
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
    page_bytes: u64,
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
        let writer =
            ImageWriter { file, path, temporary, committed: false, blocks: vec![], page_bytes: 0 };
        fault::point(fault::FILE_BEGUN)?;
        Ok(writer)
    }

    /// Appends content of pages, at most a block of it.
    pub fn append(&mut self, pages: &[u8]) -> Result<(), CaptureError> {
        debug_assert!(pages.len() <= BLOCK_BYTES);
        if pages.is_empty() {
            return Ok(());
        }
        self.blocks.push(Block { bytes: pages.len() as u64, hash: format::hash(pages) });
        self.page_bytes += pages.len() as u64;
        self.file.write_all(pages).map_err(|e| write_error(&self.path, e))?;
        Ok(fault::point(fault::BLOCK_WRITTEN)?)
    }

    /// Writes the tables, makes everything durable and gives it its name. Returns the length.
    pub fn commit(mut self, state: &State, runs: &[Run], meta: &[u8]) -> Result<(u64, [u8; 16]), CaptureError> {
        let bytes = self.finish(state, runs, meta).map_err(|e| write_error(&self.path, e))?;
        self.committed = true;
        Ok(bytes)
    }

    fn finish(&mut self, state: &State, runs: &[Run], meta: &[u8]) -> io::Result<(u64, [u8; 16])> {
        let mut at = HEADER_BYTES;
        let mut table = Vec::new();
        let mut put = |kind: u32, bytes: u64, hash: [u8; 16]| {
            wire::Wire::put(&Section { kind, reserved: 0, offset: at, bytes, hash }, &mut table);
            at += bytes;
        };
        put(section::PAGES, self.page_bytes, [0; 16]);
        let parts = [
            (section::BLOCKS, list(&self.blocks)),
            (section::RUNS, list(runs)),
            (section::STATE, wire::encode(state)),
            (section::META, meta.to_vec()),
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
        self.file.write_all_at(&format::header_page(&header), 0)?;
        fault::point(fault::HEADER_WRITTEN)?;
        self.file.sync_all()?;
        fault::point(fault::SYNCED)?;
        fs::rename(&self.temporary, &self.path)?;
        fault::point(fault::RENAMED)?;
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok((header.file_bytes, format::identity(&format::header_page(&header), &table)))
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
