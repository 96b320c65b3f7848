//! Which file system a file is on. A mapping is shown with the number of the file system, `stat`
//! gives, on btrfs, that of the subvolume: the mount tells how they belong together.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;
use std::time::{Duration, Instant};

/// How long the list of mounts counts: their numbers are given again.
const FRESH: Duration = Duration::from_secs(1);

/// File systems by the numbers of their mounts, and when that was read.
type Mounts = (HashMap<u64, u64>, Instant);

static MOUNTS: Mutex<Option<Mounts>> = Mutex::new(None);

/// A file as mappings show it; `path` leads to it.
pub(crate) fn inode_at(path: &Path, meta: &Metadata) -> Inode {
    let shown = device(meta.dev());
    let made_up = libc::major(meta.dev()) == 0;
    let file_system = if made_up { mount_of(path).and_then(file_system) } else { None };
    (file_system.unwrap_or(shown), meta.ino())
}

/// Whether a path leads to the file that a mapping shows so.
pub(crate) fn is_shown_as(path: &Path, meta: &Metadata, file: Inode) -> bool {
    let same = |(dev, ino): Inode| (dev, ino) == file;
    meta.ino() == file.1 && (same((device(meta.dev()), file.1)) || same(inode_at(path, meta)))
}

/// The mount by which a path leads to its file.
fn mount_of(path: &Path) -> Option<u64> {
    let text = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut about: libc::statx = unsafe { std::mem::zeroed() };
    let (cwd, wanted) = (libc::AT_FDCWD, libc::STATX_MNT_ID);
    // SAFETY: a C string and a live structure.
    let r = unsafe { libc::statx(cwd, text.as_ptr(), 0, wanted, &raw mut about) };
    (r == 0 && about.stx_mask & wanted != 0).then_some(about.stx_mnt_id)
}

fn file_system(mount: u64) -> Option<u64> {
    let mut mounts = MOUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    if mounts.as_ref().is_none_or(|(_, read)| read.elapsed() > FRESH) {
        let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
        *mounts = Some((text.lines().filter_map(parse).collect(), Instant::now()));
    }
    mounts.as_ref()?.0.get(&mount).copied()
}

/// Number of a mount, and of its file system, of a line like `36 35 98:0 /root /mnt rw ...`.
fn parse(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split(' ');
    let mount = words.next()?.parse().ok()?;
    let (major, minor) = words.nth(1)?.split_once(':')?;
    Some((mount, major.parse::<u64>().ok()? << 32 | minor.parse::<u64>().ok()?))
}

/// A file by device (`major << 32 | minor`) and inode number.
pub type Inode = (u64, u64);

/// Device number as `/proc/PID/maps` has it.
pub fn device(dev: u64) -> u64 {
    u64::from(libc::major(dev)) << 32 | u64::from(libc::minor(dev))
}

/// When a file was made; 0 if that is not known.
pub fn born(meta: &Metadata) -> i64 {
    let since = meta.created().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |t| t.as_nanos() as i64)
}

/// Opens what may be something else by now, where its process runs: it neither waits for the other
/// end of a pipe nor takes a terminal.
pub(crate) fn open_here(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_mount() {
        assert_eq!(
            parse("36 35 98:1 /root /mnt rw,noatime - ext4 /dev/x rw"),
            Some((36, 98 << 32 | 1))
        );
        assert_eq!(parse("36 35 98"), None);
        let path = Path::new("/proc/self/exe");
        let meta = fs::metadata(path).unwrap();
        let inode = inode_at(path, &meta);
        assert!(is_shown_as(path, &meta, inode) && !is_shown_as(path, &meta, (inode.0, 0)));
        // As the kernel shows this program's own mapping.
        let maps = crate::kernel::procfs::maps(std::process::id() as libc::pid_t).unwrap();
        let own = fs::read_link(path).unwrap();
        let own = maps.iter().find(|m| m.path == own.as_os_str().as_bytes()).unwrap();
        assert_eq!((own.dev, own.ino), inode);
    }
}
