//! What is told of the vault: what its rounds took, which encoder they had, what is where.

use crate::Job;
use crate::vault::model::Vaults;
use eyrie_control::vault::Vaulted;
use eyrie_protocol::recovery::VAULT;
use eyrie_vault::layout::Place;
use eyrie_vault::record::{Commit, Summary};

impl Vaults {
    /// Which encoder the newest generation was made with, and why.
    pub fn vault_encoder(&self) -> Option<String> {
        self.encoder.clone()
    }

    /// Where the vault has the files of an image.
    pub fn in_vault(&self, rank: u32, files: &[u32]) -> Vec<Vaulted> {
        let place = |file: &u32| {
            let (generation, node, _) = self.place((rank, *file))?;
            let (group, _) = generation.commit.place(node)?;
            // Of many nodes the others would be nearly all of it.
            let only = |(number, its): (usize, &Vec<Summary>)| match number == group {
                true => its.clone(),
                false => Vec::new(),
            };
            let groups = generation.commit.groups.iter().enumerate().map(only).collect();
            let Commit { vault, generation, term, scheme, made, .. } = generation.commit;
            let why = String::new();
            let commit = Commit { vault, generation, term, scheme, made, why, groups };
            Some(Vaulted { file: *file, node, commit: Box::new(commit) })
        };
        files.iter().filter_map(place).collect()
    }
}

impl Job {
    /// What a node fails together with.
    pub(crate) fn vault_place(&self, node: u32) -> Place {
        let cluster = self.spec.placement.clusters.of(node);
        let cluster =
            self.spec.placement.clusters.names.get(cluster as usize).cloned().unwrap_or_default();
        Place { cluster, switch: self.spec.storage.manner.domain(node).to_string(), node }
    }

    /// What the vault adds to what a checkpoint takes.
    pub(crate) fn vault_cost_ms(&self) -> f64 {
        if self.spec.is_vaulted() { self.vaults.took_ms } else { 0.0 }
    }

    /// The vault's generation that protects the newest image of a rank.
    pub(crate) fn vault_generation(&self, rank: u32) -> Option<u64> {
        let newest = self.ranks.all[rank as usize].retention.newest()?.generation;
        let mut holders = self.recovery.planner.as_ref()?.holders(rank, newest);
        holders.find(|m| *m == VAULT)?;
        self.vaults.files.get(&(rank, newest)).map(|(generation, _)| *generation)
    }
}
