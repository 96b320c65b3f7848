//! What a store may answer, said so that it can be helped.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "the object store's keys are not known: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )]
    NoKeys,
    #[error("'{0}' is no address of an object store (AWS_ENDPOINT_URL): {1}")]
    Endpoint(String, String),
    #[error("the object store at {0} cannot be reached: {1}")]
    Away(String, String),
    #[error("there is no bucket '{0}' at {1}")]
    NoBucket(String, String),
    #[error("the object store does not accept the keys ({0}): see AWS_ACCESS_KEY_ID and the like")]
    Keys(String),
    #[error("the keys may not do that in bucket '{0}' ({1})")]
    Denied(String, String),
    #[error("there is no object '{0}'")]
    Missing(String),
    #[error("the object store answers {status} {code}: {message}")]
    Refused { status: u16, code: String, message: String },
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("it is given up")]
    GivenUp,
}

impl StoreError {
    /// What an answer other than success means.
    pub(crate) fn of(answer: &Answer<'_>) -> StoreError {
        let code = part(answer.body, "Code").unwrap_or_default();
        let message = part(answer.body, "Message").unwrap_or_default();
        let bucket = answer.bucket.to_string();
        match (code.as_str(), answer.status) {
            ("NoSuchBucket", _) => StoreError::NoBucket(bucket, answer.endpoint.to_string()),
            ("NoSuchKey", _) => StoreError::Missing(answer.key.to_string()),
            (
                "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "ExpiredToken"
                | "InvalidToken"
                | "AuthFailure"
                | "InvalidClientTokenId",
                _,
            ) => StoreError::Keys(code),
            ("AccessDenied", _) | ("", 403) => StoreError::Denied(bucket, message),
            ("", 404) => StoreError::Missing(answer.key.to_string()),
            (_, status) => StoreError::Refused { status, code, message },
        }
    }
}

/// An answer other than success.
pub(crate) struct Answer<'a> {
    pub status: u16,
    pub body: &'a str,
    pub bucket: &'a str,
    pub key: &'a str,
    pub endpoint: &'a str,
}

/// The text of the first element with this name.
fn part(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.chars().filter(|c| !c.is_control()).take(300).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, code: &str) -> StoreError {
        let body = format!("<?xml?><Error><Code>{code}</Code><Message>m</Message></Error>");
        let body = if code.is_empty() { "" } else { body.as_str() };
        StoreError::of(&Answer { status, body, bucket: "b", key: "k", endpoint: "e" })
    }

    #[test]
    fn answers_are_told_by_what_they_mean() {
        assert!(matches!(of(404, "NoSuchBucket"), StoreError::NoBucket(..)));
        assert!(matches!(of(403, "SignatureDoesNotMatch"), StoreError::Keys(_)));
        assert!(matches!(of(403, ""), StoreError::Denied(..)));
        assert!(matches!(of(404, ""), StoreError::Missing(_)));
        assert!(matches!(of(500, "InternalError"), StoreError::Refused { status: 500, .. }));
    }
}
