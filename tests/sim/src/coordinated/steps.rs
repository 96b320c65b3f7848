//! A fault at every step of a small job whose ranks go back together, as in `crate::steps`: each
//! rank or node that takes part dies, as does the controller, right before the step or right after
//! it. A job without faults does not go back: so a rank is killed on the way, and its roll-back is
//! gone through in the same manner.

use super::world::{Job, Report, World};
use super::*;
use crate::steps::{At, Fault};
use crate::term::Fate;
use std::fmt::{self, Display};

/// What all runs of a seed came to.
#[derive(Debug, Clone, Default)]
pub struct Steps {
    pub steps: u64,
    pub runs: u64,
    /// With one fault each.
    pub sum: Report,
}

impl Steps {
    pub fn add(&mut self, other: &Steps) {
        self.steps += other.steps;
        self.runs += other.runs;
        self.sum.add(&other.sum);
    }
}

impl Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} steps, {} runs with a fault at one: {}", self.steps, self.runs, self.sum)
    }
}

/// Goes through a seed with a fault at every step. Err: which one, if any, and what is wrong then.
pub fn run_every_step(job: Job) -> Result<Steps, (Option<At>, String)> {
    let mut world = World::new(Job { small: true, trace: false, ..job });
    let (mut report, mut after) = (Steps::default(), Vec::new());
    loop {
        world.go_back_once();
        let step = world.report.events;
        let before = world.clone();
        let concerned = before.faults_at_hand();
        let ended = world.advance();
        let concerned = if world.decided == Some(false) { Vec::new() } else { concerned };
        after.extend(concerned.iter().copied());
        after.sort_unstable();
        after.dedup();
        report.steps += u64::from(!after.is_empty());
        for fault in std::mem::replace(&mut after, concerned) {
            let mut broken = before.clone();
            if !broken.break_now(fault) {
                continue;
            }
            report.runs += 1;
            let one = broken.run().map_err(|why| (Some(At { step, fault }), why))?;
            report.sum.add(&one);
        }
        match ended {
            Some(Ok(())) => return Ok(report),
            Some(Err(why)) => return Err((None, why)),
            None => {}
        }
    }
}

/// One of these runs.
pub fn run_one(job: Job, at: At) -> Result<Report, String> {
    let mut world = World::new(Job { small: true, ..job });
    loop {
        world.go_back_once();
        if world.report.events >= at.step {
            break;
        }
        if let Some(ended) = world.advance() {
            return ended.map(|()| world.report);
        }
    }
    match world.break_now(at.fault) {
        true => world.run(),
        false => Err(format!("there is nothing to break by {at}")),
    }
}

impl World {
    /// When the first snapshot counts a rank dies, so that all come back from it.
    fn go_back_once(&mut self) {
        if self.report.snapshots == 1 && self.report.faults == 0 && self.kill_this_rank(0) {
            self.report.faults += 1;
        }
    }

    /// What may break right before and right after what comes next.
    fn faults_at_hand(&self) -> Vec<Fault> {
        let mut all = Vec::new();
        match self.coming() {
            Some(Event::Arrive(Packet::ToNode { node, .. } | Packet::FromNode { node, .. })) => {
                all.push(Fault::Node(*node));
            }
            Some(Event::Arrive(Packet::Peer { from, to, .. })) => {
                all.extend([Fault::Node(from.node), Fault::Node(to.node)]);
            }
            Some(Event::Stand { node, rank, .. }) => {
                all.extend([Fault::Node(*node), Fault::Rank(*rank)]);
            }
            Some(Event::Written { at, part, .. } | Event::Copied { at, part, .. }) => {
                let partner = part.partner.iter().map(|m| Fault::Node(m.node));
                all.extend([Fault::Node(at.node), Fault::Rank(part.rank)]);
                all.extend(partner);
            }
            Some(Event::Brought { at, to, .. }) => {
                all.extend([Fault::Node(at.node), Fault::Node(to.node)]);
            }
            Some(Event::Fetched { at, .. } | Event::Encoded { at, .. }) => {
                all.push(Fault::Node(at.node));
            }
            _ => {}
        }
        if self.coming().is_some_and(|event| self.is_turn(event)) {
            all.extend(Fate::ALL.map(Fault::Controller));
            all.extend((0..self.ranks()).map(Fault::Rank));
        }
        all
    }

    /// Breaks something. False: it is not there.
    fn break_now(&mut self, fault: Fault) -> bool {
        self.report.faults += 1;
        self.trace(|| format!("FAULT {fault}"));
        match fault {
            Fault::Rank(rank) => self.kill_this_rank(rank),
            Fault::Node(node) => {
                let member = self.nodes.get(&node).map(|n| n.own);
                member.is_some_and(|member| self.kill_this_node(member))
            }
            Fault::Controller(fate) => {
                self.fate = Some(fate);
                true
            }
            _ => false,
        }
    }
}
