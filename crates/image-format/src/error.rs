//! Why an image cannot be read, and why it could not be written; messages are lower-case fragments
//! that fit "failed to ...".

use std::io;
use std::path::PathBuf;

/// Why an image file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// It could not be read.
    #[error("cannot read the image {}: {source}", path.display())]
    Read {
        /// The image.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is no image at all.
    #[error("not an image file")]
    NotAnImage,
    /// It was written by a version that this one does not understand, or for another machine.
    #[error("image of another kind: {0}")]
    Other(String),
    /// It ends early or is longer than it says.
    #[error("image is {found} bytes long but should be {expected}")]
    Length {
        /// Length according to its header.
        expected: u64,
        /// Length of the file.
        found: u64,
    },
    /// A checksum does not hold.
    #[error("checksum of {0} does not hold")]
    Checksum(String),
    /// It is sealed, and this process has no key.
    #[error("the image is encrypted, and there is no key for it here")]
    Sealed,
    /// It is not sealed, where all images are to be.
    #[error("the image is not encrypted, and a key was given")]
    Plain,
    /// The key does not open it.
    #[error("{0} was encrypted with another key, or was changed by somebody without it")]
    Key(String),
    /// The image of a child process is not as it was.
    #[error("the image {} of its child process {pid}: {source}", path.display())]
    Child {
        /// Number of the child.
        pid: i32,
        /// Its image.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ImageError>,
    },
    /// An earlier file in which part of its content lies is not as it was.
    #[error("the earlier image {name} that it builds on: {source}")]
    Ancestor {
        /// The earlier file.
        name: String,
        /// What is wrong with it.
        source: Box<ImageError>,
    },
    /// Checksums hold but the content contradicts itself.
    #[error("image content is not valid: {0}")]
    Invalid(String),
}

/// Why an image could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// No room for the image (disk full, quota, or file size limit); nothing was left behind.
    #[error("no space for the image {}: {source}", path.display())]
    NoSpace {
        /// The image that was to be written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The image could not be written; nothing was left behind.
    #[error("cannot write the image {}: {source}", path.display())]
    Write {
        /// The image that was to be written.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A system call failed for a reason of its own.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
