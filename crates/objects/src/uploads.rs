//! Uploads that were begun and neither ended nor given up: `ListMultipartUploads`, which the crate
//! for all other calls does not have.

use rusty_s3::{Bucket, Credentials, S3Action};
use std::time::Duration;

/// Most characters of a name or a number that is believed.
const MOST_CHARS: usize = 2048;

/// The address at which to ask for them, good for so long.
pub(crate) fn list(bucket: &Bucket, keys: &Credentials, prefix: &str, good: Duration) -> url::Url {
    // The bucket itself is what has no name in it.
    let mut action = bucket.get_object(Some(keys), "");
    action.query_mut().insert("prefix", prefix.to_string());
    action.query_mut().insert("uploads", "");
    action.sign(good)
}

/// Names and numbers of uploads in an answer, of names that begin with `prefix`.
pub(crate) fn parse(text: &str, prefix: &str) -> Vec<(String, String)> {
    let uploads = text.split("<Upload>").skip(1);
    let both = uploads.filter_map(|it| Some((part(it, "Key")?, part(it, "UploadId")?)));
    both.filter(|(key, _)| key.starts_with(prefix)).collect()
}

/// Whether the answer is not all.
pub(crate) fn are_more(text: &str) -> bool {
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
