//! What of checkpoints is where: parts in other nodes' folders, and what the vault has, also of
//! nodes that are gone; and bringing a part to the process whose it is.
//!
//! Kept true: nothing is changed but that a part comes into this process's folder, whole.

use super::packet::Area;
use super::reach::{Exchange, Reach};
use super::{Apart, Assembly, share};
use crate::config::Config;
use crate::error::{RegionsError, file, note};
use crate::label::Label;
use crate::parity::{self, Held};
use crate::part::{create, publish, temporary};
use crate::peers::Peers;
use crate::store;
use eyrie_vault::Vault;
use eyrie_vault::disk::{Disk, Folder};
use eyrie_vault::geometry::CHUNK_BYTES;
use eyrie_vault::member::Member;
use eyrie_vault::record::Commit;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a folder's member tells of it: labels as texts.
#[derive(Serialize, Deserialize)]
struct Told {
    parts: Vec<String>,
    /// Which node of the vault it is, and what that has of which generation.
    node: Option<u32>,
    held: Vec<(u64, String)>,
    /// Generations of which it has no sound table.
    lacks: BTreeSet<u64>,
}

/// What was found out of a node's part of a generation that the node itself cannot tell.
type Made = (u64, u32, Result<Vec<String>, String>);

/// Parts of a checkpoint's name, wherever they are.
pub struct Found {
    vault: Option<Assembly<Folder>>,
    /// This process's folder, and through whom it is read.
    folder: PathBuf,
    leader: u32,
    /// Those in the vault.
    pub held: Vec<Held>,
    /// Those in folders, and the processes through which these are read.
    pub far: Vec<(u32, Label)>,
    /// Whether something of the vault is lost.
    pub lost: bool,
}

/// Finds out what there is. All processes call it together.
pub fn look(
    (peers, apart): (&Peers, &Apart),
    config: &Config,
    folder: &Path,
    name: &str,
) -> Result<Found, RegionsError> {
    let open = |path: &Path| Folder::open(path).ok().map(Ok);
    let vault = Assembly::open((peers, apart), config, folder, open, false)?;
    let own = if apart.leads(peers.rank) { Some(told(vault.as_ref(), folder, name)) } else { None };
    let told = share(peers, peers.all(own.transpose())?.as_ref())?;
    let mut found = Found {
        vault,
        folder: folder.into(),
        leader: apart.leader(),
        held: Vec::new(),
        far: Vec::new(),
        lost: false,
    };
    for (rank, told) in &told {
        let labels = told.parts.iter().filter_map(|text| Label::parse(text));
        found.far.extend(labels.map(|label| (*rank, label)));
        if let Some(node) = told.node {
            told.held.iter().for_each(|(generation, text)| found.add(*generation, node, text));
        }
    }
    let made = found.make_tables(peers, apart, &told)?;
    for (generation, node, made) in made {
        match made {
            Ok(texts) => texts.iter().for_each(|text| found.add(generation, node, text)),
            Err(why) => {
                found.lost = true;
                if peers.leads() {
                    note(0, &format!("the vault: {why}"));
                }
            }
        }
    }
    if peers.leads() {
        found.tell_losses();
    }
    found.held.retain(|held| held.label.name == name);
    Ok(found)
}

fn told(vault: Option<&Assembly<Folder>>, folder: &Path, name: &str) -> Result<Told, RegionsError> {
    let of_name = store::list(&store::parts(folder))?.into_iter().filter(|l| l.name == name);
    let parts = of_name.map(|label| label.to_string()).collect();
    let (labels, lacks) = vault.map(Assembly::labels).unwrap_or_default();
    let held = labels.into_iter().map(|(g, label)| (g, label.to_string())).collect();
    let node = vault.and_then(|vault| vault.member.as_ref()).map(Member::node);
    Ok(Told { parts, node, held, lacks: lacks.into_iter().collect() })
}

impl Found {
    fn add(&mut self, generation: u64, node: u32, text: &str) {
        let label = Label::parse(text);
        self.held.extend(label.map(|label| Held { label, generation, node }));
    }

    /// Tables of nodes that are gone, or have none, are made of the others' chunks: each by another
    /// member.
    fn make_tables(
        &self,
        peers: &Peers,
        apart: &Apart,
        told: &[(u32, Told)],
    ) -> Result<Vec<Made>, RegionsError> {
        let Some(vault) = &self.vault else { return Ok(Vec::new()) };
        let knows = |generation: u64, node: u32| {
            told.iter().any(|(_, t)| t.node == Some(node) && !t.lacks.contains(&generation))
        };
        let mut wanted = Vec::new();
        for (generation, commit) in &vault.commits {
            let nodes = commit.groups.iter().flatten().map(|summary| summary.node);
            wanted.extend(nodes.filter(|n| !knows(*generation, *n)).map(|n| (*generation, n)));
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let exchange = Exchange::new(peers, &self.folder);
        let mut made: Vec<Made> = Vec::new();
        for ((generation, node), maker) in wanted.into_iter().zip(apart.leaders.iter().cycle()) {
            if *maker == peers.rank {
                // Nobody leaves before all have what they want.
                let vault = self.vault_of(generation, &exchange);
                let manifest = vault.and_then(|mut vault| Ok(vault.manifest(generation, node)?));
                let names = manifest.map(|m| m.objects.into_iter().map(|o| o.name).collect());
                made.push((generation, node, names.map_err(|error| error.to_string())));
            }
        }
        exchange.finish()?;
        let all = share(peers, Some(&made))?;
        Ok(all.into_iter().flat_map(|(_, made)| made).collect())
    }

    /// One generation, over the folders of all of its nodes that are there.
    fn vault_of<'a>(
        &self,
        generation: u64,
        exchange: &'a Exchange<'a>,
    ) -> Result<Vault<Reach<'a>>, RegionsError> {
        let none = || RegionsError::Use(format!("generation {generation} is not there"));
        let vault = self.vault.as_ref().ok_or_else(none)?;
        let commit = vault.commits.get(&generation).cloned().ok_or_else(none)?;
        let path = store::member(&self.folder);
        let reach = |(node, rank): (&u32, &u32)| {
            let own = if *rank == self.leader { Folder::open(&path).ok() } else { None };
            let area = Area::Vault;
            (*node, own.map_or(Reach::There { exchange, rank: *rank, area }, Reach::Here))
        };
        let disks: BTreeMap<u32, Reach<'a>> = vault.leaders.iter().map(reach).collect();
        Ok(Vault::of(commit, disks))
    }

    /// Brings a part of the vault into this process's folder.
    pub fn fetch(&self, exchange: &Exchange<'_>, held: &Held) -> Result<PathBuf, RegionsError> {
        let mut vault = self.vault_of(held.generation, exchange)?;
        parity::fetch(&mut vault, held, &store::parts(&self.folder))
    }

    /// Brings a part here that lies in another node's folder.
    pub fn bring(
        &self,
        exchange: &Exchange<'_>,
        rank: u32,
        label: &Label,
    ) -> Result<PathBuf, RegionsError> {
        let name = label.to_string();
        let path = store::parts(&self.folder).join(&name);
        let partial = temporary(&path);
        let from = Reach::There { exchange, rank, area: Area::Parts };
        let work = || {
            let bytes = from.bytes(&name)?.unwrap_or(0);
            let (mut to, mut at) = (create(&partial)?, 0);
            while at < bytes {
                let mut piece = vec![0; (bytes - at).min(CHUNK_BYTES) as usize];
                from.read_at(&name, at, &mut piece)?;
                to.write_all(&piece)?;
                at += piece.len() as u64;
            }
            publish(&to, &partial, &path)
        };
        let done = work();
        if done.is_err() {
            // What went wrong is what counts.
            let _ = fs::remove_file(&partial);
        }
        done.map(|()| path.clone()).map_err(file("fetch", &path))
    }

    /// Says which generations are lost, and why.
    fn tell_losses(&self) {
        let Some(vault) = &self.vault else { return };
        let words = |nodes: &[u32]| nodes.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        for (generation, commit) in &vault.commits {
            let held = self.held.iter().filter(|held| held.generation == *generation);
            let of: BTreeSet<String> =
                held.map(|held| format!("{} {}", held.label.name, held.label.version)).collect();
            let of: Vec<String> = of.into_iter().collect();
            for (nodes, gone) in gone(commit, &vault.leaders) {
                if gone.len() > commit.scheme.tolerates() {
                    let (nodes, gone) = (words(&nodes), words(&gone));
                    let (may, of) = (commit.scheme.tolerates(), of.join(", "));
                    note(
                        0,
                        &format!(
                            "checkpoint {of} (generation {generation} of the vault, {}) is lost: \
                         of its nodes {nodes} the folders of {gone} are gone, and {may} may be",
                            commit.scheme
                        ),
                    );
                }
            }
        }
        if !vault.unknown.is_empty() {
            note(0, "the vault: too many nodes are gone to know whether the newest one is whole");
        }
    }
}

/// The nodes of each group, and those of them that are gone.
fn gone(commit: &Commit, there: &BTreeMap<u32, u32>) -> Vec<(Vec<u32>, Vec<u32>)> {
    let of = |group: &Vec<eyrie_vault::record::Summary>| {
        let nodes: Vec<u32> = group.iter().map(|summary| summary.node).collect();
        let gone = nodes.iter().copied().filter(|node| !there.contains_key(node)).collect();
        (nodes, gone)
    };
    commit.groups.iter().map(of).collect()
}
