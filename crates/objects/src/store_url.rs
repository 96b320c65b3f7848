//! `SCHEME://BUCKET/PREFIX`, and `file:///FOLDER`: where objects are.

use crate::storage::{SCHEMES, scheme};
use std::fmt;

/// A bucket, and how the names of objects in it begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    scheme: &'static str,
    /// Empty for a folder.
    pub bucket: String,
    /// Without slashes at its ends; may be empty. Of a folder: its path.
    pub prefix: String,
}

/// Why a text is no such place.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no place for objects: write {examples}", examples = examples())]
pub struct StoreUrlError(String);

fn examples() -> String {
    SCHEMES.map(|scheme| scheme.example()).join(", ")
}

impl StoreUrl {
    /// Whether a text means one.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(name, _)| scheme(name).is_some())
    }

    pub fn parse(text: &str) -> Result<StoreUrl, StoreUrlError> {
        let wrong = || StoreUrlError(text.to_string());
        let (name, rest) = text.split_once("://").ok_or_else(wrong)?;
        let scheme = scheme(name).ok_or_else(wrong)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let prefix = prefix.trim_matches('/');
        let is_named = match scheme.has_buckets() {
            true => !bucket.is_empty() && bucket.chars().all(plain),
            false => bucket.is_empty() && !prefix.is_empty(),
        };
        let unclear = |part: &str| matches!(part, "" | "." | "..");
        let is_unclear = !prefix.is_empty() && prefix.split('/').any(unclear);
        if !is_named || is_unclear || prefix.chars().any(char::is_control) {
            return Err(wrong());
        }
        let (bucket, prefix) = (bucket.to_string(), prefix.to_string());
        Ok(StoreUrl { scheme: scheme.name(), bucket, prefix })
    }

    /// What stands in front of `://`.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The path of a folder.
    pub fn folder(&self) -> Option<std::path::PathBuf> {
        let is_folder = scheme(self.scheme).is_some_and(|it| !it.has_buckets());
        is_folder.then(|| format!("/{}", self.prefix).into())
    }

    /// The name of an object here.
    pub fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_string() } else { format!("{}/{name}", self.prefix) }
    }

    /// A place below this one.
    pub fn below(&self, name: &str) -> StoreUrl {
        StoreUrl { bucket: self.bucket.clone(), prefix: self.key(name), ..*self }
    }

    /// The place above, and what this one is called there.
    pub fn split(&self) -> Option<(StoreUrl, &str)> {
        let (above, name) = match self.prefix.rsplit_once('/') {
            Some((above, name)) => (above, name),
            None if !self.prefix.is_empty() => ("", self.prefix.as_str()),
            None => return None,
        };
        Some((StoreUrl { bucket: self.bucket.clone(), prefix: above.to_string(), ..*self }, name))
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bucket_and_a_prefix() {
        let place = StoreUrl::parse("s3://jobs/runs/mine/").unwrap();
        assert_eq!((place.bucket.as_str(), place.prefix.as_str()), ("jobs", "runs/mine"));
        assert_eq!(
            (place.to_string(), place.key("x")),
            ("s3://jobs/runs/mine".into(), "runs/mine/x".into())
        );
        let (above, name) = place.split().unwrap();
        assert_eq!((above.to_string(), name), ("s3://jobs/runs".into(), "mine"));
        assert_eq!(above.below("mine"), place);
        let bucket = StoreUrl::parse("s3://jobs").unwrap();
        assert!(bucket.split().is_none() && bucket.key("x") == "x" && bucket.folder().is_none());
        let wrong = [
            "",
            "s3:/jobs",
            "s3://",
            "s3:///x",
            "s3://a b",
            "ftp://h/x",
            "s3://b/x\n",
            "/x",
            "x",
            "file://x",
            "file:///",
            "file://host/x",
            "s3://b/x//y",
            "gs://b/../y",
            "file:///x/./y",
        ];
        for wrong in wrong {
            assert!(StoreUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_scheme_says_what_kind_of_store_it_is() {
        for text in ["s3://b/p", "gs://b/p", "az://b/p", "file:///b/p"] {
            let place = StoreUrl::parse(text).unwrap();
            assert_eq!((place.to_string(), StoreUrl::is_meant(text)), (text.to_string(), true));
        }
        let folder = StoreUrl::parse("file:///shared/states/").unwrap();
        assert_eq!(folder.folder().unwrap(), std::path::Path::new("/shared/states"));
        assert_eq!(folder.below("job").to_string(), "file:///shared/states/job");
        assert!(!StoreUrl::is_meant("/shared") && !StoreUrl::is_meant("http://b/p"));
        let why = StoreUrl::parse("/x").unwrap_err().to_string();
        assert!(why.contains("write s3://BUCKET/PREFIX, gs://"), "{why}");
    }
}
