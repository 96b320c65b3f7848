//! The thread that carries bytes between nodes' connections and tunnels.
//!
//! Kept true: it waits in one place, for whatever happens; each connection has its turn, in which
//! it carries a bounded number of bytes; a broken one is closed with what hangs on it, as is one to
//! a gateway that has a successor or is gone: where its machine went with it nobody else ends that.

use super::latest::Latest;
use super::leg::{Leg, Turn};
use super::tunnel::{End, Tunnel};
use super::watch::{Signs, Watch, Whose, note};
use super::{Own, count};
use eyrie_connection::tcp_info;
use eyrie_control::gateway::{Gate, HOME, Silence};
use eyrie_gateway::{Event, Reason, Refusal, Side};
use eyrie_protocol::timing::Detector;
use eyrie_tls::Stream;
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};

/// Most things that are looked at together.
const EVENTS: usize = 64;
/// Bytes of a node that are read at once.
const BUFFER_BYTES: usize = 64 << 10;
/// The number of what wakes the thread.
const WAKE: u64 = 0;

/// What other threads bring.
pub(super) enum Note {
    /// A connection to another gateway: its cluster, and which start of it. Who made it waits
    /// until `hold` is dropped.
    Tunnel { peer: (u32, u64), stream: Box<Stream>, side: Side, hold: Option<Sender<()>> },
    /// All gateways that there are.
    Gates(Vec<Gate>),
    /// A node that wants to go there; its number, if its machine is to be watched.
    Passenger { socket: TcpStream, cluster: u32, target: SocketAddr, watched: Option<u32> },
    /// A node that the other end wanted, or not.
    Reached { tunnel: u64, stream: u32, socket: io::Result<TcpStream> },
    /// Is it still getting on?
    Turn,
    /// The clusters with which nothing is to be under way.
    Silence(Silence),
}

/// Where they bring it.
#[derive(Clone)]
pub(super) struct Notes {
    sender: Sender<Note>,
    wake: Arc<OwnedFd>,
}

impl Notes {
    pub fn send(&self, note: Note) {
        let _ = self.sender.send(note);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

pub(super) struct Relay {
    epoll: OwnedFd,
    wake: Arc<OwnedFd>,
    notes: Receiver<Note>,
    tunnels: BTreeMap<u64, Tunnel>,
    legs: BTreeMap<u64, Leg>,
    /// Number of the latest of both.
    last: u64,
    /// Those that want a turn, in order.
    queue: VecDeque<u64>,
    queued: BTreeSet<u64>,
    buffer: Vec<u8>,
    /// Those that are asked to be silent.
    silence: Silence,
    gates: Latest,
    watch: Watch,
}

impl Relay {
    pub fn new(detector: Detector) -> io::Result<(Relay, Notes)> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&epoll, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let (sender, notes) = mpsc::channel();
        let notes_to = Notes { sender, wake: Arc::clone(&wake) };
        let relay = Relay {
            epoll,
            wake,
            notes,
            tunnels: BTreeMap::new(),
            legs: BTreeMap::new(),
            last: WAKE,
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            buffer: vec![0; BUFFER_BYTES],
            silence: Silence::default(),
            gates: Latest::default(),
            watch: Watch::new(detector),
        };
        Ok((relay, notes_to))
    }

    /// The thread's work, for ever.
    pub fn run(mut self, own: &Own) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            events.clear();
            let limit = if self.queue.is_empty() { None } else { Some(&now) };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), limit) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (number, flags) = (event.data.u64(), event.flags);
                self.happened(number, flags);
            }
            let mut count = [0; 8];
            if rustix::io::read(&self.wake, &mut count).is_ok() {
                while let Ok(note) = self.notes.try_recv() {
                    self.take(note, own);
                }
            }
            for _ in 0..self.queue.len() {
                let Some(number) = self.queue.pop_front() else { break };
                self.queued.remove(&number);
                if self.tunnels.contains_key(&number) {
                    self.turn_tunnel(number, own);
                } else {
                    self.turn_leg(number, own);
                }
            }
            self.tell_silence(own);
        }
    }

    /// Gives it a turn.
    fn queue(&mut self, number: u64) {
        if self.queued.insert(number) {
            self.queue.push_back(number);
        }
    }

    /// A socket can be read or written again, or has failed, which reading tells.
    fn happened(&mut self, number: u64, flags: epoll::EventFlags) {
        use epoll::EventFlags as F;
        let readable = flags.intersects(F::IN | F::RDHUP | F::HUP | F::ERR);
        let writable = flags.intersects(F::OUT | F::HUP | F::ERR);
        if let Some(tunnel) = self.tunnels.get_mut(&number) {
            (tunnel.readable, tunnel.writable) =
                (tunnel.readable || readable, tunnel.writable || writable);
        } else if let Some(leg) = self.legs.get_mut(&number) {
            (leg.readable, leg.writable) = (leg.readable || readable, leg.writable || writable);
        } else {
            return;
        }
        self.queue(number);
    }

    /// Has changes of a socket told.
    fn watch(&mut self, socket: impl AsFd) -> io::Result<u64> {
        use epoll::EventFlags as F;
        self.last += 1;
        let data = epoll::EventData::new_u64(self.last);
        epoll::add(&self.epoll, socket, data, F::IN | F::OUT | F::RDHUP | F::ET)?;
        Ok(self.last)
    }

    fn take(&mut self, note: Note, own: &Own) {
        match note {
            Note::Tunnel { peer, stream, side, hold } => {
                let rate = own.rate.map(|rate| (rate / u64::from(own.connections)).max(1));
                let made = Tunnel::new(peer, *stream, side, (rate, own.link_silence()), hold)
                    .and_then(|tunnel| Ok((self.watch(tunnel.socket())?, tunnel)));
                match made {
                    Ok((number, tunnel)) => self.add_tunnel(number, tunnel, own),
                    Err(error) => {
                        tracing::warn!(cluster = peer.0, %error, "a connection is not used")
                    }
                }
            }
            Note::Gates(gates) => {
                self.gates.know(&gates);
                self.drop_outdated(own);
            }
            Note::Passenger { socket, cluster, target, watched } => {
                if let Err(error) = socket.set_nonblocking(true) {
                    return tracing::warn!(%error, "a node's connection is not used");
                }
                self.depart((socket, watched), cluster, target, own);
            }
            Note::Turn => {
                let signs = self.signs();
                *own.missed() = self.watch.look(&signs);
                count(&own.turns);
            }
            Note::Silence(silence) => self.ask_for_silence(silence),
            Note::Reached { tunnel, stream, socket } => self.arrived(tunnel, stream, socket, own),
        }
    }

    fn add_tunnel(&mut self, number: u64, mut tunnel: Tunnel, own: &Own) {
        if self.silence.clusters.contains(&tunnel.cluster) {
            tunnel.mux.block();
        }
        tracing::info!(cluster = tunnel.cluster, "a connection to another gateway stands");
        if tunnel.called {
            own.called_by(tunnel.cluster).fetch_add(1, Ordering::Relaxed);
        }
        self.tunnels.insert(number, tunnel);
        count(&own.counts.connections);
        self.queue(number);
        self.drop_outdated(own);
    }

    /// Ends connections to gateways that are there no more, or are not to be.
    fn drop_outdated(&mut self, own: &Own) {
        let outdated =
            self.tunnels.iter().filter(|(_, t)| self.gates.is_outdated(t.cluster, t.number));
        let outdated: Vec<u64> = outdated.map(|(number, _)| *number).collect();
        outdated.into_iter().for_each(|number| self.drop_tunnel(number, &End::Outdated, own));
    }

    /// What the kernel tells of the machines that are watched.
    fn signs(&self) -> Signs {
        let mut signs = Signs::new();
        for leg in self.legs.values() {
            if let Some(node) = leg.watched {
                note(&mut signs, Whose::Node(node), tcp_info::of(&leg.socket));
            }
        }
        for tunnel in self.tunnels.values().filter(|tunnel| tunnel.cluster == HOME) {
            note(&mut signs, Whose::Home, tcp_info::of(tunnel.socket()));
        }
        signs
    }

    /// From now on these are to be silent, and no others.
    fn ask_for_silence(&mut self, silence: Silence) {
        for tunnel in self.tunnels.values_mut() {
            match silence.clusters.contains(&tunnel.cluster) {
                true => tunnel.mux.block(),
                false => tunnel.mux.unblock(),
            }
        }
        self.silence = silence;
        let all: Vec<u64> = self.tunnels.keys().copied().collect();
        all.into_iter().for_each(|number| self.queue(number));
    }

    /// Notes which of them are, with all delivered that they had sent.
    fn tell_silence(&self, own: &Own) {
        let Silence { number, clusters } = &self.silence;
        let drained = |cluster: &&u32| {
            let mut tunnels = self.tunnels.values().filter(|t| t.cluster == **cluster);
            tunnels.all(|t| t.mux.is_drained())
        };
        let clusters = clusters.iter().filter(drained).copied().collect();
        let (now, mut known) = (Silence { number: *number, clusters }, own.silent());
        if *known != now {
            *known = now;
        }
    }

    /// Opens a stream for a node: over the connection that has the fewest. Of those with as many
    /// the newest is the surest to stand.
    fn depart(
        &mut self,
        (socket, watched): (TcpStream, Option<u32>),
        cluster: u32,
        target: SocketAddr,
        own: &Own,
    ) {
        let there = self.tunnels.iter_mut().filter(|(_, t)| t.cluster == cluster);
        let best = there.min_by_key(|(number, t)| (t.mux.streams(), Reverse(**number)));
        let best = best.map(|(number, t)| (*number, t));
        let opened = match best {
            None => Err(Reason::NoWay),
            Some((number, tunnel)) => match tunnel.mux.open(target) {
                Ok(stream) => Ok((number, stream)),
                Err(Refusal::Full) => Err(Reason::Full),
                Err(Refusal::Blocked) => Err(Reason::Blocked),
            },
        };
        match opened {
            Ok((tunnel, stream)) => {
                let mut leg = Leg::new(socket, tunnel, stream, true);
                leg.watched = watched;
                self.add_leg(leg, own);
            }
            Err(reason) => Leg::new(socket, 0, 0, true).answer(Some(reason)),
        }
    }

    fn add_leg(&mut self, leg: Leg, own: &Own) {
        let (tunnel, stream) = (leg.tunnel, leg.stream);
        let ready = eyrie_link::set_silence(&leg.socket, own.link_silence())
            .and_then(|()| self.watch(&leg.socket));
        let Some(t) = self.tunnels.get_mut(&tunnel) else { return };
        match ready {
            Ok(number) => {
                t.legs.insert(stream, number);
                count(&own.counts.streams);
                self.legs.insert(number, leg);
                self.queue(number);
            }
            Err(error) => {
                tracing::warn!(%error, "a node's connection is not used");
                t.mux.reset(stream, Reason::Broke);
            }
        }
        self.queue(tunnel);
    }

    /// A node that the other gateway asked for has answered, or not.
    fn arrived(&mut self, number: u64, stream: u32, socket: io::Result<TcpStream>, own: &Own) {
        let Some(tunnel) = self.tunnels.get_mut(&number) else { return };
        let socket = socket.and_then(|s| {
            s.set_nonblocking(true)?;
            s.set_nodelay(true)?;
            Ok(s)
        });
        match socket {
            // Nobody may want it any more.
            Ok(_) if !tunnel.mux.accept(stream) => {}
            Ok(socket) => {
                self.add_leg(Leg::new(socket, number, stream, false), own);
            }
            Err(error) => {
                tracing::info!(%error, "a node is not reached");
                tunnel.mux.reset(stream, Reason::Unreachable);
                self.queue(number);
            }
        }
    }

    fn turn_leg(&mut self, number: u64, own: &Own) {
        let Some(leg) = self.legs.get_mut(&number) else { return };
        let Some(tunnel) = self.tunnels.get_mut(&leg.tunnel) else { return };
        let at = leg.tunnel;
        match leg.turn(&mut tunnel.mux, &mut self.buffer) {
            Turn::Idle => {}
            Turn::More => self.queue(number),
            Turn::Over => self.drop_leg(number, own),
            Turn::Broke => {
                tunnel.mux.reset(leg.stream, Reason::Broke);
                self.drop_leg(number, own);
            }
        }
        self.queue(at);
    }

    fn drop_leg(&mut self, number: u64, own: &Own) {
        let Some(leg) = self.legs.remove(&number) else { return };
        own.counts.streams.fetch_sub(1, Ordering::Relaxed);
        if let Some(tunnel) = self.tunnels.get_mut(&leg.tunnel) {
            tunnel.legs.remove(&leg.stream);
        }
    }

    fn turn_tunnel(&mut self, number: u64, own: &Own) {
        let Some(tunnel) = self.tunnels.get_mut(&number) else { return };
        let turned = tunnel.turn();
        let (sent, received) = tunnel.mux.carried();
        own.counts.sent.fetch_add(sent - tunnel.told.0, Ordering::Relaxed);
        own.counts.received.fetch_add(received - tunnel.told.1, Ordering::Relaxed);
        tunnel.told = (sent, received);
        match turned {
            Ok(more) => {
                self.events(number, own);
                if more {
                    self.queue(number);
                }
            }
            Err(end) => self.drop_tunnel(number, &end, own),
        }
    }

    /// What the multiplexer says.
    fn events(&mut self, number: u64, own: &Own) {
        loop {
            let Some(tunnel) = self.tunnels.get_mut(&number) else { return };
            let Some(event) = tunnel.mux.poll() else { return };
            let stream = match event {
                Event::Open { stream, target } => {
                    reach(number, stream, target, own);
                    continue;
                }
                // Told when all is delivered, too.
                Event::Blocked => continue,
                Event::Opened { stream }
                | Event::Input { stream }
                | Event::Room { stream }
                | Event::Reset { stream, .. } => stream,
            };
            let Some(at) = tunnel.legs.get(&stream).copied() else { continue };
            if let Some(leg) = self.legs.get_mut(&at) {
                match event {
                    Event::Opened { .. } => leg.answer(None),
                    Event::Reset { reason, .. } => {
                        leg.answer(Some(reason));
                        self.drop_leg(at, own);
                        continue;
                    }
                    _ => {}
                }
                self.queue(at);
            }
        }
    }

    fn drop_tunnel(&mut self, number: u64, end: &End, own: &Own) {
        let Some(tunnel) = self.tunnels.remove(&number) else { return };
        own.counts.connections.fetch_sub(1, Ordering::Relaxed);
        if tunnel.called {
            own.called_by(tunnel.cluster).fetch_sub(1, Ordering::Relaxed);
        }
        if matches!(end, End::Malformed(_)) || forged(end) {
            count(&own.counts.malformed);
        }
        tracing::warn!(cluster = tunnel.cluster, "a connection to another gateway ended: {end}");
        for at in tunnel.legs.values() {
            if let Some(leg) = self.legs.get_mut(at) {
                leg.answer(Some(Reason::Broke));
            }
            self.drop_leg(*at, own);
        }
    }
}

/// Whether somebody between the two ends has changed what came.
fn forged(end: &End) -> bool {
    matches!(end, End::Broke(error) if error.kind() == io::ErrorKind::InvalidData)
}

/// Makes a connection to a node of this cluster, in a thread.
fn reach(tunnel: u64, stream: u32, target: SocketAddr, own: &Own) {
    let notes = own.notes.clone();
    let work = move || {
        let socket = TcpStream::connect_timeout(&target, super::greet::GREETING);
        notes.send(Note::Reached { tunnel, stream, socket });
    };
    if let Err(error) = std::thread::Builder::new().name("eyrie-reach".into()).spawn(work) {
        own.notes.send(Note::Reached { tunnel, stream, socket: Err(error) });
    }
}
