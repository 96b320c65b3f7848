//! Opening images: nothing in a file is believed before its checksum holds.

pub mod blocks;
pub mod chain;
pub mod frame;
pub mod image;
pub mod incoming;
pub mod tree_files;
pub mod tree_images;
