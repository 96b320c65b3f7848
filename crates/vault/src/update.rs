//! A member whose payload is that of an earlier generation with changes: what is the same is copied
//! on its own disk, and the parity is that one's, to which the sums of the differences are added.
//!
//! Kept true: no byte of the earlier generation is written to, so it stays whole until the new one
//! is committed, and after; what is read of it was held against its checksums.

use crate::block::Block;
use crate::change::{self, Runs};
use crate::disk::Disk;
use crate::files::{self, Tables};
use crate::flow::Task;
use crate::geometry::{CHUNK_BYTES, Cell, Geometry, Part, Spot};
use crate::member::{Member, MemberError};
use crate::record::{Commit, Hash, Manifest};

/// A member's part of an earlier generation.
pub struct Base {
    pub generation: u64,
    pub laid: u64,
    /// The group's.
    pub nodes: Vec<u32>,
    pub geometry: Geometry,
    tables: Tables,
    payload: u64,
}

impl Base {
    fn manifest(&self) -> Option<&(Manifest, Vec<u8>)> {
        self.tables.manifest.as_ref()
    }

    fn damaged(&self) -> MemberError {
        let generation = self.generation;
        MemberError::Refused(format!("generation {generation} is damaged: see `eyrie vault scrub`"))
    }

    /// A cell of its own.
    fn cell(&self, disk: &impl Disk, cell: Cell) -> Result<Vec<u8>, MemberError> {
        let found = files::read_cell(disk, self.generation, &self.geometry, &self.tables, cell);
        found.ok_or_else(|| self.damaged())
    }

    /// A chunk of its payload that is as it was.
    pub fn chunk(&self, disk: &impl Disk, number: u64) -> Result<Vec<u8>, MemberError> {
        let at = number * CHUNK_BYTES;
        let mut bytes = vec![0; self.payload.saturating_sub(at).min(CHUNK_BYTES) as usize];
        if !bytes.is_empty() {
            disk.read_at(&files::data(self.generation), at, &mut bytes)?;
        }
        let holds = |(manifest, raw): &(Manifest, Vec<u8>)| {
            files::chunk_holds(manifest, raw, number, &bytes)
        };
        if self.manifest().is_some_and(holds) { Ok(bytes) } else { Err(self.damaged()) }
    }

    /// The checksums of so many chunks.
    pub fn sums(&self, first: u64, count: u64) -> Result<&[Hash], MemberError> {
        let (first, end) = (first as usize, first.saturating_add(count) as usize);
        let known = self.manifest().and_then(|(manifest, _)| manifest.chunks.get(first..end));
        known.ok_or_else(|| self.damaged())
    }

    /// The chunks in which a payload differs.
    pub fn changed(&self, manifest: &Manifest, payload: u64) -> Runs {
        let old = self.manifest().map(|(old, _)| (old, self.payload));
        old.map(|old| change::between(old, (manifest, payload))).unwrap_or_default()
    }
}

/// What a member needs while it updates parity.
pub(crate) struct Updating {
    /// Cells of its parity that stay what they are.
    kept: Vec<Cell>,
}

impl Updating {
    pub fn new(geometry: &Geometry, own: usize, tasks: &[Task]) -> Updating {
        let mut kept = Vec::new();
        for task in tasks {
            let Some((position, _)) = task.wanted.iter().find(|(_, root)| *root == own) else {
                continue;
            };
            let (stripe, position, changed) = (task.stripe, *position, task.changed());
            let same = (0..geometry.rows(stripe)).filter(|row| !changed.contains(row));
            kept.extend(same.map(|row| Cell { stripe, position, row }));
        }
        Updating { kept }
    }
}

/// Adds what is not longer: a difference, as minus is plus.
fn add(to: &mut [u8], other: &[u8]) {
    to.iter_mut().zip(other).for_each(|(to, other)| *to ^= other);
}

impl<D: Disk> Member<D> {
    /// The payload that was begun is to be that of an earlier generation with changes.
    pub fn build_on(&mut self, base: &Commit) -> Result<(), MemberError> {
        let node = self.node();
        let (scheme, vault, sealed) =
            (self.identity.scheme, self.identity.vault, self.key.is_some());
        let (writing, disk) = self.writing()?;
        let refused = |why: &str| {
            MemberError::Refused(format!(
                "nothing can be built on generation {}: {why}",
                base.generation
            ))
        };
        let fresh = writing.manifest.objects.is_empty() && writing.manifest.bytes == 0;
        let place = base.place(node).filter(|_| base.vault == vault && base.scheme == scheme);
        let (group, own) = place.ok_or_else(|| refused("it is of others"))?;
        let geometry = base.geometry(group).filter(|g| g.code().is_some());
        let geometry = geometry.ok_or_else(|| refused("it has no parity"))?;
        let summary = base.groups[group][own].clone();
        if !fresh || base.generation >= writing.generation {
            return Err(refused("this one is under way"));
        }
        if base.groups.iter().flatten().any(|summary| !summary.needs.is_empty()) {
            return Err(refused("it has changes only"));
        }
        let tables = files::tables(disk, base.generation, &summary, &geometry, own);
        let (Some((manifest, _)), Some(_)) = (&tables.manifest, &tables.parity) else {
            return Err(refused("it is damaged"));
        };
        // Two payloads under one salt would give away what they differ in.
        if sealed || manifest.seal.is_some() {
            return Err(refused("it is encrypted"));
        }
        let nodes = base.groups[group].iter().map(|summary| summary.node).collect();
        let (generation, payload) = (base.generation, summary.payload);
        let laid = base.made.laid(generation);
        writing.base = Some(Base { generation, laid, nodes, geometry, tables, payload });
        Ok(())
    }

    /// The chunks in which the payload that was offered differs from the one that it was built on;
    /// `None`: it was not built on any.
    pub fn changed(&self) -> Option<Runs> {
        let writing = self.writing.as_ref()?;
        let offer = writing.offer.as_ref()?;
        Some(writing.base.as_ref()?.changed(&writing.manifest, offer.payload))
    }

    /// The difference that a cell's new bytes make, with zeros where one of the two has nothing.
    pub(crate) fn differs(&mut self, cell: Cell, mut new: Block) -> Result<Block, MemberError> {
        let (writing, disk) = self.writing()?;
        if let Some(base) = &writing.base {
            let old = base.cell(disk, cell)?;
            new.extend(old.len());
            add(&mut new, &old);
        }
        Ok(new)
    }

    /// What becomes of a cell of parity when the sum of differences is added to it; it has so many
    /// bytes then.
    pub(crate) fn updated(
        &mut self,
        cell: Cell,
        mut sum: Block,
        bytes: u64,
    ) -> Result<Block, MemberError> {
        let (writing, disk) = self.writing()?;
        let none = || MemberError::Refused("there is no parity to update".into());
        let base = writing.base.as_ref().ok_or_else(none)?;
        let old = base.cell(disk, cell)?;
        sum.extend(bytes as usize);
        sum.truncate(bytes as usize);
        add(&mut sum, &old);
        Ok(sum)
    }

    /// Copies the parity that stays what it is. Returns the checksums of its chunks, each with its
    /// number.
    pub(crate) fn keep_parity(
        &mut self,
        updating: &Updating,
        geometry: &Geometry,
    ) -> Result<Vec<(usize, Hash)>, MemberError> {
        let (writing, disk) = self.writing()?;
        let (Some(base), generation) = (&writing.base, writing.generation) else {
            return Ok(Vec::new());
        };
        let mut sums = Vec::new();
        // Where a run begins, in the old file and in the new one, and its length.
        let mut run: Option<(u64, u64, u64)> = None;
        let (from, to) = (files::parity(base.generation), files::parity(generation));
        for cell in &updating.kept {
            let (old, new): (Spot, Spot) = (base.geometry.spot(*cell), geometry.spot(*cell));
            if old.bytes != new.bytes || new.part != Part::Parity {
                return Err(MemberError::Refused("what stays is not where it was".into()));
            }
            let number = base.geometry.parity_number(*cell);
            let known = base.tables.parity.as_ref().and_then(|sums| sums.get(number));
            let sum = *known.ok_or_else(|| base.damaged())?;
            base.cell(disk, *cell)?;
            sums.push((geometry.parity_number(*cell), sum));
            run = Some(match run {
                Some((a, b, n)) if (a + n, b + n) == (old.offset, new.offset) => {
                    (a, b, n + new.bytes)
                }
                before => {
                    copy(disk, &from, &to, before)?;
                    (old.offset, new.offset, new.bytes)
                }
            });
        }
        copy(disk, &from, &to, run)?;
        Ok(sums)
    }
}

fn copy(
    disk: &mut impl Disk,
    from: &str,
    to: &str,
    run: Option<(u64, u64, u64)>,
) -> Result<(), MemberError> {
    let Some((old, new, bytes)) = run.filter(|(.., bytes)| *bytes > 0) else { return Ok(()) };
    Ok(disk.copy((from, old), (to, new), bytes)?)
}
