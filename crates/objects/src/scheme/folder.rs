//! `file:///FOLDER`: a folder of a file system, which all that use it have to see.
//!
//! Kept true: what is brought is on its disk when that is said; only its owner can read it.

use crate::access::{Access, Variables};
use crate::error::StoreError;
use crate::storage::{Scheme, Storage};
use crate::store_url::StoreUrl;
use crate::transport::Transport;
use futures_util::future::{self, BoxFuture};
use object_store::local::LocalFileSystem;
use object_store::{ObjectStore, RetryConfig};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub(crate) struct Folder;

impl Scheme for Folder {
    fn name(&self) -> &'static str {
        "file"
    }

    fn example(&self) -> &'static str {
        "file:///FOLDER"
    }

    fn has_buckets(&self) -> bool {
        false
    }

    fn variables(&self) -> &'static str {
        "nothing"
    }

    fn access(&self, _variables: Variables<'_>) -> Result<Access, StoreError> {
        Ok(Access::default())
    }

    fn connect(
        &self,
        place: &StoreUrl,
        _access: &Access,
        _way: (Transport, RetryConfig),
    ) -> Result<Box<dyn Storage>, StoreError> {
        // Names of objects are paths below the root.
        let store = LocalFileSystem::new().with_fsync(true);
        let folder = place.folder().unwrap_or_default();
        Ok(Box::new(Files { store, folder }))
    }
}

struct Files {
    store: LocalFileSystem,
    folder: PathBuf,
}

impl Storage for Files {
    fn objects(&self) -> &dyn ObjectStore {
        &self.store
    }

    fn reach(&self, _prefix: &str) -> Result<(), StoreError> {
        let failed = |e| StoreError::File(self.folder.clone(), e);
        fs::read_dir(&self.folder).map(drop).map_err(failed)
    }

    fn prepare(&self) -> Result<(), StoreError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|e| StoreError::File(self.folder.clone(), e))
    }

    fn cleared(&self) {
        // Folders that are not empty stay.
        let below = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for path in below.map(|entry| entry.path()).chain([self.folder.clone()]) {
            let _ = fs::remove_dir(path);
        }
    }

    fn abort_begun<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<usize, StoreError>> {
        let folder = Path::new("/").join(prefix);
        let removed = remove_begun(&folder).map_err(|e| StoreError::File(folder, e));
        Box::pin(future::ready(removed))
    }
}

/// Files on their way have names that end in `#NUMBER`; in lists they are not.
fn remove_begun(folder: &Path) -> io::Result<usize> {
    let list = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        list => list?,
    };
    let mut removed = 0;
    for entry in list {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            removed += remove_begun(&entry.path())?;
        } else if is_begun(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn is_begun(name: &str) -> bool {
    let number = name.rsplit_once('#').map_or("", |(_, number)| number);
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_goes() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("data")).unwrap();
        for name in ["x", "x#", "data/y", "data/y#1", "data/y#22", "data/#z"] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        assert_eq!(remove_begun(folder.path()).unwrap(), 2);
        assert_eq!(fs::read_dir(folder.path().join("data")).unwrap().count(), 2);
        assert_eq!(remove_begun(&folder.path().join("not")).unwrap(), 0);
    }
}
