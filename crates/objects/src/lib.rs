//! Object stores (S3, Google Cloud Storage, Azure Blob Storage) and folders under one interface, by
//! calls that block: for threads and processes of their own.
//!
//! The protocols are those of the crate `object_store`. `transport` sends its requests, on the
//! thread that calls: there is no other thread, and no connection once a `Store` is dropped.
//!
//! Kept true: an object is there whole or not at all; what fails for a moment is tried again a few
//! times, and then told by what it is; keys are in no message.

mod access;
mod error;
mod rate_limit;
mod scheme;
mod storage;
mod store;
mod store_url;
mod transport;

pub use access::Access;
pub use error::StoreError;
pub use rate_limit::RateLimit;
pub use store::{Object, Store};
pub use store_url::{StoreUrl, StoreUrlError};
