//! Any bytes as an image whose checksums hold: refused, or told about, read and turned into a core
//! file, whatever its tables say.

#![no_main]

use eyrie_image_format::Image;
use libfuzzer_sys::fuzz_target;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};

fuzz_target!(|bytes: &[u8]| {
    let Some(signed) = eyrie_image_format::fuzzing::sign(bytes) else { return };
    let mut file = memory();
    if file.write_all(&signed).is_err() {
        return;
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let parts = Image::verify_parts(path.as_ref());
    // What a node asks of an image that comes from another, before anybody has looked at it.
    let _ = eyrie_image::fits_here(path.as_ref(), &[]);
    let Ok(image) = Image::open(path.as_ref()) else {
        return;
    };
    assert!(parts.iter().all(|p| p.error.is_none()), "{parts:?}");
    let told = image.inspect();
    let mut buffer = [0; 5000];
    for region in &told.regions {
        for address in [region.start, region.end - 1, region.start.wrapping_sub(1)] {
            let read = image.read_memory(address, &mut buffer);
            assert!(read.is_ok_and(|n| n <= buffer.len()));
        }
        let stored: u64 = image.stored(region.start, region.end).map(|(_, pages)| pages).sum();
        assert_eq!(stored, region.pages);
        assert!(region.pages <= region.size_pages());
    }
    let core = memory();
    if let Ok(report) = eyrie_image::write_core(&image, &core) {
        assert_eq!(core.metadata().map(|m| m.len()).unwrap_or(0), report.bytes);
    }
});

/// A file in memory.
fn memory() -> File {
    // SAFETY: the name is a constant; the descriptor is new and ours.
    unsafe {
        let fd = memfd_create(c"fuzz".as_ptr(), 0);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    }
}

unsafe extern "C" {
    fn memfd_create(name: *const std::ffi::c_char, flags: u32) -> i32;
}
