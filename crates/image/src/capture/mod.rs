//! Stopping processes, and keeping what they were at that moment.

pub(crate) mod consolidate;
pub(crate) mod cost;
pub(crate) mod freeze;
pub(crate) mod image_precopy;
pub(crate) mod machine;
#[cfg(test)]
mod many_mappings_tests;
pub(crate) mod plan_room;
pub(crate) mod precopy;
pub(crate) mod process_state;
pub(crate) mod process_tree;
pub(crate) mod snapshot;
pub(crate) mod store;
pub(crate) mod survey;
pub(crate) mod threads;
pub(crate) mod tracker;
pub(crate) mod twin;
pub(crate) mod twin_process;
