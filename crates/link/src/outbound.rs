//! What the ranks of this node send to those of others, and what this node passes on as a router:
//! logs, cut in pieces, by the rules of `protocol::link::sender`, let out by the gate.
//!
//! Kept true: the gate is asked for a ticket after the pieces were found in the log, so it stands
//! for all that they can depend on; determinants are put on a connection before the pieces behind
//! them.

mod pausing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use eyrie_ledger::segment::Segment;
use eyrie_ledger::{datagram, unit, walk};
use eyrie_protocol::gate::{DetLogs, Gate, Ticket};
use eyrie_protocol::link::sender::{Effect, Send as Outgoing, Sender, Wrong};
use eyrie_protocol::link::wire::{Backward, Forward, Stream};
use eyrie_protocol::membership::{Member, Neighbours};
use eyrie_protocol::routing::Paths;

use crate::connection::{Connection, Flushed};
use crate::outlog::{self, OutLog};
use crate::waker::Waker;

/// Bytes queued on a connection beyond which nothing is added.
const MOST_QUEUED_BYTES: usize = 512 * 1024;

/// Determinant logs of the segment.
struct SegmentLogs<'a>(&'a Segment);

impl DetLogs for SegmentLogs<'_> {
    fn tail(&self, rank: u32) -> u64 {
        self.0.rank(rank).det_tail.load(Acquire)
    }

    fn trim(&self, rank: u32) -> u64 {
        self.0.rank(rank).det_trim.load(Acquire)
    }

    fn word(&self, rank: u32, at: u64) -> u64 {
        self.0.det(rank, at).load(Relaxed)
    }
}

/// Another node, as the place where streams go.
pub(crate) struct Peer {
    pub member: Member,
    pub address: SocketAddr,
    sender: Sender<Ticket>,
    pub connection: Option<Arc<Connection>>,
    pub connects: u64,
}

/// What is to be done when everything recorded before may be known elsewhere.
type Then = Box<dyn FnOnce() + Send>;

pub(crate) struct Outbound {
    segment: Arc<Segment>,
    own: Member,
    paths: Paths,
    pub peers: BTreeMap<u32, Peer>,
    logs: BTreeMap<Stream, OutLog>,
    gate: Gate,
    /// Streams to be looked at.
    fresh: BTreeSet<Stream>,
    /// Streams of which something may be set aside.
    aside: BTreeSet<Stream>,
    leaving: VecDeque<(Ticket, Then)>,
    /// What was due is being done just now, so nothing may overtake it.
    leaves: bool,
    /// Ranks that have ended: nothing is sent to them.
    released: BTreeSet<u32>,
    /// Streams that this node passes on, of which the receiver has said something.
    answered: BTreeSet<Stream>,
    /// Ranks that this node routes for and sends nothing to.
    pausing: pausing::Pausing,
    /// How often the recovery unit of a rank went back.
    lives: BTreeMap<u32, u32>,
}

impl Outbound {
    pub fn new(
        segment: Arc<Segment>,
        own: Member,
        (log_replicas, neighbours): (usize, Neighbours),
    ) -> Outbound {
        let ranks = segment.geometry().ranks;
        Outbound {
            segment,
            own,
            paths: Paths::new(own.node, ranks),
            peers: BTreeMap::new(),
            logs: BTreeMap::new(),
            gate: Gate::new(own, log_replicas).with_neighbours(neighbours),
            fresh: BTreeSet::new(),
            aside: BTreeSet::new(),
            leaving: VecDeque::new(),
            leaves: false,
            released: BTreeSet::new(),
            answered: BTreeSet::new(),
            pausing: pausing::Pausing::default(),
            lives: BTreeMap::new(),
        }
    }

    fn ranks(&self) -> u32 {
        self.paths.ranks()
    }

    /// The cluster of each node.
    pub fn places(&mut self, of: Vec<u32>) {
        self.gate.place(of);
    }

    pub fn domains(&mut self, of: Vec<u32>) {
        self.gate.set_domains(of);
    }

    /// The nodes of the job. Returns those that are new.
    pub fn members(&mut self, all: &[(Member, SocketAddr)]) -> Vec<Member> {
        self.peers.retain(|_, peer| {
            let stays = all.iter().any(|(member, _)| *member == peer.member);
            if let (false, Some(connection)) = (stays, &peer.connection) {
                connection.close();
            }
            stays
        });
        let mut new = Vec::new();
        for (member, address) in all.iter().filter(|(m, _)| m.node != self.own.node) {
            let address = *address;
            self.peers.entry(member.node).and_modify(|p| p.address = address).or_insert_with(
                || {
                    new.push(*member);
                    let sender = Sender::default();
                    Peer { member: *member, address, sender, connection: None, connects: 0 }
                },
            );
        }
        let members: Vec<Member> = all.iter().map(|(member, _)| *member).collect();
        self.exchange_replicas(|gate| gate.set_members(&members));
        for rank in 0..self.ranks() {
            let (home, router) = (self.paths.home(rank), self.paths.router(rank));
            if new.iter().any(|m| m.node == home || m.node == router) {
                self.look_at_streams_to(rank);
            }
        }
        new
    }

    /// Of the members these leave: what this node records is to be held by others.
    pub fn leaving(&mut self, leaving: &[Member]) {
        let others = self.peers.values().map(|peer| peer.member);
        let members: Vec<Member> = others.chain([self.own]).collect();
        self.exchange_replicas(|gate| gate.set_leaving(leaving, &members));
    }

    fn exchange_replicas(&mut self, exchange: impl FnOnce(&mut Gate)) {
        let before: Vec<Member> = self.gate.replicas().collect();
        exchange(&mut self.gate);
        let added: Vec<Member> = self.gate.replicas().filter(|r| !before.contains(r)).collect();
        if !added.is_empty() {
            (0..self.ranks()).for_each(|r| datagram::doubt(self.segment.rank(r)));
        }
        for member in added {
            // Streams may have used the connection already; determinants begin on it now.
            if self.peers.get(&member.node).is_some_and(|p| p.connection.is_some()) {
                self.gate.connected(member);
            }
        }
    }

    fn look_at_streams_to(&mut self, rank: u32) {
        (0..self.ranks()).for_each(|src| self.look_at((src, rank)));
    }

    /// Looks at all that `rank`, of which no process runs, has sent to other nodes.
    pub fn look_at_streams_of(&mut self, rank: u32) {
        for dst in 0..self.ranks() {
            datagram::take_back(self.segment.channel(rank, dst));
            self.look_at((rank, dst));
        }
    }

    fn look_at(&mut self, stream: Stream) {
        if self.segment.channel(stream.0, stream.1).chunks_next.load(Acquire) > 0 {
            self.news(stream);
        }
    }

    /// Ranks of one recovery unit, of which no process is left anywhere, went back for the `life`th
    /// time: what was said of streams between them says nothing any more. What they had sent is
    /// given up already.
    pub fn part(&mut self, ranks: &[u32], life: u32) {
        self.forget(|(src, dst)| ranks.contains(&src) && ranks.contains(&dst));
        self.lives.extend(ranks.iter().map(|rank| (*rank, life)));
        unit::unread(&self.segment, ranks);
    }

    /// Whether an answer comes from before the receiver's recovery unit went back. What it needs of
    /// streams within the unit decides over what is kept of them.
    fn is_outlived(&self, answer: Backward) -> bool {
        let Backward::Resume { stream: (src, dst), life, .. } = answer else { return false };
        let ranks = self.ranks();
        let inner = src < ranks && dst < ranks && unit::is_inner(&self.segment, src, dst);
        inner && life != self.lives.get(&dst).copied().unwrap_or(0)
    }

    /// `rank` has its home on `node` from now on.
    pub fn home(&mut self, rank: u32, node: u32) {
        if self.paths.set_home(rank, node) == node {
            return;
        }
        self.forget_pause(rank);
        self.forget(|(src, dst)| dst == rank || src == rank);
        self.released.remove(&rank);
        datagram::doubt(self.segment.rank(rank));
        datagram::set_gateway(self.segment.rank(rank), 0, [0; 2]);
        if node == self.own.node {
            self.gate.attach(rank, &SegmentLogs(&self.segment));
        } else {
            self.gate.detach(rank);
        }
        self.look_at_streams_of(rank);
        self.look_at_streams_to(rank);
    }

    /// Ranks have these routers from now on.
    pub fn routers(&mut self, routers: &[u32]) {
        for (rank, _) in self.paths.set_routers(routers) {
            self.forget_pause(rank);
            self.forget(|(_, dst)| dst == rank);
            self.look_at_streams_to(rank);
        }
    }

    /// Nothing is sent to `rank` any more.
    pub fn release(&mut self, rank: u32) {
        self.released.insert(rank);
        self.forget(|(_, dst)| dst == rank);
    }

    /// Nothing is to be sent of these streams any more.
    fn forget(&mut self, which: impl Fn(Stream) -> bool) {
        self.peers.values_mut().for_each(|peer| peer.sender.forget(&which));
        self.logs.retain(|stream, _| !which(*stream));
        self.fresh.retain(|stream| !which(*stream));
    }

    /// There is something in a stream of a rank of this node, or of one that it passes on.
    pub fn news(&mut self, (src, dst): Stream) {
        let ranks = self.ranks();
        let known = src < ranks && dst < ranks && !self.released.contains(&dst);
        if known && self.paths.next((src, dst)).is_some() {
            self.fresh.insert((src, dst));
        }
    }

    pub fn is_local_source(&self, (src, _): Stream) -> bool {
        src < self.ranks() && self.paths.is_here(src)
    }

    /// Streams whose receivers have said something that their senders are to hear.
    pub fn answered(&mut self) -> BTreeSet<Stream> {
        std::mem::take(&mut self.answered)
    }

    /// Nodes to which a connection is wanted and does not stand.
    pub fn missing(&self) -> Vec<u32> {
        let wanted = |p: &Peer| {
            p.connection.is_none()
                && (p.sender.is_wanted()
                    || self.gate.replicas().any(|r| r == p.member)
                    || self.has_mark_for(p.member.node))
        };
        self.peers.iter().filter(|(_, p)| wanted(p)).map(|(node, _)| *node).collect()
    }

    /// A connection to a peer stands. False: the peer is no member any more.
    pub fn connected(&mut self, connection: &Arc<Connection>) -> bool {
        let member = connection.peer;
        let Some(peer) = self.peers.get_mut(&member.node).filter(|p| p.member == member) else {
            return false;
        };
        peer.sender.connected();
        peer.connects += 1;
        peer.connection = Some(Arc::clone(connection));
        self.gate.connected(member);
        self.marks_lost(member.node);
        true
    }

    /// A connection has ended.
    pub fn ended(&mut self, connection: &Arc<Connection>) {
        let member = connection.peer;
        let Some(peer) = self.peers.get_mut(&member.node) else { return };
        if peer.connection.as_ref().is_some_and(|c| Arc::ptr_eq(c, connection)) {
            peer.connection = None;
            peer.sender.disconnected();
            self.gate.disconnected(member);
        }
    }

    /// Takes an answer that came by `connection`.
    pub fn answer(&mut self, connection: &Arc<Connection>, answer: Backward) -> Result<(), Wrong> {
        let member = connection.peer;
        if self.is_outlived(answer) {
            return Ok(());
        }
        let Some(peer) = self.peers.get(&member.node) else { return Ok(()) };
        if !peer.connection.as_ref().is_some_and(|c| Arc::ptr_eq(c, connection)) {
            return Ok(());
        }
        if self.hear_of_pause(member.node, answer) {
            return Ok(());
        }
        let Some(peer) = self.peers.get_mut(&member.node) else { return Ok(()) };
        let segment = &*self.segment;
        let effect = peer.sender.answer(answer)?;
        if let Effect::Rewind { stream, .. }
        | Effect::Skip { stream, .. }
        | Effect::Moved { stream, .. }
        | Effect::Acked { stream, .. } = effect
            && self.paths.routes(stream.1)
        {
            self.answered.insert(stream);
        }
        match effect {
            Effect::Rewind { stream, from, need } => {
                // It may be another process, with another token. Who gives something to a direct
                // connection looks at this afterwards.
                datagram::set_gateway(segment.rank(stream.1), 0, [0; 2]);
                fence(SeqCst);
                self.logs.entry(stream).or_default().rewind(segment, stream, from, need);
                self.fresh.insert(stream);
                // What it waits for may have been matched long ago.
                segment.rank(stream.0).wake();
            }
            Effect::Skip { stream, from, need } => {
                let Some(log) = self.logs.get_mut(&stream) else { return Ok(()) };
                log.skip(segment, stream, from, need);
                self.fresh.insert(stream);
            }
            Effect::Bring { stream } => {
                let Some(log) = self.logs.get_mut(&stream) else { return Ok(()) };
                log.carry(segment, stream);
                segment.channel(stream.0, stream.1).brought.fetch_add(1, Relaxed);
                self.fresh.insert(stream);
            }
            Effect::Moved { stream, have, need } => {
                let Some(log) = self.logs.get_mut(&stream) else { return Ok(()) };
                log.moved(segment, stream, have, need);
            }
            Effect::Acked { stream, position } => {
                let Some(log) = self.logs.get_mut(&stream) else { return Ok(()) };
                log.acked(segment, stream, position);
            }
            Effect::Held { upto } => self.gate.acked(member, upto),
            Effect::Early { stream, port, token } => {
                let ctl = segment.rank(stream.1);
                datagram::set_address(ctl, peer.address.ip());
                datagram::set_gateway(ctl, u32::from(port), token);
            }
            Effect::Nothing => {}
        }
        Ok(())
    }

    /// Sends what may be sent. Returns what may be done now, and whether anything was sent.
    pub fn pass(&mut self, waker: &Waker) -> (Vec<Then>, bool) {
        let cut = self.cut();
        let ticket = self.gate.sample(&SegmentLogs(&self.segment));
        for (stream, pieces) in cut {
            let next = self.paths.next(stream);
            if let Some(peer) = next.and_then(|node| self.peers.get_mut(&node)) {
                for (end, bytes) in pieces {
                    peer.sender.piece(stream, end, bytes, ticket);
                }
            }
        }
        let mut sent = self.send_marks();
        let nodes: Vec<u32> = self.peers.keys().copied().collect();
        for node in nodes {
            sent |= self.send(node, waker);
        }
        let mut due = Vec::new();
        while let Some((ticket, _)) = self.leaving.front()
            && self.gate.may_leave(*ticket, None)
        {
            due.extend(self.leaving.pop_front().map(|(_, then)| then));
        }
        self.leaves = !due.is_empty();
        due.extend(self.pausing.settled());
        if self.gate.may_leave(ticket, None) {
            for (rank, tail, last) in self.gate.ends() {
                datagram::hold(self.segment.rank(rank), tail, last);
            }
        }
        (due, sent)
    }

    /// Cuts pieces of all streams with news whose receivers have said where to go on.
    fn cut(&mut self) -> Vec<(Stream, Vec<outlog::Piece>)> {
        let mut all = Vec::new();
        let logs = &self.logs;
        self.aside.retain(|stream| {
            let overdue = logs.get(stream).and_then(OutLog::is_overdue);
            if overdue == Some(true) {
                self.fresh.insert(*stream);
            }
            overdue.is_some()
        });
        for stream in std::mem::take(&mut self.fresh) {
            let Some(node) = self.paths.next(stream) else { continue };
            let Some(peer) = self.peers.get_mut(&node) else { continue };
            if self.paths.routes(stream.1) {
                // Acknowledgements may have been waiting for what is there now.
                self.answered.insert(stream);
            }
            peer.sender.news(stream);
            if peer.sender.cut(stream).is_none() {
                continue;
            }
            let Some(log) = self.logs.get_mut(&stream) else { continue };
            let mut pieces = Vec::new();
            if let Err(fault) = log.cut(&self.segment, stream, &mut pieces) {
                tracing::warn!("link to node {node}: {fault}");
                if let Some(connection) = &peer.connection {
                    connection.close();
                }
            }
            if log.is_overdue().is_some() {
                self.aside.insert(stream);
            }
            if !pieces.is_empty() {
                all.push((stream, pieces));
            }
        }
        all
    }

    /// Fills the connection to `node` and writes. Whether anything was added.
    fn send(&mut self, node: u32, waker: &Waker) -> bool {
        let Outbound { peers, gate, segment, .. } = self;
        let Some(peer) = peers.get_mut(&node) else { return false };
        let Some(connection) = peer.connection.clone() else { return false };
        let member = peer.member;
        let mut added = false;
        loop {
            while connection.pending() < MOST_QUEUED_BYTES {
                if let Some(frame) = gate.next_frame(member, &SegmentLogs(segment)) {
                    if let Ok(bytes) = postcard::to_stdvec(&frame) {
                        connection.push(|out| Forward::Dets { bytes: &bytes }.encode(out, 0));
                    }
                } else if let Some(next) = peer.sender.next(|t| gate.may_leave(t, Some(member))) {
                    push(segment, &connection, &mut peer.sender, next);
                } else {
                    break;
                }
                added = true;
            }
            if connection.pending() == 0 {
                return added;
            }
            if connection.flush() == Flushed::Blocked {
                connection.await_room(waker);
                return added;
            }
        }
    }

    /// Whether something is set aside, and to be looked at before long.
    pub fn sets_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// Pauses that are over, and how long they took together.
    pub fn paused(&self) -> (u64, Duration) {
        self.pausing.over()
    }

    /// Does `then` when all that is recorded by now is held by the replicas. Returns it if that is
    /// so already.
    pub fn leave(&mut self, then: Then) -> Option<Then> {
        let ticket = self.gate.sample(&SegmentLogs(&self.segment));
        if !self.leaves && self.leaving.is_empty() && self.gate.may_leave(ticket, None) {
            return Some(then);
        }
        self.leaving.push_back((ticket, then));
        None
    }
}

/// Queues a frame.
fn push(segment: &Segment, connection: &Connection, sender: &mut Sender<Ticket>, next: Outgoing) {
    match next {
        Outgoing::Open { stream } => {
            connection.push(|out| Forward::Open { stream }.encode(out, 0));
        }
        Outgoing::Piece { stream, serial, from, bytes, .. } => {
            let (src, dst) = stream;
            let chunk = u64::from(segment.geometry().chunk_bytes);
            let Some(at) = walk::stretch(segment, src, dst, from, bytes) else {
                // Released: nobody reads the stream any more.
                sender.forget(|s| s == stream);
                return;
            };
            let chain = match from % chunk {
                0 => segment.dir(src, dst, from / chunk).chain.load(Acquire),
                _ => 0,
            };
            let head = Forward::Data { stream, serial, from, chain, bytes: &[] };
            let length = bytes as usize;
            // SAFETY: `stretch` lies in a chunk of the mapped segment.
            unsafe { connection.push_log(|out| head.encode(out, length), at, length) };
        }
    }
}
