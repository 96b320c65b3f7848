//! Where a program is that is to be started: as whoever starts it sees it.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::spawn::Wanted;

/// Its owner, its group or others may execute a file.
const ANYBODY_RUNS: u32 = 0o111;

/// The program, and the folder that it begins in. Nothing where there is none that can be run.
pub(super) fn find(wanted: &Wanted) -> Option<(Vec<u8>, Vec<u8>)> {
    let name = Path::new(OsStr::from_bytes(&wanted.program));
    let own = env::current_dir().ok()?;
    let folder = match &wanted.place.folder {
        Some(folder) => own.join(OsStr::from_bytes(folder)),
        None => own.clone(),
    };
    if !folder.is_dir() {
        return None;
    }
    let found = if wanted.program.contains(&b'/') {
        // As it is found where it is started, or where it begins.
        [&own, &folder].into_iter().map(|base| base.join(name)).find(|path| can_run(path))
    } else {
        in_folders(wanted, &own, name)
    };
    Some((found?.into_os_string().into_vec(), folder.into_os_string().into_vec()))
}

/// In those of the info key `path`, else in those of `PATH`.
fn in_folders(wanted: &Wanted, own: &Path, name: &Path) -> Option<PathBuf> {
    let search = match &wanted.place.path {
        Some(path) => OsStr::from_bytes(path).to_owned(),
        None => env::var_os("PATH")?,
    };
    let folders: Vec<PathBuf> = env::split_paths(&search).collect();
    folders.iter().map(|folder| own.join(folder).join(name)).find(|path| can_run(path))
}

fn can_run(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.mode() & ANYBODY_RUNS != 0)
}
