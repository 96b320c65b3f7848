//! `$EYRIE_HOME/nodes/MACHINE`: storage of nodes on machines that are not their controller's.
//!
//! Kept true: a folder appears under its name only once its `lock` is held, and that is held
//! (flock, inherited) as long as the node's keeper or its daemon lives. One whose lock is free
//! is a dead node's and is removed; one without a lock was kept. Machines that share a home
//! leave each other's folders alone.

use crate::at_rest;
use crate::home::{HomeError, LOCK, private_dir, try_lock};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Storage of one node.
#[derive(Debug)]
pub struct Lodging {
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

impl Lodging {
    /// Makes the folder of a node, after those of dead ones were removed.
    pub fn create(home: &Path, name: &str) -> Result<Lodging, HomeError> {
        let nodes = folder(home);
        private_dir(&nodes)?;
        sweep(&nodes);
        let path = nodes.join(name);
        let unborn = nodes.join(format!(".{name}-{}", std::process::id()));
        private_dir(&unborn)?;
        let file = unborn.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        let lock = options.open(&file).map_err(|e| HomeError::Io(file, e))?;
        let locked = try_lock(&lock);
        // What was kept of the same node of a job that was saved since.
        if !path.join(LOCK).exists() {
            let _ = at_rest::remove_dir_all(&path);
        }
        match fs::rename(&unborn, &path) {
            Ok(()) if locked => Ok(Lodging { path, lock }),
            Ok(()) => Err(HomeError::Io(path, std::io::ErrorKind::WouldBlock.into())),
            Err(error) => {
                let _ = at_rest::remove_dir_all(&unborn);
                Err(HomeError::Io(path, error))
            }
        }
    }

    pub fn remove(self) {
        let _ = at_rest::remove_dir_all(&self.path);
    }

    /// It stays, and is never taken for that of a dead node.
    pub fn keep(self) {
        let _ = fs::remove_file(self.path.join(LOCK));
    }
}

/// Removes what dead nodes have left. One that is being made is not touched: it has a name of its
/// own, and is locked a moment later.
fn sweep(nodes: &Path) {
    let Ok(list) = fs::read_dir(nodes) else { return };
    for path in list.flatten().map(|e| e.path()) {
        let hidden = path.file_name().is_none_or(|n| n.as_bytes().starts_with(b"."));
        let lock = OpenOptions::new().write(true).open(path.join(LOCK));
        if !hidden && lock.is_ok_and(|file| try_lock(&file)) {
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
        let dead = Lodging::create(home.path(), "abcd-0").unwrap();
        let live = Lodging::create(home.path(), "abcd-1").unwrap();
        assert!(matches!(Lodging::create(home.path(), "abcd-1"), Err(HomeError::Io(..))));
        let kept = Lodging::create(home.path(), "abcd-2").unwrap();
        let [dead_path, kept_path] = [dead.path.clone(), kept.path.clone()];
        drop(dead.lock);
        kept.keep();
        Lodging::create(home.path(), "abcd-3").unwrap().remove();
        Lodging::create(home.path(), "abcd-4").unwrap().keep();
        Lodging::create(home.path(), "abcd-4").unwrap().remove();
        assert!(!dead_path.exists() && live.path.exists() && kept_path.exists());
        let nodes = live.path.parent().unwrap();
        assert_eq!(fs::read_dir(nodes).unwrap().count(), 2);
    }
}
