//! A process's checkpoints: regions that are protected, and storing them together with all other
//! processes.
//!
//! Kept true: a checkpoint exists when all processes have their parts of it, durably, and none
//! does before all have agreed on that; older ones go only after that.

use crate::apart::{self, Apart, Makers};
use crate::config::{Config, Parity};
use crate::error::{RegionsError, file, note};
use crate::format::Entry;
use crate::kind::{Kind, Type};
use crate::label::{Label, Stamp, good_name};
use crate::part::{self, Writer};
use crate::peers::Peers;
use crate::restart::Restoring;
use crate::sealed::Lock;
use crate::second::Second;
use crate::{inputs, parity, steps, store};
use eyrie_vault::cost::Measured;
use eyrie_vault::disk;
use eyrie_vault::seal::Key;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};

/// Memory of the program.
#[derive(Debug, Clone, Copy)]
pub struct Region {
    pub at: *mut u8,
    pub element: Type,
    pub count: usize,
}

/// Which regions.
#[derive(Debug, Clone)]
pub enum Which {
    All,
    Some(BTreeSet<i32>),
    /// All but these.
    Rest(BTreeSet<i32>),
}

impl Which {
    pub fn takes(&self, id: i32) -> bool {
        match self {
            Which::All => true,
            Which::Some(ids) => ids.contains(&id),
            Which::Rest(ids) => !ids.contains(&id),
        }
    }
}

/// A checkpoint that is kept, and whether all of it is in the vault.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommittedVersion {
    pub version: i64,
    pub stamp: Stamp,
    pub protected: bool,
    pub flushed: bool,
}

/// A checkpoint that is being written.
struct Writing {
    label: Label,
    writer: Writer,
    /// Names and places of files that the program writes itself.
    files: Vec<(String, PathBuf)>,
    failed: Option<RegionsError>,
}

/// What is done while the program goes on.
type Thread = JoinHandle<Result<(), RegionsError>>;

/// A process's checkpoints.
pub struct Session {
    pub(crate) config: Config,
    pub(crate) peers: Peers,
    pub(crate) regions: BTreeMap<i32, Region>,
    /// This process's node.
    pub(crate) folder: PathBuf,
    /// If nodes do not see each other's folders.
    pub(crate) apart: Option<Apart>,
    pub(crate) second: Option<Second>,
    /// What parts are encrypted with.
    pub(crate) key: Option<Key>,
    life: u32,
    serial: u32,
    run: u64,
    pub(crate) kept: BTreeMap<String, Vec<CommittedVersion>>,
    writing: Option<Writing>,
    pub(crate) restoring: Option<Restoring>,
    /// What all processes have found that they can have.
    pub(crate) found: Option<Restoring>,
    /// Between which processes, and how fast they reach each other.
    measured: RefCell<Option<(Vec<u32>, Option<Measured>)>>,
    /// What is left to a thread, and of which checkpoint.
    background: Option<(Label, bool, Option<Thread>)>,
}

pub(crate) fn misuse<T>(why: &str) -> Result<T, RegionsError> {
    Err(RegionsError::Use(why.into()))
}

impl Session {
    /// All processes open together.
    pub fn open(config: Config, peers: Peers) -> Result<Session, RegionsError> {
        if config.vaulted() && peers.silent() && peers.ranks > 1 {
            return misuse("processes that stand alone cannot share a vault: use vault=local");
        }
        let number = config.node.unwrap_or_else(|| config.folder_of(peers.rank, peers.ranks));
        let folder = config.folders.get(number).cloned().unwrap_or_default();
        let (second, key) = peers.all(Session::means(&config))?;
        let alike = (config.scheme.to_string(), config.keep, config.every, config.background);
        let mark = key.as_ref().map(Key::fingerprint);
        let more = (&config.persistent, config.folders.len(), config.parity, mark);
        let sum = eyrie_vault::record::hash(format!("{alike:?} {more:?}").as_bytes());
        let sum = sum.iter().take(7).fold(0i64, |sum, byte| sum << 8 | i64::from(*byte));
        if !peers.same(sum)? {
            return misuse("the processes were given different options, or keys");
        }
        let random = disk::random().map(u64::from_le_bytes);
        let run = random.map_err(file("read", Path::new("/dev/urandom")))? >> 1;
        let own = if peers.leads() || peers.silent() { run.cast_signed() } else { -1 };
        let mut run = [own];
        peers.most(&mut run)?;
        let [run] = run;
        let apart = Session::survey(&config, &peers, &folder, run)?;
        let config = match apart {
            Some(_) => Config { folders: vec![folder.clone()], ..config },
            None => config,
        };
        let looks = apart.as_ref().map_or(peers.leads(), |apart| apart.leads(peers.rank));
        let gone = apart.as_ref().map(|apart| apart.gone(&peers)).unwrap_or_default();
        let prepared = if peers.repeats() {
            // Who does it again has files there that others count on, or is on another node. What
            // cannot be made is missed when something is written.
            steps::make(second.as_ref(), &folder).ok();
            Ok(0)
        } else {
            let with = (&config, second.as_ref());
            peers.undisturbed(|| steps::prepare(with, &folder, &peers, (looks, &gone)))
        };
        let mut life = [i64::from(peers.all(prepared)?)];
        peers.most(&mut life)?;
        let life = u32::try_from(life[0]).unwrap_or(0).saturating_add(1);
        Ok(Session {
            config,
            peers,
            regions: BTreeMap::new(),
            folder,
            apart,
            second,
            key,
            life,
            serial: 0,
            run: run.cast_unsigned(),
            kept: BTreeMap::new(),
            writing: None,
            restoring: None,
            found: None,
            measured: RefCell::default(),
            background: None,
        })
    }

    /// What it takes besides folders: the way to the second level, and the key.
    fn means(config: &Config) -> Result<(Option<Second>, Option<Key>), RegionsError> {
        let second = config.persistent.as_ref().map(Second::open).transpose()?;
        let read = |path: &PathBuf| Key::read_private(path).map_err(file("use the key in", path));
        Ok((second, config.key.as_ref().map(read).transpose()?))
    }

    /// Which processes see which folder, if parity is made by all nodes.
    fn survey(
        config: &Config,
        peers: &Peers,
        folder: &Path,
        run: i64,
    ) -> Result<Option<Apart>, RegionsError> {
        if !config.vaulted() {
            return Ok(None);
        }
        if config.parity == Parity::One || !peers.has_post() {
            if config.parity == Parity::Nodes && peers.ranks > 1 {
                return misuse("parity=nodes needs a handle that was opened with a way for bytes");
            }
            return config.suffices(config.folders.len()).map(|()| None);
        }
        let domain = config.domain.clone().unwrap_or_else(apart::host);
        let (apart, seen) = apart::survey(peers, folder, &config.folders, (run, domain))?;
        let shared = seen && config.suffices(config.folders.len()).is_ok();
        if config.parity == Parity::Auto && shared {
            return Ok(None);
        }
        config.suffices(apart.leaders.len())?;
        if inputs::is_repeated() && !peers.records() {
            return misuse(apart::NOT_REPEATED);
        }
        Ok(Some(apart))
    }

    /// From now on this memory is part of checkpoints, in place of what had this number.
    ///
    /// # Safety
    ///
    /// The memory can be read and written as long as it is protected, and nobody else writes to it
    /// while a checkpoint or a restore goes on.
    pub unsafe fn protect(&mut self, id: i32, region: Region) -> Result<(), RegionsError> {
        let refuse = |why: String| Err(RegionsError::Region { id, why });
        let Type { kind, size } = region.element;
        let bytes = size.checked_mul(region.count).filter(|b| isize::try_from(*b).is_ok());
        if kind == Kind::File || !kind.takes(size as u64) {
            return refuse(format!("there are no {} of {size} bytes", kind.word()));
        }
        match bytes {
            None => refuse("it is longer than memory".into()),
            Some(1..) if region.at.is_null() => refuse("it is nowhere (NULL)".into()),
            Some(_) => {
                self.regions.insert(id, region);
                Ok(())
            }
        }
    }

    pub fn unprotect(&mut self, id: i32) -> Result<(), RegionsError> {
        let none = || RegionsError::Region { id, why: "it is not protected".into() };
        self.regions.remove(&id).map(|_| ()).ok_or_else(none)
    }

    /// Stores all regions. All processes call it together, with the same name and version.
    pub fn checkpoint(&mut self, name: &str, version: i64) -> Result<(), RegionsError> {
        self.begin(name, version)?;
        // What goes wrong is said at the end, by all.
        self.save(&Which::All).ok();
        self.end(true)
    }

    /// Begins a checkpoint that is written by `save` and `route` and ended by `end`.
    pub fn begin(&mut self, name: &str, version: i64) -> Result<(), RegionsError> {
        if self.writing.is_some() || self.restoring.is_some() {
            return misuse("a checkpoint or a restore was begun and is not ended");
        }
        if let Err(error) = self.wait() {
            // That one is over, and no reason not to take this one.
            note(self.peers.rank, &error.to_string());
        }
        self.look_around()?;
        let begun = self.create(name, version);
        let done = self.peers.all(begun);
        if done.is_err() {
            self.writing = None;
        }
        done
    }

    /// Whether parts are held in memory, as this process may have to make parity of them again when
    /// its files are other ones.
    fn holds(&self) -> bool {
        self.apart.is_some() && self.peers.records()
    }

    /// A process that was restored may be on another node since.
    fn look_around(&mut self) -> Result<(), RegionsError> {
        if !self.holds() {
            return Ok(());
        }
        let domain = self.config.domain.clone().unwrap_or_else(apart::host);
        // None that was used before, also when the handle was opened: marks may be left of that.
        let number = u64::from(self.serial).saturating_add(1);
        let token = self.run.wrapping_add(number).cast_signed();
        let folders = &self.config.folders;
        let (apart, _) = apart::survey(&self.peers, &self.folder, folders, (token, domain))?;
        self.apart = Some(apart);
        Ok(())
    }

    fn create(&mut self, name: &str, version: i64) -> Result<(), RegionsError> {
        // In step with the others, whatever comes of it.
        self.serial = self.serial.saturating_add(1);
        if !good_name(name) || version < 0 {
            return Err(RegionsError::Use(format!(
                "a checkpoint has a name of letters, digits, '.', '_', '-' and a version from 0 \
                 on, unlike '{name}' {version}"
            )));
        }
        let stamp = Stamp::new(self.life, self.serial, self.run);
        let label = Label { name: name.into(), version, stamp, rank: self.peers.rank };
        let parts = store::parts(&self.folder);
        let lock = self.key.clone().map(|key| self.lock(key)).transpose()?;
        let writer = match self.holds() {
            true => Writer::hold(&parts, &label, lock),
            false => Writer::create(&parts, &label, lock).map_err(file("write into", &parts))?,
        };
        self.writing = Some(Writing { label, writer, files: Vec::new(), failed: None });
        Ok(())
    }

    /// What a part is encrypted with. Who may have to make parity of it again comes to the same
    /// bytes then.
    fn lock(&self, key: Key) -> Result<Lock, RegionsError> {
        if !self.holds() {
            return Ok(Lock { key, settled: None });
        }
        let none = || RegionsError::Use("there are no random numbers".into());
        let salt = self.peers.settled(disk::random().ok())?.ok_or_else(none)?;
        Ok(Lock { key, settled: Some(salt) })
    }

    /// Writes regions.
    pub fn save(&mut self, which: &Which) -> Result<(), RegionsError> {
        let Some(writing) = &mut self.writing else { return misuse("no checkpoint was begun") };
        for (id, region) in self.regions.iter().filter(|(id, _)| which.takes(**id)) {
            let (size, count) = (region.element.size as u64, region.count as u64);
            let (kind, file) = (region.element.kind, String::new());
            let entry = Entry { id: *id, kind, size, count, file, hash: [0; 16] };
            let bytes: &[u8] = match usize::try_from(entry.bytes()) {
                // SAFETY: whoever protected it promised that it can be read.
                Ok(bytes @ 1..) => unsafe { std::slice::from_raw_parts(region.at, bytes) },
                _ => &[],
            };
            if let Err(error) = writing.writer.add(entry, bytes) {
                let why = error.to_string();
                writing.failed = Some(RegionsError::Region { id: *id, why: why.clone() });
                return Err(RegionsError::Region { id: *id, why });
            }
        }
        Ok(())
    }

    /// Where the program is to write a file of its own, or finds one that it wrote.
    pub fn route(&mut self, name: &str) -> Result<PathBuf, RegionsError> {
        if self.restoring.is_some() {
            return self.extract(name);
        }
        let Some(writing) = &mut self.writing else { return misuse("no checkpoint was begun") };
        if let Some((_, path)) = writing.files.iter().find(|(known, _)| known == name) {
            return Ok(path.clone());
        }
        let number = writing.files.len();
        let path = store::files(&self.folder).join(format!("{}.{number}", writing.label));
        writing.files.push((name.into(), path.clone()));
        Ok(path)
    }

    /// Ends a checkpoint. It exists if it went well at all processes, by what each says.
    pub fn end(&mut self, success: bool) -> Result<(), RegionsError> {
        let Some(writing) = self.writing.take() else { return misuse("no checkpoint was begun") };
        let (label, files) = (writing.label.clone(), writing.files.clone());
        let (written, held) = self.finish(writing, success);
        files.iter().for_each(|(_, path)| self.tidied(store::remove(path)));
        let path = store::parts(&self.folder).join(label.to_string());
        if let Err(error) = self.peers.all(written) {
            self.tidied(store::remove(&path));
            return Err(error);
        }
        let flush = self.second.is_some() && self.serial.checked_rem(self.config.every) == Some(0);
        let kept = self.kept.entry(label.name.clone()).or_default();
        kept.retain(|k| k.version != label.version);
        let (version, stamp) = (label.version, label.stamp);
        kept.push(CommittedVersion { version, stamp, protected: false, flushed: false });
        let surplus = kept.len().saturating_sub(self.config.keep);
        kept.drain(..surplus);
        if !self.config.vaulted() && !flush {
            self.trim(&label.name);
            return Ok(());
        }
        let keep: Vec<(i64, Stamp)> = kept.iter().map(|k| (k.version, k.stamp)).collect();
        let (config, ranks, of) = (self.config.clone(), self.peers.ranks, label.clone());
        // What goes through MPI is done by the thread that called: no other one may.
        let together = self.protect_together(&label, &keep, held.as_deref());
        let alone = self.apart.is_none();
        let held = held.filter(|_| flush);
        let second = self.second.clone().filter(|_| flush);
        let calm = held.is_some() || second.as_ref().is_some_and(Second::connects);
        let secure = move || {
            let part = (path.as_path(), held.as_deref());
            let secured =
                steps::secure(&config, (&of, ranks), part, second.as_ref(), alone.then_some(&keep));
            together.and(secured)
        };
        if !self.config.background {
            let done = if calm { self.peers.undisturbed(secure) } else { secure() };
            return self.settle(&label, flush, done);
        }
        let thread = (flush || self.apart.is_some() || self.peers.leads()).then(|| {
            let thread = thread::Builder::new().name("eyrie-regions".into()).spawn(secure);
            thread.map_err(file("start", Path::new("a thread")))
        });
        self.background = Some((label, flush, thread.transpose()?));
        Ok(())
    }

    /// Protects what all processes have written, by all nodes together, if that is how it is done.
    fn protect_together(
        &self,
        label: &Label,
        keep: &[(i64, Stamp)],
        held: Option<&[u8]>,
    ) -> Result<(), RegionsError> {
        match &self.apart {
            Some(apart) if self.config.vaulted() => {
                let own = (&self.config, self.folder.as_path());
                let measure = || self.measured(apart);
                let who = Makers { peers: &self.peers, apart, measure: &measure };
                let done = apart::protect(who, own, label, keep, held);
                // An image of all processes may have been taken in the middle of that.
                let again = done.is_err() && parity::repeats(&self.config, label);
                let mut any = [i64::from(again)];
                self.peers.most(&mut any)?;
                if any == [1] { Ok(()) } else { done }
            }
            _ => Ok(()),
        }
    }

    /// How fast members reach each other: measured once, and anew when they are others.
    fn measured(&self, apart: &Apart) -> Result<Option<Measured>, RegionsError> {
        let mut known = self.measured.borrow_mut();
        if known.as_ref().is_none_or(|(leaders, _)| *leaders != apart.leaders) {
            *known = Some((apart.leaders.clone(), apart::measure(&self.peers, apart)?));
        }
        Ok(known.as_ref().and_then(|(_, measured)| *measured))
    }

    /// Makes this process's part whole; returns it, too, if it is held in memory.
    fn finish(
        &self,
        writing: Writing,
        success: bool,
    ) -> (Result<(), RegionsError>, Option<Vec<u8>>) {
        let Writing { label, mut writer, files, failed } = writing;
        if !success {
            return (misuse("the program says that it could not write its checkpoint"), None);
        }
        let done = failed.map_or(Ok(()), Err);
        let done = done.and_then(|()| {
            let of = (&label, self.peers.ranks);
            self.peers.undisturbed(|| steps::finish(&mut writer, &files, of))
        });
        if let (Ok(()), Some(bytes)) = (&done, writer.held()) {
            return (self.store(&label, &bytes), Some(bytes));
        }
        if self.holds() {
            // Also if there is one in the folder: what was done with a part that was held cannot be
            // done with that, and `Peers::all` says so.
            return (done, None);
        }
        // An image of this process may have been taken in the middle of that, and it may be there.
        let there = || store::has(&store::parts(&self.folder), &label);
        let again = || there() || parity::repeats(&self.config, &label);
        (if done.is_err() && again() { Ok(()) } else { done }, None)
    }

    /// Writes a part that is held in memory to its folder.
    fn store(&self, label: &Label, bytes: &[u8]) -> Result<(), RegionsError> {
        let parts = store::parts(&self.folder);
        let path = parts.join(label.to_string());
        let written = self.peers.undisturbed(|| {
            store::make(&parts)?;
            part::store(&path, bytes).map_err(file("write", &path))
        });
        // Who does it again had it there; what is done with it, is done with what is in memory.
        if self.peers.repeats() { Ok(()) } else { written }
    }

    /// Waits for what is left to a thread, and says how it went, at all processes.
    pub fn wait(&mut self) -> Result<(), RegionsError> {
        let Some((label, flush, thread)) = self.background.take() else { return Ok(()) };
        let done = thread.map_or(Ok(Ok(())), JoinHandle::join);
        let done = done.unwrap_or_else(|_| misuse("the thread ended before its work was done"));
        self.settle(&label, flush, done)
    }

    /// A checkpoint was protected, everywhere, or not.
    fn settle(
        &mut self,
        label: &Label,
        flushed: bool,
        done: Result<(), RegionsError>,
    ) -> Result<(), RegionsError> {
        let unprotected = |error| RegionsError::Unprotected {
            label: format!("{} {}", label.name, label.version),
            error: Box::new(error),
        };
        // Who does it again has no need of the files that it was done with.
        let done = if self.holds() && self.peers.repeats() { Ok(()) } else { done };
        self.peers.all(done).map_err(unprotected)?;
        let kept = self.kept.entry(label.name.clone()).or_default();
        if let Some(kept) = kept.iter_mut().find(|k| k.stamp == label.stamp) {
            (kept.protected, kept.flushed) = (self.config.vaulted(), flushed);
        }
        self.trim(&label.name);
        Ok(())
    }

    /// What was to be removed is not needed any more, and is looked at again later: no reason to
    /// fail, which this process would do alone, and not as before when it does it again.
    pub(crate) fn tidied(&self, done: Result<(), RegionsError>) {
        if let Err(error) = done {
            note(self.peers.rank, &error.to_string());
        }
    }

    fn trim(&self, name: &str) {
        self.tidied(self.peers.undisturbed(|| self.remove_surplus(name)));
    }

    /// Removes this process's parts that are in the vault now, or too old. Later ones are there if
    /// the process was restored from an image of itself, and will be kept when it gets there.
    fn remove_surplus(&self, name: &str) -> Result<(), RegionsError> {
        let kept = self.kept.get(name).map(Vec::as_slice).unwrap_or_default();
        let now = kept.iter().map(|k| k.stamp.order).max().unwrap_or(i64::MAX);
        let is = |label: &Label, k: &&CommittedVersion| {
            (k.version, k.stamp) == (label.version, label.stamp)
        };
        let own = (name, self.peers.rank);
        let near = |label: &Label| {
            label.stamp.order > now || kept.iter().any(|k| is(label, &k) && !k.protected)
        };
        let parts = store::parts(&self.folder);
        store::retain(&parts, own, &near)?;
        for rank in self.apart.iter().flat_map(|apart| apart.gone(&self.peers)) {
            store::retain(&parts, (name, rank), &near)?;
        }
        match &self.second {
            // What an earlier run flushed stays until this one has something newer there.
            Some(second) if kept.iter().any(|k| k.flushed) => second.retain(own, &|label| {
                label.stamp.order > now || kept.iter().any(|k| is(label, &k) && k.flushed)
            }),
            _ => Ok(()),
        }
    }
}
