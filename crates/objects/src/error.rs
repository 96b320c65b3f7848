//! What a store may answer, said so that it can be helped.

use std::error::Error;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the object store's keys are not known: set {0}")]
    NoKeys(&'static str),
    #[error("'{0}' is no address of an object store ({1}): {2}")]
    Endpoint(String, String, String),
    #[error("the object store at {0} cannot be reached: {1}")]
    Unreachable(String, String),
    #[error("there is no bucket '{0}' at {1}")]
    NoBucket(String, String),
    #[error("the object store does not accept the keys ({0}): see {1}")]
    Keys(String, String),
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
        let code = part(answer.body, "Code").or(answer.code.map(String::from)).unwrap_or_default();
        let message = part(answer.body, "Message").unwrap_or_else(|| plain(answer.body));
        let bucket = answer.bucket.to_string();
        match (code.as_str(), answer.status) {
            ("NoSuchBucket" | "ContainerNotFound", _) => {
                StoreError::NoBucket(bucket, answer.endpoint.to_string())
            }
            ("NoSuchKey" | "BlobNotFound", _) => StoreError::Missing(answer.key.to_string()),
            (
                "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "ExpiredToken"
                | "InvalidToken"
                | "AuthFailure"
                | "InvalidClientTokenId"
                | "AuthenticationFailed"
                | "AuthenticationRequired",
                _,
            )
            | (_, 401) => {
                let code = if code.is_empty() { answer.status.to_string() } else { code };
                StoreError::Keys(code, answer.variables.to_string())
            }
            ("AccessDenied" | "AuthorizationFailure" | "AuthorizationPermissionMismatch", _)
            | ("", 403) => StoreError::Denied(bucket, message),
            ("", 404) => StoreError::Missing(answer.key.to_string()),
            (_, status) => StoreError::Refused { status, code, message },
        }
    }

    /// What failed without an answer that says so: in a folder, or as an answer is not understood.
    pub(crate) fn without_answer(error: &object_store::Error, key: &str) -> StoreError {
        if matches!(error, object_store::Error::NotFound { .. }) {
            return StoreError::Missing(key.to_string());
        }
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        while let Some(one) = cause {
            if let Some(io) = one.downcast_ref::<io::Error>() {
                let same = io.raw_os_error().map(io::Error::from_raw_os_error);
                let same = same.unwrap_or_else(|| io::Error::new(io.kind(), io.to_string()));
                return StoreError::File(format!("/{key}").into(), same);
            }
            cause = one.source();
        }
        let code = String::from("not as expected");
        StoreError::Refused { status: 200, code, message: plain(&error.to_string()) }
    }
}

/// An answer other than success.
pub(crate) struct Answer<'a> {
    pub status: u16,
    /// As a header says it.
    pub code: Option<&'a str>,
    pub body: &'a str,
    pub bucket: &'a str,
    pub key: &'a str,
    pub endpoint: &'a str,
    /// What has its keys.
    pub variables: &'a str,
}

/// Text for a message.
fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

/// The text of the first element with this name.
fn part(body: &str, name: &str) -> Option<String> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(plain(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, code: &str) -> StoreError {
        let body = format!("<?xml?><Error><Code>{code}</Code><Message>m</Message></Error>");
        let body = if code.is_empty() { "" } else { body.as_str() };
        let (code, variables) = (None, "AWS_ACCESS_KEY_ID");
        let (bucket, key, endpoint) = ("b", "k", "e");
        StoreError::of(&Answer { status, code, body, bucket, key, endpoint, variables })
    }

    #[test]
    fn answers_are_told_by_what_they_mean() {
        assert!(matches!(of(404, "NoSuchBucket"), StoreError::NoBucket(..)));
        assert!(matches!(of(403, "SignatureDoesNotMatch"), StoreError::Keys(..)));
        assert!(matches!(of(404, "ContainerNotFound"), StoreError::NoBucket(..)));
        assert!(matches!(of(401, "Odd"), StoreError::Keys(..)));
        let told = of(403, "InvalidAccessKeyId").to_string();
        assert!(told.ends_with("the keys (InvalidAccessKeyId): see AWS_ACCESS_KEY_ID"), "{told}");
        assert!(matches!(of(403, ""), StoreError::Denied(..)));
        assert!(matches!(of(404, ""), StoreError::Missing(_)));
        assert!(matches!(of(500, "InternalError"), StoreError::Refused { status: 500, .. }));
    }
}
