//! Jobs whose ranks come back alone, with copies in the other of two clusters (`--copies outside`),
//! or domains: all nodes of one may die at once.

use crate::types::Mutation;
use crate::world::World;
use eyrie_protocol::membership::{Member, Neighbours};

impl World {
    /// Copies of images and outcomes are in the other cluster, or of nodes that fail together in
    /// the other half.
    pub fn copy_outside(&mut self, nodes: u32) {
        let of: Vec<u32> = (0..nodes).map(|node| node * 2 / nodes).collect();
        self.sites = Neighbours::new(2, of.clone(), true);
        let copies = match self.random.one_in(2) {
            true => self.sites.clone(),
            false => Neighbours::default().with_domains(of),
        };
        if !self.mutated(Mutation::OutcomesInRing) {
            self.neighbours = copies.clone();
        }
        if !self.mutated(Mutation::ImagesInRing) {
            let planner = self.controller.planner.clone();
            self.controller.planner = planner.with_neighbours(copies);
        }
    }

    /// All nodes of a cluster die, if another one is left. Whether they did.
    pub fn lose_cluster(&mut self) -> bool {
        let cluster = self.random.below(2) as u32;
        let there = |m: &&Member| self.sites.cluster(m.node) == cluster;
        let (lost, left): (Vec<&Member>, Vec<&Member>) = self.nodes.keys().partition(there);
        if lost.is_empty() || left.is_empty() {
            return false;
        }
        let lost: Vec<Member> = lost.into_iter().copied().collect();
        let deaths = self.truth.deaths;
        let one = self.is_copied_outside(&lost);
        self.trace(|| format!("FAULT cluster {cluster} is lost"));
        for &member in &lost {
            self.count_death();
            self.perish(member);
        }
        if one {
            self.truth.deaths = deaths + 1;
        }
        true
    }

    /// Whether all that these hold is on others, too. Copies that were made while there was no
    /// other cluster stay where they are.
    pub fn is_copied_outside(&mut self, lost: &[Member]) -> bool {
        let ring = self.mutated(Mutation::ImagesInRing) || self.mutated(Mutation::OutcomesInRing);
        if !self.is_whole() || ring {
            // Where it is not as it should be it must not pass for a fault that is not borne.
            return ring && self.is_whole();
        }
        let outside = |m: &Member| !lost.contains(m);
        let nodes = || self.nodes.iter().filter(|n| outside(n.0));
        let images = (0u32..).zip(&self.controller.retention).all(|(rank, retention)| {
            let all = retention.newest_first().map(|k| k.generation).filter(|g| *g > 0);
            all.into_iter().all(|g| nodes().any(|(_, n)| n.disk.contains_key(&(rank, g))))
        });
        let held =
            |m: &Member| self.nodes.get(m).is_some_and(|n| n.gate.replicas().any(|m| outside(&m)));
        images && lost.iter().all(held)
    }
}
