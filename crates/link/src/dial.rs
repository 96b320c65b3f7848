//! The connection to one other node: opened when it is wanted, opened again when it ends, and read:
//! what comes on it are the receiver's answers.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use eyrie_control::auth::{AuthError, Hello, Role};
use eyrie_protocol::link::sender::Wrong;
use eyrie_protocol::link::wire::{self, Backward, WireError};
use eyrie_protocol::membership::Member;
use eyrie_tls::{Call, Stream};

use crate::connection::Connection;
use crate::shared::{Shared, lock};
use crate::transport;

/// First and longest wait before another attempt.
const BACKOFF: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(640)];
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;
/// A link that is missed is told of again so often, or with the next attempt.
const TELL_AGAIN: Duration = Duration::from_secs(1);

/// A member to which a connection is wanted and does not come about, or does again.
#[derive(Debug, Clone)]
pub struct Unreached {
    pub member: Member,
    pub address: Option<SocketAddr>,
    /// For how long it has been so; none: it is over.
    pub lasts: Option<Duration>,
    pub why: String,
}

/// Since when a wanted connection does not come about.
#[derive(Default)]
struct Missed {
    since: Option<Instant>,
    told: Option<Instant>,
}

impl Missed {
    /// An attempt that began then has failed.
    fn fails(&mut self, begun: Instant, shared: &Shared, member: Member, error: &AuthError) {
        let lasts = self.since.get_or_insert(begun).elapsed();
        let is_due = self.told.is_none_or(|told| told.elapsed() >= TELL_AGAIN);
        if !is_due || lasts < Duration::from_millis(shared.intervals.detector.told_ms()) {
            return;
        }
        if self.told.replace(Instant::now()).is_none() {
            tracing::warn!("no link to {member}: {error}");
        }
        // What goes through gateways is missed while these are blocked, or follow each other.
        if shared.routes.abroad(shared.own.node, member.node).is_none() {
            let address = shared.outbound().peers.get(&member.node).map(|p| p.address);
            let (lasts, why) = (Some(lasts), error.to_string());
            (shared.unreached)(Unreached { member, address, lasts, why });
        }
    }

    /// It stands, or is not wanted any more.
    fn is_over(&mut self, shared: &Shared, member: Member) {
        if std::mem::take(self).told.is_some() {
            let (address, lasts, why) = (None, None, String::new());
            (shared.unreached)(Unreached { member, address, lasts, why });
        }
    }
}

/// Whether a connection to a member is wanted.
pub(crate) struct Dial {
    pub member: Member,
    wanted: Mutex<bool>,
    changed: Condvar,
    retired: AtomicBool,
}

impl Dial {
    pub fn new(member: Member) -> Dial {
        Dial {
            member,
            wanted: Mutex::new(false),
            changed: Condvar::new(),
            retired: AtomicBool::new(false),
        }
    }

    pub fn want(&self) {
        let mut wanted = lock(&self.wanted);
        if !*wanted {
            *wanted = true;
            self.changed.notify_all();
        }
    }

    /// The member is gone, or all is over.
    pub fn retire(&self) {
        self.retired.store(true, SeqCst);
        self.want();
    }

    fn is_retired(&self) -> bool {
        self.retired.load(SeqCst)
    }

    /// Waits until a connection is wanted.
    fn await_wish(&self) {
        let mut wanted = lock(&self.wanted);
        while !*wanted {
            wanted = self.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
        *wanted = false;
    }

    /// Waits for some time, but not longer than it makes sense.
    fn pause(&self, time: Duration) {
        let wanted = lock(&self.wanted);
        let retired = |_: &mut bool| !self.is_retired();
        drop(self.changed.wait_timeout_while(wanted, time, retired));
    }

    /// The thread's work.
    pub fn run(&self, shared: &Arc<Shared>) {
        let (mut pause, mut missed) = (BACKOFF[0], Missed::default());
        while !self.is_retired() && !shared.is_over() {
            self.await_wish();
            if self.is_retired() || shared.is_over() {
                return;
            }
            let begun = Instant::now();
            let opened = self.open(shared);
            let failed = opened.is_err();
            match opened {
                Ok((connection, number, call)) => {
                    pause = BACKOFF[0];
                    missed.is_over(shared, self.member);
                    serve(shared, &connection);
                    drop(call);
                    shared.leave(number);
                }
                // A node that is just starting or ending refuses; what lasts is told.
                Err(error) => missed.fails(begun, shared, self.member, &error),
            }
            if shared.outbound().missing().contains(&self.member.node) {
                self.pause(pause);
                pause = BACKOFF[1].min(pause * 2);
                self.want();
            } else if failed {
                missed.is_over(shared, self.member);
            }
        }
    }

    /// Makes the connection. Returns its number, too, and the call by which it ends when nothing
    /// comes of it any more.
    fn open(&self, shared: &Arc<Shared>) -> Result<(Arc<Connection>, u64, Call), AuthError> {
        let address = shared.outbound().peers.get(&self.member.node).map(|p| p.address);
        let address = address.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let (own, to) = (shared.own, self.member);
        let (ours, job) = ((own.node, own.epoch), (&shared.secret, &*shared.job));
        let call = shared.routes.call(own.node, (to.node, to.epoch));
        let socket = call.connect(job, ours, address, shared.connect_limit())?;
        let number = shared.enrol(&socket).ok_or_else(|| io::Error::other("the node ends"))?;
        let made = self.shake(shared, socket).and_then(|stream| {
            let carrier = transport::offer(shared, &stream, to)?;
            let (segment, silence) = (Arc::clone(&shared.segment), shared.silence());
            Ok(Arc::new(Connection::new(stream, carrier, self.member, segment, silence)?))
        });
        match made {
            Ok(connection) if shared.outbound().connected(&connection) => {
                shared.kick();
                Ok((connection, number, call))
            }
            other => {
                shared.leave(number);
                Err(other.err().unwrap_or_else(|| io::Error::from(io::ErrorKind::NotFound).into()))
            }
        }
    }

    fn shake(&self, shared: &Shared, socket: TcpStream) -> Result<Stream, AuthError> {
        let (own, to) = (shared.own, self.member);
        let own = (own.node, own.epoch);
        let hello = Hello::new(Role::LinkSender, &shared.job, own, (to.node, to.epoch))?;
        let (stream, other) = shared.secret.call(socket, &hello, Role::LinkReceiver)?;
        if (other.node, other.epoch, other.to) != (to.node, to.epoch, own) {
            return Err(AuthError::Malformed);
        }
        Ok(stream)
    }
}

/// Why the reading of answers ended.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Answer(#[from] Wrong),
    #[error("what comes was not encrypted by the other end: {0}")]
    Forged(#[from] io::Error),
}

/// Reads answers until the connection ends.
fn serve(shared: &Arc<Shared>, connection: &Arc<Connection>) {
    if let Err(fault) = read(shared, connection) {
        shared.refusals.malformed.fetch_add(1, SeqCst);
        tracing::warn!("link to {}: {fault}", connection.peer);
    }
    connection.close();
    shared.outbound().ended(connection);
}

fn read(shared: &Arc<Shared>, connection: &Arc<Connection>) -> Result<(), Fault> {
    let mut buffer = Vec::new();
    while connection.read(&mut buffer, READ_BYTES)? {
        let used = take(shared, connection, &buffer)?;
        buffer.drain(..used);
        shared.kick();
    }
    Ok(())
}

/// Takes all whole answers. Returns the bytes they have.
fn take(shared: &Shared, connection: &Arc<Connection>, bytes: &[u8]) -> Result<usize, Fault> {
    let mut used = 0;
    let mut outbound = shared.outbound();
    while let Some((kind, body)) = wire::split(&bytes[used..])? {
        let answer = Backward::decode(kind, &bytes[used..][body.clone()])?;
        outbound.answer(connection, answer)?;
        used += body.end;
    }
    Ok(used)
}
