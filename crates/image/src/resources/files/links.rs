//! Files whose names are others than what the kernel shows for a descriptor or a mapping: one that
//! had no name (`O_TMPFILE`) and was given one, one that was opened under a name that is gone while
//! it has another, and one whose own name ends as the kernel marks what was deleted.
//!
//! The kernel knows a name by the file's handle, and tells it to who may open by one
//! (`CAP_DAC_READ_SEARCH`). Otherwise the name is looked for by the file's number: in the folder
//! where the file was, in those below and beside it, and where the process works.
//!
//! Kept true: a name counts only if the very file has it now. What is written to and has a name
//! that is not found is refused: it would come back as another file.

use crate::kernel::file_handle::handle_of;
use crate::kernel::find_file::{MAX_ENTRIES, file_with};
use crate::kernel::inode::{Inode, inode_at, is_shown_as};
use crate::kernel::procfs::{DELETED, Mapping};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirEntry, File, Metadata, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the kernel names what only it has, in the way of files that were deleted.
const OF_MEMORY: [&[u8]; 7] = [
    b"/memfd:",
    b"/SYSV",
    b"/dev/zero",
    b"/secretmem",
    b"/anon_hugepage",
    b"/[aio]",
    b"/drm mm object",
];

/// What was found of the files of a family.
#[derive(Debug)]
pub struct Linked {
    names: HashMap<Inode, Name>,
    /// Entries of folders that may yet be looked at.
    left: usize,
}

/// What is known of a file's name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    Is(Vec<u8>),
    /// It has one.
    NotFound,
    /// It has none, as far as can be seen.
    None,
}

impl Default for Linked {
    fn default() -> Linked {
        Linked { names: HashMap::new(), left: MAX_ENTRIES }
    }
}

impl Linked {
    /// The name of a file that was looked for.
    pub fn name(&self, file: Inode) -> Option<&[u8]> {
        match self.names.get(&file) {
            Some(Name::Is(name)) => Some(name),
            _ => None,
        }
    }

    /// Whether a file has a name, and it was not found.
    pub fn is_elsewhere(&self, file: Inode) -> bool {
        self.names.get(&file) == Some(&Name::NotFound)
    }

    /// The path of a mapped file.
    pub fn path<'a>(&'a self, m: &'a Mapping) -> &'a [u8] {
        self.name((m.dev, m.ino)).unwrap_or(&m.path)
    }

    /// Looks for the name of what descriptor `fd` of a process leads to, shown as `link`.
    /// Returns the file as mappings show it, if it may have one.
    pub fn look(
        &mut self,
        pid: libc::pid_t,
        fd: u32,
        link: &[u8],
        meta: &Metadata,
    ) -> Option<Inode> {
        if !meta.is_file() || !is_marked(link) {
            return None;
        }
        let at = format!("/proc/{pid}/fd/{fd}");
        let file = inode_at(Path::new(&at), meta);
        if !self.names.contains_key(&file) {
            let name = match meta.nlink() {
                0 => Name::None,
                _ => self.find(pid, &at, link, file),
            };
            self.names.insert(file, name);
        }
        Some(file)
    }

    /// The same for what is mapped shared. To see whether it has a name at all takes a privilege.
    pub fn look_mapped(&mut self, pid: libc::pid_t, m: &Mapping) {
        let file = (m.dev, m.ino);
        if !m.shared || !is_marked(&m.path) || self.names.contains_key(&file) {
            return;
        }
        let at = format!("/proc/{pid}/map_files/{:x}-{:x}", m.start, m.end);
        let name = match fs::metadata(&at) {
            Ok(meta) if !meta.is_file() || meta.nlink() == 0 => Name::None,
            Ok(_) => self.find(pid, &at, &m.path, file),
            Err(_) => {
                let here = is_it(path_of(&m.path), file).then(|| m.path.clone());
                let folder = folder_of(&m.path);
                let there = || self.search(folder, file, false).map(bytes);
                here.or_else(there).map_or(Name::None, Name::Is)
            }
        };
        self.names.insert(file, name);
    }

    /// The name of the file to which `at` leads, which has one.
    fn find(&mut self, pid: libc::pid_t, at: &str, shown: &[u8], file: Inode) -> Name {
        if is_it(path_of(shown), file) {
            return Name::Is(shown.to_vec());
        }
        let folder = folder_of(shown);
        if let Some(name) = by_handle(at, folder).filter(|name| is_it(name, file)) {
            return Name::Is(bytes(name));
        }
        let works_in = fs::read_link(format!("/proc/{pid}/cwd")).ok();
        let places = [Some(folder), folder.parent(), works_in.as_deref()];
        let found = places.into_iter().flatten().find_map(|place| self.search(place, file, true));
        found.map_or(Name::NotFound, |name| Name::Is(bytes(name)))
    }

    /// Looks for a file in a folder, and in those below.
    fn search(&mut self, folder: &Path, file: Inode, below: bool) -> Option<PathBuf> {
        let is_it = |entry: &DirEntry| is_it(&entry.path(), file);
        file_with(file.1, folder, below, &mut self.left, is_it)
    }
}

/// Whether what the kernel shows looks like a file that was deleted.
fn is_marked(shown: &[u8]) -> bool {
    let in_memory = OF_MEMORY.iter().any(|begin| shown.starts_with(begin));
    shown.starts_with(b"/") && shown.ends_with(DELETED) && !in_memory
}

fn path_of(shown: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(shown))
}

fn bytes(path: PathBuf) -> Vec<u8> {
    path.into_os_string().into_vec()
}

fn folder_of(shown: &[u8]) -> &Path {
    path_of(shown).parent().unwrap_or(Path::new("/"))
}

/// Whether a path is a name of this file.
fn is_it(path: &Path, file: Inode) -> bool {
    let same = |m: Metadata| m.is_file() && is_shown_as(path, &m, file);
    fs::symlink_metadata(path).is_ok_and(same)
}

/// A name of the file to which `at` leads, by its handle; `folder` lies on the same file system.
fn by_handle(at: &str, folder: &Path) -> Option<PathBuf> {
    let handle = handle_of(Path::new(at), libc::AT_SYMLINK_FOLLOW)?;
    let mut options = OpenOptions::new();
    let near = options.read(true).custom_flags(libc::O_DIRECTORY).open(folder).ok()?;
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: a live descriptor, and the handle as the kernel has filled it in.
    let fd = unsafe {
        let (near, handle) = (near.as_raw_fd(), handle.as_ptr());
        libc::syscall(libc::SYS_open_by_handle_at, near, handle, flags)
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: just made, and nobody else's.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(file: &File) -> Vec<u8> {
        bytes(fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap())
    }

    fn looked(file: &File) -> (Linked, Inode) {
        let (mut linked, meta) = (Linked::default(), file.metadata().unwrap());
        let pid = std::process::id() as libc::pid_t;
        linked.look(pid, file.as_raw_fd() as u32, &shown(file), &meta);
        (linked, inode_at(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())), &meta))
    }

    #[test]
    fn a_name_is_found_wherever_it_is() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("in/below")).unwrap();
        fs::create_dir(at("beside")).unwrap();
        for name in ["in/other", "in/below/other", "beside/other"] {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).open(at("in/first"));
            let file = file.unwrap();
            fs::hard_link(at("in/first"), at(name)).unwrap();
            fs::remove_file(at("in/first")).unwrap();
            let (linked, inode) = looked(&file);
            assert_eq!(linked.name(inode), Some(at(name).as_os_str().as_bytes()), "by the handle");
            // Who may not open by one.
            let mut linked = Linked::default();
            let folder = at("in");
            let found = linked.search(&folder, inode, true);
            let found = found.or_else(|| linked.search(place.path(), inode, true));
            assert_eq!(found, Some(at(name)));
            linked.left = 0;
            assert_eq!(linked.search(place.path(), inode, true), None);
        }
    }

    #[test]
    fn what_has_no_name_and_what_is_only_called_so() {
        let place = tempfile::tempdir().unwrap();
        let name = place.path().join("odd (deleted)");
        let file = File::create(&name).unwrap();
        let (linked, inode) = looked(&file);
        assert_eq!(linked.name(inode), Some(name.as_os_str().as_bytes()));
        fs::remove_file(&name).unwrap();
        let (linked, inode) = looked(&file);
        assert!(linked.name(inode).is_none() && !linked.is_elsewhere(inode));
        let plain = File::create(place.path().join("plain")).unwrap();
        assert!(looked(&plain).0.names.is_empty(), "nothing is looked for");
    }
}
