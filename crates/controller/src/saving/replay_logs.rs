//! `eyrie run --keep`: the logs of the ranks, saved beside their images for `eyrie replay`.
//!
//! Kept true: a log is written when its rank has ended, and the channels to it are released only
//! after that; what cannot be written is told and costs the job nothing.

use crate::Job;
use crate::saving::model::LogSaving;
use eyrie_control::node::{ToNode, Written};

impl Job {
    /// Begins to write the log of a rank that has ended, if there is an image to go with it.
    pub(crate) fn save_log(&mut self, rank: u32) {
        if self.ranks.unsaved(rank) {
            return self.order_log(rank);
        }
        self.nodes.to_all(&ToNode::Release { rank });
    }

    fn order_log(&mut self, rank: u32) {
        let r = self.ranks.rank(rank);
        r.saving = LogSaving::Running;
        // From the older of the kept images on.
        let floor = r.retention.floor().clone();
        let output = [0, 1].map(|i| {
            let (first, bytes) = r.tapes[i].history();
            Written { first, bytes }
        });
        let (need, det_pos) = (floor.need, floor.det_pos);
        self.nodes.to_home(rank, ToNode::SaveLog { rank, need, det_pos, output });
    }

    /// The log of a rank is written: what it held in the others' logs is free now.
    pub(crate) fn log_saved(&mut self, rank: u32, error: Option<String>) {
        if self.ranks.rank(rank).saving != LogSaving::Running {
            return;
        }
        self.ranks.rank(rank).saving = LogSaving::Done;
        if let Some(error) = error {
            self.forget_images(rank);
            self.journal
                .say(format!("the log of rank {rank} cannot be kept for a replay: {error}"));
        }
        self.nodes.to_all(&ToNode::Release { rank });
    }

    /// At the end of the job: the logs that are not yet written. No rank runs any more.
    pub fn keep_logs(&mut self) {
        let alone = self.spec.protection.ft.goes_back_alone();
        if !self.spec.storage.keep || !alone || self.saving.is_saved {
            return;
        }
        for rank in 0..self.size() {
            if self.ranks.unsaved(rank) {
                self.order_log(rank);
            }
        }
    }

    /// At the end of the job a node is gone: the logs that it was writing are not.
    pub(crate) fn logs_lost(&mut self, node: u32, why: &str) {
        for rank in self.nodes.placement.ranks_on(node) {
            self.log_saved(rank, Some(why.to_string()));
        }
    }

    /// Whether all logs are written.
    pub fn logs_kept(&self) -> bool {
        self.ranks.all.iter().all(|r| r.saving != LogSaving::Running)
    }
}
