//! Symbolic links and named pipes that a program was seen making: nothing is stored of them but
//! what makes them again. A restore does so where one is gone since.
//!
//! Kept true: only what the program made itself since then is taken away for that; what is somebody
//! else's stays, and it is told.

use crate::resources::files::metadata::{self, Then};
use crate::resources::files::undo::FileNote;
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::objects::{BETWEEN, parts};
use eyrie_image_format::state::{AnonymousObject, Marks, ObjectKind, State, kept};
use std::ffi::CString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// One that the program had made, or that was there when it began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Special {
    pub path: PathBuf,
    /// Where a link leads; a pipe leads nowhere.
    leads_to: Vec<u8>,
    mode: u32,
    marks: Option<Marks>,
}

/// Whether something is of this kind.
pub(crate) fn is_special(meta: &Metadata) -> bool {
    meta.is_symlink() || meta.file_type().is_fifo()
}

/// How it is noted: its path, and where it leads.
pub(crate) fn noted(path: &[u8], meta: &Metadata) -> Option<Vec<u8>> {
    let leads_to = match meta.is_symlink() {
        true => fs::read_link(path_of(path)).ok()?.into_os_string().into_vec(),
        false => Vec::new(),
    };
    Some([path, &[BETWEEN], &leads_to].concat())
}

/// What lies there, if it is one.
pub(crate) fn at(path: &Path, meta: &Metadata) -> Option<Special> {
    let (name, mode) = (path.as_os_str().as_bytes(), meta.mode() & 0o7777);
    let noted = is_special(meta).then(|| noted(name, meta))??;
    let (leads_to, path) = (parts(&noted).1.to_vec(), path.to_path_buf());
    let marks = metadata::of(&path);
    Some(Special { path, leads_to, mode, marks })
}

/// Those that `states` tell of.
pub(crate) fn of(states: &[&State]) -> Vec<Special> {
    let special = |o: &AnonymousObject| match &o.kind {
        ObjectKind::Kept { file, flags, marks, .. } if flags & kept::SPECIAL != 0 => {
            let (path, leads_to) = parts(&file.path);
            let (path, leads_to) = (path_of(path).into(), leads_to.to_vec());
            Some(Special { path, leads_to, mode: o.mode, marks: marks.clone() })
        }
        _ => None,
    };
    states.iter().flat_map(|s| &s.anonymous).filter_map(special).collect()
}

impl Special {
    /// Whether it is what it was. `None`: it is gone.
    fn is_as_it_was(&self) -> Option<bool> {
        let meta = fs::symlink_metadata(&self.path).ok()?;
        let same = match self.leads_to.is_empty() {
            true => meta.file_type().is_fifo(),
            false => {
                fs::read_link(&self.path).is_ok_and(|to| to.as_os_str().as_bytes() == self.leads_to)
            }
        };
        Some(same)
    }

    /// What is not as it was.
    pub fn differs(&self) -> Option<&'static str> {
        match self.is_as_it_was() {
            Some(true) => None,
            Some(false) => Some("was replaced since the checkpoint"),
            None => Some("was removed since the checkpoint"),
        }
    }

    /// Makes it again if it is gone, or else tells of it; `moves`: it may be made.
    pub fn put_back(&self, moves: bool) -> Option<FileNote> {
        let what = self.differs()?;
        let path = self.path.clone();
        if !moves || self.is_as_it_was().is_some() {
            let what = format!("{what}; it is left as it is");
            return Some(FileNote { path, what, left: true });
        }
        let (how, left) = match self.make() {
            Ok(()) => match self.mark() {
                None => ("it is made again".to_owned(), false),
                Some(what) => (format!("it is made again; it {what}"), true),
            },
            Err(e) => (format!("it cannot be made again: {e}"), true),
        };
        Some(FileNote { path, what: format!("{what}; {how}"), left })
    }

    /// Gives it the owner that it had, and the like; returns what is not so.
    fn mark(&self) -> Option<String> {
        if !self.leads_to.is_empty() {
            let Marks { owner, group, .. } = self.marks.as_ref()?;
            let done = std::os::unix::fs::lchown(&self.path, Some(*owner), Some(*group));
            return done.err().map(|e| format!("has another owner than at the checkpoint: {e}"));
        }
        let then = Then { marks: self.marks.as_ref(), mode: self.mode, changed_ns: None };
        then.put_back(&self.path, true, false).map(|(what, _)| what)
    }

    fn make(&self) -> io::Result<()> {
        if !self.leads_to.is_empty() {
            return std::os::unix::fs::symlink(path_of(&self.leads_to), &self.path);
        }
        let path = CString::new(self.path.as_os_str().as_bytes())?;
        // SAFETY: a C string that outlives the call.
        match unsafe { libc::mkfifo(path.as_ptr(), self.mode) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_and_a_pipe_are_made_again_and_what_is_another_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (link, pipe) = (folder.path().join("link"), folder.path().join("pipe"));
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        let of = |path: &Path, leads_to: &[u8]| Special {
            path: path.to_path_buf(),
            leads_to: leads_to.to_vec(),
            mode: 0o600,
            marks: None,
        };
        let meta = fs::symlink_metadata(&link).unwrap();
        let note = noted(link.as_os_str().as_bytes(), &meta).unwrap();
        assert_eq!(parts(&note), (link.as_os_str().as_bytes(), &b"nowhere"[..]));
        let all = [of(&link, b"nowhere"), of(&pipe, b"")];
        assert_eq!(all[0].put_back(true), None);
        assert!(all[1].put_back(false).unwrap().left, "only told");
        fs::remove_file(&link).unwrap();
        assert!(all.iter().all(|one| !one.put_back(true).unwrap().left));
        assert!(all.iter().all(|one| one.put_back(true).is_none()));
        assert!(is_special(&fs::symlink_metadata(&pipe).unwrap()));
        fs::remove_file(&link).unwrap();
        fs::write(&link, "").unwrap();
        assert!(all[0].put_back(true).unwrap().left);
    }
}
