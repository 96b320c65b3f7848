//! inotify instances. The kernel tells what they watch by inode; the path is found by the file
//! handle that it shows (with privileges), or else below the working folder. Events that were not
//! read cannot be put back: with such a checkpoint has to wait until the program has read them.

use crate::error::{CaptureError, RestoreError, file_error};
use crate::kernel::procfs;
use crate::kernel::remote_descriptors::{self, RemoteDescriptors};
use crate::resources::open::{Open, cannot, refused, refused_now, unclear};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::resources::{Inotify, Watch};
use eyrie_image_format::state::{Description, Target};
use std::collections::VecDeque;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `INOTIFY_IOC_SETNEXTWD`.
const SET_NEXT_WD: u64 = 0x4004_4900;
/// Most entries that are looked at below the working folder.
const MAX_ENTRIES: usize = 20_000;
/// Most watches that are made and removed to get to a number, on kernels that do not let us choose.
const MAX_SKIPPED: i32 = 100_000;
/// Flags that `inotify_add_watch` takes (events and options, not those that it only reports).
const MASK: u32 = 0x0000_0fff | 0x0400_0000;

impl Resource for Inotify {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if !matches!(this.anonymous_inode(), Some(b"inotify" | b"[inotify]")) {
            return Ok(None);
        }
        let watches = watched(this, look.remote)?;
        Ok(Some(Target::Inotify(Inotify { watches })))
    }

    fn restore(&self, _: &Description, _: &mut Making<'_>) -> Result<Made, RestoreError> {
        make(&self.watches).map(Made::New)
    }
}

/// One line of `fdinfo`.
struct Line {
    wd: i32,
    ino: u64,
    /// Device as the kernel numbers it: major from bit 20 on.
    dev: u32,
    mask: u32,
    handle_kind: i32,
    handle: Vec<u8>,
}

/// What an inotify instance watches.
fn watched(this: &Open, remote: &RemoteDescriptors) -> Result<Vec<Watch>, CaptureError> {
    let fd = remote.borrow(this.fd)?;
    if remote_descriptors::ioctl::<i32>(&fd, libc::FIONREAD).is_ok_and(|bytes| bytes > 0) {
        let what = "an inotify instance with events that the program has not read yet; try again \
                    when it has";
        return Err(refused_now(this, what.into()));
    }
    let mut watches = Vec::new();
    for (_, line) in this.info.lines.iter().filter(|(key, _)| key == "inotify wd") {
        let line = parse(line).ok_or_else(|| unclear(this))?;
        let Some(path) = by_handle(&line).or_else(|| below_folder(this.pid, &line)) else {
            let what = format!(
                "an inotify instance that watches inode {}, whose path can only be found with \
                 privileges (CAP_DAC_READ_SEARCH)",
                line.ino
            );
            return Err(refused(this, what));
        };
        let path = path.into_os_string().into_vec();
        watches.push(Watch { wd: line.wd, mask: line.mask & MASK, ino: line.ino, path });
    }
    watches.sort_by_key(|w| w.wd);
    Ok(watches)
}

/// Parses `1 ino:2f sdev:fe00001 mask:fce ignored_mask:0 fhandle-bytes:8 fhandle-type:1
/// f_handle:2f00...`.
fn parse(line: &str) -> Option<Line> {
    let wd = line.split_ascii_whitespace().next()?.parse().ok()?;
    let text = |name: &str| {
        line.split_ascii_whitespace().find_map(|f| f.strip_prefix(name)?.strip_prefix(':'))
    };
    let number = |name: &str| u64::from_str_radix(text(name)?, 16).ok();
    let digits = text("f_handle").unwrap_or_default();
    let handle = (0..digits.len() / 2)
        .map(|i| u8::from_str_radix(digits.get(2 * i..2 * i + 2)?, 16).ok())
        .collect::<Option<Vec<u8>>>()?;
    Some(Line {
        wd,
        ino: number("ino")?,
        dev: number("sdev")? as u32,
        mask: number("mask")? as u32,
        handle_kind: number("fhandle-type").unwrap_or(0) as i32,
        handle,
    })
}

fn device(line: &Line) -> (u32, u32) {
    (line.dev >> 20, line.dev & 0xf_ffff)
}

fn is_it(path: &Path, line: &Line) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| {
        m.ino() == line.ino && (libc::major(m.dev()), libc::minor(m.dev())) == device(line)
    })
}

/// Finds the path by the file handle, which takes privileges.
fn by_handle(line: &Line) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (major, minor) = device(line);
    let dev = format!("{major}:{minor}");
    let mut handle = (line.handle.len() as u32).to_le_bytes().to_vec();
    handle.extend_from_slice(&line.handle_kind.to_le_bytes());
    handle.extend_from_slice(&line.handle);
    for mount in mounts.lines() {
        let mut fields = mount.split(' ').skip(2);
        if fields.next() != Some(&dev) {
            continue;
        }
        let Some(folder) = fields.nth(1).and_then(|p| fs::File::open(p).ok()) else { continue };
        // SAFETY: a live `struct file_handle` of the length that it says.
        let fd = unsafe {
            let at = handle.as_mut_ptr();
            libc::syscall(libc::SYS_open_by_handle_at, folder.as_raw_fd(), at, libc::O_PATH)
        };
        let Ok(found) = remote_descriptors::made(fd) else { continue };
        let path = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()?;
        if is_it(&path, line) {
            return Some(path);
        }
    }
    None
}

/// Looks for the inode below the working folder of the process.
fn below_folder(pid: libc::pid_t, line: &Line) -> Option<PathBuf> {
    let cwd = PathBuf::from(std::ffi::OsString::from_vec(procfs::link(pid, "cwd").ok()?));
    let mut folders = VecDeque::from([cwd.clone()]);
    if is_it(&cwd, line) {
        return Some(cwd);
    }
    let mut seen = 0;
    while let Some(folder) = folders.pop_front() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                return None;
            }
            if is_it(&entry.path(), line) {
                return Some(entry.path());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push_back(entry.path());
            }
        }
    }
    None
}

/// Makes an inotify instance that watches the same under the same numbers.
fn make(watches: &[Watch]) -> Result<OwnedFd, RestoreError> {
    let fail = |e| cannot("make its inotify instance again", e);
    // SAFETY: numbers only.
    let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
    let fd = remote_descriptors::made(fd.into()).map_err(fail)?;
    let number = fd.as_raw_fd();
    for watch in watches {
        if !fs::metadata(path_of(&watch.path)).is_ok_and(|m| m.ino() == watch.ino) {
            return Err(file_error(&watch.path, "is not what the program watched (inotify)"));
        }
        let path = CString::new(path_of(&watch.path).as_bytes()).map_err(|e| fail(e.into()))?;
        // SAFETY: numbers only; kernels without it are helped below.
        unsafe { libc::ioctl(number, SET_NEXT_WD, libc::c_long::from(watch.wd)) };
        for _ in 0..=MAX_SKIPPED {
            // SAFETY: the path is a C string.
            let wd = unsafe { libc::inotify_add_watch(number, path.as_ptr(), watch.mask) };
            if wd < 0 {
                return Err(fail(io::Error::last_os_error()));
            }
            if wd == watch.wd {
                break;
            }
            // SAFETY: numbers only. Numbers are given out in order.
            unsafe { libc::inotify_rm_watch(number, wd) };
            if wd > watch.wd {
                return Err(fail(io::Error::other("its watches cannot be numbered as before")));
            }
        }
    }
    // Removing watches leaves events.
    let mut events = [0u8; 4096];
    // SAFETY: reads into a live buffer; does not wait.
    while unsafe { libc::read(number, events.as_mut_ptr().cast(), events.len()) } > 0 {}
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_fdinfo() {
        let line = "3 ino:2f sdev:fe00001 mask:fce ignored_mask:0 fhandle-bytes:8 \
                    fhandle-type:1 f_handle:2f000000d4f3a1b2";
        let line = parse(line).unwrap();
        assert_eq!((line.wd, line.ino, line.mask, line.handle_kind), (3, 0x2f, 0xfce, 1));
        assert_eq!(device(&line), (0xfe, 1));
        assert_eq!(line.handle, [0x2f, 0, 0, 0, 0xd4, 0xf3, 0xa1, 0xb2]);
        assert!(parse("x").is_none());
    }
}
