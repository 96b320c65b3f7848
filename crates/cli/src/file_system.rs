//! How much room a file system has, and of which kind it is.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a file system.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    pub all: u64,
    pub free: u64,
}

/// The file system that `path` is on, or will be.
pub fn space(path: &Path) -> Option<Space> {
    let found = statfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(u64::try_from(found.f_frsize).unwrap_or(0));
    Some(Space { all: bytes(found.f_blocks), free: bytes(found.f_bavail) })
}

pub fn statfs(path: &Path) -> Option<libc::statfs64> {
    let there = path.ancestors().find(|p| p.exists())?;
    let name = CString::new(there.as_os_str().as_bytes()).ok()?;
    // SAFETY: plain data for which zero is valid.
    let mut found: libc::statfs64 = unsafe { std::mem::zeroed() };
    // SAFETY: the name is a C string, the place live.
    let rc = unsafe { libc::statfs64(name.as_ptr(), &mut found) };
    (rc == 0).then_some(found)
}
