//! A job that stands still for a while (`eyrie suspend`, `eyrie share`): who wants it to, which
//! nodes have stopped their ranks, and the ranks' own clock.
//!
//! Pure: time comes in as milliseconds. Kept true: a job stands still exactly as long as somebody
//! holds it, and whoever may vanish holds it by a lease, which lapses; it is said to stand when
//! every live node has answered the latest order, not an earlier one; the ranks' clock stands with
//! them.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Who wants the job to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Suspender {
    /// Until the user says otherwise.
    User,
    /// A client, by its connection, until its lease lapses.
    Client(u64),
}

/// What nodes are to be told, with the number of the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendOrder {
    Stop(u64),
    GoOn(u64),
}

/// Whether a job stands still.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SuspendState {
    /// Until when each of them holds it, if that ends by itself.
    holders: BTreeMap<Suspender, Option<u64>>,
    /// Number of the latest order.
    turn: u64,
    stopped: bool,
    /// Since when that was ordered.
    since_ms: u64,
    /// How long it has stood before.
    stood_ms: u64,
    /// Nodes whose ranks stand by the latest order.
    stand: BTreeSet<u32>,
    /// The user wants its memory, too.
    swaps: bool,
}

impl SuspendState {
    /// Somebody wants the job to stand still, or goes on wanting that.
    pub fn hold(&mut self, holder: Suspender, until_ms: Option<u64>) {
        self.holders.insert(holder, until_ms);
    }

    /// Whether the ranks' memory goes out, too, as long as the user holds the job.
    pub fn swap(&mut self, swaps: bool) {
        self.swaps = swaps;
    }

    pub fn swaps(&self) -> bool {
        self.swaps && self.holds(Suspender::User)
    }

    /// It does so no more. Whether it did.
    pub fn release(&mut self, holder: Suspender) -> bool {
        self.swaps &= holder != Suspender::User;
        self.holders.remove(&holder).is_some()
    }

    /// Nobody does any more.
    pub fn release_all(&mut self) {
        self.holders.clear();
    }

    /// Who held it by a connection to another controller.
    pub fn forget_clients(&mut self) {
        self.holders.retain(|holder, _| *holder == Suspender::User);
    }

    /// Ends the leases that were not renewed in time. How many there were.
    pub fn lapse(&mut self, now_ms: u64) -> usize {
        let before = self.holders.len();
        self.holders.retain(|_, until| until.is_none_or(|until| now_ms < until));
        before - self.holders.len()
    }

    /// When the next lease lapses.
    pub fn due_ms(&self) -> Option<u64> {
        self.holders.values().flatten().min().copied()
    }

    pub fn holds(&self, holder: Suspender) -> bool {
        self.holders.contains_key(&holder)
    }

    /// Whether a client does.
    pub fn is_leased(&self) -> bool {
        self.holders.keys().any(|holder| *holder != Suspender::User)
    }

    /// Whether somebody wants it to stand.
    pub fn wanted(&self) -> bool {
        !self.holders.is_empty()
    }

    /// Whether nodes were told to stop.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// What nodes are to be told now. `ready`: nothing is in the way of stopping.
    pub fn order(&mut self, now_ms: u64, ready: bool) -> Option<SuspendOrder> {
        if self.stopped == self.wanted() || (!self.stopped && !ready) {
            return None;
        }
        self.turn += 1;
        self.stand.clear();
        self.stopped = !self.stopped;
        if self.stopped {
            self.since_ms = now_ms;
            return Some(SuspendOrder::Stop(self.turn));
        }
        self.stood_ms += now_ms.saturating_sub(self.since_ms);
        Some(SuspendOrder::GoOn(self.turn))
    }

    /// What a node is to be told that joins now.
    pub fn order_for_new(&self) -> Option<u64> {
        self.stopped.then_some(self.turn)
    }

    /// The ranks of a node stand by this order.
    pub fn stands(&mut self, node: u32, turn: u64) {
        if self.stopped && turn == self.turn {
            self.stand.insert(node);
        }
    }

    /// Whether those of all these nodes do.
    pub fn whole(&self, live: impl IntoIterator<Item = u32>) -> bool {
        self.stopped && live.into_iter().all(|node| self.stand.contains(&node))
    }

    /// How long it has stood so far this time, if it does.
    pub fn for_ms(&self, now_ms: u64) -> Option<u64> {
        self.stopped.then(|| now_ms.saturating_sub(self.since_ms))
    }

    /// How long it has stood in all.
    pub fn stood_ms(&self, now_ms: u64) -> u64 {
        self.stood_ms + self.for_ms(now_ms).unwrap_or(0)
    }

    /// The ranks' clock: it stands while they do.
    pub fn ranks_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.stood_ms(now_ms))
    }
}

#[cfg(test)]
#[path = "suspend_tests.rs"]
mod tests;
