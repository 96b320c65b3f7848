//! Folders of parts: a node's, or the second level's.
//!
//! Kept true: only files of this process are removed, and only such as carry a label.

use crate::error::{RegionsError, file};
use crate::label::Label;
use crate::part::{create, publish, temporary};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Where parts lie in a node's folder.
pub fn parts(folder: &Path) -> PathBuf {
    folder.join("parts")
}

/// Where files lie that a program writes, or reads, itself.
pub fn files(folder: &Path) -> PathBuf {
    folder.join("files")
}

/// Where the node's member of the vault lies.
pub fn member(folder: &Path) -> PathBuf {
    folder.join("vault")
}

/// Makes a folder for its owner only, if it is not there.
pub fn make(folder: &Path) -> Result<(), RegionsError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(file("make", folder))
}

/// Names of all files in a folder; none if it is not there.
pub fn names(folder: &Path) -> Result<Vec<String>, RegionsError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(file("read", folder))?,
    };
    let entries = entries.collect::<io::Result<Vec<_>>>().map_err(file("read", folder))?;
    Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

/// All parts in a folder; none if it is not there.
pub fn list(folder: &Path) -> Result<Vec<Label>, RegionsError> {
    Ok(names(folder)?.iter().filter_map(|name| Label::parse(name)).collect())
}

/// Whether there is this process's part of a checkpoint, or of a later one of this run.
pub fn has(folder: &Path, label: &Label) -> bool {
    let own = |part: &Label| part.rank == label.rank && part.follows(label);
    list(folder).is_ok_and(|all| all.iter().any(own))
}

/// Removes what a process of this number left half done.
pub fn clean(folder: &Path, rank: u32) -> Result<(), RegionsError> {
    for name in names(folder)? {
        let label = name.rsplit_once('.').and_then(|(label, _)| Label::parse(label));
        if label.is_some_and(|label| label.rank == rank) {
            remove(&folder.join(name))?;
        }
    }
    Ok(())
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> Result<(), RegionsError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(file("remove", path)),
    }
}

/// Removes a process's parts of checkpoints of this name, but for those that are wanted.
pub fn retain(
    folder: &Path,
    (name, rank): (&str, u32),
    wanted: &dyn Fn(&Label) -> bool,
) -> Result<(), RegionsError> {
    for label in list(folder)? {
        if label.name == name && label.rank == rank && !wanted(&label) {
            remove(&folder.join(label.to_string()))?;
        }
    }
    Ok(())
}

/// Copies a part into another folder, durably.
pub fn copy(path: &Path, folder: &Path, label: &Label) -> Result<(), RegionsError> {
    make(folder)?;
    let to = folder.join(label.to_string());
    let partial = temporary(&to);
    let work = || {
        let (mut from, mut file) = (File::open(path)?, create(&partial)?);
        io::copy(&mut from, &mut file)?;
        publish(&file, &partial, &to)
    };
    let done = work();
    if done.is_err() {
        // What went wrong is what counts.
        let _ = fs::remove_file(&partial);
    }
    done.map_err(file("write", &to))
}
