//! Reading from the simulated vault. How images come into it: `real::vault`.
//!
//! Modelled: an image is there as long as no more of the nodes of its round are gone than it bears
//! (the vault's own tests simulate how it is encoded and committed).

use crate::types::Event;
use crate::world::{VAULT_BEARS, World};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::VAULT;

fn gone(members: &[Member], live: impl Fn(&Member) -> bool) -> usize {
    members.iter().filter(|m| !live(m)).count()
}

impl World {
    /// Whether the vault gives an image, as far as the controller knows who is gone.
    pub fn is_given(&self, image: &(u32, u32)) -> bool {
        let live = self.controller.planner.members();
        let gives = |members: &[Member]| gone(members, |m| live.contains(m)) as u64 <= VAULT_BEARS;
        self.vault.get(image).is_some_and(|(_, members)| gives(members))
    }

    /// Whether the vault gives it, and no node is known to have it: then it is copied nowhere.
    pub fn is_only_given(&self, image: &(u32, u32)) -> bool {
        let mut holders = self.controller.planner.holders(image.0, image.1);
        holders.all(|m| m == VAULT) && self.is_given(image)
    }

    /// A node reads the image that it was told to restore.
    pub fn unvault(&mut self, at: Member, rank: u32, generation: u32) {
        let Some(node) = self.nodes.get(&at) else { return };
        let wanted = node.orders.get(&rank).is_some_and(|o| o.0.generation == generation);
        let Some((image, members)) = self.vault.get(&(rank, generation)).filter(|_| wanted) else {
            return;
        };
        if node.disk.contains_key(&(rank, generation)) {
            return;
        }
        let bears = VAULT_BEARS as usize;
        if gone(members, |m| self.nodes.contains_key(m)) <= bears {
            let image = image.clone();
            self.report.unvaulted += 1;
            return self.written(at, rank, generation, image);
        }
        // As long as that is not known here it may be a matter of time; then another order follows.
        if gone(members, |m| node.members.contains(m)) <= bears {
            self.at(100, Event::Unvault { at, rank, generation });
        }
    }
}
