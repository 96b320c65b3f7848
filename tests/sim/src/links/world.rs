//! Clock, connections and checks of the simulated links.

use super::connection::Connection;
use super::controller::{Controller, Image, NodeOrder};
use super::process::Node;
use super::program::{self, Op, Truth};
use crate::agenda::Agenda;
use crate::random::Random;
use eyrie_protocol::membership::Member;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Events after which a run is taken for hung.
const MOST_EVENTS: u64 = 60_000;

/// What is done wrong on purpose, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A piece of an earlier serial is taken if its position fits.
    StaleTaken,
    /// The sender goes on where it was on the connection before.
    WatermarkKept,
    /// The sender goes on where it was when the receiver began anew.
    NoRewind,
    /// What has come counts as received.
    AckedEarly,
    /// What was acknowledged is not said again on a new connection.
    AcksForgotten,
    /// What was acknowledged while its sender moved is not told it.
    AcksLeftBehind,
    /// A log gives up what the receiver has.
    GivenByDelivery,
    /// Who was declared dead is still listened to.
    FenceOpen,
    /// A connection is read on after the next one stands.
    OldConnectionRead,
    /// The beginning of a frame is completed by the next connection.
    TornKept,
    /// More is sent than there is room for.
    CreditIgnored,
    /// What had no room is not asked for again.
    StarvedForgotten,
    /// What is in the chunk that a receiver has come to early counts as passed.
    SkipsTooFar,
    /// The sender does not go on where the receiver has come to early.
    NoSkip,
}

impl Mistake {
    pub const ALL: [Mistake; 14] = [
        Mistake::StaleTaken,
        Mistake::WatermarkKept,
        Mistake::NoRewind,
        Mistake::AckedEarly,
        Mistake::AcksForgotten,
        Mistake::AcksLeftBehind,
        Mistake::GivenByDelivery,
        Mistake::FenceOpen,
        Mistake::OldConnectionRead,
        Mistake::TornKept,
        Mistake::CreditIgnored,
        Mistake::StarvedForgotten,
        Mistake::SkipsTooFar,
        Mistake::NoSkip,
    ];
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub events: u64,
    pub faults: u64,
    pub messages: u64,
    pub pieces: u64,
    pub connections: u64,
    pub broken: u64,
    pub half_open: u64,
    pub doubled: u64,
    pub starved: u64,
    /// Messages that were taken early, and how often what was passed so was left out.
    pub early: u64,
    pub skipped: u64,
    pub images: u64,
    pub restored: u64,
    pub nodes_lost: u64,
    pub cut_off: u64,
    pub moved: u64,
    /// Callers that were refused as they are members no more.
    pub fenced: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.faults += other.faults;
        self.messages += other.messages;
        self.pieces += other.pieces;
        self.connections += other.connections;
        self.broken += other.broken;
        self.half_open += other.half_open;
        self.doubled += other.doubled;
        self.starved += other.starved;
        self.early += other.early;
        self.skipped += other.skipped;
        self.images += other.images;
        self.restored += other.restored;
        self.nodes_lost += other.nodes_lost;
        self.cut_off += other.cut_off;
        self.moved += other.moved;
        self.fenced += other.fenced;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} events, {} faults, {} messages in {} pieces, {} connections ({} broken, {} of them \
             half open, {} doubled), {} times no room, {} early ({} skips), {} images, {} ranks \
             started, {} moved, {} nodes lost, {} cut off, {} callers fenced",
            self.events,
            self.faults,
            self.messages,
            self.pieces,
            self.connections,
            self.broken,
            self.half_open,
            self.doubled,
            self.starved,
            self.early,
            self.skipped,
            self.images,
            self.restored,
            self.moved,
            self.nodes_lost,
            self.cut_off,
            self.fenced
        )
    }
}

pub(super) enum Event {
    Step {
        at: Member,
        rank: u32,
        incarnation: u32,
    },
    /// The sending thread of a node looks at everything.
    Round {
        at: Member,
    },
    Dial {
        at: Member,
        node: u32,
    },
    /// A caller's hello has come.
    Called {
        connection: usize,
    },
    /// The called one is ready, and the caller.
    Stands {
        connection: usize,
        side: usize,
    },
    Arrive {
        connection: usize,
        side: usize,
    },
    Closed {
        connection: usize,
        side: usize,
    },
    Told {
        at: Member,
        order: NodeOrder,
    },
    Answered {
        at: Member,
        version: u64,
    },
    Checkpoint {
        rank: u32,
    },
    Durable {
        at: Member,
        rank: u32,
        incarnation: u32,
        image: Rc<Image>,
    },
    Restart {
        rank: u32,
        incarnation: u32,
    },
    Roomy {
        at: Member,
    },
    Suspect {
        member: Member,
    },
    Perish {
        member: Member,
    },
    Join,
    Fault,
}

pub(super) struct World {
    pub now: u64,
    pub random: Random,
    mistake: Option<Mistake>,
    pub programs: Rc<Vec<Vec<Op>>>,
    pub truth: Truth,
    pub nodes: BTreeMap<Member, Node>,
    pub controller: Controller,
    pub connections: Vec<Connection>,
    /// Nodes that were declared dead; those that the controller does not reach.
    pub lost: BTreeSet<Member>,
    pub cut: BTreeSet<Member>,
    pub lanes: BTreeMap<Member, u64>,
    pub report: Report,
    pub faults_left: u64,
    pub over: bool,
    /// Some rank has just ended.
    pub one_ended: bool,
    wrong: Option<String>,
    trace: bool,
    agenda: Agenda<Event>,
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    World::new(seed, mistake, trace).run()
}

impl World {
    fn new(seed: u64, mistake: Option<Mistake>, trace: bool) -> World {
        let mut random = Random::new(seed);
        let ranks = 2 + random.below(4) as u32;
        let nodes = 2 + random.below(3) as u32;
        let messages = 40 + random.below(200);
        let programs = Rc::new(program::draw(&mut random, ranks, messages));
        let faults_left = random.below(12);
        let homes = (0..ranks).map(|r| r % nodes).collect();
        let mut world = World {
            now: 0,
            mistake,
            programs,
            truth: Truth::new(ranks),
            nodes: BTreeMap::new(),
            controller: Controller::new(homes),
            connections: Vec::new(),
            lost: BTreeSet::new(),
            cut: BTreeSet::new(),
            lanes: BTreeMap::new(),
            report: Report { messages, ..Report::default() },
            faults_left,
            over: false,
            one_ended: false,
            wrong: None,
            trace,
            agenda: Agenda::default(),
            random,
        };
        let spares = world.random.below(2) as u32;
        for _ in 0..nodes + spares {
            world.join();
        }
        world.begin();
        for rank in 0..ranks {
            let after = 100 + world.random.below(1500);
            world.at(after, Event::Checkpoint { rank });
        }
        let first = 50 + world.random.below(1000);
        world.at(first, Event::Fault);
        world
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub fn at(&mut self, after: u64, event: Event) {
        self.agenda.put(self.now + after, event);
    }

    pub fn trace(&self, line: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>7} {}", self.now, line());
        }
    }

    pub fn fail(&mut self, why: String) {
        self.trace(|| format!("WRONG: {why}"));
        self.wrong.get_or_insert(why);
    }

    /// Has a node do something, if it is there.
    pub fn with<R>(
        &mut self,
        at: Member,
        act: impl FnOnce(&mut World, &mut Node) -> R,
    ) -> Option<R> {
        let mut node = self.nodes.remove(&at)?;
        let result = act(self, &mut node);
        self.nodes.insert(at, node);
        Some(result)
    }

    /// Whether it was declared dead.
    pub fn is_lost(&self, member: Member) -> bool {
        self.lost.contains(&member)
    }

    pub fn is_cut_off(&self, member: Member) -> bool {
        self.cut.contains(&member)
    }

    /// Whether the controller reaches it.
    pub fn is_reached(&self, member: Member) -> bool {
        self.nodes.contains_key(&member) && !self.is_lost(member) && !self.is_cut_off(member)
    }

    fn run(mut self) -> Result<Report, String> {
        while let Some((time, event)) = self.agenda.next() {
            self.now = time;
            self.report.events += 1;
            self.happen(event);
            if std::mem::take(&mut self.one_ended) {
                self.check_end();
            }
            if let Some(why) = self.wrong {
                return Err(why);
            }
            if self.over {
                return Ok(self.report);
            }
            if self.report.events > MOST_EVENTS {
                for node in self.nodes.values() {
                    self.trace(|| node.describe(&self.programs));
                }
                return Err(String::from("hung"));
            }
        }
        Err(String::from("nothing happens any more"))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step { at, rank, incarnation } => {
                self.with(at, |world, node| node.step(world, rank, incarnation));
            }
            Event::Round { at } => {
                self.with(at, |world, node| {
                    node.woken();
                    node.round(world);
                });
            }
            Event::Dial { at, node } => self.dial(at, node),
            Event::Called { connection } => self.called(connection),
            Event::Stands { connection, side } => self.stands(connection, side),
            Event::Arrive { connection, side } => self.arrive(connection, side),
            Event::Closed { connection, side } => self.closed(connection, side),
            Event::Told { at, order } => self.told(at, order),
            Event::Answered { at, version } => {
                if self.is_reached(at) {
                    self.answered(at, version);
                }
            }
            Event::Checkpoint { rank } => self.checkpoint(rank),
            Event::Durable { at, rank, incarnation, image } => {
                if self.is_reached(at) {
                    self.keep(rank, incarnation, image);
                }
            }
            Event::Restart { rank, incarnation } => {
                let same = self.controller.incarnations[rank as usize] == incarnation;
                if same && !self.is_on_its_way(rank) {
                    self.bring_back(rank, false);
                }
            }
            Event::Roomy { at } => {
                let ranks = self.programs.len() as u32;
                self.with(at, |world, node| {
                    node.tight = false;
                    (0..ranks).for_each(|src| node.feed(world, src));
                    node.queue_answers(world);
                });
            }
            Event::Suspect { member } => self.suspect(member),
            Event::Perish { member } => self.perish(member),
            Event::Join => self.join_late(),
            Event::Fault => self.fault(),
        }
    }

    fn checkpoint(&mut self, rank: u32) {
        let home = self.controller.member(self.controller.homes[rank as usize]);
        if let Some(at) = home.filter(|at| self.is_reached(*at)) {
            let image = self.with(at, |_, node| {
                let incarnation = node.processes.get(&rank)?.incarnation;
                Some((node.image(rank)?, incarnation))
            });
            if let Some((image, incarnation)) = image.flatten() {
                // Before the next one is taken.
                let after = 20 + self.random.below(80);
                self.at(after, Event::Durable { at, rank, incarnation, image });
            }
        }
        let after = 100 + self.random.below(1500);
        self.at(after, Event::Checkpoint { rank });
    }

    /// With its last rank the job is over.
    fn check_end(&mut self) {
        let mut ended = BTreeSet::new();
        for node in self.nodes.values().filter(|n| self.is_reached(n.own)) {
            ended.extend(node.processes.iter().filter(|p| p.1.done).map(|p| *p.0));
        }
        self.over = ended.len() == self.programs.len();
    }

    fn dial(&mut self, at: Member, node: u32) {
        let peer = self.nodes.get(&at).and_then(|n| n.peers.get(&node)).map(|p| p.member);
        if let Some(called) = peer {
            self.call(at, called);
        }
    }

    /// Begins to make a connection.
    pub fn call(&mut self, caller: Member, called: Member) {
        self.report.connections += 1;
        self.connections.push(Connection::new(caller, called));
        let connection = self.connections.len() - 1;
        let after = 5 + self.random.below(60);
        self.at(after, Event::Called { connection });
    }

    fn called(&mut self, connection: usize) {
        let [caller, called] = self.connections[connection].ends;
        let open = self.makes(Mistake::FenceOpen);
        let admitted = self.with(called, |_, node| node.roster.admit(called, called, caller));
        match admitted {
            Some(Ok(())) => {}
            Some(Err(_)) if open => {}
            refused => {
                let fenced = |r| matches!(r, Err(eyrie_protocol::membership::Refusal::Fenced));
                self.report.fenced += u64::from(refused.is_some_and(fenced));
                self.connections[connection].broken = true;
                let after = 20 + self.random.below(100);
                return self.at(after, Event::Closed { connection, side: 0 });
            }
        }
        for side in [0, 1] {
            let after = self.random.below(40);
            self.at(after, Event::Stands { connection, side });
        }
    }

    /// A connection is ready at one end.
    fn stands(&mut self, connection: usize, side: usize) {
        let Connection { ends, broken, shut, .. } = self.connections[connection];
        self.trace(|| format!("{connection}: {} -> {} stands at end {side}", ends[0], ends[1]));
        if !broken {
            self.connections[connection].open[side] = true;
        }
        let open = self.makes(Mistake::FenceOpen);
        let stands = self.with(ends[side], |world, node| {
            if side == 0 {
                return node.connected_out(world, connection);
            }
            node.connected_in(world, connection);
            // The members may have changed since it was admitted.
            let stands = open || node.roster.member(ends[0].node) == Some(ends[0]);
            if !stands {
                node.end_in(connection, ends[0].node);
            }
            stands
        });
        if stands == Some(false) {
            self.close(connection, side);
        }
        if broken || shut {
            return self.at(1, Event::Closed { connection, side });
        }
        self.at(1, Event::Arrive { connection, side });
    }

    /// Puts bytes on a connection.
    pub fn push(&mut self, connection: usize, side: usize, bytes: &[u8]) {
        if self.connections[connection].send(side, bytes) {
            let slow = self.random.one_in(12);
            let after = 2 + self.random.below(if slow { 400 } else { 40 });
            self.at(after, Event::Arrive { connection, side: 1 - side });
        }
    }

    fn arrive(&mut self, connection: usize, side: usize) {
        let link = &mut self.connections[connection];
        if !link.open[side] {
            return;
        }
        if self.now < link.stalled_until {
            let after = link.stalled_until - self.now;
            return self.at(after, Event::Arrive { connection, side });
        }
        if link.arrive(side, &mut self.random) {
            let after = 1 + self.random.below(30);
            self.at(after, Event::Arrive { connection, side });
        }
        self.read(connection, side);
    }

    fn read(&mut self, connection: usize, side: usize) {
        let at = self.connections[connection].ends[side];
        let other = self.connections[connection].ends[1 - side];
        self.with(at, |world, node| match side {
            0 => node.read_out(world, connection),
            _ => node.read_in(world, connection),
        });
        // The socket takes more.
        self.with(other, |world, node| node.kick(world));
    }

    /// One end closes a connection; the other one notices.
    pub fn close(&mut self, connection: usize, side: usize) {
        let link = &mut self.connections[connection];
        if !std::mem::replace(&mut link.open[side], false) {
            return;
        }
        link.shut = true;
        link.flight[1 - side].clear();
        let after = 5 + self.random.below(60);
        self.at(after, Event::Closed { connection, side: 1 - side });
        self.at(1, Event::Closed { connection, side });
    }

    /// A connection breaks; who is late notices long after that.
    pub fn break_at(&mut self, connection: usize, late: [bool; 2]) {
        self.connections[connection].tear(&mut self.random);
        for (side, late) in late.into_iter().enumerate() {
            let after = 5 + self.random.below(if late { 4000 } else { 80 });
            self.at(after, Event::Closed { connection, side });
        }
    }

    /// One end notices that a connection is over; what was on its way has come before.
    fn closed(&mut self, connection: usize, side: usize) {
        let link = &mut self.connections[connection];
        let at = link.ends[side];
        if link.open[side] {
            let rest: Vec<u8> = link.flight[1 - side].drain(..).collect();
            link.read[side].extend(rest);
            self.read(connection, side);
        }
        let link = &mut self.connections[connection];
        let was_open = std::mem::replace(&mut link.open[side], false);
        self.trace(|| format!("{connection}: over at end {side}"));
        let link = &self.connections[connection];
        let from = link.ends[0].node;
        self.with(at, |world, node| match side {
            0 => node.ended_out(world, connection),
            _ => node.end_in(connection, from),
        });
        if was_open && !self.connections[connection].broken {
            let after = 5 + self.random.below(60);
            self.at(after, Event::Closed { connection, side: 1 - side });
        }
    }
}
