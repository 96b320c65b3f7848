//! What is told of deaths and recoveries while a job runs, and in sum at its end.
//!
//! Kept true: one line a recovery, however many ranks die and come back together, or are killed on
//! one request, though some of these are back before others have died; a death is told
//! by itself only if its recovery takes long, or something else is told meanwhile, or the job ends;
//! nothing is told of a job in which nothing died.

use crate::show::text::{count, ranks};
use eyrie_control::event::WITH_UNIT;
use eyrie_control::{Event, EventKind};
use eyrie_state::history::Record;
use eyrie_terminal::units::{bytes, millis};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// A recovery that takes longer is told in two lines.
const LONG: Duration = Duration::from_secs(2);
/// A rank that runs again and does not repeat anything so long after that is back.
const SETTLES: Duration = Duration::from_secs(1);
/// Whether the daemon has told itself, in this text of an event, that all ranks go back: not just
/// on, elsewhere.
pub fn all_go_back(text: &str) -> bool {
    ["all ranks returned to", "all ranks go back to"].iter().any(|start| text.starts_with(start))
}
/// How it begins why a node was lost of which no more is known than that its daemon is gone.
const GONE: [&str; 3] =
    ["its daemon died of SIGKILL", "its connection ended", "its connection broke"];

/// What is missing of a rank that died.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Dead,
    /// It runs since then; perhaps it repeats what was recorded.
    Runs(Duration),
    Repeats,
}

/// A node that had ranks.
#[derive(Debug)]
struct Lost {
    name: String,
    ranks: BTreeSet<u32>,
    why: String,
}

impl Lost {
    fn told(&self) -> String {
        let Lost { name, ranks, why } = self;
        let who = if ranks.len() == 1 { named(ranks) } else { format!("{} ranks", ranks.len()) };
        let plain = why.is_empty() || GONE.iter().any(|start| why.starts_with(start));
        let why = if plain { String::new() } else { format!(" ({why})") };
        format!("{name} was lost with {who}{why}")
    }
}

/// All that dies until all that died is back.
#[derive(Debug, Default)]
struct Recovery {
    begun_ms: f64,
    since: Duration,
    /// Who died of what, in order.
    dead: BTreeMap<u32, String>,
    first: Option<u32>,
    /// Nodes that were lost.
    lost: BTreeMap<u32, Lost>,
    /// Ended to go back with others.
    fell: BTreeSet<u32>,
    away: BTreeMap<u32, State>,
    back_ms: f64,
    /// All go back: to which checkpoint, and how much is computed again.
    together: Option<(Option<u32>, Option<f64>)>,
    /// The daemon has said that.
    said: bool,
    told: bool,
}

/// Follows the events of a job.
#[derive(Debug, Default)]
pub struct RecoveryReporter {
    /// Ranks that were seen and have not ended, and on which node.
    homes: BTreeMap<u32, Option<u32>>,
    /// How many ranks were seen.
    size: usize,
    /// Ranks that were killed on request, and when: of which no death was told yet.
    doomed: BTreeMap<u32, Duration>,
    open: Option<Recovery>,
}

impl RecoveryReporter {
    /// An event has come, `now` by the reader's clock. Returns what is to be told.
    pub fn take(&mut self, event: &Event, now: Duration) -> Vec<String> {
        let mut lines = self.settle(now);
        self.follow_doomed(event, now);
        match (event.event, event.rank) {
            (EventKind::Started | EventKind::Restored, Some(rank)) => {
                self.homes.insert(rank, event.node);
                self.size = self.size.max(rank as usize + 1);
                self.set(rank, event.ms, State::Runs(now));
            }
            (EventKind::Replaying, Some(rank)) => self.set(rank, event.ms, State::Repeats),
            (EventKind::CaughtUp, Some(rank)) => self.is_back(rank, event.ms),
            (EventKind::Detected, Some(rank)) => self.died(rank, event, now),
            (EventKind::NodeLost, _) => self.lost(event, now),
            (EventKind::RolledBack, _) => self.all_go_back(event, now),
            (EventKind::Exited, Some(rank)) => {
                self.homes.remove(&rank);
                if let Some(open) = &mut self.open {
                    open.away.remove(&rank);
                }
            }
            (EventKind::Ended, _) => {
                let runs = |state: &State| !matches!(state, State::Runs(_));
                self.open.iter_mut().for_each(|open| open.away.retain(|_, s| runs(s)));
                lines.extend(self.over());
                lines.extend(self.first());
                self.open = None;
            }
            _ => {}
        }
        lines.extend(self.over());
        // What has just come may have been the end of it.
        lines.extend(self.takes_long(now));
        lines
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Duration) -> Vec<String> {
        let mut lines = self.settle(now);
        lines.extend(self.takes_long(now));
        lines
    }

    /// Who has run for long enough is back.
    fn settle(&mut self, now: Duration) -> Vec<String> {
        self.doomed.retain(|_, since| now < *since + LONG);
        let settled = |s: &State| matches!(s, State::Runs(at) if now >= *at + SETTLES);
        self.open.iter_mut().for_each(|open| open.away.retain(|_, state| !settled(state)));
        self.over().into_iter().collect()
    }

    fn takes_long(&mut self, now: Duration) -> Option<String> {
        let open = self.open.as_mut().filter(|open| !open.told && now >= open.since + LONG)?;
        open.told = true;
        open.death().map(|who| format!("{who}; bringing back"))
    }

    /// Who was killed on request dies soon: what died with it is one recovery.
    fn follow_doomed(&mut self, event: &Event, now: Duration) {
        match (event.event, event.rank) {
            (EventKind::Injected, Some(rank)) => drop(self.doomed.insert(rank, now)),
            (EventKind::Detected | EventKind::Exited, Some(rank)) => {
                self.doomed.remove(&rank);
            }
            (EventKind::NodeLost | EventKind::RolledBack | EventKind::Ended, _) => {
                self.doomed.clear();
            }
            _ => {}
        }
    }

    /// Something else is about to be told: that a node was lost comes before it.
    pub fn first(&mut self) -> Option<String> {
        let open = self.open.as_mut().filter(|open| !open.told && !open.lost.is_empty())?;
        open.told = true;
        open.death()
    }

    /// The daemon says that a node is lost, and what it is called. Whether that is told with its
    /// ranks.
    pub fn takes(&mut self, text: &str) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| !open.told) else { return false };
        let name = |lost: &Lost| text.strip_suffix(&format!(" is lost: {}", lost.why));
        let of = |lost: &&mut Lost| {
            let rest = name(lost).and_then(|name| name.strip_prefix(lost.name.as_str()));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let Some(lost) = open.lost.values_mut().find(of) else { return false };
        lost.name = name(lost).unwrap_or_default().to_string();
        true
    }

    /// Whether `tick` is to be called now and then.
    pub fn waits(&self) -> bool {
        self.open.is_some()
    }

    fn set(&mut self, rank: u32, ms: f64, state: State) {
        let Some(open) = &mut self.open else { return };
        if let Some(known) = open.away.get_mut(&rank) {
            *known = state;
            if matches!(state, State::Runs(_)) {
                open.back_ms = ms;
            }
        }
    }

    fn is_back(&mut self, rank: u32, ms: f64) {
        let Some(open) = &mut self.open else { return };
        if open.away.remove(&rank).is_some() {
            open.back_ms = ms;
        }
    }

    fn begin(&mut self, ms: f64, now: Duration) -> &mut Recovery {
        let begun = || Recovery { begun_ms: ms, since: now, back_ms: ms, ..Recovery::default() };
        self.open.get_or_insert_with(begun)
    }

    fn died(&mut self, rank: u32, event: &Event, now: Duration) {
        self.homes.entry(rank).or_insert(event.node);
        let open = self.begin(event.ms, now);
        open.away.insert(rank, State::Dead);
        match event.text.strip_suffix(WITH_UNIT) {
            Some(_) => drop(open.fell.insert(rank)),
            None => {
                open.first.get_or_insert(rank);
                open.dead.insert(rank, event.text.clone());
            }
        }
    }

    fn lost(&mut self, event: &Event, now: Duration) {
        let Some(node) = event.node else { return };
        let here = |(rank, home): (&u32, &Option<u32>)| (*home == Some(node)).then_some(*rank);
        let there: BTreeSet<u32> = self.homes.iter().filter_map(here).collect();
        if there.is_empty() {
            return;
        }
        let open = self.begin(event.ms, now);
        open.away.extend(there.iter().map(|rank| (*rank, State::Dead)));
        let (name, why) = (format!("node {node}"), event.text.clone());
        open.lost.insert(node, Lost { name, ranks: there, why });
    }

    fn all_go_back(&mut self, event: &Event, now: Duration) {
        let said = all_go_back(&event.text);
        if self.open.is_none() && !said {
            // They go on elsewhere, where they stood.
            return;
        }
        let all: Vec<u32> = self.homes.keys().copied().collect();
        let open = self.begin(event.ms, now);
        open.away = all.into_iter().map(|rank| (rank, State::Dead)).collect();
        open.together = Some((event.generation, event.took_ms));
        open.said |= said;
    }

    /// If all are back that is told, once.
    fn over(&mut self) -> Option<String> {
        let none_follows = self.doomed.is_empty();
        let open = self.open.take_if(|open| open.away.is_empty() && none_follows)?;
        open.recovered(self.size)
    }
}

fn named(all: &BTreeSet<u32>) -> String {
    match all.len() {
        1 => format!("rank {}", ranks(all.iter().copied())),
        2..=8 => format!("ranks {}", ranks(all.iter().copied())),
        count => format!("{count} ranks"),
    }
}

impl Recovery {
    /// Who died, and of what.
    fn death(&self) -> Option<String> {
        let mut by: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        // The others were ended to go back, too.
        let all = |rank: &u32| self.together.is_none() || self.first == Some(*rank);
        for (rank, cause) in self.dead.iter().filter(|(rank, _)| all(rank)) {
            by.entry(cause).or_default().insert(*rank);
        }
        let died = by.iter().map(|(cause, who)| format!("{} {cause}", named(who)));
        let lost = self.lost.values().map(Lost::told);
        let all: Vec<String> = died.chain(lost).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Who is back, if their deaths were told before.
    fn returned(&self, size: usize) -> String {
        if self.together.is_some() {
            return format!("all {size} ranks are back");
        }
        let mut who: BTreeSet<u32> = self.dead.keys().copied().collect();
        who.extend(self.lost.values().flat_map(|lost| &lost.ranks));
        let are = if who.len() == 1 { "is" } else { "are" };
        format!("{} {are} back", named(&who))
    }

    fn recovered(&self, size: usize) -> Option<String> {
        let took = millis(self.back_ms - self.begun_ms);
        let death = self.death().filter(|_| !self.told && !self.said);
        let mut line = match death {
            Some(death) => format!("{death}; back after {took}"),
            None if self.told || self.said => format!("{} after {took}", self.returned(size)),
            None => return None,
        };
        match self.together {
            Some(_) if self.said => {}
            Some((generation, again)) => {
                let place = generation
                    .map_or_else(|| "the beginning".into(), |g| format!("checkpoint {g}"));
                let _ = write!(line, ", all ranks from {place}");
                let _ = match again {
                    Some(ms) => write!(line, ": {} of work done again", millis(ms)),
                    None => write!(line, ": what came after it is done again"),
                };
            }
            None if self.fell.is_empty() => line += ", nothing was lost",
            None => {
                let with = named(&self.fell);
                let _ = write!(line, ", with {with} of its unit: their work is done again");
            }
        }
        Some(line)
    }
}

/// What a job has been through, in few lines, at its end.
pub fn summary(record: &Record) -> Vec<String> {
    let it = &record.account;
    let mut first = match (record.exit_code, it.lost_nothing()) {
        (Some(0 | 85), true) if it.is_eventful() => String::from("nothing was lost: "),
        (Some(0 | 85), true) => String::from("nothing died: "),
        _ => String::new(),
    };
    let mut parts = Vec::new();
    if it.deaths > 0 {
        parts.push(count(it.deaths, "death"));
        if it.nodes_lost > 0 {
            parts.push(count(it.nodes_lost, "node") + " lost");
        }
        parts.push(count(it.recoveries, "rank") + " brought back");
    }
    if it.rollbacks > 0 {
        let times = count(it.rollbacks, "time");
        parts.push(format!("all ranks went back {times}"));
        parts.push(format!("{} of work done again", millis(it.again_ms)));
    }
    if it.controllers > 0 {
        parts.push(count(it.controllers, "new controller"));
    }
    if it.output_differences > 0 {
        parts.push(count(it.output_differences, "difference") + " in what was printed again");
    }
    if it.deaths > 0 || it.rollbacks > 0 {
        parts.push(format!("{} in recoveries", millis(it.recovery_ms)));
    }
    first += &parts.join(", ");
    let took = millis(record.took_ms as f64);
    let mut second = format!("the job took {took}; ");
    match it.checkpoints {
        0 => second += "no checkpoints",
        checkpoints => {
            let stood = millis(it.stood_ms / f64::from(record.size.max(1)));
            let _ = write!(
                second,
                "{}, {}, for which each rank stood still {stood}",
                count(checkpoints, "checkpoint"),
                bytes(it.checkpoint_bytes)
            );
        }
    }
    if record.logged {
        let messages = count(record.messages, "message");
        let _ = write!(second, "; {messages} logged, {}", bytes(record.message_bytes));
    }
    let first = first.trim_end_matches([' ', ':', ',']).to_string();
    [first, second].into_iter().filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
#[path = "recoveries_tests.rs"]
mod tests;
