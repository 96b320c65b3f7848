//! A fault at every step of a run: first nothing is broken, then, for each step and each party that
//! takes part in it, the run is gone through again with that party gone right before the step, or
//! right after it.
//!
//! A step is a delivery, a write, or a turn of the controller that it writes down. Jobs are small.
//! The same seed up to the same step is the same run, so a fault goes by the step's number:
//! `STEP:WHAT`.

use crate::real::fate::Fate;
use crate::real::host::Simulation;
use crate::real::{Happens, Setup, Told};
use crate::types::*;
use crate::world;
use eyrie_control as control;
use eyrie_protocol::membership::Member;
use std::fmt::{self, Display};
use std::str::FromStr;

/// What is late comes so much later.
const LATE: Time = 1_500;

/// What is broken. Nodes go by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A rank dies.
    Rank(u32),
    /// A node dies.
    Node(u32),
    /// The controller dies in the turn that comes next.
    Controller(Fate),
    /// The connection of a node to the controller breaks; it goes on for a while.
    CutOff(u32),
    /// The connection of two nodes breaks.
    Link(u32, u32),
    /// They connect a second time.
    Twice(u32, u32),
    /// What is on this connection comes late.
    Late(usize),
    /// The copy of an image that a node has of a rank is torn.
    Torn(u32, u32, u32),
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Rank(rank) => write!(f, "rank:{rank}"),
            Fault::Node(node) => write!(f, "node:{node}"),
            Fault::Controller(fate) => write!(f, "controller:{fate:?}"),
            Fault::CutOff(node) => write!(f, "cut-off:{node}"),
            Fault::Link(a, b) => write!(f, "link:{a}:{b}"),
            Fault::Twice(a, b) => write!(f, "twice:{a}:{b}"),
            Fault::Late(conn) => write!(f, "late:{conn}"),
            Fault::Torn(node, rank, image) => write!(f, "torn:{node}:{rank}:{image}"),
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let wrong = || format!("'{text}' is no fault; one is node:1, or controller:Torn");
        let (what, rest) = text.split_once(':').ok_or_else(wrong)?;
        if what == "controller" {
            let fate = Fate::ALL.into_iter().find(|fate| format!("{fate:?}") == rest);
            return fate.map(Fault::Controller).ok_or_else(wrong);
        }
        let numbers: Result<Vec<u32>, _> = rest.split(':').map(str::parse).collect();
        match (what, &numbers.map_err(|_| wrong())?[..]) {
            ("rank", &[rank]) => Ok(Fault::Rank(rank)),
            ("node", &[node]) => Ok(Fault::Node(node)),
            ("cut-off", &[node]) => Ok(Fault::CutOff(node)),
            ("link", &[a, b]) => Ok(Fault::Link(a, b)),
            ("twice", &[a, b]) => Ok(Fault::Twice(a, b)),
            ("late", &[conn]) => Ok(Fault::Late(conn as usize)),
            ("torn", &[node, rank, image]) => Ok(Fault::Torn(node, rank, image)),
            _ => Err(wrong()),
        }
    }
}

/// A fault right before the step that follows so many others.
#[derive(Debug, Clone, Copy)]
pub struct At {
    pub step: u64,
    pub fault: Fault,
}

impl Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.step, self.fault)
    }
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        let (step, fault) = text.split_once(':').unwrap_or((text, ""));
        let step = step.parse().map_err(|_| format!("'{text}' does not begin with a step"))?;
        Ok(At { step, fault: fault.parse()? })
    }
}

/// What all runs of a seed came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub steps: u64,
    pub runs: u64,
    /// With one fault each.
    pub sum: world::Report,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.steps += other.steps;
        self.runs += other.runs;
        self.sum.add(&other.sum);
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps, {} runs with a fault at one: {}", self.steps, self.runs, self.sum)
    }
}

/// All faults of a seed: at each step, what may break right before it and right after it.
///
/// # Errors
/// What is wrong without any.
pub fn faults(setup: Setup) -> Result<Vec<At>, String> {
    let mut run = Simulation::begin(Setup { small: true, trace: false, ..setup })?;
    let (mut all, mut after) = (Vec::new(), Vec::new());
    loop {
        let step = run.world.report.events;
        let (concerned, torn) = run.faults_at_hand();
        let before = run.journal();
        let is_turn = run.is_turn();
        let ended = run.advance();
        // What the controller did is a step only if it decided something.
        let concerned = match is_turn && run.journal() == before {
            true => Vec::new(),
            false => concerned,
        };
        after.extend(concerned.iter().copied());
        after.sort_unstable();
        after.dedup();
        let now = std::mem::replace(&mut after, concerned);
        all.extend(now.into_iter().map(|fault| At { step, fault }));
        after.extend(torn);
        if let Some(ended) = ended {
            return ended.map(|()| all);
        }
    }
}

/// Goes through a seed with a fault at every step; with `most`, at no more than so many, which are
/// spread over the run. Err: which one, if any, and what is wrong then.
pub fn run(setup: Setup, most: Option<usize>) -> Result<Report, (Option<At>, String)> {
    let all = faults(setup).map_err(|why| (None, why))?;
    let every = most.map_or(1, |most| all.len().div_ceil(most.max(1)).max(1));
    let mut report = Report::default();
    let mut steps: Vec<u64> = all.iter().map(|at| at.step).collect();
    steps.dedup();
    report.steps = steps.len() as u64;
    for at in all.into_iter().skip(setup.seed as usize % every).step_by(every) {
        // Else it is not there.
        if let Some(one) = run_with(setup, at).map_err(|why| (Some(at), why))? {
            report.runs += 1;
            report.sum.add(&one);
        }
    }
    Ok(report)
}

/// One of these runs.
///
/// # Errors
/// What is wrong, or that there is nothing to break.
pub fn run_one(setup: Setup, at: At) -> Result<world::Report, String> {
    run_with(setup, at)?.ok_or_else(|| format!("there is nothing to break by {at}"))
}

fn run_with(setup: Setup, at: At) -> Result<Option<world::Report>, String> {
    let mut run = Simulation::begin(Setup { small: true, ..setup })?;
    while run.world.report.events < at.step {
        if let Some(ended) = run.advance() {
            return ended.map(|()| Some(run.world.report));
        }
    }
    match run.break_now(at.fault) {
        true => run.run().map(Some),
        false => Ok(None),
    }
}

fn number(end: Endpoint) -> Option<u32> {
    match end {
        Endpoint::Node(member) => Some(member.node),
        Endpoint::Controller => None,
    }
}

/// The rank that something is about.
fn rank_in(packet: &Packet) -> Option<u32> {
    match packet {
        Packet::ToNode(frame) => rank_ordered(&frame.message),
        Packet::FromNode(frame) => match &frame.message {
            FromNode::Real(told) => rank_told(told),
            _ => None,
        },
        Packet::Peer(said) => match *said {
            PeerMsg::Data { channel, .. } | PeerMsg::Taken { channel, .. } => Some(channel.1),
            PeerMsg::Open { from, .. } => Some(from),
            PeerMsg::Want { rank, .. }
            | PeerMsg::File { rank, .. }
            | PeerMsg::Kept { rank, .. }
            | PeerMsg::Mark { rank, .. }
            | PeerMsg::Marked { rank, .. }
            | PeerMsg::GoOn { rank, .. } => Some(rank),
            _ => None,
        },
    }
}

fn rank_ordered(order: &control::ToNode) -> Option<u32> {
    use control::ToNode as To;
    match order {
        To::Start { rank, .. }
        | To::Find { rank, .. }
        | To::Copy { rank, .. }
        | To::Trim { rank, .. }
        | To::LetGo { rank }
        | To::Yield { rank }
        | To::Pause { rank, .. }
        | To::Resume { rank, .. } => Some(*rank),
        To::Checkpoint(order) => Some(order.rank),
        To::Kill { ranks } => ranks.first().copied(),
        _ => None,
    }
}

fn rank_told(told: &Told) -> Option<u32> {
    use control::FromNode as From;
    match told.said {
        From::Ended { rank, .. }
        | From::Output { rank, .. }
        | From::CheckpointOver { rank, .. }
        | From::Started { rank, .. }
        | From::NotStarted { rank, .. }
        | From::Found { rank, .. }
        | From::Copied { rank, .. }
        | From::Paused { rank, .. } => Some(rank),
        _ => None,
    }
}

impl Simulation {
    /// Whether what comes next is a turn of the controller.
    fn is_turn(&self) -> bool {
        match self.world.coming() {
            Some(Event::Arrive { conn, side } | Event::Closed { conn, side }) => {
                self.is_controllers(*conn, *side)
            }
            Some(Event::Call { .. }) => true,
            Some(Event::Real(what)) => !matches!(what, Happens::Beat | Happens::Perish { .. }),
            _ => false,
        }
    }

    /// What may break right before and right after what comes next; and what only after it.
    fn faults_at_hand(&self) -> (Vec<Fault>, Option<Fault>) {
        let mut all = Vec::new();
        let mut torn = None;
        match self.world.coming() {
            Some(Event::Arrive { conn, side }) => self.faults_on_the_way(*conn, *side, &mut all),
            Some(Event::Written { at, rank, generation, .. }) => {
                all.extend([Fault::Node(at.node), Fault::Rank(*rank)]);
                torn = Some(Fault::Torn(at.node, *rank, *generation));
            }
            Some(Event::Encoded { at, .. } | Event::Unvault { at, .. }) => {
                all.push(Fault::Node(at.node));
            }
            Some(Event::Stand { at, rank, .. } | Event::Suspended { at, rank, .. }) => {
                all.extend([Fault::Node(at.node), Fault::Rank(*rank)]);
            }
            Some(Event::Connect { from, to }) => {
                all.extend([Fault::Node(from.node), Fault::Node(to.node)]);
            }
            _ => {}
        }
        if self.is_turn() {
            all.extend(Fate::ALL.map(Fault::Controller));
            if self.world.controller.planner.leaving().next().is_some() {
                // All of them have their part in that.
                all.extend(self.world.nodes.keys().map(|m| Fault::Node(m.node)));
            }
        }
        (all, torn)
    }

    /// Who takes part in a delivery, and its connection.
    fn faults_on_the_way(&self, conn: usize, side: usize, all: &mut Vec<Fault>) {
        let c = &self.world.conns[conn];
        let Some((_, packet)) = c.queues[1 - side].front().filter(|_| c.open[side] && !c.blocked)
        else {
            return;
        };
        let ends = c.ends.map(number);
        all.extend(ends.into_iter().flatten().map(Fault::Node));
        all.extend(rank_in(packet).map(Fault::Rank));
        match ends {
            [Some(a), Some(b)] => {
                all.extend([Fault::Link(a, b), Fault::Twice(a, b), Fault::Late(conn)]);
            }
            [Some(node), None] | [None, Some(node)] => all.push(Fault::CutOff(node)),
            [None, None] => {}
        }
    }

    /// Breaks something. False: it is not there.
    fn break_now(&mut self, fault: Fault) -> bool {
        self.sync();
        self.world.count_anew();
        self.world.report.faults += 1;
        self.world.trace(|| format!("FAULT {fault}"));
        let there = |node: u32| self.world.nodes.keys().copied().find(|m| m.node == node);
        match fault {
            Fault::Rank(rank) => {
                let lives = |n: &(&Member, &crate::node::Node)| {
                    n.1.procs.get(&rank).is_some_and(|p| !p.done)
                };
                let home = self.world.nodes.iter().find(lives).map(|(at, _)| *at);
                home.map(|at| self.kill_this_rank(at, rank)).is_some()
            }
            Fault::Node(node) => {
                let member = there(node).filter(|_| self.world.nodes.len() > 1);
                member.map(|member| self.kill_this_node(Some(member))).is_some()
            }
            Fault::Controller(fate) => {
                let lives = self.controller.is_some();
                self.fate = Some(fate).filter(|_| lives);
                lives
            }
            Fault::CutOff(node) => there(node).is_some_and(|m| self.lose_this_connection(m)),
            Fault::Link(a, b) => {
                let link = self.link_of(there(a), there(b));
                link.map(|(_, _, conn)| self.world.cut(conn)).is_some()
            }
            Fault::Twice(a, b) => {
                let link = self.link_of(there(a), there(b));
                link.map(|(a, b, _)| self.world.connect(a, b)).is_some()
            }
            Fault::Late(conn) => self.hold_up(conn),
            Fault::Torn(node, rank, generation) => self.tear(there(node), rank, generation),
        }
    }

    fn link_of(&self, a: Option<Member>, b: Option<Member>) -> Option<(Member, Member, usize)> {
        let (a, b) = (a?, b?);
        let link = self.world.nodes.get(&a)?.peers.get(&b)?;
        Some((a, b, link.conn))
    }

    fn hold_up(&mut self, conn: usize) -> bool {
        let c = &mut self.world.conns[conn];
        if c.blocked || c.broken {
            return false;
        }
        c.blocked = true;
        self.world.at(LATE, Event::Heal { conn });
        true
    }

    fn tear(&mut self, at: Option<Member>, rank: u32, generation: u32) -> bool {
        let node = at.and_then(|at| self.world.node(at));
        let Some(stored) = node.and_then(|n| n.disk.get_mut(&(rank, generation))) else {
            return false;
        };
        stored.bad = true;
        self.world.damaged.insert((rank, generation));
        // With it a snapshot may be lost, as with a node.
        self.world.truth.deaths += u64::from(self.world.together);
        true
    }
}
