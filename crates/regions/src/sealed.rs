//! Parts that are encrypted: chunk by chunk while they are written, so that nothing of them is on
//! any disk in the clear; and reading from them anywhere. Bytes in `docs/formats/regions.md`.
//!
//! Kept true: no two contents are sealed with the same key and nonce: each chunk has a random salt
//! of its own, drawn when it is sealed, so a process that goes on from an image of itself draws
//! another one. Nothing is given out that the key does not vouch for.

use crate::format::{MAGIC, PREFACE_BYTES, PartError, Source, VERSION};
use crate::label::Label;
use eyrie_vault::disk;
use eyrie_vault::seal::{Key, Sealer, Tag};
use std::cell::RefCell;
use std::fs::File;
use std::io;

const SEALED: [u8; 8] = *b"EYRIERGS";
const HEADER_BYTES: usize = 16;
/// Bytes that are sealed at once.
const CHUNK_BYTES: usize = 64 << 10;
const SALT_BYTES: usize = 16;
const TAG_BYTES: usize = size_of::<Tag>();
/// Of a whole chunk as it is stored, its salt and its tag behind it.
const STORED_BYTES: usize = CHUNK_BYTES + SALT_BYTES + TAG_BYTES;
/// Set in the number of the last chunk.
const LAST: u64 = 1 << 63;

pub type Salt = [u8; SALT_BYTES];

/// What a part is sealed with.
#[derive(Debug, Clone)]
pub struct Lock {
    pub key: Key,
    /// The salt of all chunks, for who may do all of it again and has to come to the same bytes.
    pub settled: Option<Salt>,
}

/// Where sealed bytes go.
pub trait Put {
    fn put(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
}

fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let bytes = SEALED.into_iter().chain(VERSION.to_le_bytes());
    header.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    header
}

/// Where a chunk begins.
fn place(chunk: u64) -> u64 {
    HEADER_BYTES as u64 + chunk * STORED_BYTES as u64
}

fn sealer(key: &Key, salt: Salt, label: &str) -> Sealer {
    Sealer::of_file(key, salt, &format!("part {label}"))
}

/// A part that is being sealed. Its first chunk is held until the end, as what stands first in it
/// is known last.
pub struct Sealing {
    lock: Lock,
    label: String,
    first: Vec<u8>,
    chunk: Vec<u8>,
    /// Of the chunk that is being filled, behind the first one.
    number: u64,
}

impl Sealing {
    pub fn new(lock: Lock, label: &Label) -> Sealing {
        let (first, chunk) = (vec![0; PREFACE_BYTES], Vec::with_capacity(STORED_BYTES));
        Sealing { lock, label: label.to_string(), first, chunk, number: 1 }
    }

    /// Takes what comes next of the part.
    pub fn write(&mut self, mut bytes: &[u8], to: &mut impl Put) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.chunk.len() == CHUNK_BYTES {
                self.pass(0, to)?;
            }
            let first = self.first.len() < CHUNK_BYTES;
            let open = if first { &mut self.first } else { &mut self.chunk };
            let (now, rest) = bytes.split_at(bytes.len().min(CHUNK_BYTES - open.len()));
            open.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }

    /// Seals what is left, and the first chunk with what stands first in it.
    pub fn finish(&mut self, preface: &[u8; PREFACE_BYTES], to: &mut impl Put) -> io::Result<()> {
        let mut only = LAST;
        if !self.chunk.is_empty() {
            self.pass(LAST, to)?;
            only = 0;
        }
        let mut first = std::mem::take(&mut self.first);
        first.iter_mut().zip(preface).for_each(|(to, byte)| *to = *byte);
        self.close(only, &mut first)?;
        to.put(0, &[&header()[..], &first].concat())
    }

    fn pass(&mut self, last: u64, to: &mut impl Put) -> io::Result<()> {
        let mut chunk = std::mem::take(&mut self.chunk);
        self.close(self.number | last, &mut chunk)?;
        to.put(place(self.number), &chunk)?;
        chunk.clear();
        self.chunk = chunk;
        self.number += 1;
        Ok(())
    }

    fn close(&self, number: u64, chunk: &mut Vec<u8>) -> io::Result<()> {
        let salt = self.lock.settled.map_or_else(disk::random, Ok)?;
        let tag = sealer(&self.lock.key, salt, &self.label).close(number, chunk);
        let tag = tag.map_err(io::Error::other)?;
        chunk.extend(salt);
        chunk.extend(tag);
        Ok(())
    }
}

/// A sealed part, read with its key.
pub struct Unsealed<S> {
    source: S,
    key: Key,
    label: String,
    chunks: u64,
    /// As long as it was before it was sealed.
    bytes: u64,
    /// The chunk that was read last.
    held: RefCell<(u64, Vec<u8>)>,
}

impl<S: Source> Unsealed<S> {
    pub fn open(source: S, key: &Key, label: &Label) -> Result<Unsealed<S>, PartError> {
        let have = source.bytes()?;
        let mut start = [0; HEADER_BYTES];
        let cut = |want: usize| PartError::Length { have, want: want as u64 };
        if have < HEADER_BYTES as u64 {
            return Err(cut(HEADER_BYTES));
        }
        source.fill(0, &mut start)?;
        let (magic, numbers) = start.split_at(SEALED.len());
        if magic != SEALED {
            return Err(PartError::Foreign);
        }
        let version = numbers.first_chunk().copied().map_or(0, u32::from_le_bytes);
        if version != VERSION {
            return Err(PartError::Version(version));
        }
        if start != header() {
            return Err(PartError::Damaged("its header"));
        }
        let stored = have - HEADER_BYTES as u64;
        let chunks = stored.div_ceil(STORED_BYTES as u64);
        let around = chunks * (SALT_BYTES + TAG_BYTES) as u64;
        let least = HEADER_BYTES + SALT_BYTES + TAG_BYTES + 1;
        let rest = stored % STORED_BYTES as u64;
        if chunks == 0 || rest != 0 && rest <= (SALT_BYTES + TAG_BYTES) as u64 {
            return Err(if chunks < 2 { cut(least) } else { PartError::Key });
        }
        let (key, label) = (key.clone(), label.to_string());
        let held = RefCell::new((u64::MAX, Vec::new()));
        Ok(Unsealed { source, key, label, chunks, bytes: stored - around, held })
    }

    fn chunk(&self, number: u64) -> io::Result<Vec<u8>> {
        let before = number * CHUNK_BYTES as u64;
        let left = self.bytes.saturating_sub(before).min(CHUNK_BYTES as u64);
        let plain = usize::try_from(left).unwrap_or(0);
        let mut chunk = vec![0; plain + SALT_BYTES + TAG_BYTES];
        self.source.fill(place(number), &mut chunk)?;
        let last = if number + 1 == self.chunks { LAST } else { 0 };
        let (sealed, rest) = chunk.split_at_mut(plain);
        let (salt, tag) = rest.split_at(SALT_BYTES);
        let bad = || io::Error::other(PartError::Key);
        let salt = salt.try_into().map_err(|_| bad())?;
        let tag = tag.try_into().map_err(|_| bad())?;
        if !sealer(&self.key, salt, &self.label).open(number | last, sealed, &tag) {
            return Err(bad());
        }
        chunk.truncate(plain);
        Ok(chunk)
    }
}

impl<S: Source> Source for Unsealed<S> {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }

    fn fill(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let end = at.checked_add(to.len() as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut at, mut to) = (at, to);
        while !to.is_empty() {
            let number = at / CHUNK_BYTES as u64;
            let mut held = self.held.borrow_mut();
            if held.0 != number {
                *held = (number, self.chunk(number)?);
            }
            let within = usize::try_from(at % CHUNK_BYTES as u64).unwrap_or(CHUNK_BYTES);
            let from = held.1.get(within..).unwrap_or_default();
            let count = from.len().min(to.len());
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, rest) = to.split_at_mut(count);
            now.copy_from_slice(&from[..count]);
            at += count as u64;
            to = rest;
        }
        Ok(())
    }
}

/// A part as it is stored.
pub enum Stored<S = File> {
    Plain(S),
    Sealed(Unsealed<S>),
}

impl<S: Source> Stored<S> {
    /// With a key only what is sealed is read, without one only what is not.
    pub fn open(source: S, key: Option<&Key>, label: &Label) -> Result<Stored<S>, PartError> {
        let mut magic = [0; 8];
        if source.bytes()? >= magic.len() as u64 {
            source.fill(0, &mut magic)?;
        }
        match key {
            Some(_) if magic == MAGIC => Err(PartError::Plain),
            Some(key) => Ok(Stored::Sealed(Unsealed::open(source, key, label)?)),
            None if magic == SEALED => Err(PartError::Sealed),
            None => Ok(Stored::Plain(source)),
        }
    }
}

impl<S: Source> Source for Stored<S> {
    fn bytes(&self) -> io::Result<u64> {
        match self {
            Stored::Plain(source) => source.bytes(),
            Stored::Sealed(source) => source.bytes(),
        }
    }

    fn fill(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        match self {
            Stored::Plain(source) => source.fill(at, to),
            Stored::Sealed(source) => source.fill(at, to),
        }
    }
}

#[cfg(test)]
#[path = "sealed_tests.rs"]
mod tests;
