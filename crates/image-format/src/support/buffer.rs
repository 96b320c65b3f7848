//! Buffers that begin on a page, as direct I/O wants them.
//!
//! A large one lies in huge pages where the kernel has any. The storage is then given a megabyte in
//! one piece instead of in 256, which can double its speed. A page of 2 MiB serves two buffers of
//! 1 MiB. As many as the threads of one image need stay for the next: memory that the kernel has to
//! find and to clear first can take longer than what a small image is about.

use crate::PAGE_BYTES;
use crate::support::parallel;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard};

const PAGE: usize = PAGE_BYTES as usize;
const HUGE_PAGE: usize = 2 << 20;
const HALF: usize = HUGE_PAGE / 2;
/// What is smaller is not worth it.
const LEAST_LARGE_BYTES: usize = 256 << 10;

/// Halves of huge pages that nobody uses.
static FREE: Mutex<Vec<Large>> = Mutex::new(Vec::new());

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Whole pages of bytes.
#[derive(Default)]
pub struct Buffer {
    bytes: usize,
    small: Vec<Page>,
    /// Instead, if it is large.
    large: Option<Taken>,
}

/// Memory that is ours alone until it is unmapped: a half of a huge page, or whole ones.
struct Large {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is plain memory that belongs to whoever has this.
unsafe impl Send for Large {}
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for Large {}

/// Large memory of a buffer, given back when that is dropped.
struct Taken(Large);

impl Buffer {
    /// Makes it this many bytes long, rounded up to pages. What it holds then is not defined.
    pub fn resize(&mut self, bytes: usize) {
        self.bytes = bytes.next_multiple_of(PAGE);
        if self.large.as_ref().is_some_and(|taken| self.bytes <= taken.0.bytes) {
            return;
        }
        self.large = None;
        if self.bytes >= LEAST_LARGE_BYTES {
            self.large = Taken::new(self.bytes);
        }
        match self.large {
            Some(_) => self.small = Vec::new(),
            None => self.small.resize(self.bytes / PAGE, Page([0; PAGE])),
        }
    }

    fn start(&self) -> *const u8 {
        match &self.large {
            Some(taken) => taken.0.start.as_ptr(),
            None => self.small.as_ptr().cast(),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: pages are plain bytes without padding, or mapped as such, and there are so many.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = match &mut self.large {
            Some(taken) => taken.0.start.as_ptr(),
            None => self.small.as_mut_ptr().cast(),
        };
        // SAFETY: as above; the memory is the buffer's own, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(start, self.bytes) }
    }
}

impl Taken {
    /// `None` where there is no memory.
    fn new(bytes: usize) -> Option<Taken> {
        if bytes > HALF {
            return Large::map(bytes.next_multiple_of(HUGE_PAGE)).map(Taken);
        }
        let mut free = free();
        let half = free.pop().or_else(|| {
            let Large { start, .. } = Large::map(HUGE_PAGE)?;
            // SAFETY: the middle of what was just mapped.
            free.push(Large { start: unsafe { start.add(HALF) }, bytes: HALF });
            Some(Large { start, bytes: HALF })
        });
        half.map(Taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Large { start, bytes } = self.0;
        if bytes > HALF {
            return Large { start, bytes }.unmap();
        }
        let other = (start.as_ptr() as usize ^ HALF) as *mut u8;
        let mut free = free();
        match free.iter().position(|half| half.start.as_ptr() == other) {
            Some(i) if free.len() >= parallel::threads_that_wait() => {
                let other = free.swap_remove(i).start;
                Large { start: start.min(other), bytes: HUGE_PAGE }.unmap();
            }
            _ => free.push(Large { start, bytes }),
        }
    }
}

fn free() -> MutexGuard<'static, Vec<Large>> {
    FREE.lock().unwrap_or_else(|e| e.into_inner())
}

impl Large {
    /// Maps zeros that begin on a huge page.
    fn map(bytes: usize) -> Option<Large> {
        let (prot, room) = (libc::PROT_READ | libc::PROT_WRITE, bytes + HUGE_PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, wherever there is room.
        let all = unsafe { libc::mmap(std::ptr::null_mut(), room, prot, flags, -1, 0) };
        if all == libc::MAP_FAILED {
            return None;
        }
        let before = (all as usize).wrapping_neg() % HUGE_PAGE;
        let start = NonNull::new(all.cast::<u8>().wrapping_add(before))?;
        // SAFETY: the parts before and behind are of the new mapping, and unused; the rest is
        // asked for in huge pages, and comes in ordinary ones where that is refused.
        unsafe {
            if before > 0 {
                libc::munmap(all, before);
            }
            libc::munmap(start.as_ptr().add(bytes).cast(), HUGE_PAGE - before);
            libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
        }
        Some(Large { start, bytes })
    }

    fn unmap(self) {
        // SAFETY: it was mapped by [`Large::map`], and nobody has it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_on_a_page() {
        let mut buffer = Buffer::default();
        for bytes in [1, 4096, 4097, 1 << 20, 5, HALF + 1, 3 * HUGE_PAGE + 1, LEAST_LARGE_BYTES] {
            buffer.resize(bytes);
            assert_eq!(buffer.len(), bytes.next_multiple_of(PAGE));
            assert_eq!(buffer.as_ptr() as usize % PAGE, 0);
            buffer.fill(7);
        }
    }

    #[test]
    fn buffers_that_share_a_huge_page_are_apart() {
        let mut all: Vec<Buffer> = (0..7).map(|_| Buffer::default()).collect();
        for round in 0..3u8 {
            for (i, buffer) in all.iter_mut().enumerate() {
                buffer.resize(HALF);
                buffer.fill(16 * round + i as u8);
            }
            for (i, buffer) in all.iter().enumerate() {
                assert!(buffer.iter().all(|&b| b == 16 * round + i as u8));
            }
            // Some go, in another order each time.
            all[usize::from(round)] = Buffer::default();
            all.swap_remove(3);
        }
    }
}
