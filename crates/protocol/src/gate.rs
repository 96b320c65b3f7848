//! The gate: nothing leaves a node before the determinants it may depend on are held elsewhere.
//!
//! Pure, without I/O. Ranks of a node hand messages to each other freely, as they are lost together
//! or not at all. What leaves - stream bytes, acknowledgements of synchronous sends, output,
//! completed checkpoints - asks `sample` for a ticket *after* it was read from the segment, and
//! leaves when `may_leave` says so: when all determinants that any rank of the node had recorded by
//! then are held by the replicas.
//!
//! Kept true: what was let out depends only on determinants that each of the replicas holds, and a
//! replica is exchanged only for its death (a newcomer never pushes one out), so any live node that
//! was ever in step with this gate holds all that matters. A connection to a replica begins with
//! everything that is not trimmed; what a frame carries is in order on its connection. The words
//! themselves stay in the determinant logs and are read when a frame is made.

use crate::membership::{Member, Neighbours};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most words in one frame (512 KiB).
pub const FRAME_WORDS: usize = 64 * 1024;

/// The determinant logs of a node's ranks (see `ledger::door`).
pub trait DetLogs {
    /// One more than the position of the last word.
    fn tail(&self, rank: u32) -> u64;
    /// Words before this are not needed any more.
    fn trim(&self, rank: u32) -> u64;
    /// The word at a position from `trim` to before `tail`.
    fn word(&self, rank: u32, at: u64) -> u64;
}

/// Stands for all determinants that were recorded on the node at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticket(u64);

/// A piece of one rank's determinant log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    pub rank: u32,
    /// Position of the first word.
    pub first: u64,
    /// Nothing before `first` is needed: what the replica holds may start anew here.
    pub base: bool,
    pub words: Vec<u64>,
}

/// What a gate sends to a replica, in order on one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToReplica {
    pub pieces: Vec<Piece>,
    /// With this frame the replica holds everything up to here, and says so by the same number.
    /// `None`: more frames belong to it.
    pub upto: Option<u64>,
}

/// The end of one log: where it is, and its last word (which may grow in place).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LogEnd {
    tail: u64,
    last: u64,
}

#[derive(Debug, Clone)]
struct Replica {
    member: Member,
    connected: bool,
    /// What is on this connection, by rank.
    sent: BTreeMap<u32, LogEnd>,
    /// Everything up to here is on this connection.
    sent_upto: Option<u64>,
    /// Everything up to here is held. Outlives the connection, as the replica does.
    held_upto: Option<u64>,
}

/// One node's gate.
#[derive(Debug, Clone)]
pub struct Gate {
    own: Member,
    wanted: usize,
    neighbours: Neighbours,
    ranks: BTreeMap<u32, LogEnd>,
    /// Counts samples that found something new.
    seq: u64,
    replicas: Vec<Replica>,
    /// Peers to which a connection stands, replicas or not.
    connected: BTreeSet<Member>,
    /// Members that will not stay: they hold what they hold, but others are to hold it as well.
    leaving: Vec<Member>,
}

impl Gate {
    /// `wanted`: replicas that are to hold each determinant (`--log-replicas`).
    pub fn new(own: Member, wanted: usize) -> Self {
        Gate {
            own,
            wanted,
            neighbours: Neighbours::default(),
            ranks: BTreeMap::new(),
            seq: 0,
            replicas: Vec::new(),
            connected: BTreeSet::new(),
            leaving: Vec::new(),
        }
    }

    /// The same where replicas are chosen by clusters.
    pub fn with_neighbours(self, neighbours: Neighbours) -> Self {
        Gate { neighbours, ..self }
    }

    /// Where nodes are: some are to join. Heeded when they do.
    pub fn place(&mut self, of: Vec<u32>) {
        self.neighbours.place(of);
    }

    /// What nodes fail together with: it counts from the next `set_members` on.
    pub fn set_domains(&mut self, of: Vec<u32>) {
        self.neighbours.set_domains(of);
    }

    /// The live nodes, this one included or not. The dead are replaced by the next in the ring.
    pub fn set_members(&mut self, members: &[Member]) {
        self.connected.retain(|peer| members.contains(peer));
        self.replicas.retain(|r| members.contains(&r.member));
        let ring = self.neighbours.after(self.own.node, members);
        let (go, stay): (Vec<Member>, Vec<Member>) =
            ring.into_iter().partition(|m| self.leaving.contains(m));
        let staying = |r: &&Replica| !self.leaving.contains(&r.member);
        let missing = self.wanted.saturating_sub(self.replicas.iter().filter(staying).count());
        self.add_replicas(missing, stay);
        // Better those than none.
        self.add_replicas(self.short_of(), go);
    }

    /// These members leave, of all that there are.
    pub fn set_leaving(&mut self, leaving: &[Member], members: &[Member]) {
        self.leaving = leaving.to_vec();
        self.set_members(members);
    }

    fn add_replicas(&mut self, count: usize, from: Vec<Member>) {
        let new = |m: &Member| self.replicas.iter().all(|r| r.member != *m);
        let new: Vec<Member> = from.into_iter().filter(new).take(count).collect();
        self.replicas.extend(new.into_iter().map(|member| Replica {
            member,
            // Nothing of this gate's is on that connection, whatever else is.
            connected: self.connected.contains(&member),
            sent: BTreeMap::new(),
            sent_upto: None,
            held_upto: None,
        }));
    }

    /// Nodes to which a connection is needed.
    pub fn replicas(&self) -> impl Iterator<Item = Member> {
        self.replicas.iter().map(|r| r.member)
    }

    /// Fewer replicas than wanted, for want of nodes.
    pub fn short_of(&self) -> usize {
        self.wanted.saturating_sub(self.replicas.len())
    }

    /// A rank has its home here. Its log may hold words already (it was recovered): ask `sample`
    /// for a ticket and start it when that may leave.
    pub fn attach(&mut self, rank: u32, logs: &impl DetLogs) {
        self.detach(rank);
        let end = LogEnd { tail: logs.trim(rank), last: 0 };
        self.ranks.insert(rank, end);
    }

    /// A rank is at home here no longer.
    pub fn detach(&mut self, rank: u32) {
        self.ranks.remove(&rank);
        for replica in &mut self.replicas {
            replica.sent.remove(&rank);
        }
    }

    /// Takes note of all that is recorded by now.
    pub fn sample(&mut self, logs: &impl DetLogs) -> Ticket {
        let mut news = false;
        for (&rank, end) in &mut self.ranks {
            let tail = logs.tail(rank).max(end.tail);
            let last = if tail > logs.trim(rank) { logs.word(rank, tail - 1) } else { end.last };
            let now = LogEnd { tail, last };
            news |= *end != now;
            *end = now;
        }
        self.seq += u64::from(news);
        Ticket(self.seq)
    }

    /// The ends of the logs that the last sample found: rank, position, last word.
    pub fn ends(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.ranks.iter().map(|(rank, end)| (*rank, end.tail, end.last))
    }

    /// A new connection to `peer` stands, whether it is a replica or not (it may become one).
    pub fn connected(&mut self, peer: Member) {
        self.connected.insert(peer);
        if let Some(replica) = self.replica(peer) {
            replica.connected = true;
            replica.sent.clear();
            replica.sent_upto = None;
        }
    }

    pub fn disconnected(&mut self, peer: Member) {
        self.connected.remove(&peer);
        if let Some(replica) = self.replica(peer) {
            replica.connected = false;
            replica.sent.clear();
            replica.sent_upto = None;
        }
    }

    fn replica(&mut self, peer: Member) -> Option<&mut Replica> {
        self.replicas.iter_mut().find(|r| r.member == peer)
    }

    /// What is to be sent to `peer` next. Must be put on the connection before anything else.
    pub fn next_frame(&mut self, peer: Member, logs: &impl DetLogs) -> Option<ToReplica> {
        let seq = self.seq;
        let replica = self.replicas.iter_mut().find(|r| r.member == peer && r.connected)?;
        if replica.sent_upto == Some(seq) {
            return None;
        }
        let mut frame = ToReplica { pieces: Vec::new(), upto: None };
        let mut room = FRAME_WORDS as u64;
        for (&rank, end) in &self.ranks {
            let sent = replica.sent.get(&rank).copied();
            if sent == Some(*end) {
                continue;
            }
            let trim = logs.trim(rank);
            // The last word may have grown since.
            let from = sent.map_or(trim, |s| s.tail.saturating_sub(1).max(trim));
            let base = sent.is_none_or(|s| from > s.tail);
            let to = end.tail.min(from + room).max(from);
            let words: Vec<u64> = (from..to).map(|at| logs.word(rank, at)).collect();
            room -= words.len() as u64;
            let whole = to >= end.tail;
            let last = if whole { end.last } else { words.last().copied().unwrap_or(0) };
            if base || !words.is_empty() {
                frame.pieces.push(Piece { rank, first: from, base, words });
            }
            replica.sent.insert(rank, LogEnd { tail: to.min(end.tail), last });
            if !whole {
                return Some(frame);
            }
        }
        frame.upto = Some(seq);
        replica.sent_upto = Some(seq);
        Some(frame)
    }

    /// `peer` holds everything up to `upto`.
    pub fn acked(&mut self, peer: Member, upto: u64) {
        let seq = self.seq;
        if let Some(replica) = self.replica(peer)
            && upto <= seq
        {
            replica.held_upto = replica.held_upto.max(Some(upto));
        }
    }

    /// Whether what was read before `ticket` was given may leave, to a node or (`None`) to the
    /// controller.
    pub fn may_leave(&self, ticket: Ticket, to: Option<Member>) -> bool {
        if let [only] = &self.replicas[..]
            && Some(only.member) == to
            && only.sent_upto.is_some_and(|n| n >= ticket.0)
        {
            // The only replica reads the determinants first: it is as well off as with a wait.
            return true;
        }
        self.replicas.iter().all(|r| r.held_upto.is_some_and(|n| n >= ticket.0))
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
