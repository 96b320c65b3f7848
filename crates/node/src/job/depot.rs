//! `--save-to`: a state of the job goes to an object store, by a thread: its list, and what nodes
//! did not bring there by themselves.
//!
//! Kept true: the job never waits for the store, but for the last state when it ends; what cannot
//! be brought is told, and tried again until it is, or until there is a newer one; files stay as
//! long as they are being brought, as they have names of their own; what nobody wants any more is
//! brought no further.

use super::{Job, Msg, archive};
use crate::depot::{Brought, Depot as Place, There};
use crate::home;
use crate::saved::SavedJob;
use eyrie_control::{EventKind, SavedTo, StoredFile};
use eyrie_objects::Place as Url;
use eyrie_vault::seal::Key;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::UnboundedSender;

/// Between two attempts to bring the same.
const RETRY: Duration = Duration::from_secs(5);
/// Where the files of a state have their other names.
const STAGED: &str = ".depot-";

/// What the thread is to do.
#[derive(PartialEq)]
enum Order {
    /// Bring this folder, which is then removed, with what is there already.
    Bring(PathBuf, Vec<StoredFile>),
    /// Look what is there, for this attempt of nodes to bring something.
    Survey(u32),
    /// The same as `Bring`, of a state of so many bytes that counts only then; tried once.
    Commit { attempt: u32, staged: PathBuf, files: Vec<StoredFile>, bytes: u64 },
    /// Remove what is not needed any more. No node is bringing anything.
    Tidy,
    /// Nobody is to go on with the job.
    Clear,
}

/// The states of the job in an object store.
#[derive(Default)]
pub struct Depot {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<Result<(), String>>>,
    staged: u32,
    told: Option<String>,
    /// When the newest one was there.
    unix_ms: Option<u64>,
    /// Nothing is to be brought any more.
    given_up: Arc<AtomicBool>,
    /// Nobody is to go on with the job: nothing of it is to stay there.
    clears: bool,
}

impl Depot {
    /// Setting this gives up what is being brought.
    pub fn given_up(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.given_up)
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
        let state = SavedJob::read(&self.place.folder).map_err(io::Error::other)?;
        let staged = self.stage(&state)?;
        fs::hard_link(self.place.folder.join(home::SAVED), staged.join(home::SAVED))?;
        let files = state.stored.map(|stored| stored.files).unwrap_or_default();
        self.order_depot(Order::Bring(staged, files))
    }

    /// Has the store looked at, before nodes bring something there. Whether that is done.
    pub(super) fn survey_depot(&mut self, attempt: u32) -> bool {
        let ordered = self.order_depot(Order::Survey(attempt));
        ordered.map_err(|error| self.depot_failed(&error.to_string())).is_ok()
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
        self.order_depot(Order::Commit { attempt, staged, files, bytes })
    }

    /// It is there, or is not.
    pub(super) fn committed(&mut self, attempt: u32, bytes: u64, result: Result<Brought, String>) {
        let sent = self.flush.sent_bytes();
        let result = result.map(|brought| {
            let sent_bytes = brought.sent_bytes + sent;
            self.in_depot(Ok(Brought { sent_bytes, ..brought }));
            bytes
        });
        if let Err(why) = &result {
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
            let way = Way { url, rate, key, given_up: self.flush.depot.given_up() };
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
        fs::create_dir(&staged)?;
        let (from, images) = (folder.join(home::IMAGES), staged.join(home::IMAGES));
        fs::create_dir(&images)?;
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
        self.flush.depot.told = None;
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
}

impl Way {
    /// Brings a state; `tidy`: what was there before and is not needed goes at once.
    fn bring(&self, staged: &Path, files: Vec<StoredFile>, tidy: bool) -> Result<Brought, String> {
        let mut place = open(self)?;
        let brought = place.bring(staged, files).map_err(|e| e.to_string())?;
        if tidy {
            // A failure here costs room only, until the next time.
            let _ = place.tidy();
        }
        Ok(brought)
    }

    /// What is tried once, and told.
    fn carry_out(&self, order: Order, tell: &UnboundedSender<Msg>) {
        let told = match order {
            Order::Survey(attempt) => {
                let there = open(self).and_then(|mut p| p.survey().map_err(|e| e.to_string()));
                Msg::Surveyed { attempt, result: there.map(Box::new) }
            }
            Order::Commit { attempt, staged, files, bytes } => {
                let result = self.bring(&staged, files, false);
                remove(&staged);
                Msg::Committed { attempt, bytes, result }
            }
            Order::Tidy => {
                let tidied = open(self).and_then(|mut p| p.tidy().map_err(|e| e.to_string()));
                tidied.unwrap_or_else(|why| tracing::warn!("{} is not tidied: {why}", self.url));
                return;
            }
            Order::Bring(..) | Order::Clear => return,
        };
        // Whoever gave it up knows.
        if !self.given_up.load(Ordering::Relaxed) {
            let _ = tell.send(told);
        }
    }
}

/// Carries out orders until there are no more, the newest state only. `Err`: the last one is not
/// in the store.
fn serve(way: &Way, orders: &Receiver<Order>, tell: &UnboundedSender<Msg>) -> Result<(), String> {
    let mut waiting: Option<(PathBuf, Vec<StoredFile>)> = None;
    loop {
        let order = match &waiting {
            Some(_) => orders.recv_timeout(RETRY),
            None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let over = order == Err(RecvTimeoutError::Disconnected);
        let mut clear = false;
        for order in order.into_iter().chain(orders.try_iter()) {
            match order {
                Order::Bring(staged, files) => {
                    waiting.replace((staged, files)).iter().for_each(|(old, _)| remove(old));
                }
                Order::Clear => {
                    waiting.take().iter().for_each(|(old, _)| remove(old));
                    clear = true;
                }
                once => {
                    // A newer state is on its way, and what nodes bring of it is named by no list.
                    waiting.take().iter().for_each(|(old, _)| remove(old));
                    way.carry_out(once, tell);
                }
            }
        }
        if clear {
            let cleared = open(way).and_then(|mut p| p.clear().map_err(|e| e.to_string()));
            cleared.map_err(|why| format!("what {} has is not removed: {why}", way.url))?;
        }
        let mut result = Ok(());
        if let Some((staged, files)) = waiting.take() {
            let brought = way.bring(&staged, files.clone(), true);
            result = brought.as_ref().map(|_| ()).map_err(String::clone);
            if result.is_ok() || over {
                remove(&staged);
            } else {
                waiting = Some((staged, files));
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

fn open(way: &Way) -> Result<Place, String> {
    let key = way.key.as_ref().map(|path| Key::read(Path::new(path)));
    let named = |e| format!("{}: {e}", way.key.as_deref().unwrap_or_default());
    let key = key.transpose().map_err(named)?;
    let place = Place::open(way.url.clone(), Some(way.rate), key);
    place.map_err(|e| e.to_string()).map(|mut place| {
        place.heed(Arc::clone(&way.given_up));
        place
    })
}

fn remove(staged: &Path) {
    let _ = fs::remove_dir_all(staged);
}
