//! The calls.
//!
//! Kept true: a failure of this machine's disk is no failure of the store; what breaks off is gone
//! on with where it broke off.

use crate::access::Access;
use crate::error::{Answer, StoreError};
use crate::pace::Pace;
use crate::place::Place;
use crate::uploads;
use rusty_s3::actions::{CreateMultipartUpload, ListObjectsV2};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ureq::{Agent, Body, SendBody, http};

/// An object of more than this is brought in parts of so much, each held in memory.
const PART_BYTES: u64 = 16 << 20;
/// Most parts of one object: a store takes 10,000. Of a longer one each part is longer.
const MOST_PARTS: u64 = 9_000;
const COPY_BYTES: usize = 1 << 20;
/// Most lists of uploads that were begun, of up to 1000 each, that are asked for at once.
const MOST_PAGES: usize = 100;
/// How often one call is tried, and the first pause between.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);
const CONNECT: Duration = Duration::from_secs(10);
/// Longest silence, also in the middle of an object.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a signature is good.
const SIGNED: Duration = Duration::from_secs(3600);
/// Longest answer that is read into memory.
const MOST_BYTES: u64 = 1 << 30;

/// An object that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub bytes: u64,
}

/// A bucket that can be spoken to.
pub struct Store {
    agent: Agent,
    bucket: Bucket,
    keys: Credentials,
    endpoint: String,
    pace: Pace,
    /// Any of these.
    given_up: Vec<Arc<AtomicBool>>,
    /// The last call was tried more than once: one before may have done what it was to.
    tried_again: bool,
}

/// Length of the parts of an object of this length.
fn part_bytes(length: u64) -> u64 {
    length.div_ceil(MOST_PARTS).max(PART_BYTES)
}

/// Who calls, and takes a connection on which nothing moves for so long for one that broke.
fn agent(silence: Duration) -> Agent {
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .timeout_resolve(Some(CONNECT))
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(silence))
        .timeout_per_read(Some(silence))
        .timeout_per_write(Some(silence));
    config.build().into()
}

impl Store {
    /// The bucket of a place, with endpoint, region and keys from the environment.
    pub fn open(place: &Place, bytes_per_s: Option<u64>) -> Result<Store, StoreError> {
        Store::with(place, Access::from_env()?, Pace::new(bytes_per_s))
    }

    /// The same with what was given. Who has the same pace shares its limit.
    pub fn with(place: &Place, access: Access, pace: Pace) -> Result<Store, StoreError> {
        let Access { endpoint: named, region, key, secret, token } = access;
        // Other servers than Amazon's have no names for buckets.
        let style = if named.is_some() { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let endpoint = named.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let wrong = |why: String| StoreError::Endpoint(endpoint.clone(), why);
        let url = endpoint.parse::<url::Url>().map_err(|e| wrong(e.to_string()))?;
        let bucket = Bucket::new(url, style, place.bucket.clone(), region);
        let bucket = bucket.map_err(|e| wrong(e.to_string()))?;
        let keys = match token {
            Some(token) => Credentials::new_with_token(key, secret, token),
            None => Credentials::new(key, secret),
        };
        let (agent, given_up, tried_again) = (agent(SILENCE), Vec::new(), false);
        Ok(Store { agent, bucket, keys, endpoint, pace, given_up, tried_again })
    }

    /// Whether it answers and knows the keys, tried once: for whoever has another way.
    pub fn reach(&mut self, prefix: &str) -> Result<(), StoreError> {
        let mut action = self.bucket.list_objects_v2(Some(&self.keys));
        action.with_prefix(prefix);
        action.with_max_keys(1);
        let url = action.sign(SIGNED);
        match self.call_once(&http::Method::GET, &url, None, 0) {
            Ok(answer) if answer.status().is_success() => Ok(()),
            Ok(mut answer) => {
                let status = answer.status().as_u16();
                let text = answer.body_mut().read_to_string().unwrap_or_default();
                Err(self.refused(prefix, status, &text))
            }
            Err(error) => Err(self.away(&error)),
        }
    }

    /// Once this, too, is true nothing is brought any more, and nothing is tried again.
    pub fn heed(&mut self, given_up: Arc<AtomicBool>) {
        self.given_up.push(given_up);
    }

    /// An error if what is being done is given up.
    pub fn still_wanted(&self) -> Result<(), StoreError> {
        match self.given_up.iter().any(|it| it.load(Ordering::Relaxed)) {
            true => Err(StoreError::GivenUp),
            false => Ok(()),
        }
    }

    /// Brings a file; in parts if it is long. Returns its length.
    pub fn put_file(&mut self, key: &str, path: &Path) -> Result<u64, StoreError> {
        let failed = |e| StoreError::File(path.to_path_buf(), e);
        let mut file = File::open(path).map_err(failed)?;
        let part_bytes = part_bytes(file.metadata().map_err(failed)?.len());
        let mut next = || -> Result<Vec<u8>, StoreError> {
            let mut part = Vec::new();
            let some = Read::by_ref(&mut file).take(part_bytes).read_to_end(&mut part);
            some.map_err(failed)?;
            Ok(part)
        };
        self.put_next(key, part_bytes, &mut next)
    }

    /// Brings what is in memory; in parts if it is long. Returns its length.
    pub fn put_bytes(&mut self, key: &str, bytes: &[u8]) -> Result<u64, StoreError> {
        let part_bytes = part_bytes(bytes.len() as u64);
        let mut parts = bytes.chunks(usize::try_from(part_bytes).unwrap_or(usize::MAX));
        let mut next = || Ok(parts.next().unwrap_or_default().to_vec());
        self.put_next(key, part_bytes, &mut next)
    }

    /// Brings what comes in parts of this length, but for the last one.
    fn put_next(
        &mut self,
        key: &str,
        part_bytes: u64,
        next: &mut dyn FnMut() -> Result<Vec<u8>, StoreError>,
    ) -> Result<u64, StoreError> {
        let first = next()?;
        if (first.len() as u64) < part_bytes {
            self.put(key, &first)?;
            return Ok(first.len() as u64);
        }
        let upload = self.begin_parts(key)?;
        let brought = self.put_parts(key, &upload, first, next);
        if brought.is_err() {
            // What was brought of it would be paid for.
            let _ = self.abort(key, &upload);
        }
        brought
    }

    fn abort(&mut self, key: &str, upload: &str) -> Result<(), StoreError> {
        let url = self.bucket.abort_multipart_upload(Some(&self.keys), key, upload).sign(SIGNED);
        self.call(key, http::Method::DELETE, &url, None).map(drop)
    }

    fn begin_parts(&mut self, key: &str) -> Result<String, StoreError> {
        let url = self.bucket.create_multipart_upload(Some(&self.keys), key).sign(SIGNED);
        let text = self.text(key, http::Method::POST, &url, Some(&[]))?;
        let begun = CreateMultipartUpload::parse_response(&text);
        Ok(begun.map_err(|e| self.odd(&e))?.upload_id().to_string())
    }

    fn put_parts(
        &mut self,
        key: &str,
        upload: &str,
        first: Vec<u8>,
        next: &mut dyn FnMut() -> Result<Vec<u8>, StoreError>,
    ) -> Result<u64, StoreError> {
        let (mut tags, mut bytes, mut part) = (Vec::new(), 0, first);
        while !part.is_empty() {
            self.still_wanted()?;
            let number = u16::try_from(tags.len() + 1).map_err(|e| self.odd(&e))?;
            let action = self.bucket.upload_part(Some(&self.keys), key, number, upload);
            let url = action.sign(SIGNED);
            let answer = self.call(key, http::Method::PUT, &url, Some(&part))?;
            let tag = answer.headers().get("etag").and_then(|t| t.to_str().ok());
            tags.push(tag.unwrap_or_default().to_string());
            bytes += part.len() as u64;
            part = next()?;
        }
        self.complete(key, upload, &tags, bytes)?;
        Ok(bytes)
    }

    /// Makes one object of the parts, which have these tags, and so many bytes.
    fn complete(
        &mut self,
        key: &str,
        upload: &str,
        tags: &[String],
        bytes: u64,
    ) -> Result<(), StoreError> {
        let tags = tags.iter().map(String::as_str);
        let action = self.bucket.complete_multipart_upload(Some(&self.keys), key, upload, tags);
        let url = action.sign(SIGNED);
        let body = action.body();
        let done = self.text(key, http::Method::POST, &url, Some(body.as_bytes()));
        // It may begin to answer well before it knows.
        let done = match done {
            Ok(text) if text.contains("<Error>") => Err(self.refused(key, 200, &text)),
            done => done,
        };
        match done {
            // There was an answer, which did not get here, as the object was made.
            Err(StoreError::Refused { code, message, .. })
                if self.tried_again && code == "NoSuchUpload" =>
            {
                match self.list(key)?.iter().any(|it| it.key == key && it.bytes == bytes) {
                    true => Ok(()),
                    false => Err(StoreError::Refused { status: 404, code, message }),
                }
            }
            done => done.map(drop),
        }
    }

    pub fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let url = self.bucket.put_object(Some(&self.keys), key).sign(SIGNED);
        self.call(key, http::Method::PUT, &url, Some(bytes)).map(|_| ())
    }

    pub fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        for tries in 1.. {
            let url = self.bucket.get_object(Some(&self.keys), key).sign(SIGNED);
            let mut answer = self.call(key, http::Method::GET, &url, None)?;
            let body = answer.body_mut().with_config().limit(MOST_BYTES);
            match body.read_to_vec() {
                Ok(bytes) => return Ok(bytes),
                // It is short: it is fetched from its beginning.
                Err(ureq::Error::BodyExceedsLimit(_)) => break,
                Err(error) if tries == TRIES || self.still_wanted().is_err() => {
                    return Err(self.away(&error));
                }
                Err(_) => std::thread::sleep(PAUSE * tries),
            }
        }
        let longer = io::Error::other(format!("'{key}' is longer than {MOST_BYTES} bytes"));
        Err(self.odd(&longer))
    }

    /// Fetches an object into a file. Returns its length.
    pub fn get_file(&mut self, key: &str, path: &Path) -> Result<u64, StoreError> {
        let failed = |e| StoreError::File(path.to_path_buf(), e);
        let mut file = File::create(path).map_err(failed)?;
        let (mut have, mut fruitless) = (0, 0);
        loop {
            self.still_wanted()?;
            let from = have;
            match self.get_from(key, &mut have, path, &mut file) {
                Ok(()) => break,
                Err(StoreError::Away(..)) if have > from => fruitless = 0,
                Err(StoreError::Away(..)) if fruitless + 1 < TRIES => fruitless += 1,
                Err(error) => return Err(error),
            }
            std::thread::sleep(PAUSE * (1 << fruitless));
        }
        file.flush().map_err(failed)?;
        Ok(have)
    }

    /// Fetches what is left of an object behind what there is of it.
    fn get_from(
        &mut self,
        key: &str,
        have: &mut u64,
        path: &Path,
        file: &mut File,
    ) -> Result<(), StoreError> {
        let failed = |e| StoreError::File(path.to_path_buf(), e);
        let url = self.bucket.get_object(Some(&self.keys), key).sign(SIGNED);
        let answer = match self.call_from(key, &http::Method::GET, &url, None, *have) {
            // There is nothing behind it: it broke off at its very end. Whether it is what it is to
            // be is seen by its hash.
            Err(StoreError::Refused { status: 416, .. }) if *have > 0 => return Ok(()),
            answer => answer?,
        };
        if answer.status() != http::StatusCode::PARTIAL_CONTENT {
            // All of it, whatever was asked for.
            *have = 0;
            file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        }
        let left = answer.body().content_length();
        let mut body = answer.into_body().into_reader();
        let (mut buffer, mut got) = (vec![0; COPY_BYTES], 0);
        loop {
            let count = body.read(&mut buffer).map_err(|e| self.away(&e))?;
            if count == 0 {
                break;
            }
            file.write_all(&buffer[..count]).map_err(failed)?;
            got += count as u64;
            *have += count as u64;
        }
        match left.is_none_or(|left| left == got) {
            true => Ok(()),
            false => Err(self.away(&io::Error::from(io::ErrorKind::UnexpectedEof))),
        }
    }

    /// All objects whose names begin so.
    pub fn list(&mut self, prefix: &str) -> Result<Vec<Object>, StoreError> {
        let (mut all, mut from) = (Vec::new(), None);
        loop {
            let mut action = self.bucket.list_objects_v2(Some(&self.keys));
            action.with_prefix(prefix);
            from.take().into_iter().for_each(|token: String| action.with_continuation_token(token));
            let url = action.sign(SIGNED);
            let text = self.text(prefix, http::Method::GET, &url, None)?;
            let page = ListObjectsV2::parse_response(&text).map_err(|e| self.odd(&e))?;
            all.extend(page.contents.into_iter().map(|o| Object { key: o.key, bytes: o.size }));
            match page.next_continuation_token {
                Some(token) => from = Some(token),
                None => return Ok(all),
            }
        }
    }

    /// Removes an object, if it is there.
    pub fn delete(&mut self, key: &str) -> Result<(), StoreError> {
        let url = self.bucket.delete_object(Some(&self.keys), key).sign(SIGNED);
        match self.call(key, http::Method::DELETE, &url, None) {
            Err(StoreError::Missing(_)) => Ok(()),
            gone => gone.map(|_| ()),
        }
    }

    /// Gives up what whoever began to bring it in parts never ended. Nobody may be bringing
    /// anything whose name begins so. Returns how many there were.
    pub fn abort_begun(&mut self, prefix: &str) -> Result<usize, StoreError> {
        let mut all = 0;
        // Each call gives up all that it is told of, so the next one begins anew.
        for _ in 0..MOST_PAGES {
            let url = uploads::list(&self.bucket, &self.keys, prefix, SIGNED);
            let text = self.text(prefix, http::Method::GET, &url, None)?;
            let begun = uploads::parse(&text, prefix);
            for (key, upload) in &begun {
                self.abort(key, upload)?;
            }
            all += begun.len();
            if begun.is_empty() || !uploads::are_more(&text) {
                break;
            }
        }
        Ok(all)
    }

    fn text(
        &mut self,
        key: &str,
        method: http::Method,
        url: &url::Url,
        body: Option<&[u8]>,
    ) -> Result<String, StoreError> {
        let mut tries = 1;
        loop {
            let answer = self.call(key, method.clone(), url, body);
            self.tried_again |= tries > 1;
            let mut answer = answer?;
            let text = answer.body_mut().with_config().limit(MOST_BYTES).read_to_string();
            let breaks_off = match text {
                Ok(text) => return Ok(text),
                Err(error) => error,
            };
            let is_longer = matches!(breaks_off, ureq::Error::BodyExceedsLimit(_));
            if is_longer || tries == TRIES || self.still_wanted().is_err() {
                return Err(self.away(&breaks_off));
            }
            std::thread::sleep(PAUSE * tries);
            tries += 1;
        }
    }

    fn call(
        &mut self,
        key: &str,
        method: http::Method,
        url: &url::Url,
        body: Option<&[u8]>,
    ) -> Result<http::Response<Body>, StoreError> {
        self.call_from(key, &method, url, body, 0)
    }

    /// One call, tried again as long as that may help, for what stands from this byte on.
    fn call_from(
        &mut self,
        key: &str,
        method: &http::Method,
        url: &url::Url,
        body: Option<&[u8]>,
        from: u64,
    ) -> Result<http::Response<Body>, StoreError> {
        let mut pause = PAUSE;
        for tries in 1.. {
            let last = tries == TRIES || self.still_wanted().is_err();
            self.tried_again = tries > 1;
            match self.call_once(method, url, body, from) {
                Ok(answer) if answer.status().is_success() => return Ok(answer),
                Ok(mut answer) => {
                    let status = answer.status().as_u16();
                    let text = answer.body_mut().read_to_string().unwrap_or_default();
                    if last || !(status >= 500 || status == 429) {
                        return Err(self.refused(key, status, &text));
                    }
                }
                Err(error) if last => return Err(self.away(&error)),
                Err(_) => {}
            }
            std::thread::sleep(pause);
            pause *= 3;
        }
        Err(StoreError::Missing(key.to_string()))
    }

    fn call_once(
        &mut self,
        method: &http::Method,
        url: &url::Url,
        body: Option<&[u8]>,
        from: u64,
    ) -> Result<http::Response<Body>, ureq::Error> {
        let mut request = http::Request::builder().method(method.clone()).uri(url.as_str());
        if from > 0 {
            request = request.header("range", format!("bytes={from}-"));
        }
        match body {
            Some(bytes) => {
                let mut reader = self.pace.reader(bytes, &self.given_up);
                let request = request.header("content-length", bytes.len());
                self.agent.run(request.body(SendBody::from_reader(&mut reader))?)
            }
            None => self.agent.run(request.body(())?),
        }
    }

    fn refused(&self, key: &str, status: u16, body: &str) -> StoreError {
        let (bucket, endpoint) = (self.bucket.name(), self.endpoint.as_str());
        StoreError::of(&Answer { status, body, bucket, key, endpoint })
    }

    fn away(&self, error: &dyn std::error::Error) -> StoreError {
        StoreError::Away(self.endpoint.clone(), error.to_string())
    }

    fn odd(&self, error: &dyn std::error::Error) -> StoreError {
        let (code, message) = (String::from("not as S3"), error.to_string());
        StoreError::Refused { status: 200, code, message }
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
