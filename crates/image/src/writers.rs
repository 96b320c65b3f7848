//! Who has a file open for writing just now: by the kernel's word where it gives one (a lease), by
//! looking through all processes elsewhere.

use crate::append::{self, Lease};
use crate::procfs;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process that has it, or 0 if only that somebody has it is known.
pub fn of(path: &Path) -> Option<libc::pid_t> {
    let file = File::open(path).ok()?;
    match append::lease(&file) {
        Lease::Nobody => None,
        asked => {
            let meta = file.metadata().ok()?;
            let found = find((meta.dev(), meta.ino()));
            found.or((asked == Lease::Somebody).then_some(0))
        }
    }
}

fn find(file: (u64, u64)) -> Option<libc::pid_t> {
    let all = procfs::processes().unwrap_or_default();
    all.into_iter().find(|&pid| {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.into_iter().any(|fd| {
            let same = fs::metadata(fd.path()).is_ok_and(|m| (m.dev(), m.ino()) == file);
            same && append::can_write(pid, fd.file_name().as_encoded_bytes())
        })
    })
}

/// In words.
pub fn named(pid: libc::pid_t) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match (pid, name.trim()) {
        (0, _) => "another process has it open for writing".into(),
        (_, "") => format!("process {pid} has it open for writing"),
        (_, name) => format!("process {pid} ({name}) has it open for writing"),
    }
}
