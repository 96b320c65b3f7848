//! The run of one job: what happens in the world, and what the controller is told of it.

use crate::real::fate::Fate;
use crate::real::sharing::Sharing;
use crate::real::spec::{self, Drawn};
use crate::real::{Faults, Happens, Note, Report, Setup, Told};
use crate::types::{Endpoint, Event, FromNode, Mutation, Packet, Time};
use crate::world::World;
use eyrie_controller::memory::Memory;
use eyrie_controller::memory::driven::Controller;
use eyrie_controller::{Msg, Now};
use eyrie_protocol::membership::Member;
use eyrie_protocol::router_pause::Pauses;
use eyrie_protocol::session::Numbered;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

/// Events after which a run is taken for hung.
const MOST_EVENTS: u64 = 60_000;
/// When the job began, by the wall clock.
const BEGUN: Duration = Duration::from_secs(1_800_000_000);
/// How long a node that was cut off at the end takes to call at most.
const STRAGGLING: u64 = 3_000;
/// Between two signs of life.
const BEAT: u64 = 250;
/// A client that does not renew its hold has lost it after so long.
const LEASE: u64 = 2_500;

/// What a rank needs of its channels, and of its determinants.
pub(super) type Floor = (Vec<u64>, u64);

/// A job, its nodes and its controller.
pub struct Simulation {
    pub setup: Setup,
    pub world: World,
    /// None: it is dead.
    pub controller: Option<Controller>,
    /// The job's folder.
    pub(super) memory: Memory,
    /// When the present one began.
    pub(super) since: u64,
    /// How it dies in its next turn.
    pub fate: Option<Fate>,
    /// When it is to look at what is due.
    pub(super) look_at: Option<u64>,
    /// What it has taken since its last record.
    pub(super) notes: Vec<(u32, Note)>,
    /// A message was taken, and its turn is not over.
    pub(super) turn_open: bool,
    /// Numbers of starts that were checked.
    pub(super) started: BTreeSet<u64>,
    /// After the last turn that ended: nodes that were dismissed, members, and those that stay.
    pub(super) dismissed: BTreeSet<u32>,
    pub(super) members: Vec<Member>,
    pub(super) keepers: Vec<Member>,
    /// Images went to the vault.
    pub(super) vaulted: bool,
    /// The same, when the turn before that one had ended.
    pub(super) had_vault: bool,
    /// The newest image of each rank that counts.
    pub(super) newest: BTreeMap<u32, u32>,
    /// Who holds the images that are kept, after the last turn.
    pub(super) holders: BTreeMap<(u32, u32), BTreeSet<Member>>,
    /// Ranks that stand though no node leaves, and since when.
    pub(super) held: BTreeMap<(Member, u32), Time>,
    /// When a node stayed last that was to leave.
    pub(super) stayed_at: Time,
    /// Images that the controller takes for guarded by nodes that are gone, and since when.
    pub(super) thin: BTreeMap<(u32, u32), Time>,
    /// What the console has printed of each rank, and how much of that before all ranks went back
    /// the last time.
    pub(super) printed: Vec<Vec<u8>>,
    pub(super) foreign: Vec<usize>,
    pub(super) rollbacks: u64,
    pub(super) went_back: bool,
    pub(super) sharing: Sharing,
    /// All ranks stand, as far as the controller knows.
    pub(super) stands: bool,
    /// What the user was told last.
    pub(super) said: Vec<String>,
    /// With this the job is over.
    pub(super) code: Option<i32>,
    /// The last order to stand still, and when the first node was told it.
    pub(super) halted: Option<(u64, Time)>,
    /// A mutation: checkpoints that wait for routers, as they were.
    pub(super) pauses: Pauses,
    /// The number that a controller gave to the daemon of a node that joined later.
    pub(super) daemons: BTreeMap<u32, u64>,
    /// Clients that have the job stand still, by the controller that they are connected to.
    pub(super) clients: Vec<(u64, u64)>,
    /// Floors as nodes were told them, with the time.
    pub(super) floors: Vec<(Time, u32, Floor)>,
    finishing: bool,
    /// Since when all nodes have said that they have ended what they had.
    over_since: Option<u64>,
}

impl Simulation {
    pub fn begin(setup: Setup) -> Result<Simulation, String> {
        let (mut world, map, nodes) = World::really(setup);
        let ranks = map.len();
        let drawn = Drawn::of(&mut world, setup, map, nodes);
        let all = drawn.nodes + drawn.spares;
        world.trace(|| {
            format!("{ranks} ranks, {nodes} nodes, {} others: {:?}", all - nodes, setup.mode)
        });
        let spec = spec::with_network(spec::of(drawn), setup);
        let mut simulation = Simulation {
            setup,
            world,
            controller: None,
            memory: Memory::default(),
            since: 0,
            fate: None,
            look_at: None,
            notes: Vec::new(),
            turn_open: false,
            started: BTreeSet::new(),
            dismissed: BTreeSet::new(),
            members: Vec::new(),
            keepers: Vec::new(),
            vaulted: false,
            had_vault: false,
            newest: BTreeMap::new(),
            holders: BTreeMap::new(),
            held: BTreeMap::new(),
            stayed_at: Time::MAX,
            thin: BTreeMap::new(),
            printed: vec![Vec::new(); ranks],
            foreign: vec![0; ranks],
            rollbacks: 0,
            went_back: false,
            sharing: Sharing::default(),
            stands: false,
            said: Vec::new(),
            code: None,
            halted: None,
            pauses: Pauses::default(),
            daemons: BTreeMap::new(),
            clients: Vec::new(),
            floors: Vec::new(),
            finishing: false,
            over_since: None,
        };
        let begun = Controller::begin(&simulation.memory, spec, simulation.clocks());
        simulation.controller = Some(begun?);
        for node in 0..all {
            simulation.boot(node, u64::from(node) + 1);
        }
        simulation.plan();
        simulation.turn(|_| ());
        Ok(simulation)
    }

    /// What is to happen to the job, and when first.
    fn plan(&mut self) {
        let (setup, world) = (self.setup, &mut self.world);
        if setup.faults == Faults::None || setup.small {
            world.faults_left = 0;
        }
        if setup.drains && setup.faults == Faults::All {
            // Half of them are not disturbed.
            world.faults_left *= world.random.below(2);
        }
        let first = 100 + world.random.below(1500);
        world.at(first, Event::Real(Happens::Fault));
        world.at(BEAT, Event::Real(Happens::Beat));
        if !setup.unfit {
            world.unfit.never();
        }
        for (wanted, what) in
            [(setup.drains, Happens::Drain), (setup.suspends, Happens::Suspend { stands: true })]
        {
            let after = 300 + world.random.below(2_500);
            wanted.then(|| world.at(after, Event::Real(what)));
        }
        if setup.shares {
            let after = 200 + world.random.below(1_500);
            world.at(after, Event::Real(Happens::Share));
        }
        if setup.suspends {
            let after = 300 + world.random.below(4_000);
            world.at(after, Event::Real(Happens::Hold));
        }
    }

    /// What the controller's clocks show.
    pub(super) fn clocks(&self) -> Now {
        let wall = UNIX_EPOCH + BEGUN;
        let steady = Duration::from_millis(self.world.now - self.since);
        let origin = wall + Duration::from_millis(self.since);
        Now { steady, boot: steady, wall: origin + steady, origin }
    }

    /// A daemon starts.
    fn boot(&mut self, node: u32, epoch: u64) {
        let world = &mut self.world;
        let member = Member { node, epoch };
        // The connection that it does not have yet.
        let conn = world.open(Endpoint::Node(member), Endpoint::Node(member));
        world.conns[conn].broken = true;
        let mut node = crate::node::Node::new(member, world.ranks(), world.replicas, conn);
        node.gate = node.gate.with_neighbours(world.neighbours.clone());
        node.segment.frozen_runs = world.mutated(Mutation::RunsUnnoticed);
        world.nodes.insert(member, node);
        let joins = world.joins(member);
        world.tell_real(member, joins);
        let after = 5 + world.random.below(200);
        world.at(after, Event::Call { member });
    }

    pub(super) fn ended(&self) -> bool {
        self.code.is_some()
    }

    /// Runs to the end of the job.
    pub fn run(mut self) -> Result<Report, String> {
        loop {
            if let Some(ended) = self.advance() {
                return ended.map(|()| self.world.report);
            }
        }
    }

    /// Lets the next thing happen. How the run ended, if it did.
    pub(super) fn advance(&mut self) -> Option<Result<(), String>> {
        let Some((time, event)) = self.world.agenda.next() else {
            let why = format!("nothing happens any more: {}", self.where_it_stands());
            return Some(Err(why));
        };
        self.world.now = time;
        self.world.report.events += 1;
        self.happen(event);
        if let Some(why) = self.world.wrong.take() {
            return Some(Err(why));
        }
        if self.has_returned() {
            return Some(Ok(()));
        }
        if self.is_over() {
            return Some(self.check_end());
        }
        let hung = self.world.report.events > MOST_EVENTS;
        hung.then(|| Err(format!("hung: {}", self.where_it_stands())))
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { conn, side } if self.is_controllers(conn, side) => {
                self.hear(conn, side);
            }
            Event::Closed { conn, side } if self.is_controllers(conn, side) => {
                self.hung_up(conn, side);
            }
            Event::Closed { conn, side } if self.is_to_controller(conn, side) => {
                self.lost_controller(conn, side);
            }
            Event::Call { member } => self.call(member),
            Event::Real(Happens::Look) => {
                if self.look_at.is_some_and(|at| at <= self.world.now) {
                    self.look_at = None;
                    self.turn(|controller| controller.job.schedule());
                }
            }
            Event::Real(Happens::Cleared { node, deaths }) => self.cleared(node, deaths),
            Event::Real(Happens::Perish { member }) => self.world.perish(member),
            Event::Real(Happens::Gone { node, deaths }) => {
                if deaths == self.world.report.controllers {
                    let (epoch, why) = (self.daemon(node), String::from("its daemon ended"));
                    self.turn(|c| c.job.take(Msg::Gone { node, epoch, why }));
                }
            }
            Event::Real(Happens::Fault) => self.fault(),
            Event::Real(Happens::Loss) => self.loss(),
            Event::Real(Happens::Term) => self.term(),
            Event::Real(Happens::Beat) => self.beat(),
            Event::Real(Happens::Leave { member }) => self.world.leave_together(member),
            Event::Real(Happens::Grow) => self.grow(),
            Event::Real(Happens::Share) => self.share(),
            Event::Real(Happens::LoseController) => self.lose_controller(),
            Event::Real(Happens::LoseThis { member }) => self.lose_this(member),
            Event::Real(Happens::LoseCluster { looks }) => self.lose_cluster(looks),
            Event::Real(Happens::LoseRank { rank }) => self.lose_rank(rank),
            Event::Real(Happens::CallOff { node }) => self.call_off(node),
            Event::Real(Happens::Hold) => self.hold(),
            Event::Real(Happens::Vanish { client }) => {
                self.turn(|c| c.client_gone(client));
            }
            Event::Real(Happens::Drain) => self.drain(),
            Event::Real(Happens::Suspend { stands }) => self.suspend(stands),
            Event::Strike { rank } => self.strike(rank),
            other => self.world.happen(other),
        }
    }

    pub(super) fn is_controllers(&self, conn: usize, side: usize) -> bool {
        self.world.conns[conn].ends[side] == Endpoint::Controller
    }

    fn is_to_controller(&self, conn: usize, side: usize) -> bool {
        self.world.conns[conn].ends[1 - side] == Endpoint::Controller
    }

    /// Something arrives at the controller.
    fn hear(&mut self, conn: usize, side: usize) {
        let now = self.world.now;
        let c = &mut self.world.conns[conn];
        let queue = &mut c.queues[1 - side];
        if queue.front().is_none_or(|p| p.0 > now) || !c.open[side] {
            return;
        }
        let Some((_, Packet::FromNode(frame))) = queue.pop_front() else { return };
        let Endpoint::Node(member) = c.ends[1 - side] else { return };
        let Numbered { number, heard, message: FromNode::Real(told) } = frame else { return };
        let Told { mut said, note } = *told;
        self.mistake_said(&mut said);
        self.mistake_trim(&said);
        self.world.trace(|| format!("{member} says ({number}) {}", short(&said)));
        let rank = match &said {
            eyrie_control::FromNode::Ended { rank, .. }
            | eyrie_control::FromNode::Output { rank, .. }
            | eyrie_control::FromNode::CheckpointOver { rank, .. } => *rank,
            _ => 0,
        };
        let generation = match &said {
            eyrie_control::FromNode::CheckpointOver { generation, .. } => *generation,
            _ => 0,
        };
        if let (Note::Stored(depends), true) = (&note, self.controller.is_some()) {
            self.world.truth.stored(rank, generation, depends);
        }
        self.notes.push((rank, note));
        if matches!(said, eyrie_control::FromNode::Found { .. }) {
            self.controller_nearby();
        }
        let (node, line) = (member.node, conn as u64 + 1);
        let frame = Numbered { number, heard, message: said };
        self.turn(|c| c.job.take(Msg::Framed { node, line, frame }));
    }

    /// The controller notices that a connection is gone.
    fn hung_up(&mut self, conn: usize, side: usize) {
        let c = &mut self.world.conns[conn];
        if !std::mem::take(&mut c.open[side]) {
            return;
        }
        let Endpoint::Node(member) = c.ends[1 - side] else { return };
        let (node, epoch, line) = (member.node, self.daemon(member.node), conn as u64 + 1);
        let why = String::from("its connection ended");
        self.turn(|c| c.job.take(Msg::HungUp { node, epoch, line, why }));
    }

    /// A node notices it.
    fn lost_controller(&mut self, conn: usize, side: usize) {
        let c = &mut self.world.conns[conn];
        c.open[side] = false;
        let Endpoint::Node(member) = c.ends[side] else { return };
        let Some(node) = self.world.nodes.get(&member).filter(|n| n.conn == conn) else { return };
        if node.real.finished {
            return self.world.perish(member);
        }
        let after = 10 + self.world.random.below(200);
        self.world.at(after, Event::Call { member });
    }

    /// A node calls a controller.
    fn call(&mut self, member: Member) {
        let Some(node) = self.world.nodes.get(&member) else { return };
        let away = node.real.away_until.saturating_sub(self.world.now);
        if away > 0 {
            return self.world.at(away, Event::Call { member });
        }
        let c = &self.world.conns[node.conn];
        let is_there = c.side(Endpoint::Controller).is_some() && !c.broken;
        if is_there && c.side(Endpoint::Node(member)).is_some_and(|side| c.open[side]) {
            return;
        }
        if self.controller.is_none() {
            let after = 50 + self.world.random.below(200);
            return self.world.at(after, Event::Call { member });
        }
        let conn = self.world.open(Endpoint::Controller, Endpoint::Node(member));
        self.world.trace(|| format!("{member} calls, on connection {conn}"));
        let Some(node) = self.world.nodes.get_mut(&member) else { return };
        node.conn = conn;
        let heard = node.session.heard();
        let said: Vec<_> = node.session.again().collect();
        // The first word, before anything is heard: how much was heard of those before.
        let beat = eyrie_control::FromNode::Beat { timeout_ms: 2_000, stamp_ms: Some(0) };
        let beat = FromNode::Real(Box::new(Told { said: beat, note: Note::None }));
        let first =
            (!self.mutated(Mutation::FirstWordUnsaid)).then(|| Numbered::beside(heard, beat));
        for frame in first.into_iter().chain(said) {
            self.world.send(conn, Endpoint::Node(member), Packet::FromNode(frame));
        }
        let (node, epoch, line) = (member.node, self.daemon(member.node), conn as u64 + 1);
        let forgets = self.mutated(Mutation::OrdersForgotten);
        self.turn(|c| {
            c.connect(node, epoch, line);
            // What was said to it before is not said again.
            forgets.then(|| c.sent());
        });
    }

    /// Somebody wants nodes to leave. They do, or there is a reason against it.
    fn drain(&mut self) {
        let keepers = self.world.controller.planner.keepers();
        let after = 500 + self.world.random.below(5_000);
        self.world.at(after, Event::Real(Happens::Drain));
        let Some(member) = self.world.random.pick(&keepers).filter(|_| !self.ended()) else {
            return;
        };
        if self.controller.is_none() {
            return;
        }
        self.world.count_anew();
        let migrates = self.world.random.one_in(2);
        let going = self.others_with(member, &keepers);
        let stay = keepers.iter().map(|m| m.node).filter(|node| !going.contains(node));
        let stay: Vec<u32> = stay.collect();
        let to = match self.world.random.one_in(4) {
            true => self.world.random.pick(&stay).into_iter().collect(),
            false => Vec::new(),
        };
        self.world.trace(|| format!("{going:?} are to leave, to {to:?} (as spares: {migrates})"));
        let mut answer = Ok(());
        self.turn(|c| answer = c.drain(&going, &to, migrates, 1));
        if answer.is_ok() && self.world.random.one_in(3) {
            let after = self.world.random.below(1_500);
            self.world.at(after, Event::Real(Happens::CallOff { node: member.node }));
        }
        self.asked("nodes are to leave", answer);
        self.sync();
        self.world.bear_less();
        self.fault_nearby(3);
    }

    /// Who is to leave when this node is: it alone, all of its cluster, or another one, too.
    fn others_with(&mut self, member: Member, keepers: &[Member]) -> Vec<u32> {
        let world = &mut self.world;
        let mut going = vec![member.node];
        if world.neighbours.are_known() && world.random.one_in(3) {
            let of = |node: u32| world.neighbours.cluster(node);
            let with = keepers.iter().map(|m| m.node).filter(|n| of(*n) == of(member.node));
            going = with.collect();
        } else if keepers.len() > 2 && world.random.one_in(4) {
            going.extend(world.random.pick(keepers).map(|m| m.node).filter(|n| *n != member.node));
        }
        going
    }

    /// Ranks are to stand, as their node leaves: now and then it is not to, right then.
    pub(super) fn call_off_nearby(&mut self, order: &eyrie_control::ToNode) {
        use eyrie_control::ToNode as To;
        let holds = match order {
            To::Checkpoint(order) => order.hold,
            To::CheckpointSet { hold, .. } => *hold,
            _ => false,
        };
        if !holds || !self.setup.drains || !self.world.random.one_in(6) {
            return;
        }
        let member = self.world.controller.planner.leaving().next();
        if let Some(member) = member {
            let after = self.world.random.below(300);
            self.world.at(after, Event::Real(Happens::CallOff { node: member.node }));
        }
    }

    /// A node is not to leave after all.
    fn call_off(&mut self, node: u32) {
        if self.ended() || self.controller.is_none() {
            return;
        }
        self.world.trace(|| format!("node {node} is not to leave after all"));
        let mut answer = Ok(());
        self.turn(|c| answer = c.call_off(node));
        self.world.report.called_off += u64::from(answer.is_ok());
        self.asked("a node is not to leave", answer);
        self.fault_nearby(4);
    }

    fn suspend(&mut self, stands: bool) {
        let after = 200 + self.world.random.below(3_000);
        self.world.at(after, Event::Real(Happens::Suspend { stands: !stands }));
        if self.ended() || self.controller.is_none() {
            return;
        }
        self.world.trace(|| format!("the job is to stand still: {stands}"));
        self.world.report.suspends += u64::from(stands);
        let mut answer = Ok(());
        self.turn(|c| answer = c.suspend(stands));
        self.asked("the job is to stand still", answer);
        self.fault_nearby(4);
    }

    /// A client has the job stand still, as long as its connection to this controller stands, or
    /// its lease.
    fn hold(&mut self) {
        let after = 300 + self.world.random.below(4_000);
        self.world.at(after, Event::Real(Happens::Hold));
        if self.ended() || self.controller.is_none() {
            return;
        }
        // Each comes once.
        let client = self.world.report.events;
        let lease = self.world.random.one_in(2).then_some(LEASE);
        // Who has a lease may vanish without a word.
        if lease.is_none() || self.world.random.one_in(2) {
            let after = 100 + self.world.random.below(3_000);
            self.world.at(after, Event::Real(Happens::Vanish { client }));
        }
        let lease = lease.filter(|_| !self.mutated(Mutation::LeaseForever));
        self.world.trace(|| format!("client {client} has the job stand still: {lease:?}"));
        self.world.report.suspends += 1;
        let mut answer = Ok(());
        self.turn(|c| answer = c.hold(client, lease));
        if answer.is_ok() {
            self.clients.push((self.world.report.controllers, client));
        }
        self.asked("a client has the job stand still", answer);
    }

    /// A node joins that has nothing.
    fn grow(&mut self) {
        if self.ended() || self.controller.is_none() {
            return;
        }
        let names = match self.world.neighbours.are_known() || self.world.sites.are_known() {
            true => ["a", "b"].get(self.world.random.below(2) as usize).copied(),
            false => None,
        };
        let mut answer = Err(String::new());
        self.turn(|c| answer = c.grow(names));
        match answer {
            Ok((node, epoch)) => {
                self.world.trace(|| format!("node {node} joins"));
                self.daemons.insert(node, epoch);
                self.boot(node, epoch);
            }
            Err(why) => self.asked("a node is to join", Err(why)),
        }
    }

    /// What the controller calls the daemon of a node.
    pub(super) fn daemon(&self, node: u32) -> u64 {
        self.daemons.get(&node).copied().unwrap_or(u64::from(node) + 1)
    }

    /// Every refusal has a reason.
    fn asked(&mut self, what: &str, answer: Result<(), String>) {
        let Err(why) = answer else { return };
        self.world.trace(|| format!("refused: {why}"));
        if why.trim().is_empty() {
            self.world.fail(format!("{what}, and that is refused without a reason"));
        }
    }

    /// What was left of a lost node is gone.
    fn cleared(&mut self, node: u32, deaths: u64) {
        let member = self.world.nodes.keys().find(|m| m.node == node).copied();
        match member {
            Some(member) if self.mutated(Mutation::NotCleared) => {
                self.world.at(800, Event::Real(Happens::Perish { member }));
            }
            Some(member) => self.world.perish(member),
            None => {}
        }
        if deaths == self.world.report.controllers {
            self.turn(|c| c.job.take(Msg::Cleared { node, left: 0 }));
        }
    }

    fn beat(&mut self) {
        self.check_held();
        let all: Vec<Member> = self.world.nodes.keys().copied().collect();
        for member in all {
            let beat = eyrie_control::FromNode::Beat { timeout_ms: 2_000, stamp_ms: Some(1) };
            self.world.tell_real(member, beat);
        }
        self.world.at(BEAT, Event::Real(Happens::Beat));
    }

    /// Whether the job is over, and nothing of it is left to be waited for.
    fn is_over(&mut self) -> bool {
        let Some(controller) = &mut self.controller else { return false };
        if self.code.is_none() {
            return false;
        }
        if !self.finishing && controller.job.logs_kept() {
            self.finishing = true;
            self.turn(|c| c.job.finish());
        }
        let all = |c: &Controller| c.job.finished(false).is_some();
        if !self.finishing || !self.controller.as_ref().is_some_and(all) {
            return false;
        }
        // Who had no connection then calls, and is told to go.
        let since = *self.over_since.get_or_insert(self.world.now);
        self.world.nodes.values().all(|n| n.real.finished) || self.world.now > since + STRAGGLING
    }

    /// It is not told yet to end.
    pub(super) fn begins_anew(&mut self) {
        (self.finishing, self.over_since) = (false, None);
    }

    fn where_it_stands(&mut self) -> String {
        self.sync();
        let phase = self.controller.as_ref().map_or("dead", |c| c.phase());
        let status = self.controller.as_ref().map(|c| {
            let status = c.status();
            let rank = |r: &eyrie_control::RankStatus| {
                format!("{} {} on {} {:?}", r.rank, r.state, r.node, r.not_back_reason)
            };
            status.ranks.iter().map(rank).collect::<Vec<_>>()
        });
        let said: Vec<&String> = self.said.iter().rev().take(5).collect();
        let stands = self.world.where_it_stands();
        format!("controller {phase}, ranks {status:?}, said last {said:?}; {stands}")
    }
}

/// A message in a line of the trace.
pub(super) fn short(message: &impl std::fmt::Debug) -> String {
    let text = format!("{message:?}");
    text.chars().take(160).collect()
}
