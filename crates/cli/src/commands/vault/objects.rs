//! Objects of a vault in an object store (`s3://BUCKET/PREFIX` or the like): what
//! `eyrie vault export` brings there and `import` fetches. Names and bytes in
//! `docs/formats/second-level.md`.
//!
//! Kept true: nothing that is there is overwritten; the list is written last, and what has none is
//! not imported; what is fetched is held against its hash; files that are held here on the way have
//! no name, so nothing of them stays whatever ends this process.

use anyhow::{Context, anyhow};
use eyrie_objects::{Store, StoreUrl};
use eyrie_vault::seal::Key;
use eyrie_vault::{disk, stream};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What all objects are called in.
const LIST: &str = "export.json";
const FORMAT: u64 = 1;

/// The place that a path means, if it is none of a folder.
pub fn place(path: &Path) -> anyhow::Result<Option<StoreUrl>> {
    let text = path.to_str().filter(|text| StoreUrl::is_meant(text));
    Ok(text.map(StoreUrl::parse).transpose()?)
}

/// A file without a name, in the folder for such (`TMPDIR`).
pub fn nameless() -> anyhow::Result<File> {
    let random = u128::from_le_bytes(disk::random()?);
    let path = std::env::temp_dir().join(format!("eyrie-{random:032x}"));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// By which it can be opened once more.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn hash(file: &mut File) -> io::Result<(String, u64)> {
    file.rewind()?;
    let (sum, bytes) = stream::hash_of(file)?;
    file.rewind()?;
    Ok((format!("{:032x}", u128::from_le_bytes(sum)), bytes))
}

/// The place, and what is encrypted there.
pub struct Objects {
    place: StoreUrl,
    store: Store,
    key: Option<Key>,
    list: Vec<Value>,
}

/// An object that was fetched.
pub struct Fetched {
    pub node: u32,
    pub name: String,
    pub file: File,
}

impl Objects {
    pub fn open(place: StoreUrl, limit: Option<u64>, key: Option<Key>) -> anyhow::Result<Objects> {
        let store = Store::open(&place, limit).with_context(|| place.to_string())?;
        Ok(Objects { place, store, key, list: Vec::new() })
    }

    /// Refuses a place that has something.
    pub fn must_be_empty(&mut self) -> anyhow::Result<()> {
        let all = self.store.list(&self.place.key("")).with_context(|| self.place.to_string())?;
        match all.first() {
            Some(object) => Err(anyhow!("{} has {} already", self.place, object.key)),
            None => Ok(()),
        }
    }

    /// Brings an object. Returns its length.
    pub fn bring(&mut self, node: u32, name: &str, mut file: File) -> anyhow::Result<u64> {
        let (hash, bytes) = hash(&mut file)?;
        let object = format!("node-{node}/{name}");
        let sealed = match &self.key {
            Some(key) => {
                let mut sealed = nameless()?;
                stream::seal(key, &object, &mut file, &mut sealed)?;
                sealed
            }
            None => file,
        };
        let to = self.place.key(&object);
        let brought = self.store.put_file(&to, &path_of(&sealed));
        brought.with_context(|| format!("cannot bring {object} to {}", self.place))?;
        self.list.push(json!({"node": node, "name": name, "bytes": bytes, "hash": hash}));
        Ok(bytes)
    }

    /// All is there.
    pub fn finish(&mut self, generation: u64) -> anyhow::Result<()> {
        let all = json!({"format": FORMAT, "generation": generation, "objects": self.list});
        let mut text = serde_json::to_vec_pretty(&all)?;
        if let Some(key) = &self.key {
            let plain = std::mem::take(&mut text);
            stream::seal(key, LIST, &mut &plain[..], &mut text)?;
        }
        self.store.put(&self.place.key(LIST), &text).with_context(|| self.place.to_string())
    }

    fn list(&mut self) -> anyhow::Result<Vec<(u32, String, u64, String)>> {
        let mut text = self.store.get(&self.place.key(LIST)).with_context(|| {
            format!("{} has no whole export of a vault (no {LIST})", self.place)
        })?;
        match &self.key {
            Some(key) => {
                let sealed = std::mem::take(&mut text);
                stream::open(key, LIST, &mut &sealed[..], &mut text)?;
            }
            None if stream::is_sealed(&text) => {
                return Err(anyhow!("{} is encrypted: give its key with --seal", self.place));
            }
            None => {}
        }
        let all: Value = serde_json::from_slice(&text)?;
        let entry = |entry: &Value| {
            let node = u32::try_from(entry["node"].as_u64()?).ok()?;
            let (name, hash) = (entry["name"].as_str()?, entry["hash"].as_str()?);
            Some((node, name.to_string(), entry["bytes"].as_u64()?, hash.to_string()))
        };
        let entries = all["objects"].as_array().filter(|_| all["format"] == FORMAT);
        let entries = entries.and_then(|all| all.iter().map(entry).collect::<Option<Vec<_>>>());
        entries.ok_or_else(|| anyhow!("{LIST} in {} is no list of objects", self.place))
    }

    /// Fetches all objects.
    pub fn fetch(&mut self) -> anyhow::Result<Vec<Fetched>> {
        let mut all = Vec::new();
        for (node, name, bytes, known) in self.list()? {
            let object = format!("node-{node}/{name}");
            let failed = || format!("cannot fetch {object} from {}", self.place);
            let mut file = nameless()?;
            let from = self.place.key(&object);
            self.store.get_file(&from, &path_of(&file)).with_context(failed)?;
            if let Some(key) = &self.key {
                let mut sealed = std::mem::replace(&mut file, nameless()?);
                stream::open(key, &object, &mut sealed, &mut file).with_context(failed)?;
            }
            if hash(&mut file).with_context(failed)? != (known, bytes) {
                return Err(anyhow!("{object} in {} is damaged", self.place));
            }
            all.push(Fetched { node, name, file });
        }
        all.sort_by(|a, b| (a.node, &a.name).cmp(&(b.node, &b.name)));
        Ok(all)
    }
}
