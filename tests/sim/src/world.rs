//! One simulated job: nodes, controller, network and clock, and the loop that makes things happen.

use crate::agenda::Agenda;
use crate::checks::Truth;
use crate::controller::Seen;
use crate::net::Conn;
use crate::node::Node;
use crate::program::{self, Programs};
use crate::random::Random;
use crate::types::{Endpoint, Event, Image, Mutation, Packet, Time};
use crate::unfit::Unfit;
use eyrie_protocol::membership::{Member, Neighbours};
use eyrie_protocol::routing::Routing;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Nodes of a vault that may be gone.
pub const VAULT_BEARS: u64 = 2;

/// What a run consists of; all else follows from the seed.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    pub seed: u64,
    /// Images go to a vault that bears the loss of two nodes.
    pub vault: bool,
    /// The ranks that begin on one node are one recovery unit.
    pub units: bool,
    /// The same of those that begin in one cluster of nodes.
    pub clusters: bool,
    /// Ranks come back alone; copies are in the other of two clusters, which may be lost whole.
    pub outside: bool,
    /// Few ranks that do little, as a fault is tried at every step.
    pub small: bool,
    /// Programs that run long enough for a unit to leave, and for several of its snapshots to come
    /// into the vault; images that are written soon.
    pub long: bool,
    pub mutation: Option<Mutation>,
    pub trace: bool,
}

impl Config {
    /// The kind of job that these words of the command line say.
    pub fn of(seed: u64, is: impl Fn(&str) -> bool, mutation: Option<Mutation>) -> Config {
        Config {
            seed,
            vault: is("--vault"),
            units: is("--units"),
            clusters: is("--cluster-units"),
            outside: is("--outside"),
            small: is("--small"),
            long: false,
            mutation,
            trace: false,
        }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub events: u64,
    pub faults: u64,
    pub node_deaths: u64,
    pub recoveries: u64,
    pub checkpoints: u64,
    /// Images that were read out of the vault.
    pub unvaulted: u64,
    pub roll_backs: u64,
    /// Controllers that died.
    pub controllers: u64,
    pub lost: bool,
    /// Nodes that a rank could not be brought back at.
    pub unfit: u64,
    /// Nodes that left.
    pub left: u64,
    /// Nodes that joined again without anything, when their ranks had migrated.
    pub emptied: u64,
    /// Nodes that were not to leave after all.
    pub called_off: u64,
    /// Orders to stand still, and how often all did.
    pub suspends: u64,
    pub stood: u64,
    /// Ranks became larger units.
    pub regrouped: u64,
    /// In a sum of reports: how many were.
    pub ended_lost: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.faults += other.faults;
        self.node_deaths += other.node_deaths;
        self.recoveries += other.recoveries;
        self.checkpoints += other.checkpoints;
        self.unvaulted += other.unvaulted;
        self.roll_backs += other.roll_backs;
        self.controllers += other.controllers;
        self.unfit += other.unfit;
        self.left += other.left;
        self.regrouped += other.regrouped;
        self.emptied += other.emptied;
        self.called_off += other.called_off;
        self.suspends += other.suspends;
        self.stood += other.stood;
        self.ended_lost += u64::from(other.lost);
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} events, {} faults, {} nodes lost, {} ranks restored, {} checkpoints, {} read out \
             of the vault, {} times back to the beginning, {} times no place for a rank, \
             {} controllers lost, {} nodes left ({} \
             joined again, {} stayed after all), {} times told to stand still ({} times all did), \
             {} times larger units, {} jobs lost with their last node",
            self.events,
            self.faults,
            self.node_deaths,
            self.recoveries,
            self.checkpoints,
            self.unvaulted,
            self.roll_backs,
            self.unfit,
            self.controllers,
            self.left,
            self.emptied,
            self.called_off,
            self.suspends,
            self.stood,
            self.regrouped,
            self.ended_lost
        )
    }
}

/// Everything.
#[derive(Clone)]
pub struct World {
    pub now: Time,
    pub random: Random,
    pub mutation: Option<Mutation>,
    pub programs: Programs,
    /// The recovery unit of each rank; empty: each is its own.
    pub units: Vec<u32>,
    /// The clusters of nodes, if these are the units.
    pub neighbours: Neighbours,
    /// The clusters of nodes, if copies are in another one.
    pub sites: Neighbours,
    pub nodes: BTreeMap<Member, Node>,
    pub controller: Seen,
    pub conns: Vec<Conn>,
    pub truth: Truth,
    /// What the vault has, and the nodes that keep it.
    pub vault: BTreeMap<(u32, u32), (Rc<Image>, Vec<Member>)>,
    /// Where the real controller leads it: what comes into it.
    pub rounds: crate::real::vault::Rounds,
    pub report: Report,
    pub replicas: usize,
    /// An image is written within so long.
    pub longest_write: Time,
    pub faults_left: u64,
    /// The first thing that was found wrong.
    pub wrong: Option<String>,
    /// There is no controller at the time.
    pub dead: bool,
    /// Which nodes are routers.
    pub routing: Routing,
    /// Where each rank stood that left its node.
    pub stood: BTreeMap<u32, usize>,
    /// Nodes that ranks cannot be brought back at, and until when.
    pub unfit: Unfit,
    /// Nodes that are dismissed by what is being carried out.
    pub going: Vec<Member>,
    /// Images of which a copy was damaged.
    pub damaged: BTreeSet<(u32, u32)>,
    /// Ranks that come back alone are checkpointed together now and then.
    pub fallback: bool,
    /// All ranks are to go on from a snapshot, as larger units.
    pub shares: bool,
    /// What nodes store outlives their epochs.
    pub keeps_images: bool,
    /// All ranks go back together, and nothing is recorded of them.
    pub together: bool,
    pub agenda: Agenda<Event>,
    trace: bool,
}

/// How many ranks and nodes a job has. Units are to have several ranks.
fn size(config: Config, random: &mut Random) -> (u32, u32) {
    let united = config.units || config.clusters;
    let (fewest, spread) = if united { (4, 2) } else { (2, 4) };
    let (fewest, spread, more) = match config.small {
        true => (fewest.min(3), 2, 2),
        false => (fewest, spread, 4),
    };
    let ranks = fewest + random.below(more) as u32;
    let least = match config {
        Config { vault: true, .. } => VAULT_BEARS + 1,
        Config { clusters: true, .. } | Config { outside: true, .. } => 3,
        _ => 2,
    };
    (ranks, (least + random.below(spread)) as u32)
}

impl World {
    /// A job that has not begun, the node of each rank, and how many nodes there are to be.
    pub fn blank(config: Config) -> (World, Vec<u32>, u32) {
        let mut random = Random::new(config.seed);
        let united = config.units || config.clusters;
        let (ranks, nodes) = size(config, &mut random);
        let steps = match config.small {
            true => 60 + random.below(80),
            false if config.long => 400 + random.below(400),
            false => 60 + random.below(400) + if united { 200 } else { 0 },
        };
        let programs = program::draw(&mut random, ranks, steps);
        let bears = if config.vault { VAULT_BEARS } else { 1 };
        let replicas = if random.one_in(8) { 2 } else { bears as usize };
        let map: Vec<u32> = match random.below(2) {
            0 => (0..ranks).map(|r| r % nodes).collect(),
            _ => (0..ranks).map(|r| r * nodes / ranks).collect(),
        };
        let world = World {
            now: 0,
            mutation: config.mutation,
            nodes: BTreeMap::new(),
            units: if config.units { map.clone() } else { Vec::new() },
            neighbours: Neighbours::default(),
            sites: Neighbours::default(),
            controller: Seen::new(map.clone()),
            conns: Vec::new(),
            truth: Truth::new(ranks, bears),
            vault: BTreeMap::new(),
            rounds: crate::real::vault::Rounds::default(),
            report: Report::default(),
            replicas,
            longest_write: if random.one_in(2) && !config.long { 1_500 } else { 200 },
            faults_left: random.below(7),
            wrong: None,
            dead: false,
            routing: Routing::default(),
            stood: BTreeMap::new(),
            unfit: Unfit::new(config.seed),
            going: Vec::new(),
            damaged: BTreeSet::new(),
            fallback: false,
            shares: false,
            keeps_images: false,
            together: false,
            agenda: Agenda::default(),
            trace: config.trace,
            programs,
            random,
        };
        (world, map, nodes)
    }

    pub fn ranks(&self) -> u32 {
        self.programs.len() as u32
    }

    /// Whether ranks that are checkpointed together are on several nodes.
    pub fn is_spread(&self) -> bool {
        self.neighbours.are_known() || self.together || self.fallback
    }

    pub fn mutated(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Lets something happen in `after` microseconds.
    pub fn at(&mut self, after: Time, event: Event) {
        self.agenda.put(self.now + after, event);
    }

    pub fn trace(&self, line: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>7} {}", self.now, line());
        }
    }

    /// Something is not as it must be.
    pub fn fail(&mut self, why: String) {
        self.trace(|| format!("WRONG: {why}"));
        self.wrong.get_or_insert(why);
    }

    /// What is going to happen next.
    pub fn coming(&self) -> Option<&Event> {
        self.agenda.peek()
    }

    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Step { at, rank, incarnation } => self.step(at, rank, incarnation),
            Event::Arrive { conn, side } => self.arrive(conn, side),
            Event::Closed { conn, side } => self.closed(conn, side),
            Event::Pump { at } => self.pump(at),
            Event::Connect { from, to } => self.connect(from, to),
            Event::Written { at, rank, generation, image } => {
                self.written(at, rank, generation, image);
            }
            Event::Encoded { at, round, images } if self.nodes.contains_key(&at) => {
                let step = self.payload_written(at, round, images);
                self.tell_vault(at, round, step);
            }
            Event::Unvault { at, rank, generation } => self.unvault(at, rank, generation),
            Event::Stand { at, rank, generation } => self.stand(at, rank, generation),
            Event::Suspended { at, rank, turn } => self.rank_suspended(at, rank, turn),
            Event::Heal { conn } => self.conns[conn].blocked = false,
            // Of the run, or of a node that is gone.
            Event::Call { .. } | Event::Strike { .. } | Event::Real(_) | Event::Encoded { .. } => {}
        }
    }

    pub fn open(&mut self, a: Endpoint, b: Endpoint) -> usize {
        self.conns.push(Conn::new(a, b));
        self.conns.len() - 1
    }

    /// Sends on a connection; what is sent on a broken one is lost.
    pub fn send(&mut self, conn: usize, from: Endpoint, packet: Packet) {
        let c = &mut self.conns[conn];
        let Some(side) = c.side(from) else { return };
        if c.broken || !c.open[side] {
            return;
        }
        let at = c.send(side, packet, self.now, &mut self.random);
        let after = at - self.now;
        self.at(after, Event::Arrive { conn, side: 1 - side });
    }

    /// A connection breaks: what is on it is lost, both sides notice, each in its time.
    pub fn cut(&mut self, conn: usize) {
        let c = &mut self.conns[conn];
        c.broken = true;
        // What had arrived at the other side's kernel is still read there.
        for queue in &mut c.queues {
            let keep = self.random.below(3).min(queue.len() as u64);
            queue.truncate(keep as usize);
        }
        for side in 0..2 {
            let after = 10 + self.random.below(200);
            self.at(after, Event::Closed { conn, side });
        }
    }

    fn arrive(&mut self, conn: usize, side: usize) {
        let now = self.now;
        let c = &mut self.conns[conn];
        if c.blocked {
            return self.at(100, Event::Arrive { conn, side });
        }
        let queue = &mut c.queues[1 - side];
        if queue.front().is_none_or(|p| p.0 > now) || !c.open[side] {
            return;
        }
        let Some((_, packet)) = queue.pop_front() else { return };
        match (c.ends[side], c.ends[1 - side], packet) {
            (Endpoint::Node(member), _, Packet::ToNode(frame)) => self.node_hears(member, frame),
            (Endpoint::Node(member), Endpoint::Node(peer), Packet::Peer(said)) => {
                self.peer_hears(member, peer, conn, said);
            }
            _ => {}
        }
    }

    fn closed(&mut self, conn: usize, side: usize) {
        let c = &mut self.conns[conn];
        if !std::mem::take(&mut c.open[side]) {
            return;
        }
        if let (Endpoint::Node(member), Endpoint::Node(peer)) = (c.ends[side], c.ends[1 - side]) {
            self.peer_closed(member, peer, conn);
        }
    }
}
