//! Files that are appended to. What a process appended after its checkpoint it will append again,
//! so at restore such a file is cut back to its size at the checkpoint. But what others appended
//! meanwhile must stay.
//!
//! The rule: a file is cut only if nobody else had it open for writing at the checkpoint, and
//! nobody has it open for writing now. Who has it now is asked of the kernel (a read lease is
//! granted only on a file that nobody has open for writing); where it does not answer, nothing is
//! cut, and the process's own lines since the checkpoint appear twice, unless the user says that
//! nobody else writes (`Appended::Cut`), of which nothing is asked then. A process that opens,
//! appends and closes within that time leaves no trace; its lines are cut. Opening for appending
//! what several processes write to, and keeping it open, is what logs do.

use crate::error::RestoreError;
use crate::kept;
use crate::procfs;
use crate::reopen::file_error;
use crate::state::{Description, FileId, State, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Whether a description can write.
pub fn writes(description: &Description) -> bool {
    let flags = description.flags as i32;
    flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0
}

/// Whether it appends.
pub fn appends(description: &Description) -> bool {
    writes(description) && description.flags as i32 & libc::O_APPEND != 0
}

/// Whether all that it writes goes to the end of its file.
pub fn grows(description: &Description, id: &FileId) -> bool {
    let only = description.flags as i32 & libc::O_ACCMODE == libc::O_WRONLY;
    appends(description) || only && writes(description) && description.offset >= id.size
}

/// Files by device and inode number.
pub type Files = BTreeSet<(u64, u64)>;

/// The files that are appended to.
pub fn files(descriptions: &[Description]) -> Files {
    let file = |d: &Description| match &d.target {
        Target::File { id, .. } => Some((id.dev, id.ino)),
        _ => None,
    };
    descriptions.iter().filter(|d| appends(d)).filter_map(file).collect()
}

/// Marks the files that others have open for writing.
pub fn mark_shared(shared: &Files, descriptions: &mut [Description]) {
    for description in descriptions {
        if let Target::File { id, .. } = &description.target {
            description.shared = shared.contains(&(id.dev, id.ino));
        }
    }
}

/// Which of these files processes besides `own` have open for writing. What cannot be looked at
/// does not count: it belongs to other users. Nor does what `own` began since they were frozen: it
/// had nothing open then. Each with when it was made, 0 if that is not known: `own` may have
/// removed it since, and somebody's new file may have got its number.
pub fn open_elsewhere(own: &[libc::pid_t], wanted: &BTreeMap<(u64, u64), i64>) -> Files {
    let mut found = BTreeSet::new();
    let all = procfs::processes().unwrap_or_default();
    for pid in all.into_iter().filter(|pid| !own.contains(pid)) {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for fd in open.flatten() {
            let Ok(meta) = fs::metadata(fd.path()) else { continue };
            let file = (meta.dev(), meta.ino());
            let writes = || can_write(pid, fd.file_name().as_bytes());
            let born = kept::born(&meta);
            let is_it = |then: &i64| *then == 0 || born == 0 || *then == born;
            if wanted.get(&file).is_some_and(is_it) && writes() && !descends(pid, own) {
                found.insert(file);
            }
        }
    }
    found
}

/// Whether a process that is none of `own` has one of them among its parents, or is gone.
fn descends(mut pid: libc::pid_t, own: &[libc::pid_t]) -> bool {
    while pid > 1 {
        let Ok(stat) = procfs::Stat::read(pid) else { return true };
        pid = stat.field(4) as libc::pid_t;
        if own.contains(&pid) {
            return true;
        }
    }
    false
}

/// Whether a descriptor of a process, by its number as text, can write. One that was closed since
/// it was listed cannot; we ourselves open files to read them, beside the thread that looks here.
pub fn can_write(pid: libc::pid_t, fd: &[u8]) -> bool {
    let number = std::str::from_utf8(fd).ok().and_then(|n| n.parse::<u32>().ok());
    let Some(number) = number else { return false };
    match procfs::fdinfo(pid, number) {
        Ok(info) => info.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY,
        Err(_) => fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_ok(),
    }
}

/// What becomes of what was appended to files after the checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Appended {
    /// It is cut off where the kernel says that nobody else has the file open for writing.
    #[default]
    Auto,
    /// It is cut off, for nobody else writes: of NFS, Lustre and most of FUSE the kernel does not
    /// say that. Not where others had the file open for writing at the checkpoint.
    Cut,
    /// It stays.
    Keep,
}

/// Files to be cut back to their size at the checkpoint.
pub struct Cuts {
    /// Files (by device and inode number) that may be cut: nobody had them open for writing when
    /// we began, or so it was said.
    idle: BTreeSet<(u64, u64)>,
    /// The cuts, the largest size of all processes that append to a file.
    cuts: BTreeMap<(u64, u64), (File, Vec<u8>, u64)>,
}

impl Cuts {
    /// Looks which of the files that `states` append to nobody has open for writing.
    /// `place`: where a file is now, if it may be cut.
    pub fn find<'a>(
        states: impl Iterator<Item = &'a State>,
        appended: Appended,
        place: impl Fn(&FileId) -> Option<PathBuf>,
    ) -> Cuts {
        let mut idle = BTreeSet::new();
        let may_be_cut = |file: &File| match appended {
            Appended::Auto => nobody_writes(file),
            Appended::Cut => true,
            Appended::Keep => false,
        };
        for description in states.flat_map(|s| &s.descriptions) {
            let Target::File { id, .. } = &description.target else { continue };
            if !grows(description, id) {
                continue;
            }
            let Some(Ok(file)) = place(id).map(File::open) else { continue };
            if let Some(meta) = file.metadata().ok().filter(|_| may_be_cut(&file)) {
                idle.insert((meta.dev(), meta.ino()));
            }
        }
        Cuts { idle, cuts: BTreeMap::new() }
    }

    /// Notes that a file was longer than at the checkpoint, if it may be cut.
    pub fn note(&mut self, file: &File, id: &FileId, shared: bool) -> Result<(), RestoreError> {
        let failed = |e: std::io::Error| file_error(&id.path, e.to_string());
        let meta = file.metadata().map_err(failed)?;
        let key = (meta.dev(), meta.ino());
        if shared || !self.idle.contains(&key) {
            return Ok(());
        }
        let again = file.try_clone().map_err(failed)?;
        let entry = self.cuts.entry(key).or_insert((again, id.path.clone(), 0));
        entry.2 = entry.2.max(id.size);
        Ok(())
    }

    /// Cuts them.
    pub fn cut(&mut self) -> Result<(), RestoreError> {
        for (file, path, size) in self.cuts.values() {
            file.set_len(*size).map_err(|e| {
                file_error(path, format!("cannot be cut back to {size} bytes: {e}"))
            })?;
        }
        Ok(())
    }
}

/// What the kernel says of who has a file open for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// Nobody has.
    Nobody,
    /// Somebody has.
    Somebody,
    /// It does not say.
    Unknown,
}

/// Whether nobody has the file open for writing, by the kernel's word.
fn nobody_writes(file: &File) -> bool {
    lease(file) == Lease::Nobody
}

/// Asks the kernel who has a file open for writing.
pub fn lease(file: &File) -> Lease {
    let lease = |kind: i32| {
        // SAFETY: numbers only.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
    };
    // Should somebody open it for writing in this very moment, we are told by a signal that does
    // nothing.
    // SAFETY: numbers only.
    unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) };
    if lease(libc::F_RDLCK) {
        return if lease(libc::F_UNLCK) { Lease::Nobody } else { Lease::Unknown };
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => Lease::Somebody,
        _ => Lease::Unknown,
    }
}

const F_SETSIG: i32 = 10;
