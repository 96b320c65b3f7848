//! The files of one member in one generation, and reading them: nothing that is damaged gets past.

use crate::disk::Disk;
use crate::geometry::{CHUNK_BYTES, Cell, Geometry, Part};
use crate::record::{self, Hash, Manifest, Summary, hash};
use std::io;

/// The file `vault`, which says what vault and which member a folder is.
pub const IDENTITY: &str = "vault";
/// The file of dropped generations.
pub const DROPPED: &str = "dropped";

pub fn data(generation: u64) -> String {
    format!("gen-{generation}.data")
}

pub fn parity(generation: u64) -> String {
    format!("gen-{generation}.parity")
}

pub fn prepared(generation: u64) -> String {
    format!("gen-{generation}.prepared")
}

pub fn commit(generation: u64) -> String {
    format!("gen-{generation}.commit")
}

/// The generation of a file, and which of its files it is.
pub fn parse(name: &str) -> Option<(u64, &str)> {
    let (number, kind) = name.strip_prefix("gen-")?.split_once('.')?;
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let canonical = digits && (number == "0" || !number.starts_with('0'));
    Some((number.parse().ok().filter(|_| canonical)?, kind))
}

/// What of a member's files is sound enough to check the rest by it.
pub struct Tables {
    /// With the bytes that it was read from.
    pub manifest: Option<(Manifest, Vec<u8>)>,
    /// Checksums of the chunks of parity.
    pub parity: Option<Vec<Hash>>,
}

/// The manifest that bytes hold, if they are those that were committed.
pub fn manifest(summary: &Summary, raw: &[u8]) -> Option<Manifest> {
    if hash(raw) != summary.manifest_hash {
        return None;
    }
    let manifest: Manifest = record::decode(raw).ok()?;
    let fits = manifest.bytes.checked_add(raw.len() as u64) == Some(summary.payload);
    Some(manifest).filter(|_| fits)
}

/// Reads what can be read of a member's tables.
pub fn tables(
    disk: &impl Disk,
    generation: u64,
    summary: &Summary,
    geometry: &Geometry,
    member: usize,
) -> Tables {
    let at = summary.payload.saturating_sub(summary.manifest_bytes);
    let raw = end_of(disk, &data(generation), at, summary.manifest_bytes);
    let manifest = raw.and_then(|raw| Some((manifest(summary, &raw)?, raw)));
    let bytes = geometry.parity_chunks(member) * size_of::<Hash>() as u64;
    let raw = end_of(disk, &parity(generation), geometry.parity_bytes(member), bytes);
    let parity = raw.filter(|raw| hash(raw) == summary.parity_hash).map(|raw| hashes(&raw));
    Tables { manifest, parity }
}

/// So many bytes from `at` on; memory is taken only if the file has them.
fn end_of(disk: &impl Disk, name: &str, at: u64, bytes: u64) -> Option<Vec<u8>> {
    if bytes > 0 && disk.bytes(name).ok()?? < at.checked_add(bytes)? {
        return None;
    }
    let mut raw = vec![0; usize::try_from(bytes).ok()?];
    if bytes > 0 {
        disk.read_at(name, at, &mut raw).ok()?;
    }
    Some(raw)
}

fn hashes(raw: &[u8]) -> Vec<Hash> {
    raw.chunks_exact(size_of::<Hash>())
        .map(|bytes| {
            let mut hash = [0; size_of::<Hash>()];
            hash.copy_from_slice(bytes);
            hash
        })
        .collect()
}

/// Whether the bytes of a chunk of a payload are those that the manifest, whose own bytes are
/// `raw`, speaks of.
pub fn chunk_holds(manifest: &Manifest, raw: &[u8], chunk: u64, bytes: &[u8]) -> bool {
    let start = chunk * CHUNK_BYTES;
    let objects = manifest.bytes.saturating_sub(start).min(bytes.len() as u64) as usize;
    let (objects, rest) = bytes.split_at(objects);
    let known = manifest.chunks.get(chunk as usize);
    if !objects.is_empty() && known != Some(&hash(objects)) {
        return false;
    }
    let from = (start + objects.len() as u64).saturating_sub(manifest.bytes) as usize;
    rest.is_empty() || raw.get(from..from + rest.len()) == Some(rest)
}

/// Whether the bytes of a cell are what they were when the generation was committed.
pub fn cell_holds(geometry: &Geometry, tables: &Tables, cell: Cell, bytes: &[u8]) -> bool {
    let spot = geometry.spot(cell);
    match spot.part {
        Part::Data => tables.manifest.as_ref().is_some_and(|(manifest, raw)| {
            chunk_holds(manifest, raw, spot.offset / CHUNK_BYTES, bytes)
        }),
        Part::Parity => {
            let known = tables.parity.as_ref().and_then(|t| t.get(geometry.parity_number(cell)));
            known == Some(&hash(bytes))
        }
    }
}

/// Reads a cell; `None`: it is damaged, or not there.
pub fn read_cell(
    disk: &impl Disk,
    generation: u64,
    geometry: &Geometry,
    tables: &Tables,
    cell: Cell,
) -> Option<Vec<u8>> {
    let spot = geometry.spot(cell);
    let mut bytes = vec![0; spot.bytes as usize];
    if bytes.is_empty() {
        return Some(bytes);
    }
    let name = if spot.part == Part::Data { data(generation) } else { parity(generation) };
    disk.read_at(&name, spot.offset, &mut bytes).ok()?;
    Some(bytes).filter(|bytes| cell_holds(geometry, tables, cell, bytes))
}

/// Removes all files of a generation.
pub fn remove(disk: &mut impl Disk, generation: u64) -> io::Result<()> {
    let of = |name: &String| parse(name).is_some_and(|(number, _)| number == generation);
    for name in disk.names()?.iter().filter(|name| of(name)) {
        disk.remove(name)?;
    }
    disk.sync_names()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        assert_eq!(parse(&data(12)), Some((12, "data")));
        assert_eq!(parse("gen-0.commit.part"), Some((0, "commit.part")));
        for name in ["gen-.data", "gen-01.data", "gen-+1.data", "gen-1", "vault", "gen-x.data"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
