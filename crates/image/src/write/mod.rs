//! From memory to the blocks of an image: what has to be stored, and what is there already.

pub(crate) mod compare;
pub(crate) mod dedup;
pub(crate) mod object_hashes;
pub(crate) mod page_hashes;
pub(crate) mod page_sort;
pub(crate) mod page_source;
pub(crate) mod pool;
pub(crate) mod pull;
pub(crate) mod shared_pages;
pub(crate) mod time_limit;
