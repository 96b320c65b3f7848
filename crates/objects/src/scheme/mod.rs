//! The kinds of stores, one a file.

mod azure;
mod folder;
mod google;
mod s3;

pub(crate) use azure::Azure;
pub(crate) use folder::Folder;
pub(crate) use google::Google;
pub(crate) use s3::S3;

use crate::error::StoreError;
use crate::storage::Scheme;

/// Options were not accepted before anything was sent.
fn refused(error: &object_store::Error, scheme: &dyn Scheme) -> StoreError {
    StoreError::Keys(error.to_string(), scheme.variables().to_string())
}
