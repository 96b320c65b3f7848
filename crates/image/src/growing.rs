//! Files that are read while they come: an image that is on its way here.
//!
//! Whoever writes such a file announces it under the path that it will have. Until it withdraws
//! that, who opens an image under this path reads what there is of the file, wherever it lies
//! meanwhile.
//!
//! Kept true: nothing of such a file is read before it is there, and all that is read is held
//! against checksums as in any file; a path that was withdrawn is one like others.

use crate::blocks::Wanted;
use crate::error::ImageError;
use crate::filler;
use crate::image::Image;
use crate::lazy::{self, within};
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
pub(crate) fn open(path: &Path) -> io::Result<(File, Option<Arc<dyn Growing>>)> {
    let coming = announced().get(path).cloned();
    match coming {
        Some((file, by)) => Ok((file.try_clone()?, Some(by))),
        None => Ok((File::open(path)?, None)),
    }
}

impl Image {
    /// Waits until all is there of which a restore has the process wait: with `late`, where pages
    /// may come late, what is needed first and what cannot; else everything.
    pub fn wait_for_first(&self, late: bool) -> Result<(), ImageError> {
        let late = late && self.children.is_empty() && lazy::is_permitted();
        let ranges = if late { lazy::ranges(self) } else { Vec::new() };
        let now = |w: &Wanted| self.wants.pieces_of(w).iter().any(|p| !within(&ranges, p.address));
        let all = self.wants.blocks.iter().enumerate();
        let mut first: Vec<usize> = all.filter(|(_, w)| now(w)).map(|(i, _)| i).collect();
        if late {
            first.extend(filler::needed_first(self, &ranges));
        }
        for wanted in first.into_iter().map(|i| &self.wants.blocks[i]) {
            self.parts[wanted.part].wait_for(wanted.block)?;
        }
        self.children.iter().try_for_each(|child| child.wait_for_first(false))
    }
}

#[cfg(test)]
#[path = "growing_tests.rs"]
mod tests;
