//! Which pages of a private mapping have content of their own.
//!
//! `PAGEMAP_SCAN` (Linux 6.7) tells it in one call; older kernels have `/proc/PID/pagemap`. Neither
//! faults anything in. `EYRIE_IMAGE_NO_PAGEMAP_SCAN=1` forces the old way, for tests.

use crate::PAGE_BYTES;
use crate::error::CaptureError;
use crate::kernel::procfs::Mapping;
use eyrie_image_format::state::Run;
use eyrie_image_format::support::spans::Span;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
const SCAN_WP_MATCHING: u64 = 1 << 0;
const SCAN_CHECK_WPASYNC: u64 = 1 << 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
const PAGE_IS_PFNZERO: u64 = 1 << 5;
const PM_PRESENT: u64 = 1 << 63;
const PM_SWAPPED: u64 = 1 << 62;
const PM_FILE: u64 = 1 << 61;
const PM_GUARD: u64 = 1 << 58;
/// Ranges taken in one call.
const BATCH: usize = 4096;

#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// A stretch of one private mapping.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Whether no page of a file can be there. To ask of each page whose it is takes the kernel
    /// five times as long as all else.
    pub anon: bool,
}

impl Part {
    /// What pages may be that are not the mapping's own.
    fn foreign(self) -> u64 {
        if self.anon { PAGE_IS_PFNZERO } else { PAGE_IS_FILE | PAGE_IS_PFNZERO }
    }

    /// Room for the ranges of one call. No more than there can be: a process may have tens of
    /// thousands of mappings of a page each.
    fn room(self, limit: u64) -> Vec<PageRegion> {
        let pages = (self.end - self.start) / PAGE_BYTES + 1;
        vec![PageRegion::default(); limit.min(pages).min(BATCH as u64) as usize]
    }
}

impl From<&Mapping> for Part {
    fn from(m: &Mapping) -> Part {
        Part { start: m.start, end: m.end, anon: m.is_anon() }
    }
}

/// The page tables of one process.
pub struct Pagemap {
    file: File,
    scan: bool,
}

impl Pagemap {
    /// Opens them.
    pub fn open(pid: libc::pid_t) -> Result<Pagemap, CaptureError> {
        let file = File::open(format!("/proc/{pid}/pagemap")).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::ESRCH | libc::ENOENT) => CaptureError::Gone,
                _ => CaptureError::Os { what: "open the page map", source },
            }
        })?;
        let forced = std::env::var_os("EYRIE_IMAGE_NO_PAGEMAP_SCAN").is_some_and(|v| v == "1");
        Ok(Pagemap { file, scan: !forced })
    }

    /// Whether empty stretches cost nothing to search.
    pub fn is_fast(&self) -> bool {
        self.scan
    }

    /// Whether a page is a guard page (kernels since 6.15 tell).
    pub fn is_guard(&self, page: u64) -> Result<bool, CaptureError> {
        let mut raw = [0; 8];
        let read = self.file.read_exact_at(&mut raw, page / PAGE_BYTES * 8);
        read.map_err(|e| error("read the page map", e))?;
        Ok(u64::from_le_bytes(raw) & PM_GUARD != 0)
    }

    /// Appends to `to` the runs of pages of `part` with content of their own, up to `limit` pages.
    pub fn own_pages(
        &mut self,
        part: Part,
        limit: u64,
        to: &mut Vec<Run>,
    ) -> Result<(), CaptureError> {
        let Part { start, end, .. } = part;
        if self.scan {
            match self.scan(part, limit, to) {
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                    self.scan = false;
                }
                other => return other.map_err(|e| error("scan the page map", e)),
            }
        }
        self.read(start, end, limit, to).map_err(|e| error("read the page map", e))
    }

    fn scan(&self, part: Part, limit: u64, to: &mut Vec<Run>) -> io::Result<()> {
        let Part { start, end, .. } = part;
        let mut found = part.room(limit);
        let mut at = start;
        while at < end {
            let mut arg = ScanArg {
                size: size_of::<ScanArg>() as u64,
                start: at,
                end,
                vec: found.as_mut_ptr() as u64,
                vec_len: found.len() as u64,
                max_pages: if limit == u64::MAX { 0 } else { limit },
                category_inverted: part.foreign(),
                category_mask: part.foreign(),
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                ..ScanArg::default()
            };
            let n = self.ioctl(&mut arg)?;
            for region in found.iter().take(n) {
                push(to, region.start, region.end);
            }
            if n < found.len() || limit != u64::MAX {
                break;
            }
            at = arg.walk_end.max(found[n - 1].end);
        }
        Ok(())
    }

    /// Adds to `to` the pages of `part`, one mapping, that have content of their own and were
    /// written since they were last taken here, and takes them. `EPERM`: its writes are not noted.
    pub fn take_written(&self, part: Part, to: &mut Vec<Span>) -> io::Result<()> {
        self.each_written(part, SCAN_WP_MATCHING, |span| to.push(span))
    }

    /// How much that would be. It is not taken.
    pub fn written_bytes(&self, part: Part) -> io::Result<u64> {
        let mut bytes = 0;
        self.each_written(part, 0, |span| bytes += span.end - span.start)?;
        Ok(bytes)
    }

    fn each_written(&self, part: Part, flags: u64, mut each: impl FnMut(Span)) -> io::Result<()> {
        let Part { start, end, .. } = part;
        let mut found = part.room(u64::MAX);
        let mut at = start;
        while at < end {
            let mut arg = ScanArg {
                size: size_of::<ScanArg>() as u64,
                flags: flags | SCAN_CHECK_WPASYNC,
                start: at,
                end,
                vec: found.as_mut_ptr() as u64,
                vec_len: found.len() as u64,
                category_inverted: part.foreign(),
                category_mask: part.foreign() | PAGE_IS_WRITTEN,
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_WRITTEN,
                ..ScanArg::default()
            };
            let n = self.ioctl(&mut arg)?;
            found.iter().take(n).for_each(|r| each(Span { start: r.start, end: r.end }));
            if n < found.len() {
                break;
            }
            at = arg.walk_end.max(found[n - 1].end);
        }
        Ok(())
    }

    /// Whether a page between two addresses is marked as not written since it was taken.
    pub fn is_marked(&self, start: u64, end: u64) -> io::Result<bool> {
        let mut found = PageRegion::default();
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start,
            end,
            vec: &raw mut found as u64,
            vec_len: 1,
            max_pages: 1,
            category_inverted: PAGE_IS_WRITTEN,
            category_mask: PAGE_IS_WRITTEN,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            ..ScanArg::default()
        };
        Ok(self.ioctl(&mut arg)? > 0)
    }

    /// Makes the call and returns the number of ranges. If there was room for more, it is done:
    /// `walk_end` then is not always the end (Linux 6.18 leaves the place where it last emptied an
    /// inner buffer of 512 ranges).
    fn ioctl(&self, arg: &mut ScanArg) -> io::Result<usize> {
        // SAFETY: arg and the vector it points to are live and as long as arg says.
        let n = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut *arg) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    fn read(&self, start: u64, end: u64, limit: u64, to: &mut Vec<Run>) -> io::Result<()> {
        let mut raw = vec![0u8; BATCH * 8];
        let (mut at, mut left) = (start, limit);
        while at < end {
            let entries = ((end - at) / PAGE_BYTES).min(BATCH as u64) as usize;
            let raw = &mut raw[..entries * 8];
            self.file.read_exact_at(raw, at / PAGE_BYTES * 8)?;
            for (i, bytes) in raw.chunks_exact(8).enumerate() {
                let entry = bytes.iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b));
                if entry & (PM_PRESENT | PM_SWAPPED) != 0 && entry & PM_FILE == 0 {
                    let page = at + i as u64 * PAGE_BYTES;
                    push(to, page, page + PAGE_BYTES);
                    left = left.saturating_sub(1);
                    if left == 0 {
                        return Ok(());
                    }
                }
            }
            at += entries as u64 * PAGE_BYTES;
        }
        Ok(())
    }
}

/// Appends a range, joined to the last one where they touch.
pub fn push(to: &mut Vec<Run>, start: u64, end: u64) {
    let pages = (end - start) / PAGE_BYTES;
    match to.last_mut() {
        Some(last) if last.start + last.pages * PAGE_BYTES == start => last.pages += pages,
        _ => to.push(Run { start, pages }),
    }
}

fn error(what: &'static str, source: io::Error) -> CaptureError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => CaptureError::Gone,
        // The page table of a process that has died reads as empty.
        None if source.kind() == io::ErrorKind::UnexpectedEof => CaptureError::Gone,
        _ => CaptureError::Os { what, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More ranges than the kernel buffers, and than are asked for at once.
    #[test]
    fn many_ranges_are_found_once() {
        for pages in [2 * 700, 2 * BATCH, 2 * BATCH + 1400] {
            let bytes = pages * PAGE_BYTES as usize;
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
            let flags = flags | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping of our own.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            let start = at as u64;
            // SAFETY: within our own mapping; single pages are wanted.
            unsafe { libc::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
            let touched: Vec<u64> =
                (0..pages as u64).step_by(2).map(|i| start + i * PAGE_BYTES).collect();
            for &page in &touched {
                // SAFETY: within our own mapping.
                unsafe { (page as *mut u8).write_volatile(1) };
            }
            for (scan, anon) in [(true, true), (true, false), (false, false)] {
                let mut pagemap = Pagemap::open(std::process::id() as i32).unwrap();
                pagemap.scan &= scan;
                let mut runs = Vec::new();
                let part = Part { start, end: start + bytes as u64, anon };
                pagemap.own_pages(part, u64::MAX, &mut runs).unwrap();
                let found: Vec<u64> = runs.iter().map(|run| run.start).collect();
                assert!(runs.iter().all(|run| run.pages == 1));
                assert!(found == touched, "{} of {} found", found.len(), touched.len());
            }
            // SAFETY: nobody uses it any more.
            unsafe { libc::munmap(at, bytes) };
        }
    }
}
