//! The ranks of a recovery unit (`--ft node`, `--ft cluster`) come back where they were. Which
//! ranks are a unit may change once, before they begin anew.
//!
//! Kept true: what they passed each other is given up before the first of them starts here, and
//! what was on its way when their images were taken comes back with each of them; their outcomes,
//! and what they sent to others, stay where they are.

use super::Agent;
use super::network::MoveError;
use super::state::units::bind_units;
use eyrie_control::node::FromNode;
use eyrie_control::{JobSpec, Meta};
use eyrie_ledger::unit;
use eyrie_state::units;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Agent {
    /// Ranks come back in another way from now on. None of them runs here: all begin anew, or go on
    /// from a moment at which all stood.
    pub(super) fn set_units(&mut self, as_told: JobSpec) {
        units::set_mode(&mut self.spec, as_told.protection, as_told.placement.homes);
        bind_units(&self.segment, &self.spec);
    }

    /// Whether a rank waits to be one unit with others.
    pub(super) fn look_at_units(&mut self, rank: u32, start: u64) {
        let shares = self.segment.rank(rank).shares.load(Ordering::Acquire);
        let (Some(peer), Some(proc)) = (shares.checked_sub(1), self.proc(rank, start)) else {
            return;
        };
        if !std::mem::replace(&mut proc.shares, true) {
            self.say(FromNode::Shares { rank, start, peer });
        }
    }

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
