//! A generation that is built on an earlier one: what differs, which way that is stored best, and
//! storing it so.

use super::{ReadError, Vault, VaultError, of};
use crate::disk::Disk;
use crate::geometry::CHUNK_BYTES;
use crate::record::{Hash, Object};
use crate::strategy::{self, Choice, History, Load, Strategy};
use crate::stream::fill;
use std::collections::BTreeMap;
use std::io::{self, Read};
use xxhash_rust::xxh3::Xxh3;

/// Changes are looked for by blocks of so many bytes.
const BLOCK_BYTES: usize = 4096;

/// An object that is to be stored.
#[derive(Debug, Clone)]
pub struct Draft {
    pub name: String,
    pub bytes: u64,
    pub hash: Hash,
    /// The object that it is a change of, and where it differs: from where on, and how many bytes.
    pub changes: Option<(Object, Vec<(u64, u64)>)>,
}

impl Draft {
    fn changed_bytes(&self) -> u64 {
        let changes = self.changes.as_ref();
        changes.map_or(self.bytes, |(_, ranges)| ranges.iter().map(|(_, bytes)| bytes).sum())
    }
}

fn add_range(ranges: &mut Vec<(u64, u64)>, at: u64, bytes: u64) {
    match ranges.last_mut() {
        Some((first, count)) if *first + *count == at => *count += bytes,
        _ => ranges.push((at, bytes)),
    }
}

/// How many chunks of a payload change, when objects are written one behind the other.
#[derive(Default)]
struct Touched {
    /// Where the next object begins.
    at: u64,
    chunks: u64,
    /// The first chunk that is not counted yet.
    next: u64,
}

impl Touched {
    fn touch(&mut self, from: u64, bytes: u64) {
        if bytes > 0 {
            let (first, end) = (from / CHUNK_BYTES, (from + bytes).div_ceil(CHUNK_BYTES));
            self.chunks += end.saturating_sub(first.max(self.next));
            self.next = self.next.max(end);
        }
    }

    fn add(&mut self, draft: &Draft) {
        let in_place = |object: &Object| match &object.extents[..] {
            [] => true,
            [extent] => extent.from == self.at,
            _ => false,
        };
        match draft.changes.as_ref().filter(|(object, _)| in_place(object)) {
            Some((_, ranges)) => {
                let begin = self.at;
                ranges.iter().for_each(|(at, bytes)| self.touch(begin + at, *bytes));
            }
            None => self.touch(self.at, draft.bytes),
        }
        self.at += draft.bytes;
    }
}

impl<D: Disk> Vault<D> {
    /// What is to be stored of an object, whose bytes come from `from`, beside what `base` has.
    pub fn draft(
        &mut self,
        base: Option<u64>,
        (node, name): (u32, &str),
        from: &mut dyn Read,
    ) -> Result<Draft, VaultError> {
        let object = match base.map(|base| self.object(base, node, name)) {
            None => None,
            Some(Ok(object)) => Some(object),
            Some(Err(VaultError::Read(ReadError::NoObject { .. } | ReadError::NoPart { .. }))) => {
                None
            }
            Some(Err(error)) => return Err(error),
        };
        let (mut at, mut sum, mut ranges) = (0, Xxh3::new(), Vec::new());
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        loop {
            let known = match (&object, base) {
                (Some(object), Some(base)) if at < object.bytes => {
                    self.range(base, node, object, at)?
                }
                _ => Vec::new(),
            };
            let most = if known.is_empty() { buffer.len() } else { known.len() };
            let count = fill(from, &mut buffer[..most])?;
            let new = &buffer[..count];
            sum.update(new);
            for (number, block) in new.chunks(BLOCK_BYTES).enumerate() {
                let start = number * BLOCK_BYTES;
                if known.get(start..start + block.len()) != Some(block) {
                    add_range(&mut ranges, at + start as u64, block.len() as u64);
                }
            }
            at += count as u64;
            if count < most {
                break;
            }
        }
        let hash = sum.digest128().to_le_bytes();
        let changes = object.map(|object| (object, ranges));
        Ok(Draft { name: name.into(), bytes: at, hash, changes })
    }

    /// Which way these are stored best, beside what `base` has; at most `most` generations may be
    /// referred to by one.
    pub fn weigh(
        &mut self,
        base: Option<u64>,
        drafts: &BTreeMap<u32, Vec<Draft>>,
        most: usize,
    ) -> Result<Choice, VaultError> {
        let load = |drafts: &Vec<Draft>| {
            let mut touched = Touched::default();
            drafts.iter().for_each(|draft| touched.add(draft));
            let full = touched.at;
            // The table of checksums at the end of a payload changes always.
            let sums = |bytes: u64| bytes.div_ceil(CHUNK_BYTES) * size_of::<Hash>() as u64;
            touched.touch(full, sums(full));
            let increment: u64 = drafts.iter().map(Draft::changed_bytes).sum();
            Load {
                full: full + sums(full),
                increment: increment + sums(increment),
                chunks: touched.chunks * CHUNK_BYTES,
            }
        };
        let loads: Vec<Load> = drafts.values().map(load).collect();
        let chain = match base {
            Some(base) => Some(self.commit_of(base)?.needs().len()),
            None => None,
        };
        let updatable = base.is_some_and(|base| self.is_updatable(base));
        let history = History { chain, most, updatable };
        Ok(strategy::choose(&self.measured, self.scheme, &loads, &history))
    }

    fn is_updatable(&self, base: u64) -> bool {
        let nodes: Vec<u32> = self.members.keys().copied().collect();
        let of_all = self.commits.get(&base).is_some_and(|commit| {
            let mut its: Vec<u32> = commit.groups.iter().flatten().map(|s| s.node).collect();
            its.sort_unstable();
            its == nodes
        });
        of_all && self.key.is_none() && self.scheme.tolerates() > 0
    }

    /// Begins a generation in this way.
    pub fn begin_as(&mut self, way: Strategy, base: Option<u64>) -> Result<u64, VaultError> {
        match (way, base) {
            (Strategy::Update, Some(base)) => self.begin_on(base),
            _ => self.begin(),
        }
    }

    /// Adds an object in the way in which the generation was begun; `content` reads its bytes from
    /// a place on.
    pub fn add_draft(
        &mut self,
        node: u32,
        way: Strategy,
        draft: &Draft,
        content: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<(), VaultError> {
        let all = vec![(0, draft.bytes)];
        let (object, ranges) = match &draft.changes {
            Some((object, ranges)) if way != Strategy::Whole => (Some(object), ranges),
            _ => (None, &all),
        };
        let member = self.member(node)?;
        match object {
            Some(object) => member.open_changes(object).map_err(of(node))?,
            None => member.open_object().map_err(of(node))?,
        }
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        for (first, bytes) in ranges {
            let mut done = 0;
            while done < *bytes {
                let piece = &mut buffer[..(bytes - done).min(CHUNK_BYTES) as usize];
                let at = first + done;
                content(at, piece)?;
                let added = match object {
                    Some(_) => member.change(at, piece),
                    None => member.append(piece),
                };
                added.map_err(of(node))?;
                done += piece.len() as u64;
            }
        }
        let (name, bytes, hash) = (&draft.name, draft.bytes, draft.hash);
        let stored = match object {
            Some(_) => member.close_changes(name, bytes, Some(hash)).map(|()| hash),
            None => member.close_object(name),
        };
        if stored.map_err(of(node))? != hash {
            return Err(io::Error::other(format!("{name} changed while it was read")).into());
        }
        Ok(())
    }
}
