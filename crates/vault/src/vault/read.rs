//! Reading: straight to whoever wants it, from the member that has it or, without making files
//! first, from parity.

use super::{Vault, VaultError};
use crate::disk::Disk;
use crate::encoding::sum;
use crate::files::{self, Tables};
use crate::geometry::{CHUNK_BYTES, Cell, Geometry};
use crate::record::{Manifest, Object};
use crate::seal::{Owner, Sealer};
use std::io::Write;
use xxhash_rust::xxh3::Xxh3;

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(
        "generation {generation} of node {node} is lost: of a stripe {have} members are sound and \
         {need} are needed"
    )]
    Lost { generation: u64, node: u32, have: usize, need: usize },
    #[error("generation {generation} of node {node} has no object '{name}'")]
    NoObject { generation: u64, node: u32, name: String },
    #[error("node {node} has no part in generation {generation}")]
    NoPart { generation: u64, node: u32 },
    #[error("generation {generation} is encrypted: give its key")]
    Sealed { generation: u64 },
    #[error("generation {generation} is not encrypted, and a key was given")]
    Unsealed { generation: u64 },
    #[error(
        "generation {generation} of node {node} was encrypted with another key, or was changed by \
         somebody without it"
    )]
    Key { generation: u64, node: u32 },
    #[error("object '{name}' of generation {generation} of node {node} is not what was stored")]
    Object { generation: u64, node: u32, name: String },
}

/// What can be had of a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// All that belongs to it is sound, as far as tables tell.
    Whole,
    /// It can be read; these members lack something.
    Degraded(Vec<u32>),
    /// What these members had cannot be had any more.
    Lost(Vec<u32>),
}

impl<D: Disk> Vault<D> {
    /// The group of a node in a generation, and its number there.
    pub(super) fn place(
        &self,
        generation: u64,
        node: u32,
    ) -> Result<(Geometry, Vec<u32>, usize), VaultError> {
        let commit = self.commit_of(generation)?;
        let (group, number) = commit.place(node).ok_or(ReadError::NoPart { generation, node })?;
        let geometry = commit.geometry(group).ok_or(VaultError::NoGeneration(generation))?;
        let nodes = commit.groups[group].iter().map(|summary| summary.node).collect();
        Ok((geometry, nodes, number))
    }

    /// What a member that is there has to check its files by.
    pub(super) fn tables(&mut self, generation: u64, node: u32) -> Result<&Tables, VaultError> {
        if !self.tables.contains_key(&(generation, node)) {
            let (geometry, _, number) = self.place(generation, node)?;
            let commit = self.commit_of(generation)?;
            let summary = commit.groups.iter().flatten().find(|summary| summary.node == node);
            let tables = match (self.members.get(&node), summary) {
                (Some(member), Some(summary)) => {
                    files::tables(&member.disk, generation, summary, &geometry, number)
                }
                _ => Tables { manifest: None, parity: None },
            };
            self.tables.insert((generation, node), tables);
        }
        self.tables.get(&(generation, node)).ok_or(VaultError::NoMember(node))
    }

    /// A cell as its own member has it; `None`: it is damaged, or the member is not there.
    pub(super) fn own_cell(
        &mut self,
        generation: u64,
        (geometry, nodes): (&Geometry, &[u32]),
        cell: Cell,
    ) -> Result<Option<Vec<u8>>, VaultError> {
        let spot = geometry.spot(cell);
        if spot.bytes == 0 {
            return Ok(Some(Vec::new()));
        }
        let node = nodes[spot.member];
        self.tables(generation, node)?;
        let tables = self.tables.get(&(generation, node));
        let (Some(member), Some(tables)) = (self.members.get(&node), tables) else {
            return Ok(None);
        };
        Ok(files::read_cell(&member.disk, generation, geometry, tables, cell))
    }

    /// A cell from the other members of its stripe.
    pub(super) fn other_cells(
        &mut self,
        generation: u64,
        (geometry, nodes): (&Geometry, &[u32]),
        cell: Cell,
    ) -> Result<Vec<u8>, VaultError> {
        let node = nodes[geometry.holder(cell.stripe, cell.position)];
        let lost = |have, need| ReadError::Lost { generation, node, have, need };
        let code = geometry.code().ok_or(lost(0, 1))?.clone();
        let mut have: Vec<(usize, Vec<u8>)> = Vec::new();
        for position in (0..code.k() + code.m()).filter(|p| *p != cell.position) {
            if have.len() == code.k() {
                break;
            }
            let other = Cell { position, ..cell };
            if let Some(bytes) = self.own_cell(generation, (geometry, nodes), other)? {
                have.push((position, bytes));
            }
        }
        let positions: Vec<usize> = have.iter().map(|(position, _)| *position).collect();
        let factors = code.express(&positions, &[cell.position]);
        let factors = factors.ok_or(lost(have.len(), code.k()))?.cells;
        let terms: Vec<(u8, Vec<u8>)> =
            factors.into_iter().zip(have.into_iter().map(|(_, bytes)| bytes)).collect();
        Ok(sum(&terms, geometry.spot(cell).bytes as usize))
    }

    /// A chunk of a payload, from its member or from the others. It is not checked against the
    /// manifest if it comes from the others.
    fn chunk(&mut self, generation: u64, node: u32, chunk: u64) -> Result<Vec<u8>, VaultError> {
        let (geometry, nodes, number) = self.place(generation, node)?;
        let group = (&geometry, &nodes[..]);
        match geometry.cell(number, chunk) {
            Some(cell) => match self.own_cell(generation, group, cell)? {
                Some(bytes) => Ok(bytes),
                None => self.other_cells(generation, group, cell),
            },
            None => self.only_chunk(generation, node, geometry.payload(number), chunk),
        }
    }

    /// A chunk of a payload without parity.
    pub(super) fn only_chunk(
        &mut self,
        generation: u64,
        node: u32,
        payload: u64,
        chunk: u64,
    ) -> Result<Vec<u8>, VaultError> {
        let lost = || ReadError::Lost { generation, node, have: 0, need: 1 };
        self.tables(generation, node)?;
        let member = self.members.get(&node).ok_or_else(lost)?;
        let tables = self.tables.get(&(generation, node)).ok_or_else(lost)?;
        let (manifest, raw) = tables.manifest.as_ref().ok_or_else(lost)?;
        let at = chunk * CHUNK_BYTES;
        let mut bytes = vec![0; payload.saturating_sub(at).min(CHUNK_BYTES) as usize];
        let read = member.disk.read_at(&files::data(generation), at, &mut bytes);
        read.map_err(|_| lost())?;
        let good = files::chunk_holds(manifest, raw, chunk, &bytes);
        Ok(Some(bytes).filter(|_| good).ok_or_else(lost)?)
    }

    /// The manifest of a node, and its bytes.
    pub(super) fn manifest_and_raw(
        &mut self,
        generation: u64,
        node: u32,
    ) -> Result<(Manifest, Vec<u8>), VaultError> {
        if let Some(found) = &self.tables(generation, node)?.manifest {
            return Ok(found.clone());
        }
        let commit = self.commit_of(generation)?;
        let summary = commit.groups.iter().flatten().find(|summary| summary.node == node);
        let summary = summary.ok_or(ReadError::NoPart { generation, node })?.clone();
        let start = summary.payload - summary.manifest_bytes;
        let mut raw = Vec::new();
        let first = start / CHUNK_BYTES;
        for chunk in first..summary.payload.div_ceil(CHUNK_BYTES) {
            let bytes = self.chunk(generation, node, chunk)?;
            let skip = if chunk == first { (start % CHUNK_BYTES) as usize } else { 0 };
            raw.extend_from_slice(bytes.get(skip..).unwrap_or_default());
        }
        let lost = ReadError::Lost { generation, node, have: 0, need: 1 };
        let manifest = files::manifest(&summary, &raw).ok_or(lost)?;
        let (found, tables) = ((manifest, raw), self.tables.get_mut(&(generation, node)));
        // Good to check its files by, too.
        if let Some(tables) = tables {
            tables.manifest = Some(found.clone());
        }
        Ok(found)
    }

    /// What a node stored in a generation.
    pub fn manifest(&mut self, generation: u64, node: u32) -> Result<Manifest, VaultError> {
        Ok(self.manifest_and_raw(generation, node)?.0)
    }

    /// A chunk of a payload that is what the manifest speaks of.
    fn sound_chunk(
        &mut self,
        generation: u64,
        node: u32,
        chunk: u64,
    ) -> Result<Vec<u8>, VaultError> {
        self.manifest_and_raw(generation, node)?;
        let bytes = self.chunk(generation, node, chunk)?;
        let known = self.tables.get(&(generation, node)).and_then(|t| t.manifest.as_ref());
        let holds = |(manifest, raw): &(Manifest, Vec<u8>)| {
            files::chunk_holds(manifest, raw, chunk, &bytes)
        };
        if known.is_some_and(holds) {
            return Ok(bytes);
        }
        Err(ReadError::Lost { generation, node, have: 0, need: 1 }.into())
    }

    /// The same, decrypted if it is encrypted.
    fn plain_chunk(
        &mut self,
        generation: u64,
        node: u32,
        chunk: u64,
    ) -> Result<Vec<u8>, VaultError> {
        let mut bytes = self.sound_chunk(generation, node, chunk)?;
        let known = self.tables.get(&(generation, node)).and_then(|t| t.manifest.as_ref());
        let (manifest, _) = known.ok_or(ReadError::NoPart { generation, node })?;
        let (seal, key) = match (&manifest.seal, &self.key) {
            (None, None) => return Ok(bytes),
            (Some(_), None) => return Err(ReadError::Sealed { generation }.into()),
            (None, Some(_)) => return Err(ReadError::Unsealed { generation }.into()),
            (Some(seal), Some(key)) => (seal, key),
        };
        let owner = Owner { vault: self.id, node, generation };
        let sealer = Sealer::new(key, seal.salt, owner);
        let signed = self.signed.contains(&(generation, node)) || sealer.signed(manifest);
        // The manifest itself, which begins in the last chunk, is not encrypted.
        let secret = manifest.bytes.saturating_sub(chunk * CHUNK_BYTES).min(bytes.len() as u64);
        let tag = usize::try_from(chunk).ok().and_then(|chunk| seal.tags.get(chunk));
        let opened = match (bytes.get_mut(..secret as usize), tag) {
            (Some(bytes), Some(tag)) => sealer.open(chunk, bytes, tag),
            _ => false,
        };
        if !signed || !opened {
            return Err(ReadError::Key { generation, node }.into());
        }
        self.signed.insert((generation, node));
        Ok(bytes)
    }

    /// Bytes of an object from `at` on, as many as one chunk has.
    pub fn range(
        &mut self,
        generation: u64,
        node: u32,
        object: &Object,
        at: u64,
    ) -> Result<Vec<u8>, VaultError> {
        let in_it = |e: &&crate::record::Extent| (e.at..e.at + e.bytes).contains(&at);
        let missing = || ReadError::Object { generation, node, name: object.name.clone() };
        let extent = *object.extents.iter().find(in_it).ok_or_else(missing)?;
        let from = extent.from + (at - extent.at);
        let bytes = self.plain_chunk(extent.generation, node, from / CHUNK_BYTES)?;
        let skip = (from % CHUNK_BYTES) as usize;
        let left = extent.bytes - (at - extent.at);
        let end = bytes.len().min(skip.saturating_add(usize::try_from(left).unwrap_or(usize::MAX)));
        let found = bytes.get(skip..end).filter(|found| !found.is_empty());
        Ok(found.ok_or_else(missing)?.to_vec())
    }

    /// Reads an object straight into `to`; whatever was written there counts only if all went well.
    pub fn read(
        &mut self,
        generation: u64,
        node: u32,
        name: &str,
        to: &mut dyn Write,
    ) -> Result<u64, VaultError> {
        let object = self.object(generation, node, name)?;
        let mut sum = Xxh3::new();
        let mut at = 0;
        while at < object.bytes {
            let bytes = self.range(generation, node, &object, at)?;
            sum.update(&bytes);
            to.write_all(&bytes)?;
            at += bytes.len() as u64;
        }
        if object.hash.is_some_and(|hash| hash != sum.digest128().to_le_bytes()) {
            return Err(ReadError::Object { generation, node, name: name.into() }.into());
        }
        Ok(at)
    }

    /// What can be had of a generation and of those that it refers to, as far as tables tell.
    pub fn state(&mut self, generation: u64) -> Result<State, VaultError> {
        let mut open = vec![generation];
        let (mut degraded, mut lost) = (Vec::new(), Vec::new());
        while let Some(generation) = open.pop() {
            let Some(commit) = self.commits.get(&generation).cloned() else {
                lost.extend(self.members.keys());
                continue;
            };
            open.extend(commit.needs());
            for group in &commit.groups {
                let mut bad = Vec::new();
                for node in group.iter().map(|summary| summary.node) {
                    let there = self.members.contains_key(&node);
                    let tables = self.tables(generation, node)?;
                    if !there || tables.manifest.is_none() || tables.parity.is_none() {
                        bad.push(node);
                    }
                }
                let beyond = bad.len() > commit.scheme.tolerates();
                if beyond { &mut lost } else { &mut degraded }.extend(bad);
            }
        }
        let tidy = |mut nodes: Vec<u32>| {
            nodes.sort_unstable();
            nodes.dedup();
            nodes
        };
        Ok(match (degraded.is_empty(), lost.is_empty()) {
            (true, true) => State::Whole,
            (false, true) => State::Degraded(tidy(degraded)),
            (_, false) => State::Lost(tidy(lost)),
        })
    }

    /// The newest generation that can be read.
    pub fn newest(&mut self) -> Result<Option<u64>, VaultError> {
        let all: Vec<u64> = self.commits.keys().rev().copied().collect();
        for generation in all {
            if !matches!(self.state(generation)?, State::Lost(_)) {
                return Ok(Some(generation));
            }
        }
        Ok(None)
    }
}
