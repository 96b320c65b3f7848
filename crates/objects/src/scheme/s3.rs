//! `s3://BUCKET/PREFIX`: Amazon's store, and all that speak its protocol.
//!
//! `object_store` does not list uploads that were begun: that call is here.

use super::refused;
use crate::access::{Access, Variables, check_endpoint};
use crate::error::StoreError;
use crate::storage::{Scheme, Storage};
use crate::store_url::StoreUrl;
use crate::transport::{PAUSE, TRIES, Transport};
use futures_util::future::BoxFuture;
use object_store::aws::{AmazonS3, AmazonS3Builder, AwsAuthorizer};
use object_store::multipart::MultipartStore;
use object_store::{ObjectStore, RetryConfig};
use url::form_urlencoded::Serializer;

/// Most characters of a name or a number that is believed.
const MOST_CHARS: usize = 2048;
/// Most lists of uploads that were begun, of up to 1000 each, that are asked for at once.
const MOST_PAGES: usize = 100;
const ENDPOINT: &str = "aws_endpoint_url";
const REGION: &str = "aws_region";

pub(crate) struct S3;

impl Scheme for S3 {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn example(&self) -> &'static str {
        "s3://BUCKET/PREFIX"
    }

    fn variables(&self) -> &'static str {
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    }

    fn access(&self, variables: Variables<'_>) -> Result<Access, StoreError> {
        let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let access = Access::default()
            .with(ENDPOINT, &endpoints, variables)?
            .with(REGION, &["AWS_REGION", "AWS_DEFAULT_REGION"], variables)?
            .with("aws_access_key_id", &["AWS_ACCESS_KEY_ID"], variables)?
            .with("aws_secret_access_key", &["AWS_SECRET_ACCESS_KEY"], variables)?
            .with("aws_session_token", &["AWS_SESSION_TOKEN"], variables)?;
        match access.has("aws_access_key_id") && access.has("aws_secret_access_key") {
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
        endpoint.map_or(Ok(()), |text| check_endpoint(text, "AWS_ENDPOINT_URL"))?;
        let region = access.get(REGION).unwrap_or("us-east-1").to_string();
        let bucket = &place.bucket;
        let mut builder = AmazonS3Builder::new();
        for (name, value) in access.options() {
            let option = name.parse().map_err(|e| refused(&e, self))?;
            builder = builder.with_config(option, value);
        }
        let url = match endpoint {
            Some(endpoint) => format!("{}/{bucket}", endpoint.trim_end_matches('/')),
            None => format!("https://{bucket}.s3.{region}.amazonaws.com"),
        };
        let store = builder
            .with_region(&region)
            .with_bucket_name(bucket)
            // Other servers than Amazon's have no names for buckets.
            .with_virtual_hosted_style_request(endpoint.is_none())
            // TLS protects it on its way, and a hash of ours when it is fetched.
            .with_unsigned_payload(true)
            // Not all servers have that.
            .with_disable_bulk_delete(true)
            .with_retry(retry)
            .with_http_connector(transport.clone())
            .build()
            .map_err(|e| refused(&e, self))?;
        Ok(Box::new(Bucket { store, url, region, transport }))
    }
}

struct Bucket {
    store: AmazonS3,
    url: String,
    region: String,
    transport: Transport,
}

impl Storage for Bucket {
    fn objects(&self) -> &dyn ObjectStore {
        &self.store
    }

    fn abort_begun<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<usize, StoreError>> {
        Box::pin(async move {
            let mut all = 0;
            // Each call gives up all that it is told of, so the next one begins anew.
            for _ in 0..MOST_PAGES {
                let text = self.begun(prefix).await?;
                let begun = parse(&text, prefix);
                for (key, upload) in &begun {
                    let path = object_store::path::Path::parse(key);
                    let path = path.map_err(|e| self.transport.failed(&e.into(), key))?;
                    let gone = self.store.abort_multipart(&path, upload).await;
                    gone.map_err(|e| self.transport.failed(&e, key))?;
                }
                all += begun.len();
                if begun.is_empty() || !are_more(&text) {
                    break;
                }
            }
            Ok(all)
        })
    }
}

impl Bucket {
    /// The answer to `ListMultipartUploads`.
    async fn begun(&self, prefix: &str) -> Result<String, StoreError> {
        let query = Serializer::new(String::new()).append_pair("prefix", prefix).finish();
        // Spaces are signed as what they are in an address.
        let query = query.replace('+', "%20");
        let url = format!("{}?{query}&uploads=", self.url);
        for tries in 1.. {
            let failed = |e: object_store::Error| self.transport.failed(&e, prefix);
            let keys = self.store.credentials().get_credential().await.map_err(failed)?;
            let request = self.transport.get(&url).and_then(|mut request| {
                let signer = AwsAuthorizer::new(&keys, "s3", &self.region);
                signer.try_authorize(&mut request, None).map(|()| request)
            });
            let request = request.map_err(failed)?;
            match self.transport.text(request) {
                Err(error) if tries < TRIES && self.transport.may_pass(&error) => {}
                done => return done,
            }
            tokio::time::sleep(PAUSE * tries).await;
        }
        Ok(String::new())
    }
}

/// Names and numbers of uploads in an answer, of names that begin with `prefix`.
fn parse(text: &str, prefix: &str) -> Vec<(String, String)> {
    let uploads = text.split("<Upload>").skip(1);
    let both = uploads.filter_map(|it| Some((part(it, "Key")?, part(it, "UploadId")?)));
    both.filter(|(key, _)| key.starts_with(prefix)).collect()
}

/// Whether the answer is not all.
fn are_more(text: &str) -> bool {
    part(text, "IsTruncated").is_some_and(|it| it == "true")
}

fn part(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    let text = plain.iter().fold(text.to_string(), |t, (from, to)| t.replace(from, to));
    (text.len() <= MOST_CHARS).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_is_read() {
        let one = |key: &str, id: &str| {
            format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>")
        };
        let text = format!(
            "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>{}{}{}\
             <Upload><Key>runs/x</Key></Upload></ListMultipartUploadsResult>",
            one("runs/a", "1"),
            one("runs/b&amp;c", "2"),
            one("others/d", "3"),
        );
        let found = parse(&text, "runs/");
        let want = [("runs/a", "1"), ("runs/b&c", "2")];
        assert_eq!(found, want.map(|(k, u)| (k.to_string(), u.to_string())));
        assert!(are_more(&text) && !are_more("<IsTruncated>false</IsTruncated>"));
        assert!(parse("", "runs/").is_empty());
    }
}
