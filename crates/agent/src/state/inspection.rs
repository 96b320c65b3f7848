//! What is said to a pass over the images that is under way.
//!
//! Kept true: what was given up does not come back; nobody waits for the disk to give something up.
//! Reading is left to `inspect`.

use crate::state::restart::Over;
use eyrie_exchange::image_files;
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// What is said to a pass that is under way.
#[derive(Default)]
pub(crate) struct Underway {
    pub(crate) over: Over,
    /// Ranks and generations of images that were given up meanwhile.
    removed: Mutex<BTreeSet<(u32, u32)>>,
}

impl Underway {
    pub fn without(&self, rank: u32, generations: &[u32]) {
        let mut removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.extend(generations.iter().map(|generation| (rank, *generation)));
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(crate) fn is_removed(&self, rank: u32, generation: u32) -> bool {
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        removed.contains(&(rank, generation))
    }

    /// Renames files of a rank's images that were fetched into `anew` over those in `images`, but
    /// for what was given up meanwhile.
    pub(crate) fn put_in_place(
        &self,
        (rank, generations): (u32, &[u32]),
        anew: &Path,
        images: &Path,
        sync: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let inode =
            |path: &Path| std::fs::symlink_metadata(path).map(|it| (it.dev(), it.ino())).ok();
        let mut fetched = Vec::new();
        for generation in generations {
            for path in image_files::lying_with_log(anew, rank, *generation) {
                let here = path.file_name().map(|name| images.join(name));
                // What was right is there under both names.
                let new = here.filter(|here| inode(&path) != inode(here));
                fetched.extend(new.map(|here| (*generation, path, here)));
            }
        }
        // Before the lock, for which the main thread waits as it gives up images: a disk may take
        // its time.
        fetched.iter().try_for_each(|(_, path, _)| sync(path))?;
        // What is given up from now on is removed after this.
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = fetched.iter().filter(|it| !removed.contains(&(rank, it.0)));
        wanted.into_iter().try_for_each(|(_, path, here)| std::fs::rename(path, here))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_exchange::image_files::image_path;

    /// The main thread gives up images while files are forced to the disk; they do not come back.
    #[test]
    fn nobody_waits_for_the_disk_to_give_up_an_image() {
        let (here, anew) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for generation in [1, 2, 3] {
            let name = image_files::image_name(7, generation);
            std::fs::write(anew.path().join(&name), b"fetched").unwrap();
            std::fs::write(here.path().join(&name), b"damaged").unwrap();
        }
        let same = image_files::image_name(7, 3);
        std::fs::remove_file(here.path().join(&same)).unwrap();
        std::fs::hard_link(anew.path().join(&same), here.path().join(&same)).unwrap();
        let state = Underway::default();
        let synced = Mutex::new(Vec::new());
        let sync = |path: &Path| {
            assert!(state.removed.try_lock().is_ok(), "it is held over a wait for the disk");
            state.without(7, &[1]);
            synced.lock().unwrap().push(path.to_path_buf());
            Ok(())
        };
        state.put_in_place((7, &[1, 2, 3]), anew.path(), here.path(), sync).unwrap();
        assert_eq!(synced.into_inner().unwrap().len(), 2, "one was here already");
        let content = |generation| std::fs::read(image_path(here.path(), 7, generation)).unwrap();
        assert_eq!([content(1), content(2), content(3)], [&b"damaged"[..], b"fetched", b"fetched"]);
    }
}
