//! `eyrie run --keep`: the logs of the ranks, saved beside their images for `eyrie replay`.
//!
//! Kept true: a log is written when its rank has ended, and the channels to it are released only
//! after that; what cannot be written is told and costs the job nothing.

use super::Job;
use eyrie_control::Ft;
use eyrie_control::node::{ToNode, Written};
use serde::{Deserialize, Serialize};

/// How far the saving of a rank's log has come.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saving {
    No,
    Running,
    Done,
}

impl Job {
    /// Begins to write the log of a rank that has ended, if there is an image to go with it.
    pub(super) fn save_log(&mut self, rank: u32) {
        if self.unsaved(rank) {
            return self.order_log(rank);
        }
        self.to_all(&ToNode::Release { rank });
    }

    fn unsaved(&self, rank: u32) -> bool {
        let r = &self.ranks[rank as usize];
        r.saving == Saving::No && r.retention.newest().is_some_and(|k| k.generation > 0)
    }

    fn order_log(&mut self, rank: u32) {
        let r = self.rank(rank);
        r.saving = Saving::Running;
        // From the older of the kept images on.
        let floor = r.retention.floor().clone();
        let output = [0, 1].map(|i| {
            let (first, bytes) = r.tapes[i].history();
            Written { first, bytes }
        });
        let (need, det_pos) = (floor.need, floor.det_pos);
        self.to_home(rank, ToNode::SaveLog { rank, need, det_pos, output });
    }

    /// The log of a rank is written: what it held in the others' logs is free now.
    pub(super) fn log_saved(&mut self, rank: u32, error: Option<String>) {
        if self.rank(rank).saving != Saving::Running {
            return;
        }
        self.rank(rank).saving = Saving::Done;
        if let Some(error) = error {
            self.forget_images(rank);
            self.say(format!("the log of rank {rank} cannot be kept for a replay: {error}"));
        }
        self.to_all(&ToNode::Release { rank });
    }

    /// At the end of the job: the logs that are not yet written. No rank runs any more.
    pub fn keep_logs(&mut self) {
        if !self.spec.keep || self.spec.ft != Ft::Logged || self.is_saved {
            return;
        }
        for rank in 0..self.size() {
            if self.unsaved(rank) {
                self.order_log(rank);
            }
        }
    }

    /// Whether all logs are written.
    pub fn logs_kept(&self) -> bool {
        self.ranks.iter().all(|r| r.saving != Saving::Running)
    }
}
