//! A simulated node: the real gate and replica store; models of segment, processes, disk and links.

use crate::program::{ANY, Channel, NAMED, Op, State};
use crate::segment::{self, Segment};
use crate::types::*;
use crate::units::Snapshot;
use crate::world::World;
use eyrie_protocol::gate::{DetLogs, Gate, Ticket};
use eyrie_protocol::membership::Member;
use eyrie_protocol::replicas::Replicas;
use eyrie_protocol::router_pause::RouterPauses;
use eyrie_protocol::routing::Paths;
use eyrie_protocol::session::Session;
use eyrie_protocol::vacated::Vacated;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

/// A rank that is slowed down does so many times less at most.
const SLOWEST: u32 = 8;

/// The process of a rank.
#[derive(Debug, Clone)]
pub struct Proc {
    pub incarnation: u32,
    pub state: State,
    pub depends: Vec<u64>,
    pub cursor: u64,
    pub run: Option<(u64, u64)>,
    pub waits: bool,
    pub done: bool,
    /// It stands for a snapshot of its unit, and since then would have gone on.
    pub stands: bool,
    pub would_go_on: bool,
    /// It stands, as its node leaves.
    pub held: bool,
    /// It stands, as the job does.
    pub suspended: bool,
}

/// An image on a node's disk.
#[derive(Clone)]
pub struct Stored {
    pub image: Rc<Image>,
    pub bad: bool,
    /// A bad one was here before: word of that may still be on its way.
    pub replaced: bool,
}

/// A connection to another node.
#[derive(Clone)]
pub struct Peer {
    pub conn: usize,
    /// From where on a channel is to be sent on this connection, once the receiver has said so.
    pub next: BTreeMap<Channel, u64>,
    /// Acknowledgements that were sent on it.
    pub told: BTreeMap<Channel, u64>,
}

/// One node in one incarnation.
#[derive(Clone)]
pub struct Node {
    pub member: Member,
    pub gate: Gate,
    pub replicas: Replicas,
    pub segment: Segment,
    pub procs: BTreeMap<u32, Proc>,
    pub homes: Vec<Option<Member>>,
    pub members: Vec<Member>,
    pub disk: BTreeMap<(u32, u32), Stored>,
    pub leaving: VecDeque<(Ticket, FromNode)>,
    pub orders: BTreeMap<u32, (RestoreOrder, Option<Ticket>)>,
    pub peers: BTreeMap<Member, Peer>,
    pub connecting: BTreeSet<Member>,
    /// Copies that were ordered, by connection, until they are gone.
    pub copies: Vec<(Member, u32, u32)>,
    /// Images that are being taken, and where they are to be copied; and those that are copied.
    pub taking: BTreeMap<(u32, u32), Member>,
    pub taken: BTreeMap<(u32, u32), (Member, Rc<Image>)>,
    /// For whom images are kept that were taken there.
    pub kept_for: BTreeMap<(u32, u32), Member>,
    /// The image of each rank that was begun last.
    pub capturing: BTreeMap<u32, u32>,
    pub conn: usize,
    /// What was said to the controllers.
    pub session: Session<FromNode>,
    pub pumping: bool,
    /// For each rank: what it may still need, as it was told last.
    pub floors: BTreeMap<u32, Vec<u64>>,
    /// Snapshots that are being taken.
    pub snapshots: Vec<Snapshot>,
    pub vacated: Vacated,
    /// Where streams come from and go to.
    pub paths: Paths,
    /// Of a router: ranks that it sends nothing to.
    pub standing: RouterPauses,
    /// How often each unit went back.
    pub lives: BTreeMap<u32, u32>,
    /// The order by which its ranks stand, and whether it was answered.
    pub suspend: Option<(u64, bool)>,
    /// What it knows besides where the real controller leads it.
    pub real: crate::real::agent::Known,
}

impl Node {
    pub fn new(member: Member, ranks: u32, replicas: usize, conn: usize) -> Self {
        Node {
            paths: Paths::new(member.node, ranks),
            standing: RouterPauses::default(),
            member,
            gate: Gate::new(member, replicas),
            replicas: Replicas::default(),
            segment: Segment::default(),
            procs: BTreeMap::new(),
            homes: vec![None; ranks as usize],
            members: Vec::new(),
            disk: BTreeMap::new(),
            leaving: VecDeque::new(),
            orders: BTreeMap::new(),
            peers: BTreeMap::new(),
            connecting: BTreeSet::new(),
            copies: Vec::new(),
            taking: BTreeMap::new(),
            taken: BTreeMap::new(),
            kept_for: BTreeMap::new(),
            capturing: BTreeMap::new(),
            conn,
            session: Session::default(),
            pumping: false,
            floors: BTreeMap::new(),
            snapshots: Vec::new(),
            vacated: Vacated::default(),
            lives: BTreeMap::new(),
            suspend: None,
            real: crate::real::agent::Known::default(),
        }
    }

    /// Whether a rank's log lies here.
    pub fn is_home(&self, rank: u32) -> bool {
        self.homes[rank as usize] == Some(self.member)
    }

    /// A rank is no longer here: what others sent it goes, and of its log all but what ranks here
    /// have yet to read (`Inbound::left`).
    pub fn left(&mut self, rank: u32) {
        let Node { segment, procs, homes, member, .. } = self;
        let here = |rank: u32| homes[rank as usize] == Some(*member);
        for (&(from, to, kind), stream) in &mut segment.streams {
            if from == rank && here(to) {
                let next = procs.get(&to).map_or(stream.taken, |p| p.state.next(from, kind));
                stream.messages = stream.messages.split_off(&next);
            } else if from == rank || (to == rank && !here(from)) {
                stream.messages.clear();
            }
        }
    }

    /// Position before which nothing of a channel is needed.
    pub fn floor(&self, channel: Channel) -> u64 {
        let of = |need: &Vec<u64>| need[crate::program::slot(channel.0, channel.2)];
        self.floors.get(&channel.1).map_or(0, of)
    }

    /// Whether a rank has not repeated all that is recorded of it, or that it has sent.
    pub fn is_behind(&self, rank: u32) -> bool {
        let Some(proc) = self.procs.get(&rank) else { return false };
        let sent = |(_, to, kind): &Channel| proc.state.sent[crate::program::slot(*to, *kind)];
        let own = self.segment.streams.iter().filter(|(channel, _)| channel.0 == rank);
        let unsent = own.filter_map(|(c, s)| Some((sent(c), *s.messages.keys().next_back()?)));
        let unsent = unsent.into_iter().any(|(sent, last)| last >= sent);
        unsent || self.dictated(rank).is_some()
    }

    /// What the rank's determinants say comes next, if it is replaying.
    fn dictated(&self, rank: u32) -> Option<Result<u32, u64>> {
        let proc = &self.procs[&rank];
        let log = &self.segment.det.get(&rank)?;
        let at_run = |at: u64| log.words.get(at.checked_sub(log.first)? as usize);
        if let Some((at, made)) = proc.run
            && at_run(at).is_some_and(|w| segment::read_word(*w).is_err_and(|n| n > made))
        {
            return Some(Err(1));
        }
        let word = *log.words.get(proc.cursor.checked_sub(log.first)? as usize)?;
        Some(segment::read_word(word))
    }

    /// The rank goes past a dictated outcome.
    fn pass(&mut self, rank: u32, outcome: Result<u32, u64>) {
        let log_tail = self.segment.tail(rank);
        let Some(proc) = self.procs.get_mut(&rank) else { return };
        let open = proc.run.filter(|(at, made)| {
            let log = &self.segment.det[&rank];
            let word = at.checked_sub(log.first).and_then(|i| log.words.get(i as usize));
            word.is_some_and(|w| segment::read_word(*w).is_err_and(|n| n > *made))
        });
        match (outcome, open) {
            (Err(_), Some((at, made))) => proc.run = Some((at, made + 1)),
            (Err(_), None) => {
                proc.run = Some((proc.cursor, 1));
                proc.cursor += 1;
            }
            (Ok(_), _) => {
                proc.run = None;
                proc.cursor += 1;
            }
        }
        debug_assert!(proc.cursor <= log_tail);
    }

    /// Records an outcome found out by the rank itself.
    fn record(&mut self, rank: u32, outcome: Result<u32, u64>) {
        let tail = self.segment.tail(rank);
        let Some(proc) = self.procs.get_mut(&rank) else { return };
        match (outcome, proc.run) {
            (Err(_), Some((at, made))) if at + 1 == tail => {
                proc.run = Some((at, made + 1));
                if let Some(last) = self.segment.last(rank) {
                    *last = segment::RUN | (made + 1);
                }
            }
            (Err(_), _) => {
                proc.run = Some((tail, 1));
                proc.cursor = tail + 1;
                self.segment.push(rank, segment::RUN | 1);
            }
            (Ok(source), _) => {
                proc.run = None;
                proc.cursor = tail + 1;
                self.segment.push(rank, segment::word_of(source));
            }
        }
    }
}

/// What an operation came to.
enum Went {
    On,
    Waits,
}

impl World {
    pub fn node(&mut self, at: Member) -> Option<&mut Node> {
        self.nodes.get_mut(&at)
    }

    /// A rank's process does one operation.
    pub fn step(&mut self, at: Member, rank: u32, incarnation: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let Some(proc) = node.procs.get_mut(&rank) else { return };
        if proc.incarnation != incarnation || proc.done || proc.held {
            return;
        }
        if proc.stands || proc.suspended {
            proc.would_go_on = true;
            return;
        }
        let next = proc.state.at;
        self.check_stands(at, rank);
        let Some(op) = self.programs[rank as usize].get(next).copied() else {
            return self.rank_ends(at, rank);
        };
        let went = match op {
            Op::Send { to, kind } => self.op_send(at, rank, to, kind),
            Op::Receive { from } => self.op_receive(at, rank, from, NAMED),
            Op::WaitAck { to } => self.op_wait_ack(at, rank, to),
            Op::ReceiveAny { upto } => self.op_any(at, rank, Some(upto)),
            Op::Poll => self.op_any(at, rank, None),
            Op::Print => self.op_print(at, rank),
        };
        let Some(proc) = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank)) else {
            return;
        };
        match went {
            Went::On => {
                proc.state.at += 1;
                proc.waits = false;
                let after = 2 + self.random.below(40);
                let slow = self.nodes.get(&at).and_then(|n| n.real.slow.get(&rank)).copied();
                let after = after * u64::from(slow.unwrap_or(0).clamp(1, SLOWEST));
                self.at(after, Event::Step { at, rank, incarnation });
                self.wake_pump(at);
            }
            Went::Waits => proc.waits = true,
        }
    }

    /// Something came for a rank.
    pub fn wake(&mut self, at: Member, rank: u32) {
        let Some(proc) = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank)) else {
            return;
        };
        if std::mem::take(&mut proc.waits) {
            let incarnation = proc.incarnation;
            let after = 1 + self.random.below(10);
            self.at(after, Event::Step { at, rank, incarnation });
        }
    }

    fn op_send(&mut self, at: Member, rank: u32, to: u32, kind: u8) -> Went {
        let skip = self.mutated(Mutation::SuppressWithoutRelog);
        let Some(node) = self.nodes.get_mut(&at) else { return Went::Waits };
        let floor = node.floor((rank, to, kind));
        let Some(proc) = node.procs.get_mut(&rank) else { return Went::Waits };
        let position = proc.state.sent[crate::program::slot(to, kind)];
        let payload = proc.state.send(to, kind);
        let depends: Depends = Rc::new(proc.depends.clone());
        let channel = (rank, to, kind);
        let stream = node.segment.streams.entry(channel).or_default();
        match stream.messages.get(&position) {
            Some(old) if old.payload != payload => {
                self.fail(format!("rank {rank} sends something else at {channel:?} {position}"));
            }
            Some(_) => {}
            None if position < floor => {}
            // The receiver is known to have it: a mutation leaves it out of the log.
            None if skip && stream.taken > position => {}
            None => drop(stream.messages.insert(position, Message { payload, depends })),
        }
        self.wake(at, to);
        Went::On
    }

    fn op_receive(&mut self, at: Member, rank: u32, from: u32, kind: u8) -> Went {
        let inner = self.is_inner((from, rank, kind));
        let more = u64::from(inner && self.mutated(Mutation::InnerGivenEarly));
        let Some(node) = self.nodes.get_mut(&at) else { return Went::Waits };
        let home = node.is_home(from);
        let Some(proc) = node.procs.get_mut(&rank) else { return Went::Waits };
        let position = proc.state.next(from, kind);
        let stream = node.segment.streams.entry((from, rank, kind)).or_default();
        let Some(message) = stream.messages.get(&position).cloned() else { return Went::Waits };
        proc.state.take(from, kind, message.payload);
        for (own, other) in proc.depends.iter_mut().zip(message.depends.iter()) {
            *own = (*own).max(*other);
        }
        stream.taken = stream.taken.max(position + 1);
        if !home || inner {
            // A mirror is released by what the program has received, and so is the log in a unit.
            stream.messages = stream.messages.split_off(&(position + 1 + more));
        }
        self.wake(at, from);
        Went::On
    }

    fn op_wait_ack(&mut self, at: Member, rank: u32, to: u32) -> Went {
        let Some(node) = self.nodes.get_mut(&at) else { return Went::Waits };
        let Some(proc) = node.procs.get(&rank) else { return Went::Waits };
        let sent = proc.state.sent[crate::program::slot(to, NAMED)];
        let stream = node.segment.streams.entry((rank, to, NAMED)).or_default();
        if stream.taken >= sent { Went::On } else { Went::Waits }
    }

    /// A wildcard receive, or a poll.
    fn op_any(&mut self, at: Member, rank: u32, upto: Option<u64>) -> Went {
        let ranks = self.ranks();
        let Some(node) = self.nodes.get_mut(&at) else { return Went::Waits };
        let Some(proc) = node.procs.get(&rank) else { return Went::Waits };
        let incarnation = proc.incarnation;
        if upto.is_some_and(|n| proc.state.any_received() >= n) {
            return Went::On;
        }
        if let Some(outcome) = node.dictated(rank) {
            if let Ok(source) = outcome {
                if let Went::Waits = self.op_receive(at, rank, source, ANY) {
                    return Went::Waits;
                }
            } else if upto.is_some() {
                self.fail(format!("rank {rank}: a wildcard finds the outcome of a poll"));
            }
            let Some(node) = self.nodes.get_mut(&at) else { return Went::Waits };
            node.pass(rank, outcome);
            self.count_outcome(at, rank, outcome);
            return Went::On;
        }
        let there = |from: &u32| {
            let next = proc.state.next(*from, ANY);
            let stream = node.segment.streams.get(&(*from, rank, ANY));
            stream.is_some_and(|s| s.messages.contains_key(&next))
        };
        let sources: Vec<u32> = (0..ranks).filter(there).collect();
        let unlucky = upto.is_none() && self.random.one_in(2);
        let outcome = match self.random.pick(&sources) {
            Some(source) if !unlucky => {
                self.op_receive(at, rank, source, ANY);
                Ok(source)
            }
            _ if upto.is_some() => return Went::Waits,
            _ => Err(1),
        };
        if let Some(node) = self.nodes.get_mut(&at) {
            node.record(rank, outcome);
        }
        self.truth.recorded(rank, incarnation, outcome);
        self.count_outcome(at, rank, outcome);
        Went::On
    }

    fn count_outcome(&mut self, at: Member, rank: u32, outcome: Result<u32, u64>) {
        let Some(proc) = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank)) else {
            return;
        };
        proc.depends[rank as usize] += 1;
        if outcome.is_err() {
            proc.state.polled_in_vain();
        }
    }

    fn op_print(&mut self, at: Member, rank: u32) -> Went {
        let Some(node) = self.nodes.get_mut(&at) else { return Went::Waits };
        let Some(proc) = node.procs.get_mut(&rank) else { return Went::Waits };
        let (index, incarnation) = (proc.state.printed, proc.incarnation);
        let line = proc.state.print();
        let depends = Rc::new(proc.depends.clone());
        self.leave(at, FromNode::Output { rank, incarnation, index, line, depends });
        Went::On
    }

    fn rank_ends(&mut self, at: Member, rank: u32) {
        let Some(proc) = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank)) else {
            return;
        };
        proc.done = true;
        let (incarnation, hash) = (proc.incarnation, proc.state.hash);
        let depends = Rc::new(proc.depends.clone());
        self.leave(at, FromNode::RankDone { rank, incarnation, hash, depends });
    }

    /// Lets something out to the controller, when the gate permits.
    pub fn leave(&mut self, at: Member, what: FromNode) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let ticket = node.gate.sample(&node.segment);
        node.leaving.push_back((ticket, what));
        self.wake_pump(at);
    }

    pub fn wake_pump(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if !std::mem::replace(&mut node.pumping, true) {
            let after = self.random.below(30);
            self.at(after, Event::Pump { at });
        }
    }
}
