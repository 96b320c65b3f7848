//! Jobs whose ranks come back alone, with copies in the other of two clusters (`--copies outside`),
//! or domains: all nodes of one may die at once.

use crate::types::Mutation;
use crate::world::World;
use eyrie_protocol::membership::Member;

impl World {
    /// Whether all that these hold is on others, too. Copies that were made while there was no
    /// other cluster stay where they are.
    pub fn is_copied_outside(&mut self, lost: &[Member]) -> bool {
        if !self.is_whole() {
            return false;
        }
        // What is not as it should be must not pass for a fault that is not borne.
        let (no_images, no_outcomes) =
            (self.mutated(Mutation::ImagesInRing), self.mutated(Mutation::OutcomesInRing));
        let outside = |m: &Member| !lost.contains(m);
        let nodes = || self.nodes.iter().filter(|n| outside(n.0));
        let images = (0u32..).zip(&self.controller.retention).all(|(rank, retention)| {
            let all = retention.newest_first().map(|k| k.generation).filter(|g| *g > 0);
            all.into_iter().all(|g| nodes().any(|(_, n)| n.disk.contains_key(&(rank, g))))
        });
        let held =
            |m: &Member| self.nodes.get(m).is_some_and(|n| n.gate.replicas().any(|m| outside(&m)));
        (images || no_images) && (no_outcomes || lost.iter().all(held))
    }
}
