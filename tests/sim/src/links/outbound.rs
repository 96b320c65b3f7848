//! What the ranks of one node send to those of others: as `crates/link/src/{dial, outbound}.rs`.

use super::connection::FULL_BYTES;
use super::log::Log;
use super::outlog::OutLog;
use super::process::Node;
use super::world::{Event, Mistake, World};
use eyrie_protocol::link::sender::{Effect, Send, Sender};
use eyrie_protocol::link::wire::{self, Backward, Forward, Stream};
use eyrie_protocol::membership::Member;

/// Another node, as the place where streams go.
pub struct Peer {
    pub member: Member,
    /// What may leave from when on.
    pub sender: Sender<u64>,
    pub connection: Option<usize>,
    connects: u64,
    /// A connection is being made.
    pub dialing: bool,
}

impl Node {
    /// The nodes of the job.
    pub fn members(&mut self, world: &mut World, all: &[Member]) {
        let gone = if world.makes(Mistake::FenceOpen) {
            Vec::new()
        } else {
            self.roster.exchange(all.iter().copied())
        };
        for member in gone {
            let from = |c: &&usize| world.connections[**c].ends[0] == member;
            if let Some(connection) = self.standing.get(&member.node).filter(from).copied() {
                self.end_in(connection, member.node);
                world.close(connection, 1);
            }
        }
        for peer in self.peers.values().filter(|p| !all.contains(&p.member)) {
            peer.connection.iter().for_each(|c| world.close(*c, 0));
        }
        self.peers.retain(|_, peer| all.contains(&peer.member));
        for &member in all {
            if member.node == self.own.node || self.peers.contains_key(&member.node) {
                continue;
            }
            let sender = Sender::default();
            let peer = Peer { member, sender, connection: None, connects: 0, dialing: false };
            self.peers.insert(member.node, peer);
            for rank in 0..self.paths.ranks() {
                if self.paths.home(rank) == member.node {
                    self.look_at_streams_to(rank);
                }
            }
        }
        self.kick(world);
    }

    fn look_at_streams_to(&mut self, rank: u32) {
        (0..self.paths.ranks()).for_each(|src| self.look_at((src, rank)));
    }

    pub fn look_at_streams_of(&mut self, rank: u32) {
        (0..self.paths.ranks()).for_each(|dst| self.look_at((rank, dst)));
    }

    fn look_at(&mut self, stream: Stream) {
        // Also what is released was there once, and its receiver may have something to say.
        let released = self.floors.get(&stream).is_some_and(|floor| *floor > 0);
        if released || self.logs.get(&stream).is_some_and(|log| !log.entries.is_empty()) {
            self.news(stream);
        }
    }

    /// `rank` has its home on `node` from now on.
    pub fn home(&mut self, world: &mut World, rank: u32, node: u32) {
        let was = self.paths.set_home(rank, node);
        if was != node {
            let gone = |(src, dst): Stream| dst == rank || src == rank;
            self.peers.values_mut().for_each(|peer| peer.sender.forget(gone));
            self.out.retain(|stream, _| !gone(*stream));
            self.fresh.retain(|stream| !gone(*stream));
            self.look_at_streams_of(rank);
            self.look_at_streams_to(rank);
        }
        self.home_in(world, rank, was, node);
        self.kick(world);
    }

    /// There is something in a stream.
    pub fn news(&mut self, stream: Stream) {
        if self.paths.next(stream).is_some() {
            self.fresh.insert(stream);
        }
    }

    /// Nodes to which a connection is wanted and does not stand.
    fn missing(&self) -> Vec<u32> {
        let wanted = |p: &Peer| p.connection.is_none() && p.sender.is_wanted() && !p.dialing;
        self.peers.iter().filter(|(_, p)| wanted(p)).map(|(node, _)| *node).collect()
    }

    /// A connection to a peer stands. False: the peer is no member any more.
    pub fn connected_out(&mut self, world: &mut World, connection: usize) -> bool {
        let member = world.connections[connection].ends[1];
        let Some(peer) = self.peers.get_mut(&member.node).filter(|p| p.member == member) else {
            return false;
        };
        peer.dialing = false;
        peer.connection = Some(connection);
        if !(world.makes(Mistake::WatermarkKept) && peer.connects > 0) {
            peer.sender.connected();
        }
        peer.connects += 1;
        self.kick(world);
        true
    }

    /// A connection has ended, or was not made.
    pub fn ended_out(&mut self, world: &mut World, connection: usize) {
        let member = world.connections[connection].ends[1];
        let Some(peer) = self.peers.get_mut(&member.node).filter(|p| p.member == member) else {
            return;
        };
        if peer.connection == Some(connection) {
            peer.connection = None;
            if !world.makes(Mistake::WatermarkKept) {
                peer.sender.disconnected();
            }
        } else if peer.connection.is_none() {
            peer.dialing = false;
        }
        self.kick(world);
    }

    /// Takes all whole answers.
    pub fn read_out(&mut self, world: &mut World, connection: usize) {
        let peer = world.connections[connection].ends[1];
        let bytes = std::mem::take(&mut world.connections[connection].read[0]);
        let mut used = 0;
        while let Ok(Some((kind, body))) = wire::split(&bytes[used..]) {
            let answer = Backward::decode(kind, &bytes[used..][body.clone()]);
            let taken = answer
                .map_err(|e| e.to_string())
                .and_then(|answer| self.answer(world, connection, answer));
            if let Err(why) = taken {
                world.fail(format!("{} closes its connection to {peer}: {why}", self.own));
                return;
            }
            used += body.end;
        }
        world.connections[connection].read[0] = bytes[used..].to_vec();
        self.kick(world);
    }

    fn answer(&mut self, world: &mut World, by: usize, answer: Backward) -> Result<(), String> {
        let member = world.connections[by].ends[1];
        let Some(peer) = self.peers.get_mut(&member.node) else { return Ok(()) };
        if peer.connection != Some(by) {
            return Ok(());
        }
        world.trace(|| format!("{by}: {answer:?}"));
        let answer = spoil(world, &peer.sender, answer);
        let effect = peer.sender.answer(answer).map_err(|wrong| wrong.to_string())?;
        match effect {
            Effect::Rewind { stream, from, need } => {
                self.ends.insert(stream, (need, need));
                self.out.entry(stream).or_default().rewind(from, need);
                self.fresh.insert(stream);
                self.wake(world, stream.0);
            }
            Effect::Moved { stream, need, .. } => {
                self.ends.insert(stream, (need, need));
                let Some(out) = self.out.get_mut(&stream) else { return Ok(()) };
                out.moved(need);
                if world.makes(Mistake::GivenByDelivery) {
                    self.logs.entry(stream).or_default().trim(need);
                }
                self.wake(world, stream.0);
            }
            Effect::Skip { stream, from, need } => {
                let before = self.ends.get(&stream).map_or(0, |ends| ends.0);
                self.ends.insert(stream, (need.max(before), need.max(before)));
                let Some(out) = self.out.get_mut(&stream) else { return Ok(()) };
                if !world.makes(Mistake::NoSkip) {
                    out.skip(from, need);
                }
                self.fresh.insert(stream);
                self.wake(world, stream.0);
            }
            Effect::Acked { stream, position } => {
                let Some(out) = self.out.get_mut(&stream) else { return Ok(()) };
                out.acked(self.logs.entry(stream).or_default(), position);
                self.wake(world, stream.0);
            }
            Effect::Held { .. } | Effect::Early { .. } | Effect::Bring { .. } | Effect::Nothing => {
            }
        }
        Ok(())
    }

    /// The sending thread's look at everything.
    pub fn round(&mut self, world: &mut World) {
        for stream in std::mem::take(&mut self.marked) {
            if self.paths.is_here(stream.0) {
                self.news(stream);
            } else {
                self.moved(world, stream);
            }
        }
        self.cut(world);
        let nodes: Vec<u32> = self.peers.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.send(world, node));
        for node in self.missing() {
            self.peers.get_mut(&node).into_iter().for_each(|p| p.dialing = true);
            let after = 1 + world.random.below(60);
            world.at(after, Event::Dial { at: self.own, node });
        }
    }

    /// Cuts pieces of all streams with news whose receivers have said where to go on.
    fn cut(&mut self, world: &mut World) {
        let mut acknowledged = Vec::new();
        for stream in std::mem::take(&mut self.fresh) {
            let peer = self.paths.next(stream).and_then(|node| self.peers.get_mut(&node));
            let Some(peer) = peer else { continue };
            peer.sender.news(stream);
            if peer.sender.cut(stream).is_none() {
                continue;
            }
            if world.random.one_in(6) {
                // It is set aside, as it may come early.
                self.fresh.insert(stream);
                let after = 100 + world.random.below(400);
                world.at(after, Event::Round { at: self.own });
                continue;
            }
            let Some(out) = self.out.get_mut(&stream) else { continue };
            acknowledged.push(stream.0);
            let mut pieces = Vec::new();
            let floor = self.floors.get(&stream).copied().unwrap_or(0);
            if let Err(at) = out.cut(self.logs.entry(stream).or_default(), floor, &mut pieces) {
                world.fail(format!("{stream:?} is to go on inside of the entry at {at}"));
            }
            // What it depends on is known elsewhere then.
            let after = if world.random.one_in(4) { world.random.below(300) } else { 0 };
            let ticket = world.now + after;
            for (end, bytes) in pieces {
                peer.sender.piece(stream, end, bytes, ticket);
            }
            if after > 0 {
                world.at(after, Event::Round { at: self.own });
            }
        }
        acknowledged.into_iter().for_each(|rank| self.wake(world, rank));
    }

    /// Fills the connection to a node.
    fn send(&mut self, world: &mut World, node: u32) {
        let Some(peer) = self.peers.get_mut(&node) else { return };
        let Some(connection) = peer.connection else { return };
        let now = world.now;
        while world.connections[connection].flight[0].len() < FULL_BYTES {
            let Some(next) = peer.sender.next(|ticket| ticket <= now) else { return };
            let mut bytes = Vec::new();
            match next {
                Send::Open { stream } => Forward::Open { stream }.encode(&mut bytes, 0),
                Send::Piece { stream, serial, from, bytes: length, .. } => {
                    let Some(payload) = stretch(self.logs.get(&stream), from, length) else {
                        // Released: nobody reads the stream any more.
                        peer.sender.forget(|s| s == stream);
                        continue;
                    };
                    let head = Forward::Data { stream, serial, from, chain: 0, bytes: &[] };
                    head.encode(&mut bytes, payload.len());
                    bytes.extend(payload);
                }
            }
            world.push(connection, 0, &bytes);
        }
    }
}

/// So many bytes of a log.
fn stretch(log: Option<&Log>, from: u64, length: u64) -> Option<Vec<u8>> {
    let (log, mut at, mut bytes) = (log?, from, Vec::new());
    while (bytes.len() as u64) < length {
        let entry = log.at(at)?;
        entry.encode(at, &mut bytes);
        at += entry.size;
    }
    Some(bytes)
}

/// An answer as one takes it who is mistaken.
fn spoil(world: &World, sender: &Sender<u64>, answer: Backward) -> Backward {
    match answer {
        Backward::Resume { stream, serial, life, from, need, credit } => {
            let before = sender.cut(stream).filter(|_| world.makes(Mistake::NoRewind));
            let from = from.max(before.unwrap_or(0));
            let endless = world.makes(Mistake::CreditIgnored);
            let credit = if endless { u64::MAX } else { credit.max(from) };
            Backward::Resume { stream, serial, life, from, need, credit }
        }
        other => other,
    }
}

/// What is cut of each stream.
pub type Cuts = std::collections::BTreeMap<Stream, OutLog>;
