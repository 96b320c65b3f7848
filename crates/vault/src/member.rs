//! A member of a vault: it writes payload and parity, and carries out what the controller says.
//!
//! Kept true, by the order of writes: `prepared` is there only when payload, parity and their names
//! are durable; `commit` only when the controller decided, which it does when all are prepared; a
//! generation is noted as dropped, durably, before the first of its files goes.

use crate::disk::{self, Disk};
use crate::encoding::{Encoding, Message};
use crate::files;
use crate::flow::Unexpected;
use crate::geometry::CHUNK_BYTES;
use crate::payload::{Changing, Writing};
use crate::record::{
    self, Commit, Dropped, Extent, Hash, Identity, MAX_RECORD_BYTES, Object, RecordError, Summary,
    hash,
};
use crate::recovery::Found;
use crate::seal::{Key, Owner, Sealer};
use std::collections::BTreeSet;
use std::io::{self, Read};
use xxhash_rust::xxh3::Xxh3;

/// Rows of a flow that a member has under way: one is worked on, one travels.
pub const DEPTH: usize = 2;

/// Why a member cannot do what it is told.
#[derive(Debug, thiserror::Error)]
pub enum MemberError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the file '{file}' of node {node} cannot be used: {error}")]
    Record { node: u32, file: String, error: RecordError },
    #[error("a record cannot be written: {0}")]
    Encode(RecordError),
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
    #[error("what was written to node {0} is read back differently")]
    ReadBack(u32),
}

/// A member.
pub struct Member<D> {
    pub disk: D,
    pub identity: Identity,
    pub dropped: Dropped,
    /// What payloads are encrypted with from now on, if they are.
    pub key: Option<Key>,
    pub(crate) writing: Option<Writing>,
    pub(crate) encoding: Option<Encoding>,
    /// Messages that came before this member was told to encode.
    pub(crate) early: Vec<(u32, Message)>,
}

impl<D: Disk> Member<D> {
    /// Makes an empty folder a member.
    pub fn create(disk: D, identity: Identity) -> Result<Member<D>, MemberError> {
        if disk.bytes(files::IDENTITY)?.is_some() {
            return Err(MemberError::Refused("the folder is a member of a vault already".into()));
        }
        Member::establish(disk, identity)
    }

    /// One that is what it is said to be, over storage that nothing is read of yet.
    pub(crate) fn known(disk: D, identity: Identity) -> Member<D> {
        let dropped = Dropped { vault: identity.vault, ..Dropped::default() };
        Member {
            disk,
            identity,
            dropped,
            key: None,
            writing: None,
            encoding: None,
            early: Vec::new(),
        }
    }

    /// `None`: the folder is no member of any vault.
    pub fn open(disk: D) -> Result<Option<Member<D>>, MemberError> {
        let most = MAX_RECORD_BYTES as u64;
        let Some(bytes) = disk.read(files::IDENTITY, most)? else { return Ok(None) };
        let bad = |file: &str, node: u32| {
            let file = file.to_string();
            move |error| MemberError::Record { node, file, error }
        };
        let identity: Identity = record::decode(&bytes).map_err(bad(files::IDENTITY, u32::MAX))?;
        let dropped = match disk.read(files::DROPPED, most)? {
            Some(bytes) => record::decode(&bytes).map_err(bad(files::DROPPED, identity.node))?,
            None => Dropped { vault: identity.vault, ..Dropped::default() },
        };
        Ok(Some(Member { dropped, ..Member::known(disk, identity) }))
    }

    /// Writes the records anew by which a folder is a member.
    pub(crate) fn establish(disk: D, identity: Identity) -> Result<Member<D>, MemberError> {
        let mut member = Member::known(disk, identity);
        member.note_dropped()?;
        let bytes = record::encode(&member.identity).map_err(MemberError::Encode)?;
        member.disk.replace(files::IDENTITY, &bytes)?;
        Ok(member)
    }

    pub fn node(&self) -> u32 {
        self.identity.node
    }

    /// The commits that it has; of those that cannot be used, why.
    pub fn commits(&self) -> Result<(Vec<Commit>, Vec<MemberError>), MemberError> {
        let (mut good, mut bad) = (Vec::new(), Vec::new());
        for name in self.disk.names()? {
            let Some((generation, "commit")) = files::parse(&name) else { continue };
            let bytes = self.disk.read(&name, MAX_RECORD_BYTES as u64)?.unwrap_or_default();
            match record::decode::<Commit>(&bytes) {
                Ok(commit)
                    if (commit.vault, commit.generation) == (self.identity.vault, generation) =>
                {
                    good.push(commit);
                }
                Ok(_) => {
                    let error = RecordError::Contradiction("it is of another generation");
                    bad.push(MemberError::Record { node: self.node(), file: name, error });
                }
                Err(error) => {
                    bad.push(MemberError::Record { node: self.node(), file: name, error });
                }
            }
        }
        Ok((good, bad))
    }

    /// What there is.
    pub fn found(&self, commits: &[Commit]) -> Result<Found, MemberError> {
        let begun: BTreeSet<u64> =
            self.disk.names()?.iter().filter_map(|n| Some(files::parse(n)?.0)).collect();
        let committed: BTreeSet<u64> = commits.iter().map(|c| c.generation).collect();
        let dropped = self.dropped.runs.values().copied();
        let dropped = dropped.chain(begun.iter().copied()).filter(|g| self.dropped.contains(*g));
        Ok(Found { dropped: dropped.collect(), committed, begun })
    }

    /// Begins a generation, in place of one that was begun and is not prepared.
    pub fn begin(&mut self, generation: u64, term: u64) -> Result<(), MemberError> {
        if term < self.dropped.term {
            let known = self.dropped.term;
            return Err(MemberError::Refused(format!(
                "node {} obeys a later controller (term {known}, this is {term})",
                self.node()
            )));
        }
        if self.dropped.contains(generation)
            || self.disk.bytes(&files::commit(generation))?.is_some()
        {
            return Err(MemberError::Refused(format!("generation {generation} was there before")));
        }
        self.fence(term)?;
        files::remove(&mut self.disk, generation)?;
        (self.encoding, self.early) = (None, Vec::new());
        let owner = Owner { vault: self.identity.vault, node: self.node(), generation };
        let seal = |key: &Key| Ok::<_, io::Error>(Sealer::new(key, disk::random()?, owner));
        let sealer = self.key.as_ref().map(seal).transpose()?;
        self.writing = Some(Writing::new(generation, term, sealer));
        Ok(())
    }

    pub(crate) fn writing(&mut self) -> Result<(&mut Writing, &mut D), MemberError> {
        let none = || MemberError::Refused("no generation is being written".into());
        Ok((self.writing.as_mut().ok_or_else(none)?, &mut self.disk))
    }

    /// Adds an object that is stored whole.
    pub fn add(&mut self, name: &str, from: &mut dyn Read) -> Result<(), MemberError> {
        self.open_object()?;
        let mut buffer = vec![0; CHUNK_BYTES as usize];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                got => self.append(&buffer[..got?])?,
            }
        }
        self.close_object(name).map(|_| ())
    }

    /// Begins an object that is stored whole; its bytes come by `append`, its name by
    /// `close_object`.
    pub fn open_object(&mut self) -> Result<(), MemberError> {
        let (writing, _) = self.writing()?;
        writing.object = Some((writing.manifest.bytes, Xxh3::new()));
        Ok(())
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), MemberError> {
        let (writing, disk) = self.writing()?;
        let none = || MemberError::Refused("no object is being written".into());
        writing.object.as_mut().ok_or_else(none)?.1.update(bytes);
        writing.append(disk, bytes)
    }

    /// Returns the checksum of the object.
    pub fn close_object(&mut self, name: &str) -> Result<Hash, MemberError> {
        let (writing, _) = self.writing()?;
        let none = || MemberError::Refused("no object is being written".into());
        let (from, sum) = writing.object.take().ok_or_else(none)?;
        let (bytes, generation) = (writing.manifest.bytes - from, writing.generation);
        let extent = Extent { at: 0, bytes, generation, from };
        let extents = if bytes == 0 { Vec::new() } else { vec![extent] };
        let hash = sum.digest128().to_le_bytes();
        writing.add_object(Object { name: name.into(), bytes, hash: Some(hash), extents })?;
        Ok(hash)
    }

    /// Adds an object of which only `changed` (ascending, apart; where in it, and the bytes) is
    /// stored: the rest is where it is by `base`, which lies in committed generations.
    pub fn add_changes(
        &mut self,
        base: &Object,
        bytes: u64,
        changed: &[(u64, &[u8])],
        hash: Option<Hash>,
    ) -> Result<(), MemberError> {
        self.open_changes(base)?;
        for (at, content) in changed {
            if *at + content.len() as u64 > bytes {
                return Err(MemberError::Refused(format!("changes of {} overlap", base.name)));
            }
            self.change(*at, content)?;
        }
        self.close_changes(&base.name, bytes, hash)
    }

    /// Begins an object that is stored as changes to another, which lies in committed generations;
    /// these come by `change`, ascending, its name and length by `close_changes`.
    pub fn open_changes(&mut self, base: &Object) -> Result<(), MemberError> {
        let (writing, _) = self.writing()?;
        let (object, extents) = (base.clone(), Vec::new());
        writing.changing = Some(Changing { object, extents, end: 0 });
        Ok(())
    }

    pub fn change(&mut self, at: u64, bytes: &[u8]) -> Result<(), MemberError> {
        let (writing, disk) = self.writing()?;
        if bytes.is_empty() { Ok(()) } else { writing.change(disk, at, bytes) }
    }

    pub fn close_changes(
        &mut self,
        name: &str,
        bytes: u64,
        hash: Option<Hash>,
    ) -> Result<(), MemberError> {
        let (writing, disk) = self.writing()?;
        writing.keep(disk, bytes)?;
        let none = || MemberError::Refused("no object is being changed".into());
        let extents = writing.changing.take().ok_or_else(none)?.extents;
        writing.add_object(Object { name: name.into(), bytes, hash, extents })
    }

    /// Ends the payload.
    pub fn offer(&mut self) -> Result<Summary, MemberError> {
        let node = self.node();
        let (writing, disk) = self.writing()?;
        writing.flush(disk)?;
        writing.sign()?;
        writing.raw = record::encode(&writing.manifest).map_err(MemberError::Encode)?;
        disk.write_at(&files::data(writing.generation), writing.manifest.bytes, &writing.raw)?;
        let objects = writing.manifest.objects.iter();
        let needs: BTreeSet<u64> =
            objects.flat_map(|object| object.extents.iter().map(|e| e.generation)).collect();
        let manifest_bytes = writing.raw.len() as u64;
        let summary = Summary {
            node,
            payload: writing.manifest.bytes + manifest_bytes,
            manifest_bytes,
            manifest_hash: hash(&writing.raw),
            parity_hash: [0; 16],
            needs: needs.into_iter().filter(|need| *need != writing.generation).collect(),
        };
        writing.offer = Some(summary.clone());
        Ok(summary)
    }

    /// From now on only this controller, or a later one, is obeyed.
    pub fn fence(&mut self, term: u64) -> Result<(), MemberError> {
        if term > self.dropped.term {
            self.dropped.term = term;
            self.note_dropped()?;
        }
        Ok(())
    }

    /// The controller decided.
    pub fn commit(&mut self, commit: &Commit) -> Result<(), MemberError> {
        let (term, generation) = (commit.term, commit.generation);
        let own =
            self.writing.as_ref().is_some_and(|w| (w.generation, w.term) == (generation, term));
        if !own || term < self.dropped.term {
            let node = self.node();
            return Err(MemberError::Refused(format!(
                "node {node} did not prepare generation {generation} for this controller"
            )));
        }
        (self.writing, self.encoding) = (None, None);
        self.adopt(commit)
    }

    /// The generation exists, as another member knows.
    pub fn adopt(&mut self, commit: &Commit) -> Result<(), MemberError> {
        if self.dropped.contains(commit.generation) {
            let generation = commit.generation;
            return Err(MemberError::Refused(format!("generation {generation} was dropped")));
        }
        let bytes = record::encode(commit).map_err(MemberError::Encode)?;
        Ok(self.disk.replace(&files::commit(commit.generation), &bytes)?)
    }

    /// The controller gave the generation up before it was decided.
    pub fn abort(&mut self, generation: u64) -> Result<(), MemberError> {
        (self.writing, self.encoding) = (None, None);
        Ok(files::remove(&mut self.disk, generation)?)
    }

    /// These generations exist no more.
    pub fn drop_all(&mut self, generations: &[u64]) -> Result<(), MemberError> {
        self.note_drop(generations)?;
        for generation in generations {
            files::remove(&mut self.disk, *generation)?;
        }
        Ok(())
    }

    /// Notes that these generations exist no more; their files stay for now.
    pub fn note_drop(&mut self, generations: &[u64]) -> Result<(), MemberError> {
        if generations.iter().any(|generation| !self.dropped.contains(*generation)) {
            generations.iter().for_each(|generation| self.dropped.add(*generation));
            self.note_dropped()?;
        }
        Ok(())
    }

    /// Knows what another member knows to be dropped.
    pub fn learn(&mut self, other: &Dropped) -> Result<(), MemberError> {
        let mut all = self.dropped.clone();
        for (first, last) in &other.runs {
            all.add_run(*first, *last);
        }
        all.term = all.term.max(other.term);
        if all != self.dropped {
            self.dropped = all;
            self.note_dropped()?;
        }
        Ok(())
    }

    fn note_dropped(&mut self) -> Result<(), MemberError> {
        let bytes = record::encode(&self.dropped).map_err(MemberError::Encode)?;
        Ok(self.disk.replace(files::DROPPED, &bytes)?)
    }
}
