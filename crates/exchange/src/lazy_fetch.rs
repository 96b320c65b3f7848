//! Images that are restored while they come out of the vault.
//!
//! A thread reads a rank's files piece by piece: what somebody waits for at once, the rest behind
//! that. Whoever opens such a file meanwhile, as the restorer does, waits for the pieces that it
//! reads and for no others ([`eyrie_image::announce`]).
//!
//! Kept true: a file has its name when all of it is there and is what was stored, and never before;
//! what does not come is tried for a while, and then nobody waits for it any more; a file that is
//! given up goes on coming to who has it open, and gets no name.

mod reads;

use crate::image_files::{self, Named};
use crate::missing_ranges::MissingRanges;
use eyrie_image::Growing;
use eyrie_vault::record::Hash;
use reads::Reads;
use rustix::fs::FallocateFlags;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Why something is not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    #[error("more nodes are lost than the vault bears")]
    Gone,
    /// Not now, but it may come.
    #[error("{0}")]
    Later(String),
    /// What is there cannot be used.
    #[error("{0}")]
    Never(String),
}

/// Where the bytes of a file come from.
pub trait Source: Send {
    /// Bytes from `at` on, at least one.
    fn read(&mut self, at: u64) -> Result<Vec<u8>, Unread>;
    /// Nothing is read for a while.
    fn rest(&mut self);
}

/// A file that is to come.
pub struct Coming {
    pub path: PathBuf,
    pub bytes: u64,
    /// Of all of it, if that is known.
    pub hash: Option<Hash>,
    pub source: Box<dyn Source>,
}

/// Feeds that somebody may ask for, by the paths of their files.
static FEEDS: Mutex<BTreeMap<PathBuf, Arc<Inner>>> = Mutex::new(BTreeMap::new());

fn feeds() -> MutexGuard<'static, BTreeMap<PathBuf, Arc<Inner>>> {
    FEEDS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Growth {
    path: PathBuf,
    unborn: PathBuf,
    file: Arc<File>,
    bytes: u64,
    hash: Option<Hash>,
    missing: MissingRanges,
    /// Away while it is read from.
    source: Option<Box<dyn Source>>,
    /// Whoever has it open holds this.
    held: Weak<Reading>,
    /// It gets no name.
    unwanted: bool,
    /// It has its name, or will not have one.
    over: bool,
}

impl Growth {
    /// Nobody has any use for it.
    fn is_idle(&self) -> bool {
        self.over || (self.unwanted && self.held.strong_count() == 0)
    }
}

#[derive(Default)]
struct State {
    files: Vec<Growth>,
    /// What somebody waits for: number of a file, from where to where.
    wanted: VecDeque<(usize, u64, u64)>,
    /// No file is added any more.
    closed: bool,
    failed: Option<Unread>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

/// One of the files, for those who have it open.
struct Reading {
    feed: Arc<Inner>,
    number: usize,
    whole: AtomicBool,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reading").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Growing for Reading {
    fn wait(&self, at: u64, bytes: u64) -> io::Result<()> {
        if self.whole.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.feed.lock();
        let end = at.saturating_add(bytes).min(state.files[self.number].bytes);
        let mut asked = false;
        loop {
            let missing = &state.files[self.number].missing;
            if missing.first(at, end).is_none() {
                self.whole.store(missing.bytes() == 0, Ordering::Release);
                return Ok(());
            }
            if let Some(why) = &state.failed {
                return Err(io::Error::other(why.to_string()));
            }
            if !std::mem::replace(&mut asked, true) {
                state.wanted.push_back((self.number, at, end));
                self.feed.changed.notify_all();
            }
            state = self.feed.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The files of a rank that come.
pub struct LazyFetch {
    inner: Arc<Inner>,
    /// Of another search, which reads some of them already.
    joined: Vec<Arc<Inner>>,
}

impl Drop for LazyFetch {
    fn drop(&mut self) {
        self.inner.lock().closed = true;
        self.inner.changed.notify_all();
    }
}

impl LazyFetch {
    /// `patience`: how long is tried to have what does not come.
    pub fn start(patience: Duration) -> io::Result<LazyFetch> {
        let inner: Arc<Inner> = Arc::default();
        let reads = Reads::of(&inner, patience);
        std::thread::Builder::new().name("eyrie-feed".into()).spawn(move || reads.run())?;
        Ok(LazyFetch { inner, joined: Vec::new() })
    }

    /// The file of this path comes already.
    pub fn joins(&mut self, path: &Path) -> bool {
        let found = feeds().get(path).cloned();
        let other = found.filter(|other| !Arc::ptr_eq(other, &self.inner));
        let joins = eyrie_image::is_announced(path);
        self.joined.extend(other);
        joins
    }

    /// A file comes from now on. An error: there is no room for it here.
    pub fn add(&mut self, coming: Coming) -> io::Result<()> {
        // The same file may be on its way twice.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let Coming { path, bytes, hash, source } = coming;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let unborn = path.with_file_name(format!(".{name}.{count}.vault.part"));
        let made = make(&unborn, bytes).inspect_err(|_| drop(std::fs::remove_file(&unborn)))?;
        let file = Arc::new(made);
        let mut state = self.inner.lock();
        let number = state.files.len();
        let whole = AtomicBool::new(bytes == 0);
        let reading = Arc::new(Reading { feed: Arc::clone(&self.inner), number, whole });
        let held = Arc::downgrade(&reading);
        if !eyrie_image::announce(&path, Arc::clone(&file), reading) {
            drop(state);
            let _ = std::fs::remove_file(&unborn);
            self.joins(&path);
            return Ok(());
        }
        feeds().insert(path.clone(), Arc::clone(&self.inner));
        let (missing, source) = (MissingRanges::of(bytes), Some(source));
        let (unwanted, over) = (false, false);
        let growth =
            Growth { path, unborn, file, bytes, hash, missing, source, held, unwanted, over };
        state.files.push(growth);
        self.inner.changed.notify_all();
        Ok(())
    }

    /// What was added.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.inner.lock().files.iter().map(|file| file.path.clone()).collect()
    }

    /// Why it does not go on, if so.
    pub fn failed(&self) -> Option<Unread> {
        self.joined.iter().chain([&self.inner]).find_map(|inner| inner.lock().failed.clone())
    }

    /// Whether anything comes.
    pub fn is_empty(&self) -> bool {
        self.joined.is_empty() && self.inner.lock().files.is_empty()
    }

    /// Waits until all files have their names, or are given up, or why they do not come.
    pub fn finish(&self) -> Result<(), Unread> {
        for inner in self.joined.iter().chain([&self.inner]) {
            let over = |file: &Growth| file.over || file.unwanted;
            drop(inner.wait_until(|state| state.files.iter().all(over)));
        }
        self.failed().map_or(Ok(()), Err)
    }
}

/// A file with room for all that is to come.
fn make(path: &Path, bytes: u64) -> io::Result<File> {
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
    file.set_len(bytes)?;
    if bytes > 0 {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            // Not every file system can say that there is room.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) | Ok(()) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(file)
}

/// The files of an image that are on their way.
fn coming(images: &Path, rank: u32, generations: &[u32]) -> Vec<PathBuf> {
    let its = |path: &&PathBuf| {
        let named = path.file_name().and_then(image_files::parse_os);
        let is = |named: Named| named.rank == rank && generations.contains(&named.generation);
        path.parent() == Some(images) && named.is_some_and(is)
    };
    feeds().keys().filter(its).cloned().collect()
}

/// Waits until these files of a rank are there, or known not to come, if they are on their way.
pub fn settle(images: &Path, rank: u32, generations: &[u32]) {
    coming(images, rank, generations).iter().for_each(|path| settle_file(path));
}

/// The same for one file.
pub fn settle_file(path: &Path) {
    let Some(inner) = feeds().get(path).cloned() else { return };
    let is_over = |file: &Growth| file.path != path || file.over || file.unwanted;
    drop(inner.wait_until(|state| state.files.iter().all(is_over)));
}

/// An image is not wanted here: what comes of it gets no name.
pub fn give_up(images: &Path, rank: u32, generation: u32) {
    coming(images, rank, &[generation]).iter().for_each(|path| give_up_file(path));
}

fn give_up_file(path: &Path) {
    let Some(inner) = feeds().remove(path) else { return };
    let mut state = inner.lock();
    eyrie_image::withdraw(path);
    for file in state.files.iter_mut().filter(|file| file.path == path && !file.over) {
        file.unwanted = true;
        let _ = std::fs::remove_file(&file.unborn);
    }
    inner.changed.notify_all();
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until(&self, done: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let waits = |state: &mut State| state.failed.is_none() && !done(state);
        let state = self.changed.wait_while(self.lock(), waits);
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "lazy_fetch_tests.rs"]
mod tests;
