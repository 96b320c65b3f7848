//! `$EYRIE_HOME`: the folders of jobs.
//!
//! Kept true: a job's folder is 0700 and appears under its name only once its `lock` is held; the
//! lock is held (flock, inherited) as long as the job's daemon or its CLI lives. A folder whose
//! lock is free and that has neither `ended.json` nor `saved` belongs to a job that died: it may be
//! removed. What another user could have put there is neither read, nor gone on with, nor removed.

use crate::at_rest;
use crate::lock::{is_held, lock_now, lock_of, try_lock};
use eyrie_image::{Untrusted, check_private, check_private_home};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The folders of jobs.
pub(crate) const JOBS: &str = "jobs";
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
/// Locked by the controller and the nodes of a job that has a journal.
pub const NODES: &str = "nodes";
/// What is in it if they are on other machines; for how many milliseconds they wait follows.
const ELSEWHERE: &str = "elsewhere ";
/// How often the controller of such nodes gives a sign of life there.
pub const SIGN: Duration = Duration::from_secs(5);
/// What a sign may be late, and what nodes may take to end.
const SLACK: Duration = Duration::from_secs(10);
/// Standard input as far as it was read, for ranks that start again.
pub const STDIN: &str = "stdin";
/// Checkpoint images.
pub const IMAGES: &str = "images";
/// A node's part of the vault that keeps images.
pub const VAULT: &str = "vault";

/// Attempts to take the lock of a saved job, which others try as well to see if it is alive.
const CLAIMS: u32 = 50;
const CLAIM_PAUSE: Duration = Duration::from_millis(10);

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
    #[error("'{0}' names more than one job: {1}")]
    Ambiguous(String, String),
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
}

/// The folder all of Eyrie's state lives under, if nobody else can write to it.
pub fn home() -> Result<PathBuf, HomeError> {
    let home = home_named()?;
    check_private_home(&home)?;
    check_private(&home.join(JOBS))?;
    Ok(home)
}

/// Refuses the folder of a job that another user could have put there, or whose records.
fn check_job(folder: &Path) -> Result<(), Untrusted> {
    check_private(folder)?;
    [SAVED, SAVED_BEFORE, JOURNAL, NODES, LOCK, IMAGES, VAULT]
        .iter()
        .try_for_each(|name| check_private(&folder.join(name)))
}

fn home_named() -> Result<PathBuf, HomeError> {
    if let Some(dir) = std::env::var_os("EYRIE_HOME").filter(|d| !d.is_empty()) {
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

pub(crate) fn private_dir(path: &Path) -> Result<(), HomeError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| HomeError::Io(path.into(), e))
}

fn random_id() -> String {
    let mut id = String::with_capacity(ID_LENGTH);
    let mut words = [0u32; ID_LENGTH];
    // SAFETY: the buffer is as long as stated; on failure the words stay as they are.
    let got = unsafe { libc::getrandom(words.as_mut_ptr().cast(), size_of_val(&words), 0) };
    if got < 0 {
        words[0] = std::process::id();
    }
    for (i, word) in words.iter().enumerate() {
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
        if let Some(folder) = create_as(&jobs, random_id()).map_err(unusable)? {
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
    let (path, unborn) = (jobs.join(id), jobs.join(format!(".{id}-{}", std::process::id())));
    private_dir(&unborn)?;
    let lock_path = unborn.join(LOCK);
    let lock = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&lock_path);
    let lock = lock.map_err(|e| HomeError::Io(lock_path, e))?;
    // Held as long as it is filled: else it would pass for a dead one.
    try_lock(&lock);
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

/// The folder of a job of that name. None: there is one.
fn create_as(jobs: &Path, id: String) -> Result<Option<JobFolder>, HomeError> {
    let path = jobs.join(&id);
    let unborn = jobs.join(format!(".{id}-{}", std::process::id()));
    private_dir(&unborn)?;
    let lock_path = unborn.join(LOCK);
    let lock = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&lock_path);
    let lock = lock.map_err(|e| HomeError::Io(lock_path, e))?;
    if try_lock(&lock) && !path.exists() && fs::rename(&unborn, &path).is_ok() {
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
        return Ok(());
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
    let lock = OpenOptions::new().write(true).open(&path);
    let lock = lock.map_err(|e| HomeError::Io(path, e))?;
    for _ in 0..CLAIMS {
        if try_lock(&lock) {
            return Ok(JobFolder { id: job.id.clone(), path: job.path.clone(), lock });
        }
        std::thread::sleep(CLAIM_PAUSE);
    }
    Err(HomeError::Running(job.id.clone()))
}

/// Holds the lock of the nodes of a job that has a journal. Nodes inherit it, so it is held as long
/// as the controller or one of them lives.
pub fn hold_nodes(folder: &Path) -> io::Result<OwnedFd> {
    let path = folder.join(NODES);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    // SAFETY: plain system call on a descriptor that `file` keeps open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) } {
        0 => Ok(file.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until nobody holds that lock.
pub fn await_nodes(nodes: &File) {
    // SAFETY: plain system call on a descriptor that is open.
    while unsafe { libc::flock(nodes.as_raw_fd(), libc::LOCK_EX) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Notes that nodes are on other machines, where nothing is seen of them, and how long they wait
/// for a controller; to be called every `SIGN` as long as there is one that holds them.
pub fn note_elsewhere(folder: &Path, limit: Duration) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).open(folder.join(NODES))?;
    io::Write::write_all(&mut file, format!("{ELSEWHERE}{}\n", limit.as_millis()).as_bytes())
}

/// Whether nodes of a job wait for a new controller, or may do so.
fn is_resumable(folder: &Path) -> bool {
    let path = folder.join(NODES);
    if !folder.join(JOURNAL).exists() {
        return false;
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    if let Some(limit) = text.strip_prefix(ELSEWHERE).and_then(|t| t.trim().parse().ok()) {
        let sign = fs::metadata(&path).and_then(|m| m.modified());
        let age = sign.map(|at| at.elapsed().unwrap_or_default());
        return age.is_ok_and(|age| age < Duration::from_millis(limit) + SLACK);
    }
    is_shared(&path)
}

/// Whether somebody shares the lock of this file. Who asks has it alone for a moment if nobody
/// does, which others who ask do not take for that.
fn is_shared(path: &Path) -> bool {
    // NFS gives each kind of lock only to who may read, or write.
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.is_ok_and(|file| !try_lock(&file) && lock_now(&file, libc::LOCK_SH))
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

/// The job called `name`: its id, the beginning of one, or `last`.
pub fn resolve(home: &Path, name: &str) -> Result<JobEntry, HomeError> {
    if Path::new(name).file_name().is_some_and(|last| last == name) {
        check_job(&home.join(JOBS).join(name))?;
    }
    let mut all = jobs(home);
    let missing = || HomeError::NoJob(name.to_string());
    if name == "last" {
        return all.pop().ok_or_else(missing);
    }
    if let Some(exact) = all.iter().position(|j| j.id == name) {
        return Ok(all.swap_remove(exact));
    }
    all.retain(|j| j.id.starts_with(name) && !name.is_empty());
    if all.len() > 1 {
        let names: Vec<&str> = all.iter().map(|j| j.id.as_str()).collect();
        return Err(HomeError::Ambiguous(name.to_string(), names.join(", ")));
    }
    all.pop().ok_or_else(missing)
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
mod tests {
    use super::*;
    use std::time::Instant;

    /// Waits for that: a lock that was given up is held a moment more by a process that another
    /// test is just starting, until that executes its program.
    fn soon(what: &str, mut holds: impl FnMut() -> bool) {
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
            fs::set_permissions(&path, before).unwrap();
            assert!(resolve(home.path(), &job.id).is_ok());
        }
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
    fn nodes_elsewhere_are_waited_for_as_long_as_they_may_be_there() {
        let home = tempfile::tempdir().unwrap();
        let job = create(home.path()).unwrap();
        fs::write(job.path.join(JOURNAL), "").unwrap();
        drop(hold_nodes(&job.path).unwrap());
        soon("no node has a lock", || !stays(&job.path));
        let limit = Duration::from_secs(60);
        note_elsewhere(&job.path, limit).unwrap();
        let path = job.path.clone();
        drop(job.lock);
        soon("it has no controller", || jobs(home.path())[0].resumable);
        let nodes = OpenOptions::new().write(true).open(path.join(NODES)).unwrap();
        nodes.set_modified(SystemTime::now() - limit - SLACK - SIGN).unwrap();
        soon("it is gone", || jobs(home.path()).is_empty());
        assert!(!path.exists());
        assert!(note_elsewhere(&path, limit).is_err());
    }

    #[test]
    fn nodes_here_are_waited_for_as_long_as_they_hold_their_lock() {
        let home = tempfile::tempdir().unwrap();
        let job = create(home.path()).unwrap();
        fs::write(job.path.join(JOURNAL), "").unwrap();
        let nodes = hold_nodes(&job.path).unwrap();
        drop(job.lock);
        // Somebody else who looks at the same time changes nothing.
        let other = File::open(job.path.join(NODES)).unwrap();
        // SAFETY: plain system call on an open descriptor.
        assert_eq!(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_SH) }, 0);
        soon("it has no controller", || !jobs(home.path())[0].alive);
        let all = jobs(home.path());
        assert!(all.len() == 1 && all[0].resumable);
        drop((nodes, other));
        let asks = File::open(job.path.join(NODES)).unwrap();
        soon("nobody has the lock", || try_lock(&asks));
        soon("who asks holds nothing", || !is_resumable(&job.path));
        drop(asks);
        soon("it is gone", || jobs(home.path()).is_empty());
        assert!(!job.path.exists());
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
