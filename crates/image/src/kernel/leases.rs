//! Who has a file open for writing just now: by the kernel's word where it gives one (a lease), by
//! looking through all processes elsewhere.

use crate::kernel::procfs;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const F_SETSIG: i32 = 10;

/// A process that has it, or 0 if only that somebody has it is known.
pub fn of(path: &Path) -> Option<libc::pid_t> {
    let file = File::open(path).ok()?;
    match lease(&file) {
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
            same && can_write(pid, fd.file_name().as_encoded_bytes())
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
