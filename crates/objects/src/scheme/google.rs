//! `gs://BUCKET/PREFIX`: Google Cloud Storage.
//!
//! Uploads that were begun and not ended stay until the bucket's rules remove them
//! (`AbortIncompleteMultipartUpload`).

use super::refused;
use crate::access::{Access, Variables, check_endpoint};
use crate::error::StoreError;
use crate::storage::{Scheme, Storage};
use crate::store_url::StoreUrl;
use crate::transport::Transport;
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ObjectStore, RetryConfig};

const ENDPOINT: &str = "google_base_url";
const TOKEN: &str = "google_bearer_token";
const ACCOUNT: &str = "google_service_account_key";

pub(crate) struct Google;

impl Scheme for Google {
    fn name(&self) -> &'static str {
        "gs"
    }

    fn example(&self) -> &'static str {
        "gs://BUCKET/PREFIX"
    }

    fn variables(&self) -> &'static str {
        "GOOGLE_APPLICATION_CREDENTIALS to the file with the key of a service account, or \
         GOOGLE_BEARER_TOKEN"
    }

    fn access(&self, variables: Variables<'_>) -> Result<Access, StoreError> {
        let mut access = Access::default()
            .with(ENDPOINT, &["GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"], variables)?
            .with(TOKEN, &["GOOGLE_BEARER_TOKEN"], variables)?;
        // Nodes have no such file: what is in it goes to them.
        let files = [
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
        ];
        let file = files.iter().find_map(|name| variables(name));
        let account = match (variables("GOOGLE_SERVICE_ACCOUNT_KEY"), file) {
            (Some(key), _) => Some(key),
            (None, Some(path)) => {
                let read = std::fs::read_to_string(&path);
                Some(read.map_err(|e| StoreError::File(path.into(), e))?)
            }
            (None, None) => None,
        };
        match account {
            Some(account) => access.set(ACCOUNT, account),
            None if access.has(TOKEN) => {}
            None => return Err(StoreError::NoKeys(self.variables())),
        }
        Ok(access)
    }

    fn connect(
        &self,
        place: &StoreUrl,
        access: &Access,
        (transport, retry): (Transport, RetryConfig),
    ) -> Result<Box<dyn Storage>, StoreError> {
        access.get(ENDPOINT).map_or(Ok(()), |text| check_endpoint(text, "GOOGLE_BASE_URL"))?;
        let mut builder = GoogleCloudStorageBuilder::new();
        for (name, value) in access.options() {
            // A token is asked for first.
            if name != ACCOUNT || !access.has(TOKEN) {
                let option: GoogleConfigKey = name.parse().map_err(|e| refused(&e, self))?;
                builder = builder.with_config(option, value.trim_end_matches('/'));
            }
        }
        let store = builder
            .with_bucket_name(&place.bucket)
            .with_retry(retry)
            .with_http_connector(transport)
            .build()
            .map_err(|e| refused(&e, self))?;
        Ok(Box::new(Bucket(store)))
    }
}

struct Bucket(GoogleCloudStorage);

impl Storage for Bucket {
    fn objects(&self) -> &dyn ObjectStore {
        &self.0
    }
}
