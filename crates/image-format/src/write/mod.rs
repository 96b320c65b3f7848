//! Writing an image: blocks are packed, put in order, and a file appears whole or not at all.

pub mod pack;
pub mod sink;
pub mod writer;
