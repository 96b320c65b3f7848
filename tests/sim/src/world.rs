//! One simulated job: nodes, controller, network and clock, and the loop that makes things happen.

use crate::agenda::Agenda;
use crate::checks::Truth;
use crate::controller::Controller;
use crate::net::Conn;
use crate::node::Node;
use crate::program::{self, Programs};
use crate::random::Random;
use crate::term::{Effect, Fate, Journal};
use crate::types::{Endpoint, Event, FromNode, Image, Mutation, Packet, Time};
use crate::unfit::Unfit;
use eyrie_protocol::membership::{Member, Neighbours};
use eyrie_protocol::recovery::{Input, Rule};
use eyrie_protocol::routing::Routing;
use eyrie_protocol::session::Session;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Events after which a run is taken for hung.
const MOST_EVENTS: u64 = 60_000;
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
    /// Nodes are asked to leave.
    pub drain: bool,
    /// Messages between nodes go by routers.
    pub routed: bool,
    /// The job is told to stand still now and then.
    pub suspends: bool,
    /// Few ranks that do little, as a fault is tried at every step.
    pub small: bool,
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
            drain: is("--drain"),
            routed: is("--routed"),
            suspends: is("--halts"),
            small: is("--small"),
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
             {} jobs lost with their last node",
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
    pub controller: Controller,
    pub conns: Vec<Conn>,
    pub truth: Truth,
    /// What the vault has, and the nodes that keep it.
    pub vault: BTreeMap<(u32, u32), (Rc<Image>, Vec<Member>)>,
    /// Where the real controller leads it: what comes into it.
    pub rounds: crate::real::vault::Rounds,
    pub report: Report,
    pub replicas: usize,
    pub faults_left: u64,
    pub next_epoch: u64,
    /// The first thing that was found wrong.
    pub wrong: Option<String>,
    pub over: bool,
    /// What the controller has decided in its turn, and told the planner.
    pub turn: Vec<Effect>,
    pub plans: Vec<Input>,
    pub journal: Option<Journal<Controller>>,
    /// The controller is going to die.
    pub fate: Option<Fate>,
    /// There is none at the time.
    pub dead: bool,
    /// Nodes are asked to leave.
    pub drains: bool,
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
    /// What was true before its last turn.
    pub before: Option<Truth>,
    /// Whether the controller decided something in what happened last, if that was its turn.
    pub decided: Option<bool>,
    pub small: bool,
    /// The nodes are those of the real controller.
    pub real: bool,
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
    pub fn new(config: Config) -> Self {
        let (mut world, map, nodes) = World::blank(config);
        world.divide(config, map, nodes);
        let spares = world.random.below(2) as u32;
        let routers = if config.routed { world.open_routers(nodes + spares) } else { 0 };
        world.trace(|| {
            let (ranks, replicas) = (world.ranks(), world.replicas);
            format!("{ranks} ranks, {nodes} nodes, {spares} spares, {replicas} replicas")
        });
        for node in 0..nodes + spares + routers {
            world.join(node, node >= nodes);
        }
        let todo = world.controller.planner.start();
        world.carry_out(todo);
        world.end_turn(None);
        if world.random.one_in(2) || config.small {
            let planner = world.controller.planner.clone();
            world.journal = Some(Journal::new(&world.controller, planner));
        }
        world.begin_events();
        world.begin_to_hold(config.suspends);
        world
    }

    /// A job that has not begun, the node of each rank, and how many nodes there are to be.
    pub fn blank(config: Config) -> (World, Vec<u32>, u32) {
        let mut random = Random::new(config.seed);
        let united = config.units || config.clusters;
        let (ranks, nodes) = size(config, &mut random);
        let steps = match config.small {
            true => 60 + random.below(80),
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
            controller: Controller::new(map.clone(), random.below(3)),
            conns: Vec::new(),
            truth: Truth::new(ranks, bears),
            vault: BTreeMap::new(),
            rounds: crate::real::vault::Rounds::default(),
            report: Report::default(),
            replicas,
            faults_left: random.below(7),
            next_epoch: 1,
            wrong: None,
            over: false,
            turn: Vec::new(),
            plans: Vec::new(),
            journal: None,
            fate: None,
            dead: false,
            drains: config.drain,
            routing: Routing::default(),
            stood: BTreeMap::new(),
            unfit: Unfit::new(config.seed),
            going: Vec::new(),
            damaged: BTreeSet::new(),
            before: None,
            decided: None,
            small: config.small,
            real: false,
            together: false,
            agenda: Agenda::default(),
            trace: config.trace,
            programs,
            random,
        };
        (world, map, nodes)
    }

    /// Which ranks are one unit, and where copies are.
    fn divide(&mut self, config: Config, map: Vec<u32>, nodes: u32) {
        if config.units {
            self.unite();
        }
        if config.clusters {
            self.unite_clusters(map, nodes);
        }
        if config.outside {
            self.copy_outside(nodes);
        }
        if config.vault {
            self.open_vault();
        }
    }

    fn begin_events(&mut self) {
        self.at(200, Event::Schedule);
        if self.small {
            self.faults_left = 0;
            let first = 50 + self.random.below(500);
            return if self.drains {
                self.at(first, Event::Drain)
            };
        }
        let first = 100 + self.random.below(1500);
        self.at(first, Event::Fault);
        if self.drains {
            self.begin_to_drain();
        }
    }

    fn open_vault(&mut self) {
        let planner = self.controller.planner.clone();
        let least = VAULT_BEARS as usize + 1;
        self.controller.planner = planner.with_rule(Rule::Vault { least });
    }

    fn begin_to_drain(&mut self) {
        // Half of them are not disturbed.
        self.faults_left *= self.random.below(2);
        let first = 100 + self.random.below(3000);
        self.at(first, Event::Drain);
    }

    pub fn ranks(&self) -> u32 {
        self.programs.len() as u32
    }

    /// Whether ranks of one unit are on several nodes.
    pub fn is_spread(&self) -> bool {
        self.neighbours.are_known() || self.together
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

    /// Runs to the end of the job.
    pub fn run(mut self) -> Result<Report, String> {
        loop {
            if let Some(ended) = self.advance() {
                return ended.map(|()| self.report);
            }
        }
    }

    /// Lets the next thing happen. How the run ended, if it did.
    pub fn advance(&mut self) -> Option<Result<(), String>> {
        let Some((time, event)) = self.agenda.next() else {
            let why = format!("nothing happens any more: {}", self.where_it_stands());
            return Some(Err(why));
        };
        self.now = time;
        self.report.events += 1;
        self.take(event);
        if let Some(why) = self.wrong.take() {
            return Some(Err(why));
        }
        if self.over {
            return Some(self.check_end());
        }
        let hung = self.report.events > MOST_EVENTS;
        hung.then(|| Err(format!("hung: {}", self.where_it_stands())))
    }

    /// What is going to happen next.
    pub fn coming(&self) -> Option<&Event> {
        self.agenda.peek()
    }

    /// Lets it happen; if the controller decides something by that, as one turn.
    fn take(&mut self, event: Event) {
        self.decided = None;
        if !self.is_turn(&event) {
            return self.happen(event);
        }
        if self.dead {
            // It goes on looking when there is one again.
            return match event {
                Event::Schedule | Event::Hold | Event::LetGo { .. } => self.at(100, event),
                Event::Drain => self.at(500, event),
                Event::Join => self.at(300, event),
                _ => {}
            };
        }
        let fate = self.fate.take();
        if fate.is_some() {
            self.before = Some(self.truth.clone());
        }
        self.happen(event);
        self.end_turn(fate);
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
            Event::Encoded { at, .. } if self.real && !self.nodes.contains_key(&at) => {}
            Event::Encoded { at, round, images } if self.real => {
                let step = self.payload_written(at, round, images);
                self.tell_vault(at, round, step);
            }
            Event::Encoded { at, round, images } => {
                self.tell(at, FromNode::Vaulted { round, images: Some(images) });
            }
            Event::Unfit { at, rank, incarnation } => {
                self.tell(at, FromNode::Unfit { rank, incarnation, at });
            }
            Event::Unvault { at, rank, generation } => self.unvault(at, rank, generation),
            Event::Schedule => self.schedule(),
            Event::Suspect { member } => self.suspect(member),
            Event::Perish { member, conn } => self.despair(member, conn),
            Event::Fault => self.fault(),
            Event::Join => self.rejoin(),
            Event::Stand { at, rank, generation } => self.stand(at, rank, generation),
            Event::Hold => self.hold_still(),
            Event::LetGo { holder } => self.let_go(holder),
            Event::Suspended { at, rank, turn } => self.rank_suspended(at, rank, turn),
            Event::Heal { conn } => self.conns[conn].blocked = false,
            Event::Drain => self.drain(),
            Event::Strike { rank } => self.strike(rank),
            Event::Call { member } => self.call(member),
            Event::Term => self.term(),
            Event::Rejoined { deaths } if deaths == self.report.controllers => self.rejoined(),
            Event::Rejoined { .. } | Event::Real(_) => {}
        }
    }

    /// A node starts; it is connected to the controller.
    pub fn join(&mut self, number: u32, spare: bool) {
        let member = Member { node: number, epoch: self.next_epoch };
        self.next_epoch += 1;
        let conn = self.open(Endpoint::Controller, Endpoint::Node(member));
        let mut node = Node::new(member, self.ranks(), self.replicas, conn);
        node.gate = node.gate.with_neighbours(self.neighbours.clone());
        node.segment.frozen_runs = self.mutated(Mutation::RunsUnnoticed);
        self.nodes.insert(member, node);
        self.controller.conns.insert(member, conn);
        self.controller.sessions.insert(member, Session::default());
        self.trace(|| format!("{member} joins"));
        self.planner(eyrie_protocol::recovery::Input::Joined { member, spare });
        self.tell_floors(member);
        self.tell_suspend(member);
    }

    /// A node that died comes back, empty, as a spare.
    fn rejoin(&mut self) {
        // One that the controller has not noticed to be dead keeps its number.
        let known = self.nodes.keys().chain(self.controller.conns.keys());
        let there: Vec<u32> = known.map(|m| m.node).collect();
        if self.controller.rolling_back.is_some() || self.over {
            return self.at(300, Event::Join);
        }
        if let Some(free) = (0..10).find(|n| !there.contains(n)) {
            self.join(free, true);
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
        let (to, from) = (c.ends[side], c.ends[1 - side]);
        match (to, from, packet) {
            (Endpoint::Controller, Endpoint::Node(member), Packet::FromNode(frame)) => {
                self.controller_hears(member, frame);
            }
            (Endpoint::Node(member), _, Packet::ToNode(frame)) => self.node_hears(member, frame),
            (Endpoint::Node(member), Endpoint::Node(peer), Packet::Peer(said)) => {
                self.peer_hears(member, peer, conn, said);
            }
            _ => {}
        }
    }

    fn closed(&mut self, conn: usize, side: usize) {
        let c = &mut self.conns[conn];
        if !c.open[side] {
            return;
        }
        c.open[side] = false;
        match (c.ends[side], c.ends[1 - side]) {
            (Endpoint::Controller, Endpoint::Node(member)) => self.suspect(member),
            (Endpoint::Node(member), Endpoint::Controller) if self.journal.is_some() => {
                self.call(member)
            }
            (Endpoint::Node(member), Endpoint::Controller) => self.perish(member),
            (Endpoint::Node(member), Endpoint::Node(peer)) => self.peer_closed(member, peer, conn),
            _ => {}
        }
    }
}
