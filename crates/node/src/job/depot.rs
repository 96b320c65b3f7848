//! `--save-to`: a state of the job goes to an object store, by a thread: its list, and what nodes
//! did not bring there by themselves.
//!
//! Kept true: the job never waits for the store, but for the last state when it ends, and for a
//! moment before nodes bring something; what cannot be brought is told, and tried again until it
//! is, or until there is a newer one; files stay as long as they are being brought, as they have
//! names of their own; what nobody wants any more is brought no further.

use super::{Job, Msg, archive};
use crate::depot::{Brought, Depot as Place, There};
use crate::home;
use crate::saved::SavedJob;
use eyrie_control::{EventKind, SavedTo, StoredFile};
use eyrie_image::create_private_dir;
use eyrie_objects::Place as Url;
use eyrie_vault::seal::Key;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::UnboundedSender;

/// Between two attempts to bring the same.
const RETRY: Duration = Duration::from_secs(5);
/// How long nodes wait until it is known what is in the store. It may not answer, or a state may be
/// on its way there for hours.
const SURVEYING: Duration = Duration::from_secs(10);
/// Where the files of a state have their other names.
const STAGED: &str = ".depot-";

/// A folder to bring, which is then removed, and what is there already.
type Staged = (PathBuf, Vec<StoredFile>);

/// The newest one, and no other.
type Next = Arc<Mutex<Option<Staged>>>;

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

/// The states of the job in an object store.
#[derive(Default)]
pub struct Depot {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<Result<(), String>>>,
    staged: u32,
    next: Next,
    /// That of the attempt that is under way.
    over: Over,
    /// The last of a state could not be brought, of which nodes had brought the rest: until it has
    /// a state again they bring it to the folder.
    pub(super) refuses: bool,
    told: Option<String>,
    /// When the newest one was there.
    unix_ms: Option<u64>,
    /// Nothing is to be brought any more.
    given_up: Arc<AtomicBool>,
    /// Nobody is to go on with the job: nothing of it is to stay there.
    clears: bool,
    /// Nor is that waited for.
    left: Arc<AtomicBool>,
}

impl Depot {
    /// Setting this gives up what is being brought, or removed.
    pub fn given_up(&self) -> Arc<AtomicBool> {
        Arc::clone(if self.clears { &self.left } else { &self.given_up })
    }

    /// What is to be done for what nodes bring is not wanted any more.
    pub(super) fn end_attempt(&mut self) {
        std::mem::take(&mut self.over).store(true, Ordering::Relaxed);
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

impl Job {
    /// Has what lies in the job's folder brought to the store.
    pub(super) fn bring_to_depot(&mut self) {
        if self.spec.save_to.is_none() {
            return;
        }
        if let Err(error) = self.order_brought() {
            self.depot_failed(&error.to_string());
        }
    }

    fn order_brought(&mut self) -> io::Result<()> {
        let mut state = SavedJob::read(&self.place.folder).map_err(io::Error::other)?;
        archive::settle(&mut state, &self.place.folder);
        let staged = self.stage(&state)?;
        fs::hard_link(self.place.folder.join(home::SAVED), staged.join(home::SAVED))?;
        let files = state.stored.map(|stored| stored.files).unwrap_or_default();
        let next = Arc::clone(&self.flush.depot.next);
        let old = next.lock().unwrap_or_else(PoisonError::into_inner).replace((staged, files));
        old.iter().for_each(remove);
        self.order_depot(Order::Bring)
    }

    /// Has the store looked at, before nodes bring something there. Whether that is done.
    pub(super) fn survey_depot(&mut self, attempt: u32) -> bool {
        let over = Arc::clone(&self.flush.depot.over);
        let ordered = self.order_depot(Order::Survey(attempt, over));
        if let Err(error) = ordered {
            self.depot_failed(&error.to_string());
            return false;
        }
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(SURVEYING).await;
            let _ = tell.send(Msg::SurveyLate { attempt });
        });
        true
    }

    /// The store had time to answer: else what is brought goes to the folder.
    pub(super) fn survey_late(&mut self, attempt: u32) {
        if self.flush.awaits_survey(attempt) {
            self.flush.depot.end_attempt();
            self.order_deposits(attempt, None);
        }
    }

    /// It was looked at, or does not answer: then what is brought goes to the folder.
    pub(super) fn surveyed(&mut self, attempt: u32, result: Result<Box<There>, String>) {
        if let Err(why) = &result {
            self.depot_failed(why);
        }
        self.order_deposits(attempt, result.ok().map(|there| *there));
    }

    /// Has a state of so many bytes committed there of which nodes have brought parts.
    pub(super) fn commit_in_depot(
        &mut self,
        attempt: u32,
        bytes: u64,
        state: &SavedJob,
    ) -> io::Result<()> {
        self.input.sync()?;
        let staged = self.stage(state)?;
        state.write(&staged)?;
        let files = state.stored.iter().flat_map(|stored| stored.files.iter().cloned()).collect();
        let over = Arc::clone(&self.flush.depot.over);
        self.order_depot(Order::Commit { attempt, staged: (staged, files), bytes, over })
    }

    /// It is there, or is not.
    pub(super) fn committed(&mut self, attempt: u32, bytes: u64, result: Result<Brought, String>) {
        if !self.flush.is_at(attempt) {
            return;
        }
        let sent = self.flush.sent_bytes();
        let result = result.map(|brought| {
            let sent_bytes = brought.sent_bytes + sent;
            self.in_depot(Ok(Brought { sent_bytes, ..brought }));
            bytes
        });
        if let Err(why) = &result {
            self.flush.depot.refuses = true;
            self.depot_failed(why);
        }
        self.flushed_to_depot(attempt, result);
    }

    pub(super) fn tidy_depot(&mut self) {
        // It costs room only if it is not done.
        let _ = self.order_depot(Order::Tidy);
    }

    /// Nobody is to go on with the job.
    pub(super) fn clear_depot(&mut self) {
        if self.spec.save_to.is_some() {
            self.flush.depot.given_up.store(true, Ordering::Relaxed);
            // When the last node has ended.
            self.flush.depot.clears = self.begin_depot().is_ok();
        }
    }

    /// The place of this job alone.
    pub(super) fn depot_place(&self) -> String {
        format!("{}/{}", self.spec.save_to.as_deref().unwrap_or_default(), self.place.id)
    }

    fn begin_depot(&mut self) -> io::Result<()> {
        if self.flush.depot.orders.is_none() {
            let url = self.spec.save_to.as_deref().unwrap_or_default();
            let url = Url::parse(url).map_err(io::Error::other)?.below(&self.place.id);
            let (rate, tell) = (self.spec.save_rate_bytes, self.tell.clone());
            let (orders, ordered) = mpsc::channel();
            let key = self.spec.save_key.clone();
            let Depot { given_up, left, next, .. } = &self.flush.depot;
            let (given_up, left) = (Arc::clone(given_up), Arc::clone(left));
            let next = Arc::clone(next);
            let way = Way { url, rate, key, given_up, left, next };
            let work = move || serve(&way, &ordered, &tell);
            let name = String::from("eyrie-depot");
            self.flush.depot.thread = Some(std::thread::Builder::new().name(name).spawn(work)?);
            self.flush.depot.orders = Some(orders);
        }
        Ok(())
    }

    fn order_depot(&mut self, order: Order) -> io::Result<()> {
        self.begin_depot()?;
        let orders = self.flush.depot.orders.as_ref();
        let gone = || io::Error::other("the thread for the object store is gone");
        orders.and_then(|o| o.send(order).ok()).ok_or_else(gone)
    }

    /// Gives the files of a state that are in the job's folder other names, under which they stay.
    fn stage(&mut self, state: &SavedJob) -> io::Result<PathBuf> {
        self.flush.depot.staged += 1;
        let folder = &self.place.folder;
        let staged = folder.join(format!("{STAGED}{}", self.flush.depot.staged));
        // Of a controller that is dead.
        let _ = fs::remove_dir_all(&staged);
        create_private_dir(&staged)?;
        let (from, images) = (folder.join(home::IMAGES), staged.join(home::IMAGES));
        create_private_dir(&images)?;
        let stored = archive::stored_ranks(state);
        let mut needed = archive::needed(&state.ranks);
        needed.retain(|(rank, _)| !stored.contains(rank));
        for name in archive::names(&from, &needed)? {
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

    /// A state is in the store, or not yet.
    pub(super) fn in_depot(&mut self, result: Result<Brought, String>) {
        let brought = match result {
            Ok(brought) => brought,
            Err(why) => return self.depot_failed(&why),
        };
        (self.flush.depot.told, self.flush.depot.refuses) = (None, false);
        self.flush.depot.unix_ms = Some(super::books::unix_ms(SystemTime::now()));
        let mut event = self.event(EventKind::Stored);
        event.bytes = Some(brought.bytes);
        event.text = format!("{} bytes of it were sent", brought.sent_bytes);
        self.log_event(event);
    }

    fn depot_failed(&mut self, why: &str) {
        if self.flush.depot.told.as_deref() != Some(why) {
            let to = self.spec.save_to.clone().unwrap_or_default();
            self.say(format!("{to} does not get a newer state of the job, for now: {why}"));
            self.flush.depot.told = Some(why.to_string());
        }
    }

    pub(super) fn saved_to(&self) -> Option<SavedTo> {
        self.spec.save_to.as_ref()?;
        Some(SavedTo {
            place: self.depot_place(),
            unix_ms: self.flush.depot.unix_ms,
            error: self.flush.depot.told.clone(),
            has_images: self.archive.has_stored(),
        })
    }

    /// At the end of the job: what is left to do for it.
    pub fn take_depot(&mut self) -> Depot {
        std::mem::take(&mut self.flush.depot)
    }

    /// The last state could not be brought.
    pub fn depot_lacks(&mut self, why: &str) {
        self.depot_failed(why);
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
                Msg::Surveyed { attempt, result: there.map(Box::new) }
            }
            Order::Commit { attempt, staged, bytes, over } => {
                let place = self.open(&[&self.given_up, &over]);
                let files = staged.1.clone();
                let brought = |mut p: Place| p.bring(&staged.0, files).map_err(|e| e.to_string());
                let result = place.and_then(brought);
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
            Some(_) => orders.recv_timeout(RETRY),
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

fn remove(staged: &Staged) {
    let _ = fs::remove_dir_all(&staged.0);
}
