//! Which generations stay: collection of those that none needs, and consolidation, after which a
//! generation needs no other.

use super::{ReadError, Vault, VaultError, of};
use crate::disk::Disk;
use crate::record::Commit;
use std::collections::BTreeSet;

impl<D: Disk> Vault<D> {
    /// Removes all generations but those in `keep` and those that these refer to. Returns which.
    pub fn collect(&mut self, keep: &BTreeSet<u64>) -> Result<Vec<u64>, VaultError> {
        self.changes()?;
        let mut needed = BTreeSet::new();
        let mut open: Vec<u64> = keep.iter().copied().collect();
        while let Some(generation) = open.pop() {
            if needed.insert(generation) {
                let commit = self.commits.get(&generation);
                open.extend(commit.into_iter().flat_map(Commit::needs));
            }
        }
        let gone = |g: &u64| !needed.contains(g);
        let gone: Vec<u64> = self.commits.keys().copied().filter(gone).collect();
        // All know before anything goes, so that none is left with a part that it takes for whole.
        for (node, member) in &mut self.members {
            member.note_drop(&gone).map_err(of(*node))?;
        }
        for (node, member) in &mut self.members {
            member.drop_all(&gone).map_err(of(*node))?;
        }
        self.commits.retain(|generation, _| !gone.contains(generation));
        self.tables.retain(|(generation, _), _| !gone.contains(generation));
        Ok(gone)
    }

    /// Stores all objects of a generation anew, whole: so what it referred to can go.
    pub fn consolidate(&mut self, generation: u64) -> Result<u64, VaultError> {
        self.commit_of(generation)?;
        self.begin()?;
        if let Err(error) = self.copy_whole(generation) {
            self.give_up();
            return Err(error);
        }
        self.commit()
    }

    /// Adds all objects of a generation to the one that was begun.
    fn copy_whole(&mut self, generation: u64) -> Result<(), VaultError> {
        let groups = &self.commit_of(generation)?.groups;
        let nodes: Vec<u32> = groups.iter().flatten().map(|summary| summary.node).collect();
        // Of one that is not there nothing could be stored, and collection would take what there
        // is.
        if let Some(node) = nodes.iter().find(|node| !self.members.contains_key(node)) {
            return Err(VaultError::NoMember(*node));
        }
        for node in nodes {
            for object in self.manifest(generation, node)?.objects {
                self.member(node)?.open_object().map_err(of(node))?;
                let mut at = 0;
                while at < object.bytes {
                    let bytes = self.range(generation, node, &object, at)?;
                    at += bytes.len() as u64;
                    self.member(node)?.append(&bytes).map_err(of(node))?;
                }
                let hash = self.member(node)?.close_object(&object.name).map_err(of(node))?;
                if object.hash.is_some_and(|known| known != hash) {
                    let name = object.name;
                    return Err(ReadError::Object { generation, node, name }.into());
                }
            }
        }
        Ok(())
    }
}
