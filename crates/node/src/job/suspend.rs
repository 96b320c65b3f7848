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

use super::archive::{self, Archive};
use super::together::Together;
use super::{Ask, Job, fallback};
use crate::home;
use crate::monitor;
use crate::outlet::Outlet;
use crate::saved::{self, SavedJob, SavedRank};
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, JobSpec, NodeMsg, Stream};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Variables that are secrets, and those of whoever goes on.
const KEYS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// The saving of a job that is under way.
#[derive(Default)]
pub(super) struct Suspend {
    /// A client that waits for it.
    outlet: Option<Outlet>,
    /// Every rank has its last checkpoint.
    checkpointed: bool,
    /// No process is left.
    pub(super) stands: bool,
    /// The segment is being written.
    writing: bool,
    /// Each rank has its last checkpoint by itself: there is no snapshot of all of them.
    apart: bool,
    /// Its memory was out: ranks have no process, and stay without one.
    pub(super) swapped: bool,
    /// Over nodes: these bring what they have.
    pub collecting: Option<super::archive::Collecting>,
}

impl Suspend {
    /// Whether the last checkpoint is to be one of all ranks together.
    pub(super) fn takes_snapshot(&self) -> bool {
        !self.apart && !self.checkpointed && !self.swapped
    }

    /// There was none: each rank has its own.
    pub(super) fn takes_no_snapshot(&mut self) {
        self.apart = true;
    }
}

/// The job's description as it began: nodes that joined since are not among those that it is
/// restarted on.
fn as_begun(spec: &JobSpec) -> JobSpec {
    let mut spec = spec.clone();
    let nodes = (spec.nodes + spec.spares) as usize;
    spec.hosts.iter_mut().for_each(|hosts| hosts.list.truncate(nodes));
    spec.clusters.of.truncate(nodes);
    spec
}

impl Job {
    /// Has the job saved, and ended when that is done.
    pub fn checkpoint_and_end(&mut self, outlet: Option<Outlet>) -> Result<(), String> {
        if let Some(why) = self.not_to_be_saved() {
            return Err(why);
        }
        let swapped = self.is_swapped();
        self.say(match swapped {
            true => "saving the job by the checkpoints that its memory went to, to end it",
            false => "checkpointing all ranks, to save the job and end it",
        });
        let suspend = Suspend { outlet: outlet.clone(), swapped, ..Suspend::default() };
        self.suspend = Some(suspend);
        if self.spec.input_is_file {
            self.input.take_all();
            self.pump_input();
        }
        if swapped {
            self.all_checkpointed(None);
            return Ok(());
        }
        let mut left = Vec::new();
        for r in 0..self.size() {
            if !self.rank(r).gone {
                self.scheduler.request(self.units.turn(r));
                left.push((r, self.rank(r).capturing.unwrap_or(0)));
            }
        }
        self.asks.push(Ask { outlet, left, ends: true, failed: None });
        self.together.iter_mut().for_each(Together::request);
        self.schedule();
        Ok(())
    }

    fn not_to_be_saved(&self) -> Option<String> {
        if self.suspend.is_some() {
            return Some(String::from("it is being saved already, which goes on"));
        }
        if !self.spec.ft.protects() {
            return Some(format!("it runs with --ft {}", self.spec.ft.name()));
        }
        if self.spec.at_rest.goes_with_nodes() {
            let why = "its images are to be nowhere but on its nodes (--encrypt-at-rest)";
            return Some(String::from(why));
        }
        if let Some(why) = &self.unprotected {
            return Some(format!("it runs without protection: {why}"));
        }
        if !self.monitor.running() {
            return Some(format!("it is {}", self.monitor.phase()));
        }
        if let Err(why) = self.out_whole() {
            return Some(why);
        }
        if let Some(node) = self.leaves.keys().next() {
            return Some(format!("node {node} is leaving: ask again when it has left"));
        }
        self.no_more_together()
    }

    /// Every rank has its checkpoint, or one has none.
    pub(super) fn all_checkpointed(&mut self, failed: Option<String>) {
        if let Some(why) = failed {
            return self.not_saved(&why);
        }
        self.suspend.iter_mut().for_each(|s| s.checkpointed = true);
        self.suspend_when_ready();
    }

    /// Goes on with the saving as soon as nothing is in the way.
    pub(super) fn suspend_when_ready(&mut self) {
        self.outgrow_archive();
        self.watch_collecting();
        let input_is_known = !self.spec.input_is_file || self.input.known().1;
        let Some(suspend) = &mut self.suspend else { return };
        if suspend.stands {
            // Images that are on their way to their partners arrive, or are copied elsewhere.
            self.tick_plan();
            let capturing = self.ranks.iter().any(|r| r.capturing.is_some());
            let capturing = capturing || self.fallback.is_taking();
            let Some(suspend) = &mut self.suspend else { return };
            if !capturing && !std::mem::replace(&mut suspend.writing, true) {
                if self.many() {
                    return self.collect();
                }
                if self.together.is_some() {
                    return self.set_saved();
                }
                let name = saved::segment_name(self.saves + 1);
                self.to_all(&ToNode::SaveSegment { name });
            }
        } else if suspend.checkpointed && input_is_known && self.monitor.running() {
            if let Some(why) = self.unprotected.clone() {
                return self.not_saved(&why);
            }
            // From that record on the next state in the folder is that of the saved job.
            self.stop_flush();
            self.step(monitor::Input::Save);
        }
    }

    /// No process is left.
    pub(super) fn save_job(&mut self) {
        self.suspend.get_or_insert_default().stands = true;
        self.suspend_when_ready();
    }

    /// The set that ranks stopped at is on disk: what is left is what they had printed.
    fn set_saved(&mut self) {
        let Some(number) = self.together.as_ref().and_then(Together::newest) else { return };
        let written = self.saved_state(number).and_then(|s| s.write(&self.place.folder));
        match written {
            Ok(()) => self.saved(number, 0),
            Err(error) => {
                self.not_saved(&error.to_string());
                self.all_go_back();
            }
        }
    }

    /// The node has written what the ranks need of the segment, or could not.
    pub(super) fn segment_saved(&mut self, name: &str, result: Result<u64, String>) {
        if fallback::is_snapshot(name) {
            return self.snapshot_segment(name, result);
        }
        let number = self.saves + 1;
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
    pub(super) fn write_saved(&self, state: &SavedJob) -> Result<(), String> {
        self.input.sync().map_err(|e| format!("standard input: {e}"))?;
        self.leads_for_sure()?;
        state.write(&self.place.folder).map_err(|e| e.to_string())?;
        // It may have stood still meanwhile: with `--ha` nothing was saved before.
        self.leads_for_sure().inspect_err(|_| {
            let _ = std::fs::remove_file(self.place.folder.join(home::SAVED));
        })
    }

    pub(super) fn saved(&mut self, number: u32, bytes: u64) {
        self.saves = number;
        self.is_saved = true;
        let mut event = self.event(EventKind::Saved);
        event.bytes = Some(bytes);
        event.generation = Some(number);
        self.log_event(event);
        if self.many() {
            self.bring_to_depot();
        }
        let id = &self.place.id;
        let elsewhere = match self.saved_to() {
            Some(to) => format!(", or, when it is there: eyrie restart {}", to.place),
            None => String::new(),
        };
        let go_on = format!("eyrie restart {id}{elsewhere}");
        self.say(format!("job {id} is saved and ends; to go on with it: {go_on}"));
        if let Some(outlet) = self.suspend.take().and_then(|s| s.outlet) {
            self.commit.answers.push((outlet, NodeMsg::Done));
        }
        self.step(monitor::Input::Saved { code: saved::EXIT_CODE });
    }

    pub(super) fn not_saved(&mut self, why: &str) {
        self.end_snapshot_hold();
        let text = format!("the job is not saved, and goes on: {why}");
        if let Some(outlet) = self.suspend.take().and_then(|s| s.outlet) {
            self.commit.answers.push((outlet, NodeMsg::Error(text.clone())));
        }
        self.say(text);
    }

    /// What the controller knows. No process of a rank is left.
    pub(super) fn saved_state(&self, number: u32) -> std::io::Result<SavedJob> {
        let environment = std::env::vars_os();
        let is_key = |name: &OsString| KEYS.iter().any(|key| name == key);
        let rank = |r: &super::Rank| SavedRank {
            gone: r.gone,
            tapes: r.tapes.clone(),
            retention: r.retention.clone(),
            recoveries: r.recoveries,
            words: None,
        };
        let mut status = self.status();
        status.phase = String::from("saved");
        Ok(SavedJob {
            spec: as_begun(&self.spec),
            working_folder: std::env::current_dir()?.into_os_string().into_vec(),
            environment: environment
                .filter(|(k, _)| !is_key(k))
                .map(|(k, v)| (k.into_vec(), v.into_vec()))
                .collect(),
            number,
            ranks: self.ranks.iter().map(rank).collect(),
            loans: self.loans.clone(),
            input: self.input.known(),
            input_hash: self.input.hash(),
            elapsed_ms: self.now_ms(),
            recoveries: self.recoveries,
            rollbacks: self.rollbacks,
            status: serde_json::to_vec(&status)?,
            stored: None,
        })
    }

    /// Takes over what is saved, before anything of the job runs.
    pub(super) fn take_over(&mut self, mut saved: SavedJob) {
        archive::settle(&mut saved, &self.place.folder);
        self.saves = saved.number;
        self.is_saved = true;
        self.restarting = true;
        self.loans = saved.loans;
        (self.recoveries, self.rollbacks) = (saved.recoveries, saved.rollbacks);
        if self.many() {
            self.archive = Archive::of(saved.ranks.clone(), saved.stored);
            self.archive.redirect(self.spec.save_key.as_deref());
            self.note_flushed();
        }
        for (rank, known) in (0u32..).zip(saved.ranks) {
            let r = self.rank(rank);
            (r.gone, r.tapes, r.retention) = (known.gone, known.tapes, known.retention);
            r.recoveries = known.recoveries;
            if self.many() {
                // What it sent last is known to itself only: it is run again.
                self.rank(rank).gone = false;
            } else if known.gone {
                self.monitor.set_gone(rank);
            }
        }
        let newest = self.ranks.iter().filter_map(|r| Some(r.retention.newest()?.generation)).max();
        let many = self.many();
        match &mut self.together {
            Some(together) if many => together.go_on_after(newest.unwrap_or(0)),
            Some(together) => {
                together.take_over(saved.number, self.ranks.iter().map(|r| r.gone).collect());
            }
            None => {}
        }
        if many || self.together.is_some() {
            self.take_over_printed();
        }
    }

    /// Brings all ranks of a saved job back.
    pub fn restart(&mut self) {
        let mut event = self.event(EventKind::Restarted);
        event.generation = Some(self.saves);
        self.log_event(event);
        if self.together.is_some() && !self.many() {
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
            if !self.rank(rank).gone {
                self.recover(rank);
            }
        }
    }

    /// What the command printed after the set was written is not printed again.
    fn take_over_printed(&mut self) {
        let printed = super::books::printed(&self.place.folder);
        for (rank, r) in (0u32..).zip(&mut self.ranks) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let tape = &mut r.tapes[stream as usize];
                let known = tape.received();
                tape.printed(printed(rank, stream));
                if self.together.is_some() || tape.received() > known {
                    tape.give_up();
                }
            }
        }
    }

    /// A rank runs. Once all do, what was saved is used up.
    pub(super) fn restarted(&mut self) {
        let runs = |r: &super::Rank| r.gone || r.proc.is_some();
        if self.restarting && self.ranks.iter().all(runs) {
            self.restarting = false;
            self.is_saved = false;
            if self.together.is_some() || self.many() {
                // It stays for as long as it is of use.
                return;
            }
            let path = self.place.folder.join(home::SAVED);
            if let Err(error) = std::fs::remove_file(path) {
                tracing::warn!(%error, "what was saved stays");
            }
            self.forget_segment(self.saves);
        }
    }

    /// Of a job that is over: nobody is to go on with it, nor with what is just being brought.
    pub(super) fn forget_saved(&mut self) {
        self.stop_flush();
        self.stop_set();
        let _ = std::fs::remove_file(self.place.folder.join(home::SAVED));
        self.clear_depot();
    }

    /// Of a job that could not go on: what was kept of it stays, and the user is told.
    pub(super) fn leave_saved(&mut self) {
        let held = !self.many() || self.archive.holds();
        let stored = || Some(self.saved_to()?).filter(|to| to.unix_ms.is_some());
        let stored = stored().map(|to| to.place);
        let here = (held && self.place.folder.join(home::SAVED).exists()).then_some(&self.place.id);
        let go_on: Vec<String> =
            here.into_iter().chain(&stored).map(|from| format!("eyrie restart {from}")).collect();
        if !go_on.is_empty() {
            let go_on = go_on.join(", or from the object store: ");
            self.is_saved = true;
            self.say(format!("to go on from what was saved of the job: {go_on}"));
        }
    }

    fn forget_segment(&self, number: u32) {
        let images = self.place.folder.join(home::IMAGES);
        let _ = std::fs::remove_file(images.join(saved::segment_name(number)));
    }
}
