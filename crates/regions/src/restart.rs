//! Going back to a checkpoint: which one all processes can have, and getting its regions back.
//!
//! Kept true: what is restored is, at all processes, of the same checkpoint, and was read whole and
//! held against its checksums before any memory is written to.

use crate::apart::{self, Exchange, Found};
use crate::convert::Conversion;
use crate::error::{RegionsError, file, note};
use crate::format::Entry;
use crate::kind::{Kind, Order, Type};
use crate::label::{Label, Stamp};
use crate::parity::{self, Held};
use crate::part::{Part, create};
use crate::session::{CommittedVersion, Region, Session, Which, misuse};
use crate::store;
use eyrie_vault::Vault;
use eyrie_vault::disk::Folder;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A checkpoint that can be had here.
pub(crate) struct Restoring {
    pub label: Label,
    path: PathBuf,
    part: Part,
    /// Whether the vault has it, and the second level.
    protected: bool,
    flushed: bool,
    /// Files that were written for the program to read.
    files: Vec<PathBuf>,
}

/// Where a part can be had.
enum Place {
    File {
        path: PathBuf,
        flushed: bool,
    },
    /// In the second level, from which it has to be fetched.
    Stored,
    Vault(Held),
    /// In a folder that another process sees.
    Far(u32),
}

/// Where parts come from that are no files here.
enum Source {
    None,
    Vault(Box<Vault<Folder>>),
    Apart(Box<Found>),
}

/// This process's parts: version, order and run, ascending; and where each can be had.
type Parts = BTreeMap<(i64, i64, i64), Vec<Place>>;

/// A region to be restored: its number in the part, its bytes, and how to get them.
struct Target {
    number: usize,
    region: Region,
    conversion: Conversion,
}

impl Session {
    /// The newest checkpoint of this name, up to a version, that all processes can have. All
    /// processes call it together. An error: there are some, and none can be had.
    pub fn newest(&mut self, name: &str, most: i64) -> Result<Option<i64>, RegionsError> {
        self.found = None;
        let (found, bad) = self.find(name, (0, most))?;
        let version = found.as_ref().map(|found| found.label.version);
        self.found = found;
        if version.is_none() && bad {
            return Err(RegionsError::None(name.into()));
        }
        Ok(version)
    }

    /// Gets all regions back. All processes call it together.
    pub fn restore(&mut self, name: &str, version: i64) -> Result<(), RegionsError> {
        self.begin_restore(name, version)?;
        let done = self.recover(&Which::All, true);
        // Everybody has to hear how it went; here the reason counts.
        let ended = self.end_restore(done.is_ok());
        done.and(ended)
    }

    /// Begins a restore that goes on with `recover` and `route` and is ended by `end_restore`.
    pub fn begin_restore(&mut self, name: &str, version: i64) -> Result<(), RegionsError> {
        if self.restoring.is_some() {
            return misuse("a restore was begun and is not ended");
        }
        let known = |found: &Restoring| found.label.name == name && found.label.version == version;
        let found = match self.found.take().filter(known) {
            Some(found) => Some(found),
            None => self.find(name, (version, version))?.0,
        };
        let none = || RegionsError::None(format!("{name} {version}"));
        self.restoring = Some(found.ok_or_else(none)?);
        Ok(())
    }

    /// Ends a restore, which went well if it did at all processes.
    pub fn end_restore(&mut self, success: bool) -> Result<(), RegionsError> {
        let Some(restored) = self.restoring.take() else { return misuse("no restore was begun") };
        restored.files.iter().for_each(|path| self.tidied(store::remove(path)));
        let failed = "the program says that it could not restore its checkpoint";
        self.peers.all(if success { Ok(()) } else { misuse(failed) })?;
        let Restoring { label, protected, flushed, .. } = restored;
        let (version, stamp) = (label.version, label.stamp);
        // What follows, follows from this one.
        self.kept.insert(label.name, vec![CommittedVersion { version, stamp, protected, flushed }]);
        Ok(())
    }

    /// What is in the checkpoint under this number.
    pub fn stored(&self, id: i32) -> Option<&Entry> {
        let restoring = self.restoring.as_ref().or(self.found.as_ref())?;
        let mut all = restoring.part.head.entries.iter();
        all.find(|entry| entry.kind != Kind::File && entry.id == id)
    }

    /// Gets regions back. `exact`: those that are protected are those that were, of the same
    /// length; else less may have been stored.
    pub fn recover(&mut self, which: &Which, exact: bool) -> Result<(), RegionsError> {
        let Some(restoring) = &self.restoring else { return misuse("no restore was begun") };
        let targets = self.targets(restoring, which, exact)?;
        let read = |error| RegionsError::Read { path: restoring.path.clone(), error };
        // A value that does not fit must not be found when half of memory has been written to.
        for Target { number, conversion, .. } in targets.iter().filter(|t| !t.conversion.nothing())
        {
            restoring.part.read(*number, conversion, &mut |_| {}).map_err(read)?;
        }
        for Target { number, region, conversion } in &targets {
            let mut at = 0usize;
            let most = region.element.size.saturating_mul(region.count);
            let mut put = |bytes: &[u8]| {
                let bytes = bytes.get(..bytes.len().min(most - at)).unwrap_or_default();
                // SAFETY: whoever protected the region promised that `most` bytes can be written,
                // and `at` and what follows is within them.
                unsafe {
                    let to = region.at.add(at);
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                }
                at += bytes.len();
            };
            restoring.part.read(*number, conversion, &mut put).map_err(read)?;
        }
        Ok(())
    }

    fn targets(
        &self,
        restoring: &Restoring,
        which: &Which,
        exact: bool,
    ) -> Result<Vec<Target>, RegionsError> {
        let head = &restoring.part.head;
        let mut targets = Vec::new();
        for (number, entry) in head.entries.iter().enumerate() {
            if entry.kind == Kind::File || !which.takes(entry.id) {
                continue;
            }
            let refuse = |why: String| RegionsError::Region { id: entry.id, why };
            let region = self
                .regions
                .get(&entry.id)
                .ok_or_else(|| refuse("it is in the checkpoint, and not protected here".into()))?;
            let fits = if exact {
                entry.count == region.count as u64
            } else {
                entry.bytes() <= region.element.size.saturating_mul(region.count) as u64
            };
            if !fits {
                let (have, want) = (entry.count, region.count);
                let (stored, size) = (entry.size, region.element.size);
                return Err(refuse(format!(
                    "{have} elements of {stored} bytes were stored, and {want} of {size} are \
                     protected here"
                )));
            }
            let conversion = conversion(entry, head.bytes, region, exact);
            let conversion = conversion.map_err(|error| refuse(error.to_string()))?;
            targets.push(Target { number, region: *region, conversion });
        }
        let stored = |id: &i32| targets.iter().any(|t| head.entries[t.number].id == *id);
        let missing = self.regions.keys().find(|id| which.takes(**id) && !stored(id));
        match missing {
            Some(id) if exact => {
                Err(RegionsError::Region { id: *id, why: "it is not in the checkpoint".into() })
            }
            _ => Ok(targets),
        }
    }

    /// Writes a file of the checkpoint to where the program can read it.
    pub(crate) fn extract(&mut self, name: &str) -> Result<PathBuf, RegionsError> {
        let folder = store::files(&self.folder);
        let Some(restoring) = &mut self.restoring else { return misuse("no restore was begun") };
        let entries = restoring.part.head.entries.iter();
        let number = entries.clone().position(|e| e.kind == Kind::File && e.file == name);
        let none = || RegionsError::Use(format!("the checkpoint has no file '{name}'"));
        let number = number.ok_or_else(none)?;
        let path = folder.join(format!("{}.{number}", restoring.label));
        let mut to = create(&path).map_err(file("write", &path))?;
        restoring.files.push(path.clone());
        let read = restoring.part.read_file(number, &mut to);
        read.map_err(|error| RegionsError::Read { path: restoring.path.clone(), error })?;
        Ok(path)
    }

    /// The greatest version from `least` to `most` that all can have, and whether any process has
    /// one that cannot be used.
    fn find(
        &self,
        name: &str,
        (least, most): (i64, i64),
    ) -> Result<(Option<Restoring>, bool), RegionsError> {
        // What all do together is not left early by one.
        let found = match &self.apart {
            Some(apart) => {
                Some(apart::look((&self.peers, apart), &self.config, &self.folder, name)?)
            }
            None => None,
        };
        let gathered = self.gather(name, (least, most), found);
        let (parts, mut source, mut bad) = self.peers.all(gathered)?;
        let lost = bad;
        let mut bound = (i64::MAX, i64::MAX);
        loop {
            let below = || parts.keys().rev().filter(|(v, o, _)| (*v, *o) < bound);
            let mine = below().next().map_or(-1, |(version, ..)| *version);
            let version = self.peers.least(mine)?;
            if version < 0 {
                break;
            }
            let mine = below().find(|(v, ..)| *v == version).map_or(-1, |(_, order, _)| *order);
            let order = self.peers.least(mine)?;
            let same = |(v, o, _): &&(i64, i64, i64)| (*v, *o) == (version, order);
            let mine = parts.keys().rev().find(same).map_or(-1, |(.., run)| *run);
            let mine = self.peers.settled(mine)?;
            bound = (version, order.max(0));
            // One that only some processes have was never reported as stored, or is gone.
            if !self.peers.same(mine)? || mine < 0 {
                continue;
            }
            let (stamp, rank) = (Stamp { order, run: mine }, self.peers.rank);
            let label = Label { name: name.into(), version, stamp, rank };
            let places = parts.get(&(version, order, mine)).map(Vec::as_slice);
            let mine = self.ready(&label, places.unwrap_or_default(), &mut source)?;
            // Who restores again what it had then has to have it.
            let none = || RegionsError::None(format!("{name} {version}"));
            let mine = self.peers.settled_end(mine.ok_or_else(none)).ok();
            bad |= mine.is_none();
            if self.peers.least(i64::from(mine.is_some()))? == 1 {
                if lost && self.apart.is_some() && self.peers.leads() {
                    note(0, &format!("the newest that can be had is {name} {version}"));
                }
                return Ok((mine, bad));
            }
        }
        let mut any = [i64::from(bad)];
        self.peers.most(&mut any)?;
        Ok((None, any == [1]))
    }

    /// This process's parts, wherever they are; and whether some of the vault's are lost.
    fn gather(
        &self,
        name: &str,
        (least, most): (i64, i64),
        found: Option<Found>,
    ) -> Result<(Parts, Source, bool), RegionsError> {
        let mut parts = Parts::new();
        let mut take = |label: Label, place: Place| {
            let own = label.name == name && label.rank == self.peers.rank;
            if own && (least..=most).contains(&label.version) {
                let key = (label.version, label.stamp.order, label.stamp.run);
                parts.entry(key).or_default().push(place);
            }
        };
        let others = self.config.folders.iter().filter(|folder| **folder != self.folder);
        let near = std::iter::once(&self.folder).chain(others).map(|folder| store::parts(folder));
        // What is near goes first, and the second level last.
        for folder in near {
            for label in store::list(&folder)? {
                let path = folder.join(label.to_string());
                take(label, Place::File { path, flushed: false });
            }
        }
        let far = self.far()?;
        if let Some(found) = found {
            found.held.iter().for_each(|held| take(held.label.clone(), Place::Vault(held.clone())));
            found.far.iter().for_each(|(rank, label)| take(label.clone(), Place::Far(*rank)));
            far.into_iter().for_each(|(place, label)| take(label, place));
            let lost = found.lost;
            return Ok((parts, Source::Apart(Box::new(found)), lost));
        }
        far.into_iter().for_each(|(place, label)| take(label, place));
        let mut vault = parity::look(&self.config)?;
        let (held, lost) = vault.as_mut().map(parity::list).unwrap_or_default();
        for held in held {
            take(held.label.clone(), Place::Vault(held));
        }
        for error in lost.iter().filter(|_| self.peers.leads()) {
            note(self.peers.rank, &format!("the vault: {error}"));
        }
        Ok((
            parts,
            vault.map_or(Source::None, |vault| Source::Vault(Box::new(vault))),
            !lost.is_empty(),
        ))
    }

    /// This process's parts in the second level.
    fn far(&self) -> Result<Vec<(Place, Label)>, RegionsError> {
        let Some(second) = &self.second else { return Ok(Vec::new()) };
        let list = self.peers.undisturbed(|| second.list(self.peers.rank))?.into_iter();
        let place = |label: &Label| match second.path(label) {
            Some(path) => Place::File { path, flushed: true },
            None => Place::Stored,
        };
        Ok(list.map(|label| (place(&label), label)).collect())
    }

    /// A part, read whole once, from the first place where it can be had. An error: the processes
    /// cannot reach each other.
    fn ready(
        &self,
        label: &Label,
        places: &[Place],
        source: &mut Source,
    ) -> Result<Option<Restoring>, RegionsError> {
        let exchange = match source {
            Source::Apart(_) => Some(Exchange::new(&self.peers, &self.folder)),
            _ => None,
        };
        let ready = self.first(label, places, source, exchange.as_ref());
        exchange.map_or(Ok(()), Exchange::finish)?;
        Ok(ready)
    }

    /// Brings a part out of the second level into this process's folder.
    fn fetch(&self, label: &Label) -> Result<PathBuf, RegionsError> {
        let Some(second) = &self.second else { return misuse("there is no second level") };
        let parts = store::parts(&self.folder);
        self.peers.undisturbed(|| second.fetch(label, &parts))
    }

    fn first(
        &self,
        label: &Label,
        places: &[Place],
        source: &mut Source,
        exchange: Option<&Exchange<'_>>,
    ) -> Option<Restoring> {
        let protected = places.iter().any(|place| matches!(place, Place::Vault(_)));
        let far =
            |place: &Place| matches!(place, Place::File { flushed: true, .. } | Place::Stored);
        let flushed = places.iter().any(far);
        let rank = self.peers.rank;
        for place in places {
            let found = match (place, &mut *source, exchange) {
                (Place::File { path, .. }, ..) => Ok(path.clone()),
                (Place::Stored, ..) => self.fetch(label),
                (Place::Vault(held), Source::Vault(vault), _) => {
                    parity::fetch(vault, held, &store::parts(&self.folder))
                }
                (Place::Vault(held), Source::Apart(found), Some(exchange)) => {
                    found.fetch(exchange, held)
                }
                (Place::Far(rank), Source::Apart(found), Some(exchange)) => {
                    found.bring(exchange, *rank, label)
                }
                _ => continue,
            };
            let path = match found {
                Ok(path) => path,
                Err(error) => {
                    note(rank, &format!("{label}: {error}"));
                    continue;
                }
            };
            let part = Part::open(&path, label, self.peers.ranks, self.key.as_ref());
            match part.and_then(|part| part.verify().map(|()| part)) {
                Ok(part) => {
                    let (label, files) = (label.clone(), Vec::new());
                    return Some(Restoring { label, path, part, protected, flushed, files });
                }
                Err(error) => note(rank, &format!("{}: {error}", path.display())),
            }
        }
        None
    }
}

/// How to get from what was stored to what is protected.
fn conversion(
    entry: &Entry,
    order: Order,
    region: &Region,
    exact: bool,
) -> Result<Conversion, crate::convert::ConvertError> {
    let (stored, wanted) = (entry.element(), region.element);
    if exact || stored.kind != Kind::Bytes || wanted.kind != Kind::Bytes {
        return Conversion::new((stored, order), (wanted, Order::OWN));
    }
    // Bytes are bytes; but what they are made of tells whether another machine can use them.
    Conversion::new((stored, order), (stored, Order::OWN))?;
    let byte = Type { kind: Kind::Bytes, size: 1 };
    Conversion::new((byte, order), (byte, Order::OWN))
}
