//! Buffers that begin on a page, as direct I/O wants them.

use crate::PAGE_BYTES;
use std::ops::{Deref, DerefMut};

const PAGE: usize = PAGE_BYTES as usize;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Whole pages of bytes.
#[derive(Default)]
pub struct Buffer(Vec<Page>);

impl Buffer {
    /// Makes it this many bytes long, rounded up to pages; what is added is zero.
    pub fn resize(&mut self, bytes: usize) {
        self.0.resize(bytes.div_ceil(PAGE), Page([0; PAGE]));
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: pages are plain bytes without padding, and the vector holds this many of them.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * PAGE) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the vector is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * PAGE) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_on_a_page() {
        let mut buffer = Buffer::default();
        for bytes in [1, 4096, 4097, 1 << 20, 5] {
            buffer.resize(bytes);
            assert_eq!(buffer.len(), bytes.next_multiple_of(PAGE));
            assert_eq!(buffer.as_ptr() as usize % PAGE, 0);
            buffer.fill(7);
        }
    }
}
