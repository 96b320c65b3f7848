//! The calls.
//!
//! Kept true: a failure of this machine's disk is no failure of the store; what breaks off is gone
//! on with where it broke off.

use crate::access::Access;
use crate::error::StoreError;
use crate::rate_limit::RateLimit;
use crate::storage::{Storage, scheme};
use crate::store_url::StoreUrl;
use crate::transport::{InPieces, PAUSE, TRIES, Transport, retries};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Key;
use object_store::{
    GetOptions, GetRange, GetResult, GetResultPayload, MultipartUpload, ObjectStoreExt, PutPayload,
};
use std::fs::File;
use std::future::Future;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// An object of more than this is brought in parts of so much, each held in memory.
const PART_BYTES: u64 = 16 << 20;
/// Most parts of one object: a store takes 10,000. Of a longer one each part is longer.
const MOST_PARTS: u64 = 9_000;
/// Longest silence, also in the middle of an object.
const SILENCE: Duration = Duration::from_secs(60);

/// An object that there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub key: String,
    pub bytes: u64,
}

/// A bucket, or a folder, that can be spoken to.
pub struct Store {
    /// For what the crate below waits for: a pause.
    runtime: Runtime,
    storage: Box<dyn Storage>,
    /// The same, which tries nothing again.
    once: Box<dyn Storage>,
    transport: Transport,
}

/// Length of the parts of an object of this length.
fn part_bytes(length: u64) -> u64 {
    length.div_ceil(MOST_PARTS).max(PART_BYTES)
}

impl Store {
    /// With endpoint, region and keys from the environment.
    pub fn open(place: &StoreUrl, bytes_per_s: Option<u64>) -> Result<Store, StoreError> {
        Store::with(place, Access::from_env(place)?, RateLimit::new(bytes_per_s))
    }

    /// The same with what was given. Who has the same pace shares its limit.
    pub fn with(place: &StoreUrl, access: Access, pace: RateLimit) -> Result<Store, StoreError> {
        Store::heard(place, &access, pace, SILENCE)
    }

    fn heard(
        place: &StoreUrl,
        access: &Access,
        pace: RateLimit,
        silence: Duration,
    ) -> Result<Store, StoreError> {
        let unknown = StoreError::NoKeys("a scheme that is known");
        let scheme = scheme(place.scheme()).ok_or(unknown)?;
        let transport = Transport::new(&place.bucket, scheme.variables(), pace, silence);
        let connect = |tries| scheme.connect(place, access, (transport.clone(), retries(tries)));
        let (storage, once) = (connect(TRIES)?, connect(1)?);
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|e| StoreError::File("a timer".into(), e))?;
        Ok(Store { runtime, storage, once, transport })
    }

    /// One operation of the crate below.
    fn done<T>(
        &self,
        key: &str,
        operation: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StoreError> {
        self.transport.begin();
        let done = self.runtime.block_on(operation);
        done.map_err(|error| self.transport.failed(&error, key))
    }

    /// Whether it answers and knows the keys, tried once: for whoever has another way.
    pub fn reach(&mut self, prefix: &str) -> Result<(), StoreError> {
        self.once.reach(prefix)?;
        let at = named(prefix)?;
        let first = async { self.once.objects().list(Some(&at)).try_next().await };
        self.done(prefix, first).map(drop)
    }

    /// Once this, too, is true nothing is brought any more, and nothing is tried again.
    pub fn heed(&mut self, given_up: Arc<AtomicBool>) {
        self.transport.heed(given_up);
    }

    /// An error if what is being done is given up.
    pub fn still_wanted(&self) -> Result<(), StoreError> {
        match self.transport.is_given_up() {
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
            let bytes = first.len() as u64;
            self.put_whole(key, first.into())?;
            return Ok(bytes);
        }
        self.storage.prepare()?;
        let at = named(key)?;
        let mut upload = self.done(key, self.storage.objects().put_multipart(&at))?;
        let brought = self.put_parts(key, upload.as_mut(), first, next);
        if brought.is_err() {
            // What was brought of it would be paid for.
            let _ = self.done(key, upload.abort());
        }
        brought
    }

    fn put_parts(
        &mut self,
        key: &str,
        upload: &mut dyn MultipartUpload,
        first: Vec<u8>,
        next: &mut dyn FnMut() -> Result<Vec<u8>, StoreError>,
    ) -> Result<u64, StoreError> {
        let (mut bytes, mut part) = (0, first);
        while !part.is_empty() {
            self.still_wanted()?;
            bytes += part.len() as u64;
            self.done(key, upload.put_part(part.into()))?;
            part = next()?;
        }
        self.complete(key, upload, bytes)?;
        Ok(bytes)
    }

    /// Makes one object of the parts, of so many bytes.
    fn complete(
        &mut self,
        key: &str,
        upload: &mut dyn MultipartUpload,
        bytes: u64,
    ) -> Result<(), StoreError> {
        match self.done(key, upload.complete()) {
            // There was an answer, which did not get here, as the object was made.
            Err(StoreError::Refused { status, code, message })
                if self.transport.tried_again() && code == "NoSuchUpload" =>
            {
                let at = named(key)?;
                match self.done(key, self.storage.objects().head(&at)) {
                    Ok(there) if there.size == bytes => Ok(()),
                    _ => Err(StoreError::Refused { status, code, message }),
                }
            }
            done => done.map(drop),
        }
    }

    pub fn put(&mut self, key: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.put_whole(key, bytes.to_vec().into())
    }

    fn put_whole(&mut self, key: &str, payload: PutPayload) -> Result<(), StoreError> {
        self.storage.prepare()?;
        let at = named(key)?;
        self.done(key, self.storage.objects().put(&at, payload)).map(drop)
    }

    pub fn get(&mut self, key: &str) -> Result<Vec<u8>, StoreError> {
        let at = named(key)?;
        let whole = async { self.storage.objects().get(&at).await?.bytes().await };
        self.done(key, whole).map(|bytes| bytes.to_vec())
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
                Err(StoreError::Unreachable(..)) if have > from => fruitless = 0,
                Err(StoreError::Unreachable(..)) if fruitless + 1 < TRIES => fruitless += 1,
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
        let found = match self.ask_from(key, *have) {
            // There is nothing behind it: it broke off at its very end. Whether it is what it is to
            // be is seen by its hash.
            Err(StoreError::Refused { status: 416, .. }) if *have > 0 => return Ok(()),
            // All of it, whatever was asked for.
            Err(StoreError::Refused { .. }) if *have > 0 && self.transport.was_whole() => {
                *have = 0;
                file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
                self.ask_from(key, 0)?
            }
            found => found?,
        };
        let mut pieces = match found.payload {
            GetResultPayload::File(mut from, _) => {
                *have = io::copy(&mut from, file).map_err(failed)?;
                return Ok(());
            }
            GetResultPayload::Stream(pieces) => pieces,
        };
        while let Some(piece) = self.runtime.block_on(pieces.next()) {
            match piece.map_err(|error| self.transport.failed(&error, key)) {
                Ok(piece) => {
                    file.write_all(&piece).map_err(failed)?;
                    *have += piece.len() as u64;
                }
                Err(StoreError::Refused { status: 416, .. }) if *have > 0 => break,
                // The crate below went on with something else than what broke off.
                Err(StoreError::Refused { status: 200, message, .. }) => {
                    return Err(StoreError::Unreachable(
                        self.transport.bucket().to_string(),
                        message,
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn ask_from(&self, key: &str, from: u64) -> Result<GetResult, StoreError> {
        let mut options = GetOptions::default();
        options.extensions.insert(InPieces);
        options.range = (from > 0).then_some(GetRange::Offset(from));
        let at = named(key)?;
        self.done(key, self.storage.objects().get_opts(&at, options))
    }

    /// All objects whose names begin so: a name and a slash, or nothing.
    pub fn list(&mut self, prefix: &str) -> Result<Vec<Object>, StoreError> {
        let at = named(prefix)?;
        let all: Vec<_> =
            self.done(prefix, self.storage.objects().list(Some(&at)).try_collect())?;
        let object =
            |it: object_store::ObjectMeta| Object { key: it.location.into(), bytes: it.size };
        Ok(all.into_iter().map(object).collect())
    }

    /// Removes an object, if it is there.
    pub fn delete(&mut self, key: &str) -> Result<(), StoreError> {
        let at = named(key)?;
        match self.done(key, self.storage.objects().delete(&at)) {
            Err(StoreError::Missing(_)) => Ok(()),
            gone => gone,
        }
    }

    /// Gives up what whoever began to bring it in parts never ended. Nobody may be bringing
    /// anything whose name begins so. Returns how many there were.
    pub fn abort_begun(&mut self, prefix: &str) -> Result<usize, StoreError> {
        self.transport.begin();
        self.runtime.block_on(self.storage.abort_begun(prefix))
    }

    /// No object is left, and nobody brings another one.
    pub fn cleared(&mut self) {
        self.storage.cleared();
    }
}

/// A name as the crate below wants it.
fn named(key: &str) -> Result<Key, StoreError> {
    let unclear = |e: object_store::path::Error| {
        let (code, message) = (String::from("unclear name"), e.to_string());
        StoreError::Refused { status: 400, code, message }
    };
    Key::parse(key).map_err(unclear)
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
