//! What comes from other nodes for the ranks of this one: mirrors, filled by the rules of
//! `protocol::link::receiver`.
//!
//! A router's mirrors are its log: they are kept up to what a checkpoint may need.
//!
//! Kept true: a stream is taken only from the node that it comes from (`protocol::routing`): its
//! sender's home, or its receiver's router; what is answered is queued on that node's connection in
//! the order in which it was decided.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::fence;

use eyrie_ledger::mirror::{self, Head, Mirror, Pool, Refused};
use eyrie_ledger::segment::Segment;
use eyrie_ledger::walk::{self, Walk};
use eyrie_ledger::{datagram, unit};
use eyrie_protocol::link::receiver::{Piece, Receiver, Wrong};
use eyrie_protocol::link::wire::{Backward, Forward, Stream};
use eyrie_protocol::membership::Member;
use eyrie_protocol::routing::{NOWHERE, Paths};
use eyrie_tls::Routes;

use crate::connection::Connection;

/// Most bytes of a stream under way.
const MOST_WINDOW_BYTES: u64 = 8 << 20;

/// Receivers tell every half chunk how far they are, and their senders hear of it every quarter of
/// a window: what is left of this then still has room for a piece, which is at most a chunk.
const LEAST_WINDOW_CHUNKS: u64 = 2;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("rank {0} does not exist")]
    Rank(u32),
    /// This node has not heard yet what the other has.
    #[error("rank {0} is not known to be there")]
    Early(u32),
    #[error(transparent)]
    Wrong(#[from] Wrong),
    #[error("stream from {0} to {1}: {2}")]
    Content(u32, u32, Refused),
}

/// A piece that is one large entry, on its way.
pub(crate) struct Single {
    pub stream: Stream,
    pub serial: u32,
    pub from: u64,
    pub chain: u64,
    pub head: Head,
    /// Bytes of the whole piece.
    pub bytes: u64,
}

pub(crate) struct Inbound {
    segment: Arc<Segment>,
    own: u32,
    routes: Routes,
    paths: Paths,
    receiver: Receiver,
    pools: BTreeMap<u32, Pool>,
    mirrors: BTreeMap<Stream, Mirror>,
    /// The connection that stands from each node.
    pub connections: BTreeMap<u32, Arc<Connection>>,
    /// What of each stream was asked for that a direct connection had brought.
    brought: BTreeMap<Stream, u64>,
    /// Ports for datagrams that senders were told, on the connection that stands.
    datagram_ports: BTreeMap<Stream, u32>,
    answers: Vec<Backward>,
    /// Streams that this node routes, in which something has come.
    passing: Vec<Stream>,
}

impl Inbound {
    pub fn new(segment: Arc<Segment>, own: u32, routes: Routes) -> Inbound {
        let geo = segment.geometry();
        let chunk = u64::from(geo.chunk_bytes);
        let share = u64::from(geo.pool_chunks) / (2 * u64::from(geo.ranks)) * chunk;
        let least = LEAST_WINDOW_CHUNKS * chunk;
        Inbound {
            segment,
            own,
            routes,
            paths: Paths::new(own, geo.ranks),
            receiver: Receiver::new(share.clamp(least, MOST_WINDOW_BYTES.max(least))),
            pools: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            connections: BTreeMap::new(),
            brought: BTreeMap::new(),
            datagram_ports: BTreeMap::new(),
            answers: Vec::new(),
            passing: Vec::new(),
        }
    }

    fn ranks(&self) -> u32 {
        self.paths.ranks()
    }

    fn is_local(&self, rank: u32) -> bool {
        self.paths.is_here(rank)
    }

    fn pool(&mut self, src: u32) -> &mut Pool {
        let segment = &self.segment;
        self.pools.entry(src).or_insert_with(|| Pool::new(segment, src))
    }

    /// A connection from `node` stands: whatever stood before is over.
    pub fn connected(&mut self, node: u32, connection: &Arc<Connection>) {
        if let Some(old) = self.connections.insert(node, Arc::clone(connection)) {
            old.close();
        }
        let paths = &self.paths;
        self.receiver.connected(node, |stream| paths.origin(stream) == node);
        self.datagram_ports.retain(|stream, _| paths.origin(*stream) != node);
    }

    /// Whether `connection` is the one that stands.
    pub fn stands(&self, connection: &Arc<Connection>) -> bool {
        let standing = self.connections.get(&connection.peer.node);
        standing.is_some_and(|c| Arc::ptr_eq(c, connection))
    }

    /// Takes a frame about a stream. The answers are queued.
    pub fn take(&mut self, node: u32, frame: &Forward<'_>) -> Result<(), Fault> {
        let stream = match *frame {
            Forward::Open { stream } | Forward::Data { stream, .. } => stream,
            Forward::Dets { .. } => return Ok(()),
            Forward::Mark { rank, generation } => return self.marked(node, rank, generation),
        };
        for rank in [stream.0, stream.1] {
            if rank >= self.ranks() {
                return Err(Fault::Rank(rank));
            }
        }
        if self.paths.origin(stream) != node {
            return Err(Fault::Early(stream.0));
        }
        match *frame {
            Forward::Open { .. } => self.receiver.open(stream, node, &mut self.answers),
            Forward::Data { serial, from, chain, bytes, .. } => {
                if self.receiver.piece(stream, serial, from)? == Piece::Take {
                    self.store(stream, chain, bytes)?;
                }
            }
            Forward::Dets { .. } | Forward::Mark { .. } => {}
        }
        self.queue_answers();
        Ok(())
    }

    /// A router sends nothing more to a rank, and what came before is taken: it hears that.
    fn marked(&mut self, node: u32, rank: u32, generation: u32) -> Result<(), Fault> {
        if rank >= self.ranks() {
            return Err(Fault::Rank(rank));
        }
        if let Some(connection) = self.connections.get(&node) {
            connection.push(|out| Backward::Marked { rank, generation }.encode(out));
        }
        Ok(())
    }

    /// A rank here runs again: its router sends to it again.
    pub fn go_on(&self, rank: u32, generation: u32) {
        if let Some(connection) = self.connections.get(&self.paths.router(rank)) {
            connection.push(|out| Backward::GoOn { rank, generation }.encode(out));
        }
    }

    fn store(&mut self, stream: Stream, chain: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (src, dst) = stream;
        let mut sync = Vec::new();
        let mut put = |this: &mut Self| {
            this.pool(src);
            let (Some(mirror), Some(pool)) =
                (this.mirrors.get_mut(&stream), this.pools.get_mut(&src))
            else {
                return Ok(None);
            };
            let taken = mirror.take(&this.segment, pool, chain, bytes, |at| sync.push(at));
            taken.map(|()| Some(mirror.have()))
        };
        let mut stored = put(self);
        let full = stored == Err(Refused::Full);
        if full {
            self.give_back(src);
            stored = put(self);
        }
        if full {
            self.feed(src);
        }
        match stored {
            Ok(Some(have)) => self.stored(stream, have, sync)?,
            Ok(None) => {}
            Err(Refused::Full) => self.receiver.starve(stream, &mut self.answers),
            Err(refused) => return Err(Fault::Content(src, dst, refused)),
        }
        Ok(())
    }

    /// The stream is here up to `have` now, with more messages at `sync`.
    fn stored(&mut self, stream: Stream, have: u64, sync: Vec<u64>) -> Result<(), Fault> {
        let (src, dst) = stream;
        self.segment.channel(src, dst).here.store(have, Release);
        fence(SeqCst);
        self.segment.rank(dst).wake();
        if self.paths.routes(dst) {
            self.passing.push(stream);
        }
        if self.receiver.took(stream, have, sync)? {
            self.moved(stream);
        }
        Ok(())
    }

    /// Where the payload of an entry from `node` goes that is being received. `None`: it is not to
    /// be taken so, or not any more.
    pub fn place(&mut self, node: u32, entry: &Single) -> Option<*mut u8> {
        let (src, dst) = entry.stream;
        let known = src < self.ranks() && dst < self.ranks();
        if !known || self.paths.origin(entry.stream) != node {
            return None;
        }
        if self.receiver.piece(entry.stream, entry.serial, entry.from) != Ok(Piece::Take) {
            return None;
        }
        self.pool(src);
        let (mirror, pool) = (self.mirrors.get(&entry.stream)?, self.pools.get_mut(&src)?);
        mirror.place(&self.segment, pool, entry.chain, &entry.head, entry.bytes)
    }

    /// That payload is there whole: the entry is published. The answers are queued.
    pub fn placed(&mut self, node: u32, entry: &Single) -> Result<(), Fault> {
        if self.place(node, entry).is_none() {
            return Ok(());
        }
        let (stream, mut sync) = (entry.stream, Vec::new());
        let (Some(mirror), Some(pool)) =
            (self.mirrors.get_mut(&stream), self.pools.get_mut(&stream.0))
        else {
            return Ok(());
        };
        let found = |at| sync.push(at);
        if mirror.placed(&self.segment, pool, entry.chain, &entry.head, entry.bytes, found) {
            let have = mirror.have();
            self.stored(stream, have, sync)?;
        }
        self.queue_answers();
        Ok(())
    }

    /// Gives back what the receivers of the streams of `src` have passed.
    fn give_back(&mut self, src: u32) {
        self.pool(src);
        let Some(pool) = self.pools.get_mut(&src) else { return };
        for ((_, dst), mirror) in self.mirrors.range_mut((src, 0)..=(src, u32::MAX)) {
            let need = kept_from(&self.segment, &self.paths, (src, *dst));
            mirror.release(&self.segment, pool, need);
        }
    }

    /// The receiver of a stream has read on, or acknowledged something.
    pub fn moved(&mut self, stream: Stream) {
        let (src, dst) = stream;
        if src >= self.ranks() || dst >= self.ranks() || !self.mirrors.contains_key(&stream) {
            return;
        }
        self.look(stream);
        self.bring(stream);
        self.skip(stream);
        self.pool(src);
        let need = kept_from(&self.segment, &self.paths, stream);
        if let (Some(mirror), Some(pool)) =
            (self.mirrors.get_mut(&stream), self.pools.get_mut(&src))
        {
            mirror.release(&self.segment, pool, need);
        }
        self.feed(src);
        self.tell_datagram_port(stream);
        self.queue_answers();
    }

    /// Has what a direct connection brought carried over the link, if the receiver has asked for
    /// it.
    fn bring(&mut self, stream: Stream) {
        let wanted = self.segment.channel(stream.0, stream.1).bring.load(Acquire);
        let have = self.mirrors.get(&stream).map_or(0, Mirror::have);
        if wanted > have && self.brought.insert(stream, wanted) != Some(wanted) {
            self.receiver.bring(stream, &mut self.answers);
        }
    }

    /// What the receiver of the stream has passed, as it came by a direct connection, need not come
    /// any more.
    fn skip(&mut self, stream: Stream) {
        let (segment, (src, dst)) = (Arc::clone(&self.segment), stream);
        let (channel, chunk) =
            (segment.channel(src, dst), u64::from(segment.geometry().chunk_bytes));
        let to = channel.passed.load(Acquire) / chunk * chunk;
        let lags = self.mirrors.get(&stream).is_some_and(|mirror| mirror.have() < to);
        if !lags || self.paths.routes(dst) {
            return;
        }
        self.pool(src);
        if let (Some(mirror), Some(pool)) =
            (self.mirrors.get_mut(&stream), self.pools.get_mut(&src))
        {
            mirror.skip(&segment, pool, to);
            channel.here.store(to, Release);
            // The rank says so itself with the next message.
            channel.need.fetch_max(to, Release);
            self.receiver.skip(stream, to, &mut self.answers);
        }
    }

    /// Says where the receiver of the stream takes datagrams, once. It opens its door when it
    /// runs, and lets its first message wake the links. Datagrams do not go through gateways.
    fn tell_datagram_port(&mut self, stream: Stream) {
        if self.routes.abroad(self.own, self.paths.origin(stream)).is_some() {
            return;
        }
        let ctl = self.segment.rank(stream.1);
        let Some((address, token)) = datagram::door_of(ctl) else { return };
        let port = address.port();
        if self.datagram_ports.insert(stream, u32::from(port)) != Some(u32::from(port)) {
            self.answers.push(Backward::Early { stream, port, token });
        }
    }

    /// Lets streams of `src` that wait for room go on if there is some.
    fn feed(&mut self, src: u32) {
        if self.pool(src).free() > 0 {
            for fed in self.receiver.feed(src) {
                self.look(fed);
            }
        }
    }

    fn look(&mut self, stream: Stream) {
        let (segment, (src, dst)) = (Arc::clone(&self.segment), stream);
        let ctl = segment.channel(src, dst);
        // A router has room for all that a sender keeps.
        let front = match self.mirrors.get(&stream).filter(|_| self.paths.routes(dst)) {
            Some(mirror) => mirror.have(),
            None => ctl.front.load(Acquire),
        };
        let read = (ctl.need.load(Acquire), front);
        let acked = |position| walk::is_acknowledged(&segment, src, dst, position);
        self.receiver.moved(stream, read, acked, &mut self.answers);
    }

    /// Puts the answers on the connections of the nodes they are for.
    fn queue_answers(&mut self) {
        for answer in self.answers.drain(..) {
            let stream = match answer {
                Backward::Resume { stream, .. }
                | Backward::Progress { stream, .. }
                | Backward::Acked { stream, .. }
                | Backward::Early { stream, .. }
                | Backward::Skip { stream, .. }
                | Backward::Bring { stream } => stream,
                Backward::Held { .. } | Backward::Marked { .. } | Backward::GoOn { .. } => continue,
            };
            if let Some(connection) = self.connections.get(&self.paths.origin(stream)) {
                connection.push(|out| answer.encode(out));
            }
        }
    }

    /// `rank` is about to start here; it reads from `need` on, and has looked up to `front`.
    pub fn attach(&mut self, rank: u32, need: &[u64], front: &[u64]) {
        for src in 0..self.ranks() {
            if self.is_local(src) {
                continue;
            }
            let at = |all: &[u64]| all.get(src as usize).copied().unwrap_or(0);
            self.attach_stream((src, rank), at(need), at(front));
        }
        self.queue_answers();
    }

    fn attach_stream(&mut self, stream: Stream, need: u64, front: u64) {
        let (segment, (src, dst)) = (Arc::clone(&self.segment), stream);
        let ctl = segment.channel(src, dst);
        ctl.need.store(need, Release);
        ctl.front.store(front.max(need), Release);
        // It says so itself when it runs.
        ctl.passed.store(0, Release);
        ctl.bring.store(0, Release);
        self.brought.remove(&stream);
        let mirror = Mirror::open(&segment, self.pool(src), dst, need);
        let have = mirror.have();
        ctl.here.store(have, Release);
        self.datagram_ports.remove(&stream);
        let mut sync = Vec::new();
        let chunk = u64::from(segment.geometry().chunk_bytes);
        if let Some(mut walk) = Walk::from_chunk(&segment, src, dst, need / chunk) {
            let mut at = walk.pos();
            while let Ok(Some(spot)) = walk.step(&segment) {
                if spot.wants_ack() && at >= need {
                    sync.push(at);
                }
                at = walk.pos();
            }
        }
        self.mirrors.insert(stream, mirror);
        self.receiver.attach(stream, (have, need), sync, &mut self.answers);
    }

    /// `rank` is about to get its home here: behind what its mirrors have nothing may look like an
    /// entry, as receivers that took messages ahead of the log stand there.
    pub fn level(&mut self, rank: u32) {
        for (_, mirror) in self.mirrors.range((rank, 0)..=(rank, u32::MAX)) {
            mirror.level(&self.segment);
        }
    }

    /// The process of `rank` has ended, or the rank has its home elsewhere.
    pub fn detach(&mut self, rank: u32) {
        for src in 0..self.ranks() {
            self.receiver.detach((src, rank));
            self.mirrors.remove(&(src, rank));
        }
    }

    /// Ranks of one recovery unit, of which no process is left anywhere, went back for the `life`th
    /// time: what is here of what they sent each other is given up.
    pub fn part(&mut self, ranks: &[u32], life: u32) {
        let segment = Arc::clone(&self.segment);
        for &rank in ranks {
            self.receiver.lives(rank, life);
            // One that has ended was still attached.
            self.detach(rank);
        }
        for &src in ranks {
            if self.is_local(src) {
                unit::unsend(&segment, src, ranks);
                continue;
            }
            let pool = self.pool(src);
            ranks.iter().for_each(|dst| mirror::clear(&segment, pool, *dst));
        }
    }

    /// `rank` has ended: nobody reads what was sent to it.
    pub fn release(&mut self, rank: u32) {
        self.detach(rank);
        if !self.is_local(rank) && !self.paths.routes(rank) {
            return;
        }
        let segment = Arc::clone(&self.segment);
        for src in 0..self.ranks() {
            if !self.is_local(src) {
                mirror::clear(&segment, self.pool(src), rank);
            }
        }
    }

    /// `rank` has its home on `node` from now on.
    pub fn home(&mut self, rank: u32, node: u32) {
        let was = self.paths.set_home(rank, node);
        if was == node {
            return;
        }
        if was == NOWHERE {
            return;
        }
        if was == self.own {
            self.left(rank);
        } else if node == self.own {
            // Its mirrors are its log.
            for dst in 0..self.ranks() {
                self.receiver.detach((rank, dst));
                self.mirrors.remove(&(rank, dst));
            }
            self.pools.remove(&rank);
        } else {
            // The streams go on from another node, unless a router stands between.
            let paths = &self.paths;
            let comes = |s: Stream| (s.0 == rank && paths.origin(s) == node).then_some(node);
            self.receiver.come_from(comes, &mut self.answers);
        }
        self.queue_answers();
    }

    /// `rank` is no longer here: what others sent it is not wanted any more, and of its log only
    /// what ranks of this node read.
    fn left(&mut self, rank: u32) {
        let segment = Arc::clone(&self.segment);
        self.detach(rank);
        // What it sent itself comes with its image, and would take room from its mirrors here.
        mirror::clear(&segment, self.pool(rank), rank);
        for other in (0..self.ranks()).filter(|r| *r != rank) {
            if !self.is_local(other) {
                mirror::clear(&segment, self.pool(other), rank);
            }
            if self.is_local(other) {
                let need = segment.channel(rank, other).need.load(Acquire);
                let front = segment.channel(rank, other).front.load(Acquire);
                self.attach_stream((rank, other), need, front);
                // What was acknowledged since the sender was stopped is not in its log.
                self.look((rank, other));
            } else {
                mirror::clear(&segment, self.pool(rank), other);
            }
        }
    }

    /// Ranks have these routers from now on.
    pub fn routers(&mut self, routers: &[u32]) {
        for (rank, was) in self.paths.set_routers(routers) {
            if was == self.own {
                self.route_no_more(rank);
            } else if self.paths.routes(rank) {
                (0..self.ranks()).filter(|src| *src != rank).for_each(|src| self.log((src, rank)));
            } else {
                // The streams go on from another node.
                let paths = &self.paths;
                let comes = |s: Stream| (s.1 == rank).then(|| paths.origin(s));
                self.receiver.come_from(comes, &mut self.answers);
            }
        }
        self.queue_answers();
    }

    /// This node is the router of a stream's receiver: it has it from what is kept on.
    fn log(&mut self, stream: Stream) {
        let floor = self.segment.channel(stream.0, stream.1).trim.load(Acquire);
        self.attach_stream(stream, floor, floor);
        if self.mirrors.get(&stream).is_some_and(|m| m.have() > floor) {
            self.passing.push(stream);
        }
    }

    fn route_no_more(&mut self, rank: u32) {
        let segment = Arc::clone(&self.segment);
        self.detach(rank);
        for src in (0..self.ranks()).filter(|src| *src != rank) {
            mirror::clear(&segment, self.pool(src), rank);
        }
    }

    /// Less is kept for `rank`: its router gives the rest up. Of a stream that did not go by it so
    /// far it wants what comes from there on.
    pub fn trimmed(&mut self, rank: u32) {
        if !self.paths.routes(rank) {
            return;
        }
        for src in (0..self.ranks()).filter(|src| *src != rank) {
            let stream = (src, rank);
            let floor = self.segment.channel(src, rank).trim.load(Acquire);
            let Some(mirror) = self.mirrors.get(&stream) else { continue };
            match mirror.have() < floor {
                true => self.log(stream),
                false => self.moved(stream),
            }
        }
        self.queue_answers();
    }

    pub fn is_passing(&self) -> bool {
        !self.passing.is_empty()
    }

    /// Streams to be sent on, since the last time.
    pub fn passing(&mut self) -> Vec<Stream> {
        std::mem::take(&mut self.passing)
    }

    /// Bytes that are kept here for ranks that this node routes for, and how many those are.
    pub fn logged(&self) -> (u64, u32) {
        let chunk = u64::from(self.segment.geometry().chunk_bytes);
        let own = |(src, dst): &Stream| self.paths.routes(*dst) && src != dst;
        let held = self.mirrors.keys().filter(|s| own(s)).map(|(src, dst)| {
            let ctl = self.segment.channel(*src, *dst);
            let (first, next) = (ctl.chunks_first.load(Acquire), ctl.chunks_next.load(Acquire));
            next.saturating_sub(first) * chunk
        });
        let ranks = (0..self.ranks()).filter(|rank| self.paths.routes(*rank)).count();
        (held.sum(), ranks as u32)
    }

    /// Ends the connection from a node that is gone.
    pub fn drop_connection(&mut self, member: Member) {
        if self.connections.get(&member.node).is_some_and(|c| c.peer == member)
            && let Some(old) = self.connections.remove(&member.node)
        {
            old.close();
        }
    }

    /// Forgets a connection that ended.
    pub fn ended(&mut self, connection: &Arc<Connection>) {
        if self.stands(connection) {
            self.connections.remove(&connection.peer.node);
        }
    }
}

/// Position before which a mirror may be given up: a router keeps what its receiver may come back
/// for, others what it has not read.
fn kept_from(segment: &Segment, paths: &Paths, (src, dst): Stream) -> u64 {
    let ctl = segment.channel(src, dst);
    if paths.routes(dst) { ctl.trim.load(Acquire) } else { ctl.need.load(Acquire) }
}
