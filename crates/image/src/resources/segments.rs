//! Shared segments of the job: handed over at restore, and no part of an image.

use crate::error::{CaptureError, RestoreError};
use crate::resources::open::{Open, segment_name};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::resources::Segment;
use eyrie_image_format::state::{Description, Target};
use std::os::fd::{AsRawFd, OwnedFd};

impl Resource for Segment {
    fn capture(this: &Open, _: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        Ok(segment_name(&this.link).map(|name| Target::Segment(Segment { name })))
    }

    fn restore(&self, _: &Description, making: &mut Making<'_>) -> Result<Made, RestoreError> {
        Ok(Made::There(segment(making.segments, &self.name)?.as_raw_fd()))
    }

    fn is_given(&self) -> bool {
        true
    }
}

/// The segment handed over for the memfd `name`: by its name, or by a beginning of it.
pub fn segment<'a>(
    segments: &'a [(String, OwnedFd)],
    name: &[u8],
) -> Result<&'a OwnedFd, RestoreError> {
    let exact = segments.iter().find(|(n, _)| n.as_bytes() == name);
    exact
        .or_else(|| segments.iter().find(|(n, _)| name.starts_with(n.as_bytes())))
        .map(|(_, fd)| fd)
        .ok_or_else(|| RestoreError::Segment(String::from_utf8_lossy(name).into_owned()))
}
