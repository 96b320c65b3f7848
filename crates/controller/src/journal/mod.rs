//! The journal of a controller, in the job's folder or in etcd: what its successor needs to go on.
//! Bytes in `docs/formats/journal.md`.
//!
//! Kept true: what the controller took from nodes, what that made of its books, and what it orders
//! is one record, written before any of it has an effect outside: before it is confirmed, sent or
//! printed (`Job::end_turn`). A record that is torn had no effect, and is cut off. The file is
//! replaced by one that begins with the whole state, which is there whole or not at all. It
//! outlives processes, not the machine: it is not forced to the disk.

pub(crate) mod commit;
pub(crate) mod effects;
pub(crate) mod record;
pub(crate) mod resume;
pub(crate) mod state;

use crate::checkpoints::coordinated_model::Coordinated;
use crate::checkpoints::fallback_model::Fallback;
use crate::journal::record::JobRecord;
use crate::monitor::Monitor;
use crate::outside::JournalStore;
use crate::ranks::Rank;
use crate::vault::model::Vaults;
use eyrie_control::ha::Pointer;
use eyrie_control::node::{DaemonRecord, FIRST_TERM, Peer, ToNode};
use eyrie_control::{Event, JobSpec, Stream};
use eyrie_protocol::journal;
use eyrie_protocol::output::Tape;
use eyrie_protocol::recovery::{Input, Planner};
use eyrie_protocol::scheduler::Scheduler;
use eyrie_protocol::session::{Foreign, Session};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;

const VERSION: u32 = 24;
/// The number of `Entry::Head`.
const HEAD: u32 = 0;

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
        let (version, reign) = (VERSION, FIRST_TERM);
        Head { version, reign, spec, key, addresses, begun_unix_ms: begun_ms }
    }
}

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeRecord {
    pub daemon: Option<DaemonRecord>,
    pub pid: u32,
    pub(crate) state: crate::nodes::model::State,
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
pub(crate) enum Part {
    JobRecord,
    Monitor,
    Scheduler,
    Vault,
    Node(u32),
    Rank(u32),
    /// Of ranks that are checkpointed together.
    Coordinated,
    /// Snapshots of ranks that are not.
    Fallback,
}

/// What happens to a tape.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Played {
    Feed(Vec<u8>),
    Rewind(u64),
    GiveUp,
    Flush,
    Mark(u64),
}

/// One thing in a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Entry {
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
    #[error(
        "{0}: it does not begin with the state of a job. Nobody can go on with the job: its nodes \
         end by themselves when their time for another controller is over (--controller-limit)"
    )]
    NoHead(PathBuf),
    #[error("{0}: it is damaged at byte {1}, so it does not say how the job stands")]
    Damaged(PathBuf, usize),
    #[error("{0}: its records do not fit together: {1}")]
    Broken(PathBuf, String),
}

/// What a journal holds.
pub struct Known {
    pub head: Head,
    pub(crate) record: JobRecord,
    pub(crate) monitor: Monitor,
    pub(crate) scheduler: Scheduler,
    pub(crate) planner: Option<Planner>,
    pub(crate) vaults: Vaults,
    pub(crate) coordinated: Option<Coordinated>,
    pub(crate) fallback: Fallback,
    pub(crate) nodes: Vec<(NodeRecord, Session<ToNode>)>,
    pub(crate) ranks: Vec<Rank>,
    /// So many events there were, of which these are the last.
    pub(crate) events: (u64, Vec<Event>),
    /// Bytes that were torn.
    pub(crate) torn: u64,
}

impl Known {
    /// The daemons of its nodes, as their controller started them.
    pub fn daemons(&self) -> impl Iterator<Item = &DaemonRecord> {
        self.nodes.iter().filter_map(|(record, _)| record.daemon.as_ref())
    }

    /// What lay on another machine is not here.
    pub fn leave_archive_behind(&mut self) {
        self.record.archive.leave_behind();
    }
}

/// The journal as it is being written, and what is gathered for its next record.
#[derive(Default)]
pub(crate) struct Journaling {
    /// Where it is written, of a job that outlives its controller.
    pub open: Option<Rc<dyn JournalStore>>,
    pub head: Option<Head>,
    /// For the next record.
    pub noted: Vec<Entry>,
    /// Events that are to be told when the turn is committed ...
    pub events: Vec<Event>,
    /// All of them are shown at the console, not only those that people look for.
    pub verbose: bool,
    /// ... and what else comes about then.
    pub commit: effects::Commit,
    /// What stands in the journal, by its hash.
    pub written: BTreeMap<Part, u128>,
}

/// The record by which a job's folder says that its journal is in etcd.
pub fn pointing(pointer: &Pointer) -> io::Result<Vec<u8>> {
    encode(&[Entry::Elsewhere(Box::new(pointer.clone()))])
}

pub(crate) fn encode(entries: &[Entry]) -> io::Result<Vec<u8>> {
    let content = postcard::to_stdvec(entries).map_err(io::Error::other)?;
    journal::frame(&content).ok_or_else(|| io::Error::other("a record is too long"))
}

/// The bytes of a part. One that cannot be encoded is none.
pub(crate) fn part<T: Serialize>(of: &T) -> Vec<u8> {
    postcard::to_stdvec(of).unwrap_or_default()
}

/// What a job's folder leads to.
pub enum Found {
    Here(Box<Known>),
    Elsewhere(Box<Pointer>),
}

/// No journal is longer: it is written anew long before.
pub const MAX_FILE_BYTES: u64 = 1 << 31;

/// Reads the journal of a job's folder.
pub fn read(path: PathBuf, bytes: &[u8]) -> Result<Found, JournalError> {
    if let Some(first) = journal::read(bytes).0.first()
        && let Ok(entries) = postcard::from_bytes::<Vec<Entry>>(first)
        && let Some(Entry::Elsewhere(pointer)) = entries.into_iter().next()
    {
        return Ok(Found::Elsewhere(pointer));
    }
    parse(path, bytes).map(|known| Found::Here(Box::new(known)))
}

/// Reads a journal that is here: what a successor goes on with.
pub fn parse(path: PathBuf, bytes: &[u8]) -> Result<Known, JournalError> {
    parse_without(path, bytes, |_| false)
}

/// The same without some entries, by which a simulator shows that they are needed.
pub(crate) fn parse_without(
    path: PathBuf,
    bytes: &[u8],
    lacks: impl Fn(&Entry) -> bool,
) -> Result<Known, JournalError> {
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
        for entry in entries.into_iter().filter(|e| !lacks(e)) {
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
        for rank in 0..head.spec.program.size {
            let mut known: Rank = self.part(Part::Rank(rank))?;
            for (n, tape) in (0u8..).zip(&mut known.tapes) {
                *tape = self.tapes.remove(&(rank, n)).ok_or("a tape is missing")?;
            }
            ranks.push(known);
        }
        Ok(Known {
            record: self.part(Part::JobRecord)?,
            monitor: self.part(Part::Monitor)?,
            scheduler: self.part(Part::Scheduler)?,
            vaults: self.part(Part::Vault)?,
            coordinated: self.part(Part::Coordinated)?,
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
