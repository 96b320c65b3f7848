//! The nodes of a job: how they are reached, and what they say.

use super::journal::NodeBooks;
use super::{Job, Msg};
use crate::clock::Moment;
use crate::crew::{Daemon, Wired};
use crate::guest::Guest;
use crate::membership::Member;
use crate::monitor;
use crate::recovery::Input;
use eyrie_control::node::{FromNode, NodeLook, Peer, Said, ToNode};
use eyrie_control::{EventKind, NodeMsg};
use eyrie_protocol::patience::{HELD_MS, LEAST_MS, clear_after, rounded};
use eyrie_protocol::session::{Numbered, Session};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How a node is reached.
enum Line {
    /// It lives in this process.
    Here(mpsc::UnboundedSender<ToNode>),
    /// Not yet, or not any more.
    None,
    There(Wired),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Joining,
    Live,
    Lost,
}

/// A node, as the controller sees it.
pub struct Node {
    line: Line,
    pub(super) daemon: Option<Daemon>,
    /// Of its daemon, on its machine.
    pub(super) pid: u32,
    pub(super) state: State,
    /// Its membership; a new one when all go back to the beginning.
    pub(super) epoch: u64,
    pub(super) peer: Option<Peer>,
    /// Bytes of output that it may not be told yet that they were taken.
    pub(super) taken: u64,
    pub(super) injected_at: Option<Instant>,
    /// As it said last.
    pub(super) look: NodeLook,
    /// How many processes are left that it cannot kill, when it is done.
    pub(super) finished: Option<u64>,
    /// Nothing is left of it.
    pub(super) cleared: bool,
    /// It was told to go, as nothing hung on it any more.
    pub(super) left: bool,
    /// What is to be said when the turn is committed.
    outbox: RefCell<Vec<ToNode>>,
    pub(super) session: Session<ToNode>,
    /// What it may have been granted at most (`protocol::patience`), as the journal has it.
    granted: u64,
    /// It has called.
    met: bool,
    /// The connection since whose end it is awaited.
    pub(super) away: Option<u64>,
    /// Of connections before that, through gateways.
    before: Option<Before>,
    /// What the journal has of the session: taken, and confirmed by the node.
    journaled: (u64, u64),
    /// The last message of its that is taken for good, and the last order that may be sent.
    durable: (u64, u64),
}

/// What was heard on a connection through gateways that is over.
#[derive(Clone, Copy)]
struct Before {
    ended: Moment,
    /// How long before that the last stamp was.
    stamped_ms: Option<u64>,
}

impl Node {
    /// The one node of a job, in this process.
    pub fn here(orders: mpsc::UnboundedSender<ToNode>) -> Node {
        Node { line: Line::Here(orders), state: State::Live, ..Node::empty() }
    }

    /// A node with a daemon, which is going to call.
    pub fn there(daemon: Daemon) -> Node {
        let pid = if daemon.host().is_some() { 0 } else { daemon.pid as u32 };
        Node { epoch: daemon.epoch, pid, daemon: Some(daemon), ..Node::empty() }
    }

    /// A node whose daemon is started when the gateway is there through which it reaches this.
    pub fn later(epoch: u64) -> Node {
        Node { epoch, ..Node::empty() }
    }

    /// Its daemon has been started.
    pub(super) fn is_begun(&mut self, daemon: Daemon) {
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
            outbox: RefCell::default(),
            session: Session::default(),
            granted: LEAST_MS,
            met: false,
            away: None,
            before: None,
            journaled: (0, 0),
            durable: (0, 0),
        }
    }

    /// One that another controller knew.
    pub(super) fn known(
        books: &NodeBooks,
        session: Session<ToNode>,
        daemon: Option<Daemon>,
    ) -> Node {
        let NodeBooks { pid, state, epoch, peer, taken, finished, met, cleared, left, .. } = *books;
        let granted = books.granted;
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
            session,
            granted,
            met,
            journaled,
            durable,
            ..Node::empty()
        }
    }

    pub(super) fn books(&self, node: u32) -> NodeBooks {
        NodeBooks {
            daemon: self.daemon.as_ref().map(|d| d.books(node)),
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

    pub(super) fn send(&self, message: ToNode) {
        match &self.line {
            // A node that is gone is noticed elsewhere.
            Line::Here(orders) => drop(orders.send(message)),
            Line::There(_) | Line::None if self.met && self.state != State::Lost => {
                self.outbox.borrow_mut().push(message);
            }
            Line::There(_) | Line::None => {}
        }
    }

    /// What was said in this turn, with its numbers.
    pub(super) fn numbered(&mut self) -> Vec<Numbered<ToNode>> {
        let number = |message: ToNode| match message.is_fleeting() {
            true => Numbered::beside(self.session.heard(), message),
            false => self.session.number(message),
        };
        self.outbox.take().into_iter().map(number).collect()
    }

    /// Sends what is durable, if there is a connection; else it is sent on the next.
    pub(super) fn post(&mut self, frame: Numbered<ToNode>) {
        self.durable.1 = self.durable.1.max(frame.number);
        if let Line::There(wired) = &self.line {
            wired.sender.send(frame);
        }
    }

    /// What was taken from the node is durable, up to this number.
    pub(super) fn confirm(&mut self, heard: u64) {
        self.durable.0 = heard;
        if let Line::There(wired) = &self.line {
            wired.limits.confirm(heard);
        }
    }

    /// Whether it has not been told yet that all was taken.
    pub(super) fn is_to_confirm(&self) -> bool {
        self.session.heard() != self.durable.0
    }

    /// Asks what only matters now: it waits for nothing.
    pub(super) fn ask(&self, mut question: Numbered<ToNode>) {
        question.heard = self.durable.0;
        if let Line::There(wired) = &self.line {
            wired.sender.send(question);
        }
    }

    /// What the journal lacks of the session: how much was taken, and confirmed by the node.
    pub(super) fn news(&mut self) -> Option<(u64, u64)> {
        let now = (self.session.heard(), self.session.known());
        (std::mem::replace(&mut self.journaled, now) != now).then_some(now)
    }

    /// Whether this is its connection.
    pub(super) fn is_on(&self, line: u64) -> bool {
        matches!(&self.line, Line::There(wired) if wired.line == line)
    }

    /// It is not with this controller yet, or not any more.
    pub(super) fn is_awaited(&self) -> bool {
        let awaited = self.state != State::Lost && self.finished.is_none();
        awaited && matches!(self.line, Line::None)
    }

    pub(super) fn is_live(&self) -> bool {
        self.state == State::Live
    }

    /// The epoch that its daemon was started with, and calls with.
    pub(super) fn called(&self) -> u64 {
        self.daemon.as_ref().map_or(0, |d| d.epoch)
    }

    /// The epoch that its daemon was started with, or is to be.
    pub(super) fn starts_with(&self) -> u64 {
        self.daemon.as_ref().map_or(self.epoch, |d| d.epoch)
    }

    /// It has never called, and nobody would tell that it never will: its daemon is to be started
    /// when its gateway is there, or was started on another machine by another controller.
    pub(super) fn is_starting(&self) -> bool {
        let untold = self.daemon.as_ref().is_none_or(Daemon::is_left);
        self.state == State::Joining && !self.met && untold
    }

    /// The machine that it is on, if that is another than the controller's.
    pub(super) fn host(&self) -> Option<&str> {
        self.daemon.as_ref()?.host()
    }

    /// It reaches the controller through gateways only: it has a grant that it need not be told of.
    pub(super) fn is_granted(&mut self, granted: u64) {
        self.granted = self.granted.max(granted);
    }

    /// How long after a cut its daemon has ended for sure, also by what another controller granted.
    pub(super) fn cut_off(&self) -> Duration {
        let before_ms = self.stamped_before();
        Duration::from_millis(match &self.line {
            Line::There(wired) => wired.limits.clear(self.granted, before_ms),
            _ => clear_after(self.granted, before_ms),
        })
    }

    /// How long ago it gave its last stamp on a connection that is over, from which its time goes
    /// on.
    fn stamped_before(&self) -> Option<u64> {
        let Before { ended, stamped_ms } = self.before?;
        Some(stamped_ms?.saturating_add(ended.elapsed().as_millis() as u64))
    }

    /// For how long nothing was heard of it, if it has a connection.
    pub(super) fn quiet_ms(&self) -> Option<u64> {
        match &self.line {
            Line::There(wired) => Some(wired.limits.quiet()),
            Line::Here(_) | Line::None => None,
        }
    }

    /// It is heard of: what may be granted to it is written down. `last`: there is no other.
    fn weigh_grant(&mut self, last: bool) {
        if let Line::There(wired) = &self.line {
            wired.limits.set_last(last);
            self.granted = rounded(wired.limits.most());
            // What is to be more waits until it is durable.
            wired.limits.allow(wired.limits.allowed().min(self.granted));
        }
    }

    /// A grant that may be said once this turn is durable.
    pub(super) fn new_grant(&self) -> Option<u64> {
        let Line::There(wired) = &self.line else { return None };
        (wired.limits.allowed() < self.granted).then_some(self.granted)
    }

    /// It is durable. It may be less again by now.
    pub(super) fn allow(&self, granted: u64) {
        if let Line::There(wired) = &self.line {
            wired.limits.allow(granted.min(self.granted));
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
    pub(super) fn parts(&mut self) -> u64 {
        let stamped_before = self.stamped_before();
        match std::mem::replace(&mut self.line, Line::None) {
            Line::There(wired) => {
                let _ = wired.stream.shutdown(Shutdown::Both);
                let stamped_ms = wired.limits.stamped_ago().or(stamped_before);
                self.before = Some(Before { ended: Moment::now(), stamped_ms });
                wired.limits.silent()
            }
            Line::Here(_) | Line::None => 0,
        }
    }

    /// It is not listened to any more.
    pub(super) fn hang_up(&mut self) {
        if let Line::There(wired) = &self.line {
            let _ = wired.stream.shutdown(Shutdown::Both);
        }
        self.outbox.take();
        self.line = Line::None;
    }
}

impl Job {
    /// Whether the nodes have daemons of their own.
    pub(super) fn many(&self) -> bool {
        self.spec.nodes > 0
    }

    /// The node that a rank lives on, where there are several to tell apart.
    pub(super) fn home_told(&self, rank: u32) -> Option<u32> {
        self.many().then(|| self.placement.home(rank))
    }

    fn weigh_grant(&mut self, node: u32) {
        let last = self.is_last(node);
        self.nodes[node as usize].weigh_grant(last);
    }

    /// Whether no other node is there, or to come, that could go on in its place.
    fn is_last(&self, node: u32) -> bool {
        let is_gone = |n: &Node| n.state == State::Lost || n.left || n.finished.is_some();
        (0..).zip(&self.nodes).all(|(number, other)| number == node || is_gone(other))
    }

    /// A node is gone: if only one is left, that is waited for at once, though it may say nothing
    /// for a while.
    pub(super) fn spare_the_last(&self) {
        let last = (0..).zip(&self.nodes).find(|(number, _)| self.is_last(*number));
        if let Some((_, Node { line: Line::There(wired), .. })) = last {
            wired.limits.set_last(true);
        }
    }

    /// Sends to the node that a rank lives on.
    pub(super) fn to_home(&self, rank: u32, message: ToNode) {
        self.nodes[self.placement.home(rank) as usize].send(message);
    }

    pub(super) fn to_all(&self, message: &ToNode) {
        self.nodes.iter().for_each(|n| n.send(message.clone()));
    }

    /// Takes what a node says.
    pub(super) fn hear(&mut self, node: u32, message: FromNode) {
        if self.nodes[node as usize].state == State::Lost {
            return;
        }
        match message {
            FromNode::Started { rank, start, pid, files } => self.started(rank, start, pid, files),
            FromNode::NotStarted { rank, start, why } => self.not_started(rank, start, why),
            FromNode::Found { rank, attempt, choice } if self.many() => {
                self.found(node, rank, attempt, choice);
            }
            FromNode::Found { rank, attempt, choice } => self.candidate(rank, attempt, choice),
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
            FromNode::SegmentSaved { name, result } if self.together.is_some() => {
                self.set_segment(&name, result);
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
            FromNode::Tells { text } => self.say_once(text),
            FromNode::Joined { pid, link, store } => self.joined(node, pid, link, store),
            FromNode::Held(held) => self.held(node, held),
            FromNode::Copied { rank, generations, to, error } => {
                self.copied(node, rank, &generations, to, error);
            }
            FromNode::Vault { generation, step } => self.vault_step(node, generation, step),
            FromNode::Inspected(report) => self.inspected(node, report),
            FromNode::Beat { .. } => self.weigh_grant(node),
            FromNode::Finished { left } => {
                self.nodes[node as usize].finishes(left);
                self.ends_unseen(node);
            }
            FromNode::Guarded { round } => {
                self.plan(Input::Guarded { from: self.member(node), round });
            }
            FromNode::Vacated { left } => self.vacated(node, left as usize),
            FromNode::Notice => self.noticed(node),
            FromNode::Halted { turn, restless } => self.node_halted(node, turn, restless),
            FromNode::Unreached(said) => self.unreached(node, said),
            FromNode::AtRest(key) => self.learn_at_rest(key),
        }
    }

    fn reported(&mut self, rank: u32, start: u64, said: Said) {
        if self.proc(rank, start).is_some() {
            self.step(monitor::Input::Reported { rank, said });
        }
    }

    /// A daemon has called. One that was with another controller is told what that said last.
    pub(super) fn connected(&mut self, node: u32, epoch: u64, wired: Wired) {
        let awaited = self.nodes.get_mut(node as usize);
        if let Some(n) = awaited.filter(|n| self.spec.clusters.is_behind(node) && n.calls(epoch)) {
            // It has heard before this end did that a gateway on the way is gone.
            n.parts();
        }
        let awaited = self.nodes.get_mut(node as usize);
        let Some(n) = awaited.filter(|n| n.is_awaited() && n.called() == epoch) else {
            self.commit.dismissed.push(wired);
            return self.turned_away(&format!("node {node} of epoch {epoch} is not awaited"));
        };
        let (heard, upto) = n.durable;
        wired.limits.confirm(heard);
        for mut frame in n.session.again().filter(|frame| frame.number <= upto) {
            frame.heard = heard;
            wired.sender.send(frame);
        }
        // From now on its stamps come back.
        wired.limits.take();
        n.line = Line::There(wired);
        let met = std::mem::replace(&mut n.met, true);
        n.away = None;
        if self.winds_up && !met {
            // It was not there when the others were told.
            n.send(ToNode::Finish);
        }
        let joined = n.state == State::Live;
        if self.spec.clusters.is_behind(node) {
            n.is_granted(HELD_MS);
        }
        if joined {
            self.end_deposits_of(node);
        }
        self.rejoined();
    }

    /// A caller was refused.
    pub(super) fn turned_away(&mut self, why: &str) {
        self.malformed += 1;
        tracing::warn!("a caller is turned away: {why}");
    }

    /// A daemon is ready. When all are, the job begins.
    fn joined(&mut self, node: u32, pid: u32, link: SocketAddr, store: SocketAddr) {
        let n = &mut self.nodes[node as usize];
        if n.state != State::Joining {
            return;
        }
        let epoch = n.epoch;
        n.peer = Some(Peer { node, epoch, link, store });
        n.state = State::Live;
        n.pid = pid;
        let on = n.host().map(|h| format!(", on host {h}")).unwrap_or_default();
        let mut event = self.event(EventKind::NodeJoined);
        event.node = Some(node);
        event.text = format!("epoch {epoch}{on}");
        self.log_event(event);
        self.placement.join(node);
        self.tend_gateways();
        self.tell_clusters();
        self.tell_domains();
        self.tell_halt(node);
        if self.planned {
            return self.joined_late(node);
        }
        self.is_spare(node);
        self.answer_joined(node, &NodeMsg::NodeJoined { node });
        self.begin_if_all_joined();
    }

    /// The time for nodes to join is over.
    pub(super) fn joining_over(&mut self) {
        // Those that came later have their own time.
        let mut first = (0..self.spec.nodes + self.spec.spares).zip(&self.nodes);
        let is_late = |(_, n): &(u32, &Node)| n.peer.is_none() && n.state != State::Lost;
        let late = first.find(is_late);
        let Some((node, n)) = late.filter(|_| !self.planned && self.exit_code.is_none()) else {
            return;
        };
        let seconds = self.spec.hosts.as_ref().map_or(0, |h| h.join_ms) as f64 / 1e3;
        let guest = n.daemon.as_ref().and_then(Daemon::guest);
        let words = guest.and_then(|g| g.words()).map(|w| format!("; last words: {w}"));
        let place = self.spec.hosts.as_ref().and_then(|h| h.list.get(node as usize));
        let place = place.map(|h| h.controller.to_string()).unwrap_or_default();
        if n.daemon.is_none() {
            let name = self.cluster_name(self.spec.clusters.of(node));
            return self.fatal(format!(
                "no gateway of {name} came up within {seconds} s, without which its nodes do not \
                 reach the controller (--wan-only): see that the remote shell leads to its hosts"
            ));
        }
        let text = format!(
            "{} did not join within {seconds} s{}: see that its remote shell works, and that it \
             reaches this machine at {place} (a firewall? another address with --address)",
            self.node_name(node),
            words.unwrap_or_default()
        );
        self.fatal(text);
    }

    /// How a node is called in messages.
    pub(super) fn node_name(&self, node: u32) -> String {
        match self.nodes.get(node as usize).and_then(Node::host) {
            Some(host) => format!("node {node} on host {host}"),
            None => format!("node {node}"),
        }
    }

    /// The remote shells of nodes on other machines, and whether each has been told to end.
    pub fn guests(&self) -> Vec<(Arc<Guest>, bool)> {
        let told = |n: &Node| n.state == State::Live;
        self.nodes.iter().filter_map(|n| Some((n.daemon.as_ref()?.guest()?, told(n)))).collect()
    }

    pub(super) fn begin_if_all_joined(&mut self) {
        let joining = self.nodes.iter().any(|n| n.state == State::Joining);
        if !joining && !self.planned && self.monitor.running() {
            self.plan_beginning();
        }
    }

    /// Tells all who the live nodes are: the others are fenced.
    pub(super) fn tell_members(&self, members: &[Member]) {
        self.tell_archive();
        let members = members.iter().filter_map(|m| self.nodes[m.node as usize].peer).collect();
        self.to_all(&ToNode::Members { members });
    }

    pub(super) fn tell_homes(&self) {
        self.to_all(&ToNode::Homes { homes: self.placement.homes().to_vec() });
    }

    /// All go back to the beginning: nodes get new epochs, so that nothing of what was counts any
    /// more. Returns whether ranks may start at once: others start when all nodes have joined
    /// again. One that was dismissed does not.
    pub(super) fn renew_nodes(&mut self) -> bool {
        self.reach_anew();
        for node in self.nodes.iter_mut().filter(|n| n.state == State::Live && !n.left) {
            self.epoch += 1;
            node.epoch = self.epoch;
            node.send(ToNode::Renew { epoch: self.epoch });
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
        self.winds_up = true;
        self.to_all(&ToNode::Finish);
    }

    /// How many processes are left that cannot be killed, once all nodes have said so; with those
    /// that are `joining`, which else would look for a controller that there is not any more.
    pub fn finished(&self, joining: bool) -> Option<u64> {
        let joins = |n: &Node| n.state == State::Joining && matches!(n.line, Line::There(_));
        let mut there = self.nodes.iter().filter(|n| n.is_live() || joining && joins(n));
        there.try_fold(0, |sum, n| Some(sum + n.finished?))
    }

    fn replaying(&mut self, rank: u32, start: u64) {
        if self.proc(rank, start).is_some() {
            let mut event = self.event(EventKind::Replaying);
            event.rank = Some(rank);
            self.log_event(event);
        }
    }

    fn caught_up(&mut self, rank: u32, start: u64, count: u64) {
        if self.proc(rank, start).is_none() {
            return;
        }
        let since = self.rank(rank).died_at;
        let mut event = self.event(EventKind::CaughtUp);
        event.rank = Some(rank);
        event.count = Some(count);
        event.took_ms = since.map(|at| at.elapsed().as_secs_f64() * 1e3);
        event.text = format!("{count} events and sends reproduced");
        self.log_event(event);
    }

    /// Calls `looks_over` when the nodes had time to answer.
    pub(super) fn arm_looks(&self, ask: u64, limit: Duration) {
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(limit).await;
            let _ = tell.send(Msg::LooksOver { ask });
        });
    }
}
