//! The nodes of a job: how they are reached, and what they say.

pub(crate) mod connectivity;
pub(crate) mod grow;
pub(crate) mod membership;
pub(crate) mod selectors;
pub(crate) mod unreachable;

use crate::Job;
use crate::clock::{Moment, Now};
use crate::journal::NodeRecord;
use crate::monitor;
use crate::outside::{Daemon, NodeLine};
use crate::status::Status;
use crate::timers::Timer;
use eyrie_control::node::{FromNode, NodeLook, Peer, Said, ToNode};
use eyrie_control::{EventKind, NodeMsg};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Input;
use eyrie_protocol::session::{Foreign, Numbered, Session};
use eyrie_protocol::timing::Detector;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

/// How a node is reached.
enum Line {
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
    line: Line,
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
    granted: u64,
    /// It has called.
    met: bool,
    /// The connection since whose end it is awaited.
    pub(crate) away: Option<u64>,
    /// Of connections before that, through gateways.
    before: Option<Before>,
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
struct Before {
    ended: Duration,
    /// How long before that the last stamp was.
    stamped_ms: Option<u64>,
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

    fn empty() -> Node {
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
    fn stamped_before(&self, clock: Now) -> Option<u64> {
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
    fn weigh_grant(&mut self, last: bool) {
        if let Line::There(wired) = &self.line {
            wired.set_last(last);
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
    fn finishes(&mut self, left: u64) {
        self.finished = Some(left);
        // A daemon ends when nobody is left who could say anything to it.
        if self.daemon.is_some() {
            self.line = Line::None;
        }
    }

    /// Whether it may call, though it has a connection.
    fn calls(&self, epoch: u64) -> bool {
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

    /// It is not listened to any more.
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

    pub(crate) fn hang_up(&mut self) {
        if let Line::There(wired) = &self.line {
            wired.hang_up();
        }
        self.conversation.outbox.take();
        self.line = Line::None;
    }
}

impl Status {
    /// A caller was refused.
    pub fn turned_away(&mut self, why: &str) {
        self.malformed += 1;
        tracing::warn!("a caller is turned away: {why}");
    }
}

impl Job {
    /// Whether the nodes have daemons of their own.
    pub(crate) fn many(&self) -> bool {
        self.spec.placement.nodes > 0
    }

    /// The node that a rank lives on, where there are several to tell apart.
    pub(crate) fn home_told(&self, rank: u32) -> Option<u32> {
        self.many().then(|| self.nodes.placement.home(rank))
    }

    /// Takes what a node says.
    pub(crate) fn hear(&mut self, node: u32, message: FromNode) {
        if self.nodes.all[node as usize].state == State::Lost {
            return;
        }
        match message {
            FromNode::Started { rank, start, pid, files } => self.started(rank, start, pid, files),
            FromNode::NotStarted { rank, start, why } => self.not_started(rank, start, why),
            FromNode::Found { rank, attempt, choice } => {
                self.looked_at(node, rank, attempt, choice);
            }
            FromNode::Ended { rank, start, death, cause, said, progress, look } => {
                self.process_ended(rank, start, (death, cause), said, progress, *look);
            }
            FromNode::Output { rank, start, stream, bytes } => {
                self.output(rank, start, stream, &bytes);
                self.output_taken(node, bytes.len() as u64);
            }
            FromNode::InputFed { start, position } => self.input_fed(start, position),
            FromNode::Said { rank, start, said } => self.reported(rank, start, said),
            FromNode::Replaying { rank, start } => self.replaying(rank, start),
            FromNode::CaughtUp { rank, start, count } => self.caught_up(rank, start, count),
            FromNode::Pressed { rank, start, relief } => self.relieve(rank, start, &relief),
            FromNode::CheckpointOver { rank, start: _, generation, result } => {
                self.checkpoint_over(node, rank, generation, result);
            }
            FromNode::Paused { rank, generation } => self.router_stands(node, rank, generation),
            said @ (FromNode::Stands { .. }
            | FromNode::HasRead { .. }
            | FromNode::Rejoined { .. }) => self.hear_far(node, said),
            FromNode::Looks { ask, ranks, own } => self.take_looks(node, ask, ranks, own),
            FromNode::Saved { rank, error } => self.log_saved(rank, error),
            FromNode::SegmentSaved { name, result } if self.checkpoints.coordinated.is_some() => {
                self.coordinated_segment(&name, result);
            }
            FromNode::SegmentSaved { name, result } => self.segment_saved(&name, result),
            FromNode::Reloaded { segment, result } => self.reloaded(&segment, result),
            FromNode::Deposited { attempt, rank, result } => self.deposited(attempt, rank, result),
            FromNode::Cut { attempt, result, partly } => {
                self.node_is_cut(node, attempt, result, partly);
            }
            FromNode::CutOver { attempt, whole } => self.node_goes_on(node, attempt, whole),
            FromNode::Forced { error } => self.forced(error),
            FromNode::Judged(judgement) => self.judged(&judgement),
            FromNode::Stuck { text } => self.stuck(text),
            FromNode::Failed { text } => self.fatal(text),
            FromNode::Handled { failures } => self.handled(failures),
            FromNode::Beside { rank, programs } => self.found_beside(rank, programs),
            FromNode::Tells { text } => self.say_once(text),
            FromNode::Joined { pid, link, store } => self.joined(node, pid, link, store),
            FromNode::Held(held) => self.held(node, held),
            FromNode::Copied { rank, generations, to, error } => {
                self.copied(node, rank, &generations, to, error);
            }
            FromNode::Vault { generation, step } => self.vault_step(node, generation, step),
            FromNode::Inspected(report) => self.inspected(node, report),
            FromNode::Beat { .. } => self.nodes.weigh_grant(node),
            FromNode::Finished { left } => {
                self.nodes.all[node as usize].finishes(left);
                self.ends_unseen(node);
            }
            FromNode::Guarded { round } => {
                self.plan(Input::Guarded { from: self.nodes.member(node), round });
            }
            FromNode::Vacated { left } => self.vacated(node, left as usize),
            FromNode::Notice => self.noticed(node),
            FromNode::Halted { turn, restless } => self.node_suspended(node, turn, restless),
            FromNode::Unreached(said) => self.unreached(node, said),
            FromNode::AtRest(key) => self.learn_at_rest(key),
        }
    }

    fn reported(&mut self, rank: u32, start: u64, said: Said) {
        if self.ranks.proc(rank, start).is_some() {
            self.step(monitor::Input::Reported { rank, said });
        }
    }

    /// A daemon has called. One that was with another controller is told what that said last.
    pub(crate) fn connected(&mut self, node: u32, epoch: u64, wired: Box<dyn NodeLine>) {
        let clock = self.clock.now();
        let awaited = self.nodes.all.get_mut(node as usize);
        if let Some(n) =
            awaited.filter(|n| self.spec.placement.clusters.is_behind(node) && n.calls(epoch))
        {
            // It has heard before this end did that a gateway on the way is gone.
            n.parts(clock);
        }
        if self.journal.commit.lacks_end
            && self.nodes.all.get(node as usize).is_some_and(|n| n.calls(epoch))
        {
            return self.goes_unheard(node, wired);
        }
        let awaited = self.nodes.all.get_mut(node as usize);
        let Some(n) = awaited.filter(|n| n.is_awaited() && n.called() == epoch) else {
            self.journal.commit.dismissed.push(wired);
            return self
                .status
                .turned_away(&format!("node {node} of epoch {epoch} is not awaited"));
        };
        let (heard, upto) = n.conversation.durable;
        wired.confirm(heard);
        for mut frame in n.conversation.session.again().filter(|frame| frame.number <= upto) {
            frame.heard = heard;
            wired.send(frame);
        }
        // From now on its stamps come back.
        wired.take();
        n.line = Line::There(wired);
        n.conversation.unchecked = n.conversation.ordered.take();
        let met = std::mem::replace(&mut n.met, true);
        n.away = None;
        if self.end.winds_up && !met {
            // It was not there when the others were told.
            n.send(ToNode::Finish);
        }
        let joined = n.state == State::Live;
        if self.spec.placement.clusters.is_behind(node) {
            n.is_granted(self.spec.timing.intervals.detector.held_ms());
        }
        if joined {
            self.end_deposits_of(node);
        }
        self.rejoined();
    }

    /// A daemon is ready. When all are, the job begins.
    fn joined(&mut self, node: u32, pid: u32, link: SocketAddr, store: SocketAddr) {
        let n = &mut self.nodes.all[node as usize];
        if n.state != State::Joining {
            return;
        }
        let epoch = n.epoch;
        n.peer = Some(Peer { node, epoch, link, store });
        n.state = State::Live;
        n.pid = pid;
        let on = n.host().map(|h| format!(", on host {h}")).unwrap_or_default();
        let mut event = self.clock.event(EventKind::NodeJoined);
        event.node = Some(node);
        event.text = format!("epoch {epoch}{on}");
        self.journal.log_event(event);
        self.nodes.placement.join(node);
        self.tend_gateways();
        self.tell_clusters();
        self.tell_domains();
        self.tell_suspended(node);
        if self.recovery.planned {
            return self.joined_late(node);
        }
        self.is_spare(node);
        self.nodes.answer_joined(node, &NodeMsg::NodeJoined { node });
        self.begin_if_all_joined();
    }

    /// The nodes that the job begins with have so much time to join, if they are on hosts.
    pub fn await_first(&mut self) {
        let Some(hosts) = &self.spec.placement.hosts else { return };
        self.arm(Duration::from_millis(hosts.join_ms), Timer::Joining);
    }

    /// The time for nodes to join is over.
    pub(crate) fn joining_over(&mut self) {
        // Those that came later have their own time.
        let mut first =
            (0..self.spec.placement.nodes + self.spec.placement.spares).zip(&self.nodes.all);
        let is_late = |(_, n): &(u32, &Node)| n.peer.is_none() && n.state != State::Lost;
        let late = first.find(is_late);
        let Some((node, n)) =
            late.filter(|_| !self.recovery.planned && self.end.exit_code.is_none())
        else {
            return;
        };
        let seconds = self.spec.placement.hosts.as_ref().map_or(0, |h| h.join_ms) as f64 / 1e3;
        let words = self.outside.launcher.last_words(node);
        let words = words.map(|w| format!("; last words: {w}"));
        let place = self.spec.placement.hosts.as_ref().and_then(|h| h.list.get(node as usize));
        let place = place.map(|h| h.controller.to_string()).unwrap_or_default();
        if n.daemon.is_none() {
            let name = self.cluster_name(self.spec.placement.clusters.of(node));
            return self.fatal(format!(
                "no gateway of {name} came up within {seconds} s, without which its nodes do not \
                 reach the controller (--wan-only): see that the remote shell leads to its hosts"
            ));
        }
        let text = format!(
            "{} did not join within {seconds} s{}: see that its remote shell works, and that it \
             reaches this machine at {place} (a firewall? another address with --address)",
            self.nodes.node_name(node),
            words.unwrap_or_default()
        );
        self.fatal(text);
    }

    /// The nodes on other machines, and whether each has been told to end.
    pub fn guests(&self) -> Vec<(u32, bool)> {
        let nodes = (0u32..).zip(&self.nodes.all);
        let guests = nodes.filter(|(_, n)| n.daemon.as_ref().is_some_and(|d| d.host.is_some()));
        guests.map(|(node, n)| (node, n.state == State::Live)).collect()
    }

    pub(crate) fn begin_if_all_joined(&mut self) {
        let joining = self.nodes.all.iter().any(|n| n.state == State::Joining);
        if !joining && !self.recovery.planned && self.recovery.monitor.running() {
            self.plan_beginning();
        }
    }

    /// Tells all who the live nodes are: the others are fenced.
    pub(crate) fn tell_members(&self, members: &[Member]) {
        self.tell_archive();
        let members = members.iter().filter_map(|m| self.nodes.all[m.node as usize].peer).collect();
        self.nodes.to_all(&ToNode::Members { members });
    }

    /// All go back to the beginning: nodes get new epochs, so that nothing of what was counts any
    /// more. Returns whether ranks may start at once: others start when all nodes have joined
    /// again. One that was dismissed does not.
    pub(crate) fn renew_nodes(&mut self) -> bool {
        self.nodes.forget_links();
        for node in self.nodes.all.iter_mut().filter(|n| n.state == State::Live && !n.left) {
            self.nodes.epoch += 1;
            node.epoch = self.nodes.epoch;
            node.send(ToNode::Renew { epoch: self.nodes.epoch, all: true });
            if node.daemon.is_some() {
                node.state = State::Joining;
            }
        }
        if self.many() {
            // There may be none any more.
            self.begin_if_all_joined();
        }
        !self.many()
    }

    /// Orders the end of all processes, also of nodes that only call from now on.
    pub fn finish(&mut self) {
        self.end.winds_up = true;
        self.nodes.to_all(&ToNode::Finish);
    }

    /// How many processes are left that cannot be killed, once all nodes have said so; with those
    /// that are `joining`, which else would look for a controller that there is not any more.
    pub fn finished(&self, joining: bool) -> Option<u64> {
        let lacks_end = self.journal.commit.lacks_end;
        let joins = |n: &Node| match n.line {
            Line::There(_) => n.state == State::Joining,
            _ => lacks_end && n.conversation.ordered.is_some() && n.is_awaited(),
        };
        let mut there = self.nodes.all.iter().filter(|n| n.is_live() || joining && joins(n));
        there.try_fold(0, |sum, n| Some(sum + n.finished?))
    }

    fn replaying(&mut self, rank: u32, start: u64) {
        if self.ranks.proc(rank, start).is_some() {
            let mut event = self.clock.event(EventKind::Replaying);
            event.rank = Some(rank);
            self.journal.log_event(event);
        }
    }

    fn caught_up(&mut self, rank: u32, start: u64, count: u64) {
        let clock = self.clock.now();
        if self.ranks.proc(rank, start).is_none() {
            return;
        }
        let since = self.ranks.rank(rank).deaths.died_at;
        let mut event = self.clock.event(EventKind::CaughtUp);
        event.rank = Some(rank);
        event.count = Some(count);
        event.took_ms = since.map(|at| at.elapsed_ms(clock));
        event.text = format!("{count} events and sends reproduced");
        self.journal.log_event(event);
    }
}
