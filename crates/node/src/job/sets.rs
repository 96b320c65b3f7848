//! `--ft coordinated` over nodes: sets of checkpoints, and going back to them.
//!
//! A set is an image of every rank with what it had sent, each on two nodes or in the vault.
//! `protocol::sets` says when ranks may go on, the planner when a set counts and which one is gone
//! back to.
//!
//! Kept true: ranks are killed everywhere, and all nodes have new epochs and segments, before the
//! first one comes back; a set under way when somebody dies is given up, with the round of the
//! vault that was under way.

use super::journal::Entry;
use super::rounds::Round;
use super::together::Together;
use super::{Capture, Job};
use crate::membership::Member;
use crate::monitor;
use crate::points;
use crate::recovery::{Input, Planner};
use eyrie_control::EventKind;
use eyrie_control::node::{CheckpointResult, SetPart, ToNode};
use eyrie_protocol::joints::End;
use eyrie_protocol::sets::{Set, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A set that is being taken.
#[derive(Serialize, Deserialize)]
pub(super) struct Taking {
    set: Set,
    begun_ms: u64,
    /// Ranks stay stopped.
    hold: bool,
}

impl Taking {
    pub(super) fn let_go(&mut self) {
        self.hold = false;
    }
}

impl Job {
    /// Takes a set if one is due and every rank runs.
    pub(super) fn schedule_set(&mut self) {
        self.tick_plan();
        let now = self.ranks_ms();
        let held = |r: &super::Rank| r.moves.stop.as_ref().is_some_and(|s| s.holds);
        let ready =
            |r: &super::Rank| !r.gone && r.proc.is_some() && r.starting.is_none() && !held(r);
        let placed = self.planner.as_ref().is_some_and(Planner::placed);
        if !placed || !self.ranks.iter().all(ready) {
            return;
        }
        self.flush_set();
        let Some(generation) = self.together.as_mut().and_then(|t| t.next_set(now)) else { return };
        // All that were to leave may have been called off since it was asked for.
        let leaves = (0..self.size()).any(|r| self.leaves.contains_key(&self.placement.home(r)));
        let round = self.together.as_mut().and_then(|t| t.round.take()).filter(|_| leaves);
        let hold = self.stays_with_set() || round == Some(Round::Last);
        let homes = (0..self.size()).map(|rank| (rank, self.placement.home(rank))).collect();
        let set = Set::new(generation, homes);
        let mut parts: BTreeMap<u32, Vec<SetPart>> = BTreeMap::new();
        for rank in 0..self.size() {
            let home = self.placement.home(rank);
            let part = self.set_part_of(rank, generation);
            parts.entry(home).or_default().extend(part);
        }
        self.begin_round_of_set(round, generation);
        if let Some(together) = &mut self.together {
            together.taking = Some(Taking { set, begun_ms: now, hold });
        }
        let incremental = self.spec.incremental;
        for (node, parts) in parts {
            let order = ToNode::CheckpointSet { parts, generation, incremental, hold };
            self.nodes[node as usize].send(order);
        }
    }

    /// A rank's part in a set that begins.
    pub(super) fn set_part_of(&mut self, rank: u32, generation: u32) -> Option<SetPart> {
        let partner = self.planner.as_ref().and_then(|p| p.partner(rank));
        let r = self.rank(rank);
        (r.partner, r.captured, r.capturing) = (partner, r.incarnation, Some(generation));
        let start = r.proc.as_ref().map(|p| p.start)?;
        let (partner, missing) = (partner.map(|m| m.node), r.retention.files());
        let mut event = self.event(EventKind::Checkpointing);
        (event.rank, event.generation) = (Some(rank), Some(generation));
        self.log_event(event);
        let key = partner.and_then(|to| self.invite(rank, generation, to));
        Some(SetPart { rank, start, partner, missing, key })
    }

    fn taking(&mut self, generation: u32) -> Option<&mut Set> {
        let taking = self.together.as_mut()?.taking.as_mut()?;
        Some(&mut taking.set).filter(|s| s.generation() == generation)
    }

    /// The ranks of a node stand, or cannot be had to.
    pub(super) fn node_stands(
        &mut self,
        node: u32,
        generation: u32,
        result: Result<Vec<End>, String>,
        sent: Vec<(u32, Vec<u64>)>,
    ) {
        let result = result.map_err(|why| format!("{}: {why}", self.node_name(node)));
        if self.units.exist() {
            return self.unit_stands(node, generation, result);
        }
        if self.together.is_none() {
            return self.snapshot_stands(node, generation, result, sent);
        }
        match self.taking(generation) {
            Some(set) => {
                points::reach("set-1");
                let verdict = set.stands(node, result);
                self.tell_verdict(verdict);
            }
            None => self.nodes[node as usize].send(ToNode::GoOn { generation, keep: false }),
        }
    }

    /// A node has read what came over connections between nodes, or could not.
    pub(super) fn node_has_read(&mut self, node: u32, generation: u32, result: Result<(), String>) {
        let result = result.map_err(|why| format!("{}: {why}", self.node_name(node)));
        let Some(set) = self.taking(generation) else { return };
        let verdict = set.has_read(node, result);
        self.tell_verdict(verdict);
    }

    fn tell_verdict(&self, verdict: Option<Verdict>) {
        let taking = self.together.as_ref().and_then(|t| t.taking.as_ref());
        let Some((verdict, taking)) = verdict.zip(taking) else { return };
        if verdict == Verdict::Read {
            let generation = taking.set.generation();
            for (node, joints) in taking.set.joints() {
                let joints = joints.clone();
                self.nodes[*node as usize].send(ToNode::ReadFar { generation, joints });
            }
            return;
        }
        let (generation, keep) = (taking.set.generation(), verdict == Verdict::Keep);
        for node in taking.set.nodes() {
            self.nodes[node as usize].send(ToNode::GoOn { generation, keep });
        }
    }

    /// A rank's image of the set is on its node and its partner, or will not be.
    pub(super) fn part_over(
        &mut self,
        node: u32,
        rank: u32,
        generation: u32,
        result: CheckpointResult,
    ) {
        let why = match &result {
            CheckpointResult::Taken(_) => None,
            CheckpointResult::Failed { text, .. } | CheckpointResult::NoPartner(text) => {
                Some(format!("rank {rank}: {text}"))
            }
            CheckpointResult::Died => Some(format!("rank {rank}: it did not come to stand")),
        };
        let Some(set) = self.taking(generation) else {
            return self.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        };
        points::reach("set-2");
        let verdict = set.part(rank, why.map_or(Ok(()), Err));
        self.tell_verdict(verdict);
        if let CheckpointResult::Taken(taken) = result {
            let incarnation = self.rank(rank).captured;
            self.image_taken(node, rank, Capture { generation, incarnation, taken });
        }
        self.give_up_set();
    }

    /// Gives up a set of which one part is missing, when it is known how all others came out.
    fn give_up_set(&mut self) {
        let now = self.ranks_ms();
        let Some(together) = &mut self.together else { return };
        let void = |t: &mut Taking| t.set.is_over() && t.set.failed().is_some();
        let Some(taking) = together.taking.take_if(void) else { return };
        together.rest(now, taking.begun_ms);
        if taking.hold {
            self.to_all(&ToNode::Signal { signal: libc::SIGCONT });
        }
        let generation = taking.set.generation();
        self.throw_away(&taking.set);
        self.plan(Input::Void { generation });
        self.set_failed(generation, taking.set.failed().unwrap_or_default().to_string());
    }

    /// Of a set that does not count yet an image is of no use: it is given up as a whole.
    pub(super) fn spoil_set(&mut self, generation: u32, why: String) {
        let verdict = self.taking(generation).and_then(|set| set.spoil(why));
        self.tell_verdict(verdict);
        self.give_up_set();
    }

    fn throw_away(&mut self, set: &Set) {
        for rank in set.ranks() {
            let r = self.rank(rank);
            (r.capturing, r.partner) = (None, None);
            self.image_stands(rank, set.generation(), None);
            self.to_all(&ToNode::Remove { rank, generations: vec![set.generation()] });
        }
    }

    /// The images of all ranks count.
    pub(super) fn set_counts(&mut self) {
        if self.together.is_some() {
            points::reach("set-3");
        }
        let now = self.ranks_ms();
        let Some(together) = &mut self.together else { return };
        let taken = together.taking.take();
        if let Some(taking) = &taken {
            self.set_cost(taking.set.generation());
            let Some(together) = &mut self.together else { return };
            together.rest(now, taking.begun_ms);
            together.succeeded();
        }
        self.flush_set();
        if let Some(taking) = taken.filter(|t| t.hold) {
            self.stand_with(taking.set.generation());
        }
    }

    /// A rank has ended. What it sent last may not be received, and no image of it is there any
    /// more: there are no more sets.
    pub(super) fn sets_end(&mut self, rank: u32) {
        self.together.iter_mut().for_each(|t| t.end(rank));
        let why = no_more(rank);
        (0..self.size()).for_each(|r| self.fail_asks(r, &why));
    }

    /// Why there cannot be another set.
    pub(super) fn no_more_sets(&self) -> Option<String> {
        let gone = (0u32..).zip(&self.ranks).find(|(_, r)| r.gone);
        let gone = gone.filter(|_| self.together.is_some() && self.many());
        gone.map(|(rank, _)| no_more(rank))
    }

    /// Why ranks that are checkpointed together cannot be any more: a unit of which some have ended
    /// has no set of what the others did since, either.
    pub(super) fn no_more_together(&self) -> Option<String> {
        let live = (0..self.size()).filter(|r| !self.ranks[*r as usize].gone);
        let ended = live.map(|rank| self.no_more_of_unit(rank)).find(Option::is_some);
        ended.flatten().or_else(|| self.no_more_sets())
    }

    /// No process is left: all nodes begin anew, and then all ranks come back.
    pub(super) fn back_over_nodes(&mut self) {
        if !std::mem::replace(&mut self.planned, false) {
            // They do already.
            return;
        }
        let now = self.ranks_ms();
        let asked = !self.asks.is_empty();
        let out = self.together.as_ref().and_then(|t| t.out);
        let moves = self.stood_with().or(out);
        // When the next set is due hangs on that.
        self.together.iter_mut().filter(|_| moves.is_none()).for_each(Together::died);
        let taking = self.together.as_mut().and_then(|t| t.go_back(now, asked));
        self.abandon_round();
        if let Some(taking) = taking {
            self.throw_away(&taking.set);
        }
        self.stop_flush();
        self.rollbacks += u64::from(moves.is_none());
        self.together.iter_mut().for_each(|t| t.moves = moves);
        for rank in 0..self.size() {
            let r = self.rank(rank);
            (r.order, r.partner, r.pending, r.capturing) = (None, None, None, None);
            r.moves.stop = None;
            (r.gone, r.found) = (false, None);
            // What comes again may come in another order.
            self.give_up_output(rank);
        }
        points::reach("back-1");
        if self.suspend.is_some() {
            self.asks.retain(|a| !a.ends);
            self.not_saved("a rank or a node died");
        }
        self.renew_nodes();
    }

    /// Another controller takes this job up. Ranks that stand with a set, or are to, for a job that
    /// was to be saved go on, as nobody waits for that any more; if their memory is to go out, it
    /// does so with another.
    pub(super) fn let_stand_for_nothing(&mut self) {
        let leave = |r: &super::Rank| r.moves.stop.as_ref().is_some_and(|s| s.holds);
        if !self.many() || !self.monitor.running() || self.ranks.iter().any(leave) {
            return;
        }
        match &mut self.together {
            Some(together) => together.taking.iter_mut().for_each(Taking::let_go),
            None if self.units.exist() => {}
            None => return,
        }
        self.let_all_go();
    }

    /// Ranks that stay stopped after an image go on.
    pub(super) fn let_all_go(&self) {
        (0..self.size()).for_each(|rank| self.to_home(rank, ToNode::LetGo { rank }));
    }

    /// The set that all ranks stand with as nodes leave, if they do.
    fn stood_with(&self) -> Option<u32> {
        let stop = |r: &super::Rank| r.moves.stop.as_ref().map(|s| (s.generation, s.counts));
        let (generation, _) = self.ranks.first().and_then(stop)?;
        let all = self.ranks.iter().all(|r| stop(r) == Some((generation, true)));
        (all && !self.leaves.is_empty()).then_some(generation)
    }

    /// All nodes are there again: all ranks come back from the newest whole set.
    pub(super) fn plan_back(&mut self, members: Vec<Member>) -> bool {
        if self.together.is_some() {
            self.renew_vault(&members);
        }
        if self.planner.is_none() || self.together.is_none() {
            return false;
        }
        let input = Input::AllDown { members };
        self.note(|| Entry::Plan(Box::new(input.clone())));
        let Some(planner) = &mut self.planner else { return false };
        let (todo, set) = (planner.step(input), planner.set());
        let moves = self.together.as_ref().and_then(|t| t.moves);
        let out = self.together.as_ref().and_then(|t| t.out);
        // Not all copies of that may be left: then it is one as any.
        self.rollbacks += u64::from(moves.is_some_and(|stood| stood != set));
        let text = match moves == Some(set) {
            true => "all ranks, to go on elsewhere where they stood",
            false => "all ranks, together",
        };
        if out != Some(set) {
            self.tell_back(set, text);
        }
        self.carry_out(todo, false);
        if set == 0 {
            self.forget_vault();
            for rank in 0..self.size() {
                let r = self.rank(rank);
                r.retention.restart();
                r.latest = None;
            }
        } else {
            self.collect_vault();
        }
        true
    }

    pub(super) fn tell_back(&mut self, set: u32, text: &str) {
        let mut event = self.event(EventKind::RolledBack);
        event.generation = Some(set).filter(|g| *g > 0);
        event.text = text.to_string();
        self.log_event(event);
    }

    /// All ranks go back, as soon as no process is left.
    pub(super) fn all_go_back(&mut self) {
        // What it would have protected from here on is not known to the planner.
        self.abandon_round();
        self.plan(Input::GoBack);
        self.step(monitor::Input::Together);
    }
}

fn no_more(rank: u32) -> String {
    format!("rank {rank} has ended, and all ranks are checkpointed together or not at all")
}
