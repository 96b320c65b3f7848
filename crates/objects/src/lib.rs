//! Objects in an S3-compatible store, by calls that block: for threads and processes of their own.
//!
//! Kept true: an object is there whole or not at all; what fails for a moment is tried again a few
//! times, and then told by what it is; keys are in no message.

mod access;
mod error;
mod pace;
mod place;
mod store;
mod uploads;

pub use access::Access;
pub use error::StoreError;
pub use pace::Pace;
pub use place::{Place, PlaceError};
pub use store::{Object, Store};
