//! The connections by which an image goes to another node while it is written: one, and more beside
//! it where a round trip takes long, as what TCP lets be under way on one of them is less than the
//! way holds, for long after each loss.
//!
//! Kept true: the image is whole at the other end only if all that was given to any of them is
//! there; who breaks, breaks the whole of it.

use crate::store_protocol::{Answer, StoreError, Way, receive};
use eyrie_connection::tcp_info;
use eyrie_tls::{Call, Stream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes before each part.
pub const HEAD_BYTES: usize = 12;
/// Most bytes of a part.
pub const MAX_PART_BYTES: usize = 4 << 20;
/// The same where there is a choice of connections.
const PIECE_BYTES: usize = 256 << 10;
/// From such a round trip on several connections of an image pay.
const FAR: Duration = Duration::from_millis(5);
/// Most connections of an image, and of all that go at the same time.
const MOST: usize = 4;
const MOST_TOGETHER: usize = 16;
/// So much of an image goes by one connection: what is less is there sooner than others are.
const ALONE_BYTES: u64 = 8 << 20;
/// How long none of them may take anything.
const STUCK: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// Opens one more connection.
pub type Open = Box<dyn Fn() -> Result<Way, StoreError> + Send>;

/// How many connections an image goes by that is one of so many at the same time.
fn count(round_trip: Duration, together: usize) -> usize {
    if round_trip < FAR { 1 } else { (MOST_TOGETHER / together.max(1)).clamp(1, MOST) }
}

pub fn head(at: u64, length: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&at.to_le_bytes());
    head[8..].copy_from_slice(&(length as u32).to_le_bytes());
    head
}

struct Lane {
    /// Of the same connection: to wait for its turn.
    socket: TcpStream,
    stream: Mutex<Stream>,
    call: Call,
}

impl Lane {
    fn new((stream, call): Way) -> io::Result<Lane> {
        Ok(Lane { socket: stream.socket().try_clone()?, stream: Mutex::new(stream), call })
    }

    fn into_way(self) -> Way {
        (self.stream.into_inner().unwrap_or_else(PoisonError::into_inner), self.call)
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All of an image.
#[derive(Default)]
struct All {
    lanes: RwLock<Vec<Lane>>,
    broken: AtomicBool,
}

impl All {
    fn lanes(&self) -> RwLockReadGuard<'_, Vec<Lane>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, lane: Lane) {
        self.lanes.write().unwrap_or_else(PoisonError::into_inner).push(lane);
    }
}

/// More of them, which are to be opened.
struct More {
    count: usize,
    /// When so many bytes were given.
    from: u64,
    /// The reason.
    trip: Duration,
    open: Option<Open>,
    opening: Option<JoinHandle<()>>,
}

pub struct Lanes {
    all: Arc<All>,
    given: AtomicU64,
    turn: AtomicUsize,
    more: Mutex<Option<More>>,
}

impl Lanes {
    pub fn new(first: Way) -> io::Result<Lanes> {
        let all = Arc::new(All::default());
        all.add(Lane::new(first)?);
        let (given, turn) = (AtomicU64::new(0), AtomicUsize::new(0));
        Ok(Lanes { all, given, turn, more: Mutex::default() })
    }

    /// More are opened, if that pays, when much was given. The image is one of so many that go at
    /// the same time.
    pub fn widen(&self, together: usize, open: Open) {
        let trip = self.all.lanes().first().and_then(|lane| tcp_info::round_trip(&lane.socket));
        let trip = trip.unwrap_or_default();
        match count(trip, together) {
            1 => {}
            count => self.widen_to(count, ALONE_BYTES, trip, open),
        }
    }

    /// The same, so many in all, when so many bytes were given.
    fn widen_to(&self, count: usize, from: u64, trip: Duration, open: Open) {
        let more = More { count, from, trip, open: Some(open), opening: None };
        *self.more() = Some(more);
    }

    fn more(&self) -> MutexGuard<'_, Option<More>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are by now.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.all.lanes().len()
    }

    /// These bytes belong at offset `at`; none: the end of what goes by the first, with the length
    /// of all. Nothing more goes when one has broken.
    pub fn put(&self, bytes: &[u8], at: u64) {
        if self.is_broken() {
            return;
        }
        self.open_more(bytes.len());
        let lanes = self.all.lanes();
        let most = if lanes.len() > 1 { PIECE_BYTES } else { MAX_PART_BYTES };
        let parts = bytes.chunks(most).zip((at..).step_by(most));
        let result = parts.into_iter().try_for_each(|(part, at)| {
            let mut stream = self.next(&lanes)?;
            stream.write_all(&head(at, part.len()))?;
            stream.write_all(part)
        });
        if let Err(error) = result {
            self.broke(&error);
        }
    }

    fn is_broken(&self) -> bool {
        self.all.broken.load(Ordering::Relaxed)
    }

    fn broke(&self, error: &dyn std::fmt::Display) {
        tracing::warn!(%error, "an image is not brought while it is written");
        self.all.broken.store(true, Ordering::Relaxed);
    }

    fn open_more(&self, bytes: usize) {
        let given = self.given.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        let mut more = self.more();
        let Some(more) = more.as_mut().filter(|more| more.from <= given) else { return };
        let Some(open) = more.open.take() else { return };
        let (all, count, trip) = (Arc::clone(&self.all), more.count, more.trip);
        let work = move || {
            let one = || open().and_then(|way| Ok(Lane::new(way)?));
            let result = (1..count).try_for_each(|_| one().map(|lane| all.add(lane)));
            if let Err(error) = result {
                tracing::warn!(%error, "an image goes by fewer connections");
            }
            let (count, ms) = (all.lanes().len(), trip.as_secs_f64() * 1e3);
            tracing::info!("an image goes by {count} connections: a round trip takes {ms:.1} ms");
        };
        more.opening = std::thread::Builder::new().name("eyrie-lanes".into()).spawn(work).ok();
    }

    /// One that takes bytes now; the next of these in turn.
    fn next<'a>(&self, lanes: &'a [Lane]) -> io::Result<MutexGuard<'a, Stream>> {
        if let [only] = lanes {
            return Ok(only.stream());
        }
        let mut polls: Vec<_> =
            lanes.iter().map(|lane| PollFd::new(&lane.socket, PollFlags::OUT)).collect();
        if poll(&mut polls, Some(&STUCK))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let ready: Vec<&Lane> = (0..lanes.len())
            .map(|n| (turn + n) % lanes.len())
            .filter(|n| !polls[*n].revents().is_empty())
            .map(|n| &lanes[n])
            .collect();
        let free = ready.iter().find_map(|lane| lane.stream.try_lock().ok());
        Ok(free.unwrap_or_else(|| ready[0].stream()))
    }

    /// All was given: waits until what went by the others is there. Returns the first, whose other
    /// end is told that the image is so long; `None`: something has broken.
    pub fn finish(&mut self, length: u64) -> Option<Way> {
        let opening = self.more().take().and_then(|more| more.opening);
        if opening.is_some_and(|opening| opening.join().is_err()) || self.is_broken() {
            return None;
        }
        let lanes = {
            let mut all = self.all.lanes.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *all)
        };
        let mut ways = lanes.into_iter().map(Lane::into_way);
        let mut first = ways.next()?;
        let result = all_there(&mut ways.collect::<Vec<_>>())
            .and_then(|()| Ok(first.0.write_all(&head(length, 0))?))
            .inspect_err(|error| self.broke(error));
        result.ok().map(|()| first)
    }
}

/// Has each tell that it has taken all that went by it.
fn all_there(ways: &mut [Way]) -> Result<(), StoreError> {
    ways.iter_mut().try_for_each(|(stream, _)| stream.write_all(&head(0, 0)))?;
    ways.iter_mut().try_for_each(|(stream, _)| match receive(stream)? {
        Answer::Done => Ok(()),
        Answer::Failed(why) => Err(StoreError::Refused(why)),
        _ => Err(StoreError::Protocol),
    })
}

#[cfg(test)]
#[path = "parallel_streams_tests.rs"]
mod tests;
