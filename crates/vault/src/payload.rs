//! A payload while it is written: objects one behind the other, cut into chunks.
//!
//! Kept true: chunks are written once, in order, each with its checksum; nothing more than one
//! chunk is held in memory.

use crate::disk::Disk;
use crate::files;
use crate::geometry::{CHUNK_BYTES, MAX_PAYLOAD_BYTES};
use crate::member::MemberError;
use crate::record::{Extent, Manifest, Object, Summary, hash};
use crate::seal::{Seal, Sealer, Tag};
use xxhash_rust::xxh3::Xxh3;

/// A generation that is being written.
pub struct Writing {
    pub generation: u64,
    pub term: u64,
    pub manifest: Manifest,
    pub raw: Vec<u8>,
    /// What does not fill a chunk yet.
    pub chunk: Vec<u8>,
    pub offer: Option<Summary>,
    /// Where the object that is being written began, and its checksum so far.
    pub object: Option<(u64, Xxh3)>,
    /// If it is encrypted.
    pub sealer: Option<Sealer>,
}

impl Writing {
    pub fn new(generation: u64, term: u64, sealer: Option<Sealer>) -> Writing {
        let seal = |s: &Sealer| Seal { salt: s.salt(), tags: Vec::new(), tag: Tag::default() };
        let (chunks, objects, seal) = (Vec::new(), Vec::new(), sealer.as_ref().map(seal));
        let manifest = Manifest { generation, bytes: 0, chunks, objects, seal };
        let (raw, chunk) = (Vec::new(), Vec::with_capacity(CHUNK_BYTES as usize));
        Writing { generation, term, manifest, raw, chunk, offer: None, object: None, sealer }
    }

    pub fn append(&mut self, disk: &mut impl Disk, mut bytes: &[u8]) -> Result<(), MemberError> {
        if self.offer.is_some() || self.manifest.bytes + bytes.len() as u64 > MAX_PAYLOAD_BYTES / 2
        {
            return Err(MemberError::Refused("the payload is too long, or at its end".into()));
        }
        self.manifest.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = CHUNK_BYTES as usize - self.chunk.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            self.chunk.extend_from_slice(now);
            bytes = rest;
            if self.chunk.len() == CHUNK_BYTES as usize {
                self.flush(disk)?;
            }
        }
        Ok(())
    }

    pub fn flush(&mut self, disk: &mut impl Disk) -> Result<(), MemberError> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let number = self.manifest.chunks.len() as u64;
        let offset = number * CHUNK_BYTES;
        if let (Some(sealer), Some(seal)) = (&self.sealer, &mut self.manifest.seal) {
            let tag = sealer.close(number, &mut self.chunk).map_err(MemberError::Encode)?;
            seal.tags.push(tag);
        }
        disk.write_at(&files::data(self.generation), offset, &self.chunk)?;
        self.manifest.chunks.push(hash(&self.chunk));
        self.chunk.clear();
        Ok(())
    }

    /// Signs the manifest, if the payload is encrypted; nothing is added then.
    pub fn sign(&mut self) -> Result<(), MemberError> {
        if let Some(sealer) = &self.sealer {
            let tag = sealer.sign(&self.manifest).map_err(MemberError::Encode)?;
            self.manifest.seal.iter_mut().for_each(|seal| seal.tag = tag);
        }
        Ok(())
    }

    pub fn add_object(&mut self, mut object: Object) -> Result<(), MemberError> {
        // A checksum of what is secret would tell something of it; tags do its work.
        object.hash = object.hash.filter(|_| self.sealer.is_none());
        let refused = |why: &str| MemberError::Refused(format!("object '{}': {why}", object.name));
        if self.manifest.objects.iter().any(|o| o.name == object.name) {
            return Err(refused("there are two of that name"));
        }
        object.check(self.generation, self.manifest.bytes).map_err(refused)?;
        self.manifest.objects.push(object);
        Ok(())
    }
}

/// Adds what of `base` lies in a range of the object.
pub fn inherit(extents: &mut Vec<Extent>, base: &Object, start: u64, end: u64) {
    for extent in &base.extents {
        let (from, to) = (extent.at.max(start), (extent.at + extent.bytes).min(end));
        if from < to {
            let shift = from - extent.at;
            let (generation, from_there) = (extent.generation, extent.from + shift);
            extents.push(Extent { at: from, bytes: to - from, generation, from: from_there });
        }
    }
}
