//! States of jobs in an object store (`--save-to s3://BUCKET/PREFIX`, `gs://`, `az://`,
//! `file://`), each of which a job can be restarted from. Names and bytes in
//! `docs/formats/second-level.md`.
//!
//! Kept true: a state is there when its list is, which is written last; the one before stays until
//! then; what no list names is removed; what is fetched is held against its hash.

mod carrier;
mod ways;

pub use carrier::{Carrier, There};
pub use ways::{FetchOrder, Redirects, Shared, StoreWay, Ways};

use carrier::{DATA, PROBE};
use eyrie_control::StoredFile;
use eyrie_objects::{Access, Object, RateLimit, StoreError, StoreUrl};
use eyrie_state::home;
use eyrie_vault::disk;
use eyrie_vault::seal::Key;
use eyrie_vault::stream::{self, OpenError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Version of lists.
const FORMAT: u32 = 1;
/// How the names of lists begin.
const LISTS: &str = "state-";
/// How often all that is there is looked for, to remove it.
const SWEEPS: usize = 3;
/// Lists that are kept.
const KEPT: usize = 2;

#[derive(Debug, thiserror::Error)]
pub enum SecondLevelError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("{0} has no state of a job")]
    Nothing(StoreUrl),
    #[error("no state in {0} is whole: {1}")]
    Damaged(StoreUrl, String),
    #[error("{0} is encrypted: give its key with --save-key")]
    Encrypted(StoreUrl),
    #[error("{0} is in another store here than where the controller is")]
    Another(StoreUrl),
    #[error(transparent)]
    Seal(#[from] OpenError),
}

/// What a state consists of.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    format: u32,
    files: Vec<StoredFile>,
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

impl SecondLevelError {
    /// Whether a state cannot be had however often it is tried. All else may pass, and an older
    /// state is no answer to it.
    fn is_damage(&self) -> bool {
        match self {
            SecondLevelError::Damaged(..) | SecondLevelError::Store(StoreError::Missing(_)) => true,
            SecondLevelError::Seal(error) => !matches!(error, OpenError::Io(_)),
            _ => false,
        }
    }
}

/// The states of one job.
pub struct SecondLevel {
    carrier: Carrier,
}

impl SecondLevel {
    /// `place`: of this job alone.
    pub fn open(
        place: StoreUrl,
        bytes_per_s: Option<u64>,
        key: Option<Key>,
    ) -> Result<SecondLevel, StoreError> {
        let access = Access::from_env(&place)?;
        let carrier = Carrier::with(place, access, RateLimit::new(bytes_per_s), key)?;
        Ok(SecondLevel { carrier })
    }

    /// Once this, too, is true nothing is brought any more.
    pub fn heed(&mut self, given_up: Arc<AtomicBool>) {
        self.carrier.heed(given_up);
    }

    /// Whether it can be spoken to: for an error before a job begins.
    pub fn check(&mut self) -> Result<(), StoreError> {
        let key = self.carrier.place.key(".eyrie-check");
        self.carrier.store.put(&key, b"")?;
        self.carrier.store.delete(&key)
    }

    /// Looks what is there.
    pub fn survey(&mut self) -> Result<There, SecondLevelError> {
        let all = self.objects()?;
        let lists = self.lists(&all);
        let list = match (&self.carrier.key, lists.last()) {
            (Some(_), Some((_, name))) => self.read(&name.clone()).ok(),
            _ => None,
        };
        let files = list.into_iter().flat_map(|list| list.files);
        let named = files.map(|file| ((file.name, file.hash), file.object)).collect();
        let objects = all.into_iter().filter(|name| name.starts_with(DATA)).collect();
        Ok(There { objects, named, probe: None })
    }

    /// The same for nodes, which then know the store by an object that has this.
    pub fn show(&mut self) -> Result<There, SecondLevelError> {
        let place = &self.carrier.place;
        let failed = |e| SecondLevelError::File(PathBuf::from(PROBE), e);
        let random: [u8; 16] = disk::random().map_err(failed)?;
        let probe = match &self.carrier.key {
            None => random.to_vec(),
            Some(key) => {
                let mut sealed = Vec::new();
                stream::seal(key, PROBE, &mut &random[..], &mut sealed).map_err(failed)?;
                sealed
            }
        };
        self.carrier.store.put(&place.key(PROBE), &probe)?;
        Ok(There { probe: Some(probe), ..self.survey()? })
    }

    /// An error unless all of these are there.
    pub fn has(&mut self, files: &[StoredFile]) -> Result<(), SecondLevelError> {
        let all = self.list()?;
        self.carrier.are_there(files, &all)
    }

    /// Brings the files of a folder as one state, with those that others have brought; what is
    /// there already is not sent again.
    pub fn bring(
        &mut self,
        folder: &Path,
        brought_by_others: Vec<StoredFile>,
    ) -> Result<Brought, SecondLevelError> {
        let there = self.survey()?;
        let mut files = brought_by_others;
        let bytes = files.iter().map(|file| file.bytes).sum();
        let mut brought = Brought { bytes, sent_bytes: 0 };
        for name in names(folder)? {
            let (file, sent) = self.carrier.bring(&name, &folder.join(&name), &there)?;
            brought.sent_bytes += sent;
            brought.bytes += file.bytes;
            files.push(file);
        }
        eyrie_process::stop_points::reach("store-1");
        // Whoever brought it has said so; a list that names what is not there would be no state.
        let all = self.list()?;
        self.carrier.are_there(&files, &all)?;
        let lists = self.lists(&self.names_here(all));
        let next = lists.last().map_or(1, |(number, _)| number + 1);
        let list = List { format: FORMAT, files };
        let text = serde_json::to_vec_pretty(&list).unwrap_or_default();
        let name = format!("{LISTS}{next:010}");
        let text = match &self.carrier.key {
            None => text,
            Some(key) => {
                let mut sealed = Vec::new();
                let done = stream::seal(key, &name, &mut &text[..], &mut sealed);
                done.map_err(|e| SecondLevelError::File(folder.into(), e))?;
                sealed
            }
        };
        self.carrier.store.still_wanted()?;
        self.carrier.store.put(&self.carrier.place.key(&name), &text)?;
        eyrie_process::stop_points::reach("store-2");
        Ok(brought)
    }

    /// Removes old lists, and what none names any more, also what others began to bring and did
    /// not end: nobody may be bringing anything.
    pub fn tidy(&mut self) -> Result<(), SecondLevelError> {
        let all = self.objects()?;
        let lists = self.lists(&all);
        let (old, kept) = lists.split_at(lists.len().saturating_sub(KEPT));
        let mut needed = BTreeSet::new();
        for (_, name) in kept {
            needed.extend(self.read(name)?.files.into_iter().map(|part| part.object));
        }
        for (_, name) in old {
            self.delete(name)?;
        }
        let data = all.iter().filter(|name| name.starts_with(DATA));
        for name in data.filter(|name| !needed.contains(*name)) {
            self.delete(name)?;
        }
        self.abort_begun()
    }

    fn abort_begun(&mut self) -> Result<(), SecondLevelError> {
        let begun = self.carrier.place.key(DATA);
        self.carrier.store.abort_begun(&begun)?;
        Ok(())
    }

    fn delete(&mut self, name: &str) -> Result<(), StoreError> {
        self.carrier.store.delete(&self.carrier.place.key(name))
    }

    /// Fetches the newest state that is whole into a folder that is empty.
    pub fn fetch(&mut self, folder: &Path) -> Result<Fetched, SecondLevelError> {
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
            Some(why) => SecondLevelError::Damaged(self.carrier.place.clone(), why),
            None => SecondLevelError::Nothing(self.carrier.place.clone()),
        })
    }

    fn fetch_one(&mut self, list: &str, folder: &Path) -> Result<u64, SecondLevelError> {
        let images = folder.join(home::IMAGES);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&images);
        made.map_err(|e| SecondLevelError::File(images, e))?;
        let mut all = 0;
        for file in self.read(list)?.files {
            let inside = Path::new(&file.name)
                .components()
                .all(|c| matches!(c, std::path::Component::Normal(_)));
            if !inside {
                let why = format!("it names {}", file.name);
                return Err(SecondLevelError::Damaged(self.carrier.place.clone(), why));
            }
            self.carrier.fetch(&file, &folder.join(&file.name))?;
            all += file.bytes;
        }
        Ok(all)
    }

    /// Removes all states of the job.
    pub fn clear(&mut self) -> Result<(), SecondLevelError> {
        // What was still on its way comes behind the first look.
        for _ in 0..SWEEPS {
            let mut all = self.objects()?;
            if all.is_empty() {
                break;
            }
            // Lists first: no list names what is not there.
            all.sort_by_key(|name| !name.starts_with(LISTS));
            for name in all {
                self.delete(&name)?;
            }
        }
        self.abort_begun()?;
        self.carrier.store.cleared();
        Ok(())
    }

    fn read(&mut self, list: &str) -> Result<List, SecondLevelError> {
        let Carrier { place, store, key } = &mut self.carrier;
        let mut bytes = store.get(&place.key(list))?;
        match key {
            Some(key) => {
                let sealed = std::mem::take(&mut bytes);
                stream::open(key, list, &mut &sealed[..], &mut bytes)?;
            }
            None if stream::is_sealed(&bytes) => {
                return Err(SecondLevelError::Encrypted(place.clone()));
            }
            None => {}
        }
        let damaged = || SecondLevelError::Damaged(place.clone(), format!("{list} is no list"));
        let list: List = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
        if list.format == FORMAT { Ok(list) } else { Err(damaged()) }
    }

    /// All objects, with their whole names.
    fn list(&mut self) -> Result<Vec<Object>, StoreError> {
        self.carrier.store.list(&self.carrier.place.key(""))
    }

    /// What objects are called here.
    fn names_here(&self, all: Vec<Object>) -> Vec<String> {
        let own = self.carrier.place.key("");
        all.into_iter().filter_map(|o| Some(o.key.strip_prefix(&own)?.to_string())).collect()
    }

    fn objects(&mut self) -> Result<Vec<String>, SecondLevelError> {
        let all = self.list()?;
        Ok(self.names_here(all))
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
fn names(folder: &Path) -> Result<Vec<String>, SecondLevelError> {
    let mut found = Vec::new();
    let images = format!("{}/", home::IMAGES);
    for (below, prefix) in [(folder.join(home::IMAGES), images.as_str()), (folder.into(), "")] {
        let list = fs::read_dir(&below).map_err(|e| SecondLevelError::File(below.clone(), e))?;
        add_names(list, &below, prefix, &mut found)?;
    }
    Ok(found)
}

/// A state of which a file was left out as its folder could not be read would be none.
fn add_names(
    list: impl Iterator<Item = io::Result<fs::DirEntry>>,
    below: &Path,
    prefix: &str,
    to: &mut Vec<String>,
) -> Result<(), SecondLevelError> {
    for entry in list {
        let entry = entry.map_err(|e| SecondLevelError::File(below.into(), e))?;
        let file = entry.path();
        let is_file = match fs::metadata(&file) {
            Ok(meta) => meta.is_file(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(SecondLevelError::File(file, error)),
        };
        if let Some(name) = entry.file_name().to_str().filter(|_| is_file) {
            to.push(format!("{prefix}{name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_cannot_be_read_to_its_end_is_no_state() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(home::IMAGES)).unwrap();
        for name in ["job", "images/rank-0.gen-1"] {
            fs::write(folder.path().join(name), b"it").unwrap();
        }
        assert_eq!(names(folder.path()).unwrap(), ["images/rank-0.gen-1", "job"]);
        let broken = fs::read_dir(folder.path()).unwrap().chain([Err(io::ErrorKind::Other.into())]);
        let found = add_names(broken, folder.path(), "", &mut Vec::new());
        assert!(matches!(found, Err(SecondLevelError::File(..))), "{found:?}");
    }
}
