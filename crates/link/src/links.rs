//! What a node's daemon does with its links.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use eyrie_ledger::datagram::{self, Wish};
use eyrie_ledger::segment::{ASLEEP_REMOTE, AWAKE, Segment};
use eyrie_protocol::membership::{Member, Neighbours};
use eyrie_protocol::replicas::Replicas;
use eyrie_protocol::timing::Intervals;
use eyrie_tls::{Routes, Secret};

use crate::connection::Connection;
use crate::dial::{Dial, Unreached};
use crate::shared::{Shared, lock};
use crate::transport::LinkTransport;
use crate::{sending, serve};

/// What links are made of.
pub struct Setup {
    pub segment: Arc<Segment>,
    /// The job's name, at most `auth::JOB_BYTES` long.
    pub job: String,
    pub own: Member,
    pub secret: Secret,
    /// How other nodes are reached.
    pub routes: Routes,
    pub listener: TcpListener,
    /// Other nodes that are to hold each determinant (`--log-replicas`).
    pub log_replicas: usize,
    /// Which other nodes.
    pub neighbours: Neighbours,
    /// Whether small messages are sent as a datagram, too, as datagrams that are not encrypted.
    pub early: Wish,
    /// What the connections go over. Not with a secret that encrypts.
    pub transport: LinkTransport,
    pub intervals: Intervals,
    /// Called, in a thread of the links, while a wanted connection does not come about, and when
    /// that is over. It must not wait for anything.
    pub unreached: Box<dyn Fn(Unreached) + Send + Sync>,
}

/// The link to one node, for `eyrie status`.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    pub member: Member,
    /// A connection for what is sent there stands.
    pub sending: bool,
    /// A connection for what comes from there stands.
    pub receiving: bool,
    /// Bytes on the connections that stand.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Connections made so far.
    pub connects: u64,
    /// The one for what is sent there goes over libfabric.
    pub piped: bool,
}

/// Connections that were closed because of what came on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Wrong key, wrong job, or nothing of ours.
    pub strangers: u64,
    /// Incarnations that are no members any more.
    pub fenced: u64,
    /// Frames that no correct node sends.
    pub malformed: u64,
}

/// The links of one node. They end when this is dropped.
pub struct Links {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: OwnedFd,
}

impl Links {
    /// Starts the threads. Ranks have no homes and the node no peers yet.
    ///
    /// # Errors
    /// When the system has no threads or descriptors left.
    pub fn start(setup: Setup) -> io::Result<Links> {
        let Setup {
            segment,
            job,
            own,
            secret,
            routes,
            listener,
            early,
            transport,
            intervals,
            unreached,
            ..
        } = setup;
        if secret.encrypts() && !matches!(transport, LinkTransport::Tcp) {
            return Err(io::Error::other(
                "what goes over more than one TCP connection is not encrypted",
            ));
        }
        let replicas = (setup.log_replicas, setup.neighbours);
        let address = listener.local_addr()?;
        segment.header().linked.store(1, SeqCst);
        early.store(&segment);
        let closer = OwnedFd::from(listener.try_clone()?);
        let shared = Arc::new(Shared::new(
            segment,
            job,
            own,
            (secret, routes, transport, intervals),
            replicas,
            unreached,
        )?);
        let links = Links { shared: Arc::clone(&shared), address, listener: closer };
        shared.spawn("eyrie-link-wake", |s| s.waker.run(&s.segment))?;
        shared.spawn("eyrie-link-accept", move |s| serve::accept(s, &listener))?;
        shared.spawn("eyrie-link-send", sending::run)?;
        Ok(links)
    }

    /// Where other nodes reach this one.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The cluster of each node, also of such as are to join.
    pub fn places(&self, of: Vec<u32>) {
        self.shared.outbound().places(of);
    }

    /// What each node fails together with: some may have joined since.
    pub fn domains(&self, of: Vec<u32>) {
        self.shared.outbound().domains(of);
    }

    /// All members of the job, this one included or not. Who was one and is missing, or is there
    /// with another epoch, is fenced for good.
    pub fn members(&self, all: &[(Member, SocketAddr)]) {
        let gone = self.shared.exchange(all);
        for member in &gone {
            self.shared.replicas().fence(*member);
            self.shared.inbound().drop_connection(*member);
            if let Some(dial) = lock(&self.shared.dials).remove(&member.node) {
                dial.retire();
            }
        }
        let new = self.shared.outbound().members(all);
        for member in new {
            let dial = Arc::new(Dial::new(member));
            lock(&self.shared.dials).insert(member.node, Arc::clone(&dial));
            let started = self.shared.spawn("eyrie-link-out", move |s| dial.run(s));
            if let Err(error) = started {
                tracing::warn!("no thread for the link to {member}: {error}");
            }
        }
        self.shared.kick();
    }

    /// These members leave: from now on others hold what this node records, too (`leave` waits for
    /// that).
    pub fn leaving(&self, leaving: &[Member]) {
        self.shared.outbound().leaving(leaving);
        self.shared.kick();
    }

    /// `rank` has its home on node `node` from now on; no incarnation of it runs here.
    pub fn home(&self, rank: u32, node: u32) {
        let (ctl, own) = (self.shared.segment.rank(rank), self.shared.own.node);
        if node == own {
            self.shared.inbound().level(rank);
        }
        ctl.home.store(node, SeqCst);
        ctl.sleeping.store(if node == own { AWAKE } else { ASLEEP_REMOTE }, SeqCst);
        std::sync::atomic::fence(SeqCst);
        self.shared.outbound().home(rank, node);
        self.shared.inbound().home(rank, node);
        if node == own {
            datagram::set_address(ctl, self.address.ip());
        }
        self.shared.kick();
    }

    /// The router of each rank from now on (`routing::NOWHERE`: it has none).
    pub fn routers(&self, routers: &[u32]) {
        self.shared.outbound().routers(routers);
        self.shared.inbound().routers(routers);
        self.shared.kick();
    }

    /// Sends nothing more to `rank`, for which this node routes, until `resume`. Does `then`, in a
    /// thread of the links, when the rank's node has all that was sent. It must not wait for
    /// anything.
    pub fn pause(&self, rank: u32, generation: u32, then: impl FnOnce() + Send + 'static) {
        self.shared.outbound().pause(rank, generation, Box::new(then));
        self.shared.kick();
    }

    /// That checkpoint of `rank` is over.
    pub fn resume(&self, rank: u32, generation: u32) {
        self.shared.outbound().resume(rank, generation);
        self.shared.kick();
    }

    /// `rank`, which is here, goes on after it was stopped for a checkpoint: its router may.
    pub fn go_on(&self, rank: u32, generation: u32) {
        self.shared.inbound().go_on(rank, generation);
        self.shared.kick();
    }

    /// Pauses that are over, and how long they took together.
    pub fn paused(&self) -> (u64, Duration) {
        self.shared.outbound().paused()
    }

    /// Less is kept of what was sent to `rank`, as its control blocks say.
    pub fn trimmed(&self, rank: u32) {
        self.shared.inbound().trimmed(rank);
        self.shared.kick();
    }

    /// Bytes that this node keeps as a router, and for how many ranks.
    pub fn logged(&self) -> (u64, u32) {
        self.shared.inbound().logged()
    }

    /// `rank` is about to start here: of what each rank sends it, it may still read from `need` on,
    /// and has looked at it up to `front`.
    pub fn attach(&self, rank: u32, need: &[u64], front: &[u64]) {
        // Without random numbers nothing can be sent as a datagram.
        if let Ok(token) = token() {
            datagram::set_gateway(self.shared.segment.rank(rank), 0, token);
        }
        self.shared.inbound().attach(rank, need, front);
        self.shared.outbound().look_at_streams_of(rank);
        self.shared.kick();
    }

    /// The process of `rank`, which has its home here, has ended.
    pub fn detach(&self, rank: u32) {
        self.shared.inbound().detach(rank);
        // It may have been killed between writing something and saying so.
        self.shared.outbound().look_at_streams_of(rank);
        self.shared.kick();
    }

    /// These ranks are one recovery unit, of which no process is left on any node; for the `life`th
    /// time all of them are going to come back, some of them here.
    pub fn part(&self, ranks: &[u32], life: u32) {
        self.shared.inbound().part(ranks, life);
        self.shared.outbound().part(ranks, life);
        self.shared.kick();
    }

    /// `rank` has ended for good, wherever it was: nothing is sent to it any more.
    pub fn release(&self, rank: u32) {
        self.shared.outbound().release(rank);
        self.shared.inbound().release(rank);
    }

    /// Does `then` as soon as all determinants that are recorded on this node by now are held by
    /// the replicas: at once if they are, else in a thread of the links, in the order of the calls.
    /// It must not wait for anything.
    pub fn leave(&self, then: impl FnOnce() + Send + 'static) {
        let now = self.shared.outbound().leave(Box::new(then));
        match now {
            Some(then) => then(),
            None => self.shared.kick(),
        }
    }

    /// What this node holds for others.
    pub fn replicas<R>(&self, of: impl FnOnce(&mut Replicas) -> R) -> R {
        of(&mut self.shared.replicas())
    }

    /// Ends all connections, as a broken network does; they are made again.
    pub fn cut(&self) {
        self.shared.outbound().peers.values().flat_map(|p| &p.connection).for_each(|c| c.close());
        self.shared.inbound().connections.values().for_each(|c| c.close());
    }

    /// The gateway through which nodes of other clusters were reached is there no more: ends what
    /// stands through it, which it may not have done itself, as its machine may be gone, too.
    pub fn leave_gateway(&self) {
        let abroad = |c: &&Arc<Connection>| {
            self.shared.routes.abroad(self.shared.own.node, c.peer.node).is_some()
        };
        let outbound = self.shared.outbound();
        let sending = outbound.peers.values().filter_map(|p| p.connection.as_ref());
        sending.filter(abroad).for_each(|c| c.close());
        drop(outbound);
        self.shared.inbound().connections.values().filter(abroad).for_each(|c| c.close());
    }

    pub fn status(&self) -> Vec<LinkStatus> {
        let mut all: Vec<LinkStatus> = (self.shared.outbound().peers.values())
            .map(|peer| {
                let connection = peer.connection.as_ref();
                LinkStatus {
                    member: peer.member,
                    sending: connection.is_some(),
                    receiving: false,
                    sent_bytes: connection.map_or(0, |c| c.sent_bytes.load(Relaxed)),
                    received_bytes: 0,
                    connects: peer.connects,
                    piped: connection.is_some_and(|c| c.is_piped()),
                }
            })
            .collect();
        let inbound = self.shared.inbound();
        for status in &mut all {
            if let Some(connection) = inbound.connections.get(&status.member.node) {
                status.receiving = true;
                status.received_bytes = connection.received_bytes.load(Relaxed);
            }
        }
        all
    }

    /// What connections go over, and how many have gone over libfabric so far.
    pub fn way(&self) -> (String, u64) {
        (self.shared.transport.name(), self.shared.piped.load(Relaxed))
    }

    pub fn refused(&self) -> Refused {
        let counters = &self.shared.refusals;
        Refused {
            strangers: counters.strangers.load(Relaxed),
            fenced: counters.fenced.load(Relaxed),
            malformed: counters.malformed.load(Relaxed),
        }
    }
}

/// What datagrams for one process of a rank must bear.
fn token() -> io::Result<[u64; 2]> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let word = u128::from_le_bytes(bytes);
    Ok([word as u64, (word >> 64) as u64])
}

impl Drop for Links {
    fn drop(&mut self) {
        self.shared.begin_end();
        // SAFETY: ends the accepting of a socket that is open; no memory is touched.
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        self.shared.end();
    }
}
