//! What is told of the vault: what its rounds took, which encoder they had, what is where.

use crate::Job;
use crate::clock::{Moment, Now};
use crate::vault::Vaults;
use eyrie_control::vault::{Spent, Vaulted};
use eyrie_protocol::recovery::VAULT;
use eyrie_vault::layout::Place;
use eyrie_vault::record::{Commit, Summary};
use serde::{Deserialize, Serialize};

/// What a round took of its slowest nodes, in microseconds.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Costs {
    pub payload: u64,
    encode: u64,
    durable: u64,
    /// That were sent, by all.
    bytes: u64,
}

impl Costs {
    pub fn add(&mut self, spent: Spent) {
        self.encode = self.encode.max(spent.encode_us);
        self.durable = self.durable.max(spent.durable_us);
        self.bytes += spent.bytes;
    }

    /// What is told of a generation that these were the costs of.
    pub fn describe(&self, commit: &Commit, encoder: &str, begun: &Moment, clock: Now) -> String {
        let nodes: usize = commit.groups.iter().map(Vec::len).sum();
        let bytes: u64 = commit.groups.iter().flatten().map(|s| s.payload).sum();
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (scheme, spent) = (commit.scheme, self);
        let ms = begun.elapsed_ms(clock);
        let part = |us: u64| us as f64 / 1e3;
        format!(
            "{scheme} over {nodes} nodes, {:.1} MiB by {encoder} in {ms:.0} ms: payload {:.1} ms, \
         parity {:.1} ms ({:.1} MiB sent), durable {:.1} ms",
            mib(bytes),
            part(spent.payload),
            part(spent.encode),
            mib(spent.bytes),
            part(spent.durable),
        )
    }
}

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
