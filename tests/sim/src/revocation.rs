//! Members that revoke by the real `protocol::revocation` while any number of them die, at any
//! moment: if one that lives knows, do all that live?
//!
//! Modelled: messages that take their time; a member that dies in the middle of telling all, or of
//! whose messages on their way some arrive and the rest are lost; news of a death that reaches each
//! member at another time; several that revoke.

use crate::random::Random;
use eyrie_protocol::revocation::{Mistake, Revocation, Tell};
use std::collections::BTreeMap;

/// What is done wrong on purpose, to show that the checks find it.
pub const MISTAKES: [Mistake; 2] = [Mistake::KeepsQuiet, Mistake::TrustsTheDead];

const MOST_MEMBERS: u64 = 12;
/// Within so much time members revoke, and die; so long are messages and news on their way at most:
/// each run takes some of these.
const SPANS: [u64; 3] = [5, 60, 300];
const LONGEST_WAYS: [u64; 3] = [4, 40, 120];
const LONGEST_NEWS: [u64; 2] = [4, 40];

/// What happens.
#[derive(Debug, Clone, Copy)]
enum Event {
    Revokes(u32),
    Death(u32),
    /// The first hears that the second is dead.
    News(u32, u32),
    Arrives {
        from: u32,
        to: u32,
    },
}

/// What runs came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub messages: u64,
    pub deaths: u64,
    /// Members that died in the middle of telling all, and those that told all in their place.
    pub cut_short: u64,
    pub passed_on: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.messages += other.messages;
        self.deaths += other.deaths;
        self.cut_short += other.cut_short;
        self.passed_on += other.passed_on;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { messages, deaths, cut_short, passed_on } = self;
        write!(
            f,
            "{messages} messages, {deaths} deaths, {cut_short} in the middle of telling all, \
             passed on {passed_on} times"
        )
    }
}

struct World {
    random: Random,
    trace: bool,
    longest_way: u64,
    longest_news: u64,
    members: Vec<Revocation>,
    /// By member: who is dead, as it knows.
    heard_of: Vec<u64>,
    dead: u64,
    /// What is to come, by time and in order.
    agenda: BTreeMap<(u64, u64), Event>,
    count: u64,
    /// Die when they tell others next.
    doomed: u64,
    report: Report,
}

impl World {
    fn new(seed: u64, mistake: Option<Mistake>, trace: bool) -> World {
        let mut random = Random::new(seed ^ 0x7265_766f);
        let size = 2 + random.below(MOST_MEMBERS - 1) as u32;
        let mut one_of = |all: &[u64]| random.pick(all).unwrap_or(1);
        let (span, longest_way) = (one_of(&SPANS), one_of(&LONGEST_WAYS));
        let longest_news = one_of(&LONGEST_NEWS);
        let mut world = World {
            members: vec![Revocation::with_mistake(mistake); size as usize],
            heard_of: vec![0; size as usize],
            trace,
            longest_way,
            longest_news,
            dead: 0,
            agenda: BTreeMap::new(),
            count: 0,
            doomed: 0,
            report: Report::default(),
            random,
        };
        for _ in 0..1 + world.random.below(3) {
            let (at, who) = (world.random.below(span), world.random.below(u64::from(size)));
            world.plan(at, Event::Revokes(who as u32));
        }
        for _ in 0..world.random.below(u64::from(size)) {
            let (at, who) = (world.random.below(span), world.random.below(u64::from(size)));
            world.plan(at, Event::Death(who as u32));
        }
        world
    }

    fn size(&self) -> u32 {
        self.members.len() as u32
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.agenda.insert((at, self.count), event);
    }

    fn is_dead(&self, member: u32) -> bool {
        self.dead >> member & 1 != 0
    }

    fn run(mut self) -> Result<Report, String> {
        while let Some(((now, _), event)) = self.agenda.pop_first() {
            if self.trace {
                println!("{now:>5} {event:?}");
            }
            self.happens(now, event);
        }
        let living = || (0..self.size()).filter(|m| !self.is_dead(*m));
        let knows = |m: &u32| self.members[*m as usize].is_known();
        match (living().find(knows), living().find(|m| !knows(m))) {
            (Some(one), Some(other)) => Err(format!("member {one} knows, and {other} never does")),
            _ => Ok(self.report),
        }
    }

    fn happens(&mut self, now: u64, event: Event) {
        match event {
            Event::Revokes(member) if !self.is_dead(member) => {
                let tell = self.members[member as usize].begin();
                self.tells(now, member, tell);
            }
            Event::Death(member) if !self.is_dead(member) => {
                if self.random.one_in(2) {
                    // In the middle of what it sends next.
                    self.doomed |= 1 << member;
                } else {
                    self.dies(now, member);
                }
            }
            Event::News(member, dead) if !self.is_dead(member) => {
                self.heard_of[member as usize] |= 1 << dead;
                let tell = self.members[member as usize].fail(dead);
                self.report.passed_on += u64::from(tell);
                self.tells(now, member, tell);
            }
            Event::Arrives { from, to } if !self.is_dead(to) => {
                self.report.messages += 1;
                let has_failed = self.heard_of[to as usize] >> from & 1 != 0;
                let tell = self.members[to as usize].hear(from, has_failed);
                self.report.passed_on += u64::from(tell);
                self.tells(now, to, tell);
            }
            _ => {}
        }
    }

    fn tells(&mut self, now: u64, member: u32, tell: Tell) {
        if !tell {
            return;
        }
        let is_other = |to: &u32| *to != member && self.heard_of[member as usize] >> to & 1 == 0;
        let mut others: Vec<u32> = (0..self.size()).filter(is_other).collect();
        let dies = self.doomed >> member & 1 != 0;
        if dies {
            others.truncate(self.random.below(others.len() as u64 + 1) as usize);
            self.report.cut_short += 1;
        }
        for to in others {
            let at = now + 1 + self.random.below(self.longest_way);
            self.plan(at, Event::Arrives { from: member, to });
        }
        if dies {
            self.dies(now, member);
        }
    }

    fn dies(&mut self, now: u64, member: u32) {
        self.dead |= 1 << member;
        self.report.deaths += 1;
        for to in 0..self.size() {
            let news = now + 1 + self.random.below(self.longest_news);
            self.plan(news, Event::News(to, member));
        }
        // Of what is on its way from it some is lost.
        let is_its = |e: &Event| matches!(e, Event::Arrives { from, .. } if *from == member);
        let due: Vec<(u64, u64)> =
            self.agenda.iter().filter(|(_, e)| is_its(e)).map(|(at, _)| *at).collect();
        for at in due {
            if self.random.one_in(2) {
                self.agenda.remove(&at);
            }
        }
    }
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    World::new(seed, mistake, trace).run()
}
