//! The ranks of a recovery unit (`--ft node`, `--ft cluster`) come back where they were.
//!
//! Kept true: what they passed each other is given up before the first of them starts here, and
//! what was on its way when their images were taken comes back with each of them; their outcomes,
//! and what they sent to others, stay where they are.

use super::Agent;
use super::network::MoveError;
use eyrie_control::Meta;
use eyrie_ledger::unit;
use std::sync::Arc;

impl Agent {
    /// None of these ranks, which are one unit, runs anywhere, and all of them are going to come
    /// back, some of them here.
    pub(super) fn gather(&mut self, ranks: &[u32], life: u32) {
        self.logs.owe_nothing_to(|receiver| ranks.contains(&receiver));
        self.segment_file.windows.retain(|rank| !ranks.contains(rank));
        self.links().into_iter().for_each(|links| links.part(ranks, life));
    }

    /// A rank starts where it was: the segment has what is recorded of it, and what it sent, but
    /// for what it sent to its own unit.
    pub(super) fn come_back(&mut self, rank: u32, from: &Meta) -> Result<(), MoveError> {
        if !self.spec.protection.ft.has_units() {
            return Ok(());
        }
        let segment = Arc::clone(&self.segment);
        self.bring_log(rank, from, |dst| unit::is_inner(&segment, rank, dst))
    }
}
