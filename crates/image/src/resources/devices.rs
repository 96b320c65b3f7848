//! Memory devices such as `/dev/null`, which are opened again by their path.

use crate::error::{CaptureError, RestoreError, file_error};
use crate::resources::files::open_files::open;
use crate::resources::open::{MEM_MAJOR, Open};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::resources::Device;
use eyrie_image_format::state::{Description, Target};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

impl Resource for Device {
    fn capture(this: &Open, _: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        let rdev = this.meta.rdev();
        if this.kind() != libc::S_IFCHR || libc::major(rdev) != MEM_MAJOR {
            return Ok(None);
        }
        Ok(Some(Target::Device(Device { path: this.link.clone(), rdev })))
    }

    fn restore(&self, description: &Description, _: &mut Making<'_>) -> Result<Made, RestoreError> {
        let path = &self.path;
        let file = open(path, description.flags as i32)?;
        let meta = file.metadata().map_err(|e| file_error(path, e.to_string()))?;
        if !meta.file_type().is_char_device() || meta.rdev() != self.rdev {
            return Err(file_error(path, "is another device than at the checkpoint"));
        }
        Ok(Made::Whole(file.into()))
    }
}
