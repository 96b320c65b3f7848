//! An outside in memory, for simulators and tests: files in a map, keys by counting, and a list of
//! what was asked of daemons, gateways and the object store.
//!
//! Kept true: nothing happens by itself: whoever drives the controller answers what was asked, with
//! messages, when and in what order it likes. A successor that is given the same memory finds what
//! the dead controller left in it.

pub mod driven;
mod files;
mod launcher;
#[cfg(test)]
mod saving_tests;
#[cfg(test)]
mod tests;

use crate::outside::{
    Client, ClientHandle, Daemon, GatewaySite, JournalStore, Lead, Machine, Needed, NodeLine,
    ObjectStore, Outside,
};
use eyrie_control::gateway::{Silence, ToGateway};
use eyrie_control::ha::Announced;
use eyrie_control::{Death, NodeMsg, ToNode};
use eyrie_protocol::failure_detector::Patience;
use eyrie_protocol::session::Numbered;
use eyrie_protocol::timing::Detector;
use eyrie_state::saved_job::SavedJob;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the controller asked for. Each has its answer (`Msg`), but for those that are only told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Answer: `Connected`, or `Gone`.
    StartDaemon {
        node: u32,
        epoch: u64,
        gateway: Option<(u64, SocketAddr)>,
    },
    /// Answer: `Gone`, when it has ended.
    WatchAdopted {
        node: u32,
        epoch: u64,
    },
    /// Answer: `Gone`.
    KillDaemon {
        node: u32,
    },
    /// Answer: `Cleared`.
    Clear {
        node: u32,
        others: Vec<i32>,
        cut_off: Duration,
    },
    /// Answer: `Gateway`, and `GatewayGone` when it has ended.
    StartGateway {
        cluster: u32,
        number: u64,
        site: GatewaySite,
        silence: Silence,
    },
    TellGateway {
        cluster: u32,
        order: ToGateway,
    },
    /// Answer: `GatewayGone`.
    KillGateway {
        cluster: u32,
    },
    BuryGateway {
        cluster: u32,
    },
    /// Answer: `GatewayEnded`.
    EndGateway {
        cluster: u32,
        kill: bool,
    },
    /// Answer: `Archived`.
    SyncImages {
        attempt: u32,
        needed: Needed,
    },
    /// Answer: `InDepot`.
    Bring,
    /// Answer: `Surveyed`.
    Survey {
        attempt: u32,
    },
    EndAttempt,
    /// Answer: `Committed`.
    Commit {
        attempt: u32,
        bytes: u64,
        number: u32,
    },
    Tidy,
    ClearStore,
    Announce(Announced),
    /// Answer: `Room`.
    AwaitRoom,
    /// A fault point was passed.
    Reach(&'static str),
    Over,
}

/// What is shared by all handles.
#[derive(Default)]
struct Content {
    files: BTreeMap<String, Vec<u8>>,
    saved: Option<SavedJob>,
    saved_before: Option<SavedJob>,
    journal: Option<Vec<u8>>,
    /// Its length when it was new.
    base: usize,
    asked: Vec<Asked>,
    said: Vec<NodeMsg>,
    keys: u64,
    pids: i32,
    ended: BTreeMap<u32, Death>,
    /// Operations on files fail, as a full disk has them.
    full: bool,
    batch: bool,
    launcher: launcher::Known,
}

/// All that is outside of a controller.
#[derive(Clone, Default)]
pub struct Memory(Rc<RefCell<Content>>);

/// Frames that were sent on lines, in order.
#[derive(Clone, Default)]
pub struct Frames(Arc<Mutex<Vec<(u64, Sent)>>>);

/// What happens on a line.
#[derive(Debug)]
pub enum Sent {
    Frame(Box<Numbered<ToNode>>),
    /// What was taken up to this number is confirmed by whatever is sent next.
    Confirmed(u64),
    HungUp,
}

impl Frames {
    fn push(&self, line: u64, sent: Sent) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((line, sent));
    }

    pub fn take(&self) -> Vec<(u64, Sent)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A line of this number, which notes here what is sent.
    pub fn line(&self, number: u64) -> Box<dyn NodeLine> {
        Box::new(Line { number, frames: self.clone(), allowed: Mutex::new(LEAST_MS) })
    }
}

/// A connection on which nothing is silent for long.
struct Line {
    number: u64,
    frames: Frames,
    allowed: Mutex<u64>,
}

/// What a node bears at least.
const LEAST_MS: u64 = Detector::DEFAULT.silence_least_ms;

impl NodeLine for Line {
    fn number(&self) -> u64 {
        self.number
    }

    fn send(&self, frame: Numbered<ToNode>) {
        self.frames.push(self.number, Sent::Frame(Box::new(frame)));
    }

    fn hang_up(&self) {
        self.frames.push(self.number, Sent::HungUp);
    }

    fn confirm(&self, heard: u64) {
        self.frames.push(self.number, Sent::Confirmed(heard));
    }

    fn take(&self) {}

    fn set_patience(&self, _: Patience) {}

    fn rounded_most(&self) -> u64 {
        LEAST_MS
    }

    fn is_quiet(&self) -> bool {
        false
    }

    fn allowed(&self) -> u64 {
        *self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allow(&self, granted: u64) {
        *self.allowed.lock().unwrap_or_else(PoisonError::into_inner) = granted;
    }

    fn clear_after(&self, granted: u64, before: Option<u64>) -> u64 {
        Detector::DEFAULT.clear_after(granted.max(LEAST_MS), before)
    }

    fn quiet(&self) -> u64 {
        0
    }

    fn silent(&self) -> u64 {
        0
    }

    fn stamped_ago(&self) -> Option<u64> {
        None
    }
}

impl Memory {
    /// What a controller is begun with.
    pub fn outside(&self) -> Outside {
        let files = Rc::new(self.clone());
        Outside {
            files: Rc::clone(&files) as _,
            launcher: Rc::clone(&files) as _,
            store: Rc::clone(&files) as _,
            machine: files,
            console: ClientHandle::new(self.clone()),
        }
    }

    /// What was asked for since this was called last.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.0.borrow_mut().asked)
    }

    /// What the console was told since this was called last.
    pub fn take_said(&self) -> Vec<NodeMsg> {
        std::mem::take(&mut self.0.borrow_mut().said)
    }

    /// The journal as a successor finds it.
    pub fn journal_bytes(&self) -> Option<Vec<u8>> {
        self.0.borrow().journal.clone()
    }

    /// The journal as a controller leaves it that dies while it writes.
    pub fn set_journal(&self, bytes: Vec<u8>) {
        self.0.borrow_mut().journal = Some(bytes);
    }

    /// A file of the job's folder, as others write it.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.0.borrow_mut().files.insert(name.to_string(), bytes);
    }

    /// What is saved of the job.
    pub fn saved(&self) -> Option<SavedJob> {
        self.0.borrow().saved.clone()
    }

    /// From now on nothing can be written, or all can again.
    pub fn set_full(&self, full: bool) {
        self.0.borrow_mut().full = full;
    }

    /// It is in a job of a batch system, or is not.
    pub fn set_in_batch(&self, batch: bool) {
        self.0.borrow_mut().batch = batch;
    }

    /// The daemon of a node has ended so.
    pub fn daemon_ends(&self, node: u32, death: Death) {
        self.0.borrow_mut().ended.insert(node, death);
    }

    /// The lead of a job whose state is here as if it were in etcd: effects wait for
    /// `News::Committed`.
    pub fn lead(&self, reign: u64) -> Rc<dyn Lead> {
        Rc::new(MemoryLead { memory: self.clone(), reign })
    }

    fn ask(&self, asked: Asked) {
        self.0.borrow_mut().asked.push(asked);
    }

    fn room(&self) -> io::Result<()> {
        match self.0.borrow().full {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }

    /// A daemon that has just been started.
    fn new_daemon(&self, epoch: u64) -> Daemon {
        let mut content = self.0.borrow_mut();
        content.pids += 1;
        Daemon { pid: 1000 + content.pids, epoch, born: epoch, host: None, left: false }
    }
}

impl Client for Memory {
    fn send(&self, message: &NodeMsg) {
        self.0.borrow_mut().said.push(message.clone());
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn has_room(&self) -> bool {
        true
    }
}

impl Machine for Memory {
    fn key(&self) -> io::Result<[u8; 32]> {
        let mut content = self.0.borrow_mut();
        content.keys += 1;
        let mut key = [0; 32];
        key[..8].copy_from_slice(&content.keys.to_le_bytes());
        Ok(key)
    }

    fn reach(&self, point: &'static str) {
        self.ask(Asked::Reach(point));
    }

    fn over(&self) {
        self.ask(Asked::Over);
    }

    fn await_room(&self) {
        self.ask(Asked::AwaitRoom);
    }

    fn environment(&self) -> Vec<(OsString, OsString)> {
        Vec::new()
    }

    fn working_folder(&self) -> io::Result<OsString> {
        Ok(OsString::from("/"))
    }

    fn pid(&self) -> u32 {
        1000
    }

    fn in_batch(&self, _: bool) -> bool {
        self.0.borrow().batch
    }
}

impl ObjectStore for Memory {
    fn place(&self) -> String {
        String::from("memory")
    }

    fn bring(&self) -> io::Result<()> {
        self.ask(Asked::Bring);
        Ok(())
    }

    fn survey(&self, attempt: u32) -> io::Result<()> {
        self.ask(Asked::Survey { attempt });
        Ok(())
    }

    fn end_attempt(&self) {
        self.ask(Asked::EndAttempt);
    }

    fn commit(&self, attempt: u32, bytes: u64, state: &SavedJob) -> io::Result<()> {
        self.ask(Asked::Commit { attempt, bytes, number: state.number });
        Ok(())
    }

    fn tidy(&self) -> io::Result<()> {
        self.ask(Asked::Tidy);
        Ok(())
    }

    fn clear(&self) {
        self.ask(Asked::ClearStore);
    }

    fn ways(&self, _: u32, _: bool, _: &BTreeMap<u32, Vec<u32>>) -> Vec<(u32, Vec<u8>)> {
        Vec::new()
    }
}

/// The journal of a job, with numbers for what is durable later.
struct MemoryLead {
    memory: Memory,
    reign: u64,
}

/// A journal of which each record has a number.
struct NumberedJournal {
    memory: Memory,
    count: RefCell<u64>,
}

impl NumberedJournal {
    fn next(&self) -> u64 {
        *self.count.borrow_mut() += 1;
        *self.count.borrow()
    }
}

impl JournalStore for NumberedJournal {
    fn replace(&self, bytes: Vec<u8>) -> io::Result<u64> {
        JournalStore::replace(&self.memory, bytes).map(|_| self.next())
    }

    fn append(&self, bytes: Vec<u8>) -> io::Result<u64> {
        JournalStore::append(&self.memory, bytes).map(|_| self.next())
    }

    fn is_long(&self) -> bool {
        self.memory.is_long()
    }

    fn give_up(&self) {}
}

impl Lead for MemoryLead {
    fn place(&self) -> String {
        String::from("memory")
    }

    fn reign(&self) -> u64 {
        self.reign
    }

    fn journal(&self) -> Rc<dyn JournalStore> {
        Rc::new(NumberedJournal { memory: self.memory.clone(), count: RefCell::new(0) })
    }

    fn keep_input(&self, _: u64, _: &[u8]) {}

    fn announce(&self, announced: Announced) {
        self.memory.ask(Asked::Announce(announced));
    }

    fn holds(&self) -> bool {
        true
    }

    fn forsake(&self) {}
}
