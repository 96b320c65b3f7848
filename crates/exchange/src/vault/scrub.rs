//! Reading all that this node has of the vault, and making anew what is damaged.
//!
//! That is done beside rounds, by a thread of its own; what it writes goes by the one that writes
//! the node's part (`worker`).
//!
//! Kept true: of a generation that was dropped nothing is written, or its files would be there
//! again and nobody remove them; no more is read in a second, here and of others, than was said;
//! a later pass takes the place of an earlier one, of which nothing is told any more.

use super::rate_limit::Pace;
use super::remote::Remote;
use super::work::{Change, Setup, Work};
use crate::store_protocol::{Identity, Members};
use eyrie_control::VaultStep;
use eyrie_control::node::FromNode;
use eyrie_vault::Vault;
use eyrie_vault::disk::{Disk, Folder};
use eyrie_vault::record::Commit;
use eyrie_vault::vault::Mended;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How soon one that waits for its turn to read notices that it was overtaken.
const LOOK: Duration = Duration::from_millis(500);

/// One generation to be read.
pub(super) struct Order {
    pub pass: u64,
    pub commit: Commit,
    pub write: bool,
    /// Bytes a second; 0: any.
    pub rate: u64,
    pub own: Identity,
}

/// The way to the thread.
pub(super) struct Scrubber {
    newest: Arc<AtomicU64>,
    orders: Sender<Order>,
}

/// What the thread needs.
struct Place {
    folder: PathBuf,
    members: Members,
    worker: Sender<Work>,
    newest: Arc<AtomicU64>,
}

impl Scrubber {
    pub fn start(setup: &Setup, worker: Sender<Work>) -> io::Result<Scrubber> {
        let (orders, told) = mpsc::channel();
        let newest = Arc::new(AtomicU64::new(0));
        let (folder, members) = (setup.folder.clone(), Arc::clone(&setup.members));
        let place = Place { folder, members, worker, newest: Arc::clone(&newest) };
        let say = Arc::clone(&setup.say);
        let work = move || run(&place, &told, &*say);
        std::thread::Builder::new().name("eyrie-scrub".into()).spawn(work)?;
        Ok(Scrubber { newest, orders })
    }

    /// It ends with the process: nobody waits for it.
    pub fn order(&self, order: Order) {
        self.newest.fetch_max(order.pass, Ordering::Relaxed);
        let _ = self.orders.send(order);
    }
}

fn run(place: &Place, told: &Receiver<Order>, say: &dyn Fn(FromNode)) {
    for order in told {
        let late = || order.pass < place.newest.load(Ordering::Relaxed);
        if late() {
            continue;
        }
        let result = place.scrub(&order);
        // Reads of one that was overtaken fail.
        if !late() {
            let (generation, pass) = (order.commit.generation, order.pass);
            say(FromNode::Vault { generation, step: VaultStep::Scrubbed { pass, result } });
        }
    }
}

impl Place {
    fn scrub(&self, order: &Order) -> Result<Mended, String> {
        let (commit, own) = (&order.commit, &order.own);
        let generation = commit.generation;
        let (group, _) = commit.place(own.node).ok_or("the generation is without this node")?;
        let others: Vec<u32> = {
            let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
            let nodes = commit.groups[group].iter().map(|summary| summary.node);
            let there = |node: &u32| *node != own.node && members.iter().any(|m| m.0 == *node);
            nodes.filter(there).collect()
        };
        let pace = Rc::new(RefCell::new(Pace::new(order.rate)));
        let folder = Folder::open(&self.folder).map_err(|e| e.to_string())?;
        let mine = Mine { folder, generation, worker: self.worker.clone() };
        let part = |store| Part {
            store,
            pace: Rc::clone(&pace),
            pass: order.pass,
            newest: Arc::clone(&self.newest),
        };
        let remote = |node| Remote::new(own.clone(), Arc::clone(&self.members), node, own.silence);
        let mut disks: BTreeMap<u32, Part> = others
            .into_iter()
            .map(|node| (node, part(Store::Other(Box::new(remote(node))))))
            .collect();
        disks.insert(own.node, part(Store::Mine(mine)));
        let mut vault = Vault::of(commit.clone(), disks).mending();
        let mended = vault.mend(generation, own.node, order.write, &mut |_| ());
        mended.map_err(|e| e.to_string())
    }
}

/// This node's folder: read here, written by the worker.
struct Mine {
    folder: Folder,
    generation: u64,
    worker: Sender<Work>,
}

impl Mine {
    fn change(&self, change: Change) -> io::Result<()> {
        let (done, answer) = mpsc::channel();
        let work = Work::Change { generation: self.generation, change, done };
        let gone = || io::Error::other("the node ends");
        self.worker.send(work).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

enum Store {
    Mine(Mine),
    Other(Box<Remote>),
}

/// The storage of one node of the group.
struct Part {
    store: Store,
    pace: Rc<RefCell<Pace>>,
    pass: u64,
    newest: Arc<AtomicU64>,
}

impl Part {
    fn in_time(&self) -> io::Result<()> {
        match self.pass < self.newest.load(Ordering::Relaxed) {
            true => Err(io::Error::other("another pass has begun")),
            false => Ok(()),
        }
    }

    /// Waits until so many bytes may be read, however long that is, or another pass begins.
    fn wait(&self, bytes: u64) -> io::Result<()> {
        self.in_time()?;
        let mut left = self.pace.borrow_mut().wait(bytes, Instant::now());
        while !left.is_zero() {
            let begun = Instant::now();
            std::thread::sleep(left.min(LOOK));
            left = left.saturating_sub(begun.elapsed());
            self.in_time()?;
        }
        Ok(())
    }

    fn change(&self, change: Change) -> io::Result<()> {
        match &self.store {
            Store::Mine(mine) => mine.change(change),
            Store::Other(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl Disk for Part {
    fn write_at(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.change(Change::Write { name: name.into(), at, bytes: bytes.to_vec() })
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.change(Change::Sync(name.into()))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.change(Change::Rename(from.into(), to.into()))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.change(Change::Remove(name.into()))
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.change(Change::SyncNames)
    }

    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.wait(to.len() as u64)?;
        match &self.store {
            Store::Mine(mine) => mine.folder.read_at(name, offset, to),
            Store::Other(remote) => remote.read_at(name, offset, to),
        }
    }

    fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        match &self.store {
            Store::Mine(mine) => mine.folder.bytes(name),
            Store::Other(remote) => remote.bytes(name),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        match &self.store {
            Store::Mine(mine) => mine.folder.names(),
            Store::Other(remote) => remote.names(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vault::worker::Worker;
    use eyrie_control::auth::Key;
    use eyrie_tls::{Routes, Secret};
    use eyrie_vault::layout::Place as Site;
    use eyrie_vault::member::Member;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::sync::Mutex;

    const BYTES: usize = 200_000;

    /// Generation 1 of three nodes over these folders, of which node 0 is this one.
    fn made(folder: &Path) -> Commit {
        let sites: Vec<Site> = (0..3).map(Site::of).collect();
        let disk = |node: u32| Folder::create(&folder.join(node.to_string())).unwrap();
        let disks = (0..3).map(disk).collect();
        let mut vault = Vault::create([7; 16], "rs:2+1".parse().unwrap(), sites, disks).unwrap();
        vault.begin().unwrap();
        for node in 0..3 {
            vault.add(node, "image", &mut &vec![node as u8; BYTES][..]).unwrap();
        }
        vault.commit().unwrap();
        vault.generations().next().unwrap().clone()
    }

    fn own() -> Identity {
        let secret = Secret::new(Key([1; 32]), false).unwrap();
        Identity {
            job: "j".into(),
            node: 0,
            epoch: 1,
            secret,
            routes: Routes::default(),
            silence: Duration::from_secs(20),
        }
    }

    fn flip(file: &Path) {
        let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, 70_000).unwrap();
        file.write_all_at(&[byte[0] ^ 1], 70_000).unwrap();
    }

    /// That of node 0, which reaches nobody and has heard of this pass last; and what it has its
    /// worker do.
    fn place(folder: &Path, newest: u64) -> (Place, mpsc::Receiver<Work>) {
        let (worker, told) = mpsc::channel();
        let (folder, members) = (folder.join("0"), Members::default());
        (Place { folder, members, worker, newest: Arc::new(AtomicU64::new(newest)) }, told)
    }

    /// A pass by node 0, which reaches nobody, while what it writes goes to a worker that knows
    /// generation 1, or that this was dropped.
    fn passed(folder: &Path, change: impl FnOnce(&Path), dropped: bool) -> Result<Mended, String> {
        let commit = made(folder);
        change(folder);
        let mine = folder.join("0");
        let (place, told) = place(folder, 0);
        let work = std::thread::spawn(move || {
            let mut member = Member::open(Folder::open(&mine).unwrap()).unwrap().unwrap();
            if dropped {
                member.note_drop(&[1]).unwrap();
            }
            let mut worker = Worker::of(member);
            for work in told {
                if let Work::Change { generation, change, done } = work {
                    done.send(worker.change(generation, &change)).unwrap();
                }
            }
        });
        let result = place.scrub(&Order { pass: 1, commit, write: true, rate: 0, own: own() });
        drop(place);
        work.join().unwrap();
        result
    }

    #[test]
    fn what_is_sound_is_left_and_what_nobody_helps_with_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let sound = passed(dir.path(), |_| (), false).unwrap();
        assert!(sound.sound > 4 && sound.damaged == 0, "{sound:?}");
        let dir = tempfile::tempdir().unwrap();
        let bad = passed(dir.path(), |f| flip(&f.join("0/gen-1.data")), false).unwrap();
        assert_eq!((bad.damaged, bad.repaired, bad.lost), (1, 0, 1), "{bad:?}");
    }

    #[test]
    fn a_record_that_is_gone_is_written_again_but_not_of_a_generation_that_was_dropped() {
        let gone = |folder: &Path| std::fs::remove_file(folder.join("0/gen-1.commit")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        passed(dir.path(), gone, false).unwrap();
        assert!(dir.path().join("0/gen-1.commit").exists());
        let dir = tempfile::tempdir().unwrap();
        let why = passed(dir.path(), gone, true).unwrap_err();
        assert!(why.contains("was dropped"), "{why}");
        assert!(!dir.path().join("0/gen-1.commit").exists());
    }

    #[test]
    fn a_later_pass_takes_the_place_of_an_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let commit = made(dir.path());
        let (place, _told) = place(dir.path(), 2);
        let (orders, told) = mpsc::channel();
        for pass in [1, 2] {
            let commit = commit.clone();
            orders.send(Order { pass, commit, write: true, rate: 0, own: own() }).unwrap();
        }
        drop(orders);
        let said = Mutex::new(Vec::new());
        run(&place, &told, &|message| said.lock().unwrap().push(message));
        let said = said.into_inner().unwrap();
        let [FromNode::Vault { step: VaultStep::Scrubbed { pass: 2, .. }, .. }] = &said[..] else {
            panic!("{said:?}");
        };
    }

    #[test]
    fn one_that_was_overtaken_waits_for_nothing_more() {
        let dir = tempfile::tempdir().unwrap();
        let commit = made(dir.path());
        let (place, _told) = place(dir.path(), 2);
        // It would take hours.
        let order = Order { pass: 1, commit, write: false, rate: 1, own: own() };
        let found = place.scrub(&order);
        assert!(!found.as_ref().is_ok_and(|found| found.sound > 0), "{found:?}");
    }

    #[test]
    fn no_more_is_read_in_a_second_than_was_said() {
        let dir = tempfile::tempdir().unwrap();
        let commit = made(dir.path());
        let (place, _told) = place(dir.path(), 0);
        let begun = Instant::now();
        let order = Order { pass: 1, commit, write: false, rate: 400_000, own: own() };
        let found = place.scrub(&order).unwrap();
        assert_eq!(found.damaged, 0, "{found:?}");
        // Payload and half of that parity, less a burst of 256 KiB.
        let least = Duration::from_secs_f64((1.5 * BYTES as f64 - 262_144.0) / 400_000.0);
        assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    }
}
