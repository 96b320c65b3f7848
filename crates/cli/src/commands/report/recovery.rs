//! Recoveries by a job's events: who died of what, and how long each phase took.
//!
//! Kept true: all that dies until all that died is back is one recovery, as it is told while the
//! job runs (`told`).

use crate::show::recoveries;
use eyrie_control::Event;
use eyrie_control::event::WITH_UNIT;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// One recovery, with its phases.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Recovery {
    /// When the first death was noticed.
    pub from_ms: f64,
    /// How long that took, if the death was caused on purpose.
    pub noticed_ms: Option<f64>,
    /// Until the last one had a process again, after the first death was noticed.
    pub restored_ms: Option<f64>,
    /// From then on until the last one had repeated what was recorded.
    pub repeated_ms: Option<f64>,
    /// Until all were back. None: they are not.
    pub back_ms: Option<f64>,
    pub ranks: BTreeSet<u32>,
    /// Those of them that went back with their recovery unit, and had not died.
    pub with_unit: BTreeSet<u32>,
    pub nodes_lost: BTreeSet<u32>,
    /// What the first one died of.
    pub cause: String,
    /// Checkpoints that they came back from; 0: the beginning.
    pub from_checkpoints: BTreeSet<u32>,
    /// Events and sends that were repeated.
    pub reproduced: u64,
    /// All ranks went back together.
    pub together: bool,
    /// How much work of each is done again then.
    pub again_ms: Option<f64>,
    #[serde(skip)]
    down: BTreeSet<u32>,
    #[serde(skip)]
    restored_at: Option<f64>,
    #[serde(skip)]
    caught_at: Option<f64>,
}

impl Recovery {
    fn settle(mut self) -> Recovery {
        self.restored_ms = self.restored_at.map(|at| at - self.from_ms);
        let repeated = self.caught_at.zip(self.restored_at).map(|(end, begin)| end - begin);
        self.repeated_ms = repeated.map(|ms| ms.max(0.0));
        let back = self.restored_at.into_iter().chain(self.caught_at).reduce(f64::max);
        self.back_ms = back.filter(|_| self.down.is_empty()).map(|at| at - self.from_ms);
        self
    }
}

#[derive(Default)]
pub struct Recoveries {
    all: Vec<Recovery>,
    /// The one that a rank is of.
    of: BTreeMap<u32, usize>,
}

impl Recoveries {
    /// These died. `all_back`: nothing was under way.
    pub fn died(&mut self, ranks: &[u32], event: &Event, all_back: bool) {
        if all_back || self.all.is_empty() {
            self.all.push(Recovery { from_ms: event.ms, ..Recovery::default() });
        }
        let at = self.all.len() - 1;
        let it = &mut self.all[at];
        let first = it.ranks.is_empty() && it.nodes_lost.is_empty();
        it.ranks.extend(ranks);
        it.down.extend(ranks);
        self.of.extend(ranks.iter().map(|rank| (*rank, at)));
        match event.node.filter(|_| event.rank.is_none()) {
            Some(node) => drop(it.nodes_lost.insert(node)),
            None if event.text.ends_with(WITH_UNIT) => it.with_unit.extend(ranks),
            None => {}
        }
        if first {
            it.cause = event.text.strip_suffix(WITH_UNIT).unwrap_or(&event.text).to_string();
        }
        if it.noticed_ms.is_none() {
            it.noticed_ms = event.took_ms;
        }
    }

    /// All go back. `under_way`: as somebody died.
    pub fn together(&mut self, ranks: &[u32], event: &Event, under_way: bool) {
        if !under_way && !recoveries::all_go_back(&event.text) {
            return;
        }
        if !under_way || self.all.is_empty() {
            let cause = event.text.clone();
            self.all.push(Recovery { from_ms: event.ms, cause, ..Recovery::default() });
        }
        let at = self.all.len() - 1;
        let it = &mut self.all[at];
        it.ranks.extend(ranks);
        it.down.extend(ranks);
        (it.together, it.again_ms) = (true, event.took_ms);
        self.of.extend(ranks.iter().map(|rank| (*rank, at)));
    }

    fn of(&mut self, rank: u32) -> Option<&mut Recovery> {
        self.all.get_mut(*self.of.get(&rank)?)
    }

    /// It runs again.
    pub fn came(&mut self, rank: u32, event: &Event) {
        let Some(it) = self.of(rank) else { return };
        if it.down.remove(&rank) {
            it.restored_at = it.restored_at.into_iter().chain([event.ms]).reduce(f64::max);
            it.from_checkpoints.insert(event.generation.unwrap_or(0));
        }
    }

    pub fn caught_up(&mut self, rank: u32, event: &Event) {
        let Some(it) = self.of(rank) else { return };
        it.caught_at = it.caught_at.into_iter().chain([event.ms]).reduce(f64::max);
        it.reproduced += event.count.unwrap_or(0);
    }

    /// It is over.
    pub fn ended(&mut self, rank: u32) {
        if let Some(it) = self.of(rank) {
            it.down.remove(&rank);
        }
    }

    pub fn all(self) -> Vec<Recovery> {
        self.all.into_iter().map(Recovery::settle).collect()
    }
}
