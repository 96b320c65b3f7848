//! The archive of a job over nodes: the folder of images beside what the controller saves, which
//! holds one image of every rank with its log while the job does not run, and until its nodes hold
//! all of it again.
//!
//! Kept true: nothing in it is given up before what is in its stead is on disk, or on nodes; while
//! it holds the job, ranks that cannot be brought back alone go back to it, not to the beginning.

use super::journal::Entry;
use super::nodes::State;
use super::{BeginError, Job, Msg, Node};
use crate::crew::Daemon;
use crate::depot::Redirects;
use crate::files;
use crate::home;
use crate::membership::Member;
use crate::monitor;
use crate::points;
use crate::recovery::{ARCHIVE, Planner, Saved};
use crate::replicas::Words;
use crate::retention::Retention;
use crate::saved::{SavedJob, SavedRank};
use crate::store::Members;
use eyrie_control::node::{Determinants, ToNode};
use eyrie_control::{Delivered, Stored, StoredFile};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

/// Images, each with all of its files: ranks and generations.
pub(super) type Needed = BTreeSet<(u32, u32)>;

/// Where it is, and what is in it.
#[derive(Default)]
pub(super) struct Archive {
    /// Where nodes reach it; none: it is not open.
    places: Vec<SocketAddr>,
    /// Who may.
    members: Members,
    /// What ranks are brought back from; none: nothing is to be.
    content: Option<Vec<SavedRank>>,
    /// Files of that which are in an object store, and not in the folder.
    stored: Option<Stored>,
    /// The same, as those are told who ask for one.
    elsewhere: Arc<Redirects>,
    /// Numbers of attempts to save the job.
    attempts: u32,
    /// What is saved is of no use any more.
    outgrown: bool,
    /// Of another's job that goes on here: how often it was saved by the journal.
    noted: u32,
}

/// What another controller needs to know of it; its content is what is saved.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    places: Vec<SocketAddr>,
    holds: bool,
    attempts: u32,
}

impl Kept {
    /// What lay on another machine is not here.
    pub(super) fn leave_behind(&mut self) {
        (self.places, self.holds) = (Vec::new(), false);
    }
}

impl Archive {
    pub(super) fn kept(&self) -> Kept {
        let (places, attempts) = (self.places.clone(), self.attempts);
        Kept { places, holds: self.holds(), attempts }
    }

    pub(super) fn of(ranks: Vec<SavedRank>, stored: Option<Stored>) -> Archive {
        Archive { content: Some(ranks), stored, ..Archive::default() }
    }

    /// Who asks for what is in an object store is told so from now on. `key`: the file with what
    /// that is encrypted with.
    pub(super) fn redirect(&self, key: Option<&str>) {
        self.elsewhere.set(self.stored.as_ref(), key);
    }

    /// Whether some of it is in an object store only.
    pub(super) fn has_stored(&self) -> bool {
        self.stored.is_some()
    }

    /// Whether ranks can be brought back from it.
    pub(super) fn holds(&self) -> bool {
        self.content.is_some()
    }

    /// Whether nodes reach it.
    pub(super) fn is_open(&self) -> bool {
        !self.places.is_empty()
    }

    /// What is in it from now on.
    pub(super) fn hold(&mut self, saved: SavedJob) {
        (self.content, self.stored) = (Some(saved.ranks), saved.stored);
    }

    /// The number of the next attempt to bring something here.
    pub(super) fn next_attempt(&mut self) -> u32 {
        self.attempts += 1;
        self.attempts
    }

    /// The newest generation in it.
    pub(super) fn newest(&self) -> u32 {
        let newest = |saved: &SavedRank| Some(saved.retention.newest()?.generation);
        self.content.iter().flatten().filter_map(newest).max().unwrap_or(0)
    }

    /// Whether this image of a rank is what it is brought back from.
    pub(super) fn is_of(&self, rank: u32, generation: u32) -> bool {
        let saved = self.content.as_ref().and_then(|ranks| ranks.get(rank as usize));
        saved.and_then(|s| s.retention.newest()).is_some_and(|k| k.generation == generation)
    }
}

/// What nodes are bringing.
pub(super) struct Collecting {
    attempt: u32,
    left: BTreeSet<u32>,
    words: BTreeMap<u32, Determinants>,
}

impl Job {
    /// Lets nodes reach the archive.
    pub(super) fn open_archive(&mut self) -> io::Result<()> {
        let images = self.images();
        let mut folder = std::fs::DirBuilder::new();
        folder.recursive(true).mode(0o700).create(&images)?;
        let crew = self.crew.as_ref().ok_or_else(|| io::Error::other("it has no nodes"))?;
        let Archive { members, elsewhere, places, .. } = &mut self.archive;
        crew.open_archive(&images, members, elsewhere, places)?;
        self.tell_archive();
        Ok(())
    }

    pub(super) fn images(&self) -> PathBuf {
        self.place.folder.join(home::IMAGES)
    }

    /// Tells the nodes where the archive is.
    pub(super) fn tell_archive(&self) {
        let archive = &self.archive;
        let Some(crew) = self.crew.as_ref().filter(|_| archive.is_open()) else { return };
        let live = self.nodes.iter().filter(|n| n.state == State::Live);
        let members = live.filter_map(|n| n.peer).map(|p| (p.node, p.epoch, p.store)).collect();
        *archive.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
        for (number, node) in (0u32..).zip(&self.nodes) {
            let place = crew.reached_at(number);
            let at = archive.places.iter().find(|a| Some(a.ip()) == place);
            at.iter().for_each(|at| node.send(ToNode::Archive { at: **at }));
        }
    }

    /// No process is left, and all ranks have their images: has all of it brought here.
    pub(super) fn collect(&mut self) {
        if !self.all_in_place() {
            return self.not_collected("a node is lost");
        }
        if let Err(error) = self.open_archive() {
            return self.not_collected(&format!("{}: {error}", self.images().display()));
        }
        self.stop_flush();
        self.clear_leftovers();
        let attempt = self.archive.next_attempt();
        self.offer_ways(attempt, None);
        for rank in 0..self.size() {
            let newest = self.rank(rank).retention.newest().map(|k| k.generation);
            let Some(newest) = newest else {
                return self.not_collected(&format!("no image of rank {rank} is left"));
            };
            let generations = if newest > 0 { self.files_of(rank, newest) } else { Vec::new() };
            self.to_home(rank, ToNode::Deposit { attempt, rank, generations });
        }
        let left = (0..self.size()).collect();
        let collecting = Collecting { attempt, left, words: BTreeMap::new() };
        if let Some(suspend) = &mut self.suspend {
            suspend.collecting = Some(collecting);
        }
    }

    fn collecting(&mut self) -> Option<&mut Collecting> {
        self.suspend.as_mut()?.collecting.as_mut()
    }

    /// A node died while it was bringing what it has.
    pub(super) fn watch_collecting(&mut self) {
        if self.collecting().is_some() && !self.all_in_place() {
            self.not_collected("a node is lost");
        }
    }

    /// Whether all ranks are where their newest images and logs are.
    fn all_in_place(&self) -> bool {
        let out = self.suspend.as_ref().is_some_and(|s| s.swapped);
        self.planner.as_ref().is_some_and(|p| p.placed() || (out && p.rests()))
    }

    /// A node has brought what there was of a rank, or could not.
    pub(super) fn deposited(
        &mut self,
        attempt: u32,
        rank: u32,
        result: Result<Box<Delivered>, String>,
    ) {
        if self.flush.is_at(attempt) {
            return self.brought(attempt, rank, result);
        }
        let awaited = |c: &&mut Collecting| c.attempt == attempt && c.left.contains(&rank);
        let Some(collecting) = self.collecting().filter(awaited) else { return };
        match result {
            Err(why) => self.not_collected(&format!("rank {rank}: {why}")),
            Ok(delivered) => {
                collecting.left.remove(&rank);
                collecting.words.insert(rank, delivered.determinants);
                if collecting.left.is_empty()
                    && let Err(error) = self.sync_archive(attempt, self.needed_now())
                {
                    self.not_collected(&error.to_string());
                }
            }
        }
    }

    /// All is here: makes it outlive the machine, in a thread, which tells `Archived`.
    pub(super) fn sync_archive(&self, attempt: u32, needed: Needed) -> io::Result<()> {
        let images = self.images();
        let tell = self.tell.clone();
        let work = move || {
            let result = sync(&images, &needed).map_err(|e| format!("{}: {e}", images.display()));
            let _ = tell.send(Msg::Archived { attempt, result });
        };
        std::thread::Builder::new().name(String::from("eyrie-sync")).spawn(work).map(drop)
    }

    /// All of the archive is on disk, or cannot be: commits it.
    pub(super) fn archived(&mut self, attempt: u32, result: Result<u64, String>) {
        if self.flush.is_at(attempt) {
            return self.flushed(result);
        }
        let Some(collecting) = self.collecting().filter(|c| c.attempt == attempt) else { return };
        let words = std::mem::take(&mut collecting.words);
        points::reach("save-1");
        let written = result.and_then(|bytes| {
            let mut state = self.newest_state().map_err(|e| e.to_string())?;
            put_words(&mut state, words);
            self.write_saved(&state).map(|()| (state.number, bytes))
        });
        match written {
            Ok((number, bytes)) => {
                clear_but(&self.images(), &self.needed_now());
                self.saved(number, bytes);
                points::reach("save-2");
            }
            Err(why) => self.not_collected(&why),
        }
    }

    /// What the controller knows, with the newest image of each rank.
    pub(super) fn newest_state(&self) -> io::Result<SavedJob> {
        let mut state = self.saved_state(self.saves + 1)?;
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
    pub(super) fn clear_archive(&self) {
        clear_but(&self.images(), &self.archived_now());
    }

    /// What another attempt left might pass for a part of the next one.
    pub(super) fn clear_leftovers(&self) {
        let needed = self.archived_now();
        clear(&self.images(), |name| is_of(&needed, name) || is_part(name));
    }

    /// What is in it.
    fn archived_now(&self) -> Needed {
        self.archive.content.as_deref().map(needed).unwrap_or_default()
    }

    /// What the newest image of every rank consists of.
    fn needed_now(&self) -> Needed {
        let ranks = (0u32..).zip(&self.ranks);
        let newest = ranks.filter_map(|(rank, r)| Some((rank, r.retention.newest()?.generation)));
        let newest = newest.filter(|n| n.1 > 0);
        let files = |(rank, g)| self.files_of(rank, g).into_iter().map(move |file| (rank, file));
        newest.flat_map(files).collect()
    }

    /// All nodes have joined: all ranks come back from the archive, if it holds the job.
    pub(super) fn plan_from_archive(&mut self, members: &[Member]) -> bool {
        let Some(content) = &self.archive.content else { return false };
        let of = |(saved, r): (&SavedRank, &super::Rank)| Saved {
            generation: saved.retention.newest().map_or(0, |k| k.generation),
            words: saved
                .words
                .clone()
                .map(|(first, words)| Words { first, words })
                .unwrap_or_default(),
            incarnation: r.incarnation,
        };
        let saved = content.iter().zip(&self.ranks).map(of).collect();
        let mut planner = self.planner.take().unwrap_or_else(|| self.new_planner(members));
        let todo = planner.restart(members.to_vec(), saved);
        self.note(|| Entry::Planner(Box::new(planner.clone())));
        self.planner = Some(planner);
        self.carry_out(todo, false);
        true
    }

    /// All go back: to the archive, if it holds the job.
    pub(super) fn back_to_archive(&mut self) {
        let Some(content) = &self.archive.content else { return };
        for (r, saved) in self.ranks.iter_mut().zip(content) {
            r.retention.go_back_to(&saved.retention);
        }
    }

    /// Gives the archive up as soon as nodes hold all that it takes to do without.
    pub(super) fn outgrow_archive(&mut self) {
        let stays = self.restarting || self.suspend.is_some() || !self.archive.holds();
        // The next set that is brought takes its place; what was just saved has done so.
        let stays = stays || self.flushes() || self.is_saved;
        if stays || !self.planner.as_ref().is_some_and(Planner::outgrew_archive) {
            return;
        }
        self.leave_archive();
        (self.archive.content, self.archive.stored) = (None, None);
        self.archive.outgrown = true;
    }

    /// What is in the archive is no copy of an image any more.
    pub(super) fn leave_archive(&mut self) {
        let Some(planner) = &mut self.planner else { return };
        planner.leave_archive();
        let planner = planner.clone();
        self.note(|| Entry::Planner(Box::new(planner)));
    }

    /// What was brought here after the last record is in the place of what the planner knows to be
    /// here, as when it was brought (`flush_counts`).
    pub(super) fn leave_outdated(&mut self) {
        if self.saves > self.archive.noted {
            self.leave_archive();
        }
    }

    /// Has what is saved removed, if nothing hangs on it.
    pub(super) fn forget_unneeded(&mut self) {
        self.archive.outgrown |=
            !self.archive.holds() && self.place.folder.join(home::SAVED).exists();
    }

    /// Whether this turn found that what is saved is of no use any more.
    pub(super) fn take_outgrown(&mut self) -> bool {
        std::mem::take(&mut self.archive.outgrown)
    }

    /// Removes what is saved, once it is durable that nothing hangs on it.
    pub(super) fn remove_outgrown(&self) {
        let path = self.place.folder.join(home::SAVED);
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!(%error, "what was saved stays");
        }
        self.clear_archive();
    }

    /// The archive as the dead controller left it. It is open where that had it.
    pub(super) fn take_archive(&mut self, kept: Kept) -> Result<(), BeginError> {
        (self.archive.attempts, self.archive.noted) = (kept.attempts, self.saves);
        if kept.holds {
            let mut saved = SavedJob::read(&self.place.folder)?;
            settle(&mut saved, &self.place.folder);
            // It may have been written just before the other's end.
            self.saves = self.saves.max(saved.number);
            self.archive.hold(saved);
            self.archive.redirect(self.spec.save_key.as_deref());
        }
        let (images, members) = (self.images(), Arc::clone(&self.archive.members));
        let elsewhere = Arc::clone(&self.archive.elsewhere);
        for (place, crew) in kept.places.iter().zip(self.crew.iter().cycle()) {
            crew.serve_archive(*place, &images, &members, &elsewhere)
                .map_err(BeginError::Daemon)?;
        }
        self.archive.places = kept.places;
        Ok(())
    }

    /// What the dead controller was about when it saved the job. Whether that is saved.
    pub(super) fn was_saved(&mut self) -> bool {
        // By the number that was written down: `saves` may be that of this very state already.
        let next = self.archive.noted + 1;
        let newest = |r: &Retention| r.newest().map(|kept| kept.generation);
        let stood = self.ranks.iter().map(|r| newest(&r.retention));
        let saved = SavedJob::read(&self.place.folder).ok().filter(|saved| {
            let ranks = saved.ranks.iter().map(|r| newest(&r.retention));
            saved.number == next && ranks.eq(stood)
        });
        let Some(saved) = saved else { return false };
        clear_but(&self.images(), &needed(&saved.ranks));
        self.saved(saved.number, 0);
        true
    }

    /// The daemons here of a job that is saved: the storage of each goes with it, and must not go
    /// when there is another in its place.
    pub fn daemons_to_await(&self) -> Vec<Arc<OwnedFd>> {
        let daemons = self.nodes.iter().filter(|_| self.is_saved).filter_map(|n| n.daemon.as_ref());
        daemons.filter(|d| d.host().is_none()).map(|d| Arc::clone(&d.pidfd)).collect()
    }

    /// The daemons here that have not ended what they had, as they never called, or too late to be
    /// told: they would look for a controller that there is not any more, and be waited for.
    /// Nothing runs on them.
    pub fn stragglers(&self) -> Vec<Daemon> {
        let astray = |n: &&Node| n.state == State::Joining && n.finished.is_none();
        let daemons = self.nodes.iter().filter(astray).filter_map(|n| n.daemon.as_ref());
        daemons.filter(|d| d.host().is_none()).cloned().collect()
    }

    /// What is saved of a rank is damaged: there is no other copy.
    pub(super) fn archive_bad(&mut self, at: Member, rank: u32, why: &str) -> bool {
        let bad = at == ARCHIVE;
        if bad {
            self.fatal(format!("the job cannot be restarted: the image of rank {rank}: {why}"));
        }
        bad
    }
}

/// What saved ranks are brought back from.
pub(super) fn needed(ranks: &[SavedRank]) -> Needed {
    let of = |(rank, saved): (u32, &SavedRank)| {
        saved.retention.files().into_iter().map(move |file| (rank, file))
    };
    (0u32..).zip(ranks).flat_map(of).collect()
}

/// Nothing hangs on an object store that has no more of a state than lies in the job's folder,
/// where it was fetched to.
pub(super) fn settle(state: &mut SavedJob, folder: &Path) {
    let is_here = |file: &StoredFile| {
        std::fs::metadata(folder.join(&file.name)).is_ok_and(|here| here.len() == file.bytes)
    };
    let hangs = |stored: &Stored| !stored.files.iter().all(is_here);
    state.stored = state.stored.take().filter(hangs);
}

/// Ranks of a state whose images are in an object store.
pub(super) fn stored_ranks(state: &SavedJob) -> BTreeSet<u32> {
    let images = format!("{}/", home::IMAGES);
    let all = state.stored.iter().flat_map(|stored| &stored.files);
    let named = all.filter_map(|f| files::parse(f.name.strip_prefix(&images)?));
    named.map(|named| named.rank).collect()
}

/// Names of the files of all that is needed; an error unless all of them are there.
pub(super) fn names(images: &Path, needed: &Needed) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for (rank, file) in needed {
        names.extend(files::all(images, *rank, *file).map_err(io::Error::other)?);
    }
    Ok(names)
}

/// All that is recorded of ranks belongs to what is saved of them.
pub(super) fn put_words(state: &mut SavedJob, mut words: BTreeMap<u32, Determinants>) {
    for (rank, saved) in (0u32..).zip(&mut state.ranks) {
        saved.words = words.remove(&rank).map(|d| (d.first, d.words));
    }
}

fn sync(images: &Path, needed: &Needed) -> io::Result<u64> {
    let mut bytes = 0;
    for name in names(images, needed)? {
        let file = File::open(images.join(name))?;
        file.sync_all()?;
        bytes += file.metadata()?.len();
    }
    File::open(images)?.sync_all()?;
    Ok(bytes)
}

/// Whether a file is still being written, or was when its writer died.
fn is_part(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Whether a file belongs to what is needed.
fn is_of(needed: &Needed, name: &OsStr) -> bool {
    files::parse_os(name).is_some_and(|named| needed.contains(&(named.rank, named.generation)))
}

/// Removes all files but those of these.
fn clear_but(images: &Path, needed: &Needed) {
    clear(images, |name| is_of(needed, name));
}

fn clear(images: &Path, stays: impl Fn(&OsStr) -> bool) {
    let Ok(list) = std::fs::read_dir(images) else { return };
    for entry in list.flatten().filter(|e| !stays(&e.file_name())) {
        let _ = std::fs::remove_file(entry.path());
    }
}
