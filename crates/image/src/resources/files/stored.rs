//! Files with a path whose content goes into the image, because a program that goes back would find
//! there what it wrote later: those that it has open for writing or mapped so, small ones that it
//! only reads, which somebody may clean up, and names beside them that log rotation moves on.
//!
//! Kept true: what is not noted here is not changed by a restore. A file that is only written to at
//! its end is cut back, so of a large one nothing is stored.

use crate::kernel::holes::bytes_there;
use crate::kernel::inode::{Inode, born, device, is_shown_as, open_here};
use crate::kernel::procfs::Mapping;
use crate::resources::files::appends::{appends, grows, writes};
use crate::resources::files::links::Linked;
use crate::resources::files::metadata;
use crate::resources::files::special;
use crate::resources::files::watch::Touched;
use crate::resources::open::{Table, file_id};
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::objects::{MAX_OBJECT_BYTES, parts};
use eyrie_image_format::state::resources::OpenFile;
use eyrie_image_format::state::{FileId, Marks, ObjectKind, State, kept};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Most bytes stored of a file, unless something else is said.
pub const DEFAULT_LIMIT_BYTES: u64 = 64 << 20;
/// Of all files of a family so many times as much as of one.
const ALL_FILES: u64 = 4;
/// Files that are only read, or only grow, are stored up to this size.
const SMALL_BYTES: u64 = 1 << 20;
/// Files that are not kept open, up to this part of the limit: most of them are finished.
const CLOSED_SHARE: u64 = 4;
/// Most files that are noted of a family.
const MAX_FILES: usize = 1024;
/// Most names beside a file that are noted, and most entries of a folder that are looked at.
const MAX_BESIDE: usize = 64;
const MAX_ENTRIES: usize = 4096;
/// What is installed there does not come and go.
const INSTALLED: [&str; 9] =
    ["/usr/", "/lib", "/etc/", "/bin/", "/sbin/", "/opt/", "/nix/", "/snap/", "/gnu/"];
/// Standard error.
const LAST_STREAM: u32 = 2;
/// No files on a storage.
const NO_STORAGE: [&str; 3] = ["/proc/", "/sys/", "/dev/"];

/// How much may yet be stored of the files of a family.
#[derive(Debug)]
pub struct Room {
    limit: u64,
    left: u64,
    seen: BTreeMap<Inode, bool>,
}

impl Room {
    /// Of each file at most so many bytes; 0: none is noted.
    pub fn new(limit: u64) -> Room {
        Room { limit, left: limit.saturating_mul(ALL_FILES), seen: BTreeMap::new() }
    }

    /// Whether a file of this size is to be stored, which counts as done then.
    fn take(&mut self, file: Inode, bytes: u64, limit: u64) -> bool {
        let fits = bytes <= limit.min(self.limit) && bytes <= self.left;
        let (left, seen) = (&mut self.left, &mut self.seen);
        *seen.entry(file).or_insert_with(|| {
            *left -= if fits { bytes } else { 0 };
            fits
        })
    }
}

/// A file to be noted.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its identity.
    pub file: FileId,
    /// When it was made, ns since 1970; 0 if its file system does not say.
    pub born_ns: i64,
    /// How many names it has.
    pub links: u32,
    /// Bits of [`kept`].
    pub flags: u32,
    /// Access rights.
    pub mode: u32,
    /// What else it is marked with.
    pub marks: Option<Marks>,
}

/// The files of a process that stands still.
pub fn find(
    table: &Table,
    (maps, linked): (&[Mapping], &Linked),
    touched: &[Touched],
    room: &mut Room,
) -> Vec<Wanted> {
    if room.limit == 0 {
        return Vec::new();
    }
    let mut found: BTreeMap<Inode, Wanted> = BTreeMap::new();
    // A log to which others write as well, such as who started it.
    let is_stream = |i: usize| {
        table.descriptors.iter().any(|d| d.description as usize == i && d.fd <= LAST_STREAM)
    };
    for (i, d) in table.descriptions.iter().enumerate() {
        let Some(OpenFile { id, dir: false }) = d.target.file() else { continue };
        if d.flags as i32 & libc::O_PATH == 0 {
            let mut flags = if grows(d, id) { kept::GROWS } else { 0 };
            flags |= if appends(d) && !is_stream(i) { kept::APPENDS } else { 0 };
            note(&mut found, &id.path, if writes(d) { kept::WRITTEN | flags } else { kept::READ });
        }
    }
    for m in maps.iter().filter(|m| m.shared && m.path.starts_with(b"/")) {
        let flags = if m.may_be_written() { kept::WRITTEN } else { kept::READ };
        let path = linked.path(m);
        let name = path_of(path);
        let is_it = |meta: Metadata| is_shown_as(Path::new(&name), &meta, (m.dev, m.ino));
        if fs::metadata(&name).is_ok_and(is_it) {
            note(&mut found, path, flags);
        }
    }
    for Touched { path, shared, folder, .. } in touched {
        let flags = match (folder, shared) {
            (true, _) => kept::FOLDER,
            (false, true) => kept::TOUCHED | kept::SHARED,
            (false, false) => kept::TOUCHED,
        };
        note(&mut found, path.as_os_str().as_bytes(), flags);
    }
    let names: BTreeSet<Vec<u8>> = found.values().map(|w| w.file.path.clone()).collect();
    let written = |w: &&Wanted| w.flags & kept::WRITTEN != 0;
    let beside: Vec<Vec<u8>> = found.values().filter(written).flat_map(beside).collect();
    for path in beside.into_iter().filter(|path| !names.contains(path)) {
        note(&mut found, &path, kept::BESIDE);
    }
    let mut all: Vec<(Inode, Wanted)> = found.into_iter().collect();
    // What matters most comes first.
    all.sort_by_key(|(_, w)| (w.flags & (kept::WRITTEN | kept::TOUCHED) == 0, w.file.size));
    let chosen = all.into_iter().filter_map(|(inode, w)| choose(inode, w, room));
    chosen.collect()
}

/// What is stored of a file; `None`: it is not noted.
fn choose(inode: Inode, mut wanted: Wanted, room: &mut Room) -> Option<Wanted> {
    let writes = wanted.flags & (kept::WRITTEN | kept::TOUCHED) != 0;
    let in_place = writes && wanted.flags & kept::GROWS == 0;
    let limit = match wanted.flags & (kept::WRITTEN | kept::TOUCHED) {
        _ if !in_place => SMALL_BYTES,
        kept::TOUCHED => room.limit / CLOSED_SHARE,
        _ => u64::MAX,
    };
    if room.seen.len() >= MAX_FILES && !room.seen.contains_key(&inode) {
        return None;
    }
    const NO_CONTENT: u32 = kept::FOLDER | kept::SPECIAL;
    let none = wanted.flags & NO_CONTENT != 0;
    if !none && room.take(inode, bytes_of(&wanted.file, limit.min(room.limit)), limit) {
        wanted.flags |= kept::CONTENT;
    }
    let of_use = writes || wanted.flags & (kept::CONTENT | kept::BESIDE | NO_CONTENT) != 0;
    if !of_use {
        return None;
    }
    wanted.marks = metadata::of(Path::new(&path_of(parts(&wanted.file.path).0)));
    Some(wanted)
}

/// What storing a file takes: of a sparse one that is larger than what may be stored, its holes do
/// not count.
fn bytes_of(file: &FileId, most: u64) -> u64 {
    if file.size <= most || file.size > MAX_OBJECT_BYTES {
        return file.size;
    }
    match open_here(Path::new(&path_of(&file.path))) {
        Ok(opened) => bytes_there(&opened, file.size, most.saturating_add(1)),
        Err(_) => file.size,
    }
}

fn inode(meta: &Metadata) -> Inode {
    (device(meta.dev()), meta.ino())
}

/// Adds a file, or one more way in which it is used.
fn note(found: &mut BTreeMap<Inode, Wanted>, path: &[u8], flags: u32) {
    let shown = String::from_utf8_lossy(path);
    let in_memory = shown.starts_with("/dev/shm/");
    if NO_STORAGE.iter().any(|begin| shown.starts_with(begin)) && !in_memory {
        return;
    }
    if flags == kept::READ && INSTALLED.iter().any(|begin| shown.starts_with(begin)) {
        return;
    }
    let Ok(meta) = fs::symlink_metadata(path_of(path)) else { return };
    let made = flags == kept::FOLDER;
    let special = made && special::is_special(&meta);
    if if made { !special && !meta.is_dir() } else { !meta.is_file() } {
        return;
    }
    let noted = if special { special::noted(path, &meta) } else { Some(path.to_vec()) };
    let Some(noted) = noted else { return };
    let flags = if special { kept::SPECIAL } else { flags };
    let new = || Wanted {
        file: file_id(noted, &meta),
        born_ns: born(&meta),
        links: meta.nlink() as u32,
        flags: kept::GROWS,
        mode: meta.mode() & 0o7777,
        marks: None,
    };
    let wanted = found.entry(inode(&meta)).or_insert_with(new);
    let only_grows = flags & kept::GROWS != 0 || flags & (kept::WRITTEN | kept::TOUCHED) == 0;
    wanted.flags = wanted.flags & !kept::GROWS
        | flags & !kept::GROWS
        | if only_grows { wanted.flags & kept::GROWS } else { 0 };
    if wanted.flags & (kept::WRITTEN | kept::READ | kept::TOUCHED) != 0 {
        wanted.flags &= !kept::BESIDE;
    }
}

/// Names in the folder of a file that begin with its own and a full stop: where log rotation moves
/// it.
fn beside(wanted: &Wanted) -> Vec<Vec<u8>> {
    let path = path_of(&wanted.file.path);
    let path = Path::new(&path);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return vec![] };
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let moved_on = |entry: &fs::DirEntry| {
        let other = entry.file_name();
        let rest = other.as_bytes().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"."))
    };
    let found = entries.take(MAX_ENTRIES).flatten().filter(moved_on).take(MAX_BESIDE);
    found.map(|entry| entry.path().into_os_string().into_vec()).collect()
}

/// Whether the image can make the file of this identity again, or knows where it may have gone.
pub fn stands_in(state: &State, id: &FileId) -> bool {
    state.anonymous.iter().any(|o| match &o.kind {
        ObjectKind::Kept { file, flags, .. } => {
            flags & kept::CONTENT != 0 && file.path == id.path && file.ino == id.ino
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_BYTES;
    use eyrie_image_format::state::{Description, Target};
    use std::os::unix::fs::FileExt;

    fn open(path: &Path, flags: i32, offset: u64) -> Description {
        let meta = fs::metadata(path).unwrap();
        let id = file_id(path.as_os_str().as_bytes().to_vec(), &meta);
        let target = Target::File(OpenFile { id, dir: false });
        let (owner, locks) = (None, vec![]);
        Description { id: 1, target, flags: flags as u32, offset, owner, shared: false, locks }
    }

    fn names(found: &[Wanted], flag: u32) -> Vec<String> {
        let name = |w: &Wanted| {
            let path = path_of(&w.file.path);
            Path::new(&path).file_name().unwrap().to_str().unwrap().to_owned()
        };
        let mut names: Vec<String> =
            found.iter().filter(|w| w.flags & flag != 0).map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_written_in_place_is_stored_and_what_grows_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: u64| {
            let path = folder.path().join(name);
            fs::write(&path, vec![1u8; bytes as usize]).unwrap();
            path
        };
        let large = SMALL_BYTES + 1;
        let descriptions = vec![
            open(&file("place", large), libc::O_RDWR, 0),
            open(&file("log", large), libc::O_WRONLY | libc::O_APPEND, 0),
            open(&file("out", large), libc::O_WRONLY, large),
            open(&file("middle", large), libc::O_WRONLY, 5),
            open(&file("input", 10), libc::O_RDONLY, 0),
            open(&file("data", large), libc::O_RDONLY, 0),
        ];
        let all = Table { descriptors: vec![], descriptions };
        file("log.1", 10);
        file("logs", 10);
        let found = find(&all, (&[], &Linked::default()), &[], &mut Room::new(DEFAULT_LIMIT_BYTES));
        assert_eq!(names(&found, kept::CONTENT), ["input", "log.1", "middle", "place"]);
        assert_eq!(names(&found, kept::WRITTEN), ["log", "middle", "out", "place"]);
        assert_eq!(names(&found, kept::BESIDE), ["log.1"]);
        let written: Vec<Wanted> =
            found.iter().filter(|w| w.flags & kept::WRITTEN != 0).cloned().collect();
        assert_eq!(names(&written, kept::GROWS), ["log", "out"]);
        let found = find(&all, (&[], &Linked::default()), &[], &mut Room::new(large - 1));
        assert_eq!(names(&found, kept::CONTENT), ["input", "log.1"]);
        assert!(find(&all, (&[], &Linked::default()), &[], &mut Room::new(0)).is_empty());
    }

    #[test]
    fn of_a_sparse_file_its_holes_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        let file = fs::File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let stored = || {
            let all =
                Table { descriptors: vec![], descriptions: vec![open(&path, libc::O_RDWR, 0)] };
            let mut room = Room::new(4 * PAGE_BYTES);
            names(&find(&all, (&[], &Linked::default()), &[], &mut room), kept::CONTENT).len()
        };
        for at in 0..4 {
            file.write_all_at(b"data", at << 30).unwrap();
        }
        assert_eq!(stored(), 1);
        file.write_all_at(b"data", 5 << 30).unwrap();
        assert_eq!(stored(), 0, "five pages are there, and four may be stored");
    }

    #[test]
    fn all_together_have_a_limit_and_a_file_counts_once() {
        let mut room = Room::new(10);
        assert!((0..4).all(|i| room.take((0, i), 10, u64::MAX)));
        assert!(!room.take((0, 9), 1, u64::MAX));
        assert!(room.take((0, 3), 10, u64::MAX), "it is stored already");
    }
}
