//! A node as the controller knows it: how it is reached, what was said last, whom it misses.
//!
//! Kept true: what is said to a node is numbered and kept until it is confirmed; nothing is posted
//! or granted before it is durable. Who is lost, and what then, is decided elsewhere.

use crate::clock::{Moment, Now};
use crate::journal::NodeRecord;
use crate::outside::{ClientHandle, Daemon, NodeLine};
use eyrie_control::message::Host;
use eyrie_control::node::{NodeLook, Peer, ToNode};
use eyrie_protocol::failure_detector::Patience;
use eyrie_protocol::session::{Foreign, Numbered, Session};
use eyrie_protocol::timing::{Detector, Limits};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a node is reached.
pub(super) enum Line {
    /// It lives in this process.
    Here(Box<dyn Fn(ToNode)>),
    /// Not yet, or not any more.
    None,
    There(Box<dyn NodeLine>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    Joining,
    Live,
    Lost,
}

/// A node, as the controller sees it.
pub struct Node {
    pub(super) line: Line,
    pub(crate) daemon: Option<Daemon>,
    /// Of its daemon, on its machine.
    pub(crate) pid: u32,
    pub(crate) state: State,
    /// Its membership; a new one when all go back to the beginning.
    pub(crate) epoch: u64,
    pub(crate) peer: Option<Peer>,
    /// Bytes of output that it may not be told yet that they were taken.
    pub(crate) taken: u64,
    pub(crate) injected_at: Option<Moment>,
    /// As it said last.
    pub(crate) look: NodeLook,
    /// How many processes are left that it cannot kill, when it is done.
    pub(crate) finished: Option<u64>,
    /// Nothing is left of it.
    pub(crate) cleared: bool,
    /// It was told to go, as nothing hung on it any more.
    pub(crate) left: bool,
    /// What it may have been granted at most (`protocol::patience`), as the journal has it.
    pub(super) granted: u64,
    /// It has called.
    pub(super) met: bool,
    /// The connection since whose end it is awaited.
    pub(crate) away: Option<u64>,
    /// Of connections before that, through gateways.
    pub(super) before: Option<Before>,
    /// What was said to it and by it, and how far the journal has that.
    pub(crate) conversation: Conversation,
}

/// What a node and its controllers have said to each other.
#[derive(Default)]
pub(crate) struct Conversation {
    /// What is to be said when the turn is committed.
    pub outbox: RefCell<Vec<ToNode>>,
    pub session: Session<ToNode>,
    /// What the journal has of the session: taken, and confirmed by the node.
    pub journaled: (u64, u64),
    /// The last message of its that is taken for good, and the last order that may be sent.
    pub durable: (u64, u64),
    /// Of one that another controller knew: its orders by the journal, until the node has called;
    /// then until it has said how many it has heard.
    pub ordered: Option<u64>,
    pub unchecked: Option<u64>,
}

/// What was heard on a connection through gateways that is over.
#[derive(Clone, Copy)]
pub(super) struct Before {
    pub(super) ended: Duration,
    /// How long before that the last stamp was.
    pub(super) stamped_ms: Option<u64>,
}

impl Node {
    /// The one node of a job, in this process.
    pub fn here(tell: impl Fn(ToNode) + 'static) -> Node {
        Node { line: Line::Here(Box::new(tell)), state: State::Live, ..Node::empty() }
    }

    /// A node with a daemon, which is going to call.
    pub fn there(daemon: Daemon) -> Node {
        let pid = if daemon.host.is_some() { 0 } else { daemon.pid as u32 };
        Node { epoch: daemon.epoch, pid, daemon: Some(daemon), ..Node::empty() }
    }

    /// A node whose daemon is started when the gateway is there through which it reaches this.
    pub fn later(epoch: u64) -> Node {
        Node { epoch, ..Node::empty() }
    }

    /// Its daemon has been started.
    pub(crate) fn is_begun(&mut self, daemon: Daemon) {
        let Node { daemon, pid, .. } = Node::there(daemon);
        (self.daemon, self.pid) = (daemon, pid);
    }

    pub(super) fn empty() -> Node {
        Node {
            line: Line::None,
            daemon: None,
            pid: 0,
            state: State::Joining,
            epoch: 0,
            peer: None,
            taken: 0,
            injected_at: None,
            look: NodeLook::default(),
            finished: None,
            cleared: false,
            left: false,
            conversation: Conversation::default(),
            // No more than what any node is.
            granted: 0,
            met: false,
            away: None,
            before: None,
        }
    }

    /// One that another controller knew.
    pub(crate) fn known(
        record: &NodeRecord,
        session: Session<ToNode>,
        daemon: Option<Daemon>,
    ) -> Node {
        let NodeRecord { pid, state, epoch, peer, taken, finished, met, cleared, left, .. } =
            *record;
        let granted = record.granted;
        let journaled = (session.heard(), session.known());
        let durable = (session.heard(), session.known() + session.unheard().len() as u64);
        Node {
            daemon,
            pid,
            state,
            epoch,
            peer,
            taken,
            finished,
            cleared,
            left,
            granted,
            met,
            conversation: Conversation {
                session,
                journaled,
                durable,
                ordered: Some(durable.1),
                ..Conversation::default()
            },
            ..Node::empty()
        }
    }

    pub(crate) fn record(&self, node: u32) -> NodeRecord {
        NodeRecord {
            daemon: self.daemon.as_ref().map(|d| d.record(node)),
            pid: self.pid,
            state: self.state,
            epoch: self.epoch,
            peer: self.peer,
            taken: self.taken,
            finished: self.finished,
            granted: self.granted,
            met: self.met,
            cleared: self.cleared,
            left: self.left,
        }
    }

    pub(crate) fn send(&self, message: ToNode) {
        match &self.line {
            // A node that is gone is noticed elsewhere.
            Line::Here(tell) => tell(message),
            Line::There(_) | Line::None if self.met && self.state != State::Lost => {
                self.conversation.outbox.borrow_mut().push(message);
            }
            Line::There(_) | Line::None => {}
        }
    }

    /// What was said in this turn, with its numbers.
    pub(crate) fn numbered(&mut self) -> Vec<Numbered<ToNode>> {
        let number = |message: ToNode| match message.is_fleeting() {
            true => Numbered::beside(self.conversation.session.heard(), message),
            false => self.conversation.session.number(message),
        };
        self.conversation.outbox.take().into_iter().map(number).collect()
    }

    /// Sends what is durable, if there is a connection; else it is sent on the next.
    pub(crate) fn post(&mut self, frame: Numbered<ToNode>) {
        self.conversation.durable.1 = self.conversation.durable.1.max(frame.number);
        if let Line::There(wired) = &self.line {
            wired.send(frame);
        }
    }

    /// What was taken from the node is durable, up to this number.
    pub(crate) fn confirm(&mut self, heard: u64) {
        self.conversation.durable.0 = heard;
        if let Line::There(wired) = &self.line {
            wired.confirm(heard);
        }
    }

    /// Whether it has not been told yet that all was taken.
    pub(crate) fn is_to_confirm(&self) -> bool {
        self.conversation.session.heard() != self.conversation.durable.0
    }

    /// Asks what only matters now: it waits for nothing.
    pub(crate) fn ask(&self, mut question: Numbered<ToNode>) {
        question.heard = self.conversation.durable.0;
        if let Line::There(wired) = &self.line {
            wired.send(question);
        }
    }

    /// What the journal lacks of the session: how much was taken, and confirmed by the node.
    pub(crate) fn news(&mut self) -> Option<(u64, u64)> {
        let now = (self.conversation.session.heard(), self.conversation.session.known());
        (std::mem::replace(&mut self.conversation.journaled, now) != now).then_some(now)
    }

    /// Whether this is its connection.
    pub(crate) fn is_on(&self, line: u64) -> bool {
        matches!(&self.line, Line::There(wired) if wired.number() == line)
    }

    /// It is not with this controller yet, or not any more.
    pub(crate) fn is_awaited(&self) -> bool {
        let awaited = self.state != State::Lost && self.finished.is_none();
        awaited && matches!(self.line, Line::None)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// The epoch that its daemon was started with, and calls with.
    pub(crate) fn called(&self) -> u64 {
        self.daemon.as_ref().map_or(0, |d| d.epoch)
    }

    /// The epoch that its daemon was started with, or is to be.
    pub(crate) fn starts_with(&self) -> u64 {
        self.daemon.as_ref().map_or(self.epoch, |d| d.epoch)
    }

    /// It has never called, and nobody would tell that it never will: its daemon is to be started
    /// when its gateway is there, or was started on another machine by another controller.
    pub(crate) fn is_starting(&self) -> bool {
        let untold = self.daemon.as_ref().is_none_or(|d| d.left);
        self.state == State::Joining && !self.met && untold
    }

    /// The machine that it is on, if that is another than the controller's.
    pub(crate) fn host(&self) -> Option<&str> {
        self.daemon.as_ref()?.host.as_deref()
    }

    /// It reaches the controller through gateways only: it has a grant that it need not be told of.
    pub(crate) fn is_granted(&mut self, granted: u64) {
        self.granted = self.granted.max(granted);
    }

    /// How long after a cut its daemon has ended for sure, also by what another controller granted.
    pub(crate) fn cut_off(&self, detector: &Detector, clock: Now) -> Duration {
        let before_ms = self.stamped_before(clock);
        Duration::from_millis(match &self.line {
            Line::There(wired) => wired.clear_after(self.granted, before_ms),
            _ => detector.clear_after(self.granted, before_ms),
        })
    }

    /// Whether it has a connection, and has said something just now.
    pub(crate) fn is_heard_of(&self) -> bool {
        matches!(&self.line, Line::There(wired) if !wired.is_quiet())
    }

    /// How long ago it gave its last stamp on a connection that is over, from which its time goes
    /// on.
    pub(super) fn stamped_before(&self, clock: Now) -> Option<u64> {
        let Before { ended, stamped_ms } = self.before?;
        let since = clock.boot.saturating_sub(ended);
        Some(stamped_ms?.saturating_add(since.as_millis() as u64))
    }

    /// For how long nothing was heard of it, if it has a connection.
    pub(crate) fn quiet_ms(&self) -> Option<u64> {
        match &self.line {
            Line::There(wired) => Some(wired.quiet()),
            Line::Here(_) | Line::None => None,
        }
    }

    /// It is heard of: what may be granted to it is written down. `last`: there is no other.
    pub(super) fn weigh_grant(&mut self, last: bool) {
        if let Line::There(wired) = &self.line {
            wired.set_patience(match self.state {
                _ if last => Patience::Last,
                State::Joining if self.peer.is_none() => Patience::Joining,
                _ => Patience::Usual,
            });
            self.granted = wired.rounded_most();
            // What is to be more waits until it is durable.
            wired.allow(wired.allowed().min(self.granted));
        }
    }

    /// A grant that may be said once this turn is durable.
    pub(crate) fn new_grant(&self) -> Option<u64> {
        let Line::There(wired) = &self.line else { return None };
        (wired.allowed() < self.granted).then_some(self.granted)
    }

    /// It is durable. It may be less again by now.
    pub(crate) fn allow(&self, granted: u64) {
        if let Line::There(wired) = &self.line {
            wired.allow(granted.min(self.granted));
        }
    }

    /// It has ended what there was, but for so many processes.
    pub(super) fn finishes(&mut self, left: u64) {
        self.finished = Some(left);
        // A daemon ends when nobody is left who could say anything to it.
        if self.daemon.is_some() {
            self.line = Line::None;
        }
    }

    /// Whether it may call, though it has a connection.
    pub(super) fn calls(&self, epoch: u64) -> bool {
        self.state != State::Lost && self.finished.is_none() && self.called() == epoch
    }

    /// Its connection is over, and it may come back. Returns for how long nothing was heard of it.
    pub(crate) fn parts(&mut self, clock: Now) -> u64 {
        let stamped_before = self.stamped_before(clock);
        match std::mem::replace(&mut self.line, Line::None) {
            Line::There(wired) => {
                wired.hang_up();
                let stamped_ms = wired.stamped_ago().or(stamped_before);
                self.before = Some(Before { ended: clock.boot, stamped_ms });
                wired.silent()
            }
            Line::Here(_) | Line::None => 0,
        }
    }

    /// Of the first that is heard on the first connection to this controller, before it has ordered
    /// anything itself: numbers that the dead one gave out and the journal lacks are found out
    /// before they are given out once more.
    pub(crate) fn fits_the_journal(&mut self, heard: u64) -> Result<(), Foreign> {
        match self.conversation.unchecked.take() {
            Some(sent) if heard > sent => Err(Foreign::Unsent { found: heard, sent }),
            _ => Ok(()),
        }
    }

    /// The connection, which is nobody's from now on.
    pub(crate) fn take_line(&mut self) -> Option<Box<dyn NodeLine>> {
        match std::mem::replace(&mut self.line, Line::None) {
            Line::There(wired) => Some(wired),
            line => {
                self.line = line;
                None
            }
        }
    }

    /// It is not listened to any more.
    pub(crate) fn hang_up(&mut self) {
        if let Line::There(wired) = &self.line {
            wired.hang_up();
        }
        self.conversation.outbox.take();
        self.line = Line::None;
    }
}

/// What was not told again for two attempts, and so long, is over, or its end was lost.
pub(super) const SLACK_MS: u64 = 2_000;

/// What is missed, by both ends.
#[derive(Default)]
pub(crate) struct Connectivity {
    pub(super) missed: BTreeMap<(u32, u32), Entry>,
    pub(super) lines: u32,
}

pub(super) struct Entry {
    pub(super) since: Moment,
    pub(super) heard: Moment,
    /// How long it has been so, as its node says.
    pub(super) for_ms: u64,
    pub(super) why: String,
}

impl Entry {
    /// For how long both ends were heard of meanwhile.
    pub(super) fn for_ms(&self, detector: &Detector, clock: Now) -> u64 {
        let passed = self.since.elapsed(clock).saturating_sub(self.heard.elapsed(clock));
        self.for_ms.min(detector.told_ms() + passed.as_millis() as u64)
    }

    pub(super) fn is_stale(&self, limits: &Limits, clock: Now) -> bool {
        self.heard.elapsed(clock) > Duration::from_millis(2 * limits.connect_ms + SLACK_MS)
    }
}

/// Where a node is to be: on which host, or here; in which cluster, or in each in turn; and what it
/// fails together with, if that was said.
#[derive(Clone)]
pub(super) struct Spot {
    pub(super) host: Option<Host>,
    pub(super) cluster: Option<u32>,
    pub(super) domain: Option<String>,
}

/// Somebody who waits for nodes that are to join.
pub(crate) struct Awaited {
    pub(super) nodes: Vec<u32>,
    pub(super) client: ClientHandle,
}
