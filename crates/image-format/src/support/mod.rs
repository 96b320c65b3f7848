//! What the others are built on, and what is not about images: threads, buffers, files that are
//! trusted, places where a test lets something go wrong.

pub mod buffer;
pub mod claimed_files;
pub mod fault;
pub mod page_cache;
pub mod parallel;
pub mod private_files;
pub mod spans;
