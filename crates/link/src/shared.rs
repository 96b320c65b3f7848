//! What the threads of the links share.
//!
//! Kept true: locks are taken one at a time, but for these inside of `inbound` or `outbound`: that
//! of a connection's queue, and `replicas`. Nobody waits for a socket while holding one.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use eyrie_ledger::segment::Segment;
use eyrie_protocol::membership::{Member, Neighbours, Refusal, Roster};
use eyrie_protocol::replicas::Replicas;
use eyrie_protocol::timing::Intervals;
use eyrie_tls::{Routes, Secret};

use crate::dial::{Dial, Unreached};
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::transport::LinkTransport;
use crate::waker::Waker;

/// Connections that were not taken, for `eyrie status`.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// Wrong key, wrong job, or nothing of ours.
    pub strangers: AtomicU64,
    /// An incarnation that is no member any more.
    pub fenced: AtomicU64,
    /// Frames that no correct node sends.
    pub malformed: AtomicU64,
}

#[derive(Default)]
struct Sockets {
    all: BTreeMap<u64, TcpStream>,
    next: u64,
}

impl Sockets {
    fn add(&mut self, socket: TcpStream) -> u64 {
        let number = self.next;
        self.next += 1;
        self.all.insert(number, socket);
        number
    }
}

pub(crate) struct Shared {
    pub segment: Arc<Segment>,
    pub job: String,
    pub own: Member,
    pub secret: Secret,
    /// How others are reached.
    pub routes: Routes,
    pub transport: LinkTransport,
    pub intervals: Intervals,
    /// Connections over libfabric so far.
    pub piped: AtomicU64,
    /// Hears of links that are missed.
    pub unreached: Box<dyn Fn(Unreached) + Send + Sync>,
    outbound: Mutex<Outbound>,
    inbound: Mutex<Inbound>,
    replicas: Mutex<Replicas>,
    members: Mutex<Roster>,
    pub dials: Mutex<BTreeMap<u32, Arc<Dial>>>,
    pub waker: Waker,
    pub refusals: Refusals,
    kicked: AtomicBool,
    over: AtomicBool,
    /// Sockets on which a thread may wait, by number; closed at the end.
    sockets: Mutex<Sockets>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A poisoned lock is no reason to stop: panics end the process here.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn new(
        segment: Arc<Segment>,
        job: String,
        own: Member,
        (secret, routes, transport, intervals): (Secret, Routes, LinkTransport, Intervals),
        replicas: (usize, Neighbours),
        unreached: Box<dyn Fn(Unreached) + Send + Sync>,
    ) -> std::io::Result<Shared> {
        Ok(Shared {
            outbound: Mutex::new(Outbound::new(Arc::clone(&segment), own, replicas)),
            inbound: Mutex::new(Inbound::new(Arc::clone(&segment), own.node, routes.clone())),
            replicas: Mutex::new(Replicas::default()),
            segment,
            job,
            own,
            secret,
            routes,
            transport,
            intervals,
            piped: AtomicU64::new(0),
            unreached,
            members: Mutex::default(),
            dials: Mutex::new(BTreeMap::new()),
            waker: Waker::new()?,
            refusals: Refusals::default(),
            kicked: AtomicBool::new(false),
            over: AtomicBool::new(false),
            sockets: Mutex::default(),
            threads: Mutex::new(Vec::new()),
        })
    }

    /// Longest wait for an answer while a connection is being made.
    pub fn connect_limit(&self) -> Duration {
        Duration::from_millis(self.intervals.limits.connect_ms)
    }

    /// A peer that takes nothing for so long is tried again on a new connection.
    pub fn silence(&self) -> Duration {
        Duration::from_millis(self.intervals.limits.link_silence_ms)
    }

    pub fn outbound(&self) -> MutexGuard<'_, Outbound> {
        lock(&self.outbound)
    }

    pub fn inbound(&self) -> MutexGuard<'_, Inbound> {
        lock(&self.inbound)
    }

    pub fn replicas(&self) -> MutexGuard<'_, Replicas> {
        lock(&self.replicas)
    }

    /// The member that is node `node` now.
    pub fn member(&self, node: u32) -> Option<Member> {
        lock(&self.members).member(node)
    }

    /// Whether `caller`, which wants to speak to `to`, is listened to here.
    pub fn admit(&self, to: Member, caller: Member) -> Result<(), Refusal> {
        lock(&self.members).admit(self.own, to, caller)
    }

    /// Exchanges the members. Returns those that were members and are none any more.
    pub fn exchange(&self, all: &[(Member, SocketAddr)]) -> Vec<Member> {
        lock(&self.members).exchange(all.iter().map(|(member, _)| *member))
    }

    pub fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Has the sending thread look at everything.
    pub fn kick(&self) {
        self.kicked.store(true, SeqCst);
        fence(SeqCst);
        if self.segment.header().link_asleep.load(Relaxed) != 0 {
            self.segment.ring_links();
        }
    }

    /// Whether somebody kicked since the last time.
    pub fn was_kicked(&self) -> bool {
        self.kicked.swap(false, SeqCst)
    }

    pub fn is_kicked(&self) -> bool {
        self.kicked.load(SeqCst)
    }

    /// Starts a thread that is waited for at the end.
    pub fn spawn(
        self: &Arc<Self>,
        name: &str,
        work: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> std::io::Result<()> {
        let this = Arc::clone(self);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(&this))?;
        let mut threads = lock(&self.threads);
        threads.retain(|t| !t.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Notes a socket on which a thread is going to wait. `None`: it is all over.
    pub fn enrol(&self, socket: &TcpStream) -> Option<u64> {
        let copy = socket.try_clone().ok()?;
        let number = lock(&self.sockets).add(copy);
        if self.is_over() {
            self.leave(number);
            return None;
        }
        Some(number)
    }

    pub fn leave(&self, number: u64) {
        lock(&self.sockets).all.remove(&number);
    }

    /// Nothing new is begun from now on.
    pub fn begin_end(&self) {
        self.over.store(true, SeqCst);
    }

    /// Ends all threads and waits for them.
    pub fn end(&self) {
        for socket in lock(&self.sockets).all.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        lock(&self.dials).values().for_each(|d| d.retire());
        self.waker.end();
        self.kick();
        self.segment.ring_links();
        loop {
            let Some(thread) = lock(&self.threads).pop() else { break };
            let _ = thread.join();
        }
    }
}
