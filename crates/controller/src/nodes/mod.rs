//! The nodes of a job: how they are reached, and what they say.

pub(crate) mod connectivity;
pub(crate) mod grow;
pub(crate) mod membership;
pub(crate) mod model;
pub(crate) mod selectors;
pub(crate) mod unreachable;

use crate::nodes::model::{Line, Node, State};
use crate::outside::NodeLine;
use crate::status::model::Status;
use crate::timers::Timer;
use crate::{Job, monitor};
use eyrie_control::node::{FromNode, Peer, Said, ToNode};
use eyrie_control::{EventKind, NodeMsg};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Input;
use std::net::SocketAddr;
use std::time::Duration;

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
            FromNode::Shares { rank, start, peer } => self.wants_unit(rank, start, peer),
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
        self.tell_units(node);
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
