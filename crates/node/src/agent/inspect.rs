//! A pass over the images that lie here: all that they need is read and held against its checksums.
//!
//! Kept true: no more is read in a second than was said; what is sound is left as it is; a damaged
//! file is removed only where another copy is named, which comes in its place before anything is
//! told; what cannot be read for want of something here is not called damaged; a later pass ends an
//! earlier one, of which nothing is told any more.

use super::death::{Over, check_image};
use super::elsewhere::Elsewhere;
use super::{Agent, Msg, unfit};
use crate::files::{self, image_path, log_of};
use crate::store::{Identity, Members};
use crate::vault::Pace;
use eyrie_control::node::{Choice, FromNode};
use eyrie_control::vault::{Condition, Inspect, Inspection, Report};
use eyrie_image::{Image, ImageError};
use eyrie_ledger::saved;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How soon one that waits for its turn to read notices that it is over.
const LOOK: Duration = Duration::from_millis(500);

/// What is said to a pass that is under way.
#[derive(Default)]
pub(super) struct Underway {
    over: Over,
    /// Ranks and generations of images that were given up meanwhile.
    removed: Mutex<BTreeSet<(u32, u32)>>,
}

impl Underway {
    pub fn without(&self, rank: u32, generations: &[u32]) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.extend(generations.iter().map(|generation| (rank, *generation)));
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn is_removed(&self, rank: u32, generation: u32) -> bool {
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.contains(&(rank, generation))
    }
}

/// What a pass needs.
struct Pass {
    images: PathBuf,
    job: String,
    size: u32,
    own: Identity,
    members: Members,
    archive_gone: Duration,
    state: Arc<Underway>,
    pace: Mutex<Pace>,
    write: bool,
}

/// Why an image cannot be used.
enum Flaw {
    Damage(String),
    /// This says nothing of it.
    Unread(String),
}

impl Agent {
    /// Reads these images, in a thread.
    pub(super) fn inspect(&mut self, order: Inspection) {
        let Inspection { pass, images, write, rate } = order;
        let Some(network) = &self.network else { return };
        let state: Arc<Underway> = Arc::default();
        let before = std::mem::replace(&mut self.inspection, Arc::clone(&state));
        before.over.store(true, Ordering::SeqCst);
        let all = Pass {
            images: self.place.images.clone(),
            job: self.place.id.clone(),
            size: self.size(),
            own: network.own.clone(),
            members: Arc::clone(&network.members),
            archive_gone: self.spec.controller_limit(),
            state,
            pace: Mutex::new(Pace::new(rate)),
            write,
        };
        let tell = self.tell.clone();
        let wanted: Vec<(u32, u32)> = images.iter().map(|it| (it.rank, it.generation)).collect();
        let work = move || {
            for it in images {
                let condition = all.look_into(&it);
                if all.state.is_over() {
                    return;
                }
                let (rank, generation) = (it.rank, it.generation);
                let found = Report { pass, rank, generation, write, condition };
                let _ = tell.send(Msg::Inspected(Box::new(found)));
            }
        };
        let thread = std::thread::Builder::new().name(String::from("eyrie-inspect"));
        if let Err(error) = thread.spawn(work) {
            for (rank, generation) in wanted {
                let condition = Condition::Unread(error.to_string());
                self.inspected(Report { pass, rank, generation, write, condition });
            }
        }
    }

    pub(super) fn inspected(&mut self, found: Report) {
        if found.write && matches!(found.condition, Condition::Damaged(_)) {
            // What is taken next must not build on it.
            let r = self.rank(found.rank);
            r.tracker.iter_mut().for_each(|tracker| tracker.restart());
            r.anew = r.tracker.is_none() && r.capturing.is_some();
        }
        self.say(FromNode::Inspected(found));
    }
}

impl Pass {
    /// Waits until so many bytes may be read, however long that is.
    fn wait(&self, bytes: u64) -> io::Result<()> {
        // Others that read wait for this one.
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = pace.wait(bytes, Instant::now());
        while !left.is_zero() && !self.state.is_over() {
            let now = left.min(LOOK);
            std::thread::sleep(now);
            left -= now;
        }
        match self.state.is_over() {
            true => Err(io::Error::from_raw_os_error(libc::EINTR)),
            false => Ok(()),
        }
    }

    fn look_into(&self, it: &Inspect) -> Condition {
        let why = match self.check(it) {
            Ok(()) => return Condition::Sound,
            Err(Flaw::Unread(why)) => return Condition::Unread(why),
            Err(Flaw::Damage(why)) => why,
        };
        if self.state.is_removed(it.rank, it.generation) {
            return Condition::Unread(String::from("it is not needed any more"));
        }
        let elsewhere = it.fetch.from.filter(|node| *node != self.own.node);
        if !self.write || elsewhere.is_none() || self.state.is_over() {
            return Condition::Damaged(why);
        }
        files::remove(&self.images, it.rank, &self.damaged(it));
        let store = Elsewhere {
            own: self.own.clone(),
            members: Arc::clone(&self.members),
            images: self.images.clone(),
            rank: it.rank,
            archive_gone: self.archive_gone,
            over: Arc::clone(&self.state.over),
        };
        let check = || check_image(&self.images, &self.job, it.rank, it.generation, self.size);
        match store.obtain(&it.fetch, it.generation, &self.job, check) {
            Some(Choice::Image(_)) => Condition::Repaired(why),
            Some(Choice::Refused { why: other, .. } | Choice::Unfit(other)) => {
                Condition::Damaged(format!("{why}; another copy does not help: {other}"))
            }
            _ => Condition::Damaged(format!("{why}; the other copy is gone")),
        }
    }

    fn check(&self, it: &Inspect) -> Result<(), Flaw> {
        let flaw = |error: ImageError| match unfit::is_unread(&error) {
            true => Flaw::Unread(error.to_string()),
            false => Flaw::Damage(error.to_string()),
        };
        let path = image_path(&self.images, it.rank, it.generation);
        Image::open_at_pace(&path, &|bytes| self.wait(bytes)).map_err(flaw)?;
        if !it.fetch.log {
            return Ok(());
        }
        let failed = |error: &io::Error| match unfit::lacks(error) {
            true => Flaw::Unread(format!("its log: {error}")),
            false => Flaw::Damage(format!("its log: {error}")),
        };
        let log = File::open(log_of(&path)).map_err(|e| failed(&e))?;
        let bytes = log.metadata().map_err(|e| failed(&e))?.len();
        self.wait(bytes).map_err(|e| failed(&e))?;
        saved::load(&log, &self.job).map(drop).map_err(|error| match &error {
            saved::SavedError::Io(source) => failed(source),
            _ => Flaw::Damage(format!("its log: {error}")),
        })
    }

    /// Generations whose files are damaged here by themselves, else the image's own.
    fn damaged(&self, it: &Inspect) -> Vec<u32> {
        let is_bad = |generation: &u32| {
            let lying = files::lying(&self.images, it.rank, *generation);
            lying.is_empty() || lying.iter().any(|path| Image::verify_own(path).is_err())
        };
        let bad: Vec<u32> = it.fetch.files.iter().copied().filter(is_bad).collect();
        if bad.is_empty() { vec![it.generation] } else { bad }
    }
}
