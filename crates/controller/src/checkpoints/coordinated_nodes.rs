//! `--ft coordinated` over nodes: sets of checkpoints, and going back to them.
//!
//! A set is an image of every rank with what it had sent, each on two nodes or in the vault.
//! `protocol::sets` says when ranks may go on, the planner when a set counts and which one is gone
//! back to.
//!
//! Kept true: ranks are killed everywhere, and all nodes have new epochs and segments, before the
//! first one comes back; a set under way when somebody dies is given up, with the round of the
//! vault that was under way.

use crate::Job;
use crate::checkpoints::coordinated_model::{Coordinated, Taking};
use crate::checkpoints::failures::Refusals;
use crate::journal::Entry;
use crate::leaving::model::Round;
use eyrie_control::EventKind;
use eyrie_control::node::{SetPart, ToNode};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Input, Planner};

impl Job {
    /// Takes a set if one is due and every rank runs.
    pub(crate) fn schedule_coordinated_over_nodes(&mut self) {
        self.tick_plan();
        let now = self.ranks_ms();
        let held = |r: &crate::Rank| r.moves.stop.as_ref().is_some_and(|s| s.holds);
        let ready =
            |r: &crate::Rank| !r.gone && r.proc.is_some() && r.starting.is_none() && !held(r);
        let placed = self.recovery.planner.as_ref().is_some_and(Planner::placed);
        let reached = self.nodes.are_reached(0..self.size());
        if !placed || !reached || !self.ranks.all.iter().all(ready) {
            return;
        }
        self.bring_coordinated();
        let Some(generation) =
            self.checkpoints.coordinated.as_mut().and_then(|t| t.next_snapshot(now))
        else {
            return;
        };
        // All that were to leave may have been called off since it was asked for.
        let leaves = (0..self.size())
            .any(|r| self.leaving.nodes.contains_key(&self.nodes.placement.home(r)));
        let round =
            self.checkpoints.coordinated.as_mut().and_then(|t| t.round.take()).filter(|_| leaves);
        let hold = self.stops_with_snapshot() || round == Some(Round::Last);
        let set = self.order_set(generation, 0..self.size(), hold);
        round.into_iter().for_each(|round| self.note_round(0..self.size(), round));
        if let Some(coordinated) = &mut self.checkpoints.coordinated {
            let refusals = Refusals::default();
            coordinated.taking = Some(Taking { set, begun_ms: now, hold, refusals });
        }
    }

    /// A rank's part in a set that begins.
    pub(crate) fn part_of_rank(&mut self, rank: u32, generation: u32) -> Option<SetPart> {
        let partner = self.recovery.planner.as_ref().and_then(|p| p.partner(rank));
        let r = self.ranks.rank(rank);
        (r.capture.partner, r.capture.incarnation, r.capture.generation) =
            (partner, r.incarnation, Some(generation));
        let start = r.proc.as_ref().map(|p| p.start)?;
        let (partner, missing) = (partner.map(|m| m.node), r.retention.files());
        let mut event = self.clock.event(EventKind::Checkpointing);
        (event.rank, event.generation) = (Some(rank), Some(generation));
        self.journal.log_event(event);
        let key = partner.and_then(|to| self.invite(rank, generation, to));
        Some(SetPart { rank, start, partner, missing, key })
    }

    /// The images of all ranks count.
    pub(crate) fn coordinated_counts(&mut self) {
        if self.checkpoints.coordinated.is_some() {
            self.outside.reach("set-3");
        }
        let now = self.ranks_ms();
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        let taken = coordinated.taking.take();
        if let Some(taking) = &taken {
            self.coordinated_cost(taking.set.generation());
            let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
            coordinated.rest(now, taking.begun_ms);
            coordinated.succeeded();
        }
        self.bring_coordinated();
        if let Some(taking) = taken.filter(|t| t.hold) {
            self.all_stopped_with(taking.set.generation());
        }
    }

    /// A rank has ended. What it sent last may not be received, and no image of it is there any
    /// more: there are no more sets.
    pub(crate) fn end_coordinated(&mut self, rank: u32) {
        let Some(why) = self.no_more_coordinated() else { return };
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.end(rank));
        (0..self.size()).for_each(|r| self.fail_asks(r, &why, true));
    }

    /// Why there cannot be another set.
    pub(crate) fn no_more_coordinated(&self) -> Option<String> {
        self.why_unit_ended(0).filter(|_| self.checkpoints.units.partition().are_one())
    }

    /// Why ranks that are checkpointed together cannot be any more: a unit of which some have ended
    /// has no set of what the others did since, either.
    pub(crate) fn no_more_joint_checkpoints(&self) -> Option<String> {
        let live = (0..self.size()).filter(|r| !self.ranks.all[*r as usize].gone);
        live.map(|rank| self.why_unit_ended(rank)).find(Option::is_some).flatten()
    }

    /// No process is left: all nodes begin anew, and then all ranks come back.
    pub(crate) fn back_over_nodes(&mut self) {
        if !std::mem::replace(&mut self.recovery.planned, false) {
            // They do already.
            return;
        }
        let now = self.ranks_ms();
        let asked = !self.checkpoints.asks.is_empty();
        let out = self.checkpoints.coordinated.as_ref().and_then(|t| t.out);
        let moves = self.snapshot_all_stopped_with().or(out);
        // When the next set is due hangs on that.
        self.checkpoints
            .coordinated
            .iter_mut()
            .filter(|_| moves.is_none())
            .for_each(Coordinated::died);
        let taking = self.checkpoints.coordinated.as_mut().and_then(|t| t.go_back(now, asked));
        self.abandon_round();
        if let Some(taking) = taking {
            self.throw_away(&taking.set);
        }
        self.stop_flush();
        self.recovery.rollbacks += u64::from(moves.is_none());
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.moves = moves);
        for rank in 0..self.size() {
            let r = self.ranks.rank(rank);
            (r.restore.order, r.capture.partner, r.pending, r.capture.generation) =
                (None, None, None, None);
            r.moves.stop = None;
            (r.gone, r.restore.found) = (false, None);
            // What comes again may come in another order.
            self.give_up_output(rank);
        }
        self.outside.reach("back-1");
        if self.saving.under_way.is_some() && !self.save_is_asked() {
            self.not_saved("a rank or a node died");
        }
        self.renew_nodes();
    }

    /// Another controller takes this job up. Ranks that stand with a set, or are to, for a job that
    /// was to be saved go on, as nobody waits for that any more; if their memory is to go out, it
    /// does so with another.
    pub(crate) fn release_stopped_for_nothing(&mut self) {
        let leave = |r: &crate::Rank| r.moves.stop.as_ref().is_some_and(|s| s.holds);
        if !self.many() || !self.recovery.monitor.running() || self.ranks.all.iter().any(leave) {
            return;
        }
        match &mut self.checkpoints.coordinated {
            Some(coordinated) => coordinated.taking.iter_mut().for_each(Taking::let_go),
            None if self.checkpoints.units.exist() => {}
            None => return,
        }
        self.release_all();
    }

    /// Ranks that stay stopped after an image go on.
    pub(crate) fn release_all(&self) {
        (0..self.size()).for_each(|rank| self.nodes.to_home(rank, ToNode::LetGo { rank }));
    }

    /// The set that all ranks stand with as nodes leave, if they do.
    fn snapshot_all_stopped_with(&self) -> Option<u32> {
        let stop = |r: &crate::Rank| r.moves.stop.as_ref().map(|s| (s.generation, s.counts));
        let (generation, _) = self.ranks.all.first().and_then(stop)?;
        let all = self.ranks.all.iter().all(|r| stop(r) == Some((generation, true)));
        (all && !self.leaving.nodes.is_empty()).then_some(generation)
    }

    /// All nodes are there again: all ranks come back from the newest whole set.
    pub(crate) fn plan_back(&mut self, members: Vec<Member>) -> bool {
        if self.checkpoints.coordinated.is_some() {
            self.renew_vault(&members);
        }
        if self.recovery.planner.is_none() || self.checkpoints.coordinated.is_none() {
            return false;
        }
        let input = Input::AllDown { members };
        self.journal.note(|| Entry::Plan(Box::new(input.clone())));
        let Some(planner) = &mut self.recovery.planner else { return false };
        let (todo, set) = (planner.step(input), planner.snapshot());
        let moves = self.checkpoints.coordinated.as_ref().and_then(|t| t.moves);
        let out = self.checkpoints.coordinated.as_ref().and_then(|t| t.out);
        // Not all copies of that may be left: then it is one as any.
        self.recovery.rollbacks += u64::from(moves.is_some_and(|stood| stood != set));
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
                let r = self.ranks.rank(rank);
                r.retention.restart();
                r.latest = None;
            }
        } else {
            self.collect_vault();
        }
        true
    }

    pub(crate) fn tell_back(&mut self, set: u32, text: &str) {
        let mut event = self.clock.event(EventKind::RolledBack);
        event.generation = Some(set).filter(|g| *g > 0);
        event.took_ms = self.computed_again(set);
        event.text = text.to_string();
        self.journal.log_event(event);
    }
}
