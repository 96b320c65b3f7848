//! One node: its processes, and what they do with their streams.

use super::controller::Image;
use super::log::{Entry, Log, chunk_of, left_in_chunk};
use super::outbound::{Cuts, Peer};
use super::program::{Op, State};
use super::world::{Event, World};
use eyrie_protocol::link::receiver::Receiver;
use eyrie_protocol::link::wire::{Backward, Stream};
use eyrie_protocol::membership::{Member, Roster};
use eyrie_protocol::routing::Paths;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Bytes that may come beyond what a receiver has read.
const WINDOW_BYTES: u64 = 2 * super::log::CHUNK_BYTES;

/// A process of a rank.
pub struct Process {
    pub incarnation: u32,
    pub state: State,
    /// The position of the message that is to be acknowledged before the rank goes on.
    waits: Option<u64>,
    /// The life of the rank that its messages belong to.
    life: usize,
    pub done: bool,
    /// Its next step is due already.
    awake: bool,
}

pub struct Node {
    pub own: Member,
    pub roster: Roster,
    pub paths: Paths,
    pub receiver: Receiver,
    pub peers: BTreeMap<u32, Peer>,
    /// The connection that stands from each node.
    pub standing: BTreeMap<u32, usize>,
    /// Logs of ranks that are here, mirrors of others'.
    pub logs: BTreeMap<Stream, Log>,
    /// How far the mirrors go whose receivers are here.
    pub have: BTreeMap<Stream, u64>,
    /// From where on a stream is needed, and how far its receiver has looked.
    pub ends: BTreeMap<Stream, (u64, u64)>,
    /// Before which position nothing of a stream is wanted, however little of it is here.
    pub passed: BTreeMap<Stream, u64>,
    /// What is not needed of each stream before.
    pub floors: BTreeMap<Stream, u64>,
    pub out: Cuts,
    /// Streams to be looked at by the sender's side, and by both.
    pub fresh: BTreeSet<Stream>,
    pub marked: BTreeSet<Stream>,
    pub processes: BTreeMap<u32, Process>,
    pub answers: Vec<Backward>,
    /// There is no room for more chunks.
    pub tight: bool,
    kicked: bool,
}

impl Node {
    pub fn new(own: Member, ranks: u32) -> Node {
        Node {
            own,
            roster: Roster::default(),
            paths: Paths::new(own.node, ranks),
            receiver: Receiver::new(WINDOW_BYTES),
            peers: BTreeMap::new(),
            standing: BTreeMap::new(),
            logs: BTreeMap::new(),
            have: BTreeMap::new(),
            ends: BTreeMap::new(),
            passed: BTreeMap::new(),
            floors: BTreeMap::new(),
            out: Cuts::new(),
            fresh: BTreeSet::new(),
            marked: BTreeSet::new(),
            processes: BTreeMap::new(),
            answers: Vec::new(),
            tight: false,
            kicked: false,
        }
    }

    /// Has the sending thread look at everything, soon.
    pub fn kick(&mut self, world: &mut World) {
        if !std::mem::replace(&mut self.kicked, true) {
            let after = 1 + world.random.below(20);
            world.at(after, Event::Round { at: self.own });
        }
    }

    pub fn woken(&mut self) {
        self.kicked = false;
    }

    pub fn wake(&mut self, world: &mut World, rank: u32) {
        let Some(process) = self.processes.get_mut(&rank) else { return };
        if !process.done && !std::mem::replace(&mut process.awake, true) {
            let (at, incarnation) = (self.own, process.incarnation);
            let after = 1 + world.random.below(30);
            world.at(after, Event::Step { at, rank, incarnation });
        }
    }

    /// Brings a rank back from an image.
    pub fn restore(
        &mut self,
        world: &mut World,
        rank: u32,
        incarnation: u32,
        image: &Image,
        install: bool,
    ) {
        if install {
            for (dst, log) in &image.logs {
                let own = self.logs.entry((rank, *dst)).or_default();
                for (at, entry) in &log.entries {
                    own.entries.entry(*at).or_insert(*entry);
                }
            }
        }
        for (floor, dst) in image.floors.iter().zip(0..) {
            let own = self.floors.entry((rank, dst)).or_default();
            *own = (*own).max(*floor);
        }
        self.attach(world, rank, &image.need);
        let life = world.truth.life(rank);
        let state = image.state.clone();
        let process = Process { incarnation, state, waits: None, life, done: false, awake: false };
        self.processes.insert(rank, process);
        self.look_at_streams_of(rank);
        self.kick(world);
        // Others may wait for what its log has, too.
        (0..self.paths.ranks()).for_each(|rank| self.wake(world, rank));
    }

    /// The process of a rank has died.
    pub fn die(&mut self, world: &mut World, rank: u32) {
        if self.processes.remove(&rank).is_some() {
            self.detach(rank);
            self.look_at_streams_of(rank);
            self.kick(world);
        }
    }

    /// What is needed to bring a rank back.
    pub fn image(&self, rank: u32) -> Option<Rc<Image>> {
        let state = self.processes.get(&rank)?.state.clone();
        let need = (0..).zip(state.need()).map(|(src, at)| {
            let here = self.have.get(&(src, rank)).copied().unwrap_or(u64::MAX);
            let told = self.ends.get(&(src, rank)).map_or(0, |ends| ends.0);
            at.min(here.max(told))
        });
        let need = need.collect();
        let streams = || (0..self.paths.ranks()).map(|dst| (rank, dst));
        let logs = streams().filter_map(|s| Some((s.1, self.logs.get(&s)?.clone()))).collect();
        let floors = streams().map(|s| self.floors.get(&s).copied().unwrap_or(0)).collect();
        Some(Rc::new(Image { state, need, logs, floors }))
    }

    /// Where its ranks stand, for a run that does not end.
    pub fn describe(&self, programs: &[Vec<Op>]) -> String {
        let of = |(rank, p): (&u32, &Process)| {
            let op = programs[*rank as usize].get(p.state.pc);
            let at = (p.state.pc, p.awake, p.waits);
            format!("rank {rank} {at:?} {op:?} {:?} {:?}", p.state.sent, p.state.received)
        };
        let processes: Vec<String> = self.processes.iter().map(of).collect();
        let logs = self.logs.iter().map(|(s, l)| {
            let ends = (l.entries.keys().next(), l.entries.keys().last());
            format!("{s:?} {ends:?}")
        });
        format!("{}: {processes:?} {:?}", self.own, logs.collect::<Vec<_>>())
    }

    /// A rank's process does what comes next, if it can.
    pub fn step(&mut self, world: &mut World, rank: u32, incarnation: u32) {
        let ours = |p: &&mut Process| p.incarnation == incarnation;
        let Some(process) = self.processes.get_mut(&rank).filter(ours) else { return };
        process.awake = false;
        let program = Rc::clone(&world.programs);
        let Some(op) = program[rank as usize].get(process.state.pc) else {
            process.done = true;
            world.trace(|| format!("rank {rank} has ended"));
            world.one_ended = true;
            return;
        };
        let went_on = match *op {
            Op::Send { dst, size, sync } => self.say(world, (rank, dst), size, sync),
            Op::Receive { src } => self.receive(world, (src, rank)),
        };
        if went_on {
            self.wake(world, rank);
        }
    }

    /// Sends a message. False: it is not acknowledged yet.
    fn say(&mut self, world: &mut World, stream: Stream, size: u64, sync: bool) -> bool {
        let (rank, dst) = stream;
        let Some(process) = self.processes.get(&rank) else { return false };
        let ((begin, number), life) = (process.state.sent[dst as usize], process.life);
        let left = left_in_chunk(begin);
        let at = if size > left { begin + left } else { begin };
        if process.waits.is_none() {
            let plain = Entry { size, pad: false, sync, number, content: 0, acked: false };
            if at > begin {
                let (content, sync) = (0, false);
                self.write(
                    world,
                    stream,
                    begin,
                    Entry { size: left, pad: true, sync, content, ..plain },
                );
            }
            let content = world.truth.content(stream, number, life);
            self.write(world, stream, at, Entry { content, ..plain });
        }
        let acked = self.logs.get(&stream).and_then(|l| l.at(at)).is_some_and(|e| e.acked);
        let floor = self.floors.get(&stream).copied().unwrap_or(0);
        let acked = acked || floor > at || self.ends.get(&stream).is_some_and(|e| e.0 > at);
        if sync && acked && !world.is_lost(self.own) && !world.truth.is_matched(stream, number) {
            world.fail(format!("message {number} of {stream:?} counts as received, and is not"));
        }
        let Some(process) = self.processes.get_mut(&rank) else { return false };
        process.waits = (sync && !acked).then_some(at);
        if process.waits.is_none() {
            process.state.sent[dst as usize] = (at + size, number + 1);
            process.state.pc += 1;
        }
        process.waits.is_none()
    }

    /// Puts an entry into a log, or finds it there.
    fn write(&mut self, world: &mut World, stream: Stream, at: u64, entry: Entry) {
        let floor = self.floors.get(&stream).copied().unwrap_or(0);
        let log = self.logs.entry(stream).or_default();
        match log.at(at) {
            Some(found) if !found.is_like(&entry) => world.fail(format!(
                "{} sends {entry:?} at {at} of {stream:?}, where there is {found:?}",
                self.own
            )),
            Some(_) => {}
            // Nobody needs it any more.
            None if at < chunk_of(floor) => {}
            None => drop(log.entries.insert(at, entry)),
        }
        if self.paths.is_here(stream.1) {
            self.wake(world, stream.1);
        } else {
            self.marked.insert(stream);
            self.kick(world);
        }
    }

    /// Receives a message. False: it is not there yet.
    fn receive(&mut self, world: &mut World, stream: Stream) -> bool {
        let (src, rank) = stream;
        let Some(process) = self.processes.get_mut(&rank) else { return false };
        let (mut at, number) = process.state.received[src as usize];
        let early = self.early(world, stream, at);
        let log = early.as_ref().or_else(|| self.logs.get(&stream));
        if let Some(pad) = log.and_then(|log| log.at(at)).filter(|e| e.pad) {
            at += pad.size;
        }
        let Some(entry) = log.and_then(|log| log.at(at)).copied() else { return false };
        if !world.is_lost(self.own) {
            let content = world.truth.content(stream, number, world.truth.life(src));
            if (entry.number, entry.content) != (number, content) {
                world.fail(format!(
                    "rank {rank} receives {entry:?} as message {number} of rank {src}, which says \
                     {content}"
                ));
            }
        }
        // Also by one that is declared dead, as long as the sender has not heard of that.
        world.truth.matched(stream, number);
        let end = at + entry.size;
        let mut need = at;
        match early {
            Some(_) => need = need.min(self.have.get(&stream).copied().unwrap_or(0)),
            None => {
                let entry = self.logs.get_mut(&stream).and_then(|log| log.entries.get_mut(&at));
                entry.into_iter().for_each(|entry| entry.acked = true);
            }
        }
        let Some(process) = self.processes.get_mut(&rank) else { return false };
        process.state.received[src as usize] = (end, number + 1);
        process.state.pc += 1;
        // A program may still look at the last one.
        let before = self.ends.get(&stream).map_or(0, |ends| ends.0);
        self.ends.insert(stream, (need.max(before), end));
        self.passed.insert(stream, at);
        if self.paths.is_here(src) {
            self.wake(world, src);
        } else {
            self.marked.insert(stream);
            self.kick(world);
        }
        true
    }

    /// The log of a sender elsewhere, if the message at `at` comes early from there: one that wants
    /// no acknowledgement, and that is not here. What is lost with its node then is not lost.
    fn early(&self, world: &mut World, stream: Stream, at: u64) -> Option<Log> {
        let (src, _) = stream;
        let is_here = self.paths.is_here(src) || self.have.get(&stream)? > &at;
        if is_here || !world.random.one_in(2) {
            return None;
        }
        let sends = |node: &&Node| node.processes.contains_key(&src);
        let from = world.nodes.values().filter(|node| world.is_reached(node.own)).find(sends)?;
        let log = from.logs.get(&stream)?;
        let next = log.at(at).map_or(at, |entry| if entry.pad { at + entry.size } else { at });
        let found = log.at(next).filter(|entry| !entry.sync && !entry.pad)?;
        let mut early = Log::default();
        early.entries.extend(log.at(at).filter(|e| e.pad).map(|pad| (at, *pad)));
        early.entries.insert(next, *found);
        world.report.early += 1;
        Some(early)
    }
}
