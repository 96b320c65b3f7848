//! Nodes behind a gateway, which says of whose machines it has no sign: what the controller makes
//! of that. The gateway's process may be stopped, its machine asleep, or cut off from its nodes,
//! from the controller, or from both; its words may be late, as another connection carries them.

use super::net::{Said, Span, Way};
use super::{Mistake, Report};
use crate::random::Random;
use crate::timing::{DETECTOR, LEAST_SIGN_MS, ROUND_MS};
use eyrie_protocol::failure_detector::{CLEARING_MS, Heartbeat, Side};
use eyrie_protocol::machine::{Company, Machine, Seat, Sign};

const STEP_MS: u64 = 10;
const END_MS: u64 = 70_000;
const BEAT_MS: u64 = 100;
/// An end looks so often, a gateway half as often, and says what it has seen half as often again.
const LOOK_MS: u64 = 50;
const GATE_LOOK_MS: u64 = 100;
const WORD_MS: u64 = 200;
const KILL_MS: u64 = CLEARING_MS / 2;
/// A machine that dies alone is missed by then.
const MISSED_MS: u64 = 1_500;
/// What happened so long ago has nothing to do with a loss.
const LATELY_MS: u64 = 10_000;
/// So long may a gateway be cut off from its nodes, or its machine sleep, without anybody's loss:
/// later TCP sends again so late that it cannot be told.
const SHARED_MS: u64 = 1_300;
const SLEEP_MS: u64 = 600;
/// What a beat may have to go through between two ends at most.
const WAY_MS: u64 = 300;

/// What the gateway's kernel knows of a node's machine.
#[derive(Default)]
struct Known {
    sent: u64,
    arrived: u64,
    acked: u64,
    acks: Vec<(u64, u64)>,
    sign_at: u64,
}

struct Node {
    slow: u64,
    dead_at: u64,
    asleep: Span,
    stopped: Span,
    /// The ways to the gateway, and to the node.
    cut: [Span; 2],
    delay: u64,
    to_gateway: Way,
    to_node: Way,
    /// Beyond the gateway.
    up: Way,
    down: Way,
    known: Known,
    machine: Machine,
    seat: Seat,
    /// The controller's side; none: it has given the node up.
    heartbeat: Option<Heartbeat>,
    /// When the controller's machine got something of it last.
    heard_at: u64,
    elsewhere: Option<u64>,
    own: Heartbeat,
    next_ms: u64,
    spoken_ms: u64,
    ended: Option<u64>,
}

impl Node {
    fn is_up(&self, now: u64) -> bool {
        now < self.dead_at && !self.asleep.has(now)
    }

    fn acts(&self, now: u64) -> bool {
        self.is_up(now) && !self.stopped.has(now) && self.ended.is_none_or(|end| now < end)
    }

    /// Until when it may act without knowing that it stood still.
    fn stood_until(&self, now: u64) -> u64 {
        let over = |span: &Span| if span.until <= now { span.until } else { 0 };
        let until = over(&self.asleep).max(over(&self.stopped));
        until + 2 * LOOK_MS * self.slow + ROUND_MS + KILL_MS
    }

    /// From when on its machine gives no sign any more.
    fn gone_for_good(&self) -> u64 {
        let cut = if self.cut[0].until == u64::MAX { self.cut[0].from } else { u64::MAX };
        self.dead_at.min(cut)
    }

    fn is_troubled(&self, now: u64) -> bool {
        let spans = [self.asleep, self.cut[0], self.cut[1]];
        self.dead_at <= now || spans.iter().any(|s| s.lately(now, LATELY_MS))
    }
}

pub struct World {
    random: Random,
    mistake: Option<Mistake>,
    trace: bool,
    nodes: Vec<Node>,
    company: Company,
    home: (Machine, Seat),
    home_sign_at: u64,
    /// Of the gateway: its process, its machine, its ways to its nodes and to the controller.
    stopped: Span,
    asleep: Span,
    inner: Span,
    outer: Span,
    /// Its words wait on their way.
    mute: Span,
    words: Vec<(u64, Vec<usize>)>,
    gate_looked: u64,
    gate_spoken: u64,
    missed: Vec<usize>,
    /// Of the controller.
    suspended: Span,
    /// When it looked last.
    looked_ms: u64,
    spoken_ms: u64,
    report: Report,
}

impl World {
    pub fn new(seed: u64, mistake: Option<Mistake>, trace: bool) -> World {
        let mut random = Random::new(seed ^ 0x6174_6577);
        let mut company = Company::default();
        let count = 1 + random.below(5);
        let home = (Machine::new(DETECTOR, 0), company.joins());
        let nodes: Vec<Node> =
            (0..count).map(|_| Node::new(&mut random, company.joins())).collect();
        // Words of a node that is there again are told from others by being late.
        let mut cuts = nodes.iter().map(|node: &Node| node.cut[0]);
        let cut = cuts.find(|cut| cut.from < END_MS && cut.until < END_MS);
        let late = cut.map(|cut| Span { until: cut.until + 300 + random.below(3_000), ..cut });
        let late = late.filter(|_| random.one_in(2));
        let mut at_times = |n, least, most| match random.one_in(n) {
            true => Span::some(&mut random, least, most),
            false => Span::NEVER,
        };
        World {
            stopped: at_times(6, 100, 3_500),
            asleep: at_times(8, 100, 3_500),
            inner: at_times(4, 100, 2_500),
            outer: at_times(5, 100, 4_000),
            mute: late.unwrap_or_else(|| at_times(3, 500, 3_500)),
            suspended: at_times(6, 200, 4_000),
            mistake,
            trace,
            nodes,
            company,
            home,
            home_sign_at: 0,
            words: Vec::new(),
            gate_looked: 0,
            gate_spoken: 0,
            missed: Vec::new(),
            looked_ms: 0,
            spoken_ms: 0,
            report: Report::default(),
            random,
        }
    }

    pub fn run(mut self) -> Result<Report, String> {
        self.tell();
        for now in (0..END_MS).step_by(STEP_MS as usize) {
            self.carry(now);
            if !self.stopped.has(now) && !self.asleep.has(now) {
                self.relay(now);
            }
            if !self.suspended.has(now) {
                self.control(now)?;
            }
            for node in 0..self.nodes.len() {
                self.look(node, now)?;
                self.check(node, now)?;
            }
        }
        Ok(self.report)
    }

    fn tell(&self) {
        let World { stopped, asleep, inner, outer, mute, suspended, .. } = self;
        let all = [("stopped", stopped), ("asleep", asleep), ("without its nodes", inner)];
        let more = [("without the controller", outer), ("mute", mute), ("not heeded", suspended)];
        for (what, span) in all.into_iter().chain(more).filter(|s| s.1.from < END_MS) {
            self.trace(0, || format!("gateway {what}: {span:?}"));
        }
        for (number, node) in self.nodes.iter().enumerate() {
            let Node { slow, dead_at, asleep, stopped, cut, .. } = node;
            self.trace(0, || {
                format!(
                    "node {number} behind: {slow} times as slow, dead {dead_at}, asleep \
                     {asleep:?}, stopped {stopped:?}, cut {cut:?}"
                )
            });
        }
    }

    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    fn trace(&self, now: u64, line: impl FnOnce() -> String) {
        if self.trace {
            println!("{now:>7} {}", line());
        }
    }

    /// What comes to machines, and what these acknowledge.
    fn carry(&mut self, now: u64) {
        let awake = !self.asleep.has(now);
        let beyond = awake && !self.outer.has(now);
        for node in &mut self.nodes {
            let up = awake && !self.inner.has(now) && node.is_up(now);
            let [to_gateway, to_node] = [0, 1].map(|way| up && !node.cut[way].has(now));
            let known = &mut node.known;
            known.arrived += node.to_node.carry(now, to_node);
            if known.arrived > known.acked && to_gateway {
                known.acks.push((now + node.delay, known.arrived));
            }
            let came = node.to_gateway.carry(now, to_gateway) > 0;
            let acked = known.acks.iter().filter(|(due, _)| *due <= now).map(|(_, to)| *to).max();
            known.acks.retain(|(due, _)| *due > now);
            if came || acked.is_some_and(|_| awake) {
                known.acked = acked.unwrap_or(0).max(known.acked);
                known.acked = if came { known.arrived } else { known.acked };
                known.sign_at = now;
            }
            if node.up.carry(now, beyond) > 0 {
                (node.heard_at, self.home_sign_at) = (now, now);
            }
            if node.down.carry(now, beyond) > 0 {
                self.home_sign_at = now;
            }
        }
    }

    /// The gateway carries, looks, and says whom it misses.
    fn relay(&mut self, now: u64) {
        for node in &mut self.nodes {
            while let Some(said) = node.to_gateway.there.pop_front() {
                node.up.send(now + node.delay, said);
            }
            while let Some(said) = node.down.there.pop_front() {
                node.to_node.send(now + node.delay, said);
                node.known.sent += 1;
            }
        }
        if now >= self.gate_looked + GATE_LOOK_MS {
            self.gate_looked = now;
            self.see(now);
        }
        if now >= self.gate_spoken + WORD_MS {
            self.gate_spoken = now;
            if !self.missed.is_empty() {
                self.words.push((now + 1 + self.random.below(60), self.missed.clone()));
            }
        }
    }

    fn see(&mut self, now: u64) {
        let alone = self.makes(Mistake::GateIsRight);
        let (machine, seat) = &mut self.home;
        machine.look(Some(Sign { due: true, age_ms: now - self.home_sign_at }), now);
        self.company.looked(seat, machine, now);
        for node in self.nodes.iter_mut().filter(|node| node.heartbeat.is_some()) {
            let (due, age_ms) = (node.known.sent > node.known.acked, now - node.known.sign_at);
            node.machine.look(Some(Sign { due, age_ms }), now);
            self.company.looked(&mut node.seat, &node.machine, now);
        }
        self.missed.clear();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let gone = self.company.looked(&mut node.seat, &node.machine, now);
            let gone = if alone { node.machine.silent_ms() > LEAST_SIGN_MS } else { gone };
            if gone && node.heartbeat.is_some() {
                self.missed.push(number);
            }
        }
    }

    /// The controller hears words, then what nodes say, and speaks.
    fn control(&mut self, now: u64) -> Result<(), String> {
        let open = !self.mute.has(now) && !self.outer.has(now);
        let come = |(due, _): &(u64, Vec<usize>)| open && *due <= now;
        let words: Vec<_> = self.words.extract_if(.., |word| come(word)).collect();
        for number in words.into_iter().flat_map(|(_, missed)| missed) {
            let believes = self.makes(Mistake::WordIsEnough);
            let heartbeat = self.nodes[number].heartbeat.as_ref();
            if heartbeat
                .is_some_and(|heartbeat| believes || DETECTOR.is_missed(heartbeat.silent_ms(now)))
            {
                self.give_up(number, now, true)?;
            }
        }
        for number in 0..self.nodes.len() {
            let node = &mut self.nodes[number];
            let Some(heartbeat) = &mut node.heartbeat else { continue };
            while let Some(said) = node.up.there.pop_front() {
                let Said::Beat { says, stamp } = said else { continue };
                heartbeat.heard(now);
                heartbeat.told(says, stamp, now);
            }
            if heartbeat.over(now) {
                self.give_up(number, now, false)?;
            }
        }
        self.looked_ms = now;
        if now >= self.spoken_ms + BEAT_MS {
            self.spoken_ms = now;
            for node in &mut self.nodes {
                let Some(heartbeat) = &node.heartbeat else { continue };
                let (says, stamp) = (heartbeat.says_ms(), heartbeat.stamp_ms(now));
                node.down.send(now + node.delay, Said::Beat { says, stamp });
                self.report.beats += 1;
            }
        }
        Ok(())
    }

    fn give_up(&mut self, number: usize, now: u64, gone: bool) -> Result<(), String> {
        let at_once = self.makes(Mistake::GoneIsEnded) && gone;
        let watched = self.nodes.iter().filter(|node| node.heartbeat.is_some()).count();
        let node = &mut self.nodes[number];
        let Some(heartbeat) = node.heartbeat.take() else { return Ok(()) };
        self.company.leaves(node.seat);
        let wait = if at_once { 0 } else { heartbeat.clear_ms(now) };
        node.elsewhere = Some(now + wait);
        let node = &self.nodes[number];
        self.trace(now, || format!("node {number} behind is lost, by word: {gone}"));
        if !gone {
            self.report.silent += 1;
            return Ok(());
        }
        self.report.missed += 1;
        // What comes after the controller's last look is not read yet.
        let heard = node.heard_at < self.looked_ms;
        if heard && now < node.heard_at + LEAST_SIGN_MS - WAY_MS {
            return Err(format!("node {number} is heard of, and given up at {now} by a word"));
        }
        let since = node.gone_for_good();
        if since <= now && self.is_alone(number, since) {
            self.report.slowest_missed_ms = self.report.slowest_missed_ms.max(now - since);
        }
        // Of a single one nobody can tell on which side the way to it is cut.
        let shared = |span: &Span, most: u64| span.lately(now, LATELY_MS) && span.long() > most;
        let several = [&self.inner, &self.asleep];
        let several = several.iter().all(|span| span.lately(now, LATELY_MS));
        let excused = watched < 3 && self.inner.lately(now, LATELY_MS)
            || several
            || shared(&self.inner, SHARED_MS)
            || shared(&self.asleep, SLEEP_MS);
        // One that has heard of nobody for too long is lost by its own word.
        match node.is_troubled(now) || node.ended.is_some() || excused {
            true => Ok(()),
            false => Err(format!("node {number} is well, and given up at {now} by a word")),
        }
    }

    /// Whether nothing else is amiss when the machine of a node goes for good.
    fn is_alone(&self, number: usize, since: u64) -> bool {
        let end = since.saturating_add(MISSED_MS);
        let calm = [self.stopped, self.asleep, self.inner, self.outer, self.mute, self.suspended];
        let node = &self.nodes[number];
        let own = [node.asleep, node.stopped, node.cut[1]];
        let own = own.iter().all(|s| s.from >= since || !s.lately(since, LATELY_MS));
        let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != number);
        own && calm.iter().all(|span| !span.lately(end, LATELY_MS))
            && others.all(|(_, other)| !other.is_troubled(end) && other.heartbeat.is_some())
    }

    /// A daemon looks and speaks. Nobody tells it that it was given up.
    fn look(&mut self, number: usize, now: u64) -> Result<(), String> {
        let node = &mut self.nodes[number];
        if node.next_ms > now || !node.acts(now) || node.ended.is_some() {
            return Ok(());
        }
        node.next_ms = now + LOOK_MS * node.slow / 2 + self.random.below(LOOK_MS * node.slow / 2);
        while let Some(said) = node.to_node.there.pop_front() {
            let Said::Beat { says, stamp } = said else { continue };
            node.own.heard(now);
            node.own.told(says, stamp, now);
        }
        if node.own.over(now) {
            node.ended = Some(now + KILL_MS);
            self.report.gave_up += 1;
            if !self.is_parted(number, now) {
                return Err(format!("node {number} gives up at {now} who hears of it"));
            }
        } else if now >= node.spoken_ms + BEAT_MS {
            node.spoken_ms = now;
            let (says, stamp) = (node.own.says_ms(), node.own.stamp_ms(now));
            node.to_gateway.send(now + node.delay, Said::Beat { says, stamp });
        }
        Ok(())
    }

    /// Whether something was in the way when a node was to hear that it is heard of.
    fn is_parted(&self, number: usize, now: u64) -> bool {
        let World { stopped, asleep, inner, outer, suspended, .. } = self;
        let node = &self.nodes[number];
        let own = [&node.asleep, &node.stopped, &node.cut[0], &node.cut[1]];
        let mut all = own.into_iter().chain([stopped, asleep, inner, outer, suspended]);
        let before = node.own.silent_ms(now) + LATELY_MS;
        node.heartbeat.is_none() || all.any(|span| span.lately(now, before))
    }

    fn check(&self, number: usize, now: u64) -> Result<(), String> {
        let node = &self.nodes[number];
        let clear = node.elsewhere.map(|at| at.max(node.stood_until(now)));
        if clear.is_some_and(|at| at < now) && node.acts(now) {
            return Err(format!("node {number} acts at {now}, its ranks run elsewhere, too"));
        }
        let since = node.gone_for_good();
        let late = now > since.saturating_add(MISSED_MS) && node.heartbeat.is_some();
        if late && self.is_alone(number, since) {
            return Err(format!("node {number} is gone since {since}, and not missed at {now}"));
        }
        Ok(())
    }
}

impl Node {
    fn new(random: &mut Random, seat: Seat) -> Node {
        let mut node = Node {
            slow: if random.one_in(4) { 10 } else { 1 },
            dead_at: u64::MAX,
            asleep: Span::NEVER,
            stopped: Span::NEVER,
            cut: [Span::NEVER; 2],
            delay: 1 + random.below(60),
            to_gateway: Way::default(),
            to_node: Way::default(),
            up: Way::default(),
            down: Way::default(),
            known: Known::default(),
            machine: Machine::new(DETECTOR, 0),
            seat,
            heartbeat: Some(Heartbeat::held(DETECTOR, Side::Controller, 0)),
            heard_at: 0,
            elsewhere: None,
            own: Heartbeat::held(DETECTOR, Side::Node, 0),
            next_ms: 0,
            spoken_ms: 0,
            ended: None,
        };
        match random.below(12) {
            0 => node.dead_at = 4_000 + random.below(12_000),
            1 => node.asleep = Span::some(random, 100, 30_000),
            2 => node.stopped = Span::some(random, 100, 30_000),
            3..=5 => {
                let mut span = Span::some(random, 50, 3_000);
                span.until = if random.one_in(3) { u64::MAX } else { span.until };
                let one = random.one_in(3).then(|| random.below(2) as usize);
                (0..2)
                    .filter(|way| one.is_none_or(|one| one == *way))
                    .for_each(|way| node.cut[way] = span);
            }
            _ => {}
        }
        node
    }
}
