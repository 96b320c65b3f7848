//! A controller: waits for a vacancy, leads, and gives the node up.

use super::node::Line;
use super::store::{Answer, Ask};
use super::world::{Said, World};
use super::{Mistake, Site};
use crate::timing::{
    DETECTOR, LEASE, LEASE_MS, LEAST_MS, LEAST_SIGN_MS, REJOINING_MS, TICK_MS, UNLEASED_MS,
};
use eyrie_protocol::failure_detector::{Heartbeat, Side};
use eyrie_protocol::leader_lease::{self, LeaderLease};

/// How long an answer of the store's is waited for.
pub const CALL_MS: u64 = 3_000;
const SEEK_MS: u64 = 500;
const KEEP_MS: u64 = 1_000;
const WRITE_MS: u64 = 100;

/// A question that is under way: its number, and since when.
type Asked = Option<(u64, u64)>;

#[derive(Default)]
pub struct Controller {
    /// It does nothing before; when it looked last, and looks next.
    pub until: u64,
    looked: u64,
    next: u64,
    seeks: Asked,
    pub term: Option<Term>,
}

impl Controller {
    /// One that begins to seek the lead then.
    pub fn new(until: u64) -> Controller {
        Controller { until, ..Controller::default() }
    }
}

/// Of the node.
#[derive(Clone, Copy)]
enum Loss {
    /// It is to be written, once there is something before it to wait for.
    Known,
    /// It is written since then.
    Durable(u64),
}

pub struct Term {
    pub number: u64,
    leader_lease: LeaderLease,
    begun: u64,
    /// From then on it knows where it is to listen, and says so.
    ready: u64,
    announced: bool,
    keeps: Asked,
    next_keep: u64,
    writes: Asked,
    next_write: u64,
    heartbeat: Option<Heartbeat>,
    spoken: u64,
    met: bool,
    loss: Option<Loss>,
    /// How long before its loss the node's last stamp was heard.
    known: Option<u64>,
    done: bool,
}

impl Term {
    fn new(number: u64, lost: bool, asked: u64, now: u64, ready: u64) -> Term {
        let mut leader_lease = LeaderLease::new(&LEASE);
        leader_lease.confirmed(asked, now);
        Term {
            number,
            leader_lease,
            begun: now,
            ready,
            announced: false,
            keeps: None,
            next_keep: now,
            writes: None,
            next_write: now,
            heartbeat: None,
            spoken: 0,
            met: false,
            // What is to be done is written anew.
            loss: lost.then_some(Loss::Known),
            known: None,
            done: false,
        }
    }

    /// A node calls: whether it is taken.
    pub fn greet(&mut self, now: u64) -> bool {
        let takes = self.loss.is_none() && self.heartbeat.is_none();
        if takes {
            (self.heartbeat, self.met) =
                (Some(Heartbeat::new(DETECTOR, Side::Controller, now)), true);
        }
        takes
    }

    pub fn listens(&self, now: u64) -> bool {
        now >= self.ready
    }
}

impl World {
    /// What a controller does at this moment.
    pub fn control(&mut self, who: Site) {
        let now = self.now;
        let c = &mut self.controllers[who];
        if now < c.until.max(c.next) {
            return;
        }
        c.next = now + TICK_MS / 2 + self.random.below(TICK_MS / 2);
        let stood = now - c.looked;
        c.looked = now;
        if c.term.is_some() && stood > LEASE_MS + CALL_MS {
            self.trace(|| format!("controller {who} stood still, and ends"));
            return self.die(who, 500);
        }
        let c = &mut self.controllers[who];
        if c.term.is_none() {
            if c.seeks.is_none_or(|(_, at)| now > at + CALL_MS) {
                let asked = self.ask(who, Ask::Take(who));
                self.controllers[who].seeks = Some((asked, now));
                self.controllers[who].next = now + SEEK_MS;
            }
            return;
        }
        self.look_after(who);
        self.listen(who);
        self.start_elsewhere(who);
    }

    /// Its lease, and what it writes.
    fn look_after(&mut self, who: Site) {
        let now = self.now;
        let Some(r) = &self.controllers[who].term else { return };
        let free = |asked: Asked| asked.is_none_or(|(_, at)| now > at + CALL_MS);
        let (keeps, writes) = (free(r.keeps), free(r.writes));
        let (number, ready) = (r.number, now >= r.ready);
        if keeps && now >= r.next_keep {
            let asked = self.ask(who, Ask::Keep(number));
            let Some(r) = &mut self.controllers[who].term else { return };
            (r.keeps, r.next_keep) = (Some((asked, now)), now + KEEP_MS);
        }
        let Some(r) = &self.controllers[who].term else { return };
        let known = matches!(r.loss, Some(Loss::Known));
        if writes && now >= r.next_write && ready && (!r.announced || known) {
            let what = if r.announced { Ask::Lose(number) } else { Ask::Announce(number) };
            let asked = self.ask(who, what);
            let Some(r) = &mut self.controllers[who].term else { return };
            (r.writes, r.next_write) = (Some((asked, now)), now + WRITE_MS);
        }
    }

    /// The store answers.
    pub fn answer_controller(&mut self, who: Site, number: u64, answer: Answer) {
        let now = self.now;
        let ready = now + self.random.below(4_000);
        let c = &mut self.controllers[who];
        if c.seeks.is_some_and(|(n, _)| n == number) {
            let asked = c.seeks.take().map_or(now, |(_, at)| at);
            if let Answer::Taken(term, lost) = answer {
                c.term = Some(Term::new(term, lost, asked, now, ready));
                c.looked = now;
                self.report.terms += 1;
                self.trace(|| format!("controller {who} has term {term}, ready at {ready}"));
            }
            return;
        }
        let Some(r) = &mut c.term else { return };
        if answer == Answer::Deposed {
            self.trace(|| format!("controller {who} is deposed"));
            return self.die(who, 500);
        }
        if r.keeps.is_some_and(|(n, _)| n == number) {
            let asked = r.keeps.take().map_or(now, |(_, at)| at);
            if answer == Answer::Again {
                r.leader_lease.lapsed();
                self.report.retaken += 1;
            }
            r.leader_lease.confirmed(asked, now);
        } else if r.writes.is_some_and(|(n, _)| n == number) {
            r.writes = None;
            if answer != Answer::Done {
                return;
            }
            if std::mem::replace(&mut r.announced, true) {
                r.loss = Some(Loss::Durable(now));
                self.trace(|| format!("that the node is lost is written by {who}"));
            }
        }
    }

    /// To the node.
    fn listen(&mut self, who: Site) {
        let now = self.now;
        let lies = self.makes(Mistake::SureAlways);
        let hasty = self.makes(Mistake::HastyLoss);
        let Some(r) = &mut self.controllers[who].term else { return };
        if !r.met && r.loss.is_none() && (hasty || now > r.begun + REJOINING_MS) {
            r.loss = Some(Loss::Known);
            return self.trace(|| format!("controller {who} misses the node"));
        }
        let Some(heartbeat) = &mut r.heartbeat else { return };
        let mut over = false;
        while let Some(said) = Line::take(&mut self.lines[who].to_controller, now, &self.cuts[who])
        {
            match said {
                Said::Beat { says, stamp, .. } => {
                    heartbeat.heard(now);
                    heartbeat.told(says, stamp, now);
                }
                Said::End => over = true,
            }
        }
        // Half of them notice at once that a machine gives no sign.
        let gone = self.quick && heartbeat.silent_ms(now) > LEAST_SIGN_MS;
        if over || heartbeat.over(now) || gone {
            r.known = heartbeat.stamped_ms().map(|at| now - at);
            (r.heartbeat, r.loss) = (None, r.loss.or(Some(Loss::Known)));
            self.lines[who].to_node.push_back((now, Said::End));
            return self.trace(|| format!("controller {who} gives the node up"));
        }
        if now >= r.spoken + TICK_MS {
            r.spoken = now;
            let sure = lies || r.leader_lease.holds(now);
            let says = leader_lease::say(heartbeat.says_ms().min(LEAST_MS), sure);
            let said = Said::Beat { says, stamp: heartbeat.stamp_ms(now), term: r.number };
            let due = now + self.random.below(60);
            self.lines[who].to_node.push_back((due, said));
        }
    }

    /// Ranks of the lost node.
    fn start_elsewhere(&mut self, who: Site) {
        let now = self.now;
        let unled = if self.makes(Mistake::HastyStart) { 0 } else { UNLEASED_MS };
        let forgets = self.makes(Mistake::GapForgotten);
        let Some(r) = &mut self.controllers[who].term else { return };
        let Some(Loss::Durable(since)) = r.loss else { return };
        let span = DETECTOR.clear_after(LEAST_MS, r.known) + unled;
        let left = match forgets {
            true => (since + span).saturating_sub(now),
            false => r.leader_lease.left_ms(since, span, now),
        };
        if left > 0 || std::mem::replace(&mut r.done, true) {
            return;
        }
        if self.elsewhere.is_none() {
            self.elsewhere = Some(now);
            self.report.elsewhere += 1;
        }
        self.trace(|| format!("controller {who} starts the ranks elsewhere"));
    }

    /// Its process ends; another one seeks the lead.
    pub fn die(&mut self, who: Site, after: u64) {
        let now = self.now;
        if self.controllers[who].term.as_ref().is_some_and(|r| r.heartbeat.is_some()) {
            self.lines[who].to_node.push_back((now, Said::End));
        }
        self.lines[who].to_controller.clear();
        self.controllers[who] = Controller::new(now + after);
    }
}
