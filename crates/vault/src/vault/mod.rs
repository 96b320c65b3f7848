//! All members of a vault in one process, over folders or what stands for them: for the command,
//! for tests, and as the model of what daemons do with the same machines over a network.
//!
//! Kept true: what `commit` reports as committed can be read as long as no more members of a group
//! are lost than the scheme tolerates, whatever happened while it was written, and comes back byte
//! for byte or not at all.

mod build;
mod collect;
mod commit;
mod mend;
mod read;

pub use build::Draft;
pub use mend::{Mended, Pace};
pub use read::{ReadError, State};

use crate::cost::Measured;
use crate::disk::Disk;
use crate::files::Tables;
use crate::flow::Encoder;
use crate::layout::{LayoutError, Place, lay_out};
use crate::member::{Member, MemberError};
use crate::record::{Commit, Dropped, Hash, Identity, Object, RecordError};
use crate::recovery::{self, Verdict};
use crate::scheme::Scheme;
use crate::seal::Key;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Read};

/// Why a vault cannot be used, or a generation not be stored.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    #[error("node {node}: {error}")]
    Member { node: u32, error: MemberError },
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("there is no member of a vault")]
    Empty,
    #[error("two of these are node {0} of the vault")]
    Twice(u32),
    #[error("node {0} is of another vault than the others")]
    Other(u32),
    #[error("generation {generation} does not exist: {why}")]
    Aborted { generation: u64, why: String },
    #[error("generation {0} was decided, but too many members were lost with it to rely on it")]
    Uncertain(u64),
    #[error("nodes {0:?} have commits of generation {1} that contradict each other")]
    Contradiction(Vec<u32>, u64),
    #[error("generation {0} does not exist")]
    NoGeneration(u64),
    #[error("node {0} is no member of the vault, or is not there")]
    NoMember(u32),
    #[error(
        "which member it was cannot be told: move what is in it away, and give the empty folder"
    )]
    Nobodys,
    #[error("the vault was opened only to look into it")]
    OnlyLooking,
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("a record cannot be written: {0}")]
    Record(#[from] RecordError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What opening found and did.
#[derive(Debug, Default)]
pub struct Opened {
    /// Members that are not there.
    pub missing: Vec<u32>,
    /// Members that cannot be used, and why.
    pub unusable: Vec<(u32, MemberError)>,
    /// Generations that had been begun and not committed.
    pub dropped: Vec<u64>,
    /// Generations of which too few members are there to know.
    pub unknown: Vec<u64>,
    /// Records that are damaged.
    pub damaged: Vec<MemberError>,
}

/// Picks which of so many messages arrives next; those between two members stay in order.
pub type Order = Box<dyn FnMut(usize) -> usize + Send>;

/// A generation that was begun.
struct Begun {
    generation: u64,
    groups: Vec<Vec<u32>>,
    base: Option<u64>,
    why: String,
}

/// A vault.
pub struct Vault<D> {
    pub scheme: Scheme,
    pub places: Vec<Place>,
    id: [u8; 16],
    members: BTreeMap<u32, Member<D>>,
    commits: BTreeMap<u64, Commit>,
    /// The highest number that a generation ever had.
    last: u64,
    tables: HashMap<(u64, u32), Tables>,
    order: Order,
    measured: Measured,
    encoder: Option<Encoder>,
    key: Option<Key>,
    /// Manifests that were signed with it.
    signed: BTreeSet<(u64, u32)>,
    /// The generation that was begun, its groups, what it is built on, and why it is made so.
    begun: Option<Begun>,
    /// Bytes that members sent each other for the newest generation.
    sent: u64,
    /// This controller's.
    term: u64,
    /// Whether anything may be changed.
    change: bool,
    /// Whether what is damaged may be written anew all the same.
    mends: bool,
}

fn of(node: u32) -> impl Fn(MemberError) -> VaultError {
    move |error| VaultError::Member { node, error }
}

impl<D: Disk> Vault<D> {
    /// Makes a vault of empty folders, one for each place, in the same order.
    pub fn create(
        id: [u8; 16],
        scheme: Scheme,
        places: Vec<Place>,
        disks: Vec<D>,
    ) -> Result<Vault<D>, VaultError> {
        lay_out(scheme, &places)?;
        let mut members = Vec::new();
        for (place, disk) in places.iter().zip(disks) {
            let identity = Identity { vault: id, node: place.node, scheme, places: places.clone() };
            members.push(Member::create(disk, identity).map_err(of(place.node))?);
        }
        Ok(Vault::open(members)?.0)
    }

    /// Opens a vault of those members that are there: what was half done is brought to an end, or
    /// undone, and earlier controllers are obeyed no more.
    pub fn open(members: Vec<Member<D>>) -> Result<(Vault<D>, Opened), VaultError> {
        Vault::opened(members, true)
    }

    /// Opens a vault only to look into it: nothing is changed, and whoever works with it goes on.
    pub fn look(members: Vec<Member<D>>) -> Result<(Vault<D>, Opened), VaultError> {
        Vault::opened(members, false)
    }

    /// One generation, whose commit is known, over the storage of those of its nodes that can be
    /// reached: to read it, whatever else happens to the vault.
    pub fn of(commit: Commit, disks: BTreeMap<u32, D>) -> Vault<D> {
        let nodes = || commit.groups.iter().flatten().map(|summary| summary.node);
        let places: Vec<Place> = nodes().map(Place::of).collect();
        let (id, scheme) = (commit.vault, commit.scheme);
        let member = |(node, disk): (u32, D)| {
            let identity = Identity { vault: id, node, scheme, places: places.clone() };
            (node, Member::known(disk, identity))
        };
        let (last, term) = (commit.generation, commit.term);
        let members = disks.into_iter().map(member).collect();
        let mut vault = Vault::empty((id, scheme), places.clone(), members, false);
        vault.commits.insert(last, commit);
        (vault.last, vault.term) = (last, term);
        vault
    }

    fn empty(
        (id, scheme): ([u8; 16], Scheme),
        places: Vec<Place>,
        members: BTreeMap<u32, Member<D>>,
        change: bool,
    ) -> Vault<D> {
        Vault {
            scheme,
            places,
            id,
            members,
            commits: BTreeMap::new(),
            last: 0,
            tables: HashMap::new(),
            order: Box::new(|_| 0),
            measured: Measured::default(),
            encoder: None,
            key: None,
            signed: BTreeSet::new(),
            begun: None,
            sent: 0,
            term: 0,
            change,
            mends: change,
        }
    }

    fn opened(members: Vec<Member<D>>, change: bool) -> Result<(Vault<D>, Opened), VaultError> {
        let Identity { vault: id, scheme, places, .. } =
            members.first().ok_or(VaultError::Empty)?.identity.clone();
        let mut all = BTreeMap::new();
        for member in members {
            let node = member.node();
            let same = &member.identity;
            if (same.vault, same.scheme, &same.places) != (id, scheme, &places) {
                return Err(VaultError::Other(node));
            }
            if all.insert(node, member).is_some() {
                return Err(VaultError::Twice(node));
            }
        }
        let mut vault = Vault::empty((id, scheme), places, all, change);
        let opened = vault.recover()?;
        Ok((vault, opened))
    }

    /// How messages are ordered (simulation).
    pub fn set_order(&mut self, order: Order) {
        self.order = order;
    }

    /// What the encoder is picked by.
    pub fn set_measured(&mut self, measured: Measured) {
        self.measured = measured;
    }

    /// An encoder to use whatever the model says.
    pub fn set_encoder(&mut self, encoder: Option<Encoder>) {
        self.encoder = encoder;
    }

    /// What is stored from now on is encrypted with this key, and what is read was. Without one
    /// nothing that is encrypted can be read, but all of it be mended.
    pub fn set_key(&mut self, key: Option<Key>) {
        self.members.values_mut().for_each(|member| member.key.clone_from(&key));
        self.key = key;
        self.signed.clear();
    }

    /// Gives the storage back.
    pub fn into_disks(self) -> BTreeMap<u32, D> {
        self.members.into_iter().map(|(node, member)| (node, member.disk)).collect()
    }

    pub fn nodes(&self) -> impl Iterator<Item = u32> {
        self.members.keys().copied()
    }

    /// Committed generations.
    pub fn generations(&self) -> impl DoubleEndedIterator<Item = &Commit> {
        self.commits.values()
    }

    fn commit_of(&self, generation: u64) -> Result<&Commit, VaultError> {
        self.commits.get(&generation).ok_or(VaultError::NoGeneration(generation))
    }

    /// Does `work` with each member; one that fails is not there from then on.
    fn each(
        &mut self,
        opened: &mut Opened,
        mut work: impl FnMut(&mut Member<D>) -> Result<(), MemberError>,
    ) {
        let nodes: Vec<u32> = self.members.keys().copied().collect();
        for node in nodes {
            let Some(member) = self.members.get_mut(&node) else { continue };
            if let Err(error) = work(member) {
                self.members.remove(&node);
                opened.unusable.push((node, error));
            }
        }
    }

    fn recover(&mut self) -> Result<Opened, VaultError> {
        let mut opened = Opened::default();
        let mut dropped = Dropped { vault: self.id, ..Dropped::default() };
        for member in self.members.values() {
            member.dropped.runs.iter().for_each(|(first, last)| dropped.add_run(*first, *last));
            dropped.term = dropped.term.max(member.dropped.term);
        }
        if self.change {
            // Before anything is looked at: whatever an earlier controller still says comes too
            // late.
            dropped.term = dropped.term.saturating_add(1);
            self.each(&mut opened, |member| member.learn(&dropped));
        }
        self.term = dropped.term;
        let mut commits: Vec<(u32, Vec<Commit>)> = Vec::new();
        let (mut found, mut damaged) = (Vec::new(), Vec::new());
        self.each(&mut opened, |member| {
            let (good, bad) = member.commits()?;
            found.push(member.found(&good)?);
            damaged.extend(bad);
            commits.push((member.node(), good));
            Ok(())
        });
        opened.damaged = damaged;
        let mut all: BTreeMap<u64, Commit> = BTreeMap::new();
        for (node, commit) in commits.iter().flat_map(|(n, c)| c.iter().map(move |c| (*n, c))) {
            let known = all.entry(commit.generation).or_insert_with(|| commit.clone());
            if known != commit {
                return Err(VaultError::Contradiction(vec![node], commit.generation));
            }
        }
        opened.missing = self.missing();
        // Whose group a missing node was in is said by the commit, if there is one; here all count.
        let missing = [opened.missing.len()];
        let verdicts = recovery::decide(&found, &missing, self.scheme.tolerates());
        let of_all = found.iter().flat_map(|f| f.begun.iter().chain(&f.committed));
        let last_dropped = dropped.runs.values().copied().max();
        self.last = of_all.copied().chain(last_dropped).max().unwrap_or(0);
        for (generation, verdict) in verdicts {
            match verdict {
                Verdict::Exists => {
                    let Some(commit) = all.remove(&generation) else { continue };
                    self.spread(&mut opened, &commit, &commits);
                    self.commits.insert(generation, commit);
                }
                Verdict::Dropped => {
                    if self.change {
                        self.each(&mut opened, |member| member.drop_all(&[generation]));
                    }
                    opened.dropped.push(generation);
                }
                Verdict::Unknown => opened.unknown.push(generation),
            }
        }
        opened.missing = self.missing();
        Ok(opened)
    }

    /// Members that lack a commit get it.
    fn spread(&mut self, opened: &mut Opened, commit: &Commit, have: &[(u32, Vec<Commit>)]) {
        let has = |node: u32| {
            let its = have.iter().find(|(n, _)| *n == node);
            its.is_some_and(|(_, c)| c.iter().any(|c| c.generation == commit.generation))
        };
        if self.change {
            self.each(opened, |m| if has(m.node()) { Ok(()) } else { m.adopt(commit) });
        }
    }

    /// An error unless this vault may be changed.
    fn changes(&self) -> Result<(), VaultError> {
        if self.change { Ok(()) } else { Err(VaultError::OnlyLooking) }
    }

    fn missing(&self) -> Vec<u32> {
        let nodes = self.places.iter().map(|place| place.node);
        nodes.filter(|node| !self.members.contains_key(node)).collect()
    }

    fn member(&mut self, node: u32) -> Result<&mut Member<D>, VaultError> {
        self.members.get_mut(&node).ok_or(VaultError::NoMember(node))
    }

    /// Removes what was begun and not committed.
    pub fn give_up(&mut self) {
        if let Some(Begun { generation, .. }) = self.begun.take() {
            // What cannot be removed now is when the vault is opened.
            self.members.values_mut().for_each(|member| drop(member.abort(generation)));
        }
    }

    /// Begins a generation of the members that are there, in place of one that was begun.
    pub fn begin(&mut self) -> Result<u64, VaultError> {
        self.changes()?;
        self.give_up();
        let there = |place: &&Place| self.members.contains_key(&place.node);
        let places: Vec<Place> = self.places.iter().filter(there).cloned().collect();
        let groups = lay_out(self.scheme, &places)?.groups;
        let generation = self.last + 1;
        let term = self.term;
        self.last = generation;
        self.begun = Some(Begun { generation, groups, base: None, why: String::new() });
        for (node, member) in &mut self.members {
            member.begin(generation, term).map_err(of(*node))?;
        }
        Ok(generation)
    }

    /// The same, of payloads that are those of a committed generation with changes: its parity is
    /// updated by the differences, if the model says that this is less than to make it anew.
    pub fn begin_on(&mut self, base: u64) -> Result<u64, VaultError> {
        let commit = self.commit_of(base)?.clone();
        let generation = self.begin()?;
        for (node, member) in &mut self.members {
            if let Err(error) = member.build_on(&commit) {
                let node = *node;
                self.give_up();
                return Err(of(node)(error));
            }
        }
        self.begun.iter_mut().for_each(|begun| begun.base = Some(base));
        Ok(generation)
    }

    /// Why the generation that was begun is made as it is: its commit says so.
    pub fn because(&mut self, why: String) {
        self.begun.iter_mut().for_each(|begun| begun.why.clone_from(&why));
    }

    /// Bytes that members sent each other for the generation that was stored last.
    pub fn sent_bytes(&self) -> u64 {
        self.sent
    }

    /// Adds an object of a node to the generation that was begun.
    pub fn add(&mut self, node: u32, name: &str, from: &mut dyn Read) -> Result<(), VaultError> {
        self.member(node)?.add(name, from).map_err(of(node))
    }

    /// Adds an object of which only `changed` is stored; the rest is as in `base`, a generation
    /// that is committed.
    pub fn add_changes(
        &mut self,
        node: u32,
        (name, base): (&str, u64),
        bytes: u64,
        changed: &[(u64, &[u8])],
        hash: Option<Hash>,
    ) -> Result<(), VaultError> {
        let object = self.object(base, node, name)?;
        self.member(node)?.add_changes(&object, bytes, changed, hash).map_err(of(node))
    }

    /// An object, as the manifest of its node has it.
    pub fn object(&mut self, generation: u64, node: u32, name: &str) -> Result<Object, VaultError> {
        let manifest = self.manifest(generation, node)?;
        let found = manifest.objects.into_iter().find(|object| object.name == name);
        Ok(found.ok_or(ReadError::NoObject { generation, node, name: name.into() })?)
    }
}
