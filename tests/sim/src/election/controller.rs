//! A controller: seeks the lead, keeps it, and writes.

use super::store::Ask;
use super::world::{Event, World};
use super::{Mistake, Part, Who};
use crate::election::store::Answer;
use eyrie_protocol::election::{
    Claim, JOURNAL, JournalKeys, LeaderKey, Op, Outcome, Seen, TermWriter,
};
use std::collections::VecDeque;

/// Between two looks at the lease, and two attempts.
const EVERY: u64 = 1_000;
const PAUSE: u64 = 100;
/// A controller that stood still for so long kills itself.
const STOOD_MS: u64 = super::store::LEASE_MS + super::world::CALL_MS;

/// Writes that belong together.
struct Work {
    writes: VecDeque<Vec<Op>>,
    /// So many records are durable then.
    upto: usize,
    ends: bool,
}

/// What a controller has that leads, or is about to.
struct Term {
    token: String,
    hold: LeaderKey,
    pen: TermWriter,
    volume: JournalKeys,
    work: VecDeque<Work>,
    /// All its records, and how many it found.
    records: Vec<u64>,
    ready: bool,
    ending: bool,
    looked: u64,
}

#[derive(Default)]
pub struct Controller {
    pub starts: u32,
    pub alive: bool,
    pub stands_until: u64,
    token: String,
    lease: Option<i64>,
    seen: Seen,
    /// What it read before it led.
    early: Option<(u64, String)>,
    term: Option<Term>,
}

impl Controller {
    pub fn leads(&self) -> bool {
        self.alive && self.term.is_some()
    }
}

impl World {
    fn controller(&mut self, (who, starts): Who) -> Option<&mut Controller> {
        Some(&mut self.controllers[who]).filter(|c| c.alive && c.starts == starts)
    }

    fn term(&mut self, who: Who) -> Option<&mut Term> {
        self.controller(who)?.term.as_mut()
    }

    /// A controller without a lead looks whether there is one to have.
    pub fn seek(&mut self, who: Who) {
        let read_first = self.makes(Mistake::ReadBefore);
        let Some(c) = self.controller(who) else { return };
        let before = read_first && c.early.is_none();
        match &c.term {
            Some(term) if term.ready => {}
            Some(_) => self.ask(who, Part::Seeker, Ask::Read),
            None => self.ask(who, Part::Seeker, if before { Ask::Read } else { Ask::Look }),
        }
    }

    /// What comes back. None: it was waited for long enough.
    pub fn answered(&mut self, who: Who, part: Part, answer: Option<Answer>) {
        if self.controller(who).is_none() {
            return;
        }
        match (part, answer) {
            (Part::Seeker, Some(answer)) => self.sought(who, answer),
            (Part::Seeker, None) => self.stage.at(500, Event::Seek(who)),
            (Part::Lease, Some(answer)) => self.lease_says(who, answer),
            (Part::Lease, None) => self.stage.at(EVERY, Event::Keep(who)),
            (Part::Writer, Some(Answer::Held(held, seen))) => self.wrote(who, held, &seen),
            (Part::Writer, _) => self.stage.at(PAUSE, Event::Write(who)),
        }
    }

    fn sought(&mut self, who: Who, answer: Answer) {
        let read_first = self.makes(Mistake::ReadBefore);
        let Some(c) = self.controller(who) else { return };
        match answer {
            Answer::Seen(_, true) => {}
            Answer::Seen(seen, false) if seen.leader.as_ref() == Some(&c.token) => {
                // Of an attempt whose answer was not heard.
                c.seen = seen;
                self.won(who, false);
            }
            Answer::Seen(seen, false) if seen.leader.is_some() => {
                self.stage.at(500, Event::Seek(who));
            }
            Answer::Seen(seen, false) => {
                c.seen = seen;
                let next = c.lease.map_or(Ask::Grant, Ask::Keep);
                self.ask(who, Part::Seeker, next);
            }
            Answer::Granted(lease) => {
                c.lease = Some(lease);
                self.take(who);
            }
            Answer::Kept(true) => self.take(who),
            Answer::Kept(false) => {
                c.lease = None;
                self.ask(who, Part::Seeker, Ask::Grant);
            }
            Answer::Held(held, seen) => {
                let own = seen.leader.as_ref() == Some(&c.token);
                if !held && !own {
                    return self.stage.at(500, Event::Seek(who));
                }
                c.seen = seen;
                self.won(who, held);
            }
            Answer::Read(found) if read_first && c.term.is_none() => {
                c.early = Some(found.unwrap_or_default());
                self.ask(who, Part::Seeker, Ask::Look);
            }
            Answer::Read(found) => self.found(who, found),
        }
    }

    fn take(&mut self, who: Who) {
        let Some(c) = self.controller(who) else { return };
        let term = c.seen.term.unwrap_or(0) + 1;
        let claim = Claim { token: c.token.clone(), term };
        let (txn, lease) = (claim.take(&c.seen), c.lease.unwrap_or(0));
        self.ask(who, Part::Seeker, Ask::Txn(txn, lease));
    }

    fn won(&mut self, who: Who, sure: bool) {
        let now = self.stage.now;
        let Some(c) = self.controller(who) else { return };
        let claim = Claim { token: c.token.clone(), term: c.seen.term.unwrap_or(0) };
        let term = claim.term;
        c.term = Some(Term {
            token: c.token.clone(),
            hold: LeaderKey::new(claim.clone(), c.lease.unwrap_or(0), sure),
            pen: TermWriter::new(claim),
            volume: JournalKeys::new(0),
            work: VecDeque::new(),
            records: Vec::new(),
            ready: false,
            ending: false,
            looked: now,
        });
        let early = c.early.take();
        self.report.terms += 1;
        self.stage.trace(|| format!("{who:?} has term {term}"));
        self.stage.at(0, Event::Keep(who));
        match early {
            Some(found) => self.found(who, Some(found)),
            None => self.ask(who, Part::Seeker, Ask::Read),
        }
    }

    /// The journal, by which it goes on.
    fn found(&mut self, who: Who, found: Option<(u64, String)>) {
        let leads = self.leader();
        let Some(term) = self.term(who) else { return };
        let leads = leads.as_ref() == Some(&term.token);
        let first = term.pen.write(Vec::new()).if_so[1].value.as_deref() == Some("1.0");
        // One that was deposed meanwhile may find anything: it has no effects.
        if found.is_none() && !first && leads {
            return self.stage.fail(String::from("the journal is damaged, or gone"));
        }
        let (generation, bytes) = found.unwrap_or_default();
        term.volume = JournalKeys::new(generation);
        term.records = bytes.split_terminator(',').filter_map(|r| r.parse().ok()).collect();
        term.ready = true;
        let records = term.records.clone();
        self.stage.trace(|| format!("{who:?} finds {} records", records.len()));
        if leads && !records.starts_with(&self.effects) {
            let why = format!("{who:?} finds {records:?}, effects were {:?}", self.effects);
            return self.stage.fail(why);
        }
        if leads {
            self.found = records;
        }
        self.renew(who);
        self.stage.at(50, Event::Turn(who));
    }

    /// Replaces the journal.
    fn renew(&mut self, who: Who) {
        let in_place = self.makes(Mistake::InPlace);
        let Some(term) = self.term(who) else { return };
        let text: Vec<String> = term.records.iter().map(|r| format!("{r},")).collect();
        let middle = text.len() / 2;
        let parts = [&text[..middle], &text[middle..]].map(|p| p.concat().into_bytes());
        let mut writes = term.volume.renew(parts);
        if in_place {
            let last = writes.pop().unwrap_or_default();
            writes.insert(0, last);
        }
        let upto = term.records.len();
        term.work.push_back(Work { writes: writes.into(), upto, ends: false });
        self.report.renewed += 1;
        self.stage.at(0, Event::Write(who));
    }

    /// The controller decides something.
    pub fn turn(&mut self, who: Who) {
        let (now, early) = (self.stage.now, self.makes(Mistake::EarlyEffects));
        let (chance, record) = (self.random.below(20), self.next_record);
        let ends = now > self.ends_at;
        let Some(term) = self.term(who).filter(|r| r.ready && !r.ending) else { return };
        if ends {
            term.ending = true;
            let upto = term.records.len();
            let work = Work { writes: VecDeque::from([Vec::new()]), upto, ends: true };
            term.work.push_back(work);
            return self.stage.at(0, Event::Write(who));
        }
        if chance == 0 {
            self.renew(who);
        } else {
            term.records.push(record);
            let op = term.volume.append(format!("{record},").into_bytes());
            let (upto, records) = (term.records.len(), term.records.clone());
            let writes = VecDeque::from([vec![op]]);
            term.work.push_back(Work { writes, upto, ends: false });
            self.next_record += 1;
            self.report.records += 1;
            if early {
                self.effect(who, &records);
            }
            self.stage.at(0, Event::Write(who));
        }
        let after = 50 + self.random.below(1_000);
        self.stage.at(after, Event::Turn(who));
    }

    /// The writer's next attempt.
    pub fn write(&mut self, who: Who) {
        if self.is_asking(who, Part::Writer) {
            return;
        }
        let mistake = self.mistake;
        let Some(term) = self.term(who) else { return };
        let Some(work) = term.work.front() else { return };
        let steps = work.writes.front().cloned().unwrap_or_default();
        let mut txn = match work.ends {
            true => term.pen.end(vec![Op::put("ended", "0")], [Op::DeleteAll(JOURNAL.into())]),
            false => term.pen.write(steps),
        };
        match mistake {
            Some(Mistake::Unnumbered) => drop(txn.if_so.pop()),
            Some(Mistake::Unled) => txn.if_so.clear(),
            _ => {}
        }
        let lease = term.hold.lease();
        self.ask(who, Part::Writer, Ask::Txn(txn, lease));
    }

    fn wrote(&mut self, who: Who, held: bool, seen: &Seen) {
        let forgets = self.makes(Mistake::EndForgotten);
        let Some(term) = self.term(who) else { return };
        let Some(work) = term.work.front_mut() else { return };
        match term.pen.judge(held, seen, work.ends && !forgets) {
            Outcome::Done => {
                work.writes.pop_front();
                if work.writes.is_empty() {
                    let (upto, ends) = (work.upto, work.ends);
                    term.work.pop_front();
                    let records = term.records[..upto].to_vec();
                    self.effect(who, &records);
                    self.ended |= ends;
                }
                self.stage.at(0, Event::Write(who));
            }
            Outcome::Lapsed => {
                term.hold.lapsed();
                self.stage.at(PAUSE, Event::Write(who));
            }
            Outcome::Deposed => self.depose(who),
        }
    }

    fn depose(&mut self, who: Who) {
        self.stage.trace(|| format!("{who:?} is deposed"));
        self.report.deposed += 1;
        if self.term(who).is_some_and(|r| r.ending) && self.ender == Some(who) {
            self.stage.fail(format!("{who:?} has ended the job and takes itself for deposed"));
        }
        self.restart(who.0, 500);
    }

    /// Looks after the lease.
    pub fn keep(&mut self, who: Who) {
        let now = self.stage.now;
        let Some(term) = self.term(who) else { return };
        if now > term.looked + STOOD_MS {
            self.stage.trace(|| format!("{who:?} stood still, and ends"));
            return self.restart(who.0, 1_000);
        }
        term.looked = now;
        let lease = term.hold.lease();
        self.ask(who, Part::Lease, Ask::Keep(lease));
    }

    fn lease_says(&mut self, who: Who, answer: Answer) {
        let Some(term) = self.term(who) else { return };
        match answer {
            Answer::Kept(goes_on) => term.hold.kept(goes_on),
            Answer::Granted(lease) => term.hold.granted(lease),
            Answer::Held(held, ref seen) => match term.hold.claimed(held, seen) {
                // The writer hears what became of that.
                Outcome::Deposed if term.ending => {}
                Outcome::Deposed => return self.depose(who),
                Outcome::Done | Outcome::Lapsed => {}
            },
            _ => {}
        }
        let Some(term) = self.term(who) else { return };
        let lease = term.hold.lease();
        if term.hold.is_over() {
            self.report.lapses += 1;
            return self.ask(who, Part::Lease, Ask::Grant);
        }
        match (term.hold.to_claim(), matches!(answer, Answer::Held(..))) {
            (Some(txn), false) => self.ask(who, Part::Lease, Ask::Txn(txn, lease)),
            _ => self.stage.at(EVERY, Event::Keep(who)),
        }
    }

    /// A controller's process ends, and another one seeks the lead.
    pub fn restart(&mut self, who: usize, after: u64) {
        let c = &mut self.controllers[who];
        let starts = c.starts + 1;
        let token = format!("{who}-{starts}");
        *c = Controller { starts, token, alive: true, ..Controller::default() };
        self.stage.at(after, Event::Seek((who, starts)));
    }
}
