//! What it takes to speak to a store besides the name of a bucket: its address, and keys.
//!
//! Kept true: keys are in no message, nor in what is printed of this.

use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// It may be given to whoever is to bring or fetch something, over a connection that is trusted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// None: that of Amazon's store in the region.
    pub(crate) endpoint: Option<String>,
    pub(crate) region: String,
    pub(crate) key: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access(..)")
    }
}

fn variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()))
}

impl Access {
    /// As the environment has it.
    ///
    /// # Errors
    /// When it has no keys.
    pub fn from_env() -> Result<Access, StoreError> {
        let region = variable(&["AWS_REGION", "AWS_DEFAULT_REGION"]);
        Ok(Access {
            endpoint: variable(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]),
            region: region.unwrap_or_else(|| String::from("us-east-1")),
            key: variable(&["AWS_ACCESS_KEY_ID"]).ok_or(StoreError::NoKeys)?,
            secret: variable(&["AWS_SECRET_ACCESS_KEY"]).ok_or(StoreError::NoKeys)?,
            token: variable(&["AWS_SESSION_TOKEN"]),
        })
    }
}
