//! Members that agree by the real `protocol::consensus` while any number of them die, at any
//! moment: do all that return return with the same, and does nobody wait for ever?
//!
//! Modelled: messages that take their time, in order between two members; a member that dies in the
//! middle of sending, of whose messages on their way some first ones arrive and the rest are lost;
//! news of a death that reaches each member at another time; members that call late.

use crate::random::Random;
use eyrie_protocol::consensus::{Consensus, Members, Message, Mistake, Out, Value};
use std::collections::BTreeMap;

/// What is done wrong on purpose, to show that the checks find it.
pub const MISTAKES: [Mistake; 5] = [
    Mistake::DecidesAtOnce,
    Mistake::ForgetsLocks,
    Mistake::KeepsParent,
    Mistake::ForgetsChildren,
    Mistake::FallsSilent,
];

const MOST_MEMBERS: u64 = 12;
/// Within so much time members call, and die; so long are messages and news on their way at most:
/// each run takes some of these.
const SPANS: [u64; 2] = [60, 300];
const LONGEST_WAYS: [u64; 4] = [4, 12, 40, 120];
const LONGEST_NEWS: [u64; 2] = [4, 40];

/// The least flag, and who gave one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    flag: u64,
    who: u64,
    failed: u64,
}

impl Value for Told {
    fn merge(&mut self, other: &Told) {
        self.flag &= other.flag;
        self.who |= other.who;
        self.failed |= other.failed;
    }

    fn without(&mut self, failed: &Members) {
        self.failed |= failed.words().first().copied().unwrap_or(0);
    }
}

/// What happens.
#[derive(Debug, Clone)]
enum Event {
    Call(u32),
    Death(u32),
    /// The first hears that the second is dead.
    News(u32, u32),
    Arrives {
        from: u32,
        to: u32,
        message: Message<Told>,
    },
}

/// What runs came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub messages: u64,
    pub deaths: u64,
    /// Agreements in which the first member died, and those in which somebody had returned by then.
    pub first_died: u64,
    pub after_return: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.messages += other.messages;
        self.deaths += other.deaths;
        self.first_died += other.first_died;
        self.after_return += other.after_return;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { messages, deaths, first_died, after_return } = self;
        write!(
            f,
            "{messages} messages, {deaths} deaths, of the first member in {first_died} agreements, \
             in {after_return} when somebody had returned"
        )
    }
}

struct World {
    random: Random,
    trace: bool,
    longest_way: u64,
    longest_news: u64,
    members: Vec<Consensus<Told>>,
    flags: Vec<u64>,
    dead: u64,
    /// What is to come, by time and in order.
    agenda: BTreeMap<(u64, u64), Event>,
    count: u64,
    /// When the last message between two is due.
    last: BTreeMap<(u32, u32), u64>,
    /// Whose death interrupts its sending.
    cut_short: Option<u32>,
    returned: Vec<Option<Told>>,
    report: Report,
}

impl World {
    fn new(seed: u64, mistake: Option<Mistake>, trace: bool) -> World {
        let mut random = Random::new(seed ^ 0x6167_7265);
        let size = 1 + random.below(MOST_MEMBERS) as u32;
        let mut one_of = |all: &[u64]| random.pick(all).unwrap_or(1);
        let (span, longest_way) = (one_of(&SPANS), one_of(&LONGEST_WAYS));
        let longest_news = one_of(&LONGEST_NEWS);
        let new = |m| Consensus::new(m, size).with_mistake(mistake);
        let mut world = World {
            members: (0..size).map(new).collect(),
            flags: (0..size).map(|_| random.bits()).collect(),
            trace,
            longest_way,
            longest_news,
            dead: 0,
            agenda: BTreeMap::new(),
            count: 0,
            last: BTreeMap::new(),
            cut_short: None,
            returned: vec![None; size as usize],
            report: Report::default(),
            random,
        };
        for member in 0..size {
            let at = if world.random.one_in(3) { world.random.below(span) } else { 0 };
            world.plan(at, Event::Call(member));
        }
        let deaths = world.random.below(u64::from(size) + 1);
        for _ in 0..deaths {
            // The first ones die most.
            let least =
                world.random.below(u64::from(size)).min(world.random.below(u64::from(size)));
            let at = world.random.below(span);
            world.plan(at, Event::Death(least as u32));
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
            self.happens(now, event)?;
        }
        for member in (0..self.size()).filter(|m| !self.is_dead(*m)) {
            if self.returned[member as usize].is_none() {
                return Err(format!("member {member} waits for ever"));
            }
        }
        Ok(self.report)
    }

    fn happens(&mut self, now: u64, event: Event) -> Result<(), String> {
        match event {
            Event::Call(member) if !self.is_dead(member) => {
                let (flag, who) = (self.flags[member as usize], 1 << member);
                let told = Told { flag, who, failed: 0 };
                let out = self.members[member as usize].contribute(told);
                self.goes_on(now, member, out)
            }
            Event::Death(member) if !self.is_dead(member) => {
                if self.random.one_in(2) {
                    // In the middle of what it sends next.
                    self.cut_short = Some(member);
                    let later = now + 1 + self.random.below(self.longest_way);
                    self.plan(later, Event::Death(member));
                    return Ok(());
                }
                self.dies(now, member);
                Ok(())
            }
            Event::News(member, dead) if !self.is_dead(member) => {
                let out = self.members[member as usize].fail(dead);
                self.goes_on(now, member, out)
            }
            Event::Arrives { from, to, message } if !self.is_dead(to) => {
                self.report.messages += 1;
                let out = self.members[to as usize].hear(from, message);
                self.goes_on(now, to, out)
            }
            _ => Ok(()),
        }
    }

    fn goes_on(&mut self, now: u64, member: u32, mut out: Out<Told>) -> Result<(), String> {
        let dies = self.cut_short == Some(member) && !out.is_empty();
        if dies {
            out.truncate(self.random.below(out.len() as u64 + 1) as usize);
        }
        for (to, message) in out {
            let last = self.last.get(&(member, to)).copied().unwrap_or(0);
            let at = (now + 1 + self.random.below(self.longest_way)).max(last);
            self.last.insert((member, to), at);
            self.plan(at, Event::Arrives { from: member, to, message });
        }
        // It may return before it dies.
        if !dies || self.random.one_in(2) {
            self.check(member)?;
        }
        if dies {
            self.cut_short = None;
            self.dies(now, member);
        }
        Ok(())
    }

    fn dies(&mut self, now: u64, member: u32) {
        self.dead |= 1 << member;
        self.report.deaths += 1;
        if member == 0 {
            self.report.first_died += 1;
            self.report.after_return += u64::from(self.returned.iter().any(Option::is_some));
        }
        for to in 0..self.size() {
            self.cut_off(member, to);
            let news = now + 1 + self.random.below(self.longest_news);
            self.plan(news, Event::News(to, member));
        }
    }

    /// Of what is on its way between two some first messages arrive.
    fn cut_off(&mut self, from: u32, to: u32) {
        let way = |e: &Event| match e {
            Event::Arrives { from: f, to: t, .. } => (*f, *t) == (from, to),
            _ => false,
        };
        let due: Vec<(u64, u64)> =
            self.agenda.iter().filter(|(_, e)| way(e)).map(|(at, _)| *at).collect();
        let kept = self.random.below(due.len() as u64 + 1) as usize;
        due[kept..].iter().for_each(|at| drop(self.agenda.remove(at)));
    }

    /// What a member returns with is what all do, and has what all have given that live.
    fn check(&mut self, member: u32) -> Result<(), String> {
        let Some(decided) = self.members[member as usize].decided().cloned() else { return Ok(()) };
        let seen = &mut self.returned[member as usize];
        if seen.as_ref().is_some_and(|seen| *seen == decided) {
            return Ok(());
        }
        if seen.is_some() {
            return Err(format!("member {member} has decided twice"));
        }
        *seen = Some(decided.clone());
        let other = self.returned.iter().position(|r| r.as_ref().is_some_and(|r| *r != decided));
        if let Some(other) = other {
            return Err(format!("members {member} and {other} return with different decisions"));
        }
        let all = u64::MAX >> (64 - self.size());
        if decided.failed & !self.dead != 0 {
            return Err(format!("member {member} takes somebody for dead who lives"));
        }
        if (decided.who | decided.failed) != all || decided.who & !self.dead != all & !self.dead {
            return Err(format!("member {member} returns without what others have given"));
        }
        let given = (0..self.size()).filter(|m| decided.who >> m & 1 != 0);
        let flag = given.fold(u64::MAX, |flag, m| flag & self.flags[m as usize]);
        if decided.flag != flag {
            return Err(format!("member {member} returns with a flag that nobody has given"));
        }
        Ok(())
    }
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    World::new(seed, mistake, trace).run()
}
