//! A pass over the images that lie here: all that they need is read and held against its checksums.
//!
//! Kept true: no more is read in a second than was said; what is sound is left as it is, and so
//! are the files that it needs; another copy of a damaged file comes into a folder of its own, and
//! takes that one's place when the image was found good with it; what cannot be read for want of
//! something here is not called damaged; a later pass ends an earlier one, which then changes
//! nothing here any more without telling of it.

use super::remote_images::{Elsewhere, Wait};
use super::state::inspection::Underway;
use super::{Agent, Msg};
use eyrie_control::node::{Choice, FromNode};
use eyrie_control::vault::{Condition, Inspect, Inspection, Report};
use eyrie_exchange::image_check::check_image_knowing;
use eyrie_exchange::image_files::{self, image_path, log_of};
use eyrie_exchange::lazy_fetch;
use eyrie_exchange::store_protocol::{Identity, Members};
use eyrie_exchange::vault::Pace;
use eyrie_image::{Image, ImageError};
use eyrie_ledger::saved;
use eyrie_state::sealing;
use eyrie_state::shortage;
use eyrie_vault::record::Commit;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How soon one that waits for its turn to read notices that it is over.
const LOOK: Duration = Duration::from_millis(500);

/// What a pass needs.
struct Pass {
    number: u64,
    images: PathBuf,
    job: String,
    size: u32,
    own: Identity,
    members: Members,
    patience: Duration,
    archive_gone: Duration,
    state: Arc<Underway>,
    pace: Mutex<Pace>,
    write: bool,
    commits: Vec<Commit>,
}

/// Images of ranks that were found sound, and the files that they need.
type Sound = BTreeMap<(u32, u32), Vec<u32>>;

/// Why an image cannot be used.
enum Flaw {
    Damage(String),
    /// This says nothing of it.
    Unread(String),
}

impl Agent {
    /// Reads these images, in a thread.
    pub(super) fn inspect(&mut self, order: Inspection) {
        let Inspection { pass, images, commits, write, rate } = order;
        let Some(network) = &self.network else { return };
        let state: Arc<Underway> = Arc::default();
        let before = std::mem::replace(&mut self.images.inspection, Arc::clone(&state));
        before.over.store(true, Ordering::SeqCst);
        let all = Pass {
            number: pass,
            images: self.place.images.clone(),
            job: self.place.id.clone(),
            size: self.size(),
            own: network.own.clone(),
            members: Arc::clone(&network.members),
            patience: Duration::from_millis(self.spec.timing.intervals.retries.fetch_ms),
            archive_gone: self.spec.controller_limit(),
            state,
            pace: Mutex::new(Pace::new(rate)),
            write,
            commits,
        };
        let tell = self.tell.clone();
        let wanted: Vec<(u32, u32)> = images.iter().map(|it| (it.rank, it.generation)).collect();
        let work = move || {
            let mut sound = Sound::default();
            for it in images {
                let (condition, bad) = all.look_into(&it);
                if all.state.is_over() {
                    return;
                }
                if condition == Condition::Sound {
                    sound.insert((it.rank, it.generation), it.fetch.files.clone());
                }
                let found = all.report(&it, condition, bad, &sound);
                let _ = tell.send(Msg::Inspected(Box::new(found)));
            }
        };
        let thread = std::thread::Builder::new().name(String::from("eyrie-inspect"));
        if let Err(error) = thread.spawn(work) {
            for (rank, generation) in wanted {
                let condition = Condition::Unread(error.to_string());
                let (needs, files, sound) = Default::default();
                let found =
                    Report { pass, rank, generation, write, needs, files, sound, condition };
                self.inspected(found);
            }
        }
    }

    pub(super) fn inspected(&mut self, found: Report) {
        if found.write && matches!(found.condition, Condition::Damaged(_)) {
            // What is taken next must not build on it.
            self.withdraw(found.rank, &found.files);
            let r = self.rank(found.rank);
            r.capture.tracker.iter_mut().for_each(|tracker| tracker.restart());
            r.capture.anew = r.capture.tracker.is_none() && r.capture.generation.is_some();
            // Nor does what is being taken count if it does.
            if r.capture.generation.is_some() {
                r.capture.spoilt.extend(&found.files);
            }
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

    /// How it is, and which of its files are damaged and stay so.
    fn look_into(&self, it: &Inspect) -> (Condition, Vec<u32>) {
        lazy_fetch::settle(&self.images, it.rank, &it.fetch.files);
        let why = match self.check(it) {
            Ok(()) => return (Condition::Sound, Vec::new()),
            Err(Flaw::Unread(why)) => return (Condition::Unread(why), Vec::new()),
            Err(Flaw::Damage(why)) => why,
        };
        if self.state.is_removed(it.rank, it.generation) {
            return (Condition::Unread(String::from("it is not needed any more")), Vec::new());
        }
        if !self.write || self.state.is_over() {
            return (Condition::Damaged(why), Vec::new());
        }
        let bad = self.damaged(it);
        if it.fetch.from.is_none_or(|node| node == self.own.node) {
            return (Condition::Damaged(why), bad);
        }
        match self.repair(it, &bad) {
            Ok(()) => (Condition::Repaired(why), Vec::new()),
            Err(other) => (Condition::Damaged(format!("{why}; {other}")), bad),
        }
    }

    /// What is told of it. What is damaged goes, but for what sound images need.
    fn report(&self, it: &Inspect, condition: Condition, bad: Vec<u32>, sound: &Sound) -> Report {
        let (rank, generation) = (it.rank, it.generation);
        let of_rank = sound.range((rank, 0)..=(rank, u32::MAX));
        let (mut needing, mut needed) = (Vec::new(), BTreeSet::<u32>::new());
        for ((_, generation), files) in of_rank {
            if files.iter().any(|file| bad.contains(file)) {
                needing.push(*generation);
                needed.extend(files);
            }
        }
        let gone: Vec<u32> = bad.iter().copied().filter(|file| !needed.contains(file)).collect();
        image_files::remove(&self.images, rank, &gone);
        let (pass, write, needs) = (self.number, self.write, it.fetch.files.clone());
        Report { pass, rank, generation, write, needs, files: bad, sound: needing, condition }
    }

    /// Has another copy come in place of what is damaged, or says why that does not help.
    fn repair(&self, it: &Inspect, bad: &[u32]) -> Result<(), String> {
        let own = format!(".anew-{}", self.number);
        let anew = self.images.join(own);
        // One that was broken off may have left something.
        let _ = std::fs::remove_dir_all(&anew);
        let made = eyrie_image::create_private_dir(&anew);
        let result = made.map_err(|e| e.to_string()).and_then(|()| self.fetch(it, bad, &anew));
        let _ = std::fs::remove_dir_all(&anew);
        result
    }

    fn fetch(&self, it: &Inspect, bad: &[u32], anew: &Path) -> Result<(), String> {
        let sound = it.fetch.files.iter().filter(|file| !bad.contains(file));
        for path in sound.flat_map(|file| image_files::lying_with_log(&self.images, it.rank, *file))
        {
            // What is not there is fetched.
            if let Some(name) = path.file_name() {
                let _ = std::fs::hard_link(&path, anew.join(name));
            }
        }
        let store = Elsewhere {
            own: self.own.clone(),
            members: Arc::clone(&self.members),
            images: anew.to_path_buf(),
            rank: it.rank,
            patience: self.patience,
            archive_gone: self.archive_gone,
            over: Arc::clone(&self.state.over),
            wait: Wait::All,
        };
        let at = (it.rank, it.generation);
        // Also what was right as it came here.
        let check = || check_image_knowing(anew, &self.job, at, self.size, |_| false);
        match store.obtain(&it.fetch(&self.commits), it.generation, &self.job, check) {
            Some(Choice::Image(_)) => self.put_in_place(it, anew).map_err(|e| e.to_string()),
            Some(Choice::Refused { why, .. } | Choice::Unfit(why)) => {
                Err(format!("another copy does not help: {why}"))
            }
            _ => Err(String::from("the other copy is gone")),
        }
    }

    fn put_in_place(&self, it: &Inspect, anew: &Path) -> io::Result<()> {
        let of = (it.rank, &it.fetch.files[..]);
        self.state.put_in_place(of, anew, &self.images, |path| File::open(path)?.sync_all())
    }

    fn check(&self, it: &Inspect) -> Result<(), Flaw> {
        let flaw = |error: ImageError| match shortage::is_unread(&error) {
            true => Flaw::Unread(error.to_string()),
            false => Flaw::Damage(error.to_string()),
        };
        let path = image_path(&self.images, it.rank, it.generation);
        Image::open_at_pace(&path, &|bytes| self.wait(bytes)).map_err(flaw)?;
        if !it.fetch.log {
            return Ok(());
        }
        let failed = |error: &io::Error| match shortage::lacks(error) {
            true => Flaw::Unread(format!("its log: {error}")),
            false => Flaw::Damage(format!("its log: {error}")),
        };
        let log = sealing::open(&log_of(&path)).map_err(|e| failed(&e))?;
        let bytes = log.metadata().map_err(|e| failed(&e))?.len();
        self.wait(bytes).map_err(|e| failed(&e))?;
        saved::load(&log, &self.job).map(drop).map_err(|error| match &error {
            saved::SavedError::Io(source) => failed(source),
            _ => Flaw::Damage(format!("its log: {error}")),
        })
    }

    /// Generations whose files are damaged here by themselves, else the image's own.
    fn damaged(&self, it: &Inspect) -> Vec<u32> {
        // What cannot be read now, also as the pass is over, is not called damaged.
        let damaged = |path: &PathBuf| {
            let read = Image::verify_own(path, &|bytes| self.wait(bytes));
            read.is_err_and(|error| !shortage::is_unread(&error))
        };
        let is_bad = |generation: &u32| {
            let lying = image_files::lying(&self.images, it.rank, *generation);
            lying.is_empty() || lying.iter().any(damaged)
        };
        let bad: Vec<u32> = it.fetch.files.iter().copied().filter(is_bad).collect();
        if bad.is_empty() { vec![it.generation] } else { bad }
    }
}
