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

use crate::error::{RestoreError, file_error};
use crate::kernel::inode;
use crate::kernel::leases::{Lease, can_write, lease};
use crate::kernel::procfs;
use eyrie_image_format::state::resources::OpenFile;
use eyrie_image_format::state::{Description, FileId, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

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
    let file = |d: &Description| d.target.file().map(|file| (file.id.dev, file.id.ino));
    descriptions.iter().filter(|d| appends(d)).filter_map(file).collect()
}

/// Marks the files that others have open for writing.
pub fn mark_shared(shared: &Files, descriptions: &mut [Description]) {
    for description in descriptions {
        if let Some(file) = description.target.file() {
            description.shared = shared.contains(&(file.id.dev, file.id.ino));
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
            let born = inode::born(&meta);
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

/// Which files the program does not append to again what it had appended: it has recorded that.
#[derive(Clone, Default)]
pub struct RecordedAppends(Option<Arc<IsRecorded>>);

/// By device and inode number.
type IsRecorded = dyn Fn(u64, u64) -> bool + Send + Sync;

impl RecordedAppends {
    /// `is_recorded`: of a file, by its device and inode number.
    pub fn new(is_recorded: impl Fn(u64, u64) -> bool + Send + Sync + 'static) -> RecordedAppends {
        RecordedAppends(Some(Arc::new(is_recorded)))
    }

    pub(super) fn has(&self, meta: &fs::Metadata) -> bool {
        self.0.as_ref().is_some_and(|is_recorded| is_recorded(meta.dev(), meta.ino()))
    }
}

impl fmt::Debug for RecordedAppends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordedAppends({})", self.0.is_some())
    }
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
            let Some(OpenFile { id, .. }) = description.target.file() else { continue };
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

/// Whether nobody has the file open for writing, by the kernel's word.
fn nobody_writes(file: &File) -> bool {
    lease(file) == Lease::Nobody
}
