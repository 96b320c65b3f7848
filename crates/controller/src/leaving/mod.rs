//! Nodes that leave the job while it runs (`eyrie drain`), or give their ranks away and stay
//! (`eyrie migrate`).
//!
//! Ranks of a node that leaves are copied while they run, in rounds each of which brings what has
//! changed during the one before (`precopy`), then brought to stand, each with an image of that
//! moment where it is going to live; when all images count the planner has them moved, and says
//! when nothing hangs on the node any more. Nodes that are named together are one party: their
//! ranks move at one time. One that stays forgets all that it had, and joins again as a spare.
//!
//! Kept true: a rank that stands does nothing that its image lacks; what keeps a node from leaving
//! is told, and then its ranks go on; a node whose time is over is given up as lost, as its machine
//! would be; of those whose ranks migrate all go, or none, also when their time is over.

pub(crate) mod capacity;
pub(crate) mod drain;
pub(crate) mod model;
pub(crate) mod notices;
pub(crate) mod precopy;
pub(crate) mod preemption;
pub(crate) mod sequential;
pub(crate) mod units;

use crate::checkpoints::coordinated_model::Coordinated;
use crate::checkpoints::failures::Failures;
use crate::leaving::model::{Departures, End, Leave, Round, Terms};
use crate::nodes::model::State;
use crate::{Job, Rank};
use eyrie_control::node::ToNode;
use eyrie_control::{Death, EventKind, LeaveStep, Leaving};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Input, Stage};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Longest sleep of the main loop while nodes leave.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) fn seconds(ms: f64) -> String {
    format!("{:.1} s", ms / 1e3)
}

impl Departures {
    /// How long the main loop may sleep.
    pub fn next_leave(&self) -> Duration {
        if self.nodes.is_empty() { Duration::MAX } else { LOOK }
    }

    /// Whether the ranks of a node that nobody told to end move with others, or not.
    pub fn migrates(&self, node: u32) -> bool {
        self.nodes.get(&node).is_some_and(|l| l.end != End::Left)
    }
}

impl Job {
    /// Has the ranks of these nodes move, where they are wished to go if that can be.
    pub(crate) fn begin_leaves(
        &mut self,
        nodes: &BTreeSet<u32>,
        wishes: BTreeMap<u32, Vec<Member>>,
        terms: Terms,
    ) {
        // Images go with them that are on their way to the job's folder.
        self.stop_flush();
        let Some(&party) = nodes.first() else { return };
        if self.leaving.nodes.is_empty() {
            self.checkpoints.coordinated.iter_mut().for_each(Coordinated::tries_anew);
        }
        for &node in nodes {
            self.begin_leave(node, party, terms);
        }
        // Who is to go somewhere goes there.
        let open = |node: &u32| {
            let ranks = self.nodes.placement.ranks_on(*node);
            ranks.iter().any(|rank| !wishes.contains_key(rank))
        };
        let open: BTreeSet<u32> = nodes.iter().copied().filter(open).collect();
        self.prefer(&open, nodes);
        let members = nodes.iter().map(|node| self.nodes.member(*node)).collect();
        self.plan(Input::Leave { members, wishes });
    }

    fn begin_leave(&mut self, node: u32, party: u32, terms: Terms) {
        let clock = self.clock.now();
        let Terms { limit_ms, end, number } = terms;
        let needed_ms = self.leave_estimate(node);
        let late = limit_ms.zip(needed_ms).filter(|(limit, needed)| *needed > *limit as f64);
        let precopy = late.is_none();
        let (begun, step, dismissed, code) = (clock.moment(), None, None, None);
        let detained = false;
        let leave = Leave { begun, limit_ms, precopy, step, dismissed, detained, code, party, end };
        self.leaving.nodes.insert(node, leave);
        let mut event = self.clock.event(EventKind::NodeLeaving);
        (event.node, event.count) = (Some(node), number);
        let what = (end == End::Spare).then(|| String::from("its ranks migrate"));
        let within = limit_ms.map(|ms| format!("within {}", seconds(ms as f64)));
        event.text = what.into_iter().chain(within).collect::<Vec<_>>().join(" ");
        self.journal.log_event(event);
        if let Some((limit, needed)) = late {
            self.tell_late(node, limit, needed);
        }
        for rank in self.nodes.placement.ranks_on(node) {
            let r = self.ranks.rank(rank);
            r.moves.again();
            r.failing.failures = Failures::default();
        }
    }

    /// Those that leave with a node and are not told to move yet, itself among them.
    pub(crate) fn party_of(&self, node: u32) -> Vec<u32> {
        let party = self.leaving.nodes.get(&node).map(|l| l.party);
        let stands = |node: &u32| {
            let stage =
                self.recovery.planner.as_ref().and_then(|p| p.leaves(&self.nodes.member(*node)));
            stage.is_some_and(|s| s != Stage::Moving)
        };
        let all = self.leaving.nodes.iter().filter(|l| Some(l.1.party) == party).map(|l| *l.0);
        all.filter(stands).collect()
    }

    /// Those that stay if this one does: of nodes whose ranks move all at one time or not at all
    /// all do.
    pub(crate) fn all_with(&self, node: u32) -> BTreeSet<u32> {
        match self.leaving.nodes.get(&node) {
            Some(leave) if leave.end != End::Left => self.party_of(node).into_iter().collect(),
            _ => BTreeSet::from([node]),
        }
    }

    /// Goes on with the nodes that leave as far as it can.
    pub(crate) fn tend_leaves(&mut self) {
        let all: Vec<u32> = self.leaving.nodes.keys().copied().collect();
        for node in all {
            self.tend_leave(node);
        }
        self.leaving.forget_watchers();
    }

    fn tend_leave(&mut self, node: u32) {
        let clock = self.clock.now();
        let Some(leave) = self.leaving.nodes.get(&node) else { return };
        let (dismissed, limit_ms, begun) = (leave.dismissed, leave.limit_ms, leave.begun);
        if let Some(since) = dismissed {
            let limit = Duration::from_millis(self.spec.timing.intervals.grace.leave_ms);
            if since.elapsed(clock) > limit && self.nodes.all[node as usize].state != State::Lost {
                let epoch = self.nodes.all[node as usize].called();
                self.node_gone(node, epoch, "it does not end");
            }
            return;
        }
        if !self.recovery.monitor.running() || !self.recovery.planned {
            // All are going back: then the planner says who still leaves.
            return;
        }
        if let Some(why) = self.recovery.unprotected.clone() {
            return self.stays(node, &format!("the job runs without protection: {why}"));
        }
        let member = self.nodes.member(node);
        let Some(stage) = self.recovery.planner.as_ref().and_then(|p| p.leaves(&member)) else {
            return self.stays(node, "there is no other node any more that its ranks could go to");
        };
        let migrates = self.leaving.migrates(node);
        if let Some(ms) = limit_ms.filter(|ms| begun.elapsed(clock) >= Duration::from_millis(*ms)) {
            match stage {
                // They are on their way.
                Stage::Moving if migrates => {}
                _ if migrates => return self.cannot_leave(node, &out_of(ms)),
                _ => return self.out_of_time(node, ms),
            }
        }
        match stage {
            Stage::Stopping => match self.stop_ranks_of(node) {
                Ok(true) => self.plan(Input::Stands { member }),
                Ok(false) => {}
                Err(why) if limit_ms.is_none() || migrates => self.cannot_leave(node, &why),
                Err(why) => self.tell_leave(node, LeaveStep::Late, why),
            },
            Stage::Standing => {}
            Stage::Moving => self.tell_moving(node),
        }
    }

    /// Whether all ranks of a node stand, with images that count. `Err`: they cannot.
    fn stop_ranks_of(&mut self, node: u32) -> Result<bool, String> {
        let runs = |rank: &u32| !self.ranks.all[*rank as usize].gone;
        let live: Vec<u32> = self.nodes.placement.ranks_on(node).into_iter().filter(runs).collect();
        let units = self.units_on(node);
        if let Some(why) = units.iter().find_map(|unit| self.cannot_stand(*unit)) {
            return Err(why);
        }
        let round = self.round_of(node);
        self.tell_leave(node, step_of(round), describe(&live));
        let all = units.iter().all(|unit| self.unit_is_stopped(*unit));
        for unit in self.may_stop_now(node, &units) {
            self.order_unit_stop(unit, round);
        }
        Ok(all)
    }

    /// A key by which the image of a rank that leaves comes to its next home while it is written.
    pub(crate) fn invite(&self, rank: u32, generation: u32, to: u32) -> Option<[u8; 32]> {
        if !self.leaving.nodes.contains_key(&self.nodes.placement.home(rank)) {
            return None;
        }
        let key = self.outside.machine.key().inspect_err(|e| tracing::warn!(%e, "no key")).ok()?;
        self.nodes.all[to as usize].send(ToNode::Invite { rank, generation, key });
        Some(key)
    }

    /// An image of a rank counts, with so many bytes, or never will.
    pub(crate) fn image_stands(&mut self, rank: u32, generation: u32, bytes: Option<u64>) {
        let clock = self.clock.now();
        let counts = bytes.is_some();
        if !counts {
            self.swap_image(rank, generation, false);
        }
        let r = self.ranks.rank(rank);
        if let Some(since) = r.moves.ordered.take_if(|_| counts) {
            r.moves.counted_ms = Some(since.elapsed_ms(clock));
        }
        let Some(stop) = r.moves.stop.as_mut().filter(|s| s.generation == generation) else {
            return;
        };
        match (counts, stop.holds) {
            (true, true) => {
                stop.counts = true;
                self.checkpoints.scheduler.set_live(self.checkpoints.units.turn(rank), false);
            }
            (true, false) => {
                let took_ms = stop.since.elapsed_ms(clock);
                r.moves.stop = None;
                self.was_copied(rank, bytes.unwrap_or(0), took_ms);
            }
            (false, holds) => {
                r.moves.stop = None;
                if holds {
                    self.nodes.to_home(rank, ToNode::LetGo { rank });
                }
            }
        }
    }

    /// A rank was copied while it ran. It is slowed down if it gets ahead of that, unless there is
    /// no time to lose.
    fn was_copied(&mut self, rank: u32, bytes: u64, took_ms: f64) {
        let leave = self.leaving.nodes.get(&self.nodes.placement.home(rank));
        let slows = leave.is_some_and(|l| l.limit_ms.is_none())
            && !self.checkpoints.units.partition().are_one();
        let moves = &mut self.ranks.rank(rank).moves;
        let before = moves.part;
        moves.round(bytes, took_ms, slows);
        let part = moves.part;
        if part != before {
            self.nodes.to_home(rank, ToNode::Slow { rank, part });
        }
    }

    /// The ranks of a node come back elsewhere.
    pub(crate) fn vacate(&mut self, node: u32) {
        self.nodes.all[node as usize].send(ToNode::Vacate);
        for rank in self.nodes.placement.ranks_on(node) {
            self.rank_lost(rank, node);
            let r: &mut Rank = self.ranks.rank(rank);
            r.moves.from = Some(node);
            if let Some(stop) = r.moves.stop.take() {
                // It stands since then.
                r.deaths.died_at = Some(stop.since);
            }
        }
    }

    fn tell_moving(&mut self, node: u32) {
        let on_the_way = |r: &&Rank| r.moves.from == Some(node);
        let (step, text) = match self.ranks.all.iter().any(|r| on_the_way(&r)) {
            true => (LeaveStep::Moving, String::from("its ranks start elsewhere")),
            false => (LeaveStep::Emptying, String::from("what it has of others is copied")),
        };
        self.tell_leave(node, step, text);
        if step == LeaveStep::Emptying {
            self.tell_detained(node);
        }
    }

    /// Tells, once, that a node without ranks waits for an image that only the vault has.
    fn tell_detained(&mut self, node: u32) {
        let clock = self.clock.now();
        let member = self.nodes.member(node);
        let image = self.recovery.planner.as_ref().and_then(|p| p.detained_by(&member));
        let Some((rank, generation)) = image else { return };
        let Some(leave) = self.leaving.nodes.get_mut(&node) else { return };
        if std::mem::replace(&mut leave.detained, true) {
            return;
        }
        let took_ms = leave.begun.elapsed_ms(clock);
        let text = format!(
            "checkpoint {generation} of rank {rank} is only in the vault, which does not give it \
             without this node: it leaves when the rank has two newer ones (of a snapshot: when \
             there is a newer one), or has ended, or stays (eyrie drain --cancel)"
        );
        self.journal.say(format!("{} does not leave yet: {text}", self.nodes.node_name(node)));
        self.leaving.answer_leave(Leaving { node, step: LeaveStep::Emptying, took_ms, text });
    }

    /// Nothing hangs on a node any more.
    pub(crate) fn dismiss(&mut self, node: u32) {
        let clock = self.clock.now();
        let leave = self.leaving.nodes.get_mut(&node);
        let end = leave.map(|leave| {
            leave.dismissed = Some(clock.moment());
            leave.end
        });
        // It makes nothing for a round any more that was under way.
        self.vault_loses(node);
        if end == Some(End::Spare) {
            return self.empty_node(node);
        }
        let n = &mut self.nodes.all[node as usize];
        n.send(ToNode::Depart);
        n.left = true;
    }

    /// A node forgets all that it had, and joins again.
    fn empty_node(&mut self, node: u32) {
        self.nodes.epoch += 1;
        let epoch = self.nodes.epoch;
        let files: Vec<(u32, Vec<u32>)> =
            (0u32..).zip(&self.ranks.all).map(|(rank, r)| (rank, r.retention.files())).collect();
        let n = &mut self.nodes.all[node as usize];
        (n.epoch, n.state) = (epoch, State::Joining);
        n.send(ToNode::Renew { epoch, all: false });
        for (rank, generations) in files.into_iter().filter(|(_, all)| !all.is_empty()) {
            n.send(ToNode::Remove { rank, generations });
        }
        self.looks_without(node);
    }

    /// A node has joined again: maybe one that gave its ranks away.
    pub(crate) fn is_spare(&mut self, node: u32) {
        let clock = self.clock.now();
        if self.leaving.nodes.get(&node).is_none_or(|leave| leave.dismissed.is_none()) {
            return;
        }
        let Some(leave) = self.leaving.nodes.remove(&node) else { return };
        let took_ms = leave.begun.elapsed_ms(clock);
        let mut event = self.clock.event(EventKind::NodeVacated);
        (event.node, event.took_ms) = (Some(node), Some(took_ms));
        self.journal.log_event(event);
        self.leaving.answer_leave(Leaving {
            node,
            step: LeaveStep::Spare,
            took_ms,
            text: String::new(),
        });
    }

    /// The daemon of a node that was dismissed is gone, or the connection to it.
    pub(crate) fn node_left(&mut self, node: u32, why: &str) {
        let clock = self.clock.now();
        tracing::info!(node, "a node that has left ends: {why}");
        let n = &mut self.nodes.all[node as usize];
        n.state = State::Lost;
        let cut_off = n.cut_off(&self.spec.timing.intervals.detector, clock);
        n.hang_up();
        n.taken = 0;
        let ended = self.outside.launcher.daemon_ended(node);
        let code = match ended {
            Some(Death::Exit(code)) => Some(code),
            _ => None,
        };
        if let Some(leave) = self.leaving.nodes.get_mut(&node) {
            leave.code = code;
        }
        self.nodes.placement.lose(node);
        self.looks_without(node);
        self.nodes.forget_links_of(node);
        self.clear_node(node, cut_off);
    }

    /// A node has ended what it had. If it was dismissed, and an earlier controller started it on
    /// its host, nothing tells of the end of its daemon: it is counted on.
    pub(crate) fn ends_unseen(&mut self, node: u32) {
        let n = &self.nodes.all[node as usize];
        let unseen = n.daemon.as_ref().is_some_and(|d| d.left);
        if unseen && n.left && n.state != State::Lost {
            self.node_left(node, "it has ended what it had");
        }
    }

    /// Neither a process nor storage of it is left, but for a gateway, maybe.
    pub(crate) fn seen_off(&mut self, node: u32) {
        let clock = self.clock.now();
        if self.end.exit_code.is_none() && self.gateways.has_gateway(node) {
            return;
        }
        let Some(leave) = self.leaving.nodes.remove(&node) else { return };
        let took_ms = leave.begun.elapsed_ms(clock);
        let mut event = self.clock.event(EventKind::NodeLeft);
        (event.node, event.took_ms) = (Some(node), Some(took_ms));
        event.count = leave.code.and_then(|code| u64::try_from(code).ok());
        self.journal.log_event(event);
        let name = self.nodes.node_name(node);
        self.journal.say(format!("{name} has left the job, after {}", seconds(took_ms)));
        self.leaving.answer_leave(Leaving {
            node,
            step: LeaveStep::Left,
            took_ms,
            text: String::new(),
        });
    }

    /// A rank of a node cannot move.
    fn cannot_leave(&mut self, node: u32, why: &str) {
        let end = self.leaving.nodes.get(&node).map(|l| l.end);
        if end == Some(End::Left) {
            return self.stays(node, why);
        }
        for other in self.party_of(node) {
            match other == node {
                true => self.stays(node, why),
                false => {
                    self.stays(other, &format!("{} cannot: {why}", self.nodes.node_name(node)))
                }
            }
        }
    }

    /// It does not leave: its ranks go on.
    pub(crate) fn stays(&mut self, node: u32, why: &str) {
        let clock = self.clock.now();
        let Some(leave) = self.leaving.nodes.remove(&node) else { return };
        self.plan(Input::Stay { member: self.nodes.member(node) });
        self.release_stopped(node);
        // What another node lacks keeps no rank from being checkpointed here.
        for rank in self.nodes.placement.ranks_on(node) {
            self.ranks.rank(rank).failing.failures = Failures::default();
        }
        self.tell_stays(node, why);
        let (took_ms, text) = (leave.begun.elapsed_ms(clock), why.to_string());
        self.leaving.answer_leave(Leaving { node, step: LeaveStep::Stays, took_ms, text });
    }

    pub(crate) fn tell_stays(&mut self, node: u32, why: &str) {
        let mut event = self.clock.event(EventKind::NodeStays);
        (event.node, event.text) = (Some(node), why.to_string());
        self.journal.log_event(event);
        let name = self.nodes.node_name(node);
        self.journal.say(format!("{name} does not leave: {why}"));
    }

    /// Nobody leaves any more who has not left.
    pub(crate) fn all_stay(&mut self, why: &str) {
        let left = |l: &(&u32, &Leave)| l.1.dismissed.is_none();
        let nodes: Vec<u32> = self.leaving.nodes.iter().filter(left).map(|l| *l.0).collect();
        nodes.into_iter().for_each(|node| self.stays(node, why));
    }

    fn out_of_time(&mut self, node: u32, ms: u64) {
        let given = seconds(ms as f64);
        let text = format!("{}: it is given up as lost", out_of(ms));
        self.tell_leave(node, LeaveStep::Late, text);
        let epoch = self.nodes.all[node as usize].called();
        self.node_gone(node, epoch, &format!("it was to leave within {given}, which are over"));
    }

    /// A node is lost on its way out.
    pub(crate) fn lost_leaving(&mut self, node: u32, why: &str) {
        let clock = self.clock.now();
        for r in self.ranks.all.iter_mut().filter(|r| r.moves.from == Some(node)) {
            r.moves.from = None;
        }
        let Some(leave) = self.leaving.nodes.remove(&node) else { return };
        let took_ms = leave.begun.elapsed_ms(clock);
        let text = format!("{why}; what it had not passed on comes back from the newest images");
        self.leaving.answer_leave(Leaving { node, step: LeaveStep::Lost, took_ms, text });
    }
}

fn out_of(ms: u64) -> String {
    format!("the {} that it was given are over", seconds(ms as f64))
}

fn step_of(round: Round) -> LeaveStep {
    if round == Round::Last { LeaveStep::Stopping } else { LeaveStep::Copying }
}

fn describe(ranks: &[u32]) -> String {
    match ranks {
        [] => String::from("it has no ranks"),
        [one] => format!("its rank {one}"),
        [first, .., last] => format!("its {} ranks, {first} to {last}", ranks.len()),
    }
}
