//! `--save-to`: a state of the job goes to an object store, by a thread: its list, and what nodes
//! did not bring there by themselves.
//!
//! Kept true: the job never waits for the store, but for the last state when it ends; what cannot
//! be brought is tried again until it is, or until there is a newer one; files stay as long as they
//! are being brought, as they have names of their own; what nobody wants any more is brought no
//! further.

use crate::outside::{Daemons, Folder, files};
use eyrie_control::auth::Key as JobKey;
use eyrie_control::{JobSpec, StoredFile};
use eyrie_controller::outside::{Brought, ObjectStore};
use eyrie_controller::{Msg, Place as JobPlace, saved};
use eyrie_exchange::second_level::{self, SecondLevel as Place, Shared, StoreWay, There, Ways};
use eyrie_image::create_private_dir;
use eyrie_objects::StoreUrl as Url;
use eyrie_state::home;
use eyrie_state::saved_job::SavedJob;
use eyrie_vault::seal::Key;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// A file in the folder of images by which nodes see that it is the same.
const PROBE: &str = ".probe";
/// Where the files of a state have their other names.
const STAGED: &str = ".depot-";

/// A folder to bring, which is then removed, and what is there already.
type Staged = (PathBuf, Vec<StoredFile>);

/// The newest one, and no other.
type Next = Arc<Mutex<Option<Staged>>>;

/// What was found in the store, for an attempt of nodes to bring something there.
type Found = Arc<Mutex<Option<(u32, There)>>>;

/// Whether an attempt of nodes to bring something is over.
type Over = Arc<AtomicBool>;

/// What the thread is to do.
enum Order {
    /// Bring the folder that is next.
    Bring,
    /// Look what is there, for this attempt of nodes to bring something.
    Survey(u32, Over),
    /// The same as `Bring`, of a state of so many bytes that counts only then; tried once.
    Commit { attempt: u32, staged: Staged, bytes: u64, over: Over },
    /// Remove what is not needed any more. No node is bringing anything.
    Tidy,
    /// Nobody is to go on with the job.
    Clear,
}

impl Order {
    /// Whether nobody waits for it any more.
    fn is_over(&self) -> bool {
        match self {
            Order::Survey(_, over) | Order::Commit { over, .. } => over.load(Ordering::Relaxed),
            Order::Bring | Order::Tidy | Order::Clear => false,
        }
    }
}

/// The thread of the store, and what it is told.
#[derive(Default)]
pub(crate) struct SecondLevel {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<Result<(), String>>>,
    staged: u32,
    next: Next,
    found: Found,
    /// That of the attempt that is under way.
    over: Over,
    /// Nothing is to be brought any more.
    given_up: Arc<AtomicBool>,
    /// Nobody is to go on with the job: nothing of it is to stay there.
    clears: bool,
    /// Nor is that waited for.
    left: Arc<AtomicBool>,
}

impl SecondLevel {
    /// Setting this gives up what is being brought, or removed.
    pub fn given_up(&self) -> Arc<AtomicBool> {
        Arc::clone(if self.clears { &self.left } else { &self.given_up })
    }

    /// Waits for the last state. `Err`: it could not be brought.
    pub fn close(mut self) -> Result<(), String> {
        // No node brings anything any more.
        let clear = self.orders.take().filter(|_| self.clears);
        clear.iter().for_each(|orders| drop(orders.send(Order::Clear)));
        drop(clear);
        let ended = self.thread.take().map_or(Ok(Ok(())), JoinHandle::join);
        ended.unwrap_or_else(|_| Err(String::from("its thread failed")))
    }
}

/// The place of a job in an object store.
pub(crate) struct Store {
    id: String,
    folder: PathBuf,
    /// `--save-to`.
    save_to: Option<String>,
    rate: u64,
    /// Between two attempts to bring the same.
    retry: Duration,
    /// The file with the key.
    key: Option<String>,
    daemons: Rc<Daemons>,
    tell: UnboundedSender<Msg>,
    second_level: RefCell<SecondLevel>,
}

impl Store {
    pub fn new(
        place: &JobPlace,
        spec: &JobSpec,
        daemons: Rc<Daemons>,
        tell: UnboundedSender<Msg>,
    ) -> Store {
        Store {
            id: place.id.clone(),
            folder: place.folder.clone(),
            save_to: spec.storage.save_to.clone(),
            rate: spec.storage.save_rate_bytes,
            retry: Duration::from_millis(spec.timing.intervals.retries.write_ms),
            key: spec.security.save_key.clone(),
            daemons,
            tell,
            second_level: RefCell::default(),
        }
    }

    /// At the end of the job: what is left to do for it.
    pub fn take(&self) -> SecondLevel {
        self.second_level.take()
    }

    fn begin(&self) -> io::Result<()> {
        let mut second_level = self.second_level.borrow_mut();
        if second_level.orders.is_none() {
            let url = self.save_to.as_deref().unwrap_or_default();
            let url = Url::parse(url).map_err(io::Error::other)?.below(&self.id);
            let (rate, tell, key) = (self.rate, self.tell.clone(), self.key.clone());
            let (orders, ordered) = mpsc::channel();
            let (given_up, left) =
                (Arc::clone(&second_level.given_up), Arc::clone(&second_level.left));
            let (next, found) = (Arc::clone(&second_level.next), Arc::clone(&second_level.found));
            let retry = self.retry;
            let way = Way { url, rate, key, given_up, left, next, found, retry };
            let work = move || serve(&way, &ordered, &tell);
            let name = String::from("eyrie-2nd-level");
            second_level.thread = Some(std::thread::Builder::new().name(name).spawn(work)?);
            second_level.orders = Some(orders);
        }
        Ok(())
    }

    fn order(&self, order: Order) -> io::Result<()> {
        self.begin()?;
        let second_level = self.second_level.borrow();
        let gone = || io::Error::other("the thread for the object store is gone");
        second_level.orders.as_ref().and_then(|o| o.send(order).ok()).ok_or_else(gone)
    }

    /// Gives the files of a state that are in the job's folder other names, under which they stay.
    fn stage(&self, state: &SavedJob) -> io::Result<PathBuf> {
        let mut second_level = self.second_level.borrow_mut();
        second_level.staged += 1;
        let folder = &self.folder;
        let staged = folder.join(format!("{STAGED}{}", second_level.staged));
        // Of a controller that is dead.
        let _ = fs::remove_dir_all(&staged);
        create_private_dir(&staged)?;
        let (from, images) = (folder.join(home::IMAGES), staged.join(home::IMAGES));
        create_private_dir(&images)?;
        let stored = saved::stored_ranks(state);
        let mut needed = saved::needed(&state.ranks);
        needed.retain(|(rank, _)| !stored.contains(rank));
        for name in files::names(&from, &needed)? {
            fs::hard_link(from.join(&name), images.join(&name))?;
        }
        // These are written on.
        for name in [home::STDIN, home::PRINTED] {
            match fs::copy(folder.join(name), staged.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(staged)
    }

    /// Writes a file by which nodes see whether they see the job's folder.
    fn write_probe(&self) -> io::Result<Shared> {
        let images = self.folder.join(home::IMAGES);
        let content = eyrie_vault::disk::random()?;
        eyrie_image::write_private(&images.join(PROBE), &content)?;
        let folder = images.as_os_str().as_bytes().to_vec();
        Ok(Shared { folder, probe: String::from(PROBE), content })
    }

    /// What was found in the store for this attempt.
    fn found(&self, attempt: u32) -> Option<There> {
        let second_level = self.second_level.borrow();
        let mut found = second_level.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.take_if(|(at, _)| *at == attempt).map(|(_, there)| there)
    }

    fn sealed_ways(
        &self,
        job: &JobKey,
        there: Option<&There>,
        ranks: &BTreeMap<u32, Vec<u32>>,
    ) -> Vec<(u32, Vec<u8>)> {
        let store = there.and_then(|_| {
            let way = StoreWay::new(&self.place(), self.key.as_deref());
            way.map_err(|error| tracing::warn!(%error, "nodes do not reach the store")).ok()
        });
        let folder = self.write_probe();
        let folder = folder.map_err(|error| tracing::warn!(%error, "nodes get no probe")).ok();
        // All of them together send no more than that.
        let share = self.rate.div_ceil(ranks.len().max(1) as u64);
        let mut all = Vec::new();
        for (node, ranks) in ranks {
            let there = there.map(|all| all.of_ranks(|rank| ranks.contains(&rank)));
            let (store, folder) = (store.clone(), folder.clone());
            let there = there.unwrap_or_default();
            match (Ways { store, rate_bytes: share, there, folder }).sealed(job) {
                Ok(sealed) => all.push((*node, sealed)),
                Err(error) => tracing::warn!(%error, "images go through the controller"),
            }
        }
        all
    }
}

impl ObjectStore for Store {
    fn place(&self) -> String {
        let text = self.save_to.as_deref().unwrap_or_default();
        let place = Url::parse(text).map(|place| place.below(&self.id).to_string());
        place.unwrap_or_else(|_| format!("{text}/{}", self.id))
    }

    fn bring(&self) -> io::Result<()> {
        let mut state = SavedJob::read(&self.folder).map_err(io::Error::other)?;
        saved::settle(&mut state, &Folder::new(&self.folder, self.tell.clone()));
        let staged = self.stage(&state)?;
        fs::hard_link(self.folder.join(home::SAVED), staged.join(home::SAVED))?;
        let files = state.stored.map(|stored| stored.files).unwrap_or_default();
        let next = Arc::clone(&self.second_level.borrow().next);
        let old = next.lock().unwrap_or_else(PoisonError::into_inner).replace((staged, files));
        old.iter().for_each(remove);
        self.order(Order::Bring)
    }

    fn survey(&self, attempt: u32) -> io::Result<()> {
        let over = Arc::clone(&self.second_level.borrow().over);
        self.order(Order::Survey(attempt, over))
    }

    fn end_attempt(&self) {
        let over = std::mem::take(&mut self.second_level.borrow_mut().over);
        over.store(true, Ordering::Relaxed);
    }

    fn commit(&self, attempt: u32, bytes: u64, state: &SavedJob) -> io::Result<()> {
        let staged = self.stage(state)?;
        state.write(&staged)?;
        let files = state.stored.iter().flat_map(|stored| stored.files.iter().cloned()).collect();
        let over = Arc::clone(&self.second_level.borrow().over);
        self.order(Order::Commit { attempt, staged: (staged, files), bytes, over })
    }

    fn tidy(&self) -> io::Result<()> {
        self.order(Order::Tidy)
    }

    fn clear(&self) {
        self.second_level.borrow().given_up.store(true, Ordering::Relaxed);
        // When the last node has ended.
        let clears = self.begin().is_ok();
        self.second_level.borrow_mut().clears = clears;
    }

    fn ways(
        &self,
        attempt: u32,
        stored: bool,
        ranks: &BTreeMap<u32, Vec<u32>>,
    ) -> Vec<(u32, Vec<u8>)> {
        let Some(job) = self.daemons.secret() else { return Vec::new() };
        let there = stored.then(|| self.found(attempt)).flatten();
        self.sealed_ways(&job, there.as_ref(), ranks)
    }
}

/// The way to the store.
struct Way {
    url: Url,
    rate: u64,
    /// The file with the key.
    key: Option<String>,
    given_up: Arc<AtomicBool>,
    left: Arc<AtomicBool>,
    next: Next,
    /// Between two attempts to bring the same.
    retry: Duration,
    found: Found,
}

impl Way {
    /// `heeds`: once one of these is true it is given up.
    fn open(&self, heeds: &[&Arc<AtomicBool>]) -> Result<Place, String> {
        let key = self.key.as_ref().map(|path| Key::read(Path::new(path)));
        let named = |e| format!("{}: {e}", self.key.as_deref().unwrap_or_default());
        let key = key.transpose().map_err(named)?;
        let place = Place::open(self.url.clone(), Some(self.rate), key);
        let mut place = place.map_err(|e| e.to_string())?;
        heeds.iter().for_each(|it| place.heed(Arc::clone(it)));
        Ok(place)
    }

    /// Brings a state. What was there before and is not needed goes at once.
    fn bring(&self, (staged, files): &Staged) -> Result<Brought, String> {
        let mut place = self.open(&[&self.given_up])?;
        let brought = place.bring(staged, files.clone()).map_err(|e| e.to_string())?;
        let brought = tally(brought);
        // A failure here costs room only, until the next time.
        let _ = place.tidy();
        Ok(brought)
    }

    /// What is tried once, and told.
    fn carry_out(&self, order: Order, tell: &UnboundedSender<Msg>) {
        let is_over = order.is_over();
        let told = match order {
            Order::Survey(..) if is_over => return,
            Order::Commit { staged, .. } if is_over => return remove(&staged),
            Order::Survey(attempt, over) => {
                let place = self.open(&[&self.given_up, &over]);
                let there = place.and_then(|mut p| p.show().map_err(|e| e.to_string()));
                let keep = |there| {
                    let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                    *found = Some((attempt, there));
                };
                Msg::Surveyed { attempt, result: there.map(keep) }
            }
            Order::Commit { attempt, staged, bytes, over } => {
                let place = self.open(&[&self.given_up, &over]);
                let files = staged.1.clone();
                let brought = |mut p: Place| p.bring(&staged.0, files).map_err(|e| e.to_string());
                let result = place.and_then(brought).map(tally);
                remove(&staged);
                Msg::Committed { attempt, bytes, result }
            }
            Order::Tidy => {
                let place = self.open(&[&self.given_up]);
                let tidied = place.and_then(|mut p| p.tidy().map_err(|e| e.to_string()));
                tidied.unwrap_or_else(|why| tracing::warn!("{} is not tidied: {why}", self.url));
                return;
            }
            Order::Bring | Order::Clear => return,
        };
        // Whoever gave it up knows.
        if !self.given_up.load(Ordering::Relaxed) {
            let _ = tell.send(told);
        }
    }

    fn clear(&self) -> Result<(), String> {
        let place = self.open(&[&self.left]);
        let cleared = place.and_then(|mut p| p.clear().map_err(|e| e.to_string()));
        cleared.map_err(|why| format!("what {} has is not removed: {why}", self.url))
    }
}

/// Carries out orders until there are no more, the newest state only. `Err`: the last one is not
/// in the store.
fn serve(way: &Way, orders: &Receiver<Order>, tell: &UnboundedSender<Msg>) -> Result<(), String> {
    let mut waiting: Option<Staged> = None;
    loop {
        let order = match &waiting {
            Some(_) => orders.recv_timeout(way.retry),
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let over = matches!(order, Err(RecvTimeoutError::Disconnected));
        let mut clear = false;
        for order in order.into_iter().chain(orders.try_iter()) {
            match order {
                Order::Bring => {
                    let newest = way.next.lock().unwrap_or_else(PoisonError::into_inner).take();
                    // None: it was taken with the order before.
                    if newest.is_some() {
                        std::mem::replace(&mut waiting, newest).iter().for_each(remove);
                    }
                }
                Order::Clear => {
                    waiting.take().iter().for_each(remove);
                    clear = true;
                }
                once => {
                    if !once.is_over() {
                        // A newer state is on its way, and what nodes bring of it is named by no
                        // list.
                        waiting.take().iter().for_each(remove);
                    }
                    way.carry_out(once, tell);
                }
            }
        }
        if clear {
            way.clear()?;
        }
        let mut result = Ok(());
        if let Some(staged) = waiting.take() {
            let brought = way.bring(&staged);
            result = brought.as_ref().map(|_| ()).map_err(String::clone);
            if result.is_ok() || over {
                remove(&staged);
            } else {
                waiting = Some(staged);
            }
            // Whoever gave it up knows.
            if !way.given_up.load(Ordering::Relaxed) {
                let _ = tell.send(Msg::InDepot { result: brought });
            }
        }
        if over {
            return result;
        }
    }
}

/// As the controller is told of it.
fn tally(brought: second_level::Brought) -> Brought {
    let second_level::Brought { bytes, sent_bytes } = brought;
    Brought { bytes, sent_bytes }
}

fn remove(staged: &Staged) {
    let _ = fs::remove_dir_all(&staged.0);
}
