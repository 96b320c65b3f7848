//! All ranks begin anew, or return to what there is in place of the beginning.

use super::{Job, checkpoints, saving};
use eyrie_control::node::ToNode;

impl Job {
    /// All ranks go back to the beginning: new segments, no images, output up to here is not
    /// printed again.
    pub(super) fn restart_all(&mut self) {
        if self.go_back() || self.return_to_snapshot() {
            return;
        }
        self.forget_all();
        if self.renew_nodes() {
            self.start_all();
        }
    }

    /// Nothing of what was counts any more, but what is in the job's folder.
    pub(super) fn forget_all(&mut self) {
        self.forget_snapshots();
        self.stop_flush();
        self.pauses.clear();
        self.rollbacks += 1;
        self.planned = false;
        self.all_stay("all ranks went back to the beginning: ask again");
        self.forget_vault();
        self.gone.clear();
        self.forget_loans();
        for rank in 0..self.size() {
            self.forget_images(rank);
            if let Some(uncounted) = self.rank(rank).pending.take() {
                let generations = vec![uncounted.generation];
                self.to_all(&ToNode::Remove { rank, generations });
            }
            let r = self.rank(rank);
            (r.order, r.partner) = (None, None);
            r.retention.restart();
            r.latest = None;
            r.gone = false;
            r.capturing = None;
            r.saving = saving::Saving::No;
            r.falls = false;
            self.give_up_output(rank);
        }
        self.back_to_archive();
        self.units.forget_sets();
        let now = self.ranks_ms();
        self.scheduler = checkpoints::scheduler(&self.spec, now);
        self.tell_restart();
    }
}
