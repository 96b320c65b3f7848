//! The timeline of a job, by its events: what each rank did when, its checkpoints, the recoveries.
//!
//! Kept true: all of it comes from events, in their order; what no event tells (when a rank waits
//! for another one, when it stood still within a checkpoint) is not made up. Where events are
//! missing a rank has a gap.

use crate::commands::report::recovery::{Recoveries, Recovery};
use eyrie_control::account::stood_ms;
use eyrie_control::{Event, EventKind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a rank does. The later ones are drawn over the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Computing,
    /// It stands still, with the whole job.
    Suspended,
    /// It runs again, and repeats what was recorded.
    Repeating,
    /// It has no process: it died, or was ended to go back or to move, and is not there again yet.
    Down,
}

pub const STATES: [State; 4] = [State::Computing, State::Suspended, State::Repeating, State::Down];

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Computing => "computing",
            State::Suspended => "suspended",
            State::Repeating => "repeating",
            State::Down => "down",
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            State::Computing => "computing, or waiting for others",
            State::Suspended => "suspended",
            State::Repeating => "repeating what was recorded",
            State::Down => "dead, or being brought back",
        }
    }
}

/// A rank in one state on one node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Span {
    pub from_ms: f64,
    pub to_ms: f64,
    pub state: State,
    pub node: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankTimeline {
    pub rank: u32,
    pub spans: Vec<Span>,
}

/// One that came about, or did not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checkpoint {
    pub rank: u32,
    pub generation: u32,
    pub from_ms: f64,
    pub to_ms: f64,
    pub bytes: u64,
    /// How long the rank stood still for it.
    pub stood_ms: Option<f64>,
    /// Why there is none.
    pub failed: Option<String>,
}

/// Something that is to be seen, and is no span.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    pub ms: f64,
    pub event: &'static str,
    pub rank: Option<u32>,
    pub node: Option<u32>,
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Until when it is told.
    pub end_ms: f64,
    pub ranks: Vec<RankTimeline>,
    pub checkpoints: Vec<Checkpoint>,
    pub recoveries: Vec<Recovery>,
    pub marks: Vec<Mark>,
}

/// Marks of a timeline.
const MARKED: [EventKind; 16] = [
    EventKind::Detected,
    EventKind::NodeLost,
    EventKind::RolledBack,
    EventKind::Unprotected,
    EventKind::Diverged,
    EventKind::ControllerLost,
    EventKind::ControllerBack,
    EventKind::GatewayLost,
    EventKind::GatewayBack,
    EventKind::LinkLost,
    EventKind::LinkBack,
    EventKind::NodeLeft,
    EventKind::Saved,
    EventKind::Restarted,
    EventKind::OutputDiffers,
    EventKind::FileLeft,
];

/// A rank as far as it is told.
#[derive(Default)]
struct Line {
    state: Option<State>,
    since_ms: f64,
    node: Option<u32>,
    /// It is over, for good.
    gone: bool,
    spans: Vec<Span>,
}

impl Line {
    fn turn(&mut self, ms: f64, state: Option<State>) {
        if let Some(before) = self.state
            && ms > self.since_ms
        {
            let (from_ms, to_ms, node) = (self.since_ms, ms, self.node);
            self.spans.push(Span { from_ms, to_ms, state: before, node });
        }
        (self.state, self.since_ms) = (state, ms);
    }

    fn is_down(&self) -> bool {
        self.state == Some(State::Down)
    }
}

struct Builder {
    lines: Vec<Line>,
    timeline: Timeline,
    recoveries: Recoveries,
    begun: BTreeMap<(u32, u32), f64>,
    last_ms: f64,
}

impl Timeline {
    /// Of a job with so many ranks. `end_ms`: until then it ran, if that is known.
    pub fn of(size: u32, events: &[Event], end_ms: Option<f64>) -> Timeline {
        let mut builder = Builder {
            lines: (0..size).map(|_| Line::default()).collect(),
            timeline: Timeline::default(),
            recoveries: Recoveries::default(),
            begun: BTreeMap::new(),
            last_ms: 0.0,
        };
        let sound = |e: &&Event| e.ms.is_finite() && e.rank.is_none_or(|rank| rank < size);
        events.iter().filter(sound).for_each(|event| builder.take(event));
        builder.end(end_ms)
    }
}

impl Builder {
    fn take(&mut self, event: &Event) {
        self.last_ms = self.last_ms.max(event.ms);
        if MARKED.contains(&event.event) {
            let (rank, node, text) = (event.rank, event.node, event.text.clone());
            let mark = Mark { ms: event.ms, event: event.event.name(), rank, node, text };
            self.timeline.marks.push(mark);
        }
        match (event.event, event.rank) {
            (EventKind::Started | EventKind::Restored, Some(rank)) => self.came(rank, event),
            (EventKind::Replaying, Some(rank)) => self.repeats(rank),
            (EventKind::CaughtUp, Some(rank)) => {
                self.repeats(rank);
                self.turn(rank, event.ms, State::Computing);
                self.recoveries.caught_up(rank, event);
            }
            (EventKind::Detected, Some(rank)) => self.died(&[rank], event),
            (EventKind::NodeLost, _) => {
                let here = |line: &Line| !line.gone && line.node == event.node;
                let ranks = self.those(|line| here(line) && line.state.is_some());
                self.died(&ranks, event);
            }
            (EventKind::RolledBack, _) => self.all_go_back(event),
            (EventKind::Exited, Some(rank)) => {
                if let Some(line) = self.lines.get_mut(rank as usize) {
                    line.turn(event.ms, None);
                    line.gone = true;
                }
                self.recoveries.ended(rank);
            }
            (EventKind::Suspended, _) => {
                let ranks = self.those(|line| line.state == Some(State::Computing));
                ranks.into_iter().for_each(|r| self.turn(r, event.ms, State::Suspended));
            }
            (EventKind::Resumed, _) => {
                let ranks = self.those(|line| line.state == Some(State::Suspended));
                ranks.into_iter().for_each(|r| self.turn(r, event.ms, State::Computing));
            }
            (EventKind::SwappedOut, Some(rank)) => self.turn(rank, event.ms, State::Suspended),
            (EventKind::Checkpointing, Some(rank)) => {
                let generation = event.generation.unwrap_or(0);
                self.begun.insert((rank, generation), event.ms);
            }
            (EventKind::Checkpointed | EventKind::CheckpointFailed, Some(rank)) => {
                self.checkpoint(rank, event);
            }
            (EventKind::Ended, _) => self.lines.iter_mut().for_each(|l| l.turn(event.ms, None)),
            _ => {}
        }
    }

    fn those(&self, which: impl Fn(&Line) -> bool) -> Vec<u32> {
        (0u32..).zip(&self.lines).filter(|(_, l)| which(l)).map(|(rank, _)| rank).collect()
    }

    fn turn(&mut self, rank: u32, ms: f64, state: State) {
        if let Some(line) = self.lines.get_mut(rank as usize) {
            line.turn(ms, Some(state));
        }
    }

    fn came(&mut self, rank: u32, event: &Event) {
        let Some(line) = self.lines.get_mut(rank as usize) else { return };
        line.turn(event.ms, Some(State::Computing));
        line.node = event.node;
        line.gone = false;
        self.recoveries.came(rank, event);
    }

    /// It has repeated since it runs again.
    fn repeats(&mut self, rank: u32) {
        if let Some(line) = self.lines.get_mut(rank as usize)
            && line.state == Some(State::Computing)
        {
            line.state = Some(State::Repeating);
        }
    }

    fn died(&mut self, ranks: &[u32], event: &Event) {
        let quiet = |l: &Line| !matches!(l.state, Some(State::Down | State::Repeating));
        let all_back = self.lines.iter().all(quiet);
        if !ranks.is_empty() {
            self.recoveries.died(ranks, event, all_back);
        }
        ranks.iter().for_each(|rank| self.turn(*rank, event.ms, State::Down));
    }

    fn all_go_back(&mut self, event: &Event) {
        let live = self.those(|line| !line.gone && line.state.is_some());
        let under_way = self.lines.iter().any(Line::is_down);
        self.recoveries.together(&live, event, under_way);
        let down: BTreeSet<u32> = self.those(Line::is_down).into_iter().collect();
        let up = live.into_iter().filter(|rank| !down.contains(rank));
        up.for_each(|rank| self.turn(rank, event.ms, State::Down));
    }

    fn checkpoint(&mut self, rank: u32, event: &Event) {
        let generation = event.generation.unwrap_or(0);
        let begun = self.begun.remove(&(rank, generation));
        let from_ms = begun.unwrap_or(event.ms - event.took_ms.unwrap_or(0.0)).max(0.0);
        let failed = event.event == EventKind::CheckpointFailed;
        self.timeline.checkpoints.push(Checkpoint {
            rank,
            generation,
            from_ms: from_ms.min(event.ms),
            to_ms: event.ms,
            bytes: event.bytes.unwrap_or(0),
            stood_ms: stood_ms(&event.text),
            failed: failed.then(|| event.text.clone()),
        });
    }

    fn end(mut self, end_ms: Option<f64>) -> Timeline {
        let end_ms = end_ms.filter(|ms| ms.is_finite()).unwrap_or(0.0).max(self.last_ms);
        self.lines.iter_mut().for_each(|line| line.turn(end_ms, None));
        let ranks = (0u32..).zip(self.lines);
        let ranks = ranks.map(|(rank, line)| RankTimeline { rank, spans: line.spans }).collect();
        let recoveries = self.recoveries.all();
        Timeline { end_ms, ranks, recoveries, ..self.timeline }
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
pub(super) mod tests;
