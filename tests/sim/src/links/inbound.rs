//! What comes from other nodes for the ranks of one: as `crates/link/src/{serve, inbound}.rs`.

use super::log::{CHUNK_BYTES, Entry, Log, chunk_of};
use super::process::Node;
use super::world::{Mistake, World};
use eyrie_protocol::link::receiver::Piece;
use eyrie_protocol::link::wire::{self, Backward, Forward, Stream};
use eyrie_protocol::routing::NOWHERE;

/// Why a connection is closed.
pub enum Fault {
    /// One of the two has not heard yet what the other has.
    Early,
    /// No correct node does that.
    Wrong(String),
}

fn wrong(why: impl std::fmt::Display) -> Fault {
    Fault::Wrong(why.to_string())
}

impl Node {
    /// A connection from another node stands: whatever stood before is over.
    pub fn connected_in(&mut self, world: &mut World, connection: usize) {
        let node = world.connections[connection].ends[0].node;
        if let Some(old) = self.standing.insert(node, connection) {
            if world.makes(Mistake::TornKept) {
                let rest = std::mem::take(&mut world.connections[old].read[1]);
                world.connections[connection].read[1] = rest;
            }
            if !world.makes(Mistake::OldConnectionRead) {
                world.close(old, 1);
            }
        }
        let paths = &self.paths;
        self.receiver.connected(node, |stream| paths.origin(stream) == node);
    }

    /// Takes all whole frames that have come.
    pub fn read_in(&mut self, world: &mut World, connection: usize) {
        let peer = world.connections[connection].ends[0];
        let stands = self.standing.get(&peer.node) == Some(&connection);
        if !stands && !world.makes(Mistake::OldConnectionRead) {
            return world.close(connection, 1);
        }
        let bytes = std::mem::take(&mut world.connections[connection].read[1]);
        let mut used = 0;
        let outcome = loop {
            match wire::split(&bytes[used..]) {
                Ok(Some((kind, body))) => {
                    let frame = Forward::decode(kind, &bytes[used..][body.clone()]);
                    let taken = frame.map_err(wrong).and_then(|f| self.take(world, connection, &f));
                    if let Err(fault) = taken {
                        break Err(fault);
                    }
                    used += body.end;
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(wrong(error)),
            }
        };
        world.connections[connection].read[1] = bytes[used..].to_vec();
        if let Err(fault) = outcome {
            if let Fault::Wrong(why) = fault {
                world.fail(format!("{} closes its connection from {peer}: {why}", self.own));
            }
            self.end_in(connection, peer.node);
            world.close(connection, 1);
        }
    }

    /// Forgets a connection that ended.
    pub fn end_in(&mut self, connection: usize, node: u32) {
        if self.standing.get(&node) == Some(&connection) {
            self.standing.remove(&node);
        }
    }

    fn take(&mut self, world: &mut World, by: usize, frame: &Forward<'_>) -> Result<(), Fault> {
        let peer = world.connections[by].ends[0];
        let (Forward::Open { stream } | Forward::Data { stream, .. }) = *frame else {
            return Ok(());
        };
        if stream.0.max(stream.1) >= self.paths.ranks() {
            return Err(Fault::Wrong(format!("{stream:?} does not exist")));
        }
        if self.paths.origin(stream) != peer.node {
            return Err(Fault::Early);
        }
        if self.roster.member(peer.node) != Some(peer) {
            world.fail(format!("{} takes something from {peer}, which is fenced", self.own));
        }
        match *frame {
            Forward::Open { .. } => self.receiver.open(stream, peer.node, &mut self.answers),
            Forward::Data { serial, from, bytes, .. } => {
                let mut piece = self.receiver.piece(stream, serial, from).map_err(wrong)?;
                if world.makes(Mistake::StaleTaken) && self.have.get(&stream) == Some(&from) {
                    piece = Piece::Take;
                }
                if piece == Piece::Take {
                    self.store(world, stream, bytes)?;
                }
            }
            // Of the gate and of routers, which are simulated elsewhere.
            Forward::Dets { .. } | Forward::Mark { .. } => {}
        }
        self.queue_answers(world);
        Ok(())
    }

    fn store(&mut self, world: &mut World, stream: Stream, bytes: &[u8]) -> Result<(), Fault> {
        let Some(have) = self.have.get(&stream).copied() else { return Ok(()) };
        if self.tight && have % CHUNK_BYTES == 0 {
            world.report.starved += 1;
            self.receiver.starve(stream, &mut self.answers);
            return Ok(());
        }
        let (mut at, mut told, mut found): (u64, usize, Vec<(u64, Entry)>) = (have, 0, Vec::new());
        while told < bytes.len() {
            let entry = Entry::decode(&bytes[told..]).filter(|(pos, _)| *pos == at);
            let Some((_, entry)) = entry else {
                return Err(Fault::Wrong(format!("no entry at position {at} of {stream:?}")));
            };
            found.push((at, entry));
            told += entry.told() as usize;
            at += entry.size;
        }
        let sync: Vec<u64> = found.iter().filter(|(_, e)| e.sync).map(|(at, _)| *at).collect();
        self.logs.entry(stream).or_default().entries.extend(found);
        self.have.insert(stream, at);
        world.report.pieces += 1;
        self.wake(world, stream.1);
        if self.receiver.took(stream, at, sync).map_err(wrong)? {
            self.moved(world, stream);
        }
        Ok(())
    }

    /// The receiver of a stream has read on, or acknowledged something.
    pub fn moved(&mut self, world: &mut World, stream: Stream) {
        let Some(have) = self.have.get(&stream).copied() else { return };
        self.look(world, stream);
        self.skip(world, stream);
        let have = self.have.get(&stream).copied().unwrap_or(have);
        let need = self.ends.get(&stream).map_or(0, |e| e.0);
        self.logs.entry(stream).or_default().trim(need.min(have));
        self.feed(world, stream.0);
        self.queue_answers(world);
    }

    /// What a receiver has passed early need not come any more.
    fn skip(&mut self, world: &mut World, stream: Stream) {
        let passed = self.passed.get(&stream).copied().unwrap_or(0);
        let far = world.makes(Mistake::SkipsTooFar) && passed > 0;
        let to = chunk_of(passed) + if far { CHUNK_BYTES } else { 0 };
        if self.have.get(&stream).is_none_or(|have| *have >= to) {
            return;
        }
        world.report.skipped += 1;
        self.logs.insert(stream, Log::default());
        self.have.insert(stream, to);
        let ends = self.ends.entry(stream).or_default();
        ends.0 = ends.0.max(to);
        self.receiver.skip(stream, to, &mut self.answers);
    }

    /// There may be room again for what a rank sends.
    pub fn feed(&mut self, world: &mut World, src: u32) {
        if !self.tight && !world.makes(Mistake::StarvedForgotten) {
            for fed in self.receiver.feed(src) {
                self.look(world, fed);
            }
        }
    }

    fn look(&mut self, world: &World, stream: Stream) {
        let read = self.ends.get(&stream).copied().unwrap_or_default();
        let log = self.logs.get(&stream);
        let early = world.makes(Mistake::AckedEarly);
        let acked = |at| early || log.and_then(|l| l.at(at)).is_some_and(|e| e.acked);
        self.receiver.moved(stream, read, acked, &mut self.answers);
    }

    /// Puts the answers on the connections of the nodes they are for.
    pub fn queue_answers(&mut self, world: &mut World) {
        let anew = self.answers.iter().any(|a| matches!(a, Backward::Resume { .. }));
        for answer in std::mem::take(&mut self.answers) {
            let stream = match answer {
                Backward::Acked { .. } if anew && world.makes(Mistake::AcksForgotten) => continue,
                Backward::Resume { stream, .. }
                | Backward::Progress { stream, .. }
                | Backward::Acked { stream, .. }
                | Backward::Early { stream, .. }
                | Backward::Skip { stream, .. }
                | Backward::Bring { stream } => stream,
                Backward::Held { .. } | Backward::Marked { .. } | Backward::GoOn { .. } => continue,
            };
            if let Some(connection) = self.standing.get(&self.paths.origin(stream)) {
                let mut bytes = Vec::new();
                answer.encode(&mut bytes);
                world.push(*connection, 1, &bytes);
            }
        }
    }

    /// `rank` is about to start here, and reads from these positions on.
    pub fn attach(&mut self, world: &mut World, rank: u32, need: &[u64]) {
        for src in 0..self.paths.ranks() {
            if !self.paths.is_here(src) {
                self.attach_stream((src, rank), need[src as usize]);
            } else {
                self.ends.insert((src, rank), (need[src as usize], need[src as usize]));
            }
        }
        self.queue_answers(world);
    }

    fn attach_stream(&mut self, stream: Stream, need: u64) {
        self.ends.insert(stream, (need, need));
        self.passed.remove(&stream);
        let log = self.logs.entry(stream).or_default();
        log.trim(need);
        let have = log.end(chunk_of(need));
        log.cut_off(have);
        self.have.insert(stream, have);
        let sync = log.entries.range(need..).filter(|(_, e)| e.sync).map(|(at, _)| *at);
        self.receiver.attach(stream, (have, need), sync, &mut self.answers);
    }

    /// The process of `rank` has ended, or the rank has its home elsewhere.
    pub fn detach(&mut self, rank: u32) {
        for src in 0..self.paths.ranks() {
            self.receiver.detach((src, rank));
            self.have.remove(&(src, rank));
        }
    }

    /// `rank` has its home on `node` from now on.
    pub fn home_in(&mut self, world: &mut World, rank: u32, was: u32, node: u32) {
        if was == node || was == NOWHERE {
            return;
        }
        let own = self.own.node;
        if was == own {
            self.left(world, rank);
        } else if node == own {
            // Its mirrors are its log.
            for dst in 0..self.paths.ranks() {
                self.receiver.detach((rank, dst));
                self.have.remove(&(rank, dst));
            }
        } else {
            let paths = &self.paths;
            let comes = |s: Stream| (s.0 == rank && paths.origin(s) == node).then_some(node);
            self.receiver.come_from(comes, &mut self.answers);
        }
        self.queue_answers(world);
    }

    fn left(&mut self, world: &World, rank: u32) {
        self.detach(rank);
        for other in (0..self.paths.ranks()).filter(|r| *r != rank) {
            if self.paths.is_here(other) {
                // What no image needs is not kept for a look at the last message either.
                let floor = self.floors.get(&(rank, other)).copied().unwrap_or(0);
                let need = self.ends.get(&(rank, other)).map_or(0, |e| e.0).max(floor);
                self.attach_stream((rank, other), need);
                if !world.makes(Mistake::AcksLeftBehind) {
                    self.look(world, (rank, other));
                }
            } else {
                self.logs.insert((other, rank), Log::default());
                self.logs.insert((rank, other), Log::default());
            }
        }
    }
}
