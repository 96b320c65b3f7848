//! The second level: a folder, or objects in a store (S3, Google Cloud Storage, Azure), that
//! outlives the nodes.
//!
//! Kept true: a part is there whole or not at all; only what a process of this number brought is
//! removed; no connection is open between two calls, so an image of the process has none.

use crate::error::{RegionsError, file, note};
use crate::label::Label;
use crate::part::{self, create, publish, temporary};
use crate::store;
use eyrie_objects::{Access, RateLimit, Store, StoreError, StoreUrl};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Where it is, as an option says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Level {
    Folder(PathBuf),
    /// `s3://BUCKET/PREFIX` or the like: parts are at PREFIX/RANK/LABEL.
    Objects(StoreUrl),
}

impl Level {
    pub fn parse(text: &str) -> Result<Level, eyrie_objects::StoreUrlError> {
        match StoreUrl::is_meant(text) {
            true => StoreUrl::parse(text).map(|place| match place.folder() {
                Some(folder) => Level::Folder(folder),
                None => Level::Objects(place),
            }),
            false => Ok(Level::Folder(text.into())),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Folder(folder) => folder.display().fmt(f),
            Level::Objects(place) => place.fmt(f),
        }
    }
}

/// The same, with what it takes to get there.
#[derive(Debug, Clone)]
pub enum Second {
    Folder(PathBuf),
    Objects(StoreUrl, Access),
}

/// A part that is to be brought.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    At(&'a Path),
    Held(&'a [u8]),
}

/// What a process has in a store.
struct Own {
    store: Store,
    place: StoreUrl,
}

impl Own {
    fn failed(&self) -> impl FnOnce(StoreError) -> RegionsError {
        failed(&self.place)
    }

    fn key(&self, label: &Label) -> String {
        self.place.key(&label.to_string())
    }

    fn list(&mut self) -> Result<Vec<Label>, RegionsError> {
        let prefix = self.place.key("");
        let all = self.store.list(&prefix).map_err(self.failed())?;
        let name = |key: &str| Label::parse(key.strip_prefix(&prefix)?);
        Ok(all.iter().filter_map(|object| name(&object.key)).collect())
    }
}

fn failed(place: &StoreUrl) -> impl FnOnce(StoreError) -> RegionsError {
    move |error| RegionsError::Store { place: place.to_string(), error }
}

fn own(place: &StoreUrl, access: &Access, rank: u32) -> Result<Own, RegionsError> {
    let place = place.below(&rank.to_string());
    let store =
        Store::with(&place, access.clone(), RateLimit::new(None)).map_err(failed(&place))?;
    Ok(Own { store, place })
}

impl Second {
    /// A store's keys are those of the environment.
    pub fn open(level: &Level) -> Result<Second, RegionsError> {
        Ok(match level {
            Level::Folder(folder) => Second::Folder(folder.clone()),
            Level::Objects(place) => {
                Second::Objects(place.clone(), Access::from_env(place).map_err(failed(place))?)
            }
        })
    }

    /// Whether it is spoken to over connections.
    pub fn connects(&self) -> bool {
        matches!(self, Second::Objects(..))
    }

    pub fn make(&self) -> Result<(), RegionsError> {
        match self {
            Second::Folder(folder) => store::make(folder),
            Second::Objects(..) => Ok(()),
        }
    }

    /// Removes what a process of this number left half done.
    pub fn clean(&self, rank: u32) -> Result<(), RegionsError> {
        match self {
            Second::Folder(folder) => store::clean(folder, rank),
            Second::Objects(place, access) => {
                let mut own = own(place, access, rank)?;
                if let Err(error) = own.store.abort_begun(&own.place.key("")) {
                    // It costs room at most, and not all stores let everybody know of these.
                    note(rank, &format!("what was begun is not given up: {}: {error}", own.place));
                }
                Ok(())
            }
        }
    }

    /// A process's parts there.
    pub fn list(&self, rank: u32) -> Result<Vec<Label>, RegionsError> {
        match self {
            Second::Folder(folder) => {
                let all = store::list(folder)?.into_iter();
                Ok(all.filter(|label| label.rank == rank).collect())
            }
            Second::Objects(place, access) => own(place, access, rank)?.list(),
        }
    }

    /// Parts by which it is known how many runs there were. Of a store its own ones are enough for
    /// each process, as all take the greatest; a folder is read at once anyway.
    pub fn seen(&self, rank: u32) -> Result<Vec<Label>, RegionsError> {
        match self {
            Second::Folder(folder) => store::list(folder),
            Second::Objects(..) => self.list(rank),
        }
    }

    /// Whether there is this process's part of a checkpoint, or of a later one of this run.
    pub fn has(&self, label: &Label) -> bool {
        self.list(label.rank).is_ok_and(|all| all.iter().any(|part| part.follows(label)))
    }

    /// Brings a part there, durably.
    pub fn bring(&self, part: Part<'_>, label: &Label) -> Result<(), RegionsError> {
        match (self, part) {
            (Second::Folder(folder), Part::At(path)) => store::copy(path, folder, label),
            (Second::Folder(folder), Part::Held(bytes)) => {
                store::make(folder)?;
                let to = folder.join(label.to_string());
                part::store(&to, bytes).map_err(file("write", &to))
            }
            (Second::Objects(place, access), part) => {
                let mut own = own(place, access, label.rank)?;
                let key = own.key(label);
                let brought = match part {
                    Part::At(path) => own.store.put_file(&key, path),
                    Part::Held(bytes) => own.store.put_bytes(&key, bytes),
                };
                brought.map(drop).map_err(own.failed())
            }
        }
    }

    /// The file that a part is there.
    pub fn path(&self, label: &Label) -> Option<PathBuf> {
        match self {
            Second::Folder(folder) => Some(folder.join(label.to_string())),
            Second::Objects(..) => None,
        }
    }

    /// The file that a part is, which is fetched into this folder if it is none yet.
    pub fn fetch(&self, label: &Label, folder: &Path) -> Result<PathBuf, RegionsError> {
        let Second::Objects(place, access) = self else {
            return Ok(self.path(label).unwrap_or_default());
        };
        let path = folder.join(label.to_string());
        let partial = temporary(&path);
        let mut own = own(place, access, label.rank)?;
        let fetch = || {
            create(&partial).map_err(file("write", &partial))?;
            let key = own.key(label);
            own.store.get_file(&key, &partial).map_err(failed(&own.place))?;
            let whole = File::open(&partial).and_then(|it| publish(&it, &partial, &path));
            whole.map_err(file("write", &path))
        };
        let done = { fetch }();
        if done.is_err() {
            // What went wrong is what counts.
            let _ = fs::remove_file(&partial);
        }
        done.map(|()| path)
    }

    /// Removes a process's parts of checkpoints of this name, but for those that are wanted.
    pub fn retain(
        &self,
        (name, rank): (&str, u32),
        wanted: &dyn Fn(&Label) -> bool,
    ) -> Result<(), RegionsError> {
        match self {
            Second::Folder(folder) => store::retain(folder, (name, rank), wanted),
            Second::Objects(place, access) => {
                let mut own = own(place, access, rank)?;
                for label in own.list()?.iter().filter(|l| l.name == name && l.rank == rank) {
                    if !wanted(label) {
                        let key = own.key(label);
                        own.store.delete(&key).map_err(own.failed())?;
                    }
                }
                Ok(())
            }
        }
    }
}
