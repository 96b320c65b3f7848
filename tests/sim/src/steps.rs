//! A fault at every step of a run: first nothing is broken, then, at each step and for each party
//! that takes part in it, the run is gone through again with that party gone right before the step,
//! or right after it.
//!
//! A step is a delivery, a write, or a turn of the controller that decides something. Jobs are
//! small, and their controllers always have successors. The same seed up to the same step is the
//! same run, so a fault goes by the step's number: `STEP:WHAT`.

use crate::term::Fate;
use crate::types::*;
use crate::world::{self, Config, World};
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
    /// The controller does not reach a node any more, which goes on for a while.
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

/// Goes through a seed with a fault at every step. Err: which one, if any, and what is wrong then.
pub fn run(config: Config) -> Result<Report, (Option<At>, String)> {
    let mut world = World::new(Config { small: true, trace: false, ..config });
    let (mut report, mut after) = (Report::default(), Vec::new());
    loop {
        let step = world.report.events;
        let before = world.clone();
        let (concerned, torn) = before.faults_at_hand();
        let ended = world.advance();
        let concerned = if world.is_step() { concerned } else { Vec::new() };
        after.extend(concerned.iter().copied());
        after.sort_unstable();
        after.dedup();
        for fault in std::mem::replace(&mut after, concerned) {
            let mut broken = before.clone();
            if !broken.break_now(fault) {
                continue;
            }
            report.runs += 1;
            let one = broken.run().map_err(|why| (Some(At { step, fault }), why))?;
            report.sum.add(&one);
        }
        after.extend(torn);
        match ended {
            Some(Ok(())) => break,
            Some(Err(why)) => return Err((None, why)),
            None => {}
        }
        report.steps += u64::from(!after.is_empty());
    }
    Ok(report)
}

/// One of these runs.
pub fn run_one(config: Config, at: At) -> Result<world::Report, String> {
    let mut world = World::new(Config { small: true, ..config });
    while world.report.events < at.step {
        if let Some(ended) = world.advance() {
            return ended.map(|()| world.report);
        }
    }
    match world.break_now(at.fault) {
        true => world.run(),
        false => Err(format!("there is nothing to break by {at}")),
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
        Packet::ToNode(frame) => match frame.message {
            ToNode::Home { rank, .. }
            | ToNode::Start { rank, .. }
            | ToNode::Copy { rank, .. }
            | ToNode::Checkpoint { rank, .. }
            | ToNode::Pause { rank, .. }
            | ToNode::Resume { rank, .. }
            | ToNode::Trim { rank, .. }
            | ToNode::Kill { rank, .. }
            | ToNode::GoOn { rank } => Some(rank),
            ToNode::Restore(ref order) => Some(order.rank),
            _ => None,
        },
        Packet::FromNode(frame) => match frame.message {
            FromNode::Restored { rank, .. }
            | FromNode::ImageBad { rank, .. }
            | FromNode::Found { rank, .. }
            | FromNode::Unfit { rank, .. }
            | FromNode::Stored { rank, .. }
            | FromNode::NotCopied { rank, .. }
            | FromNode::NoCheckpoint { rank }
            | FromNode::Paused { rank, .. }
            | FromNode::Output { rank, .. } => Some(rank),
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

impl World {
    /// Whether what happened last was a step: what the controller did only if it decided
    /// something.
    fn is_step(&self) -> bool {
        self.decided != Some(false)
    }

    /// What may break right before and right after what comes next; and what only after it.
    fn faults_at_hand(&self) -> (Vec<Fault>, Option<Fault>) {
        let mut all = Vec::new();
        let mut torn = None;
        match self.coming() {
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
        if self.coming().is_some_and(|event| self.is_turn(event)) {
            all.extend(Fate::ALL.map(Fault::Controller));
            if self.controller.planner.leaving().next().is_some() {
                // All of them have their part in that.
                all.extend(self.nodes.keys().map(|m| Fault::Node(m.node)));
            }
        }
        (all, torn)
    }

    /// Who takes part in a delivery, and its connection.
    fn faults_on_the_way(&self, conn: usize, side: usize, all: &mut Vec<Fault>) {
        let c = &self.conns[conn];
        let Some((_, packet)) = c.queues[1 - side].front().filter(|_| c.open[side] && !c.blocked)
        else {
            return;
        };
        let ends = c.ends.map(number);
        all.extend(ends.into_iter().flatten().map(Fault::Node));
        all.extend(rank_in(packet).map(Fault::Rank));
        all.push(Fault::Late(conn));
        match ends {
            [Some(a), Some(b)] => all.extend([Fault::Link(a, b), Fault::Twice(a, b)]),
            [Some(node), None] | [None, Some(node)] => all.push(Fault::CutOff(node)),
            [None, None] => {}
        }
    }

    /// Breaks something. False: it is not there.
    fn break_now(&mut self, fault: Fault) -> bool {
        self.count_anew();
        self.report.faults += 1;
        self.trace(|| format!("FAULT {fault}"));
        let there = |node: u32| self.nodes.keys().copied().find(|m| m.node == node);
        match fault {
            Fault::Rank(rank) => self.kill_this_rank(rank),
            Fault::Node(node) => self.kill_this_node(there(node)),
            Fault::Controller(fate) => {
                self.fate = Some(fate);
                true
            }
            Fault::CutOff(node) => there(node).is_some_and(|m| self.cut_this_off(m)),
            Fault::Link(a, b) => {
                let link = self.link_of(there(a), there(b));
                link.map(|(_, _, conn)| self.cut(conn)).is_some()
            }
            Fault::Twice(a, b) => {
                let link = self.link_of(there(a), there(b));
                link.map(|(a, b, _)| self.connect(a, b)).is_some()
            }
            Fault::Late(conn) => self.hold_up(conn),
            Fault::Torn(node, rank, generation) => {
                let node = there(node).and_then(|at| self.node(at));
                let stored = node.and_then(|n| n.disk.get_mut(&(rank, generation)));
                stored.map(|stored| stored.bad = true).is_some()
            }
        }
    }

    fn link_of(&self, a: Option<Member>, b: Option<Member>) -> Option<(Member, Member, usize)> {
        let (a, b) = (a?, b?);
        let link = self.nodes.get(&a)?.peers.get(&b)?;
        Some((a, b, link.conn))
    }

    fn hold_up(&mut self, conn: usize) -> bool {
        let c = &mut self.conns[conn];
        if c.blocked || c.broken {
            return false;
        }
        c.blocked = true;
        self.at(LATE, Event::Heal { conn });
        true
    }
}
