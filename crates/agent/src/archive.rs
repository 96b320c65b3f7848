//! The archive, which the controller keeps for a job that is saved as a whole, and the object store
//! beside it: images are brought there from here, past the controller where there is a way.
//!
//! Kept true: what is brought of a rank is all that it did; a damaged image is not brought; what
//! cannot go past the controller goes through it; what is not wanted any more is brought no
//! further.

use super::Agent;
use super::consistent_cut::recorded;
use super::network::bring;
use super::state::deposits::Offered;
use eyrie_control::node::{Choice, FromNode};
use eyrie_control::{Delivered, StoredFile, Way};
use eyrie_exchange::image_check::check_image;
use eyrie_exchange::image_files;
use eyrie_exchange::lazy_fetch;
use eyrie_exchange::second_level::{Carrier, SecondLevelError, Shared, StoreWay, Ways};
use eyrie_exchange::store_protocol::{Identity, Members};
use eyrie_objects::RateLimit;
use eyrie_process::stop_points;
use eyrie_protocol::recovery::ARCHIVE;
use eyrie_state::home;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// How much is copied before it is asked whether it is still wanted.
const PIECE_BYTES: u64 = 64 << 20;
/// The images of a rank on their way.
struct Deposit {
    own: Identity,
    members: Members,
    images: PathBuf,
    rank: u32,
    generations: Vec<u32>,
    offered: Option<Arc<Offered>>,
    given_up: Arc<AtomicBool>,
}

/// What was brought, but for what was recorded.
type Brought = (Way, Option<String>, Vec<StoredFile>, u64);

impl Agent {
    /// The archive is here from now on.
    pub(super) fn set_archive(&mut self, at: SocketAddr) {
        let Some(network) = &mut self.network else { return };
        let archive = (ARCHIVE.node, ARCHIVE.epoch, at);
        network.archive = Some(archive);
        let mut members = network.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|m| m.0 != ARCHIVE.node);
        members.push(archive);
    }

    /// These ways past the controller are there.
    pub(super) fn take_ways(&mut self, attempt: u32, sealed: &[u8]) {
        self.end_deposits();
        let Some(network) = &self.network else { return };
        match Ways::open(network.own.secret.key(), sealed) {
            Ok(ways) => {
                let pace = RateLimit::new(Some(ways.rate_bytes));
                self.images.deposits.ways = Some((attempt, Arc::new(Offered { ways, pace })));
            }
            Err(error) => tracing::warn!(%error, "images go through the controller"),
        }
    }

    /// What is being brought is not wanted any more.
    pub(super) fn end_deposits(&mut self) {
        let given_up = std::mem::take(&mut self.images.deposits.given_up);
        given_up.store(true, Ordering::Relaxed);
        self.images.deposits.ways = None;
    }

    /// The same at the end of this node: nothing may come to a store behind it.
    pub(super) fn await_deposits(&mut self) {
        self.end_deposits();
        self.images.deposits.turns.wait();
    }

    /// Brings what is here of a rank to the archive.
    pub(super) fn deposit(&mut self, attempt: u32, rank: u32, generations: Vec<u32>) {
        let told = move |result| FromNode::Deposited { attempt, rank, result };
        let Some(network) = &self.network else { return };
        let offered = self.images.deposits.ways.as_ref().filter(|(number, _)| *number == attempt);
        let deposit = Deposit {
            own: network.own.clone(),
            members: Arc::clone(&network.members),
            images: self.place.images.clone(),
            rank,
            generations,
            offered: offered.map(|(_, offered)| Arc::clone(offered)),
            given_up: Arc::clone(&self.images.deposits.given_up),
        };
        let (job, size) = (self.place.id.clone(), self.size());
        let (turns, out) = (Arc::clone(&self.images.deposits.turns), Arc::clone(&self.out));
        let determinants = recorded(&self.segment, rank);
        let work = move || {
            let turn = turns.take();
            let brought = deposit.carry_out(&job, size);
            drop(turn);
            out(told(brought.map(|(way, why, files, sent_bytes)| {
                Box::new(Delivered { determinants, way, why, files, sent_bytes })
            })));
        };
        let thread = std::thread::Builder::new().name(String::from("eyrie-deposit"));
        if let Err(error) = thread.spawn(work) {
            self.say(told(Err(error.to_string())));
        }
    }
}

/// What became of the attempt to go past the controller.
enum Past {
    Brought(Brought),
    /// That cannot be, for this reason.
    NoWay(String),
}

/// Whether a folder is closed to this node, and may be open to the controller.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem, StaleNetworkFileHandle};
    let closed = [NotFound, PermissionDenied, ReadOnlyFilesystem, StaleNetworkFileHandle];
    closed.contains(&error.kind())
}

impl Deposit {
    fn carry_out(&self, job: &str, size: u32) -> Result<Brought, String> {
        self.still_wanted()?;
        let newest = self.generations.last().copied().unwrap_or(0);
        lazy_fetch::settle(&self.images, self.rank, &self.generations);
        match check_image(&self.images, job, self.rank, newest, size) {
            Choice::Refused { why, .. } | Choice::Unfit(why) => {
                return Err(format!("its checkpoint {newest}: {why}"));
            }
            _ => {}
        }
        stop_points::reach("store-0");
        let mut why = None;
        if let Some(offered) = &self.offered {
            match self.past(offered)? {
                Past::Brought(brought) => return Ok(brought),
                Past::NoWay(text) => why = Some(text),
            }
        }
        self.still_wanted()?;
        let generations = self.generations.iter().copied();
        bring(&self.own, &self.members, &self.images, self.rank, generations, ARCHIVE.node)
            .map_err(|e| e.to_string())?;
        Ok((Way::Controller, why, Vec::new(), 0))
    }

    fn still_wanted(&self) -> Result<(), String> {
        match self.given_up.load(Ordering::Relaxed) {
            true => Err(String::from("it is not wanted any more")),
            false => Ok(()),
        }
    }

    /// Brings it past the controller, if it can. An error would be the same through that.
    fn past(&self, offered: &Offered) -> Result<Past, String> {
        let mut why = None;
        if let Some(way) = &offered.ways.store {
            match self.send(way, offered) {
                Ok(brought) => return Ok(Past::Brought(brought)),
                Err(error) => why = Some(error),
            }
            self.still_wanted()?;
        }
        let shared = offered.ways.folder.as_ref().map(|shared| self.to_folder(shared));
        let error = match shared {
            Some(Ok(())) => return Ok(Past::Brought((Way::Folder, why, Vec::new(), 0))),
            Some(Err(error)) if !is_closed(&error) => return Err(error.to_string()),
            Some(Err(error)) => error.to_string(),
            None => String::from("no other way is known"),
        };
        Ok(Past::NoWay(why.unwrap_or(error)))
    }

    fn send(&self, way: &StoreWay, offered: &Offered) -> Result<Brought, String> {
        let mut carrier = way.carrier(offered.pace.clone()).map_err(|e| e.to_string())?;
        carrier.heed(Arc::clone(&self.given_up));
        carrier.reach().map_err(|e| e.to_string())?;
        carrier.is_that(&offered.ways.there).map_err(|e| e.to_string())?;
        self.to_store(&mut carrier, offered).map_err(|e| e.to_string())
    }

    /// Names of all files.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for generation in &self.generations {
            let all = image_files::all(&self.images, self.rank, *generation);
            names.extend(all.map_err(io::Error::other)?);
        }
        Ok(names)
    }

    fn to_store(
        &self,
        carrier: &mut Carrier,
        offered: &Offered,
    ) -> Result<Brought, SecondLevelError> {
        let failed = |e| SecondLevelError::File(self.images.clone(), e);
        let (mut files, mut sent_bytes) = (Vec::new(), 0);
        for name in self.names().map_err(failed)? {
            let path = self.images.join(&name);
            let name = format!("{}/{name}", home::IMAGES);
            let (file, sent) = carrier.bring(&name, &path, &offered.ways.there)?;
            files.push(file);
            sent_bytes += sent;
        }
        Ok((Way::Store, None, files, sent_bytes))
    }

    /// Writes into the job's folder, if that is the same here as at the controller.
    fn to_folder(&self, shared: &Shared) -> io::Result<()> {
        let folder = Path::new(OsStr::from_bytes(&shared.folder));
        let text = "this node does not see the job's folder";
        let other = || io::Error::new(io::ErrorKind::NotFound, text);
        let found = fs::read(folder.join(&shared.probe)).map_err(|_| other())?;
        if found != shared.content {
            return Err(other());
        }
        for name in self.names()? {
            self.copy_in(folder, &name)?;
        }
        File::open(folder)?.sync_all()
    }

    /// Copies a file there, unless it is there: a generation of a rank is written once.
    fn copy_in(&self, folder: &Path, name: &str) -> io::Result<()> {
        let (from, to) = (self.images.join(name), folder.join(name));
        let bytes = fs::metadata(&from)?.len();
        if fs::metadata(&to).is_ok_and(|there| there.len() == bytes) {
            return Ok(());
        }
        // An attempt that was given up may not have ended yet: each has a file of its own.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (node, epoch) = (self.own.node, self.own.epoch);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let unborn = folder.join(format!(".{name}.of-{node}-{epoch}-{count}.part"));
        let copied = self.copy(&from, &unborn).and_then(|copied| match copied == bytes {
            true => fs::rename(&unborn, &to),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        });
        if copied.is_err() {
            let _ = fs::remove_file(&unborn);
        }
        copied
    }

    /// Copies a file, as long as it is wanted. Returns how long it is.
    fn copy(&self, from: &Path, to: &Path) -> io::Result<u64> {
        let (mut from, mut to) = (eyrie_image::open_plain(from)?, eyrie_image::create_private(to)?);
        to.set_permissions(from.metadata()?.permissions())?;
        let mut bytes = 0;
        loop {
            self.still_wanted().map_err(io::Error::other)?;
            let count = io::copy(&mut Read::by_ref(&mut from).take(PIECE_BYTES), &mut to)?;
            if count == 0 {
                break;
            }
            bytes += count;
        }
        to.sync_all()?;
        self.still_wanted().map_err(io::Error::other)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::deposits::ENDING;
    use super::*;
    use eyrie_control::auth::Key;
    use eyrie_tls::{Routes, Secret};

    #[test]
    fn what_is_given_up_leaves_nothing_in_the_folder() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let name = "rank-0.gen-1";
        fs::write(here.path().join(name), [7u8; 100]).unwrap();
        let secret = Secret::new(Key::new().unwrap(), false).unwrap();
        let routes = Routes::default();
        let given_up = Arc::new(AtomicBool::new(true));
        let deposit = Deposit {
            own: Identity {
                job: "jobs".into(),
                node: 3,
                epoch: 1,
                secret,
                routes,
                silence: ENDING,
            },
            members: Members::default(),
            images: here.path().into(),
            rank: 0,
            generations: vec![1],
            offered: None,
            given_up: Arc::clone(&given_up),
        };
        let left = || fs::read_dir(there.path()).unwrap().count();
        assert!(deposit.copy_in(there.path(), name).is_err());
        assert_eq!(left(), 0);
        given_up.store(false, Ordering::Relaxed);
        deposit.copy_in(there.path(), name).unwrap();
        assert_eq!(fs::read(there.path().join(name)).unwrap(), [7u8; 100]);
        // One that is not whole is none.
        fs::write(there.path().join(name), b"x").unwrap();
        deposit.copy_in(there.path(), name).unwrap();
        assert_eq!((fs::read(there.path().join(name)).unwrap().len(), left()), (100, 1));
    }
}
