//! Handles of files: what the kernel knows a file by, whatever name it has.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes before the handle itself: how many these are, and of which kind.
pub const HEAD_BYTES: usize = 8;
/// Most bytes of a handle.
const MAX_BYTES: usize = 128;

/// The `struct file_handle` of what a path leads to, without room to spare. `flags`: those of
/// `name_to_handle_at`. `None`: its file system has no handles.
pub fn handle_of(path: &Path, flags: i32) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut handle = (MAX_BYTES as u32).to_ne_bytes().to_vec();
    handle.resize(HEAD_BYTES + MAX_BYTES, 0);
    let mut mount = 0i32;
    // SAFETY: a C string, a live `struct file_handle` with room for as many bytes as it says, and a
    // live number.
    let made = unsafe {
        let (cwd, to) = (libc::AT_FDCWD, handle.as_mut_ptr());
        libc::syscall(libc::SYS_name_to_handle_at, cwd, path.as_ptr(), to, &raw mut mount, flags)
    };
    if made != 0 {
        return None;
    }
    let bytes = u32::from_ne_bytes(*handle.first_chunk()?) as usize;
    handle.truncate(HEAD_BYTES + bytes);
    Some(handle)
}
