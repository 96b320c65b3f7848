//! `az://CONTAINER/PREFIX`: Azure Blob Storage.
//!
//! What was begun and not ended is removed by the store, after a week.

use super::refused;
use crate::access::{Access, Variables, check_endpoint};
use crate::error::StoreError;
use crate::storage::{Scheme, Storage};
use crate::store_url::StoreUrl;
use crate::transport::Transport;
use object_store::azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::{ObjectStore, RetryConfig};

const ACCOUNT: &str = "azure_storage_account_name";
const ENDPOINT: &str = "azure_storage_endpoint";
const KEY: &str = "azure_storage_account_key";
const SIGNATURE: &str = "azure_storage_sas_token";
const TOKEN: &str = "azure_storage_token";
const CLIENT: [&str; 3] =
    ["azure_storage_client_id", "azure_storage_client_secret", "azure_storage_tenant_id"];

pub(crate) struct Azure;

impl Scheme for Azure {
    fn name(&self) -> &'static str {
        "az"
    }

    fn example(&self) -> &'static str {
        "az://CONTAINER/PREFIX"
    }

    fn variables(&self) -> &'static str {
        "AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or \
         AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID"
    }

    fn access(&self, variables: Variables<'_>) -> Result<Access, StoreError> {
        let accounts = ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"];
        let keys = ["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_KEY"];
        let signatures = ["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"];
        let endpoints = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"];
        let access = Access::default()
            .with(ACCOUNT, &accounts, variables)?
            .with(ENDPOINT, &endpoints, variables)?
            .with(KEY, &keys, variables)?
            .with(SIGNATURE, &signatures, variables)?
            .with(TOKEN, &["AZURE_STORAGE_TOKEN"], variables)?
            .with(CLIENT[0], &["AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"], variables)?
            .with(CLIENT[1], &["AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"], variables)?
            .with(CLIENT[2], &["AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID"], variables)?;
        let has_keys = [KEY, SIGNATURE, TOKEN].into_iter().any(|it| access.has(it))
            || CLIENT.into_iter().all(|it| access.has(it));
        match access.has(ACCOUNT) && has_keys {
            true => Ok(access),
            false => Err(StoreError::NoKeys(self.variables())),
        }
    }

    fn connect(
        &self,
        place: &StoreUrl,
        access: &Access,
        (transport, retry): (Transport, RetryConfig),
    ) -> Result<Box<dyn Storage>, StoreError> {
        let endpoint = access.get(ENDPOINT);
        endpoint.map_or(Ok(()), |text| check_endpoint(text, "AZURE_STORAGE_ENDPOINT"))?;
        let mut builder = MicrosoftAzureBuilder::new();
        for (name, value) in access.options() {
            let option: AzureConfigKey = name.parse().map_err(|e| refused(&e, self))?;
            builder = builder.with_config(option, value);
        }
        let store = builder
            .with_container_name(&place.bucket)
            .with_retry(retry)
            .with_http_connector(transport)
            .build()
            .map_err(|e| refused(&e, self))?;
        Ok(Box::new(Container(store)))
    }
}

struct Container(MicrosoftAzure);

impl Storage for Container {
    fn objects(&self) -> &dyn ObjectStore {
        &self.0
    }
}
