//! The connection between controller and node: frames over TCP, by two threads at each end.
//!
//! Kept true: what is sent arrives in order or not at all; an end that has nothing to say sends
//! beats, so that silence means something; the reader tells the end of the connection once, last.
//! Time is that of a clock which nobody sets, and which goes on while the machine sleeps.

use crate::tcp_info;
use eyrie_control::frame::MAX_NODE_FRAME_BYTES;
use eyrie_control::{Decoder, encode_within};
use eyrie_process::clock::Moment;
use eyrie_protocol::failure_detector::{Heartbeat, Patience, Side};
use eyrie_protocol::machine::{Company, Machine, Seat};
use eyrie_protocol::timing::Detector;
use eyrie_tls::Stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Who has not run for so long says so: it is what the other end's silence is worth.
const STOOD: u64 = 1_000;
const READ_BYTES: usize = 64 * 1024;

/// What a beat says, at either end: a silence that is borne, and a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    pub timeout_ms: u64,
    pub stamp_ms: Option<u64>,
}

/// The machines of all nodes that one controller is connected to.
pub struct Fleet {
    begun: Moment,
    company: Mutex<Company>,
}

impl Fleet {
    pub fn new() -> Arc<Fleet> {
        Arc::new(Fleet { begun: Moment::now(), company: Mutex::default() })
    }

    fn company(&self) -> MutexGuard<'_, Company> {
        self.company.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }
}

/// How long silence is borne at the two ends of a connection, in milliseconds
/// (`protocol::failure_detector`); what is confirmed.
pub struct Limits {
    detector: Detector,
    side: Side,
    /// The connection leads through gateways.
    held: bool,
    /// What a node bears that its controller can kill.
    near_ms: u64,
    /// Of a node that has called again through them: its last stamp that was heard.
    before: Option<u64>,
    /// Of a controller: the node is one that it wants. Until then it hears nothing that renews its
    /// time, if that goes on.
    taken: AtomicBool,
    /// Of a controller: how long it waits for the node.
    patience: Mutex<Patience>,
    /// Beginning of the connection, and of its time.
    begun: Moment,
    /// What this end bears, and says to the other one.
    bears: AtomicU64,
    says: AtomicU64,
    /// What the other end said last; none: it has been taken.
    other: Mutex<Option<Beat>>,
    /// The longest grant that the other one may hold, and that may be said.
    most: AtomicU64,
    allowed: AtomicU64,
    /// The latest stamp that was heard, and when it was; one more each; 0: none was.
    stamp: AtomicU64,
    stamped: AtomicU64,
    /// Since when nothing was heard, and for how long that was when it was looked at last.
    since: AtomicU64,
    quiet: AtomicU64,
    /// The other nodes of a controller.
    fleet: Option<Arc<Fleet>>,
    /// Number of the last message that is confirmed to the other end.
    heard: AtomicU64,
}

impl Limits {
    /// Of a node; `held`: its connection leads through gateways.
    pub fn of_node(detector: Detector, held: bool) -> Limits {
        Limits::of(detector, Side::Node, (held, 0), None)
    }

    /// Of a node that its controller can kill (`Heartbeat::near`).
    pub fn of_near(detector: Detector, bears: Duration) -> Limits {
        Limits::of(detector, Side::Node, (false, bears.as_millis() as u64), None)
    }

    /// Of the same node when it has called again.
    pub fn again(&self) -> Limits {
        let next = Limits::of(self.detector, Side::Node, (self.held, self.near_ms), None);
        if !self.held {
            return next;
        }
        let since = self.since.load(Ordering::Relaxed);
        let next = Limits { begun: self.begun, before: Some(since), ..next };
        let now_ms = next.now_ms();
        next.note(&next.tie(now_ms), now_ms);
        next
    }

    /// Of a controller that has these nodes, too. Behind gateways a node's machine is not at the
    /// other end of the connection, and tells nothing.
    pub fn among(fleet: Arc<Fleet>, detector: Detector, held: bool) -> Limits {
        Limits::of(detector, Side::Controller, (held, 0), Some(fleet).filter(|_| !held))
    }

    fn of(
        detector: Detector,
        side: Side,
        (held, near_ms): (bool, u64),
        fleet: Option<Arc<Fleet>>,
    ) -> Limits {
        let none = || AtomicU64::new(0);
        let limits = Limits {
            detector,
            side,
            held,
            near_ms,
            before: None,
            taken: AtomicBool::new(!held),
            patience: Mutex::new(Patience::Joining),
            begun: Moment::now(),
            bears: none(),
            says: none(),
            other: Mutex::default(),
            most: none(),
            allowed: AtomicU64::new(detector.silence_least_ms),
            stamp: none(),
            stamped: none(),
            since: none(),
            quiet: none(),
            fleet,
            heard: none(),
        };
        limits.note(&limits.tie(0), 0);
        limits
    }

    /// What is known of the connection at its beginning.
    fn tie(&self, now_ms: u64) -> Heartbeat {
        match self.before {
            Some(stamp_ms) => Heartbeat::held_since(self.detector, stamp_ms, now_ms),
            None if self.held => Heartbeat::held(self.detector, self.side, now_ms),
            None if self.near_ms > 0 => Heartbeat::near(self.detector, self.near_ms, now_ms),
            None => Heartbeat::new(self.detector, self.side, now_ms),
        }
    }

    /// How often an end that has nothing to say says so.
    pub fn heartbeat(&self) -> Duration {
        Duration::from_millis(self.detector.heartbeat_ms)
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    /// How long ago a stamp of this end's was made. One that it has not made yet is none.
    pub fn ago(&self, stamp_ms: u64) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(stamp_ms))
    }

    fn note(&self, tie: &Heartbeat, now_ms: u64) {
        self.bears.store(tie.limit_ms(), Ordering::Relaxed);
        self.says.store(tie.says_ms(), Ordering::Relaxed);
        let silent_ms = tie.silent_ms(now_ms);
        self.since.store(now_ms.saturating_sub(silent_ms), Ordering::Relaxed);
        self.quiet.store(silent_ms, Ordering::Relaxed);
        let stamp = tie.stamp_ms(now_ms).map_or(0, |stamp| stamp.saturating_add(1));
        self.stamp.store(stamp, Ordering::Relaxed);
        let stamped = tie.stamped_ms().map_or(0, |at| at.saturating_add(1));
        self.stamped.store(stamped, Ordering::Relaxed);
        self.most.store(tie.granted_ms(), Ordering::Relaxed);
    }

    /// How long a silence this end bears.
    pub fn bears(&self) -> u64 {
        self.bears.load(Ordering::Relaxed)
    }

    /// What it says to the other one now.
    pub fn says(&self) -> Beat {
        let says = self.says.load(Ordering::Relaxed);
        match self.side {
            Side::Controller => Beat {
                timeout_ms: says.min(self.allowed()),
                stamp_ms: self.heard_stamp().filter(|_| self.taken.load(Ordering::Relaxed)),
            },
            Side::Node => Beat { timeout_ms: says, stamp_ms: Some(self.now_ms()) },
        }
    }

    /// For how long nothing was heard when it was looked at last: time in which this process stood
    /// still hardly counts.
    pub fn quiet(&self) -> u64 {
        self.quiet.load(Ordering::Relaxed)
    }

    /// Whether so little was heard of it lately as is always borne.
    pub fn is_quiet(&self) -> bool {
        self.quiet() >= self.detector.silence_least_ms
    }

    fn heard_stamp(&self) -> Option<u64> {
        self.stamp.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The node at the other end is one that this controller wants.
    pub fn take(&self) {
        self.taken.store(true, Ordering::Relaxed);
    }

    /// How long the node at the other end is waited for (`Heartbeat::set_patience`).
    pub fn set_patience(&self, patience: Patience) {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = patience;
    }

    fn patience(&self) -> Patience {
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest grant that the other end, a node, may hold, or would be given now.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// The same as the journal has it.
    pub fn rounded_most(&self) -> u64 {
        self.detector.rounded(self.most())
    }

    pub fn allowed(&self) -> u64 {
        self.allowed.load(Ordering::Relaxed)
    }

    /// Grants up to this are written down, and may be said.
    pub fn allow(&self, granted_ms: u64) {
        self.allowed.store(granted_ms, Ordering::Relaxed);
    }

    /// For how long nothing was heard.
    pub fn silent(&self) -> u64 {
        self.now_ms().saturating_sub(self.since.load(Ordering::Relaxed))
    }

    /// How long after this end, the controller's, hangs up now nothing of the other one is left,
    /// which may have been granted so much by another one. `before_ms`: how long ago it gave its
    /// last stamp on an earlier connection, if its time goes on from there.
    pub fn clear(&self, granted_ms: u64, before_ms: Option<u64>) -> u64 {
        let known_ms = self.stamped_ago().or(before_ms);
        self.detector.clear_after(granted_ms.max(self.most()), known_ms)
    }

    /// How long ago the last stamp was heard on this connection.
    pub fn stamped_ago(&self) -> Option<u64> {
        let stamped = self.stamped.load(Ordering::Relaxed).checked_sub(1);
        stamped.map(|at| self.now_ms().saturating_sub(at))
    }

    /// Number of the last message that is confirmed to the other end.
    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }

    pub fn confirm(&self, heard: u64) {
        self.heard.store(heard, Ordering::Relaxed);
    }

    /// The other end says what it grants, or is used to.
    pub fn tell(&self, other: Beat) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(other);
    }

    fn take_told(&self) -> Option<Beat> {
        self.other.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Why there is nothing more from the other end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum End {
    #[error("its connection ended")]
    Closed,
    #[error("its connection broke: {0}")]
    Broke(String),
    #[error("nothing was heard of it for {:.1} s", *.0 as f64 / 1e3)]
    Silent(u64),
    #[error("nothing was heard of it, nor of its machine, for {:.1} s", *.0 as f64 / 1e3)]
    Gone(u64),
    #[error("what it sends is malformed: {0}")]
    Malformed(String),
}

/// The sending side. When the last clone is dropped, the connection is closed for writing.
pub struct Sender<T>(mpsc::Sender<T>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender(self.0.clone())
    }
}

impl<T> Sender<T> {
    /// What is sent to a connection that is over is lost; its reader tells of that.
    pub fn send(&self, message: T) {
        let _ = self.0.send(message);
    }
}

/// Starts the thread that writes, and says so whenever it had nothing to say for so long.
pub fn write<T: Serialize + Send + 'static>(
    stream: Arc<Stream>,
    heartbeat: Duration,
    beat: impl Fn() -> T + Send + 'static,
) -> io::Result<Sender<T>> {
    let (sender, queue) = mpsc::channel::<T>();
    let work = move || {
        let mut beaten = Instant::now();
        loop {
            // Also where there is always something to say: a beat says more than that.
            let left = heartbeat.saturating_sub(beaten.elapsed());
            let message = match queue.recv_timeout(left) {
                Ok(message) if !left.is_zero() => Some(message),
                Ok(message) => {
                    if send(&stream, &message).is_err() {
                        return;
                    }
                    None
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let message = message.unwrap_or_else(|| {
                beaten = Instant::now();
                beat()
            });
            if send(&stream, &message).is_err() {
                return;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
    };
    std::thread::Builder::new().name("eyrie-write".into()).spawn(work)?;
    Ok(Sender(sender))
}

fn send<T: Serialize>(stream: &Stream, message: &T) -> io::Result<()> {
    let mut to = stream;
    let sent = encode_within(MAX_NODE_FRAME_BYTES, message)
        .map_err(io::Error::other)
        .and_then(|frame| to.write_all(&frame));
    if let Err(error) = &sent {
        tracing::debug!(%error, "a connection broke");
        let _ = stream.shutdown(Shutdown::Both);
    }
    sent
}

/// Starts the thread that reads: `take` gets every message, then why there are no more.
pub fn read<T: DeserializeOwned>(
    stream: Arc<Stream>,
    limits: Arc<Limits>,
    mut take: impl FnMut(Result<T, End>) + Send + 'static,
) -> io::Result<()> {
    let work = move || {
        let why = read_all(&stream, &limits, &mut |message| take(Ok(message)));
        let _ = stream.shutdown(Shutdown::Both);
        take(Err(why));
    };
    std::thread::Builder::new().name("eyrie-read".into()).spawn(work)?;
    Ok(())
}

/// A node's machine, as its controller sees it beside the others.
struct Watched {
    machine: Machine,
    fleet: Arc<Fleet>,
    seat: Seat,
}

impl Watched {
    fn new(fleet: &Arc<Fleet>, detector: Detector, now_ms: u64) -> Watched {
        let seat = fleet.company().joins();
        Watched { machine: Machine::new(detector, now_ms), fleet: Arc::clone(fleet), seat }
    }

    /// Whether it is gone.
    fn is_gone(&mut self, stream: &Stream, now_ms: u64) -> bool {
        if self.machine.wants_look(now_ms) {
            self.machine.look(tcp_info::of(stream.socket()), now_ms);
        }
        let shared_ms = self.fleet.now_ms();
        self.fleet.company().looked(&mut self.seat, &self.machine, shared_ms)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.fleet.company().leaves(self.seat);
    }
}

fn read_all<T: DeserializeOwned>(
    stream: &Stream,
    limits: &Limits,
    take: &mut impl FnMut(T),
) -> End {
    let mut decoder = Decoder::within(MAX_NODE_FRAME_BYTES);
    let mut buffer = vec![0; READ_BYTES];
    let now_ms = || limits.now_ms();
    let mut tie = limits.tie(now_ms());
    let mut watched = limits.fleet.as_ref().map(|all| Watched::new(all, limits.detector, now_ms()));
    if let Err(error) = stream.socket().set_read_timeout(Some(limits.heartbeat() / 2)) {
        return End::Broke(error.to_string());
    }
    let mut looked = now_ms();
    loop {
        tie.set_patience(limits.patience());
        limits.note(&tie, now_ms());
        tell_stood(std::mem::replace(&mut looked, now_ms()), looked);
        let mut from = stream;
        match from.read(&mut buffer) {
            Ok(0) => return End::Closed,
            Ok(count) => {
                tie.heard(now_ms());
                decoder.push(&buffer[..count]);
            }
            Err(error) if is_silence(error.kind()) => {}
            Err(error) => return End::Broke(error.to_string()),
        }
        loop {
            match decoder.next_message() {
                Ok(Some(message)) => take(message),
                Ok(None) => break,
                Err(error) => return End::Malformed(error.to_string()),
            }
        }
        if let Some(Beat { timeout_ms, stamp_ms }) = limits.take_told() {
            tie.told(timeout_ms, stamp_ms, now_ms());
        }
        // Also where something came: it may have been late.
        if tie.over(now_ms()) {
            limits.note(&tie, now_ms());
            return End::Silent(tie.silent_ms(now_ms()));
        }
        if watched.as_mut().is_some_and(|w| w.is_gone(stream, now_ms())) {
            limits.note(&tie, now_ms());
            return End::Gone(tie.silent_ms(now_ms()));
        }
    }
}

/// Between two looks at a connection nearly no time passes, if this process runs.
fn tell_stood(before_ms: u64, now_ms: u64) {
    let stood_ms = now_ms.saturating_sub(before_ms);
    if stood_ms >= STOOD {
        tracing::warn!(stood_ms, "this process stood still, or its machine did");
    }
}

fn is_silence(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    [Interrupted, TimedOut, WouldBlock].contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::ToNode;
    use eyrie_control::auth::{Hello, Key, Role};
    use eyrie_tls::Secret;
    use std::net::{TcpListener, TcpStream};

    const D: Detector = Detector::DEFAULT;

    /// Two ends of a connection.
    fn pair(encrypted: bool) -> (Stream, Stream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        let secret = Secret::new(Key::new().unwrap(), encrypted).unwrap();
        let hello = |role| Hello::new(role, "jobs", (0, 0), (0, 0));
        std::thread::scope(|scope| {
            let called = scope
                .spawn(|| secret.answer(here, "jobs", Role::Node, |_| hello(Role::Controller)));
            let own = hello(Role::Node).unwrap();
            let (there, _) = secret.call(there, &own, Role::Controller).unwrap();
            (there, called.join().unwrap().unwrap().0)
        })
    }

    #[test]
    fn through_gateways_a_nodes_time_goes_on_until_it_is_taken() {
        let node = Limits::of_node(D, true);
        let next = node.again();
        assert_eq!((next.before, next.since.load(Ordering::Relaxed)), (Some(0), 0));
        assert_eq!(Limits::of_node(D, false).again().before, None);
        let near = Limits::of_near(D, Duration::from_secs(60)).again();
        assert_eq!((near.bears(), near.before), (60_000, None));
        let heard = |held: bool| {
            let limits = Limits::among(Fleet::new(), D, held);
            limits.stamp.store(3 + 1, Ordering::Relaxed);
            limits
        };
        assert_eq!(heard(false).says().stamp_ms, Some(3));
        let limits = heard(true);
        assert_eq!(limits.says().stamp_ms, None);
        limits.take();
        assert_eq!(limits.says().stamp_ms, Some(3));
        let unheard = D.clear_after(D.held_ms(), Some(9_000));
        assert_eq!(limits.clear(D.held_ms(), Some(9_000)), unheard);
    }

    #[test]
    fn messages_come_in_order_then_the_end() {
        [false, true].map(pair).into_iter().for_each(messages_come);
    }

    fn messages_come((there, here): (Stream, Stream)) {
        let limits = Arc::new(Limits::of_node(D, false));
        let beat = || ToNode::Beat { timeout_ms: 0, stamp_ms: None };
        let sender = write(Arc::new(there), limits.heartbeat(), beat).unwrap();
        let (tell, told) = mpsc::channel();
        read(Arc::new(here), limits, move |m: Result<ToNode, End>| drop(tell.send(m))).unwrap();
        (0..5).for_each(|ask| sender.send(ToNode::Look { ask, targets: false }));
        drop(sender);
        let all: Vec<_> = told.iter().filter(|m| !matches!(m, Ok(ToNode::Beat { .. }))).collect();
        let looks: Vec<_> = (0..5).map(|ask| Ok(ToNode::Look { ask, targets: false })).collect();
        assert_eq!(all[..5], looks);
        assert_eq!(all[5..], [Err(End::Closed)]);
    }
}
