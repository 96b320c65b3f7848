//! The ends, and what must hold of them.

use super::net::{Said, Span, Way};
use super::{Mistake, Report};
use crate::random::Random;
use crate::timing::{DETECTOR, ROUND_MS};
use eyrie_protocol::failure_detector::{CLEARING_MS, Disconnected, Heartbeat, Side};
use eyrie_protocol::machine::{Company, Machine, Seat, Sign};

const STEP_MS: u64 = 10;
const END_MS: u64 = 60_000;
const BEAT_MS: u64 = 100;
/// An end looks so often.
const LOOK_MS: u64 = 50;
/// A node that has given up has killed everything in less.
const KILL_MS: u64 = CLEARING_MS / 2;
/// A machine that dies alone is missed by then.
const MISSED_MS: u64 = 1_000;
/// What happened so long ago has nothing to do with a loss.
const LATELY_MS: u64 = 10_000;
/// So long may everybody be cut off from the controller at most, and so long may its machine
/// sleep, without anybody's loss: later TCP sends again so late that it cannot be told.
const SHARED_MS: u64 = 1_300;
const SLEEP_MS: u64 = 600;
/// So long may a daemon be stopped.
const STOPPED_MS: u64 = 1_500;

/// The controller's side of a connection.
struct Line {
    heartbeat: Heartbeat,
    machine: Machine,
    seat: Seat,
    next_ms: u64,
}

struct Node {
    slow: u64,
    dead_at: u64,
    asleep: Span,
    stopped: Span,
    /// The ways to the controller, and to the node.
    cut: [Span; 2],
    delay: u64,
    clock: Clock,
    to_controller: Way,
    to_node: Way,
    /// Beats that were sent to the node, have come there, and are acknowledged.
    sent: u64,
    arrived: u64,
    acked: u64,
    acks: Vec<(u64, u64)>,
    /// When the controller's kernel heard of its machine last.
    sign_at: u64,
    line: Option<Line>,
    /// When its ranks run elsewhere.
    elsewhere: Option<u64>,
    heartbeat: Option<Heartbeat>,
    disconnected: Option<Disconnected>,
    next_ms: u64,
    spoken_ms: u64,
    /// When nothing of it runs any more.
    ended: Option<u64>,
}

/// The clock of an end, and what one that is set shows.
#[derive(Clone, Copy)]
struct Clock {
    began: u64,
    set: Option<(u64, i64)>,
}

impl Clock {
    fn at(&self, now: u64) -> u64 {
        let jump = self.set.filter(|(at, _)| now >= *at).map_or(0, |(_, by)| by);
        (now + self.began).saturating_add_signed(jump)
    }
}

impl Node {
    fn is_up(&self, now: u64) -> bool {
        now < self.dead_at && !self.asleep.has(now)
    }

    /// Its ranks run, and nobody fences them.
    fn acts(&self, now: u64) -> bool {
        self.is_up(now) && !self.stopped.has(now) && self.ended.is_none_or(|end| now < end)
    }

    /// Until when it may act without knowing that it stood still.
    fn stood_until(&self, now: u64) -> u64 {
        let over = |span: &Span| if span.until <= now { span.until } else { 0 };
        let until = over(&self.asleep).max(over(&self.stopped));
        until + 2 * LOOK_MS * self.slow + ROUND_MS + KILL_MS
    }

    /// From when on nothing can come from its machine any more.
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
    clock: Clock,
    /// Of the controller: its process is stopped, its machine asleep, the way to it cut; what it
    /// is to send waits.
    stopped: Span,
    asleep: Span,
    uplink: Span,
    starved: Span,
    spoken_ms: u64,
    report: Report,
}

impl World {
    pub fn new(seed: u64, mistake: Option<Mistake>, trace: bool) -> World {
        let mut random = Random::new(seed);
        let mut company = Company::default();
        let count = 2 + random.below(5);
        let clocks = mistake == Some(Mistake::WallClock);
        let clock = Clock::some(&mut random, clocks);
        let mut line = || Line::new(company.joins(), clock.at(0));
        let lines: Vec<Line> = (0..count).map(|_| line()).collect();
        let nodes = lines.into_iter().map(|line| Node::new(&mut random, line, clocks)).collect();
        let mut at_times = |n, least, most| match random.one_in(n) {
            true => Span::some(&mut random, least, most),
            false => Span::NEVER,
        };
        World {
            stopped: at_times(6, 200, 4_000),
            asleep: at_times(8, 200, 5_000),
            uplink: at_times(4, 100, 2_500),
            starved: at_times(3, 100, 1_500),
            mistake,
            trace,
            nodes,
            company,
            clock,
            spoken_ms: 0,
            report: Report::default(),
            random,
        }
    }

    pub fn run(mut self) -> Result<Report, String> {
        self.tell();
        for now in (0..END_MS).step_by(STEP_MS as usize) {
            self.carry(now);
            if self.runs(now) {
                self.say(now);
                for node in 0..self.nodes.len() {
                    self.watch(node, now)?;
                }
            }
            for node in 0..self.nodes.len() {
                self.look(node, now);
                self.check(node, now)?;
            }
        }
        self.sum_up()
    }

    /// What is going to happen.
    fn tell(&self) {
        let World { stopped, asleep, uplink, starved, .. } = self;
        let all = [("stopped", stopped), ("asleep", asleep), ("cut off", uplink)];
        let all = all.into_iter().chain([("without beats", starved)]).filter(|s| s.1.from < END_MS);
        all.for_each(|(what, span)| self.trace(0, || format!("controller {what}: {span:?}")));
        for (number, node) in self.nodes.iter().enumerate() {
            let Node { slow, dead_at, asleep, stopped, cut, .. } = node;
            self.trace(0, || {
                format!(
                    "node {number}: {slow} times as slow, dead {dead_at}, asleep {asleep:?}, \
                     stopped {stopped:?}, cut {cut:?}"
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

    /// The controller's process runs.
    fn runs(&self, now: u64) -> bool {
        !self.stopped.has(now) && !self.asleep.has(now)
    }

    fn carry(&mut self, now: u64) {
        let shared = !self.asleep.has(now) && !self.uplink.has(now);
        for node in &mut self.nodes {
            let up = shared && node.is_up(now);
            let [to_controller, to_node] = [0, 1].map(|way| up && !node.cut[way].has(now));
            node.arrived += node.to_node.carry(now, to_node);
            if node.arrived > node.acked && to_controller {
                node.acks.push((now + node.delay, node.arrived));
            }
            let came = node.to_controller.carry(now, to_controller) > 0;
            let acked = node.acks.iter().filter(|(due, _)| *due <= now).map(|(_, to)| *to).max();
            node.acks.retain(|(due, _)| *due > now);
            if came || acked.is_some_and(|_| shared) {
                node.acked = acked.unwrap_or(0).max(if came { node.arrived } else { node.acked });
                node.sign_at = now;
            }
        }
    }

    /// The controller's beats.
    fn say(&mut self, now: u64) {
        if self.starved.has(now) || now < self.spoken_ms + BEAT_MS {
            return;
        }
        self.spoken_ms = now;
        for node in &mut self.nodes {
            let Some(line) = &node.line else { continue };
            let (says, stamp) =
                (line.heartbeat.says_ms(), line.heartbeat.stamp_ms(self.clock.at(now)));
            node.to_node.send(now + node.delay, Said::Beat { says, stamp });
            node.sent += 1;
            self.report.beats += 1;
        }
    }

    /// The controller looks whether a node is there.
    fn watch(&mut self, number: usize, now: u64) -> Result<(), String> {
        let (time, mistake) = (self.clock.at(now), self.mistake);
        let node = &mut self.nodes[number];
        let Some(line) = node.line.as_mut().filter(|line| line.next_ms <= now) else {
            return Ok(());
        };
        line.next_ms = now + LOOK_MS + self.random.below(2) * STEP_MS;
        let mut over = false;
        while let Some(said) = node.to_controller.there.pop_front() {
            let Said::Beat { says, stamp } = said else {
                over = true;
                break;
            };
            line.heartbeat.heard(time);
            line.heartbeat.told(says, stamp, time);
        }
        let due = node.sent > node.acked;
        let sign = match mistake {
            Some(Mistake::StoppedIsGone) => {
                Some(Sign { due: true, age_ms: line.heartbeat.silent_ms(time) })
            }
            Some(Mistake::UndueCounts) => Some(Sign { due: true, age_ms: now - node.sign_at }),
            Some(Mistake::SignsUnused) => None,
            _ => Some(Sign { due, age_ms: now - node.sign_at }),
        };
        if line.machine.wants_look(time) {
            line.machine.look(sign, time);
        }
        let mut gone = self.company.looked(&mut line.seat, &line.machine, time);
        if mistake == Some(Mistake::AloneIsRight) || mistake == Some(Mistake::HeardAtOnce) {
            gone = line.machine.silent_ms() > line.machine.limit_ms();
        }
        let silent = line.heartbeat.over(time);
        if mistake == Some(Mistake::HeardAtOnce) {
            let all = || self.nodes.iter().filter_map(|node| node.line.as_ref());
            gone &= 2 * all().filter(|l| l.machine.silent_ms() > 300).count() <= all().count();
        }
        if over || gone || silent { self.give_up(number, now, (over, gone)) } else { Ok(()) }
    }

    fn give_up(
        &mut self,
        number: usize,
        now: u64,
        (over, gone): (bool, bool),
    ) -> Result<(), String> {
        let ended_first = self.makes(Mistake::GoneIsEnded) && gone;
        let node = &mut self.nodes[number];
        let Some(line) = node.line.take() else { return Ok(()) };
        self.company.leaves(line.seat);
        let wait = if ended_first { 0 } else { line.heartbeat.clear_ms(self.clock.at(now)) };
        node.elsewhere = Some(now + wait);
        node.to_node.send(now + node.delay, Said::End);
        let why = match (over, gone) {
            (true, _) => "it has ended",
            (_, true) => "its machine gives no sign",
            _ => "its daemon is silent",
        };
        match (over, gone) {
            (true, _) => self.report.gave_up += 1,
            (_, true) => self.report.gone += 1,
            _ => self.report.silent += 1,
        }
        let since = self.nodes[number].gone_for_good();
        self.trace(now, || format!("node {number} is lost: {why}; elsewhere after {wait} ms"));
        if self.is_alone(number, since) && since <= now {
            self.report.died += 1;
            self.report.slowest_ms = self.report.slowest_ms.max(now - since);
        }
        if over || self.is_excused(number, now) {
            return Ok(());
        }
        Err(format!("node {number} is there, and given up at {now}: {why}"))
    }

    /// Whether what happened lately may have looked like the node's end.
    fn is_excused(&self, number: usize, now: u64) -> bool {
        let node = &self.nodes[number];
        let long = |span: &Span, most: u64| span.lately(now, LATELY_MS) && span.long() > most;
        // One after the other, they are as one that is longer.
        let several = [&node.stopped, &self.uplink, &self.asleep];
        let several = several.iter().filter(|s| s.lately(now, LATELY_MS)).count() > 1;
        node.is_troubled(now)
            || several
            || node.ended.is_some()
            || long(&node.stopped, STOPPED_MS)
            || long(&self.uplink, SHARED_MS)
            || long(&self.asleep, SLEEP_MS)
    }

    /// Whether nothing else is amiss when the machine of a node goes for good.
    fn is_alone(&self, number: usize, since: u64) -> bool {
        let end = since.saturating_add(MISSED_MS);
        let calm = [self.stopped, self.asleep, self.uplink, self.starved];
        let node = &self.nodes[number];
        let own = [node.asleep, node.stopped, node.cut[1]];
        let own = own.iter().all(|s| s.from >= since || !s.lately(since, LATELY_MS));
        let mut others = self.nodes.iter().enumerate().filter(|(other, _)| *other != number);
        own && calm.iter().all(|span| !span.lately(end, LATELY_MS))
            && others.all(|(_, other)| !other.is_troubled(end) && other.line.is_some())
    }

    /// A daemon looks and speaks.
    fn look(&mut self, number: usize, now: u64) {
        let controller = self.runs(now) && !self.uplink.has(now);
        let node = &mut self.nodes[number];
        if node.next_ms > now || !node.acts(now) || node.ended.is_some() {
            return;
        }
        node.next_ms = now + LOOK_MS * node.slow / 2 + self.random.below(LOOK_MS * node.slow / 2);
        let time = node.clock.at(now);
        if let Some(disconnected) = node.disconnected {
            let reaches = controller && node.cut.iter().all(|way| !way.has(now));
            if reaches || disconnected.is_over(time) {
                node.ended = Some(now + KILL_MS);
                self.trace(now, || format!("node {number} ends, it was told: {reaches}"));
            }
            return;
        }
        let Some(heartbeat) = &mut node.heartbeat else { return };
        while let Some(said) = node.to_node.there.pop_front() {
            let Said::Beat { says, stamp } = said else {
                let silent = heartbeat.silent_ms(time);
                let disconnected =
                    Disconnected::new(heartbeat.limit_ms(), time.saturating_sub(silent));
                node.disconnected = Some(disconnected);
                // Its time may be over by then: it looks at that before it calls.
                if disconnected.is_over(time) {
                    node.ended = Some(now + KILL_MS);
                    self.trace(now, || format!("node {number} ends with its connection"));
                }
                return;
            };
            heartbeat.heard(time);
            heartbeat.told(says, stamp, time);
        }
        if heartbeat.over(time) {
            node.ended = Some(now + KILL_MS);
            node.to_controller.send(now + KILL_MS, Said::End);
            self.trace(now, || format!("node {number} gives the controller up"));
        } else if now >= node.spoken_ms + BEAT_MS {
            node.spoken_ms = now;
            let (says, stamp) = (heartbeat.says_ms(), heartbeat.stamp_ms(time));
            node.to_controller.send(now + node.delay, Said::Beat { says, stamp });
            self.report.beats += 1;
        }
    }

    fn check(&self, number: usize, now: u64) -> Result<(), String> {
        let node = &self.nodes[number];
        let clear = node.elsewhere.map(|at| at.max(node.stood_until(now)));
        if clear.is_some_and(|at| at < now) && node.acts(now) {
            return Err(format!("node {number} acts at {now}, its ranks run elsewhere, too"));
        }
        let since = node.gone_for_good();
        let late = now > since.saturating_add(MISSED_MS) && node.line.is_some();
        if late && self.is_alone(number, since) {
            return Err(format!("node {number} is gone since {since}, and not missed at {now}"));
        }
        Ok(())
    }

    fn sum_up(mut self) -> Result<Report, String> {
        for (number, node) in self.nodes.iter().enumerate() {
            let since = node.gone_for_good();
            if since < END_MS && node.line.is_some() {
                return Err(format!("node {number} is gone since {since}, and never missed"));
            }
            let trouble = node.slow > 1 || node.stopped != Span::NEVER || node.is_troubled(END_MS);
            self.report.borne += u64::from(trouble && node.line.is_some());
        }
        Ok(self.report)
    }
}

impl Line {
    fn new(seat: Seat, now: u64) -> Line {
        let (heartbeat, machine) =
            (Heartbeat::new(DETECTOR, Side::Controller, now), Machine::new(DETECTOR, now));
        Line { heartbeat, machine, seat, next_ms: 0 }
    }
}

impl Clock {
    fn some(random: &mut Random, set: bool) -> Clock {
        let (began, at) = (1_000_000 + random.below(1_000_000), 5_000 + random.below(10_000));
        let by = random.below(40_000) as i64 - 20_000;
        Clock { began, set: set.then_some((at, by)) }
    }
}

impl Node {
    fn new(random: &mut Random, line: Line, clocks: bool) -> Node {
        let clock = Clock::some(random, clocks);
        let mut node = Node {
            slow: if random.one_in(4) { 10 } else { 1 },
            dead_at: u64::MAX,
            asleep: Span::NEVER,
            stopped: Span::NEVER,
            cut: [Span::NEVER; 2],
            delay: 1 + random.below(60),
            heartbeat: Some(Heartbeat::new(DETECTOR, Side::Node, clock.at(0))),
            clock,
            to_controller: Way::default(),
            to_node: Way::default(),
            sent: 0,
            arrived: 0,
            acked: 0,
            acks: Vec::new(),
            sign_at: 0,
            line: Some(line),
            elsewhere: None,
            disconnected: None,
            next_ms: 0,
            spoken_ms: 0,
            ended: None,
        };
        match random.below(14) {
            0 => node.dead_at = 4_000 + random.below(12_000),
            1 => node.asleep = Span::some(random, 100, 9_000),
            2 | 3 => node.stopped = Span::some(random, 100, 6_000),
            4 | 5 => {
                let mut span = Span::some(random, 50, 6_000);
                span.until = if random.one_in(2) { u64::MAX } else { span.until };
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
