//! Images that are needed no more: nothing that was known of them stays.

use super::{Phase, Planner};

impl Planner {
    pub(super) fn dropped(&mut self, rank: u32, generation: u32) {
        let r = &mut self.ranks[rank as usize];
        r.committed.remove(&generation);
        r.pending.remove(&generation);
        if !r.pinned.contains_key(&generation) {
            r.forget_guards(generation);
        }
        self.copying.retain(|c, _| (c.0, c.1) != (rank, generation));
    }

    /// Nothing of a rank that has ended is.
    pub(super) fn release(&mut self, rank: u32) {
        let r = &mut self.ranks[rank as usize];
        if r.phase == Phase::Done {
            r.phase = Phase::Released;
            r.committed.clear();
            r.pending.clear();
            r.guards.clear();
            r.unsound.clear();
            self.copying.retain(|c, _| c.0 != rank);
        }
    }
}
