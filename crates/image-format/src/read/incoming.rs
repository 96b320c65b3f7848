//! Files that are read while they come: an image that is on its way here.
//!
//! Whoever writes such a file announces it under the path that it will have. Until it withdraws
//! that, who opens an image under this path reads what there is of the file, wherever it lies
//! meanwhile.
//!
//! Kept true: nothing of such a file is read before it is there, and all that is read is held
//! against checksums as in any file; a path that was withdrawn is one like others.

use crate::error::ImageError;
use crate::read::image::Image;
use crate::support::private_files::open_plain;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who writes a file that comes.
pub trait Growing: Debug + Send + Sync {
    /// Returns when these bytes of the file are there, which are wanted before others. An error
    /// tells why they do not come.
    fn wait(&self, at: u64, bytes: u64) -> io::Result<()>;
}

/// A file that comes, and who writes it.
type Announced = (Arc<File>, Arc<dyn Growing>);

static ANNOUNCED: Mutex<BTreeMap<PathBuf, Announced>> = Mutex::new(BTreeMap::new());

fn announced() -> MutexGuard<'static, BTreeMap<PathBuf, Announced>> {
    ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What will be under a path is being written to this file, which has its length. `false`: that is
/// said already.
pub fn announce(path: &Path, file: Arc<File>, by: Arc<dyn Growing>) -> bool {
    let mut all = announced();
    let new = !all.contains_key(path);
    if new {
        all.insert(path.to_path_buf(), (file, by));
    }
    new
}

/// What is under a path is there, or will not come. Who has it open goes on.
pub fn withdraw(path: &Path) {
    announced().remove(path);
}

/// Whether the file of a path is still coming.
pub fn is_announced(path: &Path) -> bool {
    announced().contains_key(path)
}

/// Opens a file, which may be one that is still coming.
pub fn open(path: &Path) -> io::Result<(File, Option<Arc<dyn Growing>>)> {
    let coming = announced().get(path).cloned();
    match coming {
        Some((file, by)) => Ok((file.try_clone()?, Some(by))),
        None => Ok((open_plain(path)?, None)),
    }
}

impl Image {
    /// Waits until these of the blocks that are wanted are there, in this order.
    pub fn wait_for(&self, blocks: impl IntoIterator<Item = usize>) -> Result<(), ImageError> {
        for wanted in blocks.into_iter().map(|i| &self.wants.blocks[i]) {
            self.parts[wanted.part].wait_for(wanted.block)?;
        }
        Ok(())
    }

    /// Waits until all is there, of the process and of its descendants.
    pub fn wait_for_all(&self) -> Result<(), ImageError> {
        self.wait_for(0..self.wants.blocks.len())?;
        self.children.iter().try_for_each(Image::wait_for_all)
    }
}

#[cfg(test)]
#[path = "incoming_tests.rs"]
mod tests;
