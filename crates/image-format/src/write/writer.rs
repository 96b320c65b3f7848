//! Writing an image: blocks by several threads, in the order of their pages, then the tables.

use crate::PAGE_BYTES;
use crate::bytes::encoding::{self, Wire};
use crate::bytes::layout::{
    self, Ancestor, Block, Extent, HEADER_BYTES, Header, MACHINE, MAGIC, SEALED_VERSION, Section,
    VERSION, section,
};
use crate::bytes::seal::{self, Key, Seal};
use crate::error::WriteError;
use crate::state::State;
use crate::support::buffer::Buffer;
use crate::support::fault;
use crate::write::pack::{Packed, Tuner};
use crate::write::sink::{FileSink, Sink, StreamedSink, Tap};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use xxhash_rust::xxh3::Xxh3;

/// How much of a list is encoded at once.
const PART_ITEMS: usize = 4096;

/// An image being written. Dropped before it is committed it leaves nothing behind.
pub struct ImageWriter<'a> {
    sink: Box<dyn Sink + 'a>,
    progress: Mutex<Progress>,
    turn_passed: Condvar,
    /// If it is encrypted, and how many blocks are.
    seal: Option<(Seal, AtomicU32)>,
    /// Decides about compression.
    pub tuner: Tuner,
}

#[derive(Default)]
struct Progress {
    blocks: Vec<Block>,
    pages: u64,
    /// Bytes of blocks so far, each filled up to a page.
    page_bytes: u64,
    /// Whose turn it is.
    next: usize,
    /// A turn was missed: those behind it will not come.
    broken: bool,
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

/// A place in the order of blocks. Dropped before it was used it breaks the line, so that nobody
/// waits for it.
pub struct Turn<'w, 'a> {
    writer: &'w ImageWriter<'a>,
    number: usize,
    used: bool,
}

impl<'a> ImageWriter<'a> {
    /// Starts the image `path`.
    pub fn create(path: &Path) -> Result<ImageWriter<'a>, WriteError> {
        ImageWriter::to(Box::new(FileSink::create(path)?))
    }

    /// The same, which a tap takes as well, if there is one; then the file is not forced to the
    /// disk.
    pub fn create_tapped(
        path: &Path,
        tap: Option<Box<dyn Tap>>,
    ) -> Result<ImageWriter<'a>, WriteError> {
        let Some(tap) = tap else { return ImageWriter::create(path) };
        let file = FileSink::create_fleeting(path)?;
        ImageWriter::to(Box::new(StreamedSink::new(file, tap)))
    }

    /// Starts an image that goes to `sink`.
    pub fn to(sink: Box<dyn Sink + 'a>) -> Result<ImageWriter<'a>, WriteError> {
        ImageWriter::sealed_to(sink, seal::own_key())
    }

    /// The same of one that is sealed with this key, if there is one.
    pub fn sealed_to(
        sink: Box<dyn Sink + 'a>,
        key: Option<&Key>,
    ) -> Result<ImageWriter<'a>, WriteError> {
        let seal = key.map(Seal::new).transpose();
        let seal = seal.map_err(|source| WriteError::Os { what: "random bytes", source })?;
        Ok(ImageWriter {
            sink,
            seal: seal.map(|seal| (seal, AtomicU32::new(0))),
            progress: Mutex::default(),
            turn_passed: Condvar::new(),
            tuner: Tuner::from_environment(),
        })
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Number of pages so far: the index of the next one.
    pub fn pages(&self) -> u64 {
        self.progress().pages
    }

    /// Whether a tap is to wait for what is stored from now on. When it need not any more, it takes
    /// that, which may be slow.
    pub fn hold_tap(&self, held: bool) -> Result<(), WriteError> {
        self.sink.hold_tap(held).map_err(|e| self.sink.error(e))
    }

    /// Begins a new count of turns, the first being 0.
    pub fn restart_turns(&self) {
        let mut progress = self.progress();
        (progress.next, progress.broken) = (0, false);
    }

    /// The turn of block `number`; each must be taken, by whichever thread.
    pub fn turn(&self, number: usize) -> Turn<'_, 'a> {
        Turn { writer: self, number, used: false }
    }

    /// Appends a block while no turns are taken.
    #[cfg(any(test, feature = "testing"))]
    pub fn append(&self, packed: &Packed<'_>) -> Result<(), WriteError> {
        let mut room = Buffer::default();
        let sealed = self.seal(packed, &mut room)?;
        let progress = self.progress();
        self.store(progress, sealed.as_ref().unwrap_or(packed))
    }

    /// Seals a block in `room`, if this image is sealed.
    fn seal<'r>(
        &self,
        packed: &Packed<'_>,
        room: &'r mut Buffer,
    ) -> Result<Option<Packed<'r>>, WriteError> {
        let Some((seal, count)) = &self.seal else { return Ok(None) };
        let number = count.fetch_add(1, Ordering::Relaxed);
        let (stored, padded) = (packed.block.stored as usize, packed.padded.len());
        room.resize(padded);
        room[..padded].copy_from_slice(packed.padded);
        let tag = seal.close_block(number, &mut room[..stored]);
        let hash = tag.map_err(|source| WriteError::Os { what: "encrypt a block", source })?;
        let stored_hash = layout::hash(&room[..stored]);
        let block = Block { reserved: number, hash, stored_hash, ..packed.block.clone() };
        Ok(Some(Packed { block, padded: &room[..padded] }))
    }

    /// Stores a block behind the others. In order where the sink wants that; else the lock is let
    /// go before.
    fn store(
        &self,
        mut progress: MutexGuard<'_, Progress>,
        packed: &Packed<'_>,
    ) -> Result<(), WriteError> {
        let at = HEADER_BYTES + progress.page_bytes;
        progress.pages += u64::from(packed.block.raw) / PAGE_BYTES;
        progress.page_bytes += packed.padded.len() as u64;
        progress.blocks.push(packed.block.clone());
        let held = self.sink.in_order().then_some(progress);
        let result = self.tuner.writing(packed.padded.len(), || self.sink.put(packed.padded, at));
        drop(held);
        result.map_err(|e| self.sink.error(e))?;
        Ok(fault::point(fault::BLOCK_WRITTEN)?)
    }

    /// Appends whatever a test wants to stand there; `stored` are whole pages.
    #[cfg(any(test, feature = "testing"))]
    pub fn append_raw(&self, blocks: &[Block], stored: &[u8]) -> std::io::Result<()> {
        let mut progress = self.progress();
        progress.pages += blocks.iter().map(|b| u64::from(b.raw) / PAGE_BYTES).sum::<u64>();
        progress.blocks.extend_from_slice(blocks);
        let at = HEADER_BYTES + progress.page_bytes;
        progress.page_bytes += stored.len() as u64;
        self.sink.put(stored, at)
    }

    /// Writes the tables, makes everything durable and gives it its name.
    pub fn commit(mut self, contents: &Contents<'_>) -> Result<Written, WriteError> {
        let progress = std::mem::take(&mut *self.progress());
        let seal = self.seal.take().map(|(seal, _)| seal);
        let seal = seal.as_ref();
        let mut tail = Tail { sink: &*self.sink, seal, at: HEADER_BYTES, table: Vec::new() };
        tail.note(section::PAGES, progress.page_bytes, [0; 16]);
        tail.list(section::BLOCKS, &progress.blocks)?;
        tail.bytes(section::ANCESTORS, &encoding::encode(&contents.ancestors.to_vec()))?;
        tail.list(section::RUNS, contents.extents)?;
        tail.bytes(section::STATE, &encoding::encode(contents.state))?;
        tail.bytes(section::META, contents.meta)?;
        let Tail { at, table, .. } = tail;
        self.sink.put(&table, at).map_err(|e| self.sink.error(e))?;
        let header = Header {
            magic: MAGIC,
            version: if seal.is_some() { SEALED_VERSION } else { VERSION },
            machine: MACHINE,
            file_bytes: at + table.len() as u64,
            table_offset: at,
            table_entries: (table.len() / Section::MIN_BYTES) as u32,
            page_bytes: PAGE_BYTES as u32,
            table_hash: layout::hash(&table),
            hash: [0; 16],
        };
        fault::point(fault::TABLES_WRITTEN)?;
        let page = match seal {
            None => layout::header_page(&header),
            Some(seal) => layout::sealed_header_page(&header, &table, seal)
                .map_err(|source| WriteError::Os { what: "sign the image", source })?,
        };
        self.sink.finish(&page)?;
        Ok(Written { bytes: header.file_bytes, identity: layout::identity(&page, &table) })
    }
}

/// The sections behind the pages, on their way into the sink.
struct Tail<'s> {
    sink: &'s dyn Sink,
    seal: Option<&'s Seal>,
    /// Where the next one begins.
    at: u64,
    /// The section table so far.
    table: Vec<u8>,
}

impl Tail<'_> {
    fn note(&mut self, kind: u32, bytes: u64, hash: [u8; 16]) {
        Section { kind, reserved: 0, offset: self.at, bytes, hash }.put(&mut self.table);
        self.at += bytes;
    }

    fn bytes(&mut self, kind: u32, bytes: &[u8]) -> Result<(), WriteError> {
        match self.seal {
            None => self.section(kind, bytes),
            Some(seal) => self.sealed(kind, bytes.to_vec(), seal),
        }
    }

    fn sealed(&mut self, kind: u32, mut bytes: Vec<u8>, seal: &Seal) -> Result<(), WriteError> {
        let closed = seal.close_section(kind, &mut bytes);
        closed.map_err(|source| WriteError::Os { what: "encrypt a table", source })?;
        self.section(kind, &bytes)
    }

    fn section(&mut self, kind: u32, bytes: &[u8]) -> Result<(), WriteError> {
        self.sink.put(bytes, self.at).map_err(|e| self.sink.error(e))?;
        self.note(kind, bytes.len() as u64, layout::hash(bytes));
        Ok(())
    }

    /// Elements one after the other; their number follows from the section's length. Not encoded
    /// all at once, unless they are sealed: there can be a million.
    fn list<T: Wire>(&mut self, kind: u32, items: &[T]) -> Result<(), WriteError> {
        if let Some(seal) = self.seal {
            let mut bytes = Vec::with_capacity(items.len() * T::MIN_BYTES + seal::TAG_BYTES);
            items.iter().for_each(|item| item.put(&mut bytes));
            return self.sealed(kind, bytes, seal);
        }
        let (mut hash, mut bytes, mut part) = (Xxh3::new(), 0, Vec::new());
        for items in items.chunks(PART_ITEMS) {
            part.clear();
            items.iter().for_each(|item| item.put(&mut part));
            self.sink.put(&part, self.at + bytes).map_err(|e| self.sink.error(e))?;
            hash.update(&part);
            bytes += part.len() as u64;
        }
        self.note(kind, bytes, layout::hash_of(&hash));
        Ok(())
    }
}

impl Turn<'_, '_> {
    /// Stores a block, or nothing, when it is its turn. Before that `note` is called with the
    /// number of its first page. False if an earlier turn was missed; then nothing is stored.
    pub fn store(
        mut self,
        packed: Option<&Packed<'_>>,
        note: impl FnOnce(u64),
    ) -> Result<bool, WriteError> {
        let writer = self.writer;
        // Before it is its turn: others do the same meanwhile.
        let mut room = Buffer::default();
        let sealed = packed.map(|packed| writer.seal(packed, &mut room)).transpose()?.flatten();
        let packed = sealed.as_ref().or(packed);
        let mut progress = writer.progress();
        while progress.next != self.number && !progress.broken {
            progress = writer.turn_passed.wait(progress).unwrap_or_else(|e| e.into_inner());
        }
        if progress.broken {
            return Ok(false);
        }
        self.used = true;
        note(progress.pages);
        progress.next += 1;
        writer.turn_passed.notify_all();
        let result = packed.map_or(Ok(()), |packed| writer.store(progress, packed));
        if result.is_err() {
            writer.break_line();
        }
        result.map(|()| true)
    }
}

impl ImageWriter<'_> {
    fn break_line(&self) {
        self.progress().broken = true;
        self.turn_passed.notify_all();
    }
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        if !self.used {
            self.writer.break_line();
        }
    }
}
