//! How what nodes have comes to where a whole job is restarted from, past the controller where that
//! can be.
//!
//! Kept true: what a node says that it has brought is taken for what it is of, and for nothing
//! else.

use super::Job;
use crate::depot::{Shared, StoreWay, There, Ways};
use crate::files;
use crate::home;
use eyrie_control::node::ToNode;
use eyrie_control::{Delivered, SavedWay, StoredFile, Way};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// A file in the folder of images by which nodes see that it is the same.
const PROBE: &str = ".probe";

/// How the ranks of a state were brought.
#[derive(Default)]
pub(super) struct Routes {
    /// By node: the way of its ranks, the slowest counts, and why it was no other.
    nodes: BTreeMap<u32, (Way, Option<String>)>,
    /// Ranks whose images are in the object store.
    stored: BTreeSet<u32>,
    files: Vec<StoredFile>,
    sent_bytes: u64,
}

impl Routes {
    /// A node has brought a rank.
    pub(super) fn take(&mut self, node: u32, rank: u32, said: Delivered) -> Result<(), String> {
        let images = format!("{}/", home::IMAGES);
        let of_rank = |file: &StoredFile| {
            let name = file.name.strip_prefix(&images).and_then(files::parse);
            let plain = !file.object.is_empty() && !file.object.contains("..");
            plain && name.is_some_and(|named| named.rank == rank)
        };
        if !said.files.iter().all(of_rank) {
            return Err(String::from("its node names files that are not the rank's"));
        }
        if said.way == Way::Store {
            self.stored.insert(rank);
            self.sent_bytes += said.sent_bytes;
            self.files.extend(said.files);
        }
        let known = self.nodes.entry(node).or_insert((said.way, None));
        if said.way <= known.0 {
            *known = (said.way, said.why);
        }
        Ok(())
    }

    /// Whether the images of a rank are in the object store.
    pub(super) fn is_stored(&self, rank: u32) -> bool {
        self.stored.contains(&rank)
    }

    /// What is there.
    pub(super) fn files(&self) -> &[StoredFile] {
        &self.files
    }

    pub(super) fn stored_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Bytes of these that nodes had to send.
    pub(super) fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// For `eyrie status`.
    pub(super) fn told(&self) -> Vec<SavedWay> {
        let told = |(node, (way, why)): (&u32, &(Way, Option<String>))| SavedWay {
            node: *node,
            way: way.to_string(),
            why: why.clone(),
        };
        self.nodes.iter().map(told).collect()
    }
}

impl fmt::Display for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |wanted: Way| self.nodes.values().filter(|(way, _)| *way == wanted).count();
        let words = [
            (by(Way::Store), "sent to the object store"),
            (by(Way::Folder), "written into the folder"),
            (by(Way::Controller), "brought through the controller"),
        ];
        let words = words.iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = words.map(|(count, how)| format!("{how} by {count}")).collect();
        write!(f, "{}", words.join(", "))
    }
}

impl Job {
    /// Tells all nodes how what they are going to bring may come past the controller. `there`: what
    /// is in the object store, if it is to go there.
    pub(super) fn offer_ways(&mut self, attempt: u32, there: Option<There>) {
        let Some(crew) = &self.crew else { return };
        let job = crew.secret.key().clone();
        let store = there.as_ref().and_then(|_| {
            let way = StoreWay::new(&self.depot_place(), self.spec.save_key.as_deref());
            way.map_err(|error| tracing::warn!(%error, "nodes do not reach the store")).ok()
        });
        let folder = self.write_probe();
        let folder = folder.map_err(|error| tracing::warn!(%error, "nodes get no probe")).ok();
        let homes: Vec<u32> = (0..self.size()).map(|rank| self.placement.home(rank)).collect();
        let nodes: BTreeSet<u32> = homes.iter().copied().collect();
        // All of them together send no more than that.
        let share = self.spec.save_rate_bytes.div_ceil(nodes.len().max(1) as u64);
        for node in nodes {
            let of_node = |rank: u32| homes.get(rank as usize) == Some(&node);
            let there = there.as_ref().map(|all| all.of_ranks(of_node)).unwrap_or_default();
            let (store, folder) = (store.clone(), folder.clone());
            match (Ways { store, rate_bytes: share, there, folder }).sealed(&job) {
                Ok(sealed) => {
                    self.nodes[node as usize].send(ToNode::Ways { attempt, sealed });
                }
                Err(error) => tracing::warn!(%error, "images go through the controller"),
            }
        }
    }

    /// Writes a file by which nodes see whether they see the job's folder.
    fn write_probe(&self) -> std::io::Result<Shared> {
        let images = self.images();
        let content = eyrie_vault::disk::random()?;
        eyrie_image::write_private(&images.join(PROBE), &content)?;
        let folder = images.as_os_str().as_bytes().to_vec();
        Ok(Shared { folder, probe: String::from(PROBE), content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::node::Determinants;

    fn said(way: Way, why: Option<&str>, names: &[&str]) -> Delivered {
        let file = |name: &&str| StoredFile {
            name: name.to_string(),
            object: format!("data/{name}"),
            bytes: 10,
            hash: String::new(),
        };
        let (why, files) = (why.map(String::from), names.iter().map(file).collect());
        Delivered { determinants: Determinants::default(), way, why, files, sent_bytes: 7 }
    }

    #[test]
    fn what_a_node_says_is_of_the_rank_it_says_it_of() {
        let mut routes = Routes::default();
        let own = ["images/rank-3.gen-2", "images/rank-3.gen-2.log"];
        routes.take(0, 3, said(Way::Store, None, &own)).unwrap();
        for wrong in ["images/rank-4.gen-2", "saved", "rank-3.gen-2", "images/../saved", ""] {
            assert!(routes.take(0, 3, said(Way::Store, None, &[wrong])).is_err(), "{wrong}");
        }
        assert!(routes.is_stored(3) && !routes.is_stored(4));
        assert_eq!((routes.stored_bytes(), routes.sent_bytes()), (20, 7));
        routes.take(1, 4, said(Way::Controller, Some("no route"), &[])).unwrap();
        routes.take(1, 5, said(Way::Store, None, &[])).unwrap();
        let told = routes.told();
        assert_eq!((told[0].way.as_str(), &told[0].why), ("store", &None));
        let (way, why) = (told[1].way.as_str(), told[1].why.as_deref());
        assert_eq!((way, why), ("controller", Some("no route")));
        let text = "sent to the object store by 1, brought through the controller by 1";
        assert_eq!(routes.to_string(), text);
    }
}
