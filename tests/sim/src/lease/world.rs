//! Clock, network, faults and checks.

use super::controller::Controller;
use super::node::{Line, Node};
use super::store::{Answer, Ask, Store};
use super::{CONTROLLERS, Mistake, NODE, Report, SITES, STORE, Site};
use crate::random::Random;
use crate::timing::{ROUND_MS, STOPPING_MS, TICK_MS};
use eyrie_protocol::failure_detector::CLEARING_MS;
use std::collections::VecDeque;

const STEP_MS: u64 = 20;
/// After that nothing goes wrong any more.
const CALM_MS: u64 = 100_000;
const END_MS: u64 = CALM_MS + 70_000;
/// How long a cut lasts at most.
const LONG: [u64; 3] = [4_000, 15_000, 90_000];
/// The node and all others.
const ALONE: [(Site, Site); SITES - 1] = [(NODE, 0), (NODE, 1), (NODE, 2), (NODE, STORE)];

/// What is on its way between a controller and the node.
#[derive(Debug, Clone, Copy)]
pub enum Said {
    Beat { says: u64, stamp: Option<u64>, term: u64 },
    End,
}

/// What is on its way to the store, or from it.
enum Post {
    Ask(Ask),
    Answer(Answer),
}

pub struct World {
    pub now: u64,
    pub random: Random,
    mistake: Option<Mistake>,
    traced: bool,
    pub store: Store,
    pub controllers: Vec<Controller>,
    pub node: Node,
    pub lines: Vec<Line>,
    /// Until when two sites are cut off from each other.
    pub cuts: [[u64; SITES]; SITES],
    /// When it is there, whose it is, its number.
    post: Vec<(u64, Site, u64, Post)>,
    number: u64,
    next_fault: u64,
    /// Faults that make a story, and when each comes.
    story: VecDeque<(u64, u64)>,
    in_story: bool,
    /// Faults are as far apart, at most.
    calm: u64,
    /// The node stood still, with its ranks, and has a moment to see that.
    excused: u64,
    /// A node is given up when its machine gives no sign.
    pub quick: bool,
    /// When ranks of the node were started elsewhere.
    pub elsewhere: Option<u64>,
    pub report: Report,
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let endpoints = 1 + random.below(5);
    let calm = *[3_000, 12_000, 40_000].get(random.below(3) as usize).unwrap_or(&3_000);
    let controllers = (0..CONTROLLERS as u64).map(|at| Controller::new(at * 700)).collect();
    let mut world = World {
        now: 0,
        mistake,
        traced: trace,
        store: Store::default(),
        controllers,
        node: Node::new(endpoints),
        lines: (0..CONTROLLERS).map(|_| Line::default()).collect(),
        cuts: [[0; SITES]; SITES],
        post: Vec::new(),
        number: 0,
        // Until then the node has found the first controller.
        next_fault: 7_000 + random.below(10_000),
        story: VecDeque::new(),
        in_story: false,
        calm,
        excused: 0,
        quick: seed.is_multiple_of(2),
        elsewhere: None,
        report: Report::default(),
        random,
    };
    world.tell();
    while world.now < END_MS {
        world.step()?;
    }
    world.is_well()?;
    Ok(world.report)
}

impl World {
    /// Most of the runs have a story, and some of these nothing else.
    fn tell(&mut self) {
        let mut at = 9_000 + self.random.below(5_000);
        let kinds: &[(u64, u64)] = match self.random.below(6) {
            // A leader and the node on the side of few.
            0 => &[(8, 1)],
            // The node is lost, and the leader loses its lease for a moment.
            1 => &[(7, 12_000), (4, 1)],
            // It is lost, and so are leaders, one after the other.
            2 => &[(7, 6_000), (0, 16_000), (4, 9_000), (4, 1)],
            // The node is cut off from all when it is with a new one.
            3 => &[(9, 40_000), (6, 1)],
            _ => return,
        };
        if self.random.one_in(2) {
            self.next_fault = u64::MAX;
        }
        for (kind, pause) in kinds {
            self.story.push_back((at, *kind));
            at += 100 + self.random.below(*pause);
        }
    }

    pub fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    pub fn trace(&self, line: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>7} {}", self.now, line());
        }
    }

    fn step(&mut self) -> Result<(), String> {
        self.now += STEP_MS;
        let now = self.now;
        self.store.expire(now);
        if now >= self.next_fault && now < CALM_MS {
            self.fault();
        }
        if let Some((_, kind)) = self.story.pop_front_if(|(at, _)| *at <= now) {
            let leader = self.store.leader().and_then(|term| self.store.controller(term));
            self.in_story = true;
            self.bring(kind, leader.unwrap_or(0));
            self.in_story = false;
        }
        self.deliver();
        (0..CONTROLLERS).for_each(|who| self.control(who));
        self.live();
        match self.elsewhere {
            Some(at) if self.node.runs(now) && now > self.excused => {
                Err(format!("the node's ranks run at {now}, and elsewhere since {at}"))
            }
            _ => Ok(()),
        }
    }

    /// Sends a question to the store.
    pub fn ask(&mut self, site: Site, ask: Ask) -> u64 {
        self.number += 1;
        let late = self.now < CALM_MS && self.random.one_in(60);
        let after = if late { self.random.below(8_000) } else { 1 + self.random.below(40) };
        self.post.push((self.now + after, site, self.number, Post::Ask(ask)));
        self.number
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.post).into_iter().partition(|(at, ..)| *at <= now);
        self.post = later;
        for (_, site, number, post) in due {
            if self.cuts[site][STORE] > now {
                continue;
            }
            match post {
                Post::Ask(ask) => {
                    let answer = Post::Answer(self.store.answer(ask, now));
                    let after = 1 + self.random.below(40);
                    self.post.push((now + after, site, number, answer));
                }
                Post::Answer(answer) if site == NODE => self.answer_node(number, answer),
                Post::Answer(_) if self.controllers[site].until > now => {}
                Post::Answer(answer) => self.answer_controller(site, number, answer),
            }
        }
    }

    fn fault(&mut self) {
        let now = self.now;
        let leader = self.store.leader().and_then(|term| self.store.controller(term));
        let any = self.random.below(CONTROLLERS as u64) as usize;
        let who = leader.filter(|_| !self.random.one_in(4)).unwrap_or(any);
        let kind = self.random.below(11);
        self.bring(kind, who);
        self.next_fault = now + 200 + self.random.below(self.calm);
    }

    fn bring(&mut self, kind: u64, who: Site) {
        let now = self.now;
        let left = CALM_MS.saturating_sub(now);
        match kind {
            0 => {
                self.trace(|| format!("FAULT controller {who} dies"));
                self.report.deaths += 1;
                let after = 300 + self.random.below(8_000);
                self.die(who, after);
            }
            1 => {
                let until = now + 300 + self.random.below(14_000);
                self.trace(|| format!("FAULT controller {who} stands still until {until}"));
                self.controllers[who].until = until.max(self.controllers[who].until);
            }
            2 => {
                let until = now + 300 + self.random.below(15_000).min(left);
                self.trace(|| format!("FAULT the node stands still until {until}"));
                self.node.next = until;
                let moment = 2 * TICK_MS + ROUND_MS + STOPPING_MS + CLEARING_MS;
                self.excused = until + moment;
                if self.random.one_in(2) {
                    self.story.push_back((until + 300 + self.random.below(2_000), 6));
                }
            }
            3 => self.cut(&[(NODE, who)], &LONG),
            // For longer than a lease, or about that.
            4 | 5 => self.cut(&[(STORE, who)], &[9_000]),
            6 => self.cut(&ALONE, &LONG),
            // It sees who leads, and reaches nobody.
            7 => self.cut(&ALONE[..CONTROLLERS], &LONG),
            8 => {
                let rest = (0..CONTROLLERS).filter(|c| *c != who).chain([STORE]);
                let apart: Vec<_> = rest.flat_map(|c| [(c, who), (c, NODE)]).collect();
                self.cut(&apart, &LONG);
            }
            9 => self.cut(&[(STORE, who)], &[90_000]),
            _ => {
                // Two sides.
                let side = self.random.bits();
                let is_there = |site: Site| side >> site & 1 == 1;
                let pairs = (0..SITES).flat_map(|a| (0..a).map(move |b| (a, b)));
                let apart: Vec<(Site, Site)> =
                    pairs.filter(|(a, b)| is_there(*a) != is_there(*b)).collect();
                self.cut(&apart, &LONG);
            }
        }
    }

    fn cut(&mut self, pairs: &[(Site, Site)], longest: &[u64]) {
        let long = self.random.pick(longest).unwrap_or(1);
        let least = if self.in_story { long.min(40_000) * 5 / 8 } else { 200 };
        let until = (self.now + least + self.random.below(long - least)).min(CALM_MS);
        self.trace(|| format!("FAULT cut until {until}: {pairs:?}"));
        self.report.cuts += 1;
        for (a, b) in pairs {
            for (a, b) in [(*a, *b), (*b, *a)] {
                self.cuts[a][b] = self.cuts[a][b].max(until);
            }
        }
    }

    /// At the end: somebody leads; the node is with it and computes, or is no more.
    fn is_well(&mut self) -> Result<(), String> {
        let now = self.now;
        let leader = self.store.leader();
        if leader.is_none() {
            return Err(String::from("nobody leads at the end"));
        }
        if self.node.dead.is_some() {
            return Ok(());
        }
        if self.node.is_with() != leader {
            return Err(format!("the node is with {:?}, {leader:?} leads", self.node.is_with()));
        }
        if !self.node.runs(now) {
            return Err(String::from("the ranks of a node stand that is with its controller"));
        }
        Ok(())
    }
}
