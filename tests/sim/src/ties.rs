//! The controller, one node, and the connection between them, around the real
//! `protocol::patience`: when does each give the other up, and has the node ended before its ranks
//! run elsewhere?
//!
//! Modelled: clocks that both ends look at in their own time, as they are slow or stand still;
//! beats that take their time, or are held up, in one direction or in both. What is held up comes
//! in the end, the end of the connection behind it. A node stands still with its ranks; when it
//! goes on they may run for the moment that it takes to see that.

use crate::random::Random;
use eyrie_protocol::patience::{CLEARING_MS, Side, TICK_MS, Tie};
use std::collections::VecDeque;

/// Beats are as far apart, at least.
const BEAT_MS: u64 = 100;
/// A node that has given up has killed everything in less.
const KILL_MS: u64 = CLEARING_MS / 2;

/// What is done wrong on purpose, to show that the checks find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mistake {
    /// A node bears what it is used to, which it does not say.
    OwnHabit,
    /// The controller counts with what it grants now.
    GrantForgotten,
    /// Time in which a node stood still hardly counts.
    StoodStill,
    /// When the connection breaks, the node waits for as long again.
    CountedAnew,
}

impl Mistake {
    pub const ALL: [Mistake; 4] =
        [Mistake::OwnHabit, Mistake::GrantForgotten, Mistake::StoodStill, Mistake::CountedAnew];
}

/// What runs came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub beats: u64,
    pub declared: u64,
    pub gave_up: u64,
    pub told: u64,
    /// Runs in which an end was slow or stood still, and nobody was lost.
    pub slow: u64,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.beats += other.beats;
        self.declared += other.declared;
        self.gave_up += other.gave_up;
        self.told += other.told;
        self.slow += other.slow;
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { beats, declared, gave_up, told, slow } = self;
        write!(
            f,
            "{beats} beats, {declared} nodes declared lost, {gave_up} gave up by themselves, \
             {told} were told, {slow} runs with slow ends and no loss"
        )
    }
}

/// What is on its way: the time it was sent, and what it says; none: the end of the connection.
type Sent = (u64, Option<u64>);

/// One end, and what is on its way to it.
struct End {
    tie: Tie,
    /// When it looks and speaks next.
    next_ms: u64,
    spoken_ms: u64,
    comes: VecDeque<Sent>,
    /// Nothing comes before.
    held_up_ms: u64,
}

impl End {
    fn new(side: Side) -> End {
        let (tie, comes) = (Tie::new(side, 0), VecDeque::new());
        End { tie, next_ms: 0, spoken_ms: 0, comes, held_up_ms: 0 }
    }

    /// Reads what has come by now. Whether the connection is over.
    fn read(&mut self, now: u64, delay: u64, listens: bool) -> bool {
        while let Some((sent, says)) = self.comes.front().copied() {
            if now < self.held_up_ms || sent + delay > now {
                return false;
            }
            self.comes.pop_front();
            let Some(says) = says else { return true };
            self.tie.heard(now);
            if listens {
                self.tie.told(says, now);
            }
        }
        false
    }
}

/// When a process that looks every so often, and may stand still, looks next.
fn next_look(random: &mut Random, now: u64, slow: u64, stands: bool) -> u64 {
    let long = if stands && random.one_in(150) { random.below(9_000) } else { 0 };
    now + TICK_MS * slow / 2 + random.below(TICK_MS * slow / 2 + 1) + long
}

/// Runs the simulation of a seed.
pub fn run(seed: u64, mistake: Option<Mistake>, trace: bool) -> Result<Report, String> {
    let mut world = World::new(seed, mistake, trace);
    for now in (0..150_000u64).step_by(10) {
        world.disturb(now);
        for side in [0, 1] {
            world.look(side, now);
        }
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
    ends: [End; 2],
    /// An end that is ten times as slow, ends that stand still at times.
    slow: [u64; 2],
    stands: [bool; 2],
    /// When the connection is cut, and from when on the node hears nothing.
    cut_at: u64,
    deaf_at: u64,
    /// When one end gets used to a long silence just before, and which of the two.
    hiccup_at: u64,
    used: usize,
    /// How often something is held up.
    hiccups: u64,
    delay: u64,
    is_cut: bool,
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
        World {
            mistake,
            trace,
            ends: [End::new(Side::Controller), End::new(Side::Node)],
            slow,
            stands,
            cut_at,
            deaf_at,
            hiccup_at: cut_at.min(deaf_at).saturating_sub(before) / 10 * 10,
            used: random.below(2) as usize,
            hiccups: random.below(4),
            delay: 1 + random.below(60),
            is_cut: false,
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

    fn disturb(&mut self, now: u64) {
        let quiet = now.abs_diff(self.hiccup_at) > 8_000;
        if now.is_multiple_of(5_000) && quiet && self.random.below(12) < self.hiccups {
            let side = self.random.below(2) as usize;
            self.ends[side].held_up_ms = now + self.random.below(1_900);
        }
        if now == self.hiccup_at {
            let until = now + 1_600 + self.random.below(300);
            if self.used == 1 {
                self.ends[1].held_up_ms = until;
            } else {
                self.stand_still(until.max(self.ends[1].next_ms));
            }
        }
        if now >= self.deaf_at && !self.is_cut {
            self.ends[1].held_up_ms = now + 10;
        }
        if now >= self.cut_at && !self.is_cut {
            self.is_cut = true;
            let long = self.random.one_in(2);
            let until = now + if long { 200_000 } else { self.random.below(8_000) };
            let one = self.random.one_in(3).then(|| self.random.below(2) as usize);
            for side in [0, 1] {
                if one.is_none_or(|o| o == side) {
                    self.ends[side].held_up_ms = until;
                }
            }
            if self.trace {
                println!("{now:>7} cut until {until}, one way: {one:?}");
            }
        }
    }

    /// The node with its ranks goes on then, and looks twice.
    fn stand_still(&mut self, until: u64) {
        self.ends[1].next_ms = until;
        self.stood_until = until + 2 * TICK_MS * self.slow[1] + KILL_MS;
    }

    /// An end looks at what has come, and speaks.
    fn look(&mut self, side: usize, now: u64) {
        let ended = (side == 0 && self.lost.is_some()) || self.dead.is_some();
        if self.ends[side].next_ms > now || ended {
            return;
        }
        let before = self.ends[side].next_ms;
        let (slow, stands) = (self.slow[side], self.stands[side]);
        let next = next_look(&mut self.random, now, slow, stands);
        self.ends[side].next_ms = next;
        if side == 1 && next - now > TICK_MS * slow {
            self.stand_still(next);
        }
        let listens = side == 1 || !self.makes(Mistake::OwnHabit);
        let uncounted = side == 1 && self.makes(Mistake::StoodStill) && now > before;
        let own = &mut self.ends[side];
        let told = own.read(now, self.delay, listens);
        if uncounted {
            own.tie.heard(now);
        }
        if told || own.tie.over(now) {
            return self.end(side, now, told);
        }
        if now - own.spoken_ms >= BEAT_MS {
            own.spoken_ms = now;
            let says = own.tie.says_ms();
            self.ends[1 - side].comes.push_back((now, Some(says)));
            self.report.beats += 1;
        }
    }

    /// The connection is over for an end, which gives up or was told.
    fn end(&mut self, side: usize, now: u64, told: bool) {
        let tie = &self.ends[side].tie;
        if self.trace {
            println!("{now:>7} end {side} is over ({told}), silent {}", tie.silent_ms(now));
        }
        if side == 0 {
            let current = tie.says_ms() * 5 / 4 + CLEARING_MS;
            let forgets = self.makes(Mistake::GrantForgotten);
            self.lost = Some(now + if forgets { current } else { tie.clear_ms() });
            self.report.declared += 1;
            return self.ends[1].comes.push_back((now, None));
        }
        let limit = tie.limit_ms();
        let more = match self.mistake {
            Some(Mistake::CountedAnew) if !told => limit,
            Some(Mistake::OwnHabit) if !told => tie.says_ms().saturating_sub(limit),
            _ => 0,
        };
        self.dead = Some(now + more + KILL_MS);
        self.report.told += u64::from(told);
        self.report.gave_up += u64::from(!told);
    }

    /// Whether it has come to an end, as it should.
    fn is_over(&self, now: u64) -> Result<bool, String> {
        let reached = self.cut_at.min(self.deaf_at) > now && self.stands == [false; 2];
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
            (_, dead) => Ok(dead.is_some()),
        }
    }
}
