//! `--ft coordinated`: all ranks are checkpointed together, and go back together. Over nodes:
//! `coordinated_nodes`.
//!
//! A set is an image of every rank that has not ended, the segment's file, and the controller's
//! state (`saved`), which names it.
//!
//! Kept true: a set counts when all of it is on disk, by the renaming of one file; the one before
//! stays until then, and one more beyond that, for when an image turns out to be damaged.

use crate::Job;
use crate::checkpoints::coordinated_model::{Coordinated, Set, UnderWay};
use crate::checkpoints::failures::Refusals;
use crate::checkpoints::fallback;
use crate::checkpoints::model::Checkpoints;
use crate::recovery::model::Strategy;
use eyrie_control::EventKind;
use eyrie_control::node::{CheckpointResult, Choice, Fault, Taken, ToNode};
use eyrie_control::signals::SIGCONT;
use eyrie_protocol::barrier::RestoreBarrier;
use eyrie_protocol::retention::KEPT;
use eyrie_state::saved_job;
use std::collections::BTreeMap;

impl Checkpoints {
    /// The job is over: what is under way of a set does not become what a restart begins with. Its
    /// parts are removed as they come.
    pub fn stop_coordinated(&mut self) {
        if let Some(coordinated) = &mut self.coordinated {
            coordinated.under_way = None;
        }
    }
}

impl Job {
    /// Numbers of sets go on behind those of images that ranks had alone.
    pub(crate) fn number_sets_on(&mut self) {
        let last = (0..self.size()).map(|rank| self.ranks.rank(rank).retention.begin()).max();
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.last = last.unwrap_or(0));
    }

    pub(crate) fn begin_coordinated(&mut self) {
        if self.spec.protection.ft.all_go_back() {
            let (every, first) =
                (self.spec.timing.checkpoint_every_ms, self.spec.timing.checkpoint_first_ms);
            self.checkpoints.coordinated = Some(Coordinated::new(every, first, self.ranks_ms()));
        }
    }

    /// Takes a set of checkpoints if one is due and every rank runs.
    pub(crate) fn schedule_coordinated(&mut self) {
        if self.strategy() == Strategy::Planned {
            return self.schedule_coordinated_over_nodes();
        }
        let now = self.ranks_ms();
        let hold = self.stops_with_snapshot();
        let ready = |r: &crate::Rank| r.gone || (r.proc.is_some() && r.starting.is_none());
        if !self.ranks.all.iter().all(ready) || self.ranks.all.iter().all(|r| r.gone) {
            return;
        }
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        if coordinated.under_way.is_some() || !(coordinated.wanted || now >= coordinated.due_ms) {
            return;
        }
        coordinated.wanted = false;
        coordinated.last += 1;
        let generation = coordinated.last;
        let mut ranks = Vec::new();
        for (rank, r) in (0u32..).zip(&mut self.ranks.all) {
            if let Some(proc) = &r.proc {
                ranks.push((rank, proc.start));
                r.capture.generation = Some(generation);
            }
        }
        let left = ranks.iter().map(|r| r.0).collect();
        let (taken, begun_ms) = (BTreeMap::new(), now);
        let (segment, failed, refusals) = (false, None, Refusals::default());
        let under_way =
            UnderWay { generation, begun_ms, left, taken, segment, hold, failed, refusals };
        coordinated.under_way = Some(under_way);
        for &(rank, _) in &ranks {
            let mut event = self.clock.event(EventKind::Checkpointing);
            (event.rank, event.generation) = (Some(rank), Some(generation));
            self.journal.log_event(event);
        }
        let (incremental, segment) =
            (self.spec.protection.incremental, saved_job::segment_name(generation));
        self.nodes.to_all(&ToNode::CheckpointAll { ranks, generation, incremental, hold, segment });
    }

    /// The checkpoint of one rank of a set is over.
    pub(crate) fn coordinated_part(
        &mut self,
        rank: u32,
        generation: u32,
        result: CheckpointResult,
    ) {
        self.ranks.rank(rank).capture.generation = None;
        let set = self.checkpoints.coordinated.as_mut().and_then(|t| t.under_way.as_mut());
        let Some(set) = set.filter(|s| s.generation == generation) else {
            return self.nodes.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        };
        set.left.remove(&rank);
        match result {
            CheckpointResult::Taken(taken) => drop(set.taken.insert(rank, taken)),
            CheckpointResult::Failed { text, lasting } => {
                set.refusals.one_more(lasting);
                set.failed = Some(format!("rank {rank}: {text}"));
            }
            CheckpointResult::NoPartner(text) => {
                set.refusals.one_more(false);
                set.failed = Some(format!("rank {rank}: {text}"));
            }
            CheckpointResult::Died => {
                set.failed.get_or_insert_with(|| format!("rank {rank}: it did not come to stand"));
            }
        }
        self.coordinated_over();
    }

    /// The segment of a set is written, or not.
    pub(crate) fn coordinated_segment(&mut self, name: &str, result: Result<u64, String>) {
        let set = self.checkpoints.coordinated.as_mut().and_then(|t| t.under_way.as_mut());
        let Some(set) = set.filter(|s| saved_job::segment_name(s.generation) == name) else {
            return self.remove_segment(name);
        };
        set.segment = true;
        if let Err(why) = result {
            set.failed.get_or_insert(why);
        }
        self.coordinated_over();
    }

    /// Commits a set of which all is there, or gives it up.
    fn coordinated_over(&mut self) {
        let now = self.ranks_ms();
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        let over = |s: &mut UnderWay| s.left.is_empty() && s.segment;
        let Some(set) = coordinated.under_way.take_if(over) else { return };
        let (hold, generation, begun_ms) = (set.hold, set.generation, set.begun_ms);
        let lasting = set.refusals.are_lasting();
        let committed = self.commit(set);
        // After it is known what it cost.
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.rest(now, begun_ms));
        match committed {
            Ok(()) if hold => self.all_stopped_with(generation),
            Ok(()) => {}
            Err(why) => {
                if hold {
                    self.nodes.to_all(&ToNode::Signal { signal: SIGCONT });
                }
                self.coordinated_failed(generation, why, lasting);
            }
        }
    }

    fn commit(&mut self, set: UnderWay) -> Result<(), String> {
        let UnderWay { generation, taken, failed, .. } = set;
        let gone: Vec<bool> =
            (0u32..).zip(&self.ranks.all).map(|(r, _)| !taken.contains_key(&r)).collect();
        let written = match failed {
            Some(why) => Err(why),
            None => self.write_coordinated(generation, &taken).map_err(|e| e.to_string()),
        };
        if let Err(why) = written {
            for rank in taken.into_keys() {
                self.nodes.to_all(&ToNode::Remove { rank, generations: vec![generation] });
            }
            return Err(why);
        }
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return Ok(()) };
        coordinated.succeeded();
        coordinated.kept.push(Set { generation, gone });
        let surplus = coordinated.kept.len().saturating_sub(KEPT);
        let old: Vec<u32> = coordinated.kept.drain(..surplus).map(|s| s.generation).collect();
        for (rank, taken) in taken {
            self.complete(rank, generation, taken);
        }
        self.coordinated_cost(generation);
        old.into_iter().for_each(|g| self.remove_segment(&saved_job::segment_name(g)));
        Ok(())
    }

    /// The images of a set count: what they cost, together.
    pub(crate) fn coordinated_cost(&mut self, generation: u32) {
        let cost = self.cost_of(0..self.size(), generation);
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.cost(cost));
    }

    /// Makes the set the one that a restart begins with.
    pub(crate) fn write_coordinated(
        &mut self,
        generation: u32,
        taken: &BTreeMap<u32, Box<Taken>>,
    ) -> std::io::Result<()> {
        let mut state = self.saved_state(generation)?;
        for (&rank, taken) in taken {
            let known = &mut state.ranks[rank as usize];
            known.gone = false;
            // What is given up by this is removed only afterwards.
            known.retention.complete(
                generation,
                crate::checkpoints::model::point(&taken.meta),
                taken.needs.clone(),
            );
        }
        self.console.input.sync()?;
        self.outside.files.set_saved_aside()?;
        self.outside.files.write_saved(&state)
    }

    pub(crate) fn coordinated_failed(&mut self, generation: u32, why: String, lasting: bool) {
        let clock = self.clock.now();
        self.remove_segment(&saved_job::segment_name(generation));
        let failures = self.checkpoints.coordinated.iter_mut().map(|t| &mut t.failures);
        failures.for_each(|f| f.one_more(clock, lasting));
        let told = self.checkpoints.coordinated.as_mut().map(|t| t.told.replace(why.clone()));
        // A save tells of it by itself.
        if told.flatten().as_ref() != Some(&why) && !self.save_is_asked() {
            self.journal.say(format!(
                "no checkpoint of all ranks: {why}; the job goes on, the last one stays"
            ));
        }
        let mut event = self.clock.event(EventKind::CheckpointFailed);
        event.generation = Some(generation);
        event.text = why.clone();
        self.journal.log_event(event);
        for rank in 0..self.size() {
            self.fail_asks(rank, &why, lasting);
        }
        // Else another is taken.
        let (swaps, patience) = (self.is_swapped(), self.checkpoint_patience());
        let sets = self.checkpoints.coordinated.as_mut().filter(|_| swaps);
        if let Some(why) = sets.and_then(|t| t.fails(patience, clock)) {
            self.not_swapped(&why);
        }
    }

    /// No process is left. Goes back to the newest set, and the segment with it. False: there is
    /// none.
    pub(crate) fn go_back_with_segment(&mut self) -> bool {
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return false };
        let out = coordinated.out;
        if out.is_none() {
            coordinated.died();
        }
        let unfinished = coordinated.under_way.take();
        let set = coordinated.kept.last().map(|s| (s.generation, s.gone.clone()));
        coordinated.going_back = set.as_ref().map(|s| s.0);
        coordinated.wanted |= !self.checkpoints.asks.is_empty();
        if let Some(unfinished) = unfinished {
            self.remove_segment(&saved_job::segment_name(unfinished.generation));
            for rank in unfinished.taken.into_keys() {
                let generations = vec![unfinished.generation];
                self.nodes.to_all(&ToNode::Remove { rank, generations });
            }
        }
        let Some((generation, gone)) = set else { return false };
        for (rank, gone) in (0u32..).zip(gone) {
            let r = self.ranks.rank(rank);
            (r.gone, r.capture.generation) = (gone, None);
            // What comes again may come in another order.
            r.tapes.iter_mut().for_each(|t| t.give_up());
            if gone {
                self.recovery.monitor.set_gone(rank);
            }
        }
        // Else it is where they were.
        if out != Some(generation) {
            self.recovery.rollbacks += 1;
            self.tell_back(generation, "all ranks, together");
        }
        self.nodes.to_all(&ToNode::Reload { segment: saved_job::segment_name(generation) });
        true
    }

    /// The segment is that of the set again.
    pub(crate) fn reloaded(&mut self, segment: &str, result: Result<(), String>) {
        if fallback::is_snapshot(segment) {
            return self.snapshot_reloaded(segment, result);
        }
        let set = self.checkpoints.coordinated.as_ref().and_then(|t| t.going_back);
        let Some(set) = set.filter(|g| saved_job::segment_name(*g) == segment) else { return };
        match result {
            Ok(()) => self.bring_all(),
            Err(why) => self.coordinated_refused(set, &why),
        }
    }

    /// Brings all ranks back from the set.
    pub(crate) fn bring_all(&mut self) {
        let ranks: Vec<u32> =
            (0..self.size()).filter(|r| self.recovery.monitor.may_start(*r)).collect();
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        let Some(set) = coordinated.going_back else { return };
        coordinated.back.muster = Some(RestoreBarrier::new(set, ranks.iter().copied()));
        ranks.into_iter().for_each(|rank| self.look_for(rank, set));
    }

    fn look_for(&mut self, rank: u32, set: u32) {
        let (attempt, generations) = (self.ranks.all[rank as usize].deaths.count, vec![set]);
        self.nodes.to_home(rank, ToNode::Find { rank, attempt, generations, fetch: None });
    }

    /// A rank could not be brought back with the others: it is tried again as long as none of them
    /// is either, and else all go back once more.
    pub(crate) fn bring_again(&mut self, rank: u32) {
        let Some(coordinated) = &self.checkpoints.coordinated else { return };
        match &coordinated.back.muster {
            Some(muster) if muster.awaits(rank) => self.look_for(rank, muster.snapshot()),
            _ => self.all_go_back(),
        }
    }

    /// A rank's image of the set was looked at.
    pub(crate) fn coordinated_candidate(&mut self, rank: u32, choice: Choice) {
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        let Some(set) = coordinated.going_back else { return };
        match choice {
            Choice::Image(meta) => {
                let muster = coordinated.back.muster.as_mut();
                let all = muster.and_then(|m| m.found(rank, meta.generation));
                self.ranks.rank(rank).restore.found = Some(meta);
                for rank in all.into_iter().flatten() {
                    if let Some(meta) = self.ranks.rank(rank).restore.found.take() {
                        self.launch(rank, *meta, true, None);
                    }
                }
            }
            Choice::Refused { generation, why, .. } if generation == set => {
                let mut event = self.clock.event(EventKind::ImageRefused);
                (event.rank, event.generation) = (Some(rank), Some(set));
                event.text = why.clone();
                self.journal.log_event(event);
                self.coordinated_refused(set, &format!("rank {rank}: {why}"));
            }
            Choice::Unfit(why) => self.cannot_start_here(rank, &why),
            Choice::Lacks { generation, why } if generation == set => {
                match self.is_tried_again(rank, Fault::Files, generation) {
                    true => self.cannot_start_here(rank, &why),
                    false => self.coordinated_refused(set, &format!("rank {rank}: {why}")),
                }
            }
            Choice::Left(count) => {
                self.fatal(format!("{count} processes of the dead rank {rank} cannot be killed"));
            }
            _ => {}
        }
    }

    /// The set cannot be used: all go back to the one before, or to the beginning.
    pub(crate) fn coordinated_refused(&mut self, set: u32, why: &str) {
        if self.saving.restarting {
            return self.fatal(format!("the job cannot be restarted: {why}"));
        }
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        coordinated.kept.retain(|s| s.generation != set);
        let newest = coordinated.newest();
        // Before its files go, the state that names them does.
        if let Err(error) = self.outside.files.take_saved_back(newest) {
            tracing::warn!(%error, "what is saved is not the set before");
        }
        let next = match newest {
            Some(_) => "the one before is taken",
            None => "all ranks go back to the beginning",
        };
        self.journal
            .say(format!("the checkpoint {set} of all ranks cannot be used: {why}; {next}"));
        self.remove_segment(&saved_job::segment_name(set));
        for rank in 0..self.size() {
            let unneeded = self.ranks.rank(rank).retention.damaged(set);
            self.remove_images(rank, unneeded);
        }
        self.all_go_back();
    }

    fn remove_segment(&self, name: &str) {
        self.remove_image_file(name);
    }

    /// Answers `eyrie checkpoint`: all ranks get theirs together.
    pub(crate) fn request_coordinated(&mut self, rank: Option<u32>) -> Result<(), String> {
        if rank.is_some() {
            return Err(String::from(
                "with --ft coordinated all ranks are checkpointed together: leave --rank out",
            ));
        }
        if let Some(why) = self.no_more_coordinated() {
            return Err(why);
        }
        self.checkpoints.coordinated.iter_mut().for_each(Coordinated::request);
        Ok(())
    }
}

#[cfg(test)]
#[path = "coordinated_tests.rs"]
mod tests;
