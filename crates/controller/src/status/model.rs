//! What is told of a job: its events, and how its ranks looked last.
//!
//! Kept true: events have numbers without a gap; of those in memory the oldest go first.

use crate::outside::{ClientHandle, Files};
use eyrie_control::{Account, Event, NodeMsg};
use eyrie_state::home::EVENTS;
use eyrie_state::samples::Sampler;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Events kept in memory for `eyrie events`.
pub(super) const KEPT_EVENTS: usize = 100_000;

/// The events of a job, in memory and in its folder.
pub struct EventLog {
    pub(super) events: Vec<Event>,
    /// Number of the first one in memory.
    pub(super) first: u64,
    /// Where they are written; none: they are not any more.
    pub(super) files: Option<Rc<dyn Files>>,
    /// Why they are not written any more, until that is told.
    pub(super) trouble: Option<std::io::Error>,
    pub(super) followers: Vec<ClientHandle>,
    /// Sums over all that there were, also before the job was restarted.
    pub(super) account: Account,
}

/// Whatever there is.
pub(super) const MAX_BYTES: u64 = u64::MAX - 1;

/// No more is read of what a controller before wrote.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;

impl EventLog {
    /// A file that cannot be written is no reason to stop a job.
    pub fn open(files: &Rc<dyn Files>) -> EventLog {
        let text = files.read(EVENTS, MAX_BYTES).unwrap_or_default();
        let text = String::from_utf8(text).unwrap_or_default();
        let before = text.lines().filter_map(|line| serde_json::from_str::<Event>(line).ok());
        let account = Account::of(&before.collect::<Vec<_>>());
        let opened = files.append(EVENTS, b"");
        let opened = opened.inspect_err(|error| tracing::warn!(%error, "events are not written"));
        let files = opened.is_ok().then(|| Rc::clone(files));
        let (events, followers) = (Vec::new(), Vec::new());
        EventLog { events, first: 0, files, trouble: None, followers, account }
    }

    /// Goes on with the file. Of the `count` events that there were it may lack the last ones.
    pub fn reopen(files: &Rc<dyn Files>, count: u64, last: Vec<Event>) -> EventLog {
        let text = files.read(EVENTS, MAX_FILE_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let whole = text.split_inclusive('\n').filter(|l| l.ends_with('\n'));
        let mut events: Vec<Event> =
            whole.map_while(|line| serde_json::from_str(line).ok()).collect();
        let lacks = count.saturating_sub(events.len() as u64) as usize;
        let missing = last.len().saturating_sub(lacks);
        let torn = !text.is_empty() && !text.ends_with('\n');
        let mut log = EventLog::open(files);
        if torn {
            log.rewrite(&**files, &events);
        }
        log.account = Account::of(&events);
        log.events.append(&mut events);
        last.into_iter().skip(missing).for_each(|event| log.push(event));
        log
    }

    /// Writes the file anew: its last line was torn.
    pub(super) fn rewrite(&mut self, files: &dyn Files, events: &[Event]) {
        let lines = events.iter().filter_map(|e| serde_json::to_string(e).ok());
        let text: String = lines.map(|line| line + "\n").collect();
        if files.write(EVENTS, text.as_bytes()).is_err() {
            self.files = None;
        }
    }

    pub fn account(&self) -> &Account {
        &self.account
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Why they are not written from now on, once.
    pub(crate) fn trouble(&mut self) -> Option<std::io::Error> {
        self.trouble.take()
    }

    pub(crate) fn push(&mut self, event: Event) {
        if let (Some(files), Ok(mut line)) = (&self.files, serde_json::to_string(&event)) {
            line.push('\n');
            if let Err(error) = files.append(EVENTS, line.as_bytes()) {
                (self.files, self.trouble) = (None, Some(error));
            }
        }
        self.account.take(&event);
        let message = NodeMsg::Event(Box::new(event.clone()));
        self.followers.retain(|f| !f.is_closed());
        self.followers.iter().for_each(|f| f.send(&message));
        if self.events.len() == KEPT_EVENTS {
            self.events.drain(..KEPT_EVENTS / 2);
            self.first += (KEPT_EVENTS / 2) as u64;
        }
        self.events.push(event);
    }
}

/// What nodes say of how they are, and clients that wait until they have.
#[derive(Default)]
pub struct Looks {
    /// Number of the latest question.
    pub(super) ask: u64,
    /// Nodes that have not answered it.
    pub(crate) left: BTreeSet<u32>,
    pub(super) waiting: Vec<ClientHandle>,
    /// Who asks for the job's record.
    pub(crate) sampler: Option<Sampler>,
    /// Clients that wait for what each rank has sent to each.
    pub(super) curious: Vec<ClientHandle>,
    /// Who reads the status here when they have.
    pub(super) readers: Vec<Box<dyn FnOnce()>>,
    /// Nodes of which it was said that the program is not there.
    pub(crate) without_program: BTreeSet<u32>,
}

/// What is told of the job.
pub(crate) struct Status {
    pub events: EventLog,
    pub looks: Looks,
    /// Frames that could not be read, of clients and nodes.
    pub malformed: u64,
}

impl Status {
    pub fn new(events: EventLog) -> Status {
        Status { events, looks: Looks::default(), malformed: 0 }
    }
}
