//! What it takes to speak to a store besides its address: endpoint, region and keys.
//!
//! Kept true: keys are in no message, nor in what is printed of this.

use crate::error::StoreError;
use crate::storage::scheme;
use crate::store_url::StoreUrl;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Looks up one variable.
pub(crate) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// It may be given to whoever is to bring or fetch something, over a connection that is trusted.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// By the names that `object_store` has for them.
    options: BTreeMap<String, String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Access(..)")
    }
}

impl Access {
    /// As the environment has it.
    ///
    /// # Errors
    /// When it has no keys.
    pub fn from_env(place: &StoreUrl) -> Result<Access, StoreError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        scheme(place.scheme()).map_or_else(
            || Err(StoreError::NoKeys("a scheme that is known")),
            |it| it.access(&variable),
        )
    }

    /// What is set in the first of these variables that is set at all.
    pub(crate) fn with(
        mut self,
        option: &str,
        names: &[&str],
        variables: Variables<'_>,
    ) -> Result<Access, StoreError> {
        if let Some(value) = names.iter().find_map(|name| variables(name)) {
            // It goes into headers.
            if value.chars().any(char::is_control) {
                let why = String::from("a control character is in it");
                return Err(StoreError::Keys(why, names.join(", ")));
            }
            self.set(option, value);
        }
        Ok(self)
    }

    pub(crate) fn set(&mut self, option: &str, value: String) {
        self.options.insert(option.to_string(), value);
    }

    pub(crate) fn get(&self, option: &str) -> Option<&str> {
        self.options.get(option).map(String::as_str)
    }

    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// Names and values.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// An endpoint must be one: the crate below takes that for granted.
pub(crate) fn check_endpoint(text: &str, variable: &str) -> Result<(), StoreError> {
    let wrong = |why: String| StoreError::Endpoint(text.into(), variable.into(), why);
    let url = url::Url::parse(text).map_err(|e| wrong(e.to_string()))?;
    match matches!(url.scheme(), "http" | "https") && url.has_host() {
        true => Ok(()),
        false => Err(wrong(String::from("write https://HOST or http://HOST"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(place: &str, set: &[(&str, &str)]) -> Result<Access, StoreError> {
        let variable = |name: &str| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_string())
        };
        scheme(place).unwrap().access(&variable)
    }

    #[test]
    fn keys_come_from_the_environment() {
        let two = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let s3 = access("s3", &two).unwrap();
        assert_eq!(s3.get("aws_secret_access_key"), Some("secret"));
        assert_eq!(format!("{s3:?}"), "Access(..)");
        let none = access("s3", &two[..1]).unwrap_err().to_string();
        assert!(none.contains("keys are not known: set AWS_ACCESS_KEY_ID"), "{none}");
        let ends = access("s3", &[two[0], ("AWS_SECRET_ACCESS_KEY", "a\nb")]).unwrap_err();
        assert!(matches!(ends, StoreError::Keys(..)), "{ends}");
        let gs = access("gs", &[("GOOGLE_BEARER_TOKEN", "t")]).unwrap();
        assert_eq!(gs.get("google_bearer_token"), Some("t"));
        let none = access("gs", &[]).unwrap_err().to_string();
        assert!(none.contains("GOOGLE_APPLICATION_CREDENTIALS"), "{none}");
        let az = [("AZURE_STORAGE_ACCOUNT_NAME", "a"), ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")];
        assert!(access("az", &az).unwrap().has("azure_storage_account_key"));
        for lacking in [&az[..1], &az[1..]] {
            let none = access("az", lacking).unwrap_err().to_string();
            assert!(none.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{none}");
        }
        assert!(access("file", &[]).unwrap() == Access::default());
    }

    #[test]
    fn an_endpoint_is_an_address() {
        assert!(check_endpoint("http://127.0.0.1:9000", "X").is_ok());
        for wrong in ["", "127.0.0.1:9000", "ftp://host", "http://"] {
            let why = check_endpoint(wrong, "AWS_ENDPOINT_URL").unwrap_err().to_string();
            assert!(why.contains("is no address of an object store (AWS_ENDPOINT_URL)"), "{why}");
        }
    }
}
