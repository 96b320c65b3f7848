//! The journal of a controller, in the job's folder or in etcd: what its successor needs to go on.
//! Bytes in `docs/formats/journal.md`.
//!
//! Kept true: what the controller took from nodes, what that made of its books, and what it orders
//! is one record, written before any of it has an effect outside: before it is confirmed, sent or
//! printed (`Job::end_turn`). A record that is torn had no effect, and is cut off. The file is
//! replaced by one that begins with the whole state, which is there whole or not at all. It
//! outlives processes, not the machine: it is not forced to the disk.

use super::Rank;
use super::books::Books;
use super::fallback::Fallback;
use super::together::Together;
use super::vault::Vaults;
use crate::crew::FIRST_REIGN;
use crate::ha::{HaError, Lead, Place, Pointer, Writer};
use crate::home;
use crate::monitor::Monitor;
use crate::output::Tape;
use crate::recovery::{Input, Planner};
use crate::scheduler::Scheduler;
use eyrie_control::node::{Peer, ToNode};
use eyrie_control::{Event, JobSpec, Stream};
use eyrie_protocol::journal;
use eyrie_protocol::session::{Foreign, Session};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const VERSION: u32 = 21;
/// The number of `Entry::Head`.
const HEAD: u32 = 0;
/// From this length on the file is replaced, if most of it is not needed any more.
const LONG_BYTES: u64 = 16 << 20;

/// What does not change as long as a controller reigns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Head {
    version: u32,
    pub reign: u64,
    pub spec: JobSpec,
    pub key: [u8; 32],
    pub addresses: Vec<SocketAddr>,
    pub begun_unix_ms: u64,
}

impl Head {
    pub fn new(spec: JobSpec, key: [u8; 32], addresses: Vec<SocketAddr>, begun_ms: u64) -> Head {
        let (version, reign) = (VERSION, FIRST_REIGN);
        Head { version, reign, spec, key, addresses, begun_unix_ms: begun_ms }
    }
}

/// A daemon on this machine, as another controller can find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonBooks {
    pub node: u32,
    pub pid: i32,
    pub born: u64,
    /// That it was started with.
    pub epoch: u64,
}

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NodeBooks {
    pub daemon: Option<DaemonBooks>,
    pub pid: u32,
    pub state: super::nodes::State,
    pub epoch: u64,
    pub peer: Option<Peer>,
    pub taken: u64,
    pub finished: Option<u64>,
    pub granted: u64,
    pub met: bool,
    pub cleared: bool,
    pub left: bool,
}

/// What is written whole when it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Part {
    Books,
    Monitor,
    Scheduler,
    Vault,
    Node(u32),
    Rank(u32),
    /// Of ranks that are checkpointed together.
    Together,
    /// Snapshots of ranks that are not.
    Fallback,
}

/// What happens to a tape.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Played {
    Feed(Vec<u8>),
    Rewind(u64),
    GiveUp,
    Flush,
    Mark(u64),
}

/// One thing in a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Entry {
    Head(Box<Head>),
    Part(Part, Vec<u8>),
    Planner(Box<Planner>),
    /// The planner was told this.
    Plan(Box<Input>),
    /// A rank's output stream, with what may not be printed yet.
    Tape(u32, Stream, Box<Tape>),
    Played(u32, Stream, Played),
    /// What was said between a node and the controllers.
    Session(u32, Session<ToNode>),
    Order(u32, ToNode),
    /// The node's messages up to the first number were taken, it has confirmed up to the second.
    Heard(u32, u64, u64),
    /// So many events came before.
    Events(u64),
    Event(Box<Event>),
    /// The journal is in etcd.
    Elsewhere(Box<Pointer>),
}

/// Why a journal is of no use.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    #[error("{0}: the journal of another release")]
    Version(PathBuf),
    #[error("{0}: it does not begin with the state of a job")]
    NoHead(PathBuf),
    #[error("{0}: it is damaged at byte {1}, so it does not say how the job stands")]
    Damaged(PathBuf, usize),
    #[error("{0}: its records do not fit together: {1}")]
    Broken(PathBuf, String),
    #[error("{0}")]
    Ha(#[from] HaError),
}

/// What a journal holds.
pub(super) struct Known {
    pub head: Head,
    pub books: Books,
    pub monitor: Monitor,
    pub scheduler: Scheduler,
    pub planner: Option<Planner>,
    pub vaults: Vaults,
    pub together: Option<Together>,
    pub fallback: Fallback,
    pub nodes: Vec<(NodeBooks, Session<ToNode>)>,
    pub ranks: Vec<Rank>,
    /// So many events there were, of which these are the last.
    pub events: (u64, Vec<Event>),
    /// Bytes that were torn.
    pub torn: u64,
}

/// Where it is written.
pub(super) enum Journal {
    File(Open),
    Etcd(Writer),
}

/// The open file.
pub(super) struct Open {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Its length when it was new.
    base: u64,
}

impl Journal {
    /// Puts one that begins with this state in the place of the one that is there. Returns the
    /// number that is told when it is durable; 0: it is.
    pub fn replace(
        before: Option<Journal>,
        folder: &Path,
        state: &[Entry],
    ) -> io::Result<(Journal, u64)> {
        match before {
            Some(Journal::Etcd(mut writer)) => {
                let number = writer.renew(encode(state)?);
                Ok((Journal::Etcd(writer), number))
            }
            Some(Journal::File(_)) | None => Ok((Journal::File(Open::replace(folder, state)?), 0)),
        }
    }

    /// Appends a record. Returns as `replace` does.
    pub fn append(&mut self, entries: &[Entry]) -> io::Result<u64> {
        let bytes = encode(entries)?;
        match self {
            Journal::File(open) => open.append(&bytes).map(|()| 0),
            Journal::Etcd(writer) => Ok(writer.append(bytes)),
        }
    }

    /// Whether it is to be replaced.
    pub fn is_long(&self) -> bool {
        match self {
            Journal::File(open) => open.bytes > LONG_BYTES.max(4 * open.base),
            Journal::Etcd(writer) => writer.is_long(),
        }
    }

    /// It cannot be written any more, and says less than the truth.
    pub fn give_up(self) {
        if let Journal::File(open) = self {
            let _ = std::fs::remove_file(&open.path);
        }
    }
}

impl Open {
    fn replace(folder: &Path, state: &[Entry]) -> io::Result<Open> {
        let path = folder.join(home::JOURNAL);
        let unborn = folder.join(format!(".{}.part", home::JOURNAL));
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unborn)?;
        let bytes = encode(state)?;
        let written = file.write_all(&bytes).and_then(|()| std::fs::rename(&unborn, &path));
        // What there is of it takes room where there is none.
        written.inspect_err(|_| drop(std::fs::remove_file(&unborn)))?;
        let base = bytes.len() as u64;
        Ok(Open { path, file, bytes: base, base })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Notes in a job's folder that its journal is in etcd.
pub fn point(folder: &Path, pointer: &Pointer) -> io::Result<()> {
    Open::replace(folder, &[Entry::Elsewhere(Box::new(pointer.clone()))]).map(drop)
}

fn encode(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let content = postcard::to_stdvec(entries).map_err(io::Error::other)?;
    journal::frame(&content).ok_or_else(|| io::Error::other("a record is too long"))
}

/// The bytes of a part. One that cannot be encoded is none.
pub(super) fn part<T: Serialize>(of: &T) -> Vec<u8> {
    postcard::to_stdvec(of).unwrap_or_default()
}

/// What a job's folder leads to.
pub(super) enum Found {
    Here(Box<Known>),
    Elsewhere(Box<Pointer>),
}

/// Reads the journal in a job's folder.
pub(super) fn read(folder: &Path) -> Result<Found, JournalError> {
    let path = folder.join(home::JOURNAL);
    let bytes = std::fs::read(&path).map_err(|e| JournalError::Io(path.clone(), e))?;
    if let Some(first) = journal::read(&bytes).0.first()
        && let Ok(entries) = postcard::from_bytes::<Vec<Entry>>(first)
        && let Some(Entry::Elsewhere(pointer)) = entries.into_iter().next()
    {
        return Ok(Found::Elsewhere(pointer));
    }
    parse(path, &bytes).map(|known| Found::Here(Box::new(known)))
}

/// Takes the lead of a job whose journal is in etcd.
pub(super) fn succeed(
    pointer: &Pointer,
    job: &str,
    patience: Duration,
) -> Result<Lead, JournalError> {
    let place = Arc::new(Place::new(&pointer.ha, job)?);
    Ok(Lead::succeed(place, pointer.token.as_deref(), patience)?)
}

/// The journal that the leader finds.
pub(super) fn fetch(lead: &Lead) -> Result<Known, JournalError> {
    parse(PathBuf::from(&lead.place.name), &lead.place.journal()?)
}

fn parse(path: PathBuf, bytes: &[u8]) -> Result<Known, JournalError> {
    let (records, length) = journal::read(bytes);
    // Nothing else of another release's can be read.
    if records.first().and_then(|first| version(first)).is_some_and(|v| v != VERSION) {
        return Err(JournalError::Version(path));
    }
    if journal::is_damaged(&bytes[length..]) {
        return Err(JournalError::Damaged(path, length));
    }
    let mut reading = Reading::default();
    for record in records {
        let entries: Vec<Entry> = postcard::from_bytes(record)
            .map_err(|e| JournalError::Broken(path.clone(), e.to_string()))?;
        for entry in entries {
            reading.take(entry).map_err(|e| JournalError::Broken(path.clone(), e))?;
        }
    }
    reading.torn = (bytes.len() - length) as u64;
    match &reading.head {
        None => return Err(JournalError::NoHead(path)),
        Some(head) if head.version != VERSION => return Err(JournalError::Version(path)),
        Some(_) => {}
    }
    reading.known().map_err(|why| JournalError::Broken(path, why))
}

/// The version in a record that begins with a head: behind the number of its entries and the
/// number of this entry's kind.
fn version(record: &[u8]) -> Option<u32> {
    let ((_, kind, version), _) = postcard::take_from_bytes::<(u64, u32, u32)>(record).ok()?;
    (kind == HEAD).then_some(version)
}

/// A journal that is being read.
#[derive(Default)]
struct Reading {
    head: Option<Head>,
    parts: BTreeMap<Part, Vec<u8>>,
    planner: Option<Planner>,
    tapes: BTreeMap<(u32, u8), Tape>,
    sessions: BTreeMap<u32, Session<ToNode>>,
    events: (u64, Vec<Event>),
    torn: u64,
}

/// Does to a tape what was done then; what came of that is done.
fn play(tape: &mut Tape, played: &Played) {
    match played {
        Played::Feed(bytes) => {
            drop(tape.feed(bytes));
            // That was told then.
            drop(tape.differed());
        }
        Played::Rewind(position) => tape.rewind(*position),
        Played::Mark(position) => tape.mark(*position),
        Played::GiveUp => tape.give_up(),
        Played::Flush => drop(tape.flush()),
    }
}

fn number(stream: Stream) -> u8 {
    stream as u8
}

impl Reading {
    fn take(&mut self, entry: Entry) -> Result<(), String> {
        match entry {
            Entry::Head(head) => self.head = Some(*head),
            Entry::Part(part, bytes) => drop(self.parts.insert(part, bytes)),
            Entry::Planner(planner) => self.planner = Some(*planner),
            Entry::Plan(input) => {
                let planner = self.planner.as_mut().ok_or("there is no plan")?;
                // What followed from it was ordered, and stands behind it.
                planner.step(*input);
            }
            Entry::Tape(rank, stream, tape) => {
                self.tapes.insert((rank, number(stream)), *tape);
            }
            Entry::Played(rank, stream, played) => {
                let tape = self.tapes.get_mut(&(rank, number(stream)));
                play(tape.ok_or("there is no such tape")?, &played);
            }
            Entry::Session(node, session) => drop(self.sessions.insert(node, session)),
            Entry::Order(node, order) => {
                self.sessions.entry(node).or_default().number(order);
            }
            Entry::Heard(node, taken, confirmed) => {
                let session = self.sessions.entry(node).or_default();
                session.restore(taken, confirmed).map_err(|e: Foreign| e.to_string())?;
            }
            Entry::Elsewhere(_) => return Err(String::from("it is elsewhere")),
            Entry::Events(count) => self.events = (count, Vec::new()),
            Entry::Event(event) => {
                self.events.0 += 1;
                self.events.1.push(*event);
            }
        }
        Ok(())
    }

    fn part<T: DeserializeOwned>(&mut self, part: Part) -> Result<T, String> {
        let bytes = self.parts.remove(&part).ok_or_else(|| format!("{part:?} is missing"))?;
        postcard::from_bytes(&bytes).map_err(|e| format!("{part:?}: {e}"))
    }

    fn known(mut self) -> Result<Known, String> {
        let head = self.head.take().ok_or("there is no head")?;
        let mut nodes = Vec::new();
        while self.parts.contains_key(&Part::Node(nodes.len() as u32)) {
            let node = nodes.len() as u32;
            let session = self.sessions.remove(&node).unwrap_or_default();
            nodes.push((self.part(Part::Node(node))?, session));
        }
        let mut ranks = Vec::new();
        for rank in 0..head.spec.size {
            let mut known: Rank = self.part(Part::Rank(rank))?;
            for (n, tape) in (0u8..).zip(&mut known.tapes) {
                *tape = self.tapes.remove(&(rank, n)).ok_or("a tape is missing")?;
            }
            ranks.push(known);
        }
        Ok(Known {
            books: self.part(Part::Books)?,
            monitor: self.part(Part::Monitor)?,
            scheduler: self.part(Part::Scheduler)?,
            vaults: self.part(Part::Vault)?,
            together: self.part(Part::Together)?,
            fallback: self.part(Part::Fallback)?,
            planner: self.planner,
            nodes,
            ranks,
            events: self.events,
            torn: self.torn,
            head,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One entry, a head, of which nothing but the version can be read.
    fn begins_with(version: u8) -> Result<Known, JournalError> {
        let record = journal::frame(&[1, HEAD as u8, version, 0xff, 0xff, 0xff]).unwrap();
        parse(PathBuf::from("journal"), &record)
    }

    #[test]
    fn the_journal_of_another_release_is_told_as_such() {
        assert!(matches!(begins_with(14), Err(JournalError::Version(_))));
        assert!(matches!(begins_with(VERSION as u8), Err(JournalError::Broken(..))));
    }
}
