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
use crate::update::Base;
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
    /// The generation that it has the changes of, if its parity is to be updated.
    pub base: Option<Base>,
    /// The object that is being written as changes to another.
    pub changing: Option<Changing>,
}

/// An object that is being written as changes to another.
pub struct Changing {
    pub object: Object,
    /// Where its own bytes are, as far as it is written.
    pub extents: Vec<Extent>,
    /// How far that is.
    pub end: u64,
}

/// Adds an extent, which may go on where the last one ends.
fn extend(extents: &mut Vec<Extent>, new: Extent) {
    match extents.last_mut() {
        Some(e)
            if e.generation == new.generation
                && e.at + e.bytes == new.at
                && e.from + e.bytes == new.from =>
        {
            e.bytes += new.bytes;
        }
        _ if new.bytes > 0 => extents.push(new),
        _ => {}
    }
}

impl Writing {
    pub fn new(generation: u64, term: u64, sealer: Option<Sealer>) -> Writing {
        let seal = |s: &Sealer| Seal { salt: s.salt(), tags: Vec::new(), tag: Tag::default() };
        let (chunks, objects, seal) = (Vec::new(), Vec::new(), sealer.as_ref().map(seal));
        let manifest = Manifest { generation, bytes: 0, chunks, objects, seal };
        let (raw, chunk) = (Vec::new(), Vec::with_capacity(CHUNK_BYTES as usize));
        Writing {
            generation,
            term,
            manifest,
            raw,
            chunk,
            offer: None,
            object: None,
            sealer,
            base: None,
            changing: None,
        }
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

    /// Adds bytes that the payload of the base has from `from` on.
    fn append_kept(
        &mut self,
        disk: &mut impl Disk,
        mut from: u64,
        mut bytes: u64,
    ) -> Result<(), MemberError> {
        let none = || MemberError::Refused("it was built on no generation".into());
        while bytes > 0 {
            let base = self.base.as_ref().ok_or_else(none)?;
            let (number, skip) = (from / CHUNK_BYTES, from % CHUNK_BYTES);
            let whole = bytes / CHUNK_BYTES;
            let in_place = self.chunk.is_empty() && from == self.manifest.bytes;
            let done = if in_place && skip == 0 && whole > 0 {
                let sums = base.sums(number, whole)?.to_vec();
                // What has rotted is not to count as whole in the new one, too.
                (number..number + whole).try_for_each(|n| base.chunk(disk, n).map(drop))?;
                let (old, new) = (files::data(base.generation), files::data(self.generation));
                let done = whole * CHUNK_BYTES;
                disk.copy((&old, from), (&new, from), done)?;
                self.manifest.chunks.extend(sums);
                self.manifest.bytes += done;
                done
            } else {
                let chunk = base.chunk(disk, number)?;
                let end = (skip + bytes).min(chunk.len() as u64);
                let piece = chunk.get(skip as usize..end as usize).filter(|p| !p.is_empty());
                let gone = || MemberError::Refused("the base is shorter than it should be".into());
                let piece = piece.ok_or_else(gone)?;
                self.append(disk, piece)?;
                piece.len() as u64
            };
            from += done;
            bytes -= done;
        }
        Ok(())
    }

    /// The object that is being changed is, up to `to`, what it was.
    pub fn keep(&mut self, disk: &mut impl Disk, to: u64) -> Result<(), MemberError> {
        let none = || MemberError::Refused("no object is being changed".into());
        let mut changing = self.changing.take().ok_or_else(none)?;
        let mut kept = Vec::new();
        inherit(&mut kept, &changing.object, changing.end, to);
        for extent in kept {
            let new = match &self.base {
                None => extent,
                Some(base) if base.generation == extent.generation => {
                    let (at, bytes) = (extent.at, extent.bytes);
                    let (generation, from) = (self.generation, self.manifest.bytes);
                    self.append_kept(disk, extent.from, bytes)?;
                    Extent { at, bytes, generation, from }
                }
                Some(_) => return Err(MemberError::Refused("it is of another generation".into())),
            };
            extend(&mut changing.extents, new);
        }
        changing.end = changing.end.max(to);
        self.changing = Some(changing);
        Ok(())
    }

    /// The object that is being changed has these bytes here.
    pub fn change(
        &mut self,
        disk: &mut impl Disk,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), MemberError> {
        let overlaps = || MemberError::Refused("changes overlap".into());
        self.changing.as_ref().filter(|c| c.end <= at).ok_or_else(overlaps)?;
        self.keep(disk, at)?;
        let (generation, from, length) = (self.generation, self.manifest.bytes, bytes.len() as u64);
        self.append(disk, bytes)?;
        if let Some(changing) = &mut self.changing {
            extend(&mut changing.extents, Extent { at, bytes: length, generation, from });
            changing.end = at + length;
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
fn inherit(extents: &mut Vec<Extent>, base: &Object, start: u64, end: u64) {
    for extent in &base.extents {
        let (from, to) = (extent.at.max(start), (extent.at + extent.bytes).min(end));
        if from < to {
            let shift = from - extent.at;
            let (generation, from_there) = (extent.generation, extent.from + shift);
            extents.push(Extent { at: from, bytes: to - from, generation, from: from_there });
        }
    }
}
