//! Looking for a file by its number, where nothing but a search tells its name.

use std::fs::{self, DirEntry};
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// Entries of folders that are looked at for one file, or for those of a family.
pub const MAX_ENTRIES: usize = 20_000;

/// Where the file with this number lies, in a folder and, if so asked, in those below it. `left`:
/// entries that may yet be looked at. `is_it` has the last word.
pub fn file_with(
    number: u64,
    folder: &Path,
    below: bool,
    left: &mut usize,
    is_it: impl Fn(&DirEntry) -> bool,
) -> Option<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            *left = left.checked_sub(1)?;
            if entry.ino() == number && is_it(&entry) {
                return Some(entry.path());
            }
            if below && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    None
}
