//! Folders that a program had made and that have other names since, however often they got one:
//! they are known by their inode numbers and times of birth, and get their names back with all that
//! is below.
//!
//! Kept true: what has such a name by now is not lost, it gets the other one.

use crate::kernel::find_file::{MAX_ENTRIES, file_with};
use crate::kernel::inode::born;
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::{AnonymousObject, Marks, ObjectKind, State, kept};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A folder as it was.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    pub ino: u64,
    /// When it was made; 0: not known.
    pub born_ns: i64,
    pub mode: u32,
    pub marks: Option<Marks>,
}

impl Folder {
    fn is_at(&self, path: &Path) -> bool {
        let same = |m: fs::Metadata| m.is_dir() && (m.ino(), born(&m)) == (self.ino, self.born_ns);
        fs::symlink_metadata(path).is_ok_and(same)
    }

    /// Where it is now, if that is below a folder.
    pub fn below(&self, folder: &Path, left: &mut usize) -> Option<PathBuf> {
        let is_it = |entry: &DirEntry| self.is_at(&entry.path());
        file_with(self.ino, folder, true, left, is_it)
    }
}

/// The folders that `states` tell of.
pub(crate) fn of(states: &[&State]) -> BTreeMap<PathBuf, Folder> {
    let folder = |o: &AnonymousObject| match &o.kind {
        ObjectKind::Kept { file, born_ns, flags, marks, .. } if flags & kept::FOLDER != 0 => {
            let (ino, born_ns, mode, marks) = (file.ino, *born_ns, o.mode, marks.clone());
            Some((PathBuf::from(path_of(&file.path)), Folder { ino, born_ns, mode, marks }))
        }
        _ => None,
    };
    states.iter().flat_map(|s| &s.anonymous).filter_map(folder).collect()
}

/// One that has another name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RenamedFolder {
    /// What it was called.
    pub path: PathBuf,
    /// What it is called now, if those before it in the list have their names again.
    pub place: PathBuf,
}

/// Those of these folders, each before what was below it.
pub(crate) fn find(folders: &BTreeMap<PathBuf, Folder>) -> Vec<RenamedFolder> {
    let (mut all, mut left) = (Vec::<RenamedFolder>::new(), MAX_ENTRIES);
    for (path, folder) in folders.iter().filter(|(_, folder)| folder.born_ns != 0) {
        // It may have come along with one above it.
        if folder.is_at(&now(&all, path)) {
            continue;
        }
        let there = path.ancestors().skip(1).find(|above| above.is_dir());
        let Some(mut place) = there.and_then(|above| folder.below(above, &mut left)) else {
            continue;
        };
        all.iter().for_each(|before| before.back(&mut place));
        all.push(RenamedFolder { path: path.clone(), place });
    }
    all
}

/// Where what had this path is, if only folders have other names.
pub(crate) fn now(all: &[RenamedFolder], path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    all.iter().rev().for_each(|one| one.back(&mut path));
    path
}

fn moved(path: &Path, from: &Path, to: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(from).ok()?;
    // Joined to nothing it would end with a slash.
    Some(to.components().chain(rest.components()).collect())
}

impl RenamedFolder {
    /// A path of now becomes what it is when this folder has its name again, and the other way
    /// round: what had the name gets the other one.
    pub fn back(&self, path: &mut PathBuf) {
        let found = moved(path, &self.place, &self.path);
        if let Some(other) = found.or_else(|| moved(path, &self.path, &self.place)) {
            *path = other;
        }
    }

    pub fn described(&self) -> String {
        format!("was renamed to {} since the checkpoint", self.place.display())
    }

    /// Gives it its name again.
    pub fn rename(&self) -> io::Result<()> {
        if fs::symlink_metadata(&self.path).is_err() {
            self.path.parent().map_or(Ok(()), fs::create_dir_all)?;
            return fs::rename(&self.place, &self.path);
        }
        exchange(&self.place, &self.path)
    }
}

/// Two that are there change places.
pub(crate) fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    let name = |path: &Path| CString::new(path.as_os_str().as_bytes());
    let (a, b, at) = (name(a)?, name(b)?, libc::AT_FDCWD);
    // SAFETY: C strings that outlive the call.
    match unsafe { libc::renameat2(at, a.as_ptr(), at, b.as_ptr(), libc::RENAME_EXCHANGE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_get_their_names_back_however_often_they_got_others() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let mut folders = BTreeMap::new();
        for name in ["a", "a/x", "a/x/y", "b", "c"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("in"), name).unwrap();
            let meta = fs::metadata(at(name)).unwrap();
            let (ino, born_ns) = (meta.ino(), born(&meta));
            folders.insert(at(name), Folder { ino, born_ns, mode: 0o755, marks: None });
        }
        assert_eq!(find(&folders), []);
        if folders.values().any(|folder| folder.born_ns == 0) {
            return;
        }
        let renames =
            [("a", "d"), ("d", "e"), ("b", "a"), ("e/x", "a/z"), ("e", "b"), ("c", "b/c")];
        renames.iter().for_each(|(from, to)| fs::rename(at(from), at(to)).unwrap());
        fs::create_dir(at("c")).unwrap();
        fs::write(at("c/in"), "new").unwrap();
        let all = find(&folders);
        let files = ["a", "a/x", "a/x/y", "b", "c"].map(|name| at(name).join("in"));
        let (now, mut new): (Vec<PathBuf>, _) =
            (files.iter().map(|file| now(&all, file)).collect(), at("c/in"));
        for (file, name) in now.iter().zip(["a", "a/x", "a/x/y", "b", "c"]) {
            assert_eq!(fs::read_to_string(file).unwrap(), name, "{all:?}");
        }
        for one in &all {
            one.rename().unwrap();
            one.back(&mut new);
        }
        for (file, name) in files.iter().zip(["a", "a/x", "a/x/y", "b", "c"]) {
            assert_eq!(fs::read_to_string(file).unwrap(), name);
        }
        assert_eq!(fs::read_to_string(&new).unwrap(), "new", "{}", new.display());
        assert_eq!(find(&folders), []);
    }
}
