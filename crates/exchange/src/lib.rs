//! Images between nodes: a node serves its folder of images and its part of the vault to the other
//! members of its job, sends images while they are written, and has those come that are restored
//! here, from another node, the vault or a second level of storage.
//!
//! Kept true: only current members that know the job's key are served; a file has its name when all
//! of it is there and is what was stored.

#![cfg_attr(test, allow(unsafe_code))] // children and what they used

pub mod expected_images;
pub mod image_check;
pub mod image_files;
pub mod image_store;
pub mod image_stream;
pub mod lazy_fetch;
mod missing_ranges;
mod parallel_streams;
pub mod retries;
pub mod second_level;
pub mod store_client;
pub mod store_protocol;
pub mod vault;
