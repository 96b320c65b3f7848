//! `s3://BUCKET/PREFIX`: where objects are.

use std::fmt;

const SCHEME: &str = "s3://";

/// A bucket, and how the names of objects in it begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub bucket: String,
    /// Without slashes at its ends; may be empty.
    pub prefix: String,
}

/// Why a text is no such place.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is no place for objects: write s3://BUCKET or s3://BUCKET/PREFIX")]
pub struct PlaceError(String);

impl Place {
    /// Whether a text means one.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    pub fn parse(text: &str) -> Result<Place, PlaceError> {
        let wrong = || PlaceError(text.to_string());
        let rest = text.strip_prefix(SCHEME).ok_or_else(wrong)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if bucket.is_empty() || !bucket.chars().all(plain) || prefix.chars().any(char::is_control) {
            return Err(wrong());
        }
        let prefix = prefix.trim_matches('/').to_string();
        Ok(Place { bucket: bucket.to_string(), prefix })
    }

    /// The name of an object here.
    pub fn key(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_string() } else { format!("{}/{name}", self.prefix) }
    }

    /// A place below this one.
    pub fn below(&self, name: &str) -> Place {
        Place { bucket: self.bucket.clone(), prefix: self.key(name) }
    }

    /// The place above, and what this one is called there.
    pub fn split(&self) -> Option<(Place, &str)> {
        let (above, name) = match self.prefix.rsplit_once('/') {
            Some((above, name)) => (above, name),
            None if !self.prefix.is_empty() => ("", self.prefix.as_str()),
            None => return None,
        };
        Some((Place { bucket: self.bucket.clone(), prefix: above.to_string() }, name))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_bucket_and_a_prefix() {
        let place = Place::parse("s3://jobs/runs/mine/").unwrap();
        assert_eq!((place.bucket.as_str(), place.prefix.as_str()), ("jobs", "runs/mine"));
        assert_eq!(
            (place.to_string(), place.key("x")),
            ("s3://jobs/runs/mine".into(), "runs/mine/x".into())
        );
        let (above, name) = place.split().unwrap();
        assert_eq!((above.to_string(), name), ("s3://jobs/runs".into(), "mine"));
        assert_eq!(above.below("mine"), place);
        let bucket = Place::parse("s3://jobs").unwrap();
        assert!(bucket.split().is_none() && bucket.key("x") == "x");
        for wrong in ["", "s3:/jobs", "s3://", "s3:///x", "s3://a b", "file:///x", "s3://b/x\n"] {
            assert!(Place::parse(wrong).is_err(), "{wrong}");
        }
    }
}
