//! `--save-every`: a state of a job over nodes is brought to the job's folder while the ranks go
//! on, for when more is lost than the nodes bear: all nodes, their controller, or every copy of an
//! image. It lies there as a job does that was saved and ended. With `--ft coordinated` it is the
//! newest set of images; else the newest image of every rank, and what was recorded up to one
//! moment (`consistent_cut`).
//!
//! Kept true: what was brought before stays until all of the next state is on disk, and is in its
//! place at once (`saved`); files that are being brought are not removed on the nodes; what cannot
//! be brought is told and costs the job nothing.
//!
//! Nodes bring what they have past the controller where they can (`routes`): with `--save-to` into
//! the object store, of which the folder then has the names only, else into the folder.

use crate::saving::archive;
use crate::saving::model::{Bringing, Routes, Saving};
use crate::{Job, monitor};
use eyrie_control::node::ToNode;
use eyrie_control::{Delivered, EventKind, SavedSet, Stored};
use eyrie_protocol::membership::Member;
use eyrie_state::home;
use eyrie_state::saved_job::SavedJob;
use std::time::UNIX_EPOCH;

impl Saving {
    /// Holds files back that are to be removed. Whether it does.
    pub fn holds_back(&mut self, rank: u32, generations: &[u32]) -> bool {
        let holds = self.periodic.bringing.is_some() || self.periodic.cut.is_some();
        if holds {
            self.periodic.put_off.push((rank, generations.to_vec()));
        }
        holds
    }
}

impl Job {
    /// Whether the job's folder gets states of the job while it runs.
    pub(crate) fn flushes(&self) -> bool {
        self.spec.saves() && self.many()
    }

    /// Whether it is time for one.
    pub(crate) fn may_flush(&self, now: u64) -> bool {
        let busy = self.saving.periodic.bringing.is_some() || self.saving.under_way.is_some();
        let busy = busy || now < self.saving.periodic.not_before_ms;
        let due = match self.spec.timing.save_every_generations {
            0 => now >= self.saving.periodic.due_ms,
            // They may have gone back since.
            every => self.ranks.reached().saturating_sub(self.saving.periodic.reached) >= every,
        };
        self.flushes() && !busy && due
    }

    /// Tells, once, of a state that is due and has to wait: the newest that is there gets old.
    pub(crate) fn tell_wait(&mut self) {
        let now = self.ranks_ms();
        let gone = self.ranks.all.iter().position(|r| r.gone);
        let leaving =
            self.leaving.nodes.keys().next().filter(|_| self.checkpoints.coordinated.is_none());
        let why = match (gone, leaving) {
            _ if !self.may_flush(now) => None,
            (Some(rank), _) => Some(format!("from now on, as rank {rank} has ended")),
            (None, Some(node)) => Some(format!("while node {node} leaves the job")),
            (None, None) => None,
        };
        let Some(why) = why else { return self.saving.periodic.waits = None };
        let known = self.saving.periodic.waits.take().filter(|(_, known, _)| *known == why);
        let (since, why, told) = known.unwrap_or((now, why, false));
        let late = now.saturating_sub(since) >= self.spec.timing.intervals.retries.write_ms;
        if late && !told {
            let text = "the job's folder does not get a newer state of the job";
            self.journal.say(format!("{text} {why}; what is there stays"));
        }
        self.saving.periodic.waits = Some((since, why, told || late));
    }

    /// When it will be time for the next one; none: it is, or something has to happen first.
    pub(crate) fn flush_due_ms(&self) -> Option<u64> {
        let waits = self.saving.periodic.bringing.is_none() && self.saving.periodic.cut.is_none();
        // What is due by checkpoints is looked at when there are some.
        Some(self.saving.periodic.due_ms)
            .filter(|due| self.flushes() && waits && *due > self.ranks_ms())
    }

    /// Has the newest set brought, if it is time, and another is there.
    pub(crate) fn bring_coordinated(&mut self) {
        let newest =
            self.ranks.all.iter().filter_map(|r| Some(r.retention.newest()?.generation)).max();
        let newer = newest.is_some_and(|g| g > self.saving.archive.newest());
        if !newer || !self.may_flush(self.ranks_ms()) {
            return;
        }
        match self.newest_state() {
            Ok(state) => {
                let attempt = self.saving.archive.next_attempt();
                self.bring(attempt, state);
            }
            Err(error) => self.flush_failed(&error.to_string()),
        }
    }

    /// Has the images of a state brought.
    pub(crate) fn bring(&mut self, attempt: u32, state: SavedJob) {
        if let Err(error) = self.open_archive() {
            return self.flush_failed(&error.to_string());
        }
        self.clear_leftovers();
        let (begun_ms, left) = (self.ranks_ms(), (0..self.size()).collect());
        let (reached, routes) = (self.ranks.reached(), Routes::default());
        let ordered = false;
        let bringing = Bringing { attempt, begun_ms, reached, ordered, left, state, routes };
        self.saving.periodic.bringing = Some(bringing);
        // The store is looked at first, by its thread.
        let may_go_there =
            self.spec.storage.save_to.is_some() && !self.saving.periodic.second_level.refuses;
        if !may_go_there || !self.survey_depot(attempt) {
            self.order_deposits(attempt, false);
        }
    }

    /// Has nodes bring what they have; `stored`: to the object store, which answers.
    pub(crate) fn order_deposits(&mut self, attempt: u32, stored: bool) {
        let awaited = |b: &&mut Bringing| b.attempt == attempt && !b.ordered;
        let Some(bringing) = self.saving.periodic.bringing.as_mut().filter(awaited) else { return };
        bringing.ordered = true;
        // The newest is the last, behind what it needs.
        let ranks = (0u32..).zip(&bringing.state.ranks);
        let all: Vec<_> = ranks.map(|(rank, saved)| (rank, saved.retention.files())).collect();
        self.offer_routes(attempt, stored);
        for (rank, generations) in all {
            self.nodes.to_home(rank, ToNode::Deposit { attempt, rank, generations });
        }
    }

    /// A node has brought what there was of a rank, or could not.
    pub(crate) fn brought(
        &mut self,
        attempt: u32,
        rank: u32,
        result: Result<Box<Delivered>, String>,
    ) {
        let node = self.nodes.placement.home(rank);
        let Some(bringing) = &mut self.saving.periodic.bringing else { return };
        let taken = result.and_then(|delivered| bringing.routes.take(node, rank, *delivered));
        let synced = match taken {
            Err(why) => Err(format!("rank {rank}: {why}")),
            Ok(()) => {
                bringing.left.remove(&rank);
                if !bringing.left.is_empty() {
                    return;
                }
                let needed = archive::needed(&bringing.state.ranks);
                let here = needed.into_iter().filter(|(r, _)| !bringing.routes.is_stored(*r));
                let here = here.collect();
                self.sync_archive(attempt, here).map_err(|e| e.to_string())
            }
        };
        if let Err(why) = synced {
            self.flush_failed(&why);
        }
    }

    /// All of it is on disk, or cannot be: commits it.
    pub(crate) fn flushed(&mut self, result: Result<u64, String>) {
        let Some(mut bringing) = self.saving.periodic.bringing.take() else { return };
        let bytes = match result {
            Ok(bytes) => bytes + bringing.routes.stored_bytes(),
            Err(why) => return self.flush_failed(&why),
        };
        if bringing.routes.files().is_empty() {
            return match self.write_saved(&bringing.state) {
                Ok(()) => {
                    self.flush_counts(bringing, bytes);
                    self.bring_to_depot();
                }
                Err(why) => self.flush_failed(&why),
            };
        }
        // The store's list names it first: what the folder names is there then.
        let place = self.outside.store.place();
        bringing.state.stored = Some(Stored { place, files: bringing.routes.files().to_vec() });
        let ordered = self.commit_in_depot(bringing.attempt, bytes, &bringing.state);
        self.saving.periodic.bringing = Some(bringing);
        if let Err(error) = ordered {
            self.flush_failed(&error.to_string());
        }
    }

    /// The store has all of a state, and this is its file for the job's folder; or not.
    pub(crate) fn flushed_to_depot(&mut self, attempt: u32, result: Result<u64, String>) {
        if !self.saving.periodic.is_at(attempt) {
            return;
        }
        let Some(bringing) = self.saving.periodic.bringing.take() else { return };
        let written = result.and_then(|bytes| {
            self.write_saved(&bringing.state)?;
            Ok(bytes)
        });
        match written {
            Ok(bytes) => {
                self.flush_counts(bringing, bytes);
                self.tidy_depot();
            }
            Err(why) => {
                let retry_ms = self.spec.timing.intervals.retries.write_ms;
                self.saving.periodic.not_before_ms = self.ranks_ms().saturating_add(retry_ms);
                self.flush_failed(&why);
                self.saving.periodic.due_ms = self.saving.periodic.not_before_ms;
                // As if it had not been due.
                self.saving.periodic.reached =
                    bringing.reached.saturating_sub(self.every_generations());
            }
        }
    }

    fn every_generations(&self) -> u32 {
        self.spec.timing.save_every_generations
    }

    /// What was brought is what the job can be restarted from.
    fn flush_counts(&mut self, bringing: Bringing, bytes: u64) {
        self.saving.count = bringing.state.number;
        self.saving.periodic.reached = bringing.reached;
        self.saving.periodic.routes = bringing.routes.told();
        self.saving.archive.hold(bringing.state);
        self.redirect();
        // Images of what was there before have the archive among their holders.
        self.leave_archive();
        self.clear_archive();
        let took_ms = self.ranks_ms().saturating_sub(bringing.begun_ms);
        let mut event = self.clock.event(EventKind::Flushed);
        event.bytes = Some(bytes);
        event.generation = Some(self.saving.archive.newest());
        event.took_ms = Some(took_ms as f64);
        event.text = bringing.routes.to_string();
        self.journal.log_event(event);
        self.step(monitor::Input::Kept);
        self.note_flushed();
        self.saving.periodic.told = None;
        self.rest_from_flush();
    }

    /// Looks what is there.
    pub(crate) fn note_flushed(&mut self) {
        let written = self.outside.files.modified(home::SAVED);
        let age = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let holds = self.flushes() && self.saving.archive.holds();
        let set = self.saving.archive.newest();
        self.saving.periodic.there =
            age.filter(|_| holds).map(|age| SavedSet { set, unix_ms: age.as_millis() as u64 });
    }

    pub(crate) fn flush_failed(&mut self, why: &str) {
        let known = self.saving.periodic.told.as_deref() == Some(why);
        if !known {
            let text = "the job's folder does not get a newer state of the job";
            self.journal.say(format!("{text}, what is there stays: {why}"));
            self.saving.periodic.told = Some(why.to_string());
        }
        if self.saving.periodic.bringing.take().is_some() {
            self.outside.store.end_attempt();
            self.nodes.to_all(&ToNode::EndDeposits);
        }
        self.saving.periodic.reached = self.ranks.reached();
        self.clear_archive();
        self.rest_from_flush();
    }

    /// Gives up what is being brought: ranks go back, or the job is being saved.
    pub(crate) fn stop_flush(&mut self) {
        self.forget_cut();
        if self.saving.periodic.bringing.take().is_some() {
            self.outside.store.end_attempt();
            self.nodes.to_all(&ToNode::EndDeposits);
        }
        self.remove_put_off();
    }

    /// A node that is back may be bringing what nobody waits for any more: the word for that is
    /// lost with a connection, and a controller that is dead had no time for it.
    pub(crate) fn end_deposits_of(&self, node: u32) {
        let collects = self.saving.under_way.as_ref().is_some_and(|s| s.collecting.is_some());
        if !collects && !self.saving.periodic.is_under_way() {
            self.nodes.all[node as usize].send(ToNode::EndDeposits);
        }
    }

    /// The next one has time.
    fn rest_from_flush(&mut self) {
        self.saving.periodic.due_ms =
            self.ranks_ms().saturating_add(self.spec.timing.save_every_ms);
        self.remove_put_off();
    }

    fn remove_put_off(&mut self) {
        for (rank, generations) in std::mem::take(&mut self.saving.periodic.put_off) {
            self.remove_images(rank, generations);
        }
    }

    /// No set is left on the nodes that are: all ranks come back from the job's folder.
    pub(crate) fn plan_from_flushed(&mut self, members: &[Member]) -> bool {
        let planner =
            self.recovery.planner.as_ref().filter(|_| self.checkpoints.coordinated.is_some());
        let lost = planner.is_some_and(|p| !p.has_whole(members));
        if !self.flushes() || !lost || !self.saving.archive.holds() {
            return false;
        }
        self.back_to_archive();
        self.forget_vault();
        let set = self.saving.archive.newest();
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.go_on_after(set));
        self.tell_back(set, "all ranks, together, to what the job's folder has");
        self.plan_from_archive(members)
    }

    /// The last node is gone.
    pub(crate) fn no_node_left(&mut self) {
        self.fatal(String::from("no node is left"));
    }
}
