//! `/run/eyrie`: which jobs of which users have their controllers on this machine, for who looks
//! after it. Where the folder is missing or closed to this user there is no entry, and no word.
//!
//! Kept true: an entry is locked as long as its job lives, so one that is not is of no job any
//! more; it says whose job it is by whose file it is, and nothing in it is trusted but as words of
//! that user, with whose rights all of it is used (`eyrie ps --all-users`). A link, a file that has
//! another name too, or one that others may write to is none.

use crate::folder_lock::{is_at, lock_now};
use crate::home::JobFolder;
use crate::random;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where it is, unless this variable says so.
const FOLDER: &str = "/run/eyrie";
pub const VARIABLE: &str = "EYRIE_REGISTRY";
/// As `/tmp`: whoever has a job makes an entry, and nobody takes away another's.
const MODE: u32 = 0o1777;
const ENTRY_MODE: u32 = 0o600;
const FORMAT: u32 = 1;
/// Most bytes of an entry.
const ENTRY_BYTES: u64 = 16 << 10;
/// Most entries that are looked at: a user could make any number.
const MOST_ENTRIES: usize = 100_000;
/// One without anything in it is only taken for dead at this age.
const UNWRITTEN: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    format: u32,
    job: String,
    /// `EYRIE_HOME` of the job.
    home: PathBuf,
}

/// The entry of a job that lives: gone with this.
#[derive(Debug)]
pub struct Entry {
    path: PathBuf,
    _lock: File,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A home with jobs that live, of a user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Home {
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
}

/// Where entries are.
pub fn folder() -> PathBuf {
    let named = std::env::var_os(VARIABLE).filter(|dir| !dir.is_empty());
    named.map_or_else(|| PathBuf::from(FOLDER), PathBuf::from)
}

/// Makes the entry of a job that begins here, if there may be one.
pub fn enter(job: &JobFolder) -> Option<Entry> {
    let registry = folder();
    if rustix::process::geteuid().is_root() && !registry.exists() {
        make(&registry).ok()?;
    }
    sweep(&registry);
    let entry = enter_in(&registry, job);
    entry.inspect_err(|error| tracing::debug!(%error, "no entry in {}", registry.display())).ok()
}

fn make(registry: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(registry)?;
    // Whatever the umask is.
    fs::set_permissions(registry, Permissions::from_mode(MODE))
}

fn enter_in(registry: &Path, job: &JobFolder) -> io::Result<Entry> {
    let home = job.path.parent().and_then(Path::parent).ok_or(io::ErrorKind::InvalidInput)?;
    let record = Record { format: FORMAT, job: job.id.clone(), home: home.to_path_buf() };
    // A name that nobody can have taken before; names that meet are refused below.
    let random = u64::from_le_bytes(random::bytes().unwrap_or_default());
    let path = registry.join(format!("{}-{random:016x}", job.id));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(ENTRY_MODE).custom_flags(libc::O_NOFOLLOW);
    let mut lock = options.open(&path)?;
    // Held before there is anything in it: an empty one that is not counts as one to be.
    let locked = lock_now(&lock, libc::LOCK_EX);
    let entry = Entry { path, _lock: lock.try_clone()? };
    if !locked {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    lock.write_all(&serde_json::to_vec(&record)?)?;
    Ok(entry)
}

/// Opens what may be an entry.
fn open(path: &Path) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    let own = meta.is_file() && meta.nlink() == 1 && meta.mode() & 0o7777 == ENTRY_MODE;
    own.then_some(file)
}

fn read(file: &File) -> Option<Record> {
    let mut text = Vec::new();
    file.take(ENTRY_BYTES + 1).read_to_end(&mut text).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    let plain = !record.job.is_empty() && record.job.bytes().all(|b| b.is_ascii_alphanumeric());
    let fits = text.len() as u64 <= ENTRY_BYTES && record.format == FORMAT;
    (fits && plain && record.home.is_absolute()).then_some(record)
}

fn entries(registry: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let all = fs::read_dir(registry).into_iter().flatten().flatten();
    all.take(MOST_ENTRIES).map(|entry| entry.path())
}

/// Removes entries that nobody holds any more, as far as they are ours to remove.
fn sweep(registry: &Path) {
    for path in entries(registry) {
        let Some(file) = open(&path) else { continue };
        remove_if_stale(&path, &file);
    }
}

fn is_old(age: Duration) -> bool {
    age > UNWRITTEN
}

/// True: nobody holds it. One that is being made has nothing in it yet, and stays.
fn remove_if_stale(path: &Path, file: &File) -> bool {
    let stale = lock_now(file, libc::LOCK_SH);
    let aged = |meta: &fs::Metadata| meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(is_old));
    let written = file.metadata().is_ok_and(|meta| meta.len() > 0 || aged(&meta));
    if stale && written && is_at(file, path) {
        let _ = fs::remove_file(path);
    }
    stale
}

/// The homes of all users that have jobs here; for root, who can read all entries. Whose it is says
/// the file, never what is in it.
pub fn homes() -> Vec<Home> {
    homes_in(&folder())
}

fn homes_in(registry: &Path) -> Vec<Home> {
    let mut found: Vec<Home> = entries(registry)
        .filter_map(|path| {
            let file = open(&path)?;
            if remove_if_stale(&path, &file) {
                return None;
            }
            let (record, meta) = (read(&file)?, file.metadata().ok()?);
            Some(Home { uid: meta.uid(), gid: meta.gid(), home: record.home })
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home;
    use std::time::Instant;

    fn put(path: &Path, text: &str) -> File {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).mode(0o600).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        assert!(lock_now(&file, libc::LOCK_EX));
        file
    }

    #[test]
    fn an_entry_lives_as_long_as_its_job() {
        let (home, registry) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let job = home::create(home.path()).unwrap();
        let entry = enter_in(registry.path(), &job).unwrap();
        let meta = fs::metadata(&entry.path).unwrap();
        assert_eq!(meta.mode() & 0o777, 0o600);
        let all = homes_in(registry.path());
        let own = Home { uid: meta.uid(), gid: meta.gid(), home: home.path().into() };
        assert_eq!(all, [own]);
        drop(entry);
        assert!(homes_in(registry.path()).is_empty());
        assert_eq!(fs::read_dir(registry.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_dead_job_has_left_is_removed() {
        let (home, registry) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let job = home::create(home.path()).unwrap();
        let entry = enter_in(registry.path(), &job).unwrap();
        let path = entry.path.clone();
        // As if it were killed: its lock is free, its file is there.
        let text = fs::read_to_string(&path).unwrap();
        drop(entry);
        drop(put(&path, &text));
        let begun = Instant::now();
        // A process that another test just starts may hold the lock a moment longer.
        while path.exists() && begun.elapsed() < Duration::from_secs(60) {
            assert!(homes_in(registry.path()).len() <= 1);
        }
        assert!(!path.exists());
    }

    #[test]
    fn what_is_no_entry_is_let_be() {
        let registry = tempfile::tempdir().unwrap();
        let at = |name: &str| registry.path().join(name);
        let good = r#"{"format":1,"job":"k7mq","home":"/a/home"}"#;
        let mut held = vec![put(&at("good"), good)];
        for (name, text) in [
            ("relative", r#"{"format":1,"job":"k7mq","home":"x"}"#),
            ("job", r#"{"format":1,"job":"../x","home":"/x"}"#),
            ("format", r#"{"format":2,"job":"k7mq","home":"/x"}"#),
            ("text", "hello"),
        ] {
            held.push(put(&at(name), text));
        }
        held.push(put(&at("large"), &(good.to_string() + &" ".repeat(ENTRY_BYTES as usize))));
        held.push(put(&at("twice"), &good.replace("/a/", "/b/")));
        fs::hard_link(at("twice"), at("thrice")).unwrap();
        std::os::unix::fs::symlink(at("good"), at("link")).unwrap();
        held.push(put(&at("open"), &good.replace("/a/", "/c/")));
        fs::set_permissions(at("open"), Permissions::from_mode(0o666)).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let all = homes_in(registry.path());
        assert_eq!(all.len(), 1, "{all:?}");
        assert_eq!(all[0].home, Path::new("/a/home"));
        assert_eq!(fs::read_dir(registry.path()).unwrap().count(), 11);
    }
}
