//! Any bytes as an image file: refused or opened, never a panic, never more memory than the file is
//! long.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

fuzz_target!(|bytes: &[u8]| {
    let name = c"fuzz".as_ptr();
    // SAFETY: the name is a constant; the descriptor is new and ours.
    let mut file = unsafe { std::fs::File::from_raw_fd(libc_memfd(name)) };
    if file.write_all(bytes).is_ok() {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let _ = eyrie_image_format::Image::open(path.as_ref());
    }
});

unsafe extern "C" {
    #[link_name = "memfd_create"]
    fn memfd_create(name: *const std::ffi::c_char, flags: u32) -> i32;
}

/// # Safety
/// `name` is a C string.
unsafe fn libc_memfd(name: *const std::ffi::c_char) -> i32 {
    // SAFETY: see the function's contract.
    unsafe { memfd_create(name, 0) }
}
