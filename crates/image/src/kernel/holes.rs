//! Which parts of a file are there, and which are holes.
//!
//! Kept true: where a file system does not tell, all of a file is there.

use crate::PAGE_BYTES;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The first part of a file of so many bytes that is no hole, at or behind `at`: where it begins
/// and one past its end. Moves the offset of the description.
pub(crate) fn next_part(file: &File, at: u64, bytes: u64) -> Option<(u64, u64)> {
    if at >= bytes {
        return None;
    }
    let start = match seek(file, at, libc::SEEK_DATA) {
        Ok(start) => start.max(at),
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return None,
        Err(_) => return Some((at, bytes)),
    };
    let end = seek(file, start, libc::SEEK_HOLE).unwrap_or(bytes).min(bytes);
    (start < bytes).then(|| (start, end.max(start + 1)))
}

/// How many bytes of a file are no holes, in whole pages; from `most` on it is not counted further.
pub(crate) fn bytes_there(file: &File, bytes: u64, most: u64) -> u64 {
    let (mut at, mut sum) = (0, 0);
    while let Some((start, end)) = next_part(file, at, bytes) {
        let end_of_page = end.next_multiple_of(PAGE_BYTES);
        sum += end_of_page - start / PAGE_BYTES * PAGE_BYTES;
        if sum >= most {
            break;
        }
        at = end_of_page;
    }
    sum
}

fn seek(file: &File, at: u64, whence: i32) -> io::Result<u64> {
    // SAFETY: moves the offset of a description of our own.
    let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_do_not_count() {
        let file = tempfile::tempfile().unwrap();
        let bytes = (1 << 40) + 100;
        file.set_len(bytes).unwrap();
        assert_eq!(bytes_there(&file, bytes, u64::MAX), 0);
        for at in [5 << 20, 1 << 30, bytes - 100] {
            file.write_all_at(&[1; 100], at).unwrap();
        }
        assert_eq!(bytes_there(&file, bytes, u64::MAX), 3 * PAGE_BYTES);
        assert_eq!(bytes_there(&file, bytes, PAGE_BYTES), PAGE_BYTES);
        assert_eq!(next_part(&file, 6 << 20, bytes).unwrap().0, 1 << 30);
        assert_eq!(next_part(&file, bytes, bytes), None);
    }
}
