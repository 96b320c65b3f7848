//! signalfd: what `/proc` tells about one is all there is to it.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::remote_descriptors;
use crate::resources::open::{Open, cannot, unclear};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::resources::Signals;
use eyrie_image_format::state::{Description, Target};

const KERNEL_SIGSET_BYTES: usize = 8;

impl Resource for Signals {
    fn capture(this: &Open, _: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if this.anonymous_inode() != Some(b"[signalfd]") {
            return Ok(None);
        }
        let mask = this.info.number("sigmask", 16).ok_or_else(|| unclear(this))?;
        Ok(Some(Target::Signals(Signals { mask })))
    }

    fn restore(&self, _: &Description, _: &mut Making<'_>) -> Result<Made, RestoreError> {
        // SAFETY: reads a live mask of the kernel's size.
        let fd = unsafe {
            let mask = (&raw const self.mask).cast::<u8>();
            libc::syscall(libc::SYS_signalfd4, -1, mask, KERNEL_SIGSET_BYTES, libc::SFD_CLOEXEC)
        };
        remote_descriptors::made(fd)
            .map_err(|e| cannot("make its signalfd again", e))
            .map(Made::New)
    }
}
