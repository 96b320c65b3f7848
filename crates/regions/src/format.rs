//! The bytes of a part: a preface, regions one behind the other as they were in memory, and the
//! head, which says what they are. See `docs/formats/regions.md`.
//!
//! Kept true: what is not a whole part of this version is refused before any of it is used, and
//! memory is taken only for what is there.

use crate::kind::{Kind, Order, Type};
use crate::label::{Label, Stamp, good_name};
use eyrie_vault::record::{self, Hash, Record, RecordError, hash};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub const VERSION: u32 = 1;
pub const MAGIC: [u8; 8] = *b"EYRIEREG";
/// Bytes before the first region.
pub const PREFACE_BYTES: usize = 64;
/// Bytes of the preface that its checksum is of.
const SUMMED_BYTES: usize = 40;
/// Longest head, and most regions of a part.
pub const MAX_HEAD_BYTES: u64 = 64 << 20;
pub const MAX_REGIONS: usize = 1 << 16;
/// Longest name of a file within a part.
pub const MAX_FILE_NAME_BYTES: usize = 4096;

/// Why something is no part that can be used.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no part of a checkpoint of regions")]
    Foreign,
    #[error("it has version {0}, and this library reads version {VERSION}: use a newer one")]
    Version(u32),
    #[error("it is cut off, or too long: it has {have} bytes, and {want} were written")]
    Length { have: u64, want: u64 },
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    #[error("it is damaged: the checksum of region {0} does not hold")]
    Region(i32),
    #[error("its head is no good: {0}")]
    Head(#[from] RecordError),
    #[error("it is encrypted, and no key was given (EYRIE_REGIONS_KEY)")]
    Sealed,
    #[error("it is not encrypted, and a key was given: with one nothing is read that is not")]
    Plain,
    #[error("it was encrypted with another key, or was changed by somebody without it")]
    Key,
    #[error("it is {have} by what it says, and {want} by its name")]
    Label { have: String, want: String },
    #[error("it is of {have} processes, and there are {want}")]
    Ranks { have: u32, want: u32 },
}

/// A region, or a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub id: i32,
    pub kind: Kind,
    /// Bytes of an element.
    pub size: u64,
    pub count: u64,
    /// The file's name; empty for a region.
    pub file: String,
    pub hash: Hash,
}

impl Entry {
    /// Its bytes; checked before the entry is used.
    pub fn bytes(&self) -> u64 {
        self.size.saturating_mul(self.count)
    }

    pub fn element(&self) -> Type {
        Type { kind: self.kind, size: usize::try_from(self.size).unwrap_or(usize::MAX) }
    }
}

/// What a part says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub name: String,
    pub version: i64,
    pub order: i64,
    pub run: i64,
    pub rank: u32,
    pub ranks: u32,
    /// Of all numbers in all regions.
    pub bytes: Order,
    pub entries: Vec<Entry>,
}

impl Head {
    pub fn label(&self) -> Label {
        let stamp = Stamp { order: self.order, run: self.run };
        Label { name: self.name.clone(), version: self.version, stamp, rank: self.rank }
    }

    /// Bytes of all regions.
    pub fn data_bytes(&self) -> Option<u64> {
        let add = |sum: u64, e: &Entry| sum.checked_add(e.size.checked_mul(e.count)?);
        self.entries.iter().try_fold(0u64, add)
    }

    /// Where in the part a region begins.
    pub fn place(&self, number: usize) -> u64 {
        PREFACE_BYTES as u64 + self.entries.iter().take(number).map(Entry::bytes).sum::<u64>()
    }
}

impl Record for Head {
    const MAGIC: [u8; 8] = *b"EYRIERGH";
    const NAME: &'static str = "head of a part";

    fn check(&self) -> Result<(), &'static str> {
        if !good_name(&self.name) || self.rank >= self.ranks {
            return Err("its name or its process");
        }
        if Label::parse(&self.label().to_string()).is_none() {
            return Err("its numbers");
        }
        if self.entries.len() > MAX_REGIONS || self.data_bytes().is_none() {
            return Err("too many regions or bytes");
        }
        let (mut ids, mut files) = (BTreeSet::new(), BTreeSet::new());
        for entry in &self.entries {
            let fresh = match entry.kind {
                Kind::File => {
                    !entry.file.is_empty()
                        && entry.file.len() <= MAX_FILE_NAME_BYTES
                        && files.insert(&entry.file)
                }
                _ => entry.file.is_empty() && ids.insert(entry.id),
            };
            if !fresh || !entry.kind.takes(entry.size) {
                return Err("a region");
            }
        }
        Ok(())
    }
}

/// The preface of a part.
pub fn preface(head_at: u64, head_bytes: u64) -> [u8; PREFACE_BYTES] {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    for number in [head_at, head_bytes, head_at.saturating_add(head_bytes)] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(hash(&bytes));
    let mut preface = [0; PREFACE_BYTES];
    preface.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    preface
}

/// What parts are read from.
pub trait Source {
    fn bytes(&self) -> io::Result<u64>;
    fn fill(&self, at: u64, to: &mut [u8]) -> io::Result<()>;
}

impl Source for File {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn fill(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(to, at)
    }
}

impl Source for &[u8] {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn fill(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let from = at.checked_add(to.len()).and_then(|end| self.get(at..end));
        to.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// What a part says of itself, if it is one.
pub fn head(source: &impl Source) -> Result<Head, PartError> {
    let have = source.bytes()?;
    let mut preface = [0; PREFACE_BYTES];
    let there = preface.len().min(usize::try_from(have).unwrap_or(usize::MAX));
    if let Some(there) = preface.get_mut(..there) {
        source.fill(0, there)?;
    }
    // What is cut off within its name may still be one of ours.
    let name = there.min(MAGIC.len());
    if preface.get(..name) != MAGIC.get(..name) {
        return Err(PartError::Foreign);
    }
    if there < PREFACE_BYTES {
        return Err(PartError::Length { have, want: PREFACE_BYTES as u64 });
    }
    let (summed, rest) = preface.split_at(SUMMED_BYTES);
    let number = |at: usize, count: usize| {
        let bytes = summed.iter().skip(at).take(count).rev();
        bytes.fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let version = number(8, 4) as u32;
    if version != VERSION {
        return Err(PartError::Version(version));
    }
    let (sum, zeros) = rest.split_at(size_of::<Hash>());
    if sum != hash(summed) || number(12, 4) != 0 || zeros.iter().any(|byte| *byte != 0) {
        return Err(PartError::Damaged("its preface"));
    }
    let (at, bytes, want) = (number(16, 8), number(24, 8), number(32, 8));
    if have != want {
        return Err(PartError::Length { have, want });
    }
    if at.checked_add(bytes) != Some(want) || bytes > MAX_HEAD_BYTES {
        return Err(PartError::Damaged("its preface"));
    }
    let mut raw = vec![0; usize::try_from(bytes).map_err(|_| PartError::Damaged("its preface"))?];
    source.fill(at, &mut raw)?;
    let head: Head = record::decode(&raw)?;
    let data = head.data_bytes().and_then(|bytes| bytes.checked_add(PREFACE_BYTES as u64));
    if data == Some(at) { Ok(head) } else { Err(PartError::Damaged("lengths of its regions")) }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
