//! What fails because this machine lacks something: room, descriptors, memory, processes.
//!
//! Kept true: such a failure says nothing against the file that was read or written.

use eyrie_image::ImageError;
use std::io::{self, ErrorKind};

/// Whether this node or its machine lacks what a call takes.
pub fn lacks(error: &io::Error) -> bool {
    let raw = error.raw_os_error();
    matches!(raw, Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR))
        || is_full(error)
}

/// Whether nothing can be written here, which another attempt in a moment changes hardly.
pub fn is_full(error: &io::Error) -> bool {
    let kinds = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::ReadOnlyFilesystem];
    kinds.contains(&error.kind())
}

/// Whether an image could not be looked at here, whatever it is like.
pub fn is_unread(error: &ImageError) -> bool {
    match error {
        ImageError::Read { source, .. } => lacks(source),
        ImageError::Child { source, .. } | ImageError::Ancestor { source, .. } => is_unread(source),
        _ => false,
    }
}
