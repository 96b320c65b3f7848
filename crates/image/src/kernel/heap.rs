//! The memory of a process that takes images.
//!
//! For a moment it needs long lists of pages. glibc's allocator gives large pieces back to the
//! system when they are freed, but takes longer and longer ones for small each time, up to 32 MiB,
//! and then keeps them.

/// From here on what is larger always goes back.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: libc::c_int = 1 << 20;

/// Has memory of large lists given back when they are not needed any more. To be called once, by a
/// program that takes images, when it begins; with an allocator other than glibc's it does nothing.
pub fn give_large_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number of the allocator; what was allocated stays.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES)
    };
}
