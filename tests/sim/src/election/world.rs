//! Clock, network, faults and checks of simulated controllers.

use super::controller::Controller;
use super::store::{Answer, Ask, Store};
use super::{Mistake, Part, Report, Who};
use crate::random::Random;
use crate::stage::Stage;
use std::collections::BTreeMap;

/// How long an answer is waited for.
pub const CALL_MS: u64 = 3_000;
/// After that nothing goes wrong any more.
pub const CALM_MS: u64 = 60_000;
const END_MS: u64 = CALM_MS + 90_000;

#[derive(Debug, Clone)]
pub enum Event {
    Seek(Who),
    Keep(Who),
    Write(Who),
    Turn(Who),
    /// An attempt arrives.
    Arrive {
        who: Who,
        number: u64,
        ask: Ask,
    },
    Answer {
        who: Who,
        number: u64,
        answer: Answer,
    },
    TimeOut {
        who: Who,
        number: u64,
    },
    Expire,
    Fault,
}

pub struct World {
    pub stage: Stage<Event>,
    pub random: Random,
    pub mistake: Option<Mistake>,
    store: Store,
    pub controllers: Vec<Controller>,
    /// What is waited for.
    asked: BTreeMap<u64, (Who, Part)>,
    number: u64,
    /// Records whose effects there were, and what the latest leader found.
    pub effects: Vec<u64>,
    pub found: Vec<u64>,
    pub next_record: u64,
    /// A leader knows that the job has ended; who did that.
    pub ended: bool,
    pub ender: Option<Who>,
    /// When the job is to end.
    pub ends_at: u64,
    /// Until when the network of each controller is bad.
    bad_until: Vec<u64>,
    pub report: Report,
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    let mut random = Random::new(seed);
    let count = 1 + random.below(3) as usize;
    let mut world = World {
        stage: Stage::new(trace),
        mistake,
        store: Store::default(),
        controllers: (0..count).map(|_| Controller::default()).collect(),
        asked: BTreeMap::new(),
        number: 0,
        effects: Vec::new(),
        found: Vec::new(),
        next_record: 1,
        ended: false,
        ender: None,
        ends_at: CALM_MS / 2 + random.below(CALM_MS),
        bad_until: vec![0; count],
        report: Report::default(),
        random,
    };
    for who in 0..count {
        world.restart(who, 1 + 300 * who as u64);
    }
    world.stage.at(100, Event::Expire);
    let first = 500 + world.random.below(10_000);
    world.stage.at(first, Event::Fault);
    while let Some(event) = world.stage.next() {
        if world.stage.now > END_MS {
            break;
        }
        world.happen(event);
        if let Some(why) = world.stage.wrong() {
            return Err(why);
        }
        if world.ended && world.stage.now > world.ends_at + 25_000 {
            return Ok(world.report);
        }
    }
    let leads = world.controllers.iter().filter(|c| c.leads()).count();
    match (world.store.is_ended(), world.ender) {
        // It died before it heard of that.
        (true, Some((who, starts))) if world.controllers[who].starts != starts => Ok(world.report),
        (is_ended, _) => Err(format!("hung: ended {is_ended}, {leads} controllers lead")),
    }
}

impl World {
    pub fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    /// The token of who leads.
    pub fn leader(&self) -> Option<String> {
        self.store.seen().leader
    }

    /// What belongs to a controller waits as long as it stands still.
    fn postponed(&mut self, who: Who, event: &Event) -> bool {
        let c = &self.controllers[who.0];
        let left = c.stands_until.saturating_sub(self.stage.now);
        let late = left > 0 && c.starts == who.1;
        if late {
            let after = left + self.random.below(50);
            self.stage.at(after, event.clone());
        }
        late
    }

    fn happen(&mut self, event: Event) {
        match &event {
            Event::Seek(who)
            | Event::Keep(who)
            | Event::Write(who)
            | Event::Turn(who)
            | Event::Answer { who, .. }
            | Event::TimeOut { who, .. }
                if self.postponed(*who, &event) => {}
            Event::Seek(who) => self.seek(*who),
            Event::Keep(who) => self.keep(*who),
            Event::Write(who) => self.write(*who),
            Event::Turn(who) => self.turn(*who),
            Event::Arrive { who, number, ask } => self.arrive(*who, *number, ask.clone()),
            Event::Answer { who, number, answer } => {
                if let Some((_, part)) = self.asked.remove(number) {
                    self.answered(*who, part, Some(answer.clone()));
                }
            }
            Event::TimeOut { who, number } => {
                if let Some((_, part)) = self.asked.remove(number) {
                    self.answered(*who, part, None);
                }
            }
            Event::Expire => {
                let gone = self.store.expire(self.stage.now);
                if gone > 0 {
                    self.stage.trace(|| String::from("a leader's lease is over"));
                }
                self.stage.at(100, Event::Expire);
            }
            Event::Fault => self.fault(),
        }
    }

    pub fn is_asking(&self, who: Who, part: Part) -> bool {
        self.asked.values().any(|a| *a == (who, part))
    }

    /// Sends an attempt to the store: it may be lost, or arrive after it was given up.
    pub fn ask(&mut self, who: Who, part: Part, ask: Ask) {
        self.number += 1;
        let number = self.number;
        self.asked.insert(number, (who, part));
        self.stage.at(CALL_MS, Event::TimeOut { who, number });
        let bad = self.bad_until[who.0] > self.stage.now;
        let after = match self.random.below(8) {
            0 if bad => return,
            1 | 2 if bad => self.random.below(12_000),
            _ => 1 + self.random.below(40),
        };
        self.stage.at(after, Event::Arrive { who, number, ask });
    }

    fn arrive(&mut self, who: Who, number: u64, ask: Ask) {
        let now = self.stage.now;
        let was_ended = self.store.is_ended();
        self.report.late += u64::from(!self.asked.contains_key(&number));
        let answer = self.store.answer(ask, now);
        if !was_ended && self.store.is_ended() {
            self.stage.trace(|| format!("{who:?} has ended the job"));
            self.ender = Some(who);
        }
        let bad = self.bad_until[who.0] > now;
        let Some(answer) = answer.filter(|_| !bad || !self.random.one_in(3)) else { return };
        let after = 1 + self.random.below(40);
        self.stage.at(after, Event::Answer { who, number, answer });
    }

    /// What these records lead to comes about.
    pub fn effect(&mut self, who: Who, records: &[u64]) {
        let one = self.effects.starts_with(records) || records.starts_with(&self.effects);
        let known = self.found.starts_with(records) || records.starts_with(&self.found);
        if !one || !known {
            let why = format!("{who:?} has effects of {records:?}, there are {:?}", self.effects);
            return self.stage.fail(why);
        }
        if records.len() > self.effects.len() {
            self.effects = records.to_vec();
        }
    }

    fn fault(&mut self) {
        let now = self.stage.now;
        if now > CALM_MS {
            return;
        }
        let any = self.random.below(self.controllers.len() as u64) as usize;
        let leader = self.controllers.iter().position(Controller::leads);
        let who = leader.filter(|_| !self.random.one_in(3)).unwrap_or(any);
        match self.random.below(4) {
            0 => {
                self.stage.trace(|| format!("FAULT controller {who} dies"));
                self.report.deaths += 1;
                let after = 300 + self.random.below(8_000);
                self.restart(who, after);
            }
            1 => {
                let until = now + 500 + self.random.below(12_000);
                self.stage.trace(|| format!("FAULT controller {who} stands still until {until}"));
                self.report.stood_still += 1;
                self.controllers[who].stands_until = until;
            }
            _ => {
                let until = now + 1_000 + self.random.below(15_000);
                self.stage.trace(|| format!("FAULT bad network of {who} until {until}"));
                self.bad_until[who] = until;
            }
        }
        let after = 200 + self.random.below(8_000);
        self.stage.at(after, Event::Fault);
    }
}
