//! All ranks begin anew, or return to what there is in place of the beginning.

use crate::Job;
use crate::checkpoints::model;
use crate::saving::model::LogSaving;
use eyrie_control::node::ToNode;

impl Job {
    /// All ranks go back to the beginning: new segments, no images, output up to here is not
    /// printed again.
    pub(crate) fn restart_all(&mut self) {
        if self.go_back() || self.return_to_snapshot() {
            return;
        }
        self.forget_all();
        if self.renew_nodes() {
            self.start_all();
        }
    }

    /// Nothing of what was counts any more, but what is in the job's folder.
    pub(crate) fn forget_all(&mut self) {
        self.forget_snapshots();
        self.stop_flush();
        self.checkpoints.router_pauses.clear();
        self.recovery.rollbacks += 1;
        self.recovery.planned = false;
        self.all_stay("all ranks went back to the beginning: ask again");
        self.forget_vault();
        self.recovery.lost_images.clear();
        self.forget_loans();
        for rank in 0..self.size() {
            self.forget_images(rank);
            if let Some(uncounted) = self.ranks.rank(rank).pending.take() {
                let generations = vec![uncounted.generation];
                self.nodes.to_all(&ToNode::Remove { rank, generations });
            }
            let r = self.ranks.rank(rank);
            (r.restore.order, r.capture.partner) = (None, None);
            r.retention.restart();
            r.latest = None;
            r.gone = false;
            r.capture.generation = None;
            r.saving = LogSaving::No;
            r.falls = false;
            self.give_up_output(rank);
        }
        self.back_to_archive();
        self.checkpoints.units.forget_under_way();
        let now = self.ranks_ms();
        self.checkpoints.scheduler = model::scheduler(&self.spec, now);
        self.tell_restart();
    }
}
