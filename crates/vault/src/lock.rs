//! The lock of a folder. Who changes a member's folder: one process at a time.
//!
//! Kept true: `lock` in the folder is held (flock) as long as somebody may change what is there,
//! and is let go by the kernel when that process ends, however it does. What is in the file is for
//! people only. Whoever only reads takes nothing: each read is held against checksums.

use crate::disk::open_plain;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file that is locked.
pub const LOCK: &str = "lock";

/// Most bytes of what is told of a holder.
const MAX_WHO_BYTES: usize = 200;

/// Why a folder cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{} is in use by {by}", folder.display())]
    Held { folder: PathBuf, by: String },
    #[error("{} cannot be locked: {error}", folder.display())]
    Io { folder: PathBuf, error: io::Error },
}

/// Nobody else has the folder while this is there.
#[derive(Debug)]
pub(crate) struct FolderLock {
    _file: File,
}

impl FolderLock {
    /// `who`: told to others who try meanwhile, with the number of this process.
    pub(crate) fn take(folder: &Path, who: &str) -> Result<FolderLock, LockError> {
        let bad = |error| LockError::Io { folder: folder.into(), error };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = open_plain(&mut options, &folder.join(LOCK)).map_err(bad)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { folder: folder.into(), by: holder(&file) });
            }
            Err(TryLockError::Error(error)) => return Err(bad(error)),
        }
        // Without it others are refused all the same.
        let text = format!("{who} (process {})\n", std::process::id());
        let _ = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
        Ok(FolderLock { _file: file })
    }
}

/// What a holder says of itself.
fn holder(file: &File) -> String {
    let mut bytes = Vec::new();
    let _ = file.take(MAX_WHO_BYTES as u64).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    if text.is_empty() { String::from("another process") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_the_other_is_told_who() {
        let dir = tempfile::tempdir().unwrap();
        let first = FolderLock::take(dir.path(), "a job with a long name").unwrap();
        let why = FolderLock::take(dir.path(), "me").unwrap_err().to_string();
        let named = format!("is in use by a job with a long name (process {})", std::process::id());
        assert!(why.ends_with(&named), "{why}");
        drop(first);
        let second = FolderLock::take(dir.path(), "me").unwrap();
        let why = FolderLock::take(dir.path(), "it").unwrap_err().to_string();
        assert!(why.contains("by me (process "), "{why}");
        drop(second);
        std::fs::remove_dir_all(dir.path()).unwrap();
        let gone = FolderLock::take(dir.path(), "me").unwrap_err();
        assert!(matches!(gone, LockError::Io { .. }), "{gone}");
    }
}
