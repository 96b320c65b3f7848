//! Clock, network, faults and checks of a simulated job whose ranks go back together.

use super::controller::Controller;
use super::term::Before;
use super::*;
use crate::agenda::Agenda;
use crate::random::Random;
use crate::term::{Fate, Journal};
use eyrie_protocol::recovery::Input;

/// Events after which a run is taken for hung.
const MOST_EVENTS: u64 = 60_000;

/// What is done wrong on purpose, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// The ranks of a node go on as soon as they stand, without those of the others.
    NoBarrier,
    /// What a rank has sent is copied when its image is written.
    LateLog,
    /// What the receiver's node has is not kept by the sender's.
    GivenToMirror,
    /// What comes from before a roll-back is taken.
    OldLife,
    /// Ranks that stand for nodes that leave go on when their image is taken.
    NotHeld,
    /// A node goes as soon as no rank is there.
    LeavesEarly,
    /// A node goes that keeps images in the vault, though they can be brought in anew.
    LeavesGuard,
    /// Images count as soon as a round begins to bring them into the vault.
    VaultedEarly,
    /// The snapshot before goes from the vault before the next one counts.
    CollectedEarly,
    /// What the controller decides has effects before it is written down.
    EffectsUnwritten,
    /// It is not written down that the planner knew of all processes' end.
    DownUnwritten,
    /// A controller knows nothing of the snapshot that the one before it was taking, and takes
    /// another one of that number.
    SnapshotForgotten,
    /// ... of who can come back.
    ReturnForgotten,
}

impl Mistake {
    pub const ALL: [Mistake; 4] =
        [Mistake::NoBarrier, Mistake::LateLog, Mistake::GivenToMirror, Mistake::OldLife];
    /// Those where nodes leave.
    pub const DRAIN: [Mistake; 2] = [Mistake::NotHeld, Mistake::LeavesEarly];
    /// Those where nodes leave that have a vault.
    pub const DRAIN_VAULT: [Mistake; 1] = [Mistake::LeavesGuard];
    /// Those with a vault.
    pub const VAULT: [Mistake; 2] = [Mistake::VaultedEarly, Mistake::CollectedEarly];
    /// Those of controllers and their successors.
    pub const TERMS: [Mistake; 4] = [
        Mistake::EffectsUnwritten,
        Mistake::DownUnwritten,
        Mistake::SnapshotForgotten,
        Mistake::ReturnForgotten,
    ];
}

/// What kind of job it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Images are copied to another node.
    Copies,
    /// They go to a vault that bears one or two losses.
    Vault,
}

/// What is simulated, and how.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    pub seed: u64,
    pub kind: Kind,
    /// Nodes are asked to leave.
    pub drains: bool,
    /// It has few ranks and messages, no faults of its own, and its controllers have successors.
    pub small: bool,
    pub mistake: Option<Mistake>,
    pub trace: bool,
}

impl Job {
    pub fn of(seed: u64, kind: Kind) -> Job {
        Job { seed, kind, drains: false, small: false, mistake: None, trace: false }
    }
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub events: u64,
    pub faults: u64,
    pub node_deaths: u64,
    pub controllers: u64,
    pub snapshots: u64,
    pub void: u64,
    pub roll_backs: u64,
    pub beginnings: u64,
    /// Rounds of the vault, and images that were read out of it.
    pub rounds: u64,
    pub unvaulted: u64,
    /// Nodes that left, and those of them that joined again.
    pub left: u64,
    pub emptied: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.events += other.events;
        self.faults += other.faults;
        self.node_deaths += other.node_deaths;
        self.controllers += other.controllers;
        self.snapshots += other.snapshots;
        self.void += other.void;
        self.roll_backs += other.roll_backs;
        self.beginnings += other.beginnings;
        self.rounds += other.rounds;
        self.unvaulted += other.unvaulted;
        self.left += other.left;
        self.emptied += other.emptied;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { events, faults, node_deaths, snapshots, void, roll_backs, .. } = self;
        let Report { beginnings, rounds, unvaulted, left, emptied, controllers, .. } = self;
        write!(
            f,
            "{events} events, {faults} faults, {node_deaths} nodes lost, {controllers} controllers \
             lost, {snapshots} snapshots, {void} void, {roll_backs} times all back, {beginnings} \
             of them to the beginning, {rounds} rounds, {unvaulted} images read out of the vault, \
             {left} nodes left, of which {emptied} joined again"
        )
    }
}

#[derive(Clone)]
pub(super) struct World {
    pub now: u64,
    pub random: Random,
    pub mistake: Option<Mistake>,
    /// How many nodes of a round may be gone, if images go to a vault.
    pub bears: Option<u64>,
    pub vault: BTreeMap<Key, super::vault::Kept>,
    /// The newest snapshot that counts was in the vault then.
    pub vaulted: bool,
    /// How many messages each rank sends to each.
    pub plan: Vec<Vec<usize>>,
    pub nodes: BTreeMap<u32, Node>,
    pub controller: Controller,
    /// What each rank has done, in the course of the job that counts.
    pub truth: Vec<State>,
    /// All images that were ever taken.
    pub images: BTreeMap<(u32, u32), Rc<Image>>,
    /// Nodes that died since the last snapshot began to count, and images that were damaged.
    pub losses: u64,
    pub report: Report,
    pub messages: u64,
    pub next_epoch: u64,
    pub next_node: u32,
    /// What the controller says in this turn, and tells the planner.
    pub turn: Vec<(u32, ToNode)>,
    pub plans: Vec<Input>,
    pub journal: Option<Journal<Controller>>,
    /// It dies at this step of its next turn; it is dead.
    pub fate: Option<Fate>,
    pub dead: bool,
    /// Its connections, by node, and how many there were.
    pub lines: BTreeMap<u32, u64>,
    pub lines_made: u64,
    /// How things stood before the turn that is going to be lost.
    pub before: Option<Box<Before>>,
    /// Whether it decided something in what happened last, if that was its turn.
    pub decided: Option<bool>,
    faults_left: u64,
    wrong: Option<String>,
    pub over: bool,
    trace: bool,
    lanes: BTreeMap<(Option<u32>, Option<u32>), u64>,
    agenda: Agenda<Event>,
}

/// Runs the simulation of a seed.
pub fn run(job: Job) -> Result<Report, String> {
    World::new(job).run()
}

impl World {
    pub fn new(job: Job) -> World {
        let Job { seed, kind, small, mistake, trace, .. } = job;
        let mut random = Random::new(seed);
        let ranks = 2 + random.below(if small { 1 } else { 4 }) as usize;
        let bears = (kind == Kind::Vault).then(|| 1 + random.below(2));
        let nodes = 2 + random.below(if small { 2 } else { 3 }) as u32;
        let nodes = nodes + bears.unwrap_or(0) as u32;
        // Small ones have time for a snapshot, too.
        let (least, most) = if small { (40, 10) } else { (0, 20 + random.below(100)) };
        let mut plan = vec![vec![0; ranks]; ranks];
        for (src, row) in plan.iter_mut().enumerate() {
            for (dst, count) in row.iter_mut().enumerate().filter(|(dst, _)| *dst != src) {
                *count = least + random.below(most) as usize + dst % 2;
            }
        }
        let map = (0..ranks as u32).map(|r| r % nodes).collect();
        let every = if small { 100 } else { 200 } + random.below(if small { 50 } else { 800 });
        let faults_left = if small { 0 } else { random.below(6) };
        let mut world = World {
            now: 0,
            mistake,
            plan,
            nodes: BTreeMap::new(),
            controller: Controller::new(map, every, bears),
            bears,
            vault: BTreeMap::new(),
            vaulted: false,
            truth: vec![State::new(ranks); ranks],
            images: BTreeMap::new(),
            losses: 0,
            report: Report::default(),
            messages: 0,
            next_epoch: 1,
            next_node: 0,
            turn: Vec::new(),
            plans: Vec::new(),
            journal: None,
            fate: None,
            dead: false,
            lines: BTreeMap::new(),
            lines_made: 0,
            before: None,
            decided: None,
            faults_left,
            wrong: None,
            over: false,
            trace,
            lanes: BTreeMap::new(),
            agenda: Agenda::default(),
            random,
        };
        let spares = world.random.below(2) as u32;
        for node in 0..nodes + spares {
            world.join(node >= nodes);
        }
        world.begin();
        world.end_turn(None);
        if small || world.random.one_in(2) {
            let planner = world.controller.planner.clone();
            world.journal = Some(Journal::new(&world.controller, planner));
        }
        world.at(200, Event::Schedule);
        let first = 100 + world.random.below(3000);
        world.at(first, Event::Fault);
        if job.drains {
            let first = 100 + world.random.below(3000);
            world.at(first, Event::Drain);
        }
        world
    }

    pub fn ranks(&self) -> u32 {
        self.plan.len() as u32
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
            return Some(Err(String::from("nothing happens any more")));
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
        (self.report.events > MOST_EVENTS).then(|| Err(String::from("hung")))
    }

    /// What is going to happen next.
    pub fn coming(&self) -> Option<&Event> {
        self.agenda.peek()
    }

    pub fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(packet) => self.arrive(packet),
            Event::Step { node, rank, incarnation } => self.step(node, rank, incarnation),
            Event::Stand { node, generation, rank, incarnation, late } => {
                self.stand(node, generation, rank, incarnation, late);
            }
            Event::Written { at, part, generation, image } => {
                self.written(at, part, generation, image);
            }
            Event::Copied { at, part, generation, image } => {
                self.taken(at, part, generation, &image);
            }
            Event::Brought { at, to, rank, generation } => self.brought(at, to, rank, generation),
            Event::Fetched { at, order } => self.fetched(at, order),
            Event::Encoded { at, round, images } => self.encoded(at, round, images),
            Event::Suspect { member } => self.suspect(member),
            Event::Schedule => self.schedule(),
            Event::Fault => self.fault(),
            Event::Join => self.join_late(),
            Event::Drain => self.drain(),
            Event::Call { node } => self.call(node),
            Event::Term => self.term(),
            Event::Rejoined { deaths } if deaths == self.report.controllers => self.rejoined(),
            Event::Rejoined { .. } => {}
        }
    }

    /// Packets of one node to another, or to or from the controller, keep their order.
    pub fn send(&mut self, packet: Packet) {
        let lane = match &packet {
            Packet::ToNode { node, .. } => (None, Some(*node)),
            Packet::FromNode { node, .. } => (Some(*node), None),
            Packet::Peer { from, to, .. } => (Some(from.node), Some(to.node)),
        };
        let slow = if self.random.one_in(30) { 600 } else { 30 };
        let due = self.now + 5 + self.random.below(slow);
        let last = self.lanes.entry(lane).or_default();
        *last = due.max(*last);
        let after = *last - self.now;
        self.at(after, Event::Arrive(packet));
    }

    fn arrive(&mut self, packet: Packet) {
        match packet {
            Packet::ToNode { node, line, frame } => self.frame_for_node(node, line, frame),
            Packet::FromNode { node, line, frame } => self.frame_of_node(node, line, frame),
            Packet::Peer { from, to, channel, said } => self.peer_hears(from, to, channel, said),
        }
    }

    pub fn join(&mut self, spare: bool) {
        let member = Member { node: self.next_node, epoch: self.next_epoch };
        self.next_node += 1;
        self.next_epoch += 1;
        self.trace(|| format!("{member} joins"));
        self.nodes.insert(member.node, Node::new(member, self.plan.len()));
        self.connect(member.node);
        self.joined(member, spare);
    }

    /// Something delicate begins: once in `n` times a fault comes soon.
    pub fn fault_nearby(&mut self, n: u64) {
        if self.faults_left > 0 && self.random.one_in(n) {
            let after = self.random.below(700);
            self.at(after, Event::Fault);
        }
    }

    fn fault(&mut self) {
        if self.faults_left == 0 || self.over {
            return;
        }
        self.faults_left -= 1;
        self.report.faults += 1;
        match self.random.below(if self.journal.is_some() { 12 } else { 8 }) {
            8.. => self.kill_controller(),
            0..=2 => self.kill_rank(),
            3..=4 => self.kill_node(),
            5 => {
                self.kill_node();
                self.kill_node();
            }
            6 => self.damage(),
            _ => {
                self.kill_rank();
                self.kill_node();
            }
        }
        let after = if self.random.one_in(3) { 300 } else { 4000 };
        let after = self.random.below(after);
        self.at(after, Event::Fault);
    }

    fn kill_rank(&mut self) {
        let all = self.processes();
        let Some(victim) = self.random.pick(&all) else { return };
        self.kill_process(victim);
    }

    /// Kills this rank, if it runs.
    pub fn kill_this_rank(&mut self, rank: u32) -> bool {
        let victim = self.processes().into_iter().find(|p| p.1 == rank);
        victim.map(|victim| self.kill_process(victim)).is_some()
    }

    /// Ranks that run: where each is, and its incarnation.
    fn processes(&self) -> Vec<(Member, u32, u32)> {
        let live = |n: &Node| {
            let procs = n.procs.iter().filter(|p| !p.1.done);
            procs.map(|(rank, p)| (n.own, *rank, p.incarnation)).collect::<Vec<_>>()
        };
        self.nodes.values().flat_map(live).collect()
    }

    fn kill_process(&mut self, (at, rank, incarnation): (Member, u32, u32)) {
        self.trace(|| format!("FAULT rank {rank} on {at} dies"));
        if let Some(node) = self.nodes.get_mut(&at.node) {
            node.procs.remove(&rank);
        }
        self.say(at, FromNode::Died { rank, incarnation });
    }

    fn kill_node(&mut self) {
        let all: Vec<Member> = self.nodes.values().map(|n| n.own).collect();
        if let Some(member) = self.random.pick(&all) {
            self.kill_this_node(member);
        }
    }

    /// Kills this node, if it is not the last one.
    pub fn kill_this_node(&mut self, member: Member) -> bool {
        if !self.nodes.contains_key(&member.node) || !self.some_stay(&[member]) {
            return false;
        }
        self.trace(|| format!("FAULT {member} dies"));
        self.nodes.remove(&member.node);
        self.losses += 1;
        self.report.node_deaths += 1;
        let after = 20 + self.random.below(300);
        self.at(after, Event::Suspect { member });
        if !self.random.one_in(4) {
            let after = 500 + self.random.below(3000);
            self.at(after, Event::Join);
        }
        true
    }

    fn damage(&mut self) {
        let of = |n: &Node| n.disk.keys().map(|k| (n.own.node, *k)).collect::<Vec<_>>();
        let all: Vec<_> = self.nodes.values().flat_map(of).collect();
        let Some((node, image)) = self.random.pick(&all) else { return };
        self.trace(|| format!("FAULT image {} of rank {} on {node} is damaged", image.1, image.0));
        self.losses += u64::from(!self.vaulted);
        let stored = self.nodes.get_mut(&node).and_then(|n| n.disk.get_mut(&image));
        stored.into_iter().for_each(|s| s.bad = true);
    }

    /// A message is received: it must be what its sender sent in this course of the job.
    pub fn check_received(&mut self, (src, dst): Channel, position: u64, id: u64) {
        let sent = self.truth[src as usize].sent[dst as usize].get(position as usize).copied();
        if sent != Some(id) {
            self.fail(format!(
                "rank {dst} receives {id} as message {position} of rank {src}, which sent {sent:?}"
            ));
        }
    }

    /// No other process of a rank runs.
    pub fn check_alone(&mut self, rank: u32) {
        if self.nodes.values().any(|n| n.procs.contains_key(&rank)) {
            self.fail(format!("rank {rank} is started while it runs"));
        }
    }

    fn check_end(&self) -> Result<(), String> {
        for src in 0..self.plan.len() {
            for dst in 0..self.plan.len() {
                let sent = &self.truth[src].sent[dst];
                let received = &self.truth[dst].received[src];
                if sent != received || sent.len() != self.plan[src][dst] {
                    return Err(format!("from {src} to {dst}: sent {sent:?}, came {received:?}"));
                }
            }
        }
        Ok(())
    }
}
