//! `$EYRIE_HOME/images`: a folder for each supervised program.
//!
//! Kept true: a folder's `lock` is held (flock) as long as its supervisor lives. One whose lock is
//! free and that holds no image is of no use to anybody and is removed; one that holds images can
//! be restarted.

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

/// The supervisor's socket.
pub const SOCKET: &str = "sock";
/// What the program was seen making.
pub const MADE: &str = "made";
const LOCK: &str = "lock";
const RUN: &str = "run.json";
/// Images that we name end so.
pub const SUFFIX: &str = ".img";
/// A folder without a held lock is only taken for dead at this age.
const UNBORN_AGE: Duration = Duration::from_secs(60);

/// What a supervisor tells about its program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    /// Process number of the program.
    pub pid: i32,
    /// Process number of the supervisor.
    pub supervisor: i32,
    /// Where the images lie.
    pub dir: PathBuf,
    /// The command, for people.
    pub command: String,
}

/// The folder of a program that this process supervises.
pub struct Held {
    pub name: String,
    pub path: PathBuf,
    _lock: File,
}

/// A folder that was found.
#[derive(Debug, Clone)]
pub struct Entry {
    pub name: String,
    pub path: PathBuf,
    pub alive: bool,
    pub record: Option<RunRecord>,
    pub created: SystemTime,
}

/// What a program's supervisor says of it is shorter, whatever its arguments.
const MAX_RECORD_BYTES: u64 = 64 << 20;

/// What configuration files say in place of `$EYRIE_HOME`: nothing of it is in the environment of
/// the programs that are run.
static OF_FILES: OnceLock<PathBuf> = OnceLock::new();

/// State lies there, if the environment says nothing else.
pub fn say_home(folder: PathBuf) {
    // Said once, before anybody asks.
    let _ = OF_FILES.set(folder);
}

/// `$EYRIE_HOME/images`.
pub fn home() -> anyhow::Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|d| !d.is_empty()).map(PathBuf::from);
    let named = set("EYRIE_HOME").or_else(|| OF_FILES.get().cloned());
    let home = match (named, set("HOME")) {
        (Some(dir), _) => std::path::absolute(dir)?,
        (None, Some(home)) => home.join(".eyrie"),
        (None, None) => bail!("neither EYRIE_HOME nor HOME is set"),
    };
    eyrie_image::check_private_home(&home)?;
    let images = home.join("images");
    eyrie_image::check_private(&images)?;
    Ok(images)
}

fn try_lock(file: &File, kind: i32) -> bool {
    // SAFETY: plain system call on a descriptor that `file` keeps open.
    unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) == 0 }
}

fn lock(path: &Path) -> anyhow::Result<Option<File>> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true).mode(0o600).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path.join(LOCK));
    let file = file.with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(eyrie_image::claim_lock(&file).then_some(file))
}

/// Makes a folder whose name begins with that of the program.
pub fn create(home: &Path, program: &str) -> anyhow::Result<Held> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(home);
    made.with_context(|| format!("cannot make {}", home.display()))?;
    let own = eyrie_image::own_outer_pid();
    for i in 0..10_000 {
        let name = if i == 0 { format!("{program}-{own}") } else { format!("{program}-{own}.{i}") };
        let path = home.join(&name);
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
            Err(e) => return Err(e).with_context(|| format!("cannot make {}", path.display())),
        }
        if let Some(lock) = lock(&path)? {
            return Ok(Held { name, path, _lock: lock });
        }
    }
    bail!("no free name for '{program}' in {}", home.display())
}

/// Takes over the folder of a program that was killed.
pub fn adopt(entry: &Entry) -> anyhow::Result<Held> {
    match lock(&entry.path)? {
        Some(lock) => {
            // What it says is no longer so; until it is announced again it is not to be found.
            let _ = fs::remove_file(entry.path.join(RUN));
            Ok(Held { name: entry.name.clone(), path: entry.path.clone(), _lock: lock })
        }
        None => bail!("{} runs already: see `eyrie-image list`", entry.name),
    }
}

impl Held {
    /// Makes the program known to others.
    pub fn announce(&self, record: &RunRecord) -> anyhow::Result<()> {
        let write = || -> anyhow::Result<()> {
            let unborn = self.path.join(".run.json");
            eyrie_image::write_private(&unborn, &serde_json::to_vec(record)?)?;
            Ok(fs::rename(unborn, self.path.join(RUN))?)
        };
        write().with_context(|| format!("cannot write to {}", self.path.display()))
    }

    /// Removes what only a running program needs, and all of it if there is no image to keep.
    pub fn close(self, keep_images: bool) {
        let _ = fs::remove_file(self.path.join(SOCKET));
        if !keep_images || images(&self.path).is_empty() {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

fn entry(path: PathBuf) -> Option<Entry> {
    let name = path.file_name()?.to_str()?.to_string();
    let created = fs::metadata(&path).and_then(|m| m.created().or(m.modified()));
    // Shared: two who ask at the same time do not take each other for a supervisor.
    let alive =
        eyrie_image::open_plain(&path.join(LOCK)).is_ok_and(|file| !try_lock(&file, libc::LOCK_SH));
    let record = eyrie_image::read_plain(&path.join(RUN), MAX_RECORD_BYTES).ok();
    let record = record.and_then(|text| serde_json::from_slice(&text).ok());
    let created = created.unwrap_or(SystemTime::UNIX_EPOCH);
    Some(Entry { name, path, alive, record, created })
}

/// All folders, oldest first; those that are of no use are removed on the way.
pub fn entries(home: &Path) -> Vec<Entry> {
    let Ok(list) = fs::read_dir(home) else { return Vec::new() };
    let paths = list.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.is_dir());
    let mut found: Vec<Entry> = paths.filter_map(entry).collect();
    found.retain(|e| {
        if e.alive {
            // Not announced yet: on its way.
            return e.record.is_some();
        }
        if !images(&e.path).is_empty() {
            return true;
        }
        if e.created.elapsed().is_ok_and(|age| age > UNBORN_AGE) || e.record.is_some() {
            let _ = fs::remove_dir_all(&e.path);
        }
        false
    });
    found.sort_by_key(|e| e.created);
    found
}

/// Where files are kept that a restart writes over, or moves away, of the program in this folder.
pub fn aside(home: &Path, folder: &str) -> PathBuf {
    home.parent().unwrap_or(home).join("ahead").join(folder)
}

/// The images in a folder, oldest first.
pub fn images(folder: &Path) -> Vec<PathBuf> {
    let Ok(list) = fs::read_dir(folder) else { return Vec::new() };
    let image = |p: &PathBuf| {
        let name = p.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        name.ends_with(SUFFIX) && !name.starts_with('.')
    };
    let paths = list.filter_map(|e| Some(e.ok()?.path())).filter(image);
    let aged = paths.map(|p| (fs::metadata(&p).and_then(|m| m.modified()).ok(), p));
    let mut aged: Vec<_> = aged.collect();
    aged.sort();
    aged.into_iter().map(|(_, p)| p).collect()
}

/// A path for the socket in `folder` that fits a socket address however deep the folder lies. Valid
/// as long as `folder` stays open.
pub fn socket_path(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RunRecord {
        RunRecord { pid: 1, supervisor: 1, dir: "/".into(), command: String::new() }
    }

    #[test]
    fn who_asks_is_taken_for_no_supervisor() {
        let home = tempfile::tempdir().unwrap();
        let held = create(home.path(), "prog").unwrap();
        held.announce(&record()).unwrap();
        fs::write(held.path.join("prog.1.img"), "").unwrap();
        let path = held.path.join(LOCK);
        drop(held);
        let asks = File::open(&path).unwrap();
        assert!(try_lock(&asks, libc::LOCK_SH));
        let found = entries(home.path());
        assert!(!found[0].alive, "another who asks");
        drop(asks);
        let held = adopt(&found[0]).unwrap();
        assert!(entry(held.path.clone()).unwrap().alive && adopt(&found[0]).is_err());
    }

    #[test]
    fn a_folder_lives_as_long_as_its_lock_or_its_images() {
        let home = tempfile::tempdir().unwrap();
        let one = create(home.path(), "prog").unwrap();
        let two = create(home.path(), "prog").unwrap();
        assert_ne!(one.name, two.name);
        one.announce(&record()).unwrap();
        two.announce(&record()).unwrap();
        fs::write(two.path.join("prog.1.img"), "").unwrap();
        assert_eq!(entries(home.path()).len(), 2);
        let (one_path, two_path) = (one.path.clone(), two.path.clone());
        drop((one, two));
        let left = entries(home.path());
        assert_eq!(left.len(), 1);
        assert!(!left[0].alive && left[0].path == two_path && !one_path.exists());
        let again = adopt(&left[0]).unwrap();
        assert!(adopt(&left[0]).is_err());
        again.close(false);
        assert!(!two_path.exists());
    }
}
