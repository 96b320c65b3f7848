//! Records: what a vault writes besides payload and parity. Bytes in `docs/formats/vault.md`.
//!
//! Kept true: a record is under a checksum, is held against bounds and against itself before it is
//! used, and is written in one way only.

use crate::geometry::{CHUNK_BYTES, Geometry, MAX_PAYLOAD_BYTES};
use crate::layout::Place;
use crate::scheme::Scheme;
use crate::seal::Seal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A checksum: XXH3 of 128 bits.
pub type Hash = [u8; 16];

pub const VERSION: u32 = 2;
/// Bytes before a record.
pub const ENVELOPE_BYTES: usize = 40;
/// Longest record.
pub const MAX_RECORD_BYTES: usize = 1 << 30;
/// Most members of a vault, and longest name of an object.
pub const MAX_NODES: usize = 1 << 16;
pub const MAX_NAME_BYTES: usize = 255;
/// Longest reason for how a generation was made.
pub const MAX_WHY_BYTES: usize = 1024;

pub fn hash(bytes: &[u8]) -> Hash {
    xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes()
}

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("it is too short or too long")]
    Length,
    #[error("it is no {0}")]
    Magic(&'static str),
    #[error("it has version {0}, and this is for version {VERSION}")]
    Version(u32),
    #[error("its checksum does not hold")]
    Checksum,
    #[error("it cannot be read")]
    Encoding,
    #[error("it contradicts itself: {0}")]
    Contradiction(&'static str),
}

/// A kind of record.
pub trait Record: Serialize + DeserializeOwned {
    const MAGIC: [u8; 8];
    const NAME: &'static str;
    fn check(&self) -> Result<(), &'static str>;
}

/// The bytes of a record.
pub fn encode<R: Record>(record: &R) -> Result<Vec<u8>, RecordError> {
    let body = postcard::to_stdvec(record).map_err(|_| RecordError::Encoding)?;
    if body.len() > MAX_RECORD_BYTES {
        return Err(RecordError::Length);
    }
    let mut bytes = R::MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(0u32.to_le_bytes());
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(hash(&body));
    bytes.extend(body);
    Ok(bytes)
}

/// The record that bytes hold.
pub fn decode<R: Record>(bytes: &[u8]) -> Result<R, RecordError> {
    let (head, body) = bytes.split_at_checked(ENVELOPE_BYTES).ok_or(RecordError::Length)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[..8] != R::MAGIC {
        return Err(RecordError::Magic(R::NAME));
    }
    if word(8) != VERSION {
        return Err(RecordError::Version(word(8)));
    }
    let length = u64::from(word(16)) | u64::from(word(20)) << 32;
    if length != body.len() as u64 || body.len() > MAX_RECORD_BYTES || word(12) != 0 {
        return Err(RecordError::Length);
    }
    if head[24..40] != hash(body) {
        return Err(RecordError::Checksum);
    }
    let (record, rest) = postcard::take_from_bytes::<R>(body).map_err(|_| RecordError::Encoding)?;
    if !rest.is_empty() {
        return Err(RecordError::Encoding);
    }
    record.check().map_err(RecordError::Contradiction)?;
    Ok(record)
}

/// The file `vault` of a member: which vault it is part of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub vault: [u8; 16],
    pub node: u32,
    pub scheme: Scheme,
    /// All members.
    pub places: Vec<Place>,
}

impl Record for Identity {
    const MAGIC: [u8; 8] = *b"EYRIEVLT";
    const NAME: &'static str = "vault's description";

    fn check(&self) -> Result<(), &'static str> {
        let nodes: BTreeSet<u32> = self.places.iter().map(|p| p.node).collect();
        if nodes.len() != self.places.len() || nodes.len() > MAX_NODES {
            return Err("its members");
        }
        if nodes.contains(&self.node) { Ok(()) } else { Err("its own member is not among them") }
    }
}

/// Bytes of an object that lie in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Where in the object.
    pub at: u64,
    pub bytes: u64,
    /// In the payload of which generation, and where there.
    pub generation: u64,
    pub from: u64,
}

/// A named sequence of bytes, such as an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    pub name: String,
    pub bytes: u64,
    /// Of all its bytes, if whoever stored it knew it.
    pub hash: Option<Hash>,
    /// In order, without gaps.
    pub extents: Vec<Extent>,
}

/// What a member's payload holds. It is the end of that payload, so that it is protected as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub generation: u64,
    /// Bytes of the payload before this manifest.
    pub bytes: u64,
    /// Of each chunk of these.
    pub chunks: Vec<Hash>,
    pub objects: Vec<Object>,
    /// If it is encrypted: `chunks` are of the ciphertext.
    pub seal: Option<Seal>,
}

fn good_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

impl Object {
    /// Whether it is well formed; `payload`: bytes of the payload of `generation`.
    pub fn check(&self, generation: u64, payload: u64) -> Result<(), &'static str> {
        let mut end = 0u64;
        for extent in &self.extents {
            let last = extent.from.checked_add(extent.bytes).ok_or("an extent's place")?;
            let most = if extent.generation == generation { payload } else { MAX_PAYLOAD_BYTES };
            if extent.bytes == 0 || extent.at != end || last > most {
                return Err("an extent");
            }
            if extent.generation > generation {
                return Err("an extent of a later generation");
            }
            end = end.checked_add(extent.bytes).ok_or("an object's length")?;
        }
        if end != self.bytes {
            return Err("an object's length");
        }
        if good_name(&self.name) { Ok(()) } else { Err("an object's name") }
    }
}

impl Record for Manifest {
    const MAGIC: [u8; 8] = *b"EYRIEMAN";
    const NAME: &'static str = "manifest";

    fn check(&self) -> Result<(), &'static str> {
        if self.bytes > MAX_PAYLOAD_BYTES
            || self.chunks.len() as u64 != self.bytes.div_ceil(CHUNK_BYTES)
        {
            return Err("checksums of chunks");
        }
        if self.seal.as_ref().is_some_and(|seal| seal.tags.len() != self.chunks.len()) {
            return Err("tags of chunks");
        }
        let names: BTreeSet<&str> = self.objects.iter().map(|o| o.name.as_str()).collect();
        if names.len() != self.objects.len() {
            return Err("two objects of one name");
        }
        self.objects.iter().try_for_each(|o| o.check(self.generation, self.bytes))
    }
}

/// What a member has of a generation: the file `gen-G.prepared`, and one entry of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    pub node: u32,
    /// Bytes of the payload, manifest included.
    pub payload: u64,
    pub manifest_bytes: u64,
    pub manifest_hash: Hash,
    /// Of the checksums of the chunks of parity.
    pub parity_hash: Hash,
    /// Earlier generations that its objects refer to.
    pub needs: Vec<u64>,
}

/// The file `gen-G.prepared`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    pub vault: [u8; 16],
    pub generation: u64,
    pub term: u64,
    pub summary: Summary,
}

fn check_summary(summary: &Summary, generation: u64) -> Result<(), &'static str> {
    if summary.payload > MAX_PAYLOAD_BYTES || summary.manifest_bytes > summary.payload {
        return Err("lengths");
    }
    let earlier = summary.needs.iter().all(|need| *need < generation);
    if earlier { Ok(()) } else { Err("it needs a later generation") }
}

impl Record for Prepared {
    const MAGIC: [u8; 8] = *b"EYRIEPRE";
    const NAME: &'static str = "prepared generation";

    fn check(&self) -> Result<(), &'static str> {
        check_summary(&self.summary, self.generation)
    }
}

/// How the parity of a generation came to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// Of all payloads.
    #[default]
    Anew,
    /// Of that of an earlier generation, by the differences of the payloads: so many bytes of these
    /// were changed. Stripes are laid as those of `laid`, which was made anew.
    Updated { base: u64, laid: u64, bytes: u64 },
}

impl Made {
    /// The generation by whose number the stripes are laid.
    pub fn laid(self, generation: u64) -> u64 {
        match self {
            Made::Anew => generation,
            Made::Updated { laid, .. } => laid,
        }
    }
}

/// The file `gen-G.commit`: the generation exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    pub vault: [u8; 16],
    pub generation: u64,
    pub term: u64,
    pub scheme: Scheme,
    pub made: Made,
    /// Why so, for people to read.
    pub why: String,
    /// All members, by group, in order.
    pub groups: Vec<Vec<Summary>>,
}

impl Record for Commit {
    const MAGIC: [u8; 8] = *b"EYRIECOM";
    const NAME: &'static str = "commit of a generation";

    fn check(&self) -> Result<(), &'static str> {
        let all = || self.groups.iter().flatten();
        all().try_for_each(|summary| check_summary(summary, self.generation))?;
        let nodes: BTreeSet<u32> = all().map(|summary| summary.node).collect();
        if nodes.len() != all().count() || nodes.len() > MAX_NODES || nodes.is_empty() {
            return Err("its members");
        }
        if let Made::Updated { base, laid, .. } = self.made
            && (laid > base || base >= self.generation)
        {
            return Err("what it was made of");
        }
        if self.why.len() > MAX_WHY_BYTES {
            return Err("why it was made so");
        }
        let fits = |group: &Vec<Summary>| self.geometry_of(group).is_some();
        if self.groups.iter().all(fits) { Ok(()) } else { Err("its groups") }
    }
}

impl Commit {
    fn geometry_of(&self, group: &[Summary]) -> Option<Geometry> {
        let payloads: Vec<u64> = group.iter().map(|summary| summary.payload).collect();
        Geometry::new(self.scheme, self.made.laid(self.generation), &payloads)
    }

    /// The group of a node, and its number there.
    pub fn place(&self, node: u32) -> Option<(usize, usize)> {
        let find = |g: &Vec<Summary>| g.iter().position(|summary| summary.node == node);
        self.groups.iter().enumerate().find_map(|(number, g)| Some((number, find(g)?)))
    }

    pub fn geometry(&self, group: usize) -> Option<Geometry> {
        self.geometry_of(self.groups.get(group)?)
    }

    /// Earlier generations that it refers to.
    pub fn needs(&self) -> BTreeSet<u64> {
        self.groups.iter().flatten().flat_map(|summary| summary.needs.iter().copied()).collect()
    }
}

/// The file `dropped`: generations that do not exist, whatever else says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    pub vault: [u8; 16],
    /// The highest controller's term that was heard of.
    pub term: u64,
    /// First and last of each run.
    pub runs: BTreeMap<u64, u64>,
}

impl Record for Dropped {
    const MAGIC: [u8; 8] = *b"EYRIEDRP";
    const NAME: &'static str = "list of dropped generations";

    fn check(&self) -> Result<(), &'static str> {
        let mut before: Option<u64> = None;
        for (first, last) in &self.runs {
            // Runs that touch would be one.
            let apart = before.is_none_or(|b| b.checked_add(1).is_some_and(|next| next < *first));
            if first > last || !apart {
                return Err("its runs");
            }
            before = Some(*last);
        }
        Ok(())
    }
}

impl Dropped {
    pub fn contains(&self, generation: u64) -> bool {
        let run = self.runs.range(..=generation).next_back();
        run.is_some_and(|(_, last)| generation <= *last)
    }

    pub fn add(&mut self, generation: u64) {
        self.add_run(generation, generation);
    }

    /// Adds all from `first` to `last`.
    pub fn add_run(&mut self, mut first: u64, mut last: u64) {
        let touches = |f: u64, l: u64| f <= last.saturating_add(1) && first <= l.saturating_add(1);
        let near: Vec<(u64, u64)> =
            self.runs.iter().map(|(f, l)| (*f, *l)).filter(|(f, l)| touches(*f, *l)).collect();
        for (f, l) in near {
            self.runs.remove(&f);
            (first, last) = (first.min(f), last.max(l));
        }
        self.runs.insert(first, last);
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
