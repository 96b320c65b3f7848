//! What of a file is in the page cache, and reading past it. `EYRIE_IMAGE_BUFFERED=1` forces the
//! ordinary way.

use crate::PAGE_BYTES;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// `cachestat` (Linux 6.5).
const CACHESTAT: libc::c_long = 451;

/// How many bytes of a stretch of a file are in the page cache, in whole pages; `None` where the
/// kernel does not tell. To try a read that does not wait is no way to find out: it has the kernel
/// read ahead.
pub fn bytes(file: &File, at: u64, bytes: u64) -> Option<u64> {
    let range = [at, bytes];
    let mut found = [0u64; 5];
    let (range, to) = (range.as_ptr(), found.as_mut_ptr());
    // SAFETY: `struct cachestat_range` is two words, `struct cachestat` five, both live.
    let r = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range, to, 0) };
    (r == 0).then_some(found[0] * PAGE_BYTES)
}

/// The same file, for reading past the page cache; not where the kernel cannot tell what of it is
/// there: an overlay has the pages of the file below.
pub fn open_direct(path: &Path, file: &File) -> Option<File> {
    if std::env::var_os("EYRIE_IMAGE_BUFFERED").is_some_and(|v| v == "1") {
        return None;
    }
    let mut system = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the structure is live; where the call fails it stays zero.
    let system = unsafe {
        libc::fstatfs(file.as_raw_fd(), system.as_mut_ptr());
        system.assume_init()
    };
    if system.f_type == libc::OVERLAYFS_SUPER_MAGIC {
        return None;
    }
    let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).ok()?;
    let (a, b) = (file.metadata().ok()?, direct.metadata().ok()?);
    // Another may have its name by now.
    ((a.dev(), a.ino()) == (b.dev(), b.ino())).then_some(direct)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::buffer::Buffer;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_was_just_written_is_there_and_can_be_read_past_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..64 << 10).map(|i: u32| (i / 7) as u8).collect();
        File::create(&path).unwrap().write_all(&content).unwrap();
        let file = File::open(&path).unwrap();
        // Other work on the machine may have displaced it.
        assert!(bytes(&file, 4096, 8192).is_none_or(|found| found <= 8192));
        assert!(bytes(&file, 1 << 20, 8192).is_none_or(|found| found == 0));
        let mut buffer = Buffer::default();
        buffer.resize(8192);
        if let Some(direct) = open_direct(&path, &file) {
            direct.read_exact_at(&mut buffer, 8192).unwrap();
            assert!(buffer[..] == content[8192..8192 + 8192]);
        }
        let other = folder.path().join("other");
        std::fs::write(&other, b"").unwrap();
        assert!(open_direct(&other, &file).is_none(), "another file");
    }
}
