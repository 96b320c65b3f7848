//! A member's folder for a process that may be restored alone, in the middle of whatever it does,
//! and do it again when its files are other ones, or on another node.
//!
//! What it writes is held in memory, so that it is part of the process's images and needs no file
//! to be read again; what is to be durable is also written to the folder, if that is still where
//! the process is. So a process that repeats itself finds what it had, and changes nothing that has
//! happened since.
//!
//! Kept true: no file of a generation is written that was committed or dropped, and none is removed
//! of one that was committed and not dropped; `dropped` never forgets anything; a folder of another
//! member, or one to which a later writer has come, is not touched. A process that does none of
//! this for the second time is told when something cannot be written.

use crate::fence::Fenced;
use crate::inputs::{self, Inputs};
use crate::part;
use eyrie_vault::disk::{Disk, Folder};
use eyrie_vault::files::{self, DROPPED, IDENTITY};
use eyrie_vault::record::{self, Dropped, Identity, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A member's storage, as processes use it.
pub trait Storage: Disk + Sized {
    /// Whether what is found there may have to be found again.
    const REPEATED: bool = false;

    /// It is, or was when it was looked at first, this member's, or empty.
    fn tell(&mut self, _: Option<(&Identity, &Dropped)>) -> io::Result<()> {
        Ok(())
    }

    /// It is about to be made this member's.
    fn becomes(&mut self, _: &Identity) {}

    /// Generations from this one on are made from here on.
    fn own_from(&mut self, _: u64) {}
}

impl Storage for Folder {}
impl Storage for Fenced {}

/// A folder, and what was written there, in memory.
pub struct Mirrored {
    path: PathBuf,
    inputs: Rc<dyn Inputs>,
    memory: BTreeMap<String, Vec<u8>>,
    identity: Option<Identity>,
    /// Files that were there, and are as if they were not.
    gone: BTreeSet<String>,
    /// Of generations from this one on the folder's files are not looked at.
    own: u64,
}

/// What the folder is now.
enum Now {
    Empty,
    Own(Dropped),
    Later,
    Other,
}

fn gone() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// What is there; `None`: nothing, or nothing that can be understood.
fn record<R: Record>(path: &Path) -> io::Result<Option<R>> {
    match fs::read(path) {
        Ok(bytes) => Ok(record::decode(&bytes).ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn bytes_of<R: Record>(record: &R) -> io::Result<Vec<u8>> {
    record::encode(record).map_err(io::Error::other)
}

impl Mirrored {
    pub fn new(path: &Path, inputs: Rc<dyn Inputs>) -> Mirrored {
        let (memory, gone) = (BTreeMap::new(), BTreeSet::new());
        Mirrored { path: path.into(), inputs, memory, identity: None, gone, own: u64::MAX }
    }

    fn hidden(&self, name: &str) -> bool {
        let generation = files::parse(name).map(|(generation, _)| generation);
        self.gone.contains(name) || generation.is_some_and(|generation| generation >= self.own)
    }

    fn held<R: Record>(&self, name: &str) -> Option<R> {
        record::decode(self.memory.get(name)?).ok()
    }

    fn now(&self) -> io::Result<Now> {
        let path = self.path.join(IDENTITY);
        let Some(there) = record::<Identity>(&path)? else {
            return Ok(if path.exists() { Now::Other } else { Now::Empty });
        };
        let own = self.identity.as_ref().map(|own| (own.vault, own.node));
        if own != Some((there.vault, there.node)) {
            return Ok(Now::Other);
        }
        let dropped = record::<Dropped>(&self.path.join(DROPPED))?.unwrap_or_default();
        let term = self.held::<Dropped>(DROPPED).map_or(0, |own| own.term);
        Ok(if dropped.term > term { Now::Later } else { Now::Own(dropped) })
    }

    /// What the folder is now. An empty one is so for one process at a time, of those that may come
    /// to a node together: as long as what is returned with it is there.
    fn alone(&self) -> io::Result<(Now, Option<File>)> {
        let now = self.now()?;
        if !matches!(now, Now::Empty) {
            return Ok((now, None));
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        let lock = File::open(&self.path)?;
        // Where folders cannot be locked it is looked at once more, at least.
        while lock.lock().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
        Ok((self.now()?, Some(lock)))
    }

    /// Does to the folder what was done in memory; `may`, with its numbers of generations that were
    /// dropped: whether that is still to be done.
    fn mirror(
        &self,
        may: impl FnOnce(&Dropped) -> bool,
        work: impl FnOnce(&Dropped) -> io::Result<()>,
    ) -> io::Result<()> {
        let refuse = |why: &str| Err(io::Error::other(format!("{} {why}", self.path.display())));
        let done = inputs::undisturbed(self.inputs.as_ref(), || {
            // Let go of when all is done.
            let (now, _lock) = self.alone()?;
            match now {
                Now::Other => refuse("is another node's folder now"),
                Now::Later => refuse("was written to by another process since"),
                Now::Own(dropped) => {
                    if may(&dropped) {
                        work(&dropped)
                    } else {
                        Ok(())
                    }
                }
                Now::Empty => {
                    for name in [DROPPED, IDENTITY] {
                        let bytes = self.memory.get(name);
                        bytes.map_or(Ok(()), |bytes| part::store(&self.path.join(name), bytes))?;
                    }
                    work(&Dropped::default())
                }
            }
        });
        // What a process does for the second time was done, or is not to be done any more.
        if self.inputs.repeats() { Ok(()) } else { done }
    }

    fn committed(&self, generation: u64) -> bool {
        self.path.join(files::commit(generation)).exists()
    }

    /// Before a commit is written: a folder that was lost since the generation's files were gets
    /// them again, as they are what others count on.
    fn complete(&self, name: &str) -> io::Result<()> {
        let Some((generation, "commit")) = files::parse(name) else { return Ok(()) };
        let all = [files::data(generation), files::parity(generation), files::prepared(generation)];
        for name in all {
            let path = self.path.join(&name);
            if let (Some(bytes), false) = (self.memory.get(&name), path.exists()) {
                part::store(&path, bytes)?;
            }
        }
        Ok(())
    }

    /// Writes a file to the folder.
    fn store(&self, name: &str) -> io::Result<()> {
        let bytes = self.memory.get(name).ok_or_else(gone)?;
        let generation = files::parse(name).map(|(generation, _)| generation);
        let open = |dropped: &Dropped| {
            generation.is_none_or(|g| !dropped.contains(g) && !self.committed(g))
        };
        self.mirror(open, |dropped| {
            if name != DROPPED {
                self.complete(name)?;
                return part::store(&self.path.join(name), bytes);
            }
            let Some(mut own) = self.held::<Dropped>(DROPPED) else { return Ok(()) };
            dropped.runs.iter().for_each(|(first, last)| own.add_run(*first, *last));
            if own == *dropped {
                return Ok(());
            }
            part::store(&self.path.join(name), &bytes_of(&own)?)
        })
    }
}

impl Storage for Mirrored {
    const REPEATED: bool = true;

    fn tell(&mut self, was: Option<(&Identity, &Dropped)>) -> io::Result<()> {
        match was {
            Some((identity, dropped)) => {
                self.identity = Some(identity.clone());
                self.memory.insert(IDENTITY.into(), bytes_of(identity)?);
                self.memory.insert(DROPPED.into(), bytes_of(dropped)?);
            }
            None => {
                self.gone.extend([IDENTITY, DROPPED].map(String::from));
                self.own = 0;
            }
        }
        Ok(())
    }

    fn becomes(&mut self, identity: &Identity) {
        self.identity = Some(identity.clone());
    }

    fn own_from(&mut self, generation: u64) {
        self.own = self.own.min(generation);
    }
}

impl Disk for Mirrored {
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let far = |_| io::Error::from(io::ErrorKind::FileTooLarge);
        let at = usize::try_from(offset).map_err(far)?;
        let file = self.memory.entry(name.into()).or_default();
        let end = at.checked_add(bytes.len()).ok_or(io::ErrorKind::FileTooLarge)?;
        if file.len() < end {
            file.resize(end, 0);
        }
        file[at..end].copy_from_slice(bytes);
        Ok(())
    }

    /// Files that get another name are written when they do.
    fn sync(&mut self, name: &str) -> io::Result<()> {
        if name.ends_with(".part") { Ok(()) } else { self.store(name) }
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let bytes = self.memory.remove(from).ok_or_else(gone)?;
        self.memory.insert(to.into(), bytes);
        self.store(to)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.memory.remove(name);
        self.gone.insert(name.into());
        if name.ends_with(".part") {
            return Ok(());
        }
        let generation = files::parse(name).map(|(generation, _)| generation);
        let old = |dropped: &Dropped| {
            generation.is_some_and(|g| dropped.contains(g) || !self.committed(g))
        };
        self.mirror(old, |_| match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        })
    }

    /// Whatever is written gets its name durably at once.
    fn sync_names(&mut self) -> io::Result<()> {
        self.mirror(|_| true, |_| File::open(&self.path)?.sync_all())
    }

    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()> {
        if let Some(file) = self.memory.get(name) {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            let from = at.checked_add(to.len()).and_then(|end| file.get(at..end));
            to.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
            return Ok(());
        }
        if self.hidden(name) {
            return Err(gone());
        }
        let read = || Folder::open(&self.path)?.read_at(name, offset, to);
        inputs::undisturbed(self.inputs.as_ref(), read)
    }

    fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        if let Some(file) = self.memory.get(name) {
            return Ok(Some(file.len() as u64));
        }
        match fs::metadata(self.path.join(name)) {
            Ok(meta) => Ok(Some(meta.len()).filter(|_| !self.hidden(name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let list = || match Folder::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            folder => folder?.names(),
        };
        let there = inputs::undisturbed(self.inputs.as_ref(), list)?;
        let seen = there.into_iter().filter(|name| !self.hidden(name));
        let all: BTreeSet<String> = seen.chain(self.memory.keys().cloned()).collect();
        Ok(all.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::RegionsError;
    use eyrie_vault::layout::Place;
    use eyrie_vault::member::{Member, MemberError};

    /// Of a process that does nothing for the second time.
    struct First;

    impl Inputs for First {
        fn settle(&self, own: &[u8]) -> Result<Vec<u8>, RegionsError> {
            Ok(own.to_vec())
        }

        fn repeats(&self) -> bool {
            false
        }

        fn diverge(&self, why: &str) {
            panic!("{why}");
        }

        fn undisturbed(&self, work: &mut dyn FnMut()) {
            work();
        }
    }

    fn made(path: &Path, node: u32) -> Result<Member<Mirrored>, MemberError> {
        let scheme = "rs:2+1".parse().unwrap();
        let places = (0..3).map(Place::of).collect();
        let identity = Identity { vault: [7; 16], node, scheme, places };
        let mut disk = Mirrored::new(path, Rc::new(First));
        disk.tell(None)?;
        disk.becomes(&identity);
        Member::create(disk, identity)
    }

    #[test]
    fn what_was_stored_in_a_folder_that_is_lost_is_stored_again_before_its_commit() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("vault");
        let mut disk = made(&path, 1).unwrap().disk;
        disk.write_at("gen-3.data", 0, b"data").unwrap();
        disk.sync("gen-3.data").unwrap();
        disk.replace("gen-3.prepared", b"prepared").unwrap();
        fs::remove_dir_all(&path).unwrap();
        disk.replace("gen-3.commit", b"commit").unwrap();
        let names = Folder::open(&path).unwrap().names().unwrap();
        let all = [DROPPED, "gen-3.commit", "gen-3.data", "gen-3.prepared", IDENTITY];
        assert_eq!(names, all);
        assert_eq!(fs::read(path.join("gen-3.data")).unwrap(), b"data");
    }

    #[test]
    fn of_those_who_come_to_an_empty_folder_together_one_becomes_its_member() {
        for _ in 0..20 {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("vault");
            let became: Vec<u32> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..3)
                    .map(|node| {
                        let path = &path;
                        scope.spawn(move || made(path, node).is_ok().then_some(node))
                    })
                    .collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            let there: Identity = record(&path.join(IDENTITY)).unwrap().unwrap();
            assert_eq!(became, [there.node]);
            let files = Folder::open(&path).unwrap().names().unwrap();
            assert_eq!(files.len(), 2, "{files:?}");
        }
    }
}
