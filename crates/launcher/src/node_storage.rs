//! `$EYRIE_HOME/nodes/MACHINE`: storage of nodes on machines that are not their controller's.
//!
//! Kept true: a folder appears under its name only once its `lock` is held, and that is held
//! (flock, inherited) as long as the node's keeper or its daemon lives. One whose lock is free
//! is a dead node's and is removed; one without a lock was kept. Who removes one that is in use
//! (keeper and daemon both do, one after the other) takes it out of its place first, and only if
//! its lock is what lies there: the next node of that name may have come. Machines that share a
//! home leave each other's folders alone.

use eyrie_image::claim_lock;
use eyrie_state::at_rest;
use eyrie_state::folder_lock::{is_at, lock_of};
use eyrie_state::home::{HomeError, LOCK, private_dir, remove_folder};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the node of that name, of a job that was saved a moment ago, has to end.
const ENDING: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);
/// What begins the name of a folder that is being removed.
const GONE: &str = ".gone-";

/// Storage of one node.
#[derive(Debug)]
pub struct NodeStorage {
    pub path: PathBuf,
    pub lock: File,
}

fn machine() -> OsString {
    let name = rustix::system::uname();
    OsStr::from_bytes(name.nodename().to_bytes()).to_os_string()
}

/// Where those of this machine are.
pub fn folder(home: &Path) -> PathBuf {
    home.join("nodes").join(machine())
}

impl NodeStorage {
    /// Makes the folder of a node, after those of dead ones were removed.
    pub fn create(home: &Path, name: &str) -> Result<NodeStorage, HomeError> {
        Self::create_within(home, name, ENDING)
    }

    fn create_within(home: &Path, name: &str, limit: Duration) -> Result<NodeStorage, HomeError> {
        let nodes = folder(home);
        private_dir(&nodes)?;
        sweep(&nodes);
        let path = nodes.join(name);
        let unborn = nodes.join(format!(".{name}-{}", std::process::id()));
        private_dir(&unborn)?;
        let file = unborn.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).read(true).write(true).mode(0o600);
        let lock = options.open(&file).map_err(|e| HomeError::Io(file, e))?;
        let locked = claim_lock(&lock);
        match put(&unborn, &path, Instant::now() + limit) {
            Ok(()) if locked => Ok(NodeStorage { path, lock }),
            Ok(()) => Err(HomeError::Io(path, io::ErrorKind::WouldBlock.into())),
            Err(error) => {
                let _ = at_rest::remove_dir_all(&unborn);
                Err(HomeError::Io(path, error))
            }
        }
    }

    pub fn remove(self) {
        remove(&self.path, &self.lock);
    }

    /// It stays, and is never taken for that of a dead node.
    pub fn keep(self) {
        let _ = fs::remove_file(self.path.join(LOCK));
    }
}

/// Removes a folder whose lock this node holds, or has opened, if that is still there; and what is
/// left of it where a daemon was killed by its keeper while it removed it. What a writer that is
/// about to end still puts there goes, too.
pub fn remove(path: &Path, lock: &File) {
    let (Some(name), Some(nodes)) = (path.file_name(), path.parent()) else { return };
    let mut begin = OsString::from(GONE);
    begin.push(name);
    begin.push("-");
    if is_at(lock, &path.join(LOCK)) {
        let mut gone = begin.clone();
        gone.push(std::process::id().to_string());
        let _ = fs::rename(path, nodes.join(gone));
    }
    let left = fs::read_dir(nodes).into_iter().flatten().flatten();
    let of_it = |entry: &fs::DirEntry| entry.file_name().as_bytes().starts_with(begin.as_bytes());
    left.filter(of_it).for_each(|entry| drop(remove_folder(&entry.path())));
}

/// Puts a folder in its place, as soon as whoever has it is gone.
fn put(unborn: &Path, path: &Path, end: Instant) -> io::Result<()> {
    loop {
        // Kept of the same node of a job that was saved since, or what a dead one has left.
        let dead = lock_of(path);
        if dead.is_some() || !path.join(LOCK).exists() {
            let _ = at_rest::remove_dir_all(path);
        }
        drop(dead);
        let there = [io::ErrorKind::DirectoryNotEmpty, io::ErrorKind::AlreadyExists];
        match fs::rename(unborn, path) {
            Err(error) if there.contains(&error.kind()) && Instant::now() < end => {
                std::thread::sleep(POLL);
            }
            result => return result,
        }
    }
}

/// Removes what dead nodes have left, also in the middle of removing it. One that is being made is
/// not touched: it has a name of its own, and is locked a moment later.
fn sweep(nodes: &Path) {
    let Ok(list) = fs::read_dir(nodes) else { return };
    for path in list.flatten().map(|e| e.path()) {
        let name = path.file_name().unwrap_or_default().as_bytes();
        let gone = name.starts_with(GONE.as_bytes());
        if name.starts_with(b".") && !gone {
            continue;
        }
        let dead = lock_of(&path);
        if dead.is_some() || (gone && !path.join(LOCK).exists()) {
            let _ = at_rest::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_of_dead_nodes_is_removed_and_no_other() {
        let home = tempfile::tempdir().unwrap();
        let dead = NodeStorage::create(home.path(), "abcd-0").unwrap();
        let live = NodeStorage::create(home.path(), "abcd-1").unwrap();
        let second = NodeStorage::create_within(home.path(), "abcd-1", Duration::ZERO);
        assert!(matches!(second, Err(HomeError::Io(..))));
        let kept = NodeStorage::create(home.path(), "abcd-2").unwrap();
        let [dead_path, kept_path] = [dead.path.clone(), kept.path.clone()];
        drop(dead.lock);
        kept.keep();
        NodeStorage::create(home.path(), "abcd-3").unwrap().remove();
        NodeStorage::create(home.path(), "abcd-4").unwrap().keep();
        NodeStorage::create(home.path(), "abcd-4").unwrap().remove();
        assert!(!dead_path.exists() && live.path.exists() && kept_path.exists());
        let nodes = live.path.parent().unwrap();
        assert_eq!(fs::read_dir(nodes).unwrap().count(), 2);
    }

    #[test]
    fn who_removes_late_leaves_the_next_node_alone() {
        let home = tempfile::tempdir().unwrap();
        let before = NodeStorage::create(home.path(), "abcd-0").unwrap();
        // A daemon, and then its keeper.
        let lock = File::open(before.path.join(LOCK)).unwrap();
        remove(&before.path, &lock);
        assert!(!before.path.exists());
        let next = NodeStorage::create(home.path(), "abcd-0").unwrap();
        remove(&before.path, &lock);
        before.remove();
        assert!(next.path.join(LOCK).exists());
        let nodes = folder(home.path());
        assert_eq!(fs::read_dir(&nodes).unwrap().count(), 1);
        // Both were killed while they removed it.
        for (name, locked) in [("one", true), ("other", false)] {
            let gone = nodes.join(format!("{GONE}{name}"));
            fs::create_dir(&gone).unwrap();
            fs::write(gone.join(if locked { LOCK } else { "store" }), "").unwrap();
        }
        NodeStorage::create(home.path(), "abcd-1").unwrap();
        assert_eq!(fs::read_dir(&nodes).unwrap().count(), 2);
    }

    #[test]
    fn what_a_daemon_was_killed_at_removing_its_keeper_removes() {
        let home = tempfile::tempdir().unwrap();
        let node = NodeStorage::create(home.path(), "abcd-1").unwrap();
        let other = NodeStorage::create(home.path(), "abcd-11").unwrap();
        fs::rename(&node.path, node.path.with_file_name(format!("{GONE}abcd-1-77"))).unwrap();
        node.remove();
        let left = fs::read_dir(folder(home.path())).unwrap().map(|e| e.unwrap().path());
        assert_eq!(left.collect::<Vec<_>>(), [other.path]);
    }

    #[test]
    fn a_node_waits_for_the_one_before_it_to_end() {
        let home = tempfile::tempdir().unwrap();
        let before = NodeStorage::create(home.path(), "abcd-0").unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| NodeStorage::create(home.path(), "abcd-0").unwrap());
            fs::write(before.path.join("images"), "of before").unwrap();
            before.keep();
            let next = next.join().unwrap();
            assert!(!next.path.join("images").exists() && next.path.join(LOCK).exists());
        });
    }
}
