//! Images of a job on one node where they are not in its folder. When the job is saved they are
//! brought there; when it goes on they are taken from there.
//!
//! Kept true: as long as `saved-images` is there it is what the saved job refers to, whatever
//! `images` leads to: who finds both puts it in the place of that (`settle`).

use super::{Elsewhere, LocalError, Wish, make};
use crate::at_rest;
use crate::home::IMAGES;
use eyrie_control::JobSpec;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Images of a saved job, in its folder.
pub const SAVED_IMAGES: &str = "saved-images";
/// The same, as far as they have come.
const UNBORN: &str = ".saved-images.part";

/// Why images cannot be elsewhere.
#[derive(Debug, thiserror::Error)]
pub enum ImagesError {
    #[error(transparent)]
    Local(#[from] LocalError),
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}

/// What was asked for, for a job on one node whose images are of use to nobody but itself.
pub fn wanted(spec: &JobSpec) -> Option<Wish> {
    super::wanted()
        .filter(|wish| wish.explicit && spec.protection.ft.goes_back_alone() && !spec.storage.keep)
}

/// Where a job on one node has its images.
#[derive(Debug)]
pub struct Images {
    pub path: PathBuf,
    /// Where they are brought when it is saved.
    pub saved: Option<PathBuf>,
    elsewhere: Option<Elsewhere>,
}

impl Images {
    /// In its folder.
    pub fn in_place(folder: &Path) -> Images {
        Images { path: folder.join(IMAGES), saved: None, elsewhere: None }
    }

    /// Where this wish has them; those of a job that goes on are brought there.
    pub fn place(
        folder: &Path,
        id: &str,
        wish: Option<Wish>,
        restart: bool,
    ) -> Result<Images, ImagesError> {
        let (link, saved) = (folder.join(IMAGES), folder.join(SAVED_IMAGES));
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |error| ImagesError::Io(path, error)
        };
        let Some(wish) = wish else { return Ok(Images::in_place(folder)) };
        if restart {
            fs::rename(&link, &saved).map_err(failed(&link))?;
        }
        let Some(elsewhere) = make(&link, id, Some(wish))? else {
            return Ok(Images::in_place(folder));
        };
        let path = elsewhere.path.clone();
        match restart {
            true => copy_all(&saved, &path, false).map_err(failed(&path))?,
            // Who uses it makes it.
            false => fs::remove_dir(&path).map_err(failed(&path))?,
        }
        Ok(Images { path, saved: Some(saved), elsewhere: Some(elsewhere) })
    }

    /// Holds the storage to the end of this process; returns where it is, and where images are
    /// brought when the job is saved.
    pub fn hold(self) -> (PathBuf, Option<PathBuf>) {
        std::mem::forget(self.elsewhere);
        (self.path, self.saved)
    }
}

/// Brings images where the saved job is to have them.
pub fn bring(images: &Path, saved: &Path) -> io::Result<()> {
    let unborn = saved.with_file_name(UNBORN);
    let absent_is_fine = |removed: io::Result<()>| match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    absent_is_fine(fs::remove_dir_all(&unborn))?;
    eyrie_image::create_private_dir(&unborn)?;
    let brought = copy_all(images, &unborn, true).and_then(|()| {
        absent_is_fine(fs::remove_dir_all(saved))?;
        fs::rename(&unborn, saved)?;
        saved.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    });
    brought.inspect_err(|_| drop(fs::remove_dir_all(&unborn)))
}

/// Puts the images of a saved job in their place.
pub fn settle(folder: &Path) -> io::Result<()> {
    let (images, saved) = (folder.join(IMAGES), folder.join(SAVED_IMAGES));
    let _ = fs::remove_dir_all(folder.join(UNBORN));
    if !saved.is_dir() {
        return Ok(());
    }
    if fs::symlink_metadata(&images).is_ok() {
        at_rest::remove_dir_all(&images)?;
    }
    fs::rename(&saved, &images)
}

/// What was saved is used up.
pub fn forget(folder: &Path) {
    let _ = fs::remove_dir_all(folder.join(SAVED_IMAGES));
}

/// Copies the files of a folder; `sync`: they are on disk then.
fn copy_all(from: &Path, to: &Path, sync: bool) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        let copy = to.join(entry.file_name());
        fs::copy(entry.path(), &copy)?;
        if sync {
            File::open(&copy)?.sync_all()?;
        }
    }
    if sync { File::open(to)?.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::LOCAL;

    fn names(folder: &Path) -> Vec<String> {
        let list = fs::read_dir(folder).unwrap();
        let mut all: Vec<_> =
            list.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }

    #[test]
    fn images_are_brought_when_the_job_is_saved_and_taken_when_it_goes_on() {
        let (home, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = home.path();
        let wish = || Some(Wish { folder: local.path().into(), source: LOCAL, explicit: true });
        let begun = Images::place(folder, "abcd", wish(), false).unwrap();
        let saved = begun.saved.clone().unwrap();
        assert!(!begun.path.exists() && !folder.join(IMAGES).exists());
        fs::create_dir(&begun.path).unwrap();
        fs::write(begun.path.join("rank-0.gen-1"), "x").unwrap();
        assert_eq!(names(&folder.join(IMAGES)), ["rank-0.gen-1"]);
        bring(&begun.path, &saved).unwrap();
        fs::write(begun.path.join("rank-0.gen-2"), "y").unwrap();
        bring(&begun.path, &saved).unwrap();
        // Its end.
        settle(folder).unwrap();
        assert_eq!(names(folder), [IMAGES]);
        assert!(!fs::symlink_metadata(folder.join(IMAGES)).unwrap().is_symlink());
        assert_eq!(names(&folder.join(IMAGES)), ["rank-0.gen-1", "rank-0.gen-2"]);
        assert!(!begun.path.exists());
        drop(begun);
        // It goes on elsewhere, and dies at once; then it goes on in its folder.
        let again = Images::place(folder, "abcd", wish(), true).unwrap();
        assert_eq!(names(&again.path), ["rank-0.gen-1", "rank-0.gen-2"]);
        assert_eq!(names(folder), [IMAGES, SAVED_IMAGES]);
        drop(again);
        settle(folder).unwrap();
        let again = Images::place(folder, "abcd", None, true).unwrap();
        assert_eq!(names(&again.path), ["rank-0.gen-1", "rank-0.gen-2"]);
        assert_eq!((names(folder), again.saved), (vec![IMAGES.to_string()], None));
    }
}
