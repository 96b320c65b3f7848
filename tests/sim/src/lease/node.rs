//! The node: goes with its controller, asks the store, looks for another controller.

use super::store::{Answer, Ask};
use super::world::{Said, World};
use super::{Mistake, NODE, SITES, Site};
use crate::timing::{DETECTOR, LEASE, LEAST_MS, STOPPING_MS, TICK_MS};
use eyrie_protocol::failure_detector::{CLEARING_MS, Heartbeat, Side};
use eyrie_protocol::leader_lease::{self, LeaseWatch, StoreView};
use std::collections::VecDeque;

/// What the store may take to answer, for each of its endpoints.
const CALL_MS: u64 = 1_500;
const CONNECT_MS: u64 = 1_000;
const GREETING_MS: u64 = 2_000;
const EVERY_MS: u64 = 1_000;
const ASKING_MS: u64 = 100;

/// A direction of a connection: what is on its way, and when it is there.
pub type Way = VecDeque<(u64, Said)>;

/// The connection of a controller to the node.
#[derive(Default)]
pub struct Line {
    pub to_node: Way,
    pub to_controller: Way,
}

impl Line {
    /// Takes what has come. `cuts`: until when the one end is cut off from each site.
    pub fn take(way: &mut Way, now: u64, cuts: &[u64; SITES]) -> Option<Said> {
        let due = way.front().is_some_and(|(due, _)| *due <= now) && cuts[NODE] <= now;
        if due { way.pop_front().map(|(_, said)| said) } else { None }
    }
}

/// What the node does without a controller.
#[derive(Clone, Copy)]
enum Call {
    /// It waits for the store, or until then.
    Store(u64),
    /// A controller was called that answers then, if it does; it is waited for until then.
    There(Site, u64, u64),
    Pause(u64),
}

pub struct Node {
    pub led: LeaseWatch,
    /// As it knows it.
    with: u64,
    heartbeat: Option<(Site, Heartbeat)>,
    spoken: u64,
    /// Where the next controller is.
    place: Site,
    call: Option<Call>,
    asked: Option<(u64, u64)>,
    next_ask: u64,
    pub next: u64,
    endpoints: u64,
    /// Since when its ranks are to stand, and when they do.
    stops: Option<(u64, u64)>,
    /// It has ended then.
    pub dead: Option<u64>,
}

impl Node {
    pub fn new(endpoints: u64) -> Node {
        Node {
            led: LeaseWatch::new(LEASE, 0),
            with: 0,
            heartbeat: None,
            spoken: 0,
            place: 0,
            call: Some(Call::Pause(0)),
            asked: None,
            next_ask: 0,
            next: 0,
            endpoints,
            stops: None,
            dead: None,
        }
    }

    pub fn runs(&self, now: u64) -> bool {
        self.dead.is_none_or(|at| now < at) && self.stops.is_none_or(|(_, at)| now < at)
    }

    pub fn is_with(&self) -> Option<u64> {
        self.heartbeat.as_ref().map(|_| self.with)
    }
}

impl World {
    /// What the node does at this moment.
    pub fn live(&mut self) {
        let now = self.now;
        if now < self.node.next || self.node.dead.is_some() {
            return;
        }
        self.node.next = now + TICK_MS / 2 + self.random.below(TICK_MS / 2);
        self.hear();
        self.watch();
        self.drift();
        self.judge();
    }

    fn hear(&mut self) {
        let now = self.now;
        let Some((site, heartbeat)) = &mut self.node.heartbeat else { return };
        let site = *site;
        let mut over = false;
        while let Some(said) = Line::take(&mut self.lines[site].to_node, now, &self.cuts[site]) {
            match said {
                Said::Beat { says, stamp, term } if term == self.node.with => {
                    let (grant, sure) = leader_lease::hear(says);
                    heartbeat.heard(now);
                    heartbeat.told(grant, stamp, now);
                    if let Some(stamp) = stamp.filter(|s| *s <= now) {
                        self.node.led.beaten(stamp, sure);
                    }
                }
                Said::Beat { .. } => {}
                Said::End => over = true,
            }
        }
        over |= heartbeat.over(now);
        if over {
            return self.part();
        }
        if now >= self.node.spoken + TICK_MS {
            self.node.spoken = now;
            let said = Said::Beat { says: LEAST_MS, stamp: heartbeat.stamp_ms(now), term: 0 };
            let due = now + self.random.below(60);
            self.lines[site].to_controller.push_back((due, said));
        }
    }

    fn part(&mut self) {
        let now = self.now;
        let late = !self.makes(Mistake::CountedAnew);
        if let Some((site, heartbeat)) = self.node.heartbeat.take() {
            self.lines[site].to_controller.push_back((now, Said::End));
            self.lines[site].to_node.clear();
            let silent = if late { heartbeat.silent_ms(now) } else { 0 };
            self.node.led.parted(now - silent.min(now), heartbeat.limit_ms(), now);
            self.node.call = Some(Call::Pause(now));
            self.trace(|| String::from("the node has no controller"));
        }
    }

    /// Asks the store who leads.
    fn watch(&mut self) {
        let now = self.now;
        if self.node.led.is_deposed() && self.node.heartbeat.is_some() {
            self.trace(|| String::from("the node leaves a controller that was followed"));
            self.part();
        }
        let limit = CALL_MS * self.node.endpoints;
        if self.node.asked.is_some_and(|(_, at)| now > at + limit) {
            self.node.asked = None;
        }
        let next = self.node.heartbeat.is_none() || now >= self.node.next_ask;
        if self.node.asked.is_none() && next {
            let number = self.ask(NODE, Ask::Look);
            self.node.asked = Some((number, now));
            self.node.next_ask = now + EVERY_MS;
        }
    }

    pub fn answer_node(&mut self, number: u64, answer: Answer) {
        let now = self.now;
        let Some((_, asked)) = self.node.asked.take_if(|(n, _)| *n == number) else { return };
        let Answer::Told(told) = answer else { return };
        if now < self.node.next.saturating_sub(TICK_MS) {
            return;
        }
        if self.makes(Mistake::NewIsHope) && told.announced > Some(self.node.with) {
            self.node.led.answered(asked, StoreView { announced: None, ..told }, now);
        }
        if self.node.led.answered(asked, told, now) || told.announced > Some(self.node.with) {
            let there = told.announced.and_then(|term| self.store.controller(term));
            self.node.place = there.unwrap_or(self.node.place);
        }
        if let Some(Call::Store(_)) = self.node.call {
            self.node.call = Some(Call::Pause(now));
        }
    }

    /// Without a controller: asks, calls, and asks again.
    fn drift(&mut self) {
        let now = self.now;
        let (Some(call), None) = (self.node.call, &self.node.heartbeat) else { return };
        let left = self.node.led.left_ms(now);
        match call {
            Call::Store(until) if now >= until => self.node.call = Some(Call::Pause(now)),
            Call::Pause(until) if now >= until => {
                let place = self.node.place;
                let open = self.cuts[NODE][place] <= now && self.controllers[place].until <= now;
                let limit = now + left.clamp(25, CONNECT_MS);
                let busy = self.random.pick(&[40, 400, 2_500]).unwrap_or(0);
                let due = if open { now + 1 + self.random.below(busy) } else { u64::MAX };
                let limit = if open { now + left.clamp(25, GREETING_MS) } else { limit };
                self.node.call = Some(Call::There(place, due, limit));
            }
            Call::There(place, due, until) => {
                if now >= due && now <= until + TICK_MS {
                    return self.called(place);
                }
                if now > until {
                    let limit = CALL_MS * self.node.endpoints;
                    self.node.call = Some(Call::Store(now + ASKING_MS + limit));
                }
            }
            _ => {}
        }
    }

    /// A controller answers.
    fn called(&mut self, place: Site) {
        let now = self.now;
        self.node.call = Some(Call::Store(now + ASKING_MS + CALL_MS * self.node.endpoints));
        let Some(r) = &mut self.controllers[place].term else { return };
        if !r.listens(now) || self.cuts[NODE][place] > now {
            return;
        }
        let number = r.number;
        if number < self.node.with {
            return;
        }
        if !r.greet(now) {
            self.trace(|| String::from("the node is told to end"));
            self.node.dead = Some(now + CLEARING_MS / 2);
            return;
        }
        self.lines[place] = Line::default();
        if !self.node.led.met(number, now) {
            // It hangs up.
            return self.lines[place].to_controller.push_back((now, Said::End));
        }
        self.report.followed += u64::from(number != self.node.with && self.node.with > 0);
        (self.node.with, self.node.call) = (number, None);
        self.node.heartbeat = Some((place, Heartbeat::new(DETECTOR, Side::Node, now)));
        self.trace(|| format!("the node is with controller {place}, term {number}"));
    }

    /// Whether its ranks are to stand, or all is to end.
    fn judge(&mut self) {
        let now = self.now;
        let busy = !matches!(self.node.call, Some(Call::Pause(_)) | None);
        if self.makes(Mistake::LooksBetween) && self.node.heartbeat.is_none() && busy {
            return;
        }
        let lost = self.node.led.is_lost(now);
        if lost {
            self.report.ended += 1;
            self.trace(|| String::from("the node ends"));
            self.node.dead = Some(now + CLEARING_MS / 2 + self.random.below(STOPPING_MS));
            return;
        }
        let stands = self.node.led.stands(now) && !self.makes(Mistake::NeverStands);
        match self.node.stops {
            None if stands => {
                let slow = if self.random.one_in(4) { STOPPING_MS + 500 } else { 200 };
                self.node.stops = Some((now, now + self.random.below(slow)));
                self.report.stood += 1;
                self.trace(|| String::from("ranks are to stand"));
            }
            Some((_, at)) if !stands && now >= at => {
                self.node.stops = None;
                self.report.went_on += 1;
                self.trace(|| String::from("ranks go on"));
            }
            _ => {}
        }
    }
}
