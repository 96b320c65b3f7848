//! One file on its way to an object store, or from there. The controller and the nodes use the
//! same: what one has brought the other finds.
//!
//! Kept true: what is there already is not sent again; what is fetched is held against its hash,
//! and has its name only if that holds.

use super::SecondLevelError;
use crate::image_files;
use eyrie_control::StoredFile;
use eyrie_image::create_private;
use eyrie_objects::{Access, Object, RateLimit, Store, StoreError, StoreUrl};
use eyrie_state::home;
use eyrie_vault::disk;
use eyrie_vault::seal::Key;
use eyrie_vault::stream::{self, OpenError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How the names of what lists name begin.
pub(super) const DATA: &str = "data/";
const READ_BYTES: usize = 1 << 20;
/// The object by which a store is known: under the same address there may be another elsewhere.
pub(super) const PROBE: &str = "probe";
/// How the names of files begin that are there for a moment.
const SEALED: &str = ".sealed-";

/// What is in a place already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct There {
    /// Names of objects.
    pub(super) objects: BTreeSet<String>,
    /// If all of it is encrypted: which object has a file of the newest state, by name and hash.
    pub(super) named: BTreeMap<(String, String), String>,
    /// What the object by which a store is known has here.
    pub(super) probe: Option<Vec<u8>>,
}

impl There {
    /// What of it may be of images of these ranks.
    pub fn of_ranks(&self, wanted: impl Fn(u32) -> bool) -> There {
        let images = format!("{}/", home::IMAGES);
        let is_wanted =
            |name: &str| image_files::parse(name).is_some_and(|named| wanted(named.rank));
        let named = self
            .named
            .iter()
            .filter(|((name, _), _)| name.strip_prefix(&images).is_some_and(is_wanted));
        let named: BTreeMap<_, _> = named.map(|(k, v)| (k.clone(), v.clone())).collect();
        let prefix = format!("{DATA}{}.", home::IMAGES);
        let plain = |object: &str| {
            let name = object.strip_prefix(&prefix).and_then(|rest| rest.rsplit_once('.'));
            name.is_some_and(|(name, _)| is_wanted(name))
        };
        let sealed: BTreeSet<&String> = named.values().collect();
        let objects = self.objects.iter().filter(|o| plain(o) || sealed.contains(o));
        There { objects: objects.cloned().collect(), named, probe: self.probe.clone() }
    }

    /// Whether an object is there; for how long it is kept is another matter.
    fn has(&self, object: &str) -> bool {
        self.objects.contains(object)
    }
}

/// The way of files to and from the states of one job.
pub struct Carrier {
    pub(super) place: StoreUrl,
    pub(super) store: Store,
    /// If all of it is encrypted.
    pub(super) key: Option<Key>,
}

impl Carrier {
    pub fn with(
        place: StoreUrl,
        access: Access,
        pace: RateLimit,
        key: Option<Key>,
    ) -> Result<Carrier, StoreError> {
        let store = Store::with(&place, access, pace)?;
        Ok(Carrier { place, store, key })
    }

    /// Whether the store answers here.
    pub fn reach(&mut self) -> Result<(), StoreError> {
        self.store.reach(&self.place.key(""))
    }

    /// An error unless this is the store of which that was found.
    pub fn is_that(&mut self, there: &There) -> Result<(), SecondLevelError> {
        let Some(probe) = &there.probe else { return Ok(()) };
        match self.store.get(&self.place.key(PROBE)) {
            Ok(found) if found == *probe => Ok(()),
            Ok(_) | Err(StoreError::Missing(_)) => {
                Err(SecondLevelError::Another(self.place.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    pub fn heed(&mut self, given_up: Arc<AtomicBool>) {
        self.store.heed(given_up);
    }

    /// Brings a file that is called `name` in the job's folder. Returns how many bytes were sent.
    pub fn bring(
        &mut self,
        name: &str,
        path: &Path,
        there: &There,
    ) -> Result<(StoredFile, u64), SecondLevelError> {
        self.store.still_wanted()?;
        let failed = |e| SecondLevelError::File(path.to_path_buf(), e);
        let (hash, bytes) = hash(path).map_err(failed)?;
        let object = match (&self.key, there.named.get(&(name.to_string(), hash.clone()))) {
            (None, _) => format!("{DATA}{}.{hash}", name.replace('/', ".")),
            (Some(_), Some(object)) => object.clone(),
            // What it is called, and a hash of it, would tell something of it.
            (Some(_), None) => {
                let random: u128 = u128::from_le_bytes(disk::random().map_err(failed)?);
                format!("{DATA}{random:032x}")
            }
        };
        let sent = if there.has(&object) { 0 } else { self.send(&object, path)? };
        Ok((StoredFile { name: name.to_string(), object, bytes, hash }, sent))
    }

    fn send(&mut self, object: &str, path: &Path) -> Result<u64, SecondLevelError> {
        let to = self.place.key(object);
        let Some(key) = &self.key else { return Ok(self.store.put_file(&to, path)?) };
        let sealed = Scratch::beside(path);
        let seal = || -> io::Result<()> {
            let (mut from, mut to) = (eyrie_image::open_plain(path)?, create_private(&sealed.0)?);
            stream::seal(key, object, &mut from, &mut to)
        };
        seal().map_err(|e| SecondLevelError::File(path.into(), e))?;
        Ok(self.store.put_file(&to, &sealed.0)?)
    }

    /// Fetches a file, and holds it against its hash.
    pub fn fetch(&mut self, file: &StoredFile, path: &Path) -> Result<(), SecondLevelError> {
        let unborn = Scratch::beside(path);
        self.get(&file.object, &unborn.0)?;
        let found = hash(&unborn.0).map_err(|e| SecondLevelError::File(unborn.0.clone(), e))?;
        if found != (file.hash.clone(), file.bytes) {
            let why = format!("object {} is damaged", file.object);
            return Err(SecondLevelError::Damaged(self.place.clone(), why));
        }
        fs::rename(&unborn.0, path).map_err(|e| SecondLevelError::File(path.into(), e))
    }

    fn get(&mut self, object: &str, path: &Path) -> Result<(), SecondLevelError> {
        let from = self.place.key(object);
        let Some(key) = &self.key else {
            return Ok(self.store.get_file(&from, path).map(drop)?);
        };
        let sealed = Scratch::beside(path);
        self.store.get_file(&from, &sealed.0)?;
        let open = || -> Result<(), OpenError> {
            let (mut from, mut to) = (File::open(&sealed.0)?, create_private(path)?);
            stream::open(key, object, &mut from, &mut to).map(drop)
        };
        Ok(open()?)
    }

    /// Whether all of these are in this list of objects, by their names here.
    pub(super) fn are_there(
        &self,
        files: &[StoredFile],
        there: &[Object],
    ) -> Result<(), SecondLevelError> {
        let there: BTreeMap<&str, u64> = there.iter().map(|o| (o.key.as_str(), o.bytes)).collect();
        for file in files {
            let bytes = there.get(self.place.key(&file.object).as_str()).copied();
            // A sealed file is longer.
            if bytes.is_none_or(|bytes| self.key.is_none() && bytes != file.bytes) {
                return Err(StoreError::Missing(file.object.clone()).into());
            }
        }
        Ok(())
    }
}

/// A file that is there for a moment; it goes with this.
struct Scratch(std::path::PathBuf);

impl Scratch {
    /// With a name that no other has.
    fn beside(path: &Path) -> Scratch {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Scratch(path.with_file_name(format!("{SEALED}{}-{count}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_told_of_its_own_ranks() {
        let named = [("images/rank-1.gen-3", "data/aa"), ("images/rank-2.gen-3", "data/bb")];
        let there = There {
            objects: ["data/aa", "data/bb", "data/images.rank-1.gen-3.log.0f", "data/saved.0e"]
                .map(String::from)
                .into(),
            named: named.map(|(n, o)| ((n.to_string(), String::from("0")), o.to_string())).into(),
            probe: None,
        };
        let its = there.of_ranks(|rank| rank == 1);
        let objects: Vec<&str> = its.objects.iter().map(String::as_str).collect();
        assert_eq!(objects, ["data/aa", "data/images.rank-1.gen-3.log.0f"]);
        assert_eq!(its.named.len(), 1);
        assert!(there.of_ranks(|_| false) == There::default());
    }
}
