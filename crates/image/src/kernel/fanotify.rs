//! What the kernel tells of the files and folders in folders that are watched (fanotify): to those
//! who may administer the system with the process that did it.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const REPORT_DFID_NAME: u32 = 0x400 | 0x800;
pub(crate) const DFID_NAME: u8 = 2;
pub(crate) const OLD_DFID_NAME: u8 = 10;
pub(crate) const NEW_DFID_NAME: u8 = 12;
pub(crate) const EVENT_BYTES: usize = 24;
/// What is told of files and folders in a folder that is watched.
const ASKED: u64 = libc::FAN_OPEN
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_CREATE
    | libc::FAN_MOVED_TO
    | libc::FAN_DELETE
    | libc::FAN_ONDIR
    | libc::FAN_EVENT_ON_CHILD;

/// Begins, and says whether it will be told who did what; `None` where nothing is told.
pub(crate) fn init() -> Option<(OwnedFd, bool)> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | REPORT_DFID_NAME;
    // SAFETY: numbers only.
    let init = |flags| unsafe { libc::fanotify_init(flags, libc::O_RDONLY as u32) };
    // This takes the right to be told who does what. Nothing is lost if much is done at once.
    let mut fd = init(flags | libc::FAN_UNLIMITED_MARKS | libc::FAN_UNLIMITED_QUEUE);
    let told = fd >= 0;
    if !told {
        // Linux 5.13.
        fd = init(flags);
    }
    // SAFETY: just made, and nobody else's.
    (fd >= 0).then(|| (unsafe { OwnedFd::from_raw_fd(fd) }, told))
}

/// Has a folder watched.
pub(crate) fn mark(fd: RawFd, folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    let how = libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR;
    // SAFETY: the path is a C string that outlives the call.
    let mark =
        |asked| unsafe { libc::fanotify_mark(fd, how, asked, libc::AT_FDCWD, path.as_ptr()) == 0 };
    // Before Linux 5.17 names are only told one by one.
    mark(ASKED | libc::FAN_RENAME) || mark(ASKED)
}

/// A number of an event.
pub(crate) fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
}

/// The file of an event, by its folder and name.
pub(crate) fn path(
    folders: &HashMap<Vec<u8>, PathBuf>,
    event: &[u8],
    kinds: &[u8],
) -> Option<PathBuf> {
    let mut rest = event.get(number(event, 6, 2)? as usize..)?;
    while !kinds.contains(rest.first()?) {
        rest = rest.get((number(rest, 2, 2)? as usize).max(4)..)?;
    }
    let info = rest.get(..number(rest, 2, 2)? as usize)?;
    // Number of the file system, then a `struct file_handle`, then the name.
    let bytes = number(info, 12, 4)? as usize;
    let handle = info.get(12..20usize.checked_add(bytes)?)?;
    let name = info.get(20 + bytes..)?;
    let name = name.split(|&b| b == 0).next().filter(|n| !n.is_empty() && *n != b".")?;
    Some(folders.get(handle)?.join(OsStr::from_bytes(name)))
}

/// The handle of a folder, as events have it; `None` of one that cannot be watched so.
pub(crate) fn handle_of(folder: &Path) -> Option<Vec<u8>> {
    crate::kernel::file_handle::handle_of(folder, 0)
}
