//! Named shared memory: files on tmpfs that processes map shared and write to (`shm_open`,
//! `sem_open`). Their content is state of the program like that of shared memory without a name,
//! goes into the image, and is put back at restore.
//!
//! What is put back for one process changes for all. So nobody may have such a file, mapped or
//! open, who is not checkpointed with the process, nor at a restore who is not restored with it.
//! Processes that may not be looked at (of other users) do not count.

use crate::error::CaptureError;
use crate::kernel::inode::{Inode, device};
use crate::kernel::procfs::{self, DELETED, Status};
use crate::resources::open::Open;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Type of file systems that live in memory.
pub const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Those that a family of processes has, and their paths.
#[derive(Debug, Default)]
pub struct Named(BTreeMap<Inode, Vec<u8>>);

impl Named {
    /// Looks at the processes `pids`, which stand still and have `open` open.
    pub fn of(pids: &[libc::pid_t], open: &[Open]) -> Result<Named, CaptureError> {
        let mut mapped: BTreeMap<Inode, (Vec<Vec<u8>>, bool)> = BTreeMap::new();
        for &pid in pids {
            for m in procfs::maps(pid)? {
                if m.shared && m.path.starts_with(b"/") {
                    let entry = mapped.entry((m.dev, m.ino)).or_default();
                    entry.1 |= m.prot & libc::PROT_WRITE as u32 != 0;
                    entry.0.push(m.path);
                }
            }
        }
        for open in open.iter().filter(|open| open.writes()) {
            let file = (device(open.meta.dev()), open.meta.ino());
            if let Some(entry) = mapped.get_mut(&file) {
                entry.1 = true;
            }
        }
        mapped.retain(|_, (_, written)| *written);
        let path = |(file, (paths, _)): (Inode, (Vec<Vec<u8>>, bool))| {
            let here = paths.iter().find(|path| on_tmpfs(path, file)).cloned();
            Some((file, here.or_else(|| paths.iter().find_map(|path| renamed(path, file)))?))
        };
        Ok(Named(mapped.into_iter().filter_map(path).collect()))
    }

    /// The path of a file if it is one of them.
    pub fn path(&self, file: Inode) -> Option<&[u8]> {
        self.0.get(&file).map(Vec::as_slice)
    }
}

/// Where a file has another name in the folder of the one that it was mapped under and that was
/// deleted. `sem_open` makes a semaphore so: under a name for the moment.
fn renamed(path: &[u8], file: Inode) -> Option<Vec<u8>> {
    let folder = Path::new(OsStr::from_bytes(path.strip_suffix(DELETED)?)).parent()?;
    // Memory without a name is shown as if it lay in the root folder.
    let folder = Some(folder).filter(|f| f.parent().is_some())?;
    fs::read_dir(folder).ok()?.flatten().filter(|entry| entry.ino() == file.1).find_map(|entry| {
        let path = entry.path().into_os_string().into_vec();
        on_tmpfs(&path, file).then_some(path)
    })
}

/// Whether a path leads to this file, and that is on tmpfs.
fn on_tmpfs(path: &[u8], file: Inode) -> bool {
    let Ok(text) = CString::new(path) else { return false };
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut fs: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a live C string and a live structure.
    let r = unsafe { libc::statfs(text.as_ptr(), &raw mut fs) };
    let same = |m: fs::Metadata| m.is_file() && (device(m.dev()), m.ino()) == file;
    r == 0 && fs.f_type == TMPFS_MAGIC && fs::metadata(OsStr::from_bytes(path)).is_ok_and(same)
}

/// Twins of this program's making. They stand still, and neither read nor write.
static TWINS: Mutex<BTreeSet<libc::pid_t>> = Mutex::new(BTreeSet::new());

/// Keeps a process on the list of twins as long as it lives.
pub struct Still(libc::pid_t);

impl Still {
    /// Puts it there.
    pub fn new(pid: libc::pid_t) -> Still {
        TWINS.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
        Still(pid)
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        TWINS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}

/// A process besides `own` that has one of these files mapped or open, and which one. What this
/// program has opened to look at is no matter, what it has mapped is.
pub fn holder(own: &[libc::pid_t], wanted: &BTreeSet<Inode>) -> Option<(libc::pid_t, Inode)> {
    if wanted.is_empty() {
        return None;
    }
    let all = procfs::processes().unwrap_or_default();
    for pid in all.into_iter().filter(|pid| !own.contains(pid)) {
        let held = mapped(pid, wanted).or_else(|| open(pid, wanted));
        if let Some(file) = held.filter(|_| !is_twin(pid)) {
            return Some((pid, file));
        }
    }
    None
}

fn is_twin(pid: libc::pid_t) -> bool {
    TWINS.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)
}

fn mapped(pid: libc::pid_t, wanted: &BTreeSet<Inode>) -> Option<Inode> {
    let maps = procfs::maps(pid).ok()?;
    maps.iter().map(|m| (m.dev, m.ino)).find(|file| wanted.contains(file))
}

fn open(pid: libc::pid_t, wanted: &BTreeSet<Inode>) -> Option<Inode> {
    let this = std::process::id();
    if pid as u32 == this {
        return None;
    }
    let found = procfs::numbers(pid, "fd").ok()?.into_iter().find_map(|fd| {
        let meta = fs::metadata(format!("/proc/{pid}/fd/{fd}")).ok()?;
        Some((device(meta.dev()), meta.ino())).filter(|file| wanted.contains(file))
    })?;
    // A child that this program is just starting has its descriptors until it executes another.
    let parent = Status::read(pid).and_then(|s| s.number("PPid", 10)).ok();
    let exe = |who: &str| fs::read_link(format!("/proc/{who}/exe")).ok();
    let starting = parent == Some(u64::from(this)) && exe(&pid.to_string()) == exe("self");
    (!starting).then_some(found)
}
