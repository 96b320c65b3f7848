//! States of jobs in an object store (`--save-to s3://BUCKET/PREFIX`), each of which a job can be
//! restarted from. Names and bytes in `docs/formats/depot.md`.
//!
//! Kept true: a state is there when its list is, which is written last; the one before stays until
//! then; what no list names is removed; what is fetched is held against its hash.

use crate::home;
use eyrie_objects::{Place, Store, StoreError};
use eyrie_vault::disk;
use eyrie_vault::seal::Key;
use eyrie_vault::stream::{self, OpenError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Version of lists.
const FORMAT: u32 = 1;
/// How the names of lists, and of what they name, begin.
const LISTS: &str = "state-";
const DATA: &str = "data/";
/// Lists that are kept.
const KEPT: usize = 2;
const READ_BYTES: usize = 1 << 20;
/// What is encrypted lies here, in the folder that it comes from or goes to, for a moment.
const SEALED: &str = ".sealed";

#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("{0} has no state of a job")]
    Nothing(Place),
    #[error("no state in {0} is whole: {1}")]
    Damaged(Place, String),
    #[error("{0} is encrypted: give its key with --save-key")]
    Encrypted(Place),
    #[error(transparent)]
    Seal(#[from] OpenError),
}

/// What a state consists of.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    format: u32,
    files: Vec<Part>,
}

/// One file: its name in the job's folder, and the object that holds it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Part {
    name: String,
    object: String,
    bytes: u64,
    hash: String,
}

/// What was brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Brought {
    pub bytes: u64,
    /// Of these had to be sent.
    pub sent_bytes: u64,
}

/// What was fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fetched {
    pub bytes: u64,
    /// The list of that state, and why each newer one was not taken.
    pub list: String,
    pub damaged: Vec<String>,
}

impl DepotError {
    /// Whether a state cannot be had however often it is tried. All else may pass, and an older
    /// state is no answer to it.
    fn is_damage(&self) -> bool {
        match self {
            DepotError::Damaged(..) | DepotError::Store(StoreError::Missing(_)) => true,
            DepotError::Seal(error) => !matches!(error, OpenError::Io(_)),
            _ => false,
        }
    }
}

/// The states of one job.
pub struct Depot {
    place: Place,
    store: Store,
    /// If all of it is encrypted.
    key: Option<Key>,
}

impl Depot {
    /// `place`: of this job alone.
    pub fn open(
        place: Place,
        bytes_per_s: Option<u64>,
        key: Option<Key>,
    ) -> Result<Depot, StoreError> {
        let store = Store::open(&place, bytes_per_s)?;
        Ok(Depot { place, store, key })
    }

    /// Once this is true nothing is brought any more.
    pub fn heed(&mut self, given_up: Arc<AtomicBool>) {
        self.store.heed(given_up);
    }

    /// Whether it can be spoken to: for an error before a job begins.
    pub fn check(&mut self) -> Result<(), StoreError> {
        let key = self.place.key(".eyrie-check");
        self.store.put(&key, b"")?;
        self.store.delete(&key)
    }

    /// Brings the files of a folder as one state; what is there already is not sent again.
    pub fn bring(&mut self, folder: &Path) -> Result<Brought, DepotError> {
        let all = self.objects()?;
        let lists = self.lists(&all);
        let there: BTreeSet<&str> = all.iter().map(String::as_str).collect();
        let known = self.known(&lists);
        let mut brought = Brought::default();
        let mut files = Vec::new();
        for name in names(folder)? {
            self.store.still_wanted()?;
            let path = folder.join(&name);
            let failed = |e| DepotError::File(path.clone(), e);
            let (hash, bytes) = hash(&path).map_err(failed)?;
            let object = match (&self.key, known.get(&(name.clone(), hash.clone()))) {
                (None, _) => format!("{DATA}{}.{hash}", name.replace('/', ".")),
                (Some(_), Some(object)) => object.clone(),
                // What it is called, and a hash of it, would tell something of it.
                (Some(_), None) => {
                    let random: u128 = u128::from_le_bytes(disk::random().map_err(failed)?);
                    format!("{DATA}{random:032x}")
                }
            };
            if !there.contains(object.as_str()) {
                brought.sent_bytes += self.send(&object, &path, folder)?;
            }
            brought.bytes += bytes;
            files.push(Part { name, object, bytes, hash });
        }
        let next = lists.last().map_or(1, |(number, _)| number + 1);
        let list = List { format: FORMAT, files };
        let text = serde_json::to_vec_pretty(&list).unwrap_or_default();
        let name = format!("{LISTS}{next:010}");
        let text = match &self.key {
            None => text,
            Some(key) => {
                let mut sealed = Vec::new();
                let done = stream::seal(key, &name, &mut &text[..], &mut sealed);
                done.map_err(|e| DepotError::File(folder.into(), e))?;
                sealed
            }
        };
        self.store.put(&self.place.key(&name), &text)?;
        // A failure here costs room only, until the next time.
        let _ = self.tidy();
        Ok(brought)
    }

    /// With a key: which object has a file of the newest state, by its name and hash.
    fn known(&mut self, lists: &[(u64, String)]) -> BTreeMap<(String, String), String> {
        let list = match (&self.key, lists.last()) {
            (Some(_), Some((_, name))) => self.read(&name.clone()).ok(),
            _ => None,
        };
        let parts = list.into_iter().flat_map(|list| list.files);
        parts.map(|part| ((part.name, part.hash), part.object)).collect()
    }

    /// Brings a file. Returns how many bytes were sent.
    fn send(&mut self, object: &str, path: &Path, folder: &Path) -> Result<u64, DepotError> {
        let to = self.place.key(object);
        let Some(key) = &self.key else { return Ok(self.store.put_file(&to, path)?) };
        let sealed = folder.join(SEALED);
        let seal = || -> io::Result<()> {
            let (mut from, mut to) = (File::open(path)?, File::create(&sealed)?);
            stream::seal(key, object, &mut from, &mut to)
        };
        let done = seal().map_err(|e| DepotError::File(path.into(), e));
        let done = done.and_then(|()| Ok(self.store.put_file(&to, &sealed)?));
        let _ = fs::remove_file(&sealed);
        done
    }

    /// Fetches what was brought so.
    fn get(&mut self, object: &str, path: &Path, folder: &Path) -> Result<(), DepotError> {
        let from = self.place.key(object);
        let Some(key) = &self.key else {
            return Ok(self.store.get_file(&from, path).map(drop)?);
        };
        let sealed = folder.join(SEALED);
        let fetched = self.store.get_file(&from, &sealed);
        let open = || -> Result<(), OpenError> {
            let (mut from, mut to) = (File::open(&sealed)?, File::create(path)?);
            stream::open(key, object, &mut from, &mut to).map(drop)
        };
        let done = fetched.map_err(DepotError::from).and_then(|_| Ok(open()?));
        let _ = fs::remove_file(&sealed);
        done
    }

    /// Removes old lists, and what none names any more.
    fn tidy(&mut self) -> Result<(), DepotError> {
        let all = self.objects()?;
        let lists = self.lists(&all);
        let (old, kept) = lists.split_at(lists.len().saturating_sub(KEPT));
        let mut needed = BTreeSet::new();
        for (_, name) in kept {
            needed.extend(self.read(name)?.files.into_iter().map(|part| part.object));
        }
        for (_, name) in old {
            self.store.delete(&self.place.key(name))?;
        }
        let data = all.iter().filter(|name| name.starts_with(DATA));
        for name in data.filter(|name| !needed.contains(*name)) {
            self.store.delete(&self.place.key(name))?;
        }
        Ok(())
    }

    /// Fetches the newest state that is whole into a folder that is empty.
    pub fn fetch(&mut self, folder: &Path) -> Result<Fetched, DepotError> {
        let all = self.objects()?;
        let lists = self.lists(&all);
        let mut damaged = Vec::new();
        for (_, name) in lists.iter().rev() {
            match self.fetch_one(name, folder) {
                Ok(bytes) => return Ok(Fetched { bytes, list: name.clone(), damaged }),
                Err(error) if error.is_damage() => damaged.push(format!("{name}: {error}")),
                Err(error) => return Err(error),
            }
        }
        Err(match damaged.into_iter().next() {
            Some(why) => DepotError::Damaged(self.place.clone(), why),
            None => DepotError::Nothing(self.place.clone()),
        })
    }

    fn fetch_one(&mut self, list: &str, folder: &Path) -> Result<u64, DepotError> {
        let images = folder.join(home::IMAGES);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&images);
        made.map_err(|e| DepotError::File(images, e))?;
        let mut all = 0;
        for part in self.read(list)?.files {
            let inside = Path::new(&part.name)
                .components()
                .all(|c| matches!(c, std::path::Component::Normal(_)));
            let damaged = |why| DepotError::Damaged(self.place.clone(), why);
            if !inside {
                return Err(damaged(format!("it names {}", part.name)));
            }
            let path = folder.join(&part.name);
            self.get(&part.object, &path, folder)?;
            let found = hash(&path).map_err(|e| DepotError::File(path, e))?;
            if found != (part.hash, part.bytes) {
                return Err(DepotError::Damaged(
                    self.place.clone(),
                    format!("object {} is damaged", part.object),
                ));
            }
            all += part.bytes;
        }
        Ok(all)
    }

    /// Removes all states of the job.
    pub fn clear(&mut self) -> Result<(), DepotError> {
        let mut all = self.objects()?;
        // Lists first: no list names what is not there.
        all.sort_by_key(|name| !name.starts_with(LISTS));
        for name in all {
            self.store.delete(&self.place.key(&name))?;
        }
        Ok(())
    }

    fn read(&mut self, list: &str) -> Result<List, DepotError> {
        let mut bytes = self.store.get(&self.place.key(list))?;
        match &self.key {
            Some(key) => {
                let sealed = std::mem::take(&mut bytes);
                stream::open(key, list, &mut &sealed[..], &mut bytes)?;
            }
            None if stream::is_sealed(&bytes) => {
                return Err(DepotError::Encrypted(self.place.clone()));
            }
            None => {}
        }
        let damaged = || DepotError::Damaged(self.place.clone(), format!("{list} is no list"));
        let list: List = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        if list.format == FORMAT { Ok(list) } else { Err(damaged()) }
    }

    /// Names of all objects, as they are called here.
    fn objects(&mut self) -> Result<Vec<String>, DepotError> {
        let own = self.place.key("");
        let all = self.store.list(&own)?;
        Ok(all.into_iter().filter_map(|o| Some(o.key.strip_prefix(&own)?.to_string())).collect())
    }

    /// Lists, with their numbers, oldest first.
    fn lists(&self, all: &[String]) -> Vec<(u64, String)> {
        let number = |name: &String| Some((name.strip_prefix(LISTS)?.parse().ok()?, name.clone()));
        let mut lists: Vec<(u64, String)> = all.iter().filter_map(number).collect();
        lists.sort_unstable();
        lists
    }
}

/// Names of the files of a folder and of those in it; the one that says what the others are is
/// the last.
fn names(folder: &Path) -> Result<Vec<String>, DepotError> {
    let mut found = Vec::new();
    let images = format!("{}/", home::IMAGES);
    for (below, prefix) in [(folder.join(home::IMAGES), images.as_str()), (folder.into(), "")] {
        let list = fs::read_dir(&below).map_err(|e| DepotError::File(below.clone(), e))?;
        for entry in list.flatten().filter(|e| e.path().is_file()) {
            if let Some(name) = entry.file_name().to_str() {
                found.push(format!("{prefix}{name}"));
            }
        }
    }
    Ok(found)
}

/// Hash and length of a file.
fn hash(path: &Path) -> io::Result<(String, u64)> {
    let mut file = File::open(path)?;
    let mut state = xxhash_rust::xxh3::Xxh3::new();
    let (mut buffer, mut bytes) = (vec![0; READ_BYTES], 0);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok((format!("{:032x}", state.digest128()), bytes));
        }
        state.update(&buffer[..count]);
        bytes += count as u64;
    }
}
