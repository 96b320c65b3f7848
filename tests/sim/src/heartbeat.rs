//! The controller, one node, and the connection between them, around the real
//! `protocol::failure_detector`: when does each give the other up, and has the node ended before
//! its ranks run elsewhere?
//!
//! Modelled: clocks that both ends look at in their own time, as they are slow or stand still;
//! beats that take their time, are held up, or come ever later, in one direction or in both; the
//! end of the connection behind them. A node stands still with its ranks; when it goes on they may
//! run for the moment that it takes to see that. Both ends may stand still together, as on one
//! machine, and nothing else happen: then nobody is lost. The controller's process may die: its
//! machine answers then, until the next one listens, which gives the node time to call. Some nodes
//! reach the controller through a gateway only, which may die, with its machine or not, and comes
//! back. A node that was declared lost meanwhile may be greeted, and not hear that it is to go.

use crate::random::Random;
use crate::timing::{DETECTOR, HELD_MS, LEAST_MS, REJOINING_MS, ROUND_MS};
use eyrie_protocol::failure_detector::{CLEARING_MS, Disconnected, Heartbeat, Side};
use std::collections::VecDeque;

/// An end looks so often.
const LOOK_MS: u64 = 50;
/// Beats are as far apart, at least.
const BEAT_MS: u64 = 100;
/// A node that has given up has killed everything in less.
const KILL_MS: u64 = CLEARING_MS / 2;
/// No run is as long.
const NEVER_MS: u64 = 1_000_000;
/// Both ends may stand still together for about so long, as their machine does: nobody is lost.
const PAUSE_MS: u64 = 2_400;
/// How long a node waits for a machine to answer, at most; by mistake for a greeting.
const CALL_MS: u64 = 1_000;
const GREETING_MS: u64 = 20_000;

/// What is done wrong on purpose, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A node bears what it is used to, which it does not say.
    OwnHabit,
    /// The controller counts with what it grants now.
    GrantForgotten,
    /// Time in which a node stood still hardly counts.
    StoodStill,
    /// When the connection ends, the node's time begins anew.
    CountedAnew,
    /// A node's time begins anew with each beat that comes, however late it is.
    LateBeats,
    /// A new controller does not know what the last one granted.
    HastySuccessor,
    /// A controller that takes a call may take its time to say whether it wants the node.
    SlowGreeting,
    /// A node behind a gateway takes that one's answer for a sign of the controller's machine.
    GatewayAnswers,
    /// The controller counts on the end of a node behind a gateway as if it had granted it nothing.
    HoldUngranted,
    /// A node whose connection ends is lost, also if it was its gateway's death.
    NotHeld,
    /// The time of a node behind a gateway begins anew with a greeting.
    GreetingRenews,
}

impl Mistake {
    pub const ALL: [Mistake; 11] = [
        Mistake::OwnHabit,
        Mistake::GrantForgotten,
        Mistake::StoodStill,
        Mistake::CountedAnew,
        Mistake::LateBeats,
        Mistake::HastySuccessor,
        Mistake::SlowGreeting,
        Mistake::GatewayAnswers,
        Mistake::HoldUngranted,
        Mistake::NotHeld,
        Mistake::GreetingRenews,
    ];
}

/// What runs came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub beats: u64,
    pub declared: u64,
    pub gave_up: u64,
    pub told: u64,
    /// Nodes that were with a second controller, and that it missed.
    pub back: u64,
    pub missed: u64,
    /// Runs in which an end was slow or stood still, and nobody was lost.
    pub slow: u64,
    /// Nodes that were awaited when a gateway had died, and that came back through the next.
    pub held: u64,
    pub returned: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.beats += other.beats;
        self.declared += other.declared;
        self.gave_up += other.gave_up;
        self.told += other.told;
        self.back += other.back;
        self.missed += other.missed;
        self.slow += other.slow;
        self.held += other.held;
        self.returned += other.returned;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { beats, declared, gave_up, told, back, missed, slow, held, returned } = self;
        write!(
            f,
            "{beats} beats, {declared} nodes declared lost, {gave_up} gave up by themselves, \
             {told} were told, {back} came to a second controller, {missed} were missed by it, \
             {slow} runs with slow ends and no loss; {held} awaited for a gateway's death, \
             {returned} came back through another"
        )
    }
}

/// What is on its way.
#[derive(Debug, Clone, Copy)]
enum Said {
    Beat {
        says: u64,
        stamp: Option<u64>,
    },
    /// The controller takes the node that called.
    Greeting,
    /// It does not.
    Dismissed,
    /// Nobody listens.
    Refused,
    End,
}

/// A direction: what is on its way, and when it was said.
struct Way {
    comes: VecDeque<(u64, Said)>,
    /// Nothing comes before.
    held_up_ms: u64,
    /// From when on everything is late, and by how many times what has passed since.
    late: (u64, u64),
}

impl Way {
    fn new() -> Way {
        Way { comes: VecDeque::new(), held_up_ms: 0, late: (u64::MAX, 0) }
    }

    /// Takes what has come.
    fn take(&mut self, now: u64, delay: u64) -> Option<Said> {
        let (sent, said) = self.comes.front().copied()?;
        let due = sent + delay + sent.saturating_sub(self.late.0) * self.late.1;
        if now < self.held_up_ms || now < due {
            return None;
        }
        self.comes.pop_front();
        Some(said)
    }

    fn is_open(&self, now: u64) -> bool {
        now >= self.held_up_ms && now < self.late.0
    }
}

/// The gateway that a node reaches its controller through.
#[derive(Debug, Clone, Copy)]
struct Gateway {
    dies_at: u64,
    /// When the next one is there, and has told the node.
    back_at: u64,
    /// With its machine: nobody tells either end before that.
    mute: bool,
}

impl Gateway {
    fn random(random: &mut Random) -> Gateway {
        let dies_at = 2_000 + random.below(40_000);
        let most = random.pick(&[1_000, 8_000, 30_000, 60_000]).unwrap_or(0);
        Gateway { dies_at, back_at: dies_at + 100 + random.below(most), mute: random.one_in(3) }
    }

    fn is_gone(&self, now: u64) -> bool {
        (self.dies_at..self.back_at).contains(&now)
    }

    /// Whether nodes can be expected to be back in time.
    fn is_prompt(&self) -> bool {
        self.back_at - self.dies_at < HELD_MS / 2
    }
}

/// One end.
struct HeartbeatEnd {
    /// None: there is no connection.
    heartbeat: Option<Heartbeat>,
    /// When it looks and speaks next.
    next_ms: u64,
    spoken_ms: u64,
    /// To it.
    way: Way,
}

impl HeartbeatEnd {
    fn new(heartbeat: Heartbeat) -> HeartbeatEnd {
        HeartbeatEnd { heartbeat: Some(heartbeat), next_ms: 0, spoken_ms: 0, way: Way::new() }
    }
}

fn heartbeat(side: Side, behind: bool, now: u64) -> Heartbeat {
    if behind { Heartbeat::held(DETECTOR, side, now) } else { Heartbeat::new(DETECTOR, side, now) }
}

/// A call that is under way: when it was begun, and until when it waits.
type Call = (u64, u64);

/// When a process that looks every so often, and may stand still, looks next.
fn next_look(random: &mut Random, now: u64, slow: u64, stands: bool) -> u64 {
    let long = if stands && random.one_in(150) { random.below(9_000) } else { 0 };
    now + LOOK_MS * slow / 2 + random.below(LOOK_MS * slow / 2 + 1) + long
}

/// When both ends stand still together. Drawn apart: it changes nothing else of the run.
fn pause(seed: u64) -> (u64, u64) {
    let mut random = Random::new(!seed);
    let at = (3_000 + random.below(60_000)) / 10 * 10;
    (at, at + PAUSE_MS - 500 + random.below(1_000))
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    let mut world = World::new(seed, mistake, trace);
    for now in (0..150_000u64).step_by(10) {
        world.disturb(now);
        world.succeed(now);
        world.pass(now);
        world.look(0, now);
        world.look(1, now);
        if world.is_over(now)? {
            return Ok(world.report);
        }
    }
    world.report.slow += u64::from(world.slow[1] > 1 || world.stands[1]);
    Ok(world.report)
}

struct World {
    random: Random,
    mistake: Option<Mistake>,
    trace: bool,
    ends: [HeartbeatEnd; 2],
    /// An end that is ten times as slow, ends that stand still at times.
    slow: [u64; 2],
    stands: [bool; 2],
    /// When the connection is cut, and from when on the node hears nothing.
    cut_at: u64,
    deaf_at: u64,
    /// When one end gets used to a long silence just before, and which of the two.
    hiccup_at: u64,
    used: usize,
    /// From when on, and until when, both ends stand still in a run in which nothing else happens.
    pause: Option<(u64, u64)>,
    /// How often something is held up.
    hiccups: u64,
    delay: u64,
    is_cut: bool,
    /// What the node may have been granted at most, as the journal has it, and is going to.
    granted: u64,
    written: u64,
    /// When the controller's process dies, the next one listens, and it waits no longer.
    dies_at: u64,
    listens_at: u64,
    waits_until: u64,
    /// The node is behind one; until when the controller awaits it then.
    gateway: Option<Gateway>,
    hold_until: Option<u64>,
    /// When the controller heard the last stamp of such a node, on a connection that is over; the
    /// last one of which the node knows that it was heard.
    stamped: Option<u64>,
    sign: u64,
    /// The node has no connection.
    disconnected: Option<(Disconnected, Option<Call>)>,
    /// The end came late, or a call was held up, or took its time to be answered.
    rough: bool,
    /// Until when the ranks of the node do nothing, and a moment.
    stood_until: u64,
    /// When the ranks of the node run elsewhere, and when it has ended.
    lost: Option<u64>,
    dead: Option<u64>,
    report: Report,
}

impl World {
    fn new(seed: u64, mistake: Option<Mistake>, trace: bool) -> World {
        let mut random = Random::new(seed);
        let slow = [1, if random.one_in(3) { 10 } else { 1 }];
        let stands = [random.one_in(3), random.one_in(3)];
        let cut_at = if random.one_in(4) { u64::MAX } else { 2_000 + random.below(60_000) };
        let deaf = random.one_in(3).then(|| cut_at - random.below(8_000).min(cut_at));
        let deaf_at = deaf.unwrap_or(u64::MAX);
        let before = 1_950 + random.below(2_500);
        let dies_at = match random.below(5) {
            0 => 2_000 + random.below(60_000),
            1 | 2 if cut_at < u64::MAX => (cut_at + 2_000).saturating_sub(random.below(5_000)),
            _ => u64::MAX - 100_000,
        };
        let listens_at = dies_at + 50 + random.below(3_000);
        let (hiccups, delay) = (random.below(4), 1 + random.below(60));
        let used = random.below(2) as usize;
        let gateway = random.one_in(3).then(|| Gateway::random(&mut random));
        let behind = gateway.is_some();
        let granted = if behind { HELD_MS } else { LEAST_MS };
        let calm = slow == [1; 2] && stands == [false; 2] && cut_at == u64::MAX && !behind;
        let pause = (calm && dies_at > NEVER_MS).then(|| pause(seed));
        let hiccups = if pause.is_some() { 0 } else { hiccups };
        World {
            mistake,
            trace,
            ends: [Side::Controller, Side::Node]
                .map(|side| HeartbeatEnd::new(heartbeat(side, behind, 0))),
            slow,
            stands,
            cut_at,
            deaf_at,
            hiccup_at: cut_at.min(deaf_at).saturating_sub(before) / 10 * 10,
            used,
            pause,
            hiccups,
            delay,
            is_cut: false,
            granted,
            written: granted,
            gateway,
            hold_until: None,
            stamped: None,
            sign: 0,
            dies_at,
            listens_at,
            waits_until: listens_at + REJOINING_MS,
            disconnected: None,
            rough: false,
            stood_until: 0,
            lost: None,
            dead: None,
            report: Report::default(),
            random,
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

    fn disturb(&mut self, now: u64) {
        let quiet = now.abs_diff(self.hiccup_at) > 8_000;
        if now.is_multiple_of(5_000) && quiet && self.random.below(12) < self.hiccups {
            let side = self.random.below(2) as usize;
            self.ends[side].way.held_up_ms = now + self.random.below(1_900);
        }
        if now == self.hiccup_at {
            let until = now + 1_600 + self.random.below(300);
            if self.used == 1 {
                self.ends[1].way.held_up_ms = until;
            } else {
                self.stand_still(until.max(self.ends[1].next_ms));
            }
        }
        if let Some((at, until)) = self.pause
            && now == at
        {
            self.trace(now, || format!("both ends stand still until {until}"));
            self.ends[0].next_ms = until;
            self.stand_still(until);
        }
        if now >= self.deaf_at && !self.is_cut {
            self.ends[1].way.held_up_ms = now + 10;
        }
        if now >= self.cut_at && !self.is_cut {
            self.cut(now);
        }
    }

    fn cut(&mut self, now: u64) {
        self.is_cut = true;
        let long = self.random.one_in(2);
        let until = now + if long { 200_000 } else { self.random.below(8_000) };
        let one = self.random.one_in(3).then(|| self.random.below(2) as usize);
        for side in [0, 1] {
            if one.is_none_or(|o| o == side) {
                self.ends[side].way.held_up_ms = until;
            }
        }
        // What the controller says comes, later and later.
        if self.random.one_in(3) {
            let way = &mut self.ends[1].way;
            (way.held_up_ms, way.late) = (0, (now, 1 + self.random.below(6)));
        }
        let late = self.ends[1].way.late;
        self.trace(now, || format!("cut until {until}, one way: {one:?}, late: {late:?}"));
    }

    /// The node with its ranks goes on then, and looks twice.
    fn stand_still(&mut self, until: u64) {
        self.ends[1].next_ms = until;
        self.stood_until = until + 2 * LOOK_MS * self.slow[1] + ROUND_MS + KILL_MS;
    }

    /// The controller dies, and another one waits for the node.
    fn succeed(&mut self, now: u64) {
        if now == self.dies_at / 10 * 10 && self.lost.is_none() {
            self.trace(now, || String::from("the controller dies"));
            if self.ends[0].heartbeat.take().is_some() {
                self.ends[1].way.comes.push_back((now, Said::End));
            }
            self.stamped = None;
            self.ends[0].way.comes.clear();
            // What is not written is not said.
            self.written = self.granted;
        }
        // Of one that was lost the next one knows neither that it is gone nor when it was heard.
        let unclear = self.lost.is_some_and(|clear| clear > self.dies_at);
        if now == self.listens_at / 10 * 10 && unclear {
            self.lost = Some(now + DETECTOR.clear_after(self.granted(0), None));
        }
        let awaited = self.ends[0].heartbeat.is_none() && self.hold_until.is_none();
        let missed = now >= self.waits_until && awaited;
        if missed && self.lost.is_none() {
            self.trace(now, || String::from("the node is missed"));
            self.lost = Some(now + DETECTOR.clear_after(self.granted(0), None));
            self.report.missed += 1;
        }
    }

    /// The gateway dies, and the next one comes; a node that is awaited in vain is lost.
    fn pass(&mut self, now: u64) {
        let Some(Gateway { dies_at, back_at, mute }) = self.gateway else { return };
        if now == dies_at / 10 * 10 {
            self.trace(now, || format!("the gateway dies until {back_at}, mute: {mute}"));
            self.ends.iter_mut().for_each(|end| end.way.comes.clear());
        }
        let told_at = if mute { back_at } else { dies_at };
        if now == told_at / 10 * 10 {
            self.ends[1].way.comes.push_back((now, Said::End));
            // What the other gateway notices, or the controller sees by the node's call.
            if !mute {
                self.ends[0].way.comes.push_back((now, Said::End));
            }
        }
        if self.hold_until.is_some_and(|until| now >= until) && self.lost.is_none() {
            self.trace(now, || String::from("the node does not come back"));
            self.hold_until = None;
            let known = self.stamped.map(|at| now.saturating_sub(at));
            self.lost = Some(now + DETECTOR.clear_after(self.granted(0), known));
            self.report.declared += 1;
        }
    }

    /// The controller's connection to a node behind a gateway has ended.
    fn parted(&mut self, now: u64) {
        let Some(heartbeat) = self.ends[0].heartbeat.take() else { return };
        self.trace(now, || String::from("the node is awaited"));
        self.stamped = heartbeat.stamped_ms().or(self.stamped);
        let hold = if self.makes(Mistake::NotHeld) {
            0
        } else {
            DETECTOR.hold_ms(heartbeat.silent_ms(now))
        };
        self.hold_until = Some(now + hold);
        self.report.held += 1;
    }

    fn is_behind(&self) -> bool {
        self.gateway.is_some()
    }

    /// An end looks at what has come, and speaks.
    fn look(&mut self, side: usize, now: u64) {
        if self.ends[side].next_ms > now || self.dead.is_some() {
            return;
        }
        if side == 0 && (self.lost.is_some() || self.ends[0].heartbeat.is_none()) {
            return;
        }
        let before = self.ends[side].next_ms;
        let (slow, stands) = (self.slow[side], self.stands[side]);
        let next = next_look(&mut self.random, now, slow, stands);
        self.ends[side].next_ms = next;
        if side == 1 && next - now > LOOK_MS * slow {
            self.stand_still(next);
        }
        if side == 1 && self.disconnected.is_some() {
            return self.drift(now);
        }
        let uncounted = side == 1 && self.makes(Mistake::StoodStill) && now > before;
        let told = self.read(side, now);
        let own = &mut self.ends[side];
        let Some(heartbeat) = &mut own.heartbeat else { return };
        if side == 0 && heartbeat.stamp_ms(now).is_some() {
            // What was written down a look ago counts.
            let now = DETECTOR.rounded(heartbeat.granted_ms());
            self.granted = self.written.min(now);
            self.written = now;
        }
        if uncounted {
            heartbeat.told(heartbeat.limit_ms() * 4 / 5, Some(now), now);
        }
        if told {
            return if side == 0 { self.parted(now) } else { self.ended(now) };
        }
        if heartbeat.over(now) {
            return self.give_up(side, now);
        }
        if now - own.spoken_ms >= BEAT_MS {
            own.spoken_ms = now;
            let says = heartbeat.says_ms();
            let says = if side == 0 { says.min(self.granted) } else { says };
            let said = Said::Beat { says, stamp: heartbeat.stamp_ms(now) };
            if self.gateway.is_none_or(|gateway| !gateway.is_gone(now)) {
                self.ends[1 - side].way.comes.push_back((now, said));
            }
            self.report.beats += 1;
        }
    }

    /// Reads what has come by now. Whether the connection is over.
    fn read(&mut self, side: usize, now: u64) -> bool {
        let listens = side == 1 || !self.makes(Mistake::OwnHabit);
        let late = side == 1 && self.makes(Mistake::LateBeats);
        let own = &mut self.ends[side];
        let Some(heartbeat) = &mut own.heartbeat else { return false };
        while let Some(said) = own.way.take(now, self.delay) {
            let Said::Beat { says, stamp } = said else { return true };
            heartbeat.heard(now);
            if listens {
                heartbeat.told(says, if late { Some(now) } else { stamp }, now);
            } else {
                heartbeat.told(0, stamp, now);
            }
        }
        false
    }

    /// The node's connection has ended: it calls.
    fn ended(&mut self, now: u64) {
        let Some(heartbeat) = self.ends[1].heartbeat.take() else { return };
        let (limit, silent) = (heartbeat.limit_ms(), heartbeat.silent_ms(now));
        self.trace(now, || format!("the node's connection ends, silent {silent}"));
        self.rough |= silent > 1_000;
        let anew = self.makes(Mistake::CountedAnew);
        let since = if anew { now } else { now.saturating_sub(silent) };
        self.sign = since;
        self.ends[1].way.comes.clear();
        self.disconnected = Some((Disconnected::new(limit, since), None));
        // It calls at once, unless its time is over by then.
        self.drift(now);
    }

    /// An end gives the other up.
    fn give_up(&mut self, side: usize, now: u64) {
        let Some(heartbeat) = &self.ends[side].heartbeat else { return };
        self.trace(now, || format!("end {side} gives up, silent {}", heartbeat.silent_ms(now)));
        if side == 0 {
            let forgets = self.makes(Mistake::GrantForgotten);
            let granted =
                if forgets { heartbeat.says_ms() } else { self.granted(heartbeat.granted_ms()) };
            let known = heartbeat.stamped_ms().or(self.stamped).map(|at| now.saturating_sub(at));
            self.lost = Some(now + DETECTOR.clear_after(granted, known));
            self.report.declared += 1;
            return self.ends[1].way.comes.push_back((now, Said::End));
        }
        let own = heartbeat.says_ms().saturating_sub(heartbeat.limit_ms());
        let more = if self.makes(Mistake::OwnHabit) { own } else { 0 };
        self.dead = Some(now + more + KILL_MS);
        self.report.gave_up += 1;
    }

    /// What a node may have been granted, if by this controller it was that.
    fn granted(&self, own: u64) -> u64 {
        let forgets = self.makes(Mistake::HastySuccessor)
            || self.is_behind() && self.makes(Mistake::HoldUngranted);
        own.max(if forgets { LEAST_MS } else { self.written })
    }

    /// The node has no connection: it calls again and again.
    fn drift(&mut self, now: u64) {
        let Some((mut disconnected, call)) = self.disconnected.take() else { return };
        let Some(call) = call else {
            if disconnected.is_over(now) {
                self.trace(now, || String::from("the node gives up"));
                self.report.gave_up += 1;
                self.dead = Some(now + KILL_MS);
            } else {
                self.disconnected =
                    Some((disconnected, Some(self.call(now, disconnected.left_ms(now)))));
            }
            return;
        };
        let (begun, until) = call;
        let mut call = (now < until).then_some(call);
        match self.ends[1].way.take(now, self.delay) {
            // One that comes after that, to a node that stood still, comes too late.
            Some(Said::Greeting) if call.is_some() => {
                self.trace(now, || String::from("the node is greeted"));
                self.ends[1].heartbeat = Some(match self.is_behind() {
                    true if !self.makes(Mistake::GreetingRenews) => {
                        Heartbeat::held_since(DETECTOR, self.sign, now)
                    }
                    behind => heartbeat(Side::Node, behind, now),
                });
                self.report.back += 1;
                return;
            }
            Some(Said::Dismissed) => {
                self.report.told += 1;
                self.dead = Some(now + KILL_MS);
                return;
            }
            Some(Said::Refused) => {
                if !self.is_behind() || self.makes(Mistake::GatewayAnswers) {
                    disconnected.answered(begun);
                }
                call = None;
            }
            // The gateway that it called through is gone.
            Some(Said::End) => call = None,
            _ => {}
        }
        self.disconnected = Some((disconnected, call));
    }

    fn call(&mut self, now: u64, left: u64) -> Call {
        self.ends[1].way.comes.clear();
        let wait = now + left.clamp(25, CALL_MS);
        if !self.ends.iter().all(|e| e.way.is_open(now)) {
            self.rough = true;
            return (now, wait);
        }
        let dead = now >= self.dies_at && now < self.listens_at;
        if dead || self.gateway.is_some_and(|gateway| gateway.is_gone(now)) {
            self.ends[1].way.comes.push_back((now + self.delay, Said::Refused));
            return (now, wait);
        }
        // It may have much to do at its beginning.
        let most = self.random.pick(&[100, 1_000, 8_000]).unwrap_or(0);
        let busy = now + self.delay + self.random.below(most);
        self.rough |= busy > now + 500;
        let next = now >= self.listens_at && self.ends[0].heartbeat.is_none();
        let takes = self.lost.is_none() && (next || self.is_behind());
        // Who greets need not know, and the word of who does is lost with the next gateway.
        let unheard = self.is_behind() && !takes && self.random.one_in(2);
        let said = if takes || unheard { Said::Greeting } else { Said::Dismissed };
        self.ends[1].way.comes.push_back((busy, said));
        if takes {
            self.ends[0].way.comes.clear();
            self.report.returned += u64::from(self.hold_until.take().is_some());
            self.ends[0].heartbeat = Some(heartbeat(Side::Controller, self.is_behind(), now));
            (self.ends[0].next_ms, self.ends[0].spoken_ms) = (busy, busy);
        }
        (now, now + if self.makes(Mistake::SlowGreeting) { GREETING_MS } else { left })
    }

    /// Whether it has come to an end, as it should.
    fn is_over(&self, now: u64) -> Result<bool, String> {
        let prompt = self.gateway.is_none_or(|gateway| gateway.is_prompt());
        let calm = self.stands == [false; 2] && !self.rough && prompt;
        let reached = self.cut_at.min(self.deaf_at) > now && calm;
        match (self.lost, self.dead) {
            (Some(clear), Some(dead)) if dead > clear.max(self.stood_until) => {
                Err(format!("the node has ended at {dead}, its ranks ran at {clear}"))
            }
            (Some(clear), None) if now > clear.max(self.stood_until) + 10_000 => {
                Err(format!("the node lives at {now}, its ranks ran at {clear}"))
            }
            (None, Some(_)) if reached => {
                Err(String::from("a node gave up a controller that reached it"))
            }
            (Some(_), _) if self.pause.is_some() => {
                Err(String::from("a node is lost that stood still as its controller did"))
            }
            (Some(_), _) if reached && self.is_behind() => {
                Err(String::from("a node is lost, though its gateway came back"))
            }
            _ if reached && self.report.missed > 0 => {
                Err(String::from("a node does not come to a second controller that reaches it"))
            }
            (_, dead) => Ok(dead.is_some()),
        }
    }
}
