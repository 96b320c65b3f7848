//! Moving data between a user's layout and the packed stream, and `MPI_Pack` / `MPI_Unpack`.
//!
//! Kept true: the packed format is the native stream, byte for byte what a message carries; the
//! bytes of it that mean nothing (padding of x87 numbers, which differs from run to run) are zero,
//! so that a replay sends what was logged.

use super::Datatype;
use super::exec::{self, Pack, Unpack};
use crate::error::{Res, class};

/// The `len` bytes of a buffer at `*position`, which advances past them.
pub(super) fn window(total: usize, position: &mut u64, len: u64) -> Res<std::ops::Range<usize>> {
    let end = position.checked_add(len).ok_or(class::ARG)?;
    if end > total as u64 {
        return Err(class::ARG);
    }
    let range = *position as usize..end as usize;
    *position = end;
    Ok(range)
}

impl Datatype {
    /// Byte offset of the first byte when `count` elements are one gapless run.
    #[inline]
    pub fn contiguous_run(&self, count: u64) -> Option<i64> {
        if count == 0 || self.size == 0 {
            return Some(0);
        }
        let (disp, len) = self.layout.program.as_run()?;
        (count == 1 || len as i64 == self.extent).then_some(disp)
    }

    /// Copies bytes `[offset, offset + out.len())` of the packed stream of `count` elements at
    /// `buf` into `out`. Finding the offset costs O(log) of the description's length.
    ///
    /// # Safety
    /// `buf` with the datatype's displacements is readable memory; `out` does not overlap it; the
    /// range lies within the stream.
    pub unsafe fn pack_range(&self, buf: *const u8, count: u64, offset: u64, out: &mut [u8]) {
        let len = out.len() as u64;
        debug_assert!(self.bytes(count).is_some_and(|n| offset + len <= n));
        // SAFETY: the caller's promise; packing only reads at `buf`.
        unsafe { self.run::<Pack>(buf.cast_mut(), count, offset, out.as_mut_ptr(), len) }
        self.clear_padding(offset, out);
    }

    /// Clears what means nothing in `out`, which is the packed stream from `offset` on.
    #[inline]
    pub fn clear_padding(&self, offset: u64, out: &mut [u8]) {
        if self.is_padded() {
            self.layout.signature.clear_padding(offset, out);
        }
    }

    /// Copies `data` to bytes `[offset, offset + data.len())` of the packed stream of `count`
    /// elements at `buf`.
    ///
    /// # Safety
    /// `buf` with the datatype's displacements is writable memory; `data` does not overlap it; the
    /// range lies within the stream.
    pub unsafe fn unpack_range(&self, buf: *mut u8, count: u64, offset: u64, data: &[u8]) {
        let len = data.len() as u64;
        debug_assert!(self.bytes(count).is_some_and(|n| offset + len <= n));
        // SAFETY: the caller's promise; unpacking only reads from `data`.
        unsafe { self.run::<Unpack>(buf, count, offset, data.as_ptr().cast_mut(), len) }
    }

    #[inline]
    unsafe fn run<M: exec::Mover>(
        &self,
        buf: *mut u8,
        count: u64,
        offset: u64,
        packed: *mut u8,
        len: u64,
    ) {
        // SAFETY: as for `pack_range` and `unpack_range`.
        unsafe {
            if let Some(at) = self.contiguous_run(count) {
                if len != 0 {
                    let mem = buf.wrapping_offset(at as isize).wrapping_add(offset as usize);
                    M::mv(mem, packed, len as usize);
                }
                return;
            }
            let program = &self.layout.program;
            exec::repeat_range::<M>(program, self.extent, buf, packed, offset, len);
        }
    }

    /// Upper bound of what `pack` writes for `count` elements; here it is exact.
    pub fn pack_size(&self, count: u64) -> Res<u64> {
        self.bytes(count).ok_or(class::VALUE_TOO_LARGE)
    }

    /// `MPI_Pack`: appends `count` elements at `*position` of `out`.
    ///
    /// # Safety
    /// As for `pack_range`.
    pub unsafe fn pack(
        &self,
        buf: *const u8,
        count: u64,
        out: &mut [u8],
        position: &mut u64,
    ) -> Res<()> {
        let window = window(out.len(), position, self.pack_size(count)?)?;
        // SAFETY: the caller's promise; the window is the whole stream.
        unsafe { self.pack_range(buf, count, 0, &mut out[window]) }
        Ok(())
    }

    /// `MPI_Unpack`: takes `count` elements from `*position` of `data`.
    ///
    /// # Safety
    /// As for `unpack_range`.
    pub unsafe fn unpack(
        &self,
        data: &[u8],
        position: &mut u64,
        buf: *mut u8,
        count: u64,
    ) -> Res<()> {
        let window = window(data.len(), position, self.pack_size(count)?)?;
        // SAFETY: the caller's promise; the window is the whole stream.
        unsafe { self.unpack_range(buf, count, 0, &data[window]) }
        Ok(())
    }
}
