//! Saving a whole job and ending it, and going on with one that was saved.
//!
//! Every rank gets a checkpoint; then all are killed, and what the logs of the segment hold is
//! written beside the images, and what the controller knows beside that. A restart is a recovery of
//! all ranks.
//!
//! Over nodes images and outcomes are brought to the controller instead (`archive`).
//!
//! Kept true: the job ends only when all of that is on disk; whatever fails before, it goes on.
//! What is saved stays until every rank runs again.

pub(crate) mod again;
pub(crate) mod archive;
pub(crate) mod attempts;
pub(crate) mod consistent_cut;
pub(crate) mod model;
pub(crate) mod periodic;
pub(crate) mod replay_logs;
pub(crate) mod routes;
pub(crate) mod second_level;

use crate::checkpoints::coordinated_model::Coordinated;
use crate::checkpoints::fallback;
use crate::outside::ClientHandle;
use crate::saving::attempts::Attempts;
use crate::saving::model::{Archive, Save};
use crate::{Ask, Job, monitor};
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, JobSpec, NodeMsg, Stream};
use eyrie_state::home;
use eyrie_state::local;
use eyrie_state::saved_job::{self, SavedJob, SavedRank};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

/// Variables that are secrets, and those of whoever goes on.
const KEYS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    home::HOME_OF_JOB,
    local::LOCAL_OF_JOB,
];

/// The job's description as it began: nodes that joined since are not among those that it is
/// restarted on.
fn as_begun(spec: &JobSpec) -> JobSpec {
    let mut spec = spec.clone();
    let nodes = (spec.placement.nodes + spec.placement.spares) as usize;
    spec.placement.hosts.iter_mut().for_each(|hosts| hosts.list.truncate(nodes));
    spec.placement.clusters.of.truncate(nodes);
    spec
}

impl Job {
    /// Has the job saved, and ended when that is done. Nothing presses.
    pub fn checkpoint_and_end(&mut self, client: Option<ClientHandle>) -> Result<(), String> {
        let limit_ms = self.spec.timing.intervals.retries.saves_ms;
        self.save_within(Duration::from_millis(limit_ms), client)
    }

    /// The same; for so long it is tried again what stands in the way and passes.
    pub(crate) fn save_within(
        &mut self,
        limit: Duration,
        client: Option<ClientHandle>,
    ) -> Result<(), String> {
        if let Some(why) = self.not_to_be_saved() {
            return Err(why);
        }
        let swapped = self.is_swapped();
        self.journal.say(match swapped {
            true => "saving the job by the checkpoints that its memory went to, to end it",
            false => "checkpointing all ranks, to save the job and end it",
        });
        let attempts = Attempts::for_so_long(limit, self.clock.now());
        let save = Save { client: client.clone(), swapped, attempts, ..Save::default() };
        self.saving.under_way = Some(save);
        if self.spec.program.input_is_file {
            self.console.input.take_all();
            self.pump_input();
        }
        if swapped {
            self.all_checkpointed(None);
            return Ok(());
        }
        let mut left = Vec::new();
        for r in 0..self.size() {
            if !self.ranks.rank(r).gone {
                self.checkpoints.scheduler.request(self.checkpoints.units.turn(r));
                left.push((r, self.ranks.rank(r).capture.generation.unwrap_or(0)));
            }
        }
        self.checkpoints.asks.push(Ask { client, left, ends: true, failed: None });
        self.checkpoints.coordinated.iter_mut().for_each(Coordinated::request);
        self.schedule();
        Ok(())
    }

    fn not_to_be_saved(&self) -> Option<String> {
        if self.saving.under_way.is_some() {
            return Some(String::from("it is being saved already, which goes on"));
        }
        if !self.spec.protection.ft.protects() {
            return Some(format!("it runs with --ft {}", self.spec.protection.ft.name()));
        }
        if self.spec.security.at_rest.goes_with_nodes() {
            let why = "its images are to be nowhere but on its nodes (--encrypt-at-rest)";
            return Some(String::from(why));
        }
        if let Some(why) = &self.recovery.unprotected {
            return Some(format!("it runs without protection: {why}"));
        }
        if !self.recovery.monitor.running() {
            return Some(format!("it is {}", self.recovery.monitor.phase()));
        }
        if let Err(why) = self.out_whole() {
            return Some(why);
        }
        if let Some(node) = self.leaving.nodes.keys().next() {
            return Some(format!("node {node} is leaving: ask again when it has left"));
        }
        self.no_more_joint_checkpoints()
    }

    /// Every rank has its checkpoint, or one has none.
    pub(crate) fn all_checkpointed(&mut self, failed: Option<String>) {
        if let Some(why) = failed {
            return self.not_saved(&why);
        }
        self.saving.under_way.iter_mut().for_each(|s| s.checkpointed = true);
        self.save_when_ready();
    }

    /// Goes on with the saving as soon as nothing is in the way.
    pub(crate) fn save_when_ready(&mut self) {
        self.outgrow_archive();
        self.watch_collecting();
        let input_is_known = !self.spec.program.input_is_file || self.console.input.known().1;
        let Some(save) = &mut self.saving.under_way else { return };
        if save.stands {
            // Images that are on their way to their partners arrive, or are copied elsewhere.
            self.tick_plan();
            let capturing = self.ranks.all.iter().any(|r| r.capture.generation.is_some());
            let capturing = capturing || self.checkpoints.fallback.is_taking();
            let Some(save) = &mut self.saving.under_way else { return };
            if !capturing && !std::mem::replace(&mut save.writing, true) {
                if self.many() {
                    return self.collect();
                }
                if self.checkpoints.coordinated.is_some() {
                    return self.coordinated_saved();
                }
                let name = saved_job::segment_name(self.saving.count + 1);
                self.nodes.to_all(&ToNode::SaveSegment { name });
            }
        } else if save.checkpointed && input_is_known && self.recovery.monitor.running() {
            if let Some(why) = self.recovery.unprotected.clone() {
                return self.not_saved(&why);
            }
            // From that record on the next state in the folder is that of the saved job.
            self.stop_flush();
            self.step(monitor::Input::Save);
        }
    }

    /// No process is left.
    pub(crate) fn save_job(&mut self) {
        self.saving.under_way.get_or_insert_default().stands = true;
        self.save_when_ready();
    }

    /// The set that ranks stopped at is on disk: what is left is what they had printed.
    fn coordinated_saved(&mut self) {
        let Some(number) = self.checkpoints.coordinated.as_ref().and_then(Coordinated::newest)
        else {
            return;
        };
        let written = self.saved_state(number).and_then(|s| self.outside.files.write_saved(&s));
        match written {
            Ok(()) => self.saved(number, 0),
            Err(error) => {
                self.not_saved(&error.to_string());
                self.all_go_back();
            }
        }
    }

    /// The node has written what the ranks need of the segment, or could not.
    pub(crate) fn segment_saved(&mut self, name: &str, result: Result<u64, String>) {
        if fallback::is_snapshot(name) || self.checkpoints.fallback.is_taking_as(name) {
            return self.snapshot_segment(name, result);
        }
        let number = self.saving.count + 1;
        // Its images are not among those that are saved.
        self.forget_snapshots();
        let written = result.and_then(|bytes| {
            let state = self.saved_state(number).map_err(|e| e.to_string())?;
            self.write_saved(&state).map(|()| bytes)
        });
        match written {
            Ok(bytes) => self.saved(number, bytes),
            Err(why) => {
                self.forget_segment(number);
                self.not_saved(&why);
                self.step(monitor::Input::NotSaved);
            }
        }
    }

    /// Commits what is saved: all that it names is on disk.
    pub(crate) fn write_saved(&self, state: &SavedJob) -> Result<(), String> {
        self.console.input.sync().map_err(|e| format!("standard input: {e}"))?;
        self.journal.leads_for_sure()?;
        self.outside.files.write_saved(state).map_err(|e| e.to_string())?;
        // It may have stood still meanwhile: with `--ha` nothing was saved before.
        self.journal.leads_for_sure().inspect_err(|_| {
            self.remove_file(home::SAVED);
        })
    }

    pub(crate) fn saved(&mut self, number: u32, bytes: u64) {
        self.saving.count = number;
        self.saving.is_saved = true;
        let mut event = self.clock.event(EventKind::Saved);
        event.bytes = Some(bytes);
        event.generation = Some(number);
        self.journal.log_event(event);
        if self.many() {
            self.bring_to_depot();
        }
        let id = &self.place.id;
        let elsewhere = match self.saved_to() {
            Some(to) => format!(", or, when it is there: eyrie restart {}", to.place),
            None => String::new(),
        };
        let go_on = format!("eyrie restart {id}{elsewhere}");
        self.journal.say(format!("job {id} is saved and ends; to go on with it: {go_on}"));
        if let Some(client) = self.saving.under_way.take().and_then(|s| s.client) {
            self.journal.commit.answers.push((client, NodeMsg::Done));
        }
        self.step(monitor::Input::Saved { code: saved_job::EXIT_CODE });
    }

    pub(crate) fn not_saved(&mut self, why: &str) {
        self.end_snapshot_hold();
        let text = format!("the job is not saved, and goes on: {why}");
        if let Some(client) = self.saving.under_way.take().and_then(|s| s.client) {
            self.journal.commit.answers.push((client, NodeMsg::Error(text.clone())));
        }
        self.journal.say(text);
    }

    /// What the controller knows. No process of a rank is left.
    pub(crate) fn saved_state(&self, number: u32) -> std::io::Result<SavedJob> {
        let environment = self.outside.machine.environment().into_iter();
        let is_key = |name: &OsString| KEYS.iter().any(|key| name == key);
        let rank = |r: &crate::Rank| SavedRank {
            gone: r.gone,
            tapes: r.tapes.clone(),
            retention: r.retention.clone(),
            recoveries: r.deaths.recoveries,
            words: None,
        };
        let mut status = self.status();
        status.phase = String::from("saved");
        Ok(SavedJob {
            spec: as_begun(&self.spec),
            working_folder: self.outside.machine.working_folder()?.into_vec(),
            environment: environment
                .filter(|(k, _)| !is_key(k))
                .map(|(k, v)| (k.into_vec(), v.into_vec()))
                .collect(),
            number,
            ranks: self.ranks.all.iter().map(rank).collect(),
            loans: self.checkpoints.loans.clone(),
            input: self.console.input.known(),
            input_hash: self.console.input.hash(),
            elapsed_ms: self.clock.now_ms(),
            recoveries: self.recovery.recoveries,
            rollbacks: self.recovery.rollbacks,
            status: serde_json::to_vec(&status)?,
            stored: None,
        })
    }

    /// Takes over what is saved, before anything of the job runs.
    pub(crate) fn take_over(&mut self, mut saved: SavedJob) {
        archive::settle(&mut saved, &*self.outside.files);
        self.saving.count = saved.number;
        self.saving.is_saved = true;
        self.saving.restarting = true;
        self.checkpoints.loans = saved.loans;
        (self.recovery.recoveries, self.recovery.rollbacks) = (saved.recoveries, saved.rollbacks);
        if self.many() {
            self.saving.archive = Archive::of(saved.ranks.clone(), saved.stored);
            self.redirect();
            self.note_flushed();
        }
        for (rank, known) in (0u32..).zip(saved.ranks) {
            let r = self.ranks.rank(rank);
            (r.gone, r.tapes, r.retention) = (known.gone, known.tapes, known.retention);
            r.deaths.recoveries = known.recoveries;
            if self.many() {
                // What it sent last is known to itself only: it is run again.
                self.ranks.rank(rank).gone = false;
            } else if known.gone {
                self.recovery.monitor.set_gone(rank);
            }
        }
        let newest =
            self.ranks.all.iter().filter_map(|r| Some(r.retention.newest()?.generation)).max();
        let many = self.many();
        match &mut self.checkpoints.coordinated {
            Some(coordinated) if many => coordinated.go_on_after(newest.unwrap_or(0)),
            Some(coordinated) => {
                coordinated
                    .take_over(saved.number, self.ranks.all.iter().map(|r| r.gone).collect());
            }
            None => {}
        }
        if many || self.checkpoints.coordinated.is_some() {
            self.take_over_printed();
        }
    }

    /// Brings all ranks of a saved job back.
    pub fn restart(&mut self) {
        let mut event = self.clock.event(EventKind::Restarted);
        event.generation = Some(self.saving.count);
        self.journal.log_event(event);
        if self.checkpoints.coordinated.is_some() && !self.many() {
            return self.bring_all();
        }
        if self.many() {
            // Once all nodes have joined.
            return match self.open_archive() {
                Ok(()) => {}
                Err(error) => self.fatal(format!("the job cannot be restarted: {error}")),
            };
        }
        for rank in 0..self.size() {
            if !self.ranks.rank(rank).gone {
                self.recover(rank);
            }
        }
    }

    /// What the command printed after the set was written is not printed again.
    fn take_over_printed(&mut self) {
        let printed = crate::journal::state::printed(&self.outside.files);
        for (rank, r) in (0u32..).zip(&mut self.ranks.all) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let tape = &mut r.tapes[stream as usize];
                let known = tape.received();
                tape.printed(printed(rank, stream));
                if self.checkpoints.coordinated.is_some() || tape.received() > known {
                    tape.give_up();
                }
            }
        }
    }

    /// A rank runs. Once all do, what was saved is used up.
    pub(crate) fn restarted(&mut self) {
        let runs = |r: &crate::Rank| r.gone || r.proc.is_some();
        if self.saving.restarting && self.ranks.all.iter().all(runs) {
            self.saving.restarting = false;
            self.saving.is_saved = false;
            if self.checkpoints.coordinated.is_some() || self.many() {
                // It stays for as long as it is of use.
                return;
            }
            if let Err(error) = self.outside.files.remove(home::SAVED) {
                tracing::warn!(%error, "what was saved stays");
            } else {
                self.outside.files.forget_local_images();
            }
            self.forget_segment(self.saving.count);
        }
    }

    /// Of a job that is over: nobody is to go on with it, nor with what is just being brought.
    pub(crate) fn forget_saved(&mut self) {
        self.stop_flush();
        self.checkpoints.stop_coordinated();
        self.remove_file(home::SAVED);
        self.clear_depot();
    }

    /// Of a job that could not go on: what was kept of it stays, and the user is told.
    pub(crate) fn leave_saved(&mut self) {
        let held = !self.many() || self.saving.archive.holds();
        let stored = || Some(self.saved_to()?).filter(|to| to.unix_ms.is_some());
        let stored = stored().map(|to| to.place);
        let here =
            (held && self.outside.files.length(home::SAVED).is_some()).then_some(&self.place.id);
        let go_on: Vec<String> =
            here.into_iter().chain(&stored).map(|from| format!("eyrie restart {from}")).collect();
        if !go_on.is_empty() {
            let go_on = go_on.join(", or from the object store: ");
            self.saving.is_saved = true;
            self.journal.say(format!("to go on from what was saved of the job: {go_on}"));
        }
    }

    fn forget_segment(&self, number: u32) {
        self.remove_image_file(&saved_job::segment_name(number));
    }

    /// Removes a file of the job's folder. One that is not there, or stays, costs room only.
    pub(crate) fn remove_file(&self, name: &str) {
        let _ = self.outside.files.remove(name);
    }

    /// The same in the folder of images.
    pub(crate) fn remove_image_file(&self, name: &str) {
        self.remove_file(&format!("{}/{name}", home::IMAGES));
    }
}
