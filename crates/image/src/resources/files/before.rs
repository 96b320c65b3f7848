//! Files as they were when programs began, of which the image knows nothing: what a program first
//! wrote to, replaced, renamed or removed after the checkpoint was at the checkpoint what it was
//! when programs began ([`crate::Beginning`]), and is put back with the files of the image
//! ([`crate::resources::files::undo`]).
//!
//! Kept true: it is only put back if it was not seen being changed before the checkpoint.

use crate::resources::files::renamed_folders::Folder;
use crate::resources::files::special::Special;
use crate::resources::files::undo::Case;
use eyrie_image_format::state::{FileId, Marks, kept};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// One file.
#[derive(Debug, Clone)]
pub(super) struct OldFile {
    pub file: FileId,
    /// When it was made, how many names it had, and its mode.
    pub about: (i64, u32, u32),
    pub marks: Option<Marks>,
    pub content: Option<Arc<File>>,
    pub shared: bool,
}

/// What programs changed of what was there when they began, each with the time of day in ns at
/// which they were first seen doing so.
#[derive(Debug, Clone, Default)]
pub struct Before {
    pub(super) files: Vec<(i64, PathBuf, OldFile)>,
    pub(super) folders: Vec<(i64, PathBuf, Folder)>,
    pub(super) specials: Vec<(i64, Special)>,
}

/// What of that was changed since a checkpoint.
#[derive(Debug, Default)]
pub(super) struct Again {
    pub cases: Vec<Case>,
    pub contents: BTreeMap<u64, Arc<File>>,
    pub folders: BTreeMap<PathBuf, Folder>,
    pub specials: Vec<Special>,
    /// Names of all these.
    pub paths: BTreeSet<PathBuf>,
    /// To which others were seen writing, too.
    pub shared: Vec<PathBuf>,
}

impl Before {
    /// What was first changed after this time of day; `known`: of the image's own.
    pub(super) fn since(&self, moment: i64, known: &[Case]) -> Again {
        let mut again = Again::default();
        let is_known = |path: &PathBuf, old: &OldFile| {
            known.iter().any(|case| case.is_of(path, old.file.ino, old.about.0))
        };
        let files =
            self.files.iter().filter(|(at, path, old)| *at >= moment && !is_known(path, old));
        for (number, (_, path, old)) in (0..).zip(files) {
            let id = u64::MAX - number;
            let content = old.content.as_ref().map_or(0, |_| kept::CONTENT);
            let flags = kept::TOUCHED | content;
            let case = Case::new(id, old.file.clone(), old.about, flags, old.marks.clone());
            again.cases.push(case);
            again.contents.extend(old.content.clone().map(|content| (id, content)));
            again.shared.extend(old.shared.then(|| path.clone()));
            again.paths.insert(path.clone());
        }
        for (_, path, folder) in self.folders.iter().filter(|(at, ..)| *at >= moment) {
            again.folders.insert(path.clone(), folder.clone());
            again.paths.insert(path.clone());
        }
        for (_, special) in self.specials.iter().filter(|(at, _)| *at >= moment) {
            again.paths.insert(special.path.clone());
            again.specials.push(special.clone());
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn old(path: &str, ino: u64) -> OldFile {
        let path = path.as_bytes().to_vec();
        let file = FileId { path, dev: 1, ino, size: 0, mtime_ns: 0 };
        OldFile { file, about: (7, 1, 0o644), marks: None, content: None, shared: ino == 3 }
    }

    #[test]
    fn only_what_was_changed_since_and_is_not_of_the_image_counts() {
        let files = [("/a", 1, 10), ("/b", 2, 20), ("/c", 3, 30), ("/d", 4, 30), ("/e", 5, 30)];
        let file = |(path, ino, at): (&str, u64, i64)| (at, PathBuf::from(path), old(path, ino));
        let folder = Folder { ino: 9, born_ns: 7, mode: 0o755, marks: None };
        let folders = vec![(19, PathBuf::from("/x"), folder.clone()), (20, "/y".into(), folder)];
        let before = Before { files: files.map(file).to_vec(), folders, specials: Vec::new() };
        let of_image = |path, ino| Case::new(1, old(path, ino).file, (7, 1, 0), 0, None);
        // One has its name, the other one is that file.
        let again = before.since(20, &[of_image("/d", 40), of_image("/other", 5)]);
        let names = |all: &[&str]| all.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        assert_eq!(again.paths, names(&["/b", "/c", "/y"]));
        assert_eq!((again.cases.len(), again.folders.len()), (2, 1));
        assert_eq!(again.shared, [PathBuf::from("/c")]);
    }
}
