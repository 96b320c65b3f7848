//! From an image back to processes.

pub(crate) mod child;
pub(crate) mod cross_node;
pub(crate) mod descriptors;
pub(crate) mod fit;
pub(crate) mod go_threads;
pub(crate) mod lazy;
pub(crate) mod linker_locks;
pub(crate) mod load;
pub(crate) mod named_memory;
pub(crate) mod options;
pub(crate) mod plan;
pub(crate) mod plan_descriptors;
pub(crate) mod process;
pub(crate) mod process_tree;
pub(crate) mod shared_memory;
pub(crate) mod sockets;
pub(crate) mod spawn;
pub(crate) mod steps;
pub(crate) mod threads;
pub(crate) mod vdso;
