//! The encoding of an image: numbers and lists, the frame of a file, compression, encryption.

pub mod codec;
pub mod encoding;
pub mod layout;
pub mod registers;
pub mod seal;
