//! `$EYRIE_HOME`: the folders of jobs.
//!
//! Kept true: a job's folder is 0700 and appears under its name only once its `lock` is held; the
//! lock is held (flock, inherited) as long as the job's daemon or its CLI lives. A folder whose
//! lock is free and that has neither `ended.json` nor `saved` belongs to a job that died: it may be
//! removed. What another user could have put there is neither read, nor gone on with, nor removed.

use crate::at_rest;
use crate::folder_lock::{is_held, lock_of};
use crate::history;
use crate::local::images::{SAVED_IMAGES, settle};
use crate::nodes_lock::is_resumable;
use crate::random;
use crate::samples::SAMPLES;
use eyrie_image::{
    Untrusted, check_folder, check_plain, check_private, check_private_home, claim_lock,
};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Names the folder that all of it is in.
pub const HOME: &str = "EYRIE_HOME";
/// The same between commands and daemons of a job. Ranks do not get it.
pub const HOME_OF_JOB: &str = "EYRIE__HOME";
/// The folders of jobs.
pub const JOBS: &str = "jobs";
/// The socket of a job's daemon.
pub const SOCKET: &str = "node.sock";
/// Held while the job lives.
pub const LOCK: &str = "lock";
/// Last status of a job that was started with `--keep`.
pub const ENDED: &str = "ended.json";
/// What it takes to restart a job that was saved as a whole.
pub const SAVED: &str = "saved";
/// What was saved before that, should it turn out to be damaged.
pub const SAVED_BEFORE: &str = "saved.before";
/// How many bytes of each stream of each rank `eyrie run --ft coordinated` has printed.
pub const PRINTED: &str = "printed";
/// One event a line.
pub const EVENTS: &str = "events.jsonl";
/// What the daemon logged.
pub const LOG: &str = "node.log";
/// What the remote shell of a node said.
pub fn host_log(node: u32) -> String {
    format!("host-{node}.log")
}
/// What a new controller needs to go on, if the one that is there dies.
pub const JOURNAL: &str = "journal";
/// Locked by the controller and the nodes of a job that has a journal ([`crate::nodes_lock`]).
pub const NODES: &str = "nodes";
/// Standard input as far as it was read, for ranks that start again.
pub const STDIN: &str = "stdin";
/// Checkpoint images.
pub const IMAGES: &str = "images";
/// A node's part of the vault that keeps images.
pub const VAULT: &str = "vault";

const ALPHABET: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";
const LETTERS: u32 = 23;
const ID_LENGTH: usize = 4;
/// A folder without a held lock is only taken for dead at this age.
const UNBORN_AGE: Duration = Duration::from_secs(60);
/// How often it is tried to remove what is written to.
const REMOVALS: u32 = 100;

/// Why a job's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("neither EYRIE_HOME nor HOME is set: set EYRIE_HOME to a folder that you can write to")]
    NoHome,
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    #[error(
        "cannot keep jobs in {0}: {1}; set EYRIE_HOME to a folder that you can write to, by an \
         absolute path"
    )]
    Unusable(PathBuf, io::Error),
    #[error("no free job name found in {0}")]
    NoName(PathBuf),
    #[error("no job '{0}' (see `eyrie ps`)")]
    NoJob(String),
    #[error("job {0} is running")]
    Running(String),
    #[error("no job of that name is there: job {0} has ended (eyrie status, events, explain)")]
    Ended(String),
    #[error("{0}")]
    Record(String),
    #[error("'{0}' names more than one job: {1}")]
    Ambiguous(String, String),
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
}

/// The folder all of Eyrie's state lives under, if nobody else can write to it.
pub fn home() -> Result<PathBuf, HomeError> {
    let home = named()?;
    if fs::metadata(&home).is_ok_and(|meta| !meta.is_dir()) {
        return Err(HomeError::Unusable(home, io::ErrorKind::NotADirectory.into()));
    }
    check_private_home(&home)?;
    check_private(&home.join(JOBS))?;
    Ok(home)
}

/// Refuses the folder of a job that another user could have put there, or whose records.
fn check_job(folder: &Path) -> Result<(), Untrusted> {
    check_private(folder)?;
    [SAVED, SAVED_BEFORE, JOURNAL, NODES, LOCK, IMAGES, SAVED_IMAGES, VAULT]
        .iter()
        .try_for_each(|name| check_private(&folder.join(name)))?;
    [SAVED, SAVED_BEFORE, JOURNAL, NODES, LOCK, ENDED, EVENTS, SAMPLES, PRINTED, STDIN, LOG]
        .iter()
        .try_for_each(|name| check_plain(&folder.join(name)))?;
    [IMAGES, SAVED_IMAGES, VAULT].iter().try_for_each(|name| check_folder(&folder.join(name)))
}

/// Where that is, whether it is there or not.
pub fn named() -> Result<PathBuf, HomeError> {
    let variable = |name| std::env::var_os(name).filter(|d: &OsString| !d.is_empty());
    if let Some(dir) = variable(HOME_OF_JOB).or_else(|| variable(HOME)) {
        let dir = PathBuf::from(dir);
        return std::path::absolute(&dir).map_err(|e| HomeError::Io(dir, e));
    }
    let home = std::env::var_os("HOME").filter(|d| !d.is_empty()).ok_or(HomeError::NoHome)?;
    Ok(PathBuf::from(home).join(".eyrie"))
}

/// The folder of a new job.
#[derive(Debug)]
pub struct JobFolder {
    pub id: String,
    pub path: PathBuf,
    pub lock: File,
}

/// A job found under the home.
#[derive(Debug, Clone)]
pub struct JobEntry {
    pub id: String,
    pub path: PathBuf,
    pub alive: bool,
    /// Kept after its end.
    pub ended: bool,
    /// Can be restarted when it does not run.
    pub saved: bool,
    /// Its nodes wait for a new controller.
    pub resumable: bool,
    pub created: SystemTime,
}

pub fn private_dir(path: &Path) -> Result<(), HomeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| HomeError::Io(path.into(), e))
}

fn random_id() -> String {
    let mut id = String::with_capacity(ID_LENGTH);
    let bytes = random::bytes::<{ 4 * ID_LENGTH }>().unwrap_or_else(|| {
        let mut bytes = [0; 4 * ID_LENGTH];
        bytes[..4].copy_from_slice(&std::process::id().to_ne_bytes());
        bytes
    });
    let words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word));
    for (i, word) in words.enumerate() {
        // The first is a letter, so that a job's name is never taken for a number.
        let range = if i == 0 { LETTERS } else { ALPHABET.len() as u32 };
        id.push(char::from(ALPHABET[(word % range) as usize]));
    }
    id
}

/// Makes the folder of a new job and takes its lock.
pub fn create(home: &Path) -> Result<JobFolder, HomeError> {
    let unusable = |error| match error {
        HomeError::Io(path, error) => HomeError::Unusable(path, error),
        error => error,
    };
    let jobs = home.join(JOBS);
    private_dir(&jobs).map_err(unusable)?;
    for _ in 0..64 {
        let id = random_id();
        if history::has(home, &id) {
            continue;
        }
        if let Some(folder) = create_as(&jobs, id).map_err(unusable)? {
            return Ok(folder);
        }
    }
    Err(HomeError::NoName(jobs))
}

/// Makes the folder of a job that was saved elsewhere; it appears when all of it is there.
pub fn create_with<E>(
    home: &Path,
    id: &str,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<Result<(), E>, HomeError> {
    let jobs = home.join(JOBS);
    private_dir(&jobs)?;
    let path = jobs.join(id);
    // Its lock is held as long as it is filled: else it would pass for a dead one.
    let (unborn, _lock, _) = begin(&jobs, id)?;
    let filled = fill(&unborn);
    let moved = match &filled {
        Ok(()) if !path.exists() => fs::rename(&unborn, &path),
        Ok(()) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => Ok(()),
    };
    if filled.is_err() || moved.is_err() {
        let _ = fs::remove_dir_all(&unborn);
    }
    moved.map_err(|e| HomeError::Io(path, e))?;
    Ok(filled)
}

/// A folder that is to become that of a job, with its lock, and whether that is ours.
fn begin(jobs: &Path, id: &str) -> Result<(PathBuf, File, bool), HomeError> {
    let unborn = jobs.join(format!(".{id}-{}", std::process::id()));
    private_dir(&unborn)?;
    let path = unborn.join(LOCK);
    let mut options = OpenOptions::new();
    let lock = options.create_new(true).read(true).write(true).mode(0o600).open(&path);
    let lock = lock.map_err(|e| HomeError::Io(path, e))?;
    let locked = claim_lock(&lock);
    Ok((unborn, lock, locked))
}

/// The folder of a job of that name. None: there is one.
fn create_as(jobs: &Path, id: String) -> Result<Option<JobFolder>, HomeError> {
    let path = jobs.join(&id);
    let (unborn, lock, locked) = begin(jobs, &id)?;
    if locked && !path.exists() && fs::rename(&unborn, &path).is_ok() {
        return Ok(Some(JobFolder { id, path, lock }));
    }
    let _ = fs::remove_dir_all(&unborn);
    Ok(None)
}

/// The folder of a job that had its controller on another machine, or a dead one's here.
pub fn take_over(home: &Path, id: &str) -> Result<JobFolder, HomeError> {
    let jobs = home.join(JOBS);
    private_dir(&jobs)?;
    match create_as(&jobs, id.to_string())? {
        Some(folder) => Ok(folder),
        None => {
            check_job(&jobs.join(id))?;
            let there = entry(jobs.join(id)).ok_or_else(|| HomeError::NoJob(id.to_string()))?;
            claim(&there)
        }
    }
}

/// Has no other controller go on.
pub fn end_journal(folder: &Path) {
    for name in [JOURNAL, NODES] {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// Leaves of the folder of a job that is over what is to stay: a saved job, what tells about one
/// that is kept with what it takes to run its ranks again, each on its own, or nothing.
pub fn leave(folder: &Path) -> io::Result<()> {
    let fine = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    end_journal(folder);
    let (ended, saved) = (folder.join(ENDED).exists(), folder.join(SAVED).exists());
    if !ended && !saved {
        return fine(remove_folder(folder));
    }
    fine(fs::remove_file(folder.join(SOCKET)))?;
    if saved {
        // It may be restarted. The last status lies in what is saved.
        return settle(folder);
    }
    let (images, stdin) = (folder.join(IMAGES), folder.join(STDIN));
    // Only when no image was left in it.
    if fs::remove_dir(&images).is_ok() {
        return fine(fs::remove_file(stdin));
    }
    fine(fs::rename(stdin, images.join(STDIN)))
}

/// Whether the folder of a job that is over is to stay.
pub fn stays(folder: &Path) -> bool {
    folder.join(ENDED).exists() || folder.join(SAVED).exists() || is_resumable(folder)
}

/// Takes the lock of a saved job.
pub fn claim(job: &JobEntry) -> Result<JobFolder, HomeError> {
    let path = job.path.join(LOCK);
    // A folder that was copied may have none.
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).custom_flags(libc::O_NONBLOCK);
    let lock = options.open(&path);
    let lock = lock.map_err(|e| HomeError::Io(path, e))?;
    if !claim_lock(&lock) {
        return Err(HomeError::Running(job.id.clone()));
    }
    Ok(JobFolder { id: job.id.clone(), path: job.path.clone(), lock })
}

/// Whether a controller of the job lives, or somebody who has the next one started.
pub fn is_alive(folder: &Path) -> bool {
    is_held(&folder.join(LOCK))
}

/// The job whose folder that is.
pub fn entry(path: PathBuf) -> Option<JobEntry> {
    let id = path.file_name()?.to_str()?.to_string();
    let created = fs::metadata(path.join(LOCK)).or_else(|_| fs::metadata(&path));
    let created = created.and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let alive = is_alive(&path);
    let (ended, saved) = (path.join(ENDED).exists(), path.join(SAVED).exists());
    let resumable = !alive && is_resumable(&path);
    Some(JobEntry { id, path, alive, ended, saved, resumable, created })
}

/// All jobs, oldest first; folders of jobs that died are removed on the way.
pub fn jobs(home: &Path) -> Vec<JobEntry> {
    let Ok(list) = fs::read_dir(home.join(JOBS)) else { return Vec::new() };
    let trusted = list.filter_map(|e| Some(e.ok()?.path())).filter(|p| check_job(p).is_ok());
    let mut found: Vec<JobEntry> = trusted.filter_map(entry).filter(|e| e.path.is_dir()).collect();
    found.retain(|job| {
        let unborn = job.id.starts_with('.');
        let young = job.created.elapsed().map_or(true, |age| age < UNBORN_AGE);
        let dead = !job.alive && !job.ended && !job.saved && !job.resumable;
        if dead && !(unborn && young) && clear_dead(&job.path) {
            return false;
        }
        !unborn
    });
    found.sort_by_key(|job| job.created);
    found
}

/// The newest job that is not among them, as another user could have put something of it there, or
/// as a file of it is none: when it was made, and why.
fn left_out(home: &Path) -> Option<(SystemTime, Untrusted)> {
    let list = fs::read_dir(home.join(JOBS)).ok()?;
    let why = |path: PathBuf| Some((check_job(&path).err()?, entry(path)?));
    let left_out = list.filter_map(|e| why(e.ok()?.path())).filter(|(_, e)| e.path.is_dir());
    let born = left_out.filter(|(_, e)| !e.id.starts_with('.'));
    born.map(|(why, entry)| (entry.created, why)).max_by_key(|(created, _)| *created)
}

/// Removes the folder of a job that looked dead, and with its lock still does: meanwhile somebody
/// may have gone on with what was saved of it. False: it lives.
fn clear_dead(folder: &Path) -> bool {
    let lock = lock_of(folder);
    let unused = lock.is_some() || !folder.join(LOCK).exists();
    let dead = unused && !stays(folder);
    if dead {
        let _ = at_rest::remove_dir_all(folder);
    }
    dead
}

/// The job called `name`: its id, a name (the newest that has it), the beginning of an id, or
/// `last`.
pub fn resolve(home: &Path, name: &str) -> Result<JobEntry, HomeError> {
    if Path::new(name).file_name().is_some_and(|last| last == name) {
        check_job(&home.join(JOBS).join(name))?;
    }
    let mut all = jobs(home);
    let missing = || HomeError::NoJob(name.to_string());
    if name == "last" {
        return match (all.pop(), left_out(home)) {
            // Another one is not meant.
            (Some(job), Some((created, why))) if created > job.created => Err(why.into()),
            (Some(job), _) => Ok(job),
            (None, Some((_, why))) => Err(why.into()),
            (None, None) => Err(missing()),
        };
    }
    let named = |j: &JobEntry| history::name_of(home, &j.id).as_deref() == Some(name);
    let (exact, called) = (all.iter().position(|j| j.id == name), all.iter().rposition(named));
    if let (Some(exact), Some(called)) = (exact, called)
        && exact != called
    {
        let ids = format!("{}, {}", all[exact].id, all[called].id);
        return Err(HomeError::Ambiguous(name.to_string(), ids));
    }
    if let Some(at) = exact.or(called) {
        return Ok(all.swap_remove(at));
    }
    all.retain(|j| j.id.starts_with(name) && !name.is_empty());
    if all.len() > 1 {
        let names: Vec<&str> = all.iter().map(|j| j.id.as_str()).collect();
        return Err(HomeError::Ambiguous(name.to_string(), names.join(", ")));
    }
    all.pop().ok_or_else(|| match history::find(home, name) {
        Ok(ended) => HomeError::Ended(ended.record.job),
        Err(HomeError::NoJob(_)) => missing(),
        Err(why) => why,
    })
}

/// A path for a file of `folder` that fits the 108 bytes of a Unix socket address however deep
/// the folder lies. Valid as long as `folder` stays open.
pub fn short_path(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

/// Removes a folder with all that is in it, also while a thread or process that is about to end
/// still writes there.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    for _ in 0..REMOVALS {
        match at_rest::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            result => return result,
        }
    }
    at_rest::remove_dir_all(folder)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::time::Instant;

    /// Waits for that: a lock that was given up is held a moment more by a process that another
    /// test is just starting, until that executes its program.
    pub(crate) fn soon(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::yield_now();
        }
    }

    fn ids(home: &Path) -> Vec<String> {
        jobs(home).into_iter().map(|j| j.id).collect()
    }

    #[test]
    fn a_job_lives_as_long_as_its_lock() {
        let home = tempfile::tempdir().unwrap();
        let first = create(home.path()).unwrap();
        let second = create(home.path()).unwrap();
        assert_ne!(first.id, second.id);
        assert_eq!(ids(home.path()).len(), 2);
        assert_eq!(resolve(home.path(), &first.id).unwrap().path, first.path);
        drop(first.lock);
        soon("the first is gone", || ids(home.path()) == [second.id.as_str()]);
        assert!(!first.path.exists());
        assert_eq!(resolve(home.path(), "last").unwrap().id, second.id);
        assert_eq!(resolve(home.path(), &second.id[..3]).unwrap().id, second.id);
        // Longer than any: a short one may be how one of them begins.
        assert!(matches!(resolve(home.path(), "no-such-job"), Err(HomeError::NoJob(_))));
        assert!(matches!(resolve(home.path(), ""), Err(HomeError::NoJob(_))));
    }

    #[test]
    fn what_others_can_write_to_is_neither_listed_nor_removed() {
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let job = create(home.path()).unwrap();
        fs::write(job.path.join(SAVED), "").unwrap();
        drop(job.lock);
        for name in [SAVED, ""] {
            let path = job.path.join(name);
            let before = fs::metadata(&path).unwrap().permissions();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
            assert!(matches!(resolve(home.path(), &job.id), Err(HomeError::Untrusted(_))));
            assert!(jobs(home.path()).is_empty() && job.path.exists());
            assert!(matches!(resolve(home.path(), "last"), Err(HomeError::Untrusted(_))));
            fs::set_permissions(&path, before).unwrap();
            assert!(resolve(home.path(), &job.id).is_ok());
        }
    }

    #[test]
    fn the_last_job_is_not_the_one_before_if_something_is_wrong_with_it() {
        let home = tempfile::tempdir().unwrap();
        let saved = || {
            let job = create(home.path()).unwrap();
            fs::write(job.path.join(SAVED), "").unwrap();
            job.lock.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            job
        };
        let (older, newer) = (saved(), saved());
        let later = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        newer.lock.set_modified(later).unwrap();
        assert_eq!(resolve(home.path(), "last").unwrap().id, newer.id);
        fs::create_dir(newer.path.join(EVENTS)).unwrap();
        let why = resolve(home.path(), "last").unwrap_err();
        assert!(why.to_string().contains(EVENTS), "{why}");
        assert_eq!(resolve(home.path(), &older.id).unwrap().id, older.id);
        older.lock.set_modified(later + Duration::from_secs(5)).unwrap();
        assert_eq!(resolve(home.path(), "last").unwrap().id, older.id);
    }

    #[test]
    fn a_kept_job_is_not_removed() {
        let home = tempfile::tempdir().unwrap();
        let job = create(home.path()).unwrap();
        fs::write(job.path.join(ENDED), "{}").unwrap();
        drop(job.lock);
        soon("it has no lock", || !jobs(home.path())[0].alive);
        let all = jobs(home.path());
        assert!(all.len() == 1 && all[0].ended);
    }

    #[test]
    fn a_saved_job_is_not_removed_and_can_be_claimed_once() {
        let home = tempfile::tempdir().unwrap();
        let job = create(home.path()).unwrap();
        fs::write(job.path.join(SAVED), "").unwrap();
        let path = job.path.clone();
        drop(job.lock);
        soon("it has no lock", || !jobs(home.path())[0].alive);
        let all = jobs(home.path());
        assert!(all.len() == 1 && all[0].saved && stays(&path));
        let claimed = claim(&all[0]).unwrap();
        assert!(matches!(claim(&all[0]), Err(HomeError::Running(_))));
        drop(claimed);
    }
}
