//! The ways past the controller that files of images have: nodes bring and fetch them by
//! themselves, and are told here with which keys.
//!
//! Kept true: keys of a store go to members of the job only, sealed with a key that is made of the
//! job's, so that they are encrypted where connections are not (without `--tls`); they are on no
//! disk and on no command line.

use super::{Carrier, SecondLevelError, There};
use eyrie_control::auth::Key as JobKey;
use eyrie_control::{Stored, StoredFile};
use eyrie_objects::{Access, RateLimit, StoreUrl};
use eyrie_state::home;
use eyrie_vault::seal::Key;
use eyrie_vault::stream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What the key is for that is made of the job's, and the name that words are sealed under.
const PURPOSE: &str = "eyrie 2026 ways to where images are kept";
const NAME: &str = "ways";

/// Why images do not come from, or go to, an object store.
#[derive(Debug, thiserror::Error)]
pub enum WayError {
    #[error(transparent)]
    SecondLevel(#[from] SecondLevelError),
    #[error("'{0}' is no place for objects")]
    Place(String),
    #[error("its key: {0}")]
    Key(io::Error),
    #[error("what was said of the way to it cannot be read")]
    Unreadable,
}

/// The way to an object store.
#[derive(Clone, Serialize, Deserialize)]
pub struct StoreWay {
    /// `s3://BUCKET/PREFIX/JOB`, or the like.
    pub place: String,
    pub access: Access,
    /// If all of it is encrypted.
    pub key: Option<[u8; 32]>,
}

/// The way into the job's folder, for who sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// That of images.
    pub folder: Vec<u8>,
    /// A file in it, and what that has: who finds it there sees the same folder.
    pub probe: String,
    pub content: [u8; 16],
}

/// What a node is told before it brings images.
#[derive(Serialize, Deserialize)]
pub struct Ways {
    pub store: Option<StoreWay>,
    /// Bytes a second at most; 0: as fast as can be.
    pub rate_bytes: u64,
    /// What is in the store of its ranks.
    pub there: There,
    pub folder: Option<Shared>,
}

/// What a node is told that asks for a file which is in an object store.
#[derive(Serialize, Deserialize)]
pub struct FetchOrder {
    pub way: StoreWay,
    pub file: StoredFile,
}

impl WayError {
    /// Whether the same may do later: a store that is away, has too much to do or does not take the
    /// keys, and a disk that is full, say nothing against what is in it.
    pub fn may_pass(&self) -> bool {
        match self {
            WayError::SecondLevel(error) => !error.is_damage(),
            WayError::Key(_) => true,
            WayError::Place(_) | WayError::Unreadable => false,
        }
    }
}

fn sealing_key(job: &JobKey) -> Option<Key> {
    Key::new(&job.derived(PURPOSE))
}

/// Words that members of the job can read.
fn seal<T: Serialize>(job: &JobKey, words: &T) -> Result<Vec<u8>, WayError> {
    let plain = postcard::to_stdvec(words).map_err(|_| WayError::Unreadable)?;
    let key = sealing_key(job).ok_or(WayError::Unreadable)?;
    let mut sealed = Vec::new();
    stream::seal(&key, NAME, &mut &plain[..], &mut sealed).map_err(WayError::Key)?;
    Ok(sealed)
}

fn open<T: DeserializeOwned>(job: &JobKey, sealed: &[u8]) -> Result<T, WayError> {
    let key = sealing_key(job).ok_or(WayError::Unreadable)?;
    let mut plain = Vec::new();
    let opened = stream::open(&key, NAME, &mut &sealed[..], &mut plain);
    opened.map_err(|_| WayError::Unreadable)?;
    postcard::from_bytes(&plain).map_err(|_| WayError::Unreadable)
}

impl Ways {
    pub fn sealed(&self, job: &JobKey) -> Result<Vec<u8>, WayError> {
        seal(job, self)
    }

    pub fn open(job: &JobKey, sealed: &[u8]) -> Result<Ways, WayError> {
        open(job, sealed)
    }
}

impl StoreWay {
    /// With the keys of the environment, and the key that all is encrypted with, from its file.
    pub fn new(place: &str, key: Option<&str>) -> Result<StoreWay, WayError> {
        let at = StoreUrl::parse(place).map_err(|_| WayError::Place(place.to_string()))?;
        let access = Access::from_env(&at).map_err(SecondLevelError::Store)?;
        let key = key.map(|path| Key::read(Path::new(path))).transpose().map_err(WayError::Key)?;
        let key = key.map(|key| *key.bytes());
        Ok(StoreWay { place: place.to_string(), access, key })
    }

    pub fn carrier(&self, pace: RateLimit) -> Result<Carrier, WayError> {
        let place =
            StoreUrl::parse(&self.place).map_err(|_| WayError::Place(self.place.clone()))?;
        let key = self.key.as_ref().and_then(|key| Key::new(key));
        let carrier = Carrier::with(place, self.access.clone(), pace, key);
        Ok(carrier.map_err(SecondLevelError::Store)?)
    }
}

impl FetchOrder {
    pub fn open(job: &JobKey, sealed: &[u8]) -> Result<FetchOrder, WayError> {
        open(job, sealed)
    }

    /// Fetches the file into a folder of images, if the store answers at once.
    pub fn try_out(&self, folder: &Path) -> Result<(), WayError> {
        let mut carrier = self.way.carrier(RateLimit::new(None))?;
        carrier.reach().map_err(SecondLevelError::Store)?;
        self.carry_out(folder)
    }

    /// Fetches the file into a folder of images.
    pub fn carry_out(&self, folder: &Path) -> Result<(), WayError> {
        let images = format!("{}/", home::IMAGES);
        let name = self.file.name.strip_prefix(&images).filter(|n| crate::image_files::is_name(n));
        let name = name.ok_or(WayError::Unreadable)?;
        let mut carrier = self.way.carrier(RateLimit::new(None))?;
        Ok(carrier.fetch(&self.file, &folder.join(name))?)
    }
}

/// Files that an archive has in an object store and not in its folder.
#[derive(Default)]
pub struct Redirects(Mutex<Option<Known>>);

struct Known {
    place: String,
    /// The file with the key that all is encrypted with.
    key: Option<String>,
    /// By their names in the folder of images.
    files: BTreeMap<String, StoredFile>,
}

impl Redirects {
    /// From now on these are there.
    pub fn set(&self, stored: Option<&Stored>, key: Option<&str>) {
        let images = format!("{}/", home::IMAGES);
        let named = |f: &StoredFile| Some((f.name.strip_prefix(&images)?.to_string(), f.clone()));
        let known = stored.map(|stored| Known {
            place: stored.place.clone(),
            key: key.map(String::from),
            files: stored.files.iter().filter_map(named).collect(),
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    fn order(&self, name: &str) -> Option<Result<FetchOrder, WayError>> {
        let (place, key, file) = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = known.as_ref()?;
            (known.place.clone(), known.key.clone(), known.files.get(name)?.clone())
        };
        let way = StoreWay::new(&place, key.as_deref());
        Some(way.map(|way| FetchOrder { way, file }))
    }

    /// What to tell who asks for a file; `None`: it is not there.
    pub fn tell(&self, job: &JobKey, name: &str) -> Option<Result<Vec<u8>, WayError>> {
        Some(self.order(name)?.and_then(|order| seal(job, &order)))
    }

    /// Fetches a file for who does not reach the store.
    pub fn fetch(&self, name: &str, folder: &Path) -> Result<(), WayError> {
        match self.order(name) {
            Some(order) => order?.carry_out(folder),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_job_reads_what_is_said_of_ways() {
        let (job, other) = (JobKey::new().unwrap(), JobKey::new().unwrap());
        let folder = Shared { folder: b"/x".to_vec(), probe: ".p".into(), content: [7; 16] };
        let there = There::default();
        let ways = Ways { store: None, rate_bytes: 9, there, folder: Some(folder.clone()) };
        let sealed = ways.sealed(&job).unwrap();
        let again = Ways::open(&job, &sealed).unwrap();
        assert_eq!((again.rate_bytes, again.folder), (9, Some(folder)));
        assert!(Ways::open(&other, &sealed).is_err());
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(Ways::open(&job, &damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_may_pass_is_no_damage() {
        use eyrie_objects::StoreError;
        let refused = |status| {
            let (code, message) = (String::from("SlowDown"), String::new());
            StoreError::Refused { status, code, message }
        };
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let pass = [
            SecondLevelError::Store(refused(503)),
            SecondLevelError::Store(refused(429)),
            SecondLevelError::Store(StoreError::NoKeys("AWS_ACCESS_KEY_ID")),
            SecondLevelError::Store(StoreError::Denied(String::new(), String::new())),
            SecondLevelError::Store(StoreError::Unreachable(String::new(), String::new())),
            SecondLevelError::File("images/rank-0.gen-1".into(), full),
        ];
        for error in pass {
            assert!(WayError::from(error).may_pass());
        }
        assert!(WayError::Key(io::ErrorKind::NotFound.into()).may_pass());
        let gone = SecondLevelError::Store(StoreError::Missing(String::from("data/x")));
        assert!(!WayError::from(gone).may_pass() && !WayError::Unreadable.may_pass());
    }

    #[test]
    fn an_order_names_files_of_images_only() {
        let access = r#"{"options":{"aws_access_key_id":"k","aws_secret_access_key":"s"}}"#;
        let access: Access = serde_json::from_str(access).unwrap();
        let folder = tempfile::tempdir().unwrap();
        for name in ["saved", "images/../saved", "images/x", "rank-0.gen-1"] {
            let file = StoredFile {
                name: name.into(),
                object: "data/x".into(),
                bytes: 0,
                hash: String::new(),
            };
            let way = StoreWay { place: "s3://b/p".into(), access: access.clone(), key: None };
            let done = FetchOrder { way, file }.carry_out(folder.path());
            assert!(matches!(done, Err(WayError::Unreadable)), "{name}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
