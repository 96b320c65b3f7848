//! The archive of a job over nodes: the folder of images beside what the controller saves, which
//! holds one image of every rank with its log while the job does not run, and until its nodes hold
//! all of it again.
//!
//! Kept true: nothing in it is given up before what is in its stead is on disk, or on nodes; while
//! it holds the job, ranks that cannot be brought back alone go back to it, not to the beginning.

use crate::journal::Entry;
use crate::nodes::model::State;
use crate::outside::{Files, Needed};
use crate::saving::model::{Collecting, Kept, Saving};
use crate::{BeginError, Job, Node, monitor};
use eyrie_control::node::{Determinants, ToNode};
use eyrie_control::{Delivered, Stored, StoredFile};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{ARCHIVE, Planner, Saved};
use eyrie_protocol::replicas::Words;
use eyrie_protocol::retention::Retention;
use eyrie_state::home;
use eyrie_state::image_names;
use eyrie_state::saved_job::{SavedJob, SavedRank};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

impl Saving {
    pub fn collecting(&mut self) -> Option<&mut Collecting> {
        self.under_way.as_mut()?.collecting.as_mut()
    }

    /// What is in it.
    pub fn archived_now(&self) -> Needed {
        self.archive.content.as_deref().map(needed).unwrap_or_default()
    }

    /// Whether this turn found that what is saved is of no use any more.
    pub fn take_outgrown(&mut self) -> bool {
        std::mem::take(&mut self.archive.outgrown)
    }
}

impl Job {
    /// Lets nodes reach the archive.
    pub(crate) fn open_archive(&mut self) -> io::Result<()> {
        let places = &mut self.saving.archive.places;
        places.append(&mut self.outside.launcher.open_archive(places)?);
        self.tell_archive();
        Ok(())
    }

    /// Who asks for what is in an object store is told so from now on.
    pub(crate) fn redirect(&self) {
        let (stored, key) = (self.saving.archive.stored.as_ref(), &self.spec.security.save_key);
        self.outside.launcher.redirect(stored, key.as_deref());
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.place.folder.join(home::IMAGES)
    }

    /// Tells the nodes where the archive is.
    pub(crate) fn tell_archive(&self) {
        let archive = &self.saving.archive;
        if !archive.is_open() {
            return;
        }
        let live = self.nodes.all.iter().filter(|n| n.state == State::Live);
        let members = live.filter_map(|n| n.peer).map(|p| (p.node, p.epoch, p.store)).collect();
        self.outside.launcher.set_members(members);
        for (number, node) in (0u32..).zip(&self.nodes.all) {
            let place = self.outside.launcher.reached_at(number);
            let at = archive.places.iter().find(|a| Some(a.ip()) == place);
            at.iter().for_each(|at| node.send(ToNode::Archive { at: **at }));
        }
    }

    /// No process is left, and all ranks have their images: has all of it brought here.
    pub(crate) fn collect(&mut self) {
        if !self.all_in_place() {
            return self.not_collected("a node is lost");
        }
        if let Err(error) = self.open_archive() {
            return self.not_collected(&format!("{}: {error}", self.images().display()));
        }
        self.stop_flush();
        self.clear_leftovers();
        let attempt = self.saving.archive.next_attempt();
        self.offer_routes(attempt, false);
        for rank in 0..self.size() {
            let newest = self.ranks.rank(rank).retention.newest().map(|k| k.generation);
            let Some(newest) = newest else {
                return self.not_collected(&format!("no image of rank {rank} is left"));
            };
            let generations =
                if newest > 0 { self.ranks.files_of(rank, newest) } else { Vec::new() };
            self.nodes.to_home(rank, ToNode::Deposit { attempt, rank, generations });
        }
        let left = (0..self.size()).collect();
        let collecting = Collecting { attempt, left, words: BTreeMap::new() };
        if let Some(save) = &mut self.saving.under_way {
            save.collecting = Some(collecting);
        }
    }

    /// A node died while it was bringing what it has.
    pub(crate) fn watch_collecting(&mut self) {
        if self.saving.collecting().is_some() && !self.all_in_place() {
            self.not_collected("a node is lost");
        }
    }

    /// Whether all ranks are where their newest images and logs are.
    fn all_in_place(&self) -> bool {
        let out = self.saving.under_way.as_ref().is_some_and(|s| s.swapped);
        self.recovery.planner.as_ref().is_some_and(|p| p.placed() || (out && p.rests()))
    }

    /// A node has brought what there was of a rank, or could not.
    pub(crate) fn deposited(
        &mut self,
        attempt: u32,
        rank: u32,
        result: Result<Box<Delivered>, String>,
    ) {
        if self.saving.periodic.is_at(attempt) {
            return self.brought(attempt, rank, result);
        }
        let awaited = |c: &&mut Collecting| c.attempt == attempt && c.left.contains(&rank);
        let Some(collecting) = self.saving.collecting().filter(awaited) else { return };
        match result {
            Err(why) => self.not_collected(&format!("rank {rank}: {why}")),
            Ok(delivered) => {
                collecting.left.remove(&rank);
                collecting.words.insert(rank, delivered.determinants);
                if collecting.left.is_empty()
                    && let Err(error) = self.sync_archive(attempt, self.ranks.needed_now())
                {
                    self.not_collected(&error.to_string());
                }
            }
        }
    }

    /// All is here: makes it outlive the machine, in a thread, which tells `Archived`.
    pub(crate) fn sync_archive(&self, attempt: u32, needed: Needed) -> io::Result<()> {
        self.outside.files.sync_images(attempt, needed)
    }

    /// All of the archive is on disk, or cannot be: commits it.
    pub(crate) fn archived(&mut self, attempt: u32, result: Result<u64, String>) {
        if self.saving.periodic.is_at(attempt) {
            return self.flushed(result);
        }
        let Some(collecting) = self.saving.collecting().filter(|c| c.attempt == attempt) else {
            return;
        };
        let words = std::mem::take(&mut collecting.words);
        self.outside.reach("save-1");
        let written = result.and_then(|bytes| {
            let mut state = self.newest_state().map_err(|e| e.to_string())?;
            put_words(&mut state, words);
            self.write_saved(&state).map(|()| (state.number, bytes))
        });
        match written {
            Ok((number, bytes)) => {
                clear_but(&*self.outside.files, &self.ranks.needed_now());
                self.saved(number, bytes);
                self.outside.reach("save-2");
            }
            Err(why) => self.not_collected(&why),
        }
    }

    /// What the controller knows, with the newest image of each rank.
    pub(crate) fn newest_state(&self) -> io::Result<SavedJob> {
        let mut state = self.saved_state(self.saving.count + 1)?;
        state.ranks.iter_mut().for_each(|saved| saved.retention.only_newest());
        Ok(state)
    }

    /// The job is not saved after all, and goes on.
    fn not_collected(&mut self, why: &str) {
        self.clear_archive();
        self.not_saved(why);
        self.step(monitor::Input::NotSaved);
    }

    /// Removes what nothing would be brought back from.
    pub(crate) fn clear_archive(&self) {
        clear_but(&*self.outside.files, &self.saving.archived_now());
    }

    /// What another attempt left might pass for a part of the next one.
    pub(crate) fn clear_leftovers(&self) {
        let needed = self.saving.archived_now();
        self.outside.files.clear_images(&|name| is_of(&needed, name) || is_part(name));
    }

    /// All nodes have joined: all ranks come back from the archive, if it holds the job.
    pub(crate) fn plan_from_archive(&mut self, members: &[Member]) -> bool {
        let Some(content) = &self.saving.archive.content else { return false };
        let of = |(saved, r): (&SavedRank, &crate::Rank)| Saved {
            generation: saved.retention.newest().map_or(0, |k| k.generation),
            words: saved
                .words
                .clone()
                .map(|(first, words)| Words { first, words })
                .unwrap_or_default(),
            incarnation: r.incarnation,
        };
        let saved = content.iter().zip(&self.ranks.all).map(of).collect();
        let mut planner = self.recovery.planner.take().unwrap_or_else(|| self.new_planner(members));
        let todo = planner.restart(members.to_vec(), saved);
        self.journal.note(|| Entry::Planner(Box::new(planner.clone())));
        self.recovery.planner = Some(planner);
        self.carry_out(todo, false);
        true
    }

    /// All go back: to the archive, if it holds the job.
    pub(crate) fn back_to_archive(&mut self) {
        let Some(content) = &self.saving.archive.content else { return };
        for (r, saved) in self.ranks.all.iter_mut().zip(content) {
            r.retention.go_back_to(&saved.retention);
        }
    }

    /// Gives the archive up as soon as nodes hold all that it takes to do without.
    pub(crate) fn outgrow_archive(&mut self) {
        let stays = self.saving.restarting
            || self.saving.under_way.is_some()
            || !self.saving.archive.holds();
        // The next set that is brought takes its place; what was just saved has done so.
        let stays = stays || self.flushes() || self.saving.is_saved;
        if stays || !self.recovery.planner.as_ref().is_some_and(Planner::outgrew_archive) {
            return;
        }
        self.give_archive_up();
    }

    /// Nobody comes back from it any more.
    pub(crate) fn give_archive_up(&mut self) {
        self.leave_archive();
        (self.saving.archive.content, self.saving.archive.stored) = (None, None);
        self.saving.archive.outgrown = true;
    }

    /// What is in the archive is no copy of an image any more.
    pub(crate) fn leave_archive(&mut self) {
        let Some(planner) = &mut self.recovery.planner else { return };
        planner.leave_archive();
        let planner = planner.clone();
        self.journal.note(|| Entry::Planner(Box::new(planner)));
    }

    /// What was brought here after the last record is in the place of what the planner knows to be
    /// here, as when it was brought (`flush_counts`).
    pub(crate) fn leave_outdated(&mut self) {
        if self.saving.count > self.saving.archive.noted {
            self.leave_archive();
        }
    }

    /// Has what is saved removed, if nothing hangs on it.
    pub(crate) fn forget_unneeded(&mut self) {
        self.saving.archive.outgrown |=
            !self.saving.archive.holds() && self.outside.files.length(home::SAVED).is_some();
    }

    /// Removes what is saved, once it is durable that nothing hangs on it.
    pub(crate) fn remove_outgrown(&self) {
        if let Err(error) = self.outside.files.remove(home::SAVED) {
            tracing::warn!(%error, "what was saved stays");
        }
        self.clear_archive();
    }

    /// The archive as the dead controller left it. It is open where that had it.
    pub(crate) fn take_archive(&mut self, kept: Kept) -> Result<(), BeginError> {
        (self.saving.archive.attempts, self.saving.archive.noted) =
            (kept.attempts, self.saving.count);
        if kept.holds {
            let mut saved = self.outside.files.read_saved()?;
            settle(&mut saved, &*self.outside.files);
            // It may have been written just before the other's end.
            self.saving.count = self.saving.count.max(saved.number);
            self.saving.archive.hold(saved);
            self.redirect();
        }
        for place in &kept.places {
            self.outside.launcher.serve_archive(*place).map_err(BeginError::Daemon)?;
        }
        self.saving.archive.places = kept.places;
        Ok(())
    }

    /// What the dead controller was about when it saved the job. Whether that is saved.
    pub(crate) fn was_saved(&mut self) -> bool {
        // By the number that was written down: `saves` may be that of this very state already.
        let next = self.saving.archive.noted + 1;
        let newest = |r: &Retention| r.newest().map(|kept| kept.generation);
        let stood = self.ranks.all.iter().map(|r| newest(&r.retention));
        let saved = self.outside.files.read_saved().ok().filter(|saved| {
            let ranks = saved.ranks.iter().map(|r| newest(&r.retention));
            saved.number == next && ranks.eq(stood)
        });
        let Some(saved) = saved else { return false };
        clear_but(&*self.outside.files, &needed(&saved.ranks));
        self.saved(saved.number, 0);
        true
    }

    /// The daemons here of a job that is saved: the storage of each goes with it, and must not go
    /// when there is another in its place.
    pub fn daemons_to_await(&self) -> Vec<u32> {
        self.daemons_here(|_| self.saving.is_saved)
    }

    /// The daemons here that have not ended what they had, as they never called, or too late to be
    /// told: they would look for a controller that there is not any more, and be waited for.
    /// Nothing runs on them.
    pub fn stragglers(&self) -> Vec<u32> {
        self.daemons_here(|n| n.state == State::Joining && n.finished.is_none())
    }

    /// Nodes whose daemons are on this machine.
    fn daemons_here(&self, wanted: impl Fn(&Node) -> bool) -> Vec<u32> {
        let here = |n: &Node| n.daemon.as_ref().is_some_and(|d| d.host.is_none());
        let nodes = (0u32..).zip(&self.nodes.all).filter(|(_, n)| here(n) && wanted(n));
        nodes.map(|(node, _)| node).collect()
    }

    /// What is saved of a rank is damaged: there is no other copy.
    pub(crate) fn archive_bad(&mut self, at: Member, rank: u32, why: &str) -> bool {
        let bad = at == ARCHIVE;
        if bad {
            self.fatal(format!("the job cannot be restarted: the image of rank {rank}: {why}"));
        }
        bad
    }
}

/// What saved ranks are brought back from.
pub fn needed(ranks: &[SavedRank]) -> Needed {
    let of = |(rank, saved): (u32, &SavedRank)| {
        saved.retention.files().into_iter().map(move |file| (rank, file))
    };
    (0u32..).zip(ranks).flat_map(of).collect()
}

/// Nothing hangs on an object store that has no more of a state than lies in the job's folder,
/// where it was fetched to.
pub fn settle(state: &mut SavedJob, files: &dyn Files) {
    let is_here = |file: &StoredFile| files.length(&file.name) == Some(file.bytes);
    let hangs = |stored: &Stored| !stored.files.iter().all(is_here);
    state.stored = state.stored.take().filter(hangs);
}

/// Ranks of a state whose images are in an object store.
pub fn stored_ranks(state: &SavedJob) -> BTreeSet<u32> {
    let images = format!("{}/", home::IMAGES);
    let all = state.stored.iter().flat_map(|stored| &stored.files);
    let named = all.filter_map(|f| image_names::parse(f.name.strip_prefix(&images)?));
    named.map(|named| named.rank).collect()
}

/// All that is recorded of ranks belongs to what is saved of them.
pub(crate) fn put_words(state: &mut SavedJob, mut words: BTreeMap<u32, Determinants>) {
    for (rank, saved) in (0u32..).zip(&mut state.ranks) {
        saved.words = words.remove(&rank).map(|d| (d.first, d.words));
    }
}

/// Whether a file is still being written, or was when its writer died.
fn is_part(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Whether a file belongs to what is needed.
fn is_of(needed: &Needed, name: &OsStr) -> bool {
    image_names::parse_os(name)
        .is_some_and(|named| needed.contains(&(named.rank, named.generation)))
}

/// Removes all files but those of these.
fn clear_but(files: &dyn Files, needed: &Needed) {
    files.clear_images(&|name| is_of(needed, name));
}
