//! Images of running processes: freeze one from outside, take a copy-on-write twin of it, write the
//! twin to a checksummed file, and turn such a file back into a process at the same addresses.
//!
//! The process does not co-operate and has no code of ours for this. Nothing here needs privileges
//! as long as the process is a child of the caller. Protocol, timing and naming of images are the
//! caller's affair.

mod error;

pub use error::{CaptureError, FreezeError, ImageError, RestoreError};

use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// placeholder signatures while the crate is being filled in.
pub struct Frozen {
    _here: PhantomData<*const ()>,
}

impl Frozen {
    pub fn stop(_pid: libc::pid_t) -> Result<Frozen, FreezeError> {
        todo!()
    }
    pub fn go_on(&mut self) -> Result<(), FreezeError> {
        todo!()
    }
    pub fn stop_again(&mut self) -> Result<(), FreezeError> {
        todo!()
    }
    pub fn twin(&mut self) -> Result<Twin, CaptureError> {
        todo!()
    }
    pub fn release(self) -> Result<(), FreezeError> {
        todo!()
    }
}

pub struct Twin {
    _here: PhantomData<*const ()>,
}

impl Twin {
    pub fn write_image(self, _path: &Path, _meta: &[u8]) -> Result<ImageReport, CaptureError> {
        todo!()
    }
}

/// What writing an image took.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ImageReport {
    /// Size of the image file.
    pub bytes: u64,
    /// Pages of 4 KiB stored in it.
    pub pages: u64,
    /// From the stop to the release: how long the process stood still.
    pub freeze: Duration,
    /// The part of it that making the twin took.
    pub twin: Duration,
    /// How long the twin lived after that (while it lives, first writes to pages cost a copy).
    pub pull: Duration,
    /// From the start of `write_image` to the durable file.
    pub write: Duration,
}

/// What an image holds, in figures.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Process number at capture.
    pub pid: i32,
    /// Name of the program.
    pub comm: String,
    /// Memory mappings.
    pub regions: usize,
    /// Open files.
    pub files: usize,
    /// Pages of 4 KiB stored.
    pub pages: u64,
    /// Size of the file.
    pub bytes: u64,
}

pub struct Image;

impl Image {
    pub fn open(_path: &Path) -> Result<Image, ImageError> {
        todo!()
    }
    pub fn meta(&self) -> &[u8] {
        todo!()
    }
    pub fn summary(&self) -> Summary {
        todo!()
    }
}

pub struct RestoreSpec<'a> {
    pub image: &'a Path,
    pub restorer: &'a Path,
    pub stdio: [OwnedFd; 3],
    pub segments: Vec<(String, OwnedFd)>,
    pub start_stopped: bool,
}

pub fn restore(_spec: RestoreSpec<'_>) -> Result<libc::pid_t, RestoreError> {
    todo!()
}
