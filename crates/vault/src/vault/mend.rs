//! Mending: what a member lacks, or has damaged, is made of what the others have; and written in
//! place.
//!
//! Kept true: nothing that is sound is overwritten; what is written is held against the checksums
//! of the commit first; the commit comes last, so a member that was mended by half is mended again.

use super::{Vault, VaultError, of};
use crate::disk::Disk;
use crate::files;
use crate::geometry::{CHUNK_BYTES, Cell, Geometry, Part};
use crate::member::{Member, MemberError};
use crate::record::{self, Commit, Hash, Identity, MAX_RECORD_BYTES, Prepared, Summary, hash};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What was found, and done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// Chunks that were read and hold.
    pub sound: u64,
    /// Chunks that are damaged or not there.
    pub damaged: u64,
    /// Of these, those that were written anew.
    pub repaired: u64,
    /// Of these, those that cannot be had, or not be written.
    pub lost: u64,
    /// Why the first could not be written.
    pub why: Option<String>,
}

impl Mended {
    pub fn add(&mut self, other: &Mended) {
        self.sound += other.sound;
        self.damaged += other.damaged;
        self.repaired += other.repaired;
        self.lost += other.lost;
        if self.why.is_none() {
            self.why.clone_from(&other.why);
        }
    }
}

/// Is told of the bytes that were written, and may take its time: the limit of a rebuild's
/// bandwidth.
pub type Pace<'a> = &'a mut dyn FnMut(u64);

impl<D: Disk> Vault<D> {
    /// One that was made of a commit (`of`) may write anew what is damaged, and nothing else; its
    /// storage sees to it that a generation that was dropped meanwhile is not written to.
    #[must_use]
    pub fn mending(mut self) -> Vault<D> {
        self.mends = true;
        self
    }

    /// Takes an empty folder as a member that is lost. `mend` gives it what it lacks.
    pub fn replace(&mut self, node: u32, disk: D) -> Result<(), VaultError> {
        let identity = self.lost(node)?;
        self.take(Member::create(disk, identity).map_err(of(node))?)
    }

    /// Takes back a member whose own records (`vault`, `dropped`) do not hold: they are written
    /// anew, and the rest is checked by `mend`. Returns which node it was. One that has nothing
    /// else becomes `otherwise`.
    pub fn readmit(&mut self, disk: D, otherwise: Option<u32>) -> Result<u32, VaultError> {
        let (own, holds_data) = self.whose(&disk)?;
        let node = own.or(otherwise.filter(|_| !holds_data)).ok_or(VaultError::Nobodys)?;
        let identity = self.lost(node)?;
        self.take(Member::establish(disk, identity).map_err(of(node))?)?;
        Ok(node)
    }

    /// Whose storage it is by those records that hold, and whether it holds parts of generations.
    fn whose(&self, disk: &D) -> Result<(Option<u32>, bool), VaultError> {
        let most = MAX_RECORD_BYTES as u64;
        let mut nodes = BTreeSet::new();
        if let Some(bytes) = disk.read(files::IDENTITY, most)?
            && let Ok(identity) = record::decode::<Identity>(&bytes)
        {
            if identity.vault != self.id {
                return Err(VaultError::Other(identity.node));
            }
            nodes.insert(identity.node);
        }
        let mut holds_data = false;
        for name in disk.names()? {
            let Some((_, kind)) = files::parse(&name) else { continue };
            holds_data = true;
            if kind == "prepared"
                && let Some(bytes) = disk.read(&name, most)?
                && let Ok(prepared) = record::decode::<Prepared>(&bytes)
                && prepared.vault == self.id
            {
                nodes.insert(prepared.summary.node);
            }
        }
        let one = nodes.first().copied().filter(|_| nodes.len() == 1);
        Ok((one, holds_data))
    }

    /// What a member is that is not there.
    fn lost(&self, node: u32) -> Result<Identity, VaultError> {
        self.changes()?;
        if self.members.contains_key(&node) || !self.places.iter().any(|p| p.node == node) {
            return Err(VaultError::NoMember(node));
        }
        let (scheme, places) = (self.scheme, self.places.clone());
        Ok(Identity { vault: self.id, node, scheme, places })
    }

    /// A member is there again.
    fn take(&mut self, mut member: Member<D>) -> Result<(), VaultError> {
        let node = member.node();
        for other in self.members.values() {
            member.learn(&other.dropped).map_err(of(node))?;
        }
        self.tables.retain(|(_, n), _| *n != node);
        member.key.clone_from(&self.key);
        self.members.insert(node, member);
        Ok(())
    }

    /// Reads all that a node has of a generation, and with `write` makes anew what is damaged.
    pub fn mend(
        &mut self,
        generation: u64,
        node: u32,
        write: bool,
        pace: Pace<'_>,
    ) -> Result<Mended, VaultError> {
        if write && !self.mends {
            return Err(VaultError::OnlyLooking);
        }
        let (geometry, nodes, number) = self.place(generation, node)?;
        self.member(node)?;
        self.tables.remove(&(generation, node));
        let mut mended = Mended::default();
        let commit = self.commit_of(generation)?.clone();
        let all = commit.groups.iter().flatten();
        let summary = all.into_iter().find(|summary| summary.node == node);
        let summary = summary.ok_or(VaultError::NoMember(node))?.clone();
        if geometry.code().is_none() {
            let payload = geometry.payload(number);
            for chunk in 0..payload.div_ceil(CHUNK_BYTES) {
                let sound = self.only_chunk(generation, node, payload, chunk).is_ok();
                mended.sound += u64::from(sound);
                mended.damaged += u64::from(!sound);
                mended.lost += u64::from(!sound);
            }
            return Ok(mended);
        }
        let group = (&geometry, &nodes[..]);
        // To know which of its chunks are sound its manifest is needed, wherever that comes from.
        let known = self.manifest_and_raw(generation, node).is_ok();
        let chunks = 0..geometry.payload(number).div_ceil(CHUNK_BYTES);
        for cell in chunks.filter_map(|chunk| geometry.cell(number, chunk)) {
            self.mend_cell(generation, group, cell, (write && known, pace), &mut mended)?;
        }
        let mut table = Vec::new();
        for cell in geometry.parity_cells(number) {
            let kept = self.mend_cell(generation, group, cell, (write, pace), &mut mended)?;
            table.extend(kept.unwrap_or_default());
        }
        if write && mended.lost == 0 {
            self.finish((generation, &commit), &summary, &geometry, number, &table, &mended)?;
        }
        self.tables.remove(&(generation, node));
        Ok(mended)
    }

    /// Returns the checksum of the cell, if there is one.
    fn mend_cell(
        &mut self,
        generation: u64,
        group: (&Geometry, &[u32]),
        cell: Cell,
        (write, pace): (bool, &mut dyn FnMut(u64)),
        mended: &mut Mended,
    ) -> Result<Option<Hash>, VaultError> {
        if let Some(bytes) = self.own_cell(generation, group, cell)? {
            mended.sound += 1;
            return Ok(Some(hash(&bytes)));
        }
        mended.damaged += 1;
        let spot = group.0.spot(cell);
        let node = group.1[spot.member];
        let Ok(bytes) = self.other_cells(generation, group, cell) else {
            mended.lost += 1;
            return Ok(None);
        };
        let tables = self.tables(generation, node)?;
        let holds = match spot.part {
            Part::Data => files::cell_holds(group.0, tables, cell, &bytes),
            // A table that is not there is held against the commit as a whole.
            Part::Parity => {
                tables.parity.is_none() || files::cell_holds(group.0, tables, cell, &bytes)
            }
        };
        if !holds {
            mended.lost += 1;
            return Ok(None);
        }
        if write {
            let name = match spot.part {
                Part::Data => files::data(generation),
                Part::Parity => files::parity(generation),
            };
            let disk = &mut self.member(node)?.disk;
            if let Err(error) = disk.write_at(&name, spot.offset, &bytes) {
                // Of the others some may be written all the same.
                mended.lost += 1;
                mended.why.get_or_insert_with(|| of(node)(error.into()).to_string());
                return Ok(None);
            }
            pace(spot.bytes);
            mended.repaired += 1;
        }
        Ok(Some(hash(&bytes)))
    }

    /// The table of parity and the records, after the chunks.
    fn finish(
        &mut self,
        (generation, commit): (u64, &Commit),
        summary: &Summary,
        geometry: &Geometry,
        number: usize,
        table: &[u8],
        mended: &Mended,
    ) -> Result<(), VaultError> {
        let node = summary.node;
        let (data, parity) = (files::data(generation), files::parity(generation));
        let (vault, term) = (commit.vault, commit.term);
        let prepared = Prepared { vault, generation, term, summary: summary.clone() };
        let (prepared, record) = (record::encode(&prepared)?, record::encode(commit)?);
        let has_table = self.tables(generation, node)?.parity.is_some();
        let member = self.member(node)?;
        let most = MAX_RECORD_BYTES as u64;
        let holds = |name: &str, bytes: &Vec<u8>| {
            member.disk.read(name, most).ok().flatten().as_ref() == Some(bytes)
        };
        let has_records = holds(&files::prepared(generation), &prepared)
            && holds(&files::commit(generation), &record);
        if has_table && has_records && mended.repaired == 0 {
            return Ok(());
        }
        if hash(table) != summary.parity_hash {
            return Err(of(node)(MemberError::ReadBack(node)));
        }
        let mut work = || -> Result<(), MemberError> {
            let disk = &mut member.disk;
            disk.write_at(&parity, geometry.parity_bytes(number), table)?;
            disk.sync(&data)?;
            disk.sync(&parity)?;
            disk.sync_names()?;
            disk.replace(&files::prepared(generation), &prepared)?;
            Ok(disk.replace(&files::commit(generation), &record)?)
        };
        work().map_err(of(node))
    }

    /// Mends all members that are there, in all generations; those that cannot be had are counted.
    pub fn mend_all(&mut self, write: bool, pace: Pace<'_>) -> Result<Mended, VaultError> {
        self.mend_all_told(write, pace, &mut |_| {})
    }

    /// What `mend_all` is to read: the payloads of all members that are there.
    pub fn payload_bytes(&self) -> u64 {
        let all = self.commits.values().flat_map(|commit| commit.groups.iter().flatten());
        let there = all.filter(|summary| self.members.contains_key(&summary.node));
        there.map(|summary| summary.payload).sum()
    }

    /// `mend_all`, which tells `done` of each payload that it has been through.
    pub fn mend_all_told(
        &mut self,
        write: bool,
        pace: Pace<'_>,
        done: &mut dyn FnMut(u64),
    ) -> Result<Mended, VaultError> {
        let mut all = Mended::default();
        let commits: Vec<Commit> = self.commits.values().cloned().collect();
        for commit in commits {
            for summary in commit.groups.iter().flatten() {
                let node = summary.node;
                if !self.members.contains_key(&node) {
                    continue;
                }
                match self.mend(commit.generation, node, write, pace) {
                    Ok(found) => all.add(&found),
                    // The others are mended all the same.
                    Err(error @ VaultError::Member { .. }) => all.add(&Mended {
                        damaged: 1,
                        lost: 1,
                        why: Some(error.to_string()),
                        ..Mended::default()
                    }),
                    Err(error) => return Err(error),
                }
                done(summary.payload);
            }
        }
        Ok(all)
    }
}
