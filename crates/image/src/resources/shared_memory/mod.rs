//! Memory that has no path, and files on tmpfs that processes map: found, and read where it lies.

pub(crate) mod content;
pub(crate) mod descriptors;
pub(crate) mod named;
pub(crate) mod objects;
