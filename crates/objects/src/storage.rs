//! What a kind of store has to offer. A new kind is one file in `scheme`, and one line in
//! `SCHEMES`.

use crate::access::{Access, Variables};
use crate::error::StoreError;
use crate::scheme;
use crate::store_url::StoreUrl;
use crate::transport::Transport;
use futures_util::future::{self, BoxFuture};
use object_store::{ObjectStore, RetryConfig};

/// All that can be written in front of `://`.
pub(crate) const SCHEMES: [&dyn Scheme; 4] =
    [&scheme::S3, &scheme::Google, &scheme::Azure, &scheme::Folder];

/// A kind of store.
pub(crate) trait Scheme: Sync {
    /// What stands in front of `://`.
    fn name(&self) -> &'static str;

    /// How such a place is written, for messages.
    fn example(&self) -> &'static str;

    /// Whether places name a bucket (a container) in front of the names of objects.
    fn has_buckets(&self) -> bool {
        true
    }

    /// The variables that have its keys, for messages.
    fn variables(&self) -> &'static str;

    /// Endpoint and keys, as the environment has them.
    fn access(&self, variables: Variables<'_>) -> Result<Access, StoreError>;

    /// Does not speak to it yet.
    fn connect(
        &self,
        place: &StoreUrl,
        access: &Access,
        way: (Transport, RetryConfig),
    ) -> Result<Box<dyn Storage>, StoreError>;
}

/// A bucket, or a folder.
pub(crate) trait Storage: Send + Sync {
    fn objects(&self) -> &dyn ObjectStore;

    /// An error if it is known without asking that nothing can be there.
    fn reach(&self, _prefix: &str) -> Result<(), StoreError> {
        Ok(())
    }

    /// Makes what must be there before the first object.
    fn prepare(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// No object is left, and nobody brings another one.
    fn cleared(&self) {}

    /// Gives up uploads that were begun and not ended, of objects whose names begin so. Returns how
    /// many there were. Stores that remove these by themselves need not do anything.
    fn abort_begun<'a>(&'a self, _prefix: &'a str) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(future::ready(Ok(0)))
    }
}

/// The kind with this name.
pub(crate) fn scheme(name: &str) -> Option<&'static dyn Scheme> {
    SCHEMES.into_iter().find(|scheme| scheme.name() == name)
}
