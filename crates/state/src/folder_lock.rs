//! Locks of folders: who has the lock of the file `LOCK` in it (flock) uses it.
//!
//! Kept true: a lock is the file's, and a folder may be replaced by another of its name: who has
//! come to a lock by name looks whether it still is what is there.

use crate::home::LOCK;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Whether the lock is ours now.
pub fn try_lock(file: &File) -> bool {
    lock_now(file, libc::LOCK_EX)
}

/// Takes the lock of a folder that nobody holds. None: somebody does, there is none, or another
/// folder has come in the place of that whose lock it was.
pub fn lock_of(folder: &Path) -> Option<File> {
    let path = folder.join(LOCK);
    let lock = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).ok()?;
    (try_lock(&lock) && is_at(&lock, &path)).then_some(lock)
}

/// Whether a file is the one that is at `path`.
pub fn is_at(file: &File, path: &Path) -> bool {
    let number = |m: fs::Metadata| (m.dev(), m.ino());
    let there = fs::metadata(path).map(number);
    there.is_ok_and(|there| file.metadata().map(number).is_ok_and(|ours| ours == there))
}

pub fn lock_now(file: &File, kind: i32) -> bool {
    // SAFETY: plain system call on a descriptor that `file` keeps open.
    unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) == 0 }
}

/// Whether somebody has the lock of this file. Who asks shares it for a moment, so that two who ask
/// at the same time do not take each other for its holder.
pub fn is_held(path: &Path) -> bool {
    eyrie_image::open_plain(path).is_ok_and(|file| !lock_now(&file, libc::LOCK_SH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_goes_with_its_folder() {
        let home = tempfile::tempdir().unwrap();
        let (folder, away) = (home.path().join("abcd"), home.path().join("away"));
        fs::create_dir(&folder).unwrap();
        assert!(lock_of(&folder).is_none());
        File::create(folder.join(LOCK)).unwrap();
        let held = lock_of(&folder).unwrap();
        assert!(is_held(&folder.join(LOCK)) && is_at(&held, &folder.join(LOCK)));
        fs::rename(&folder, &away).unwrap();
        assert!(!is_at(&held, &folder.join(LOCK)));
        fs::create_dir(&folder).unwrap();
        File::create(folder.join(LOCK)).unwrap();
        assert!(!is_at(&held, &folder.join(LOCK)) && is_at(&held, &away.join(LOCK)));
    }
}
