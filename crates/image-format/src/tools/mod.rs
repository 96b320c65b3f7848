//! What is done with an image without making a process of it.

pub mod alike;
pub mod consolidate;
pub mod content;
pub mod core_file;
pub mod core_notes;
pub mod inspect;
pub mod verify;
