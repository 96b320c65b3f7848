//! The simulated vault: rounds in which nodes bring images into it, and reading from it.
//!
//! Real: the planner, which says what is to be brought in and what can be had. Modelled: how it is
//! encoded and committed (the vault's own tests simulate that): an image is there as long as no
//! more of the nodes of its round are gone than it bears.

use crate::types::*;
use crate::world::{VAULT_BEARS, World};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Guard, Input, VAULT};
use std::collections::BTreeMap;

/// Images that are being brought in.
#[derive(Debug, Clone)]
pub struct Round {
    number: u64,
    images: Vec<(u32, u32)>,
    members: Vec<Member>,
    /// What nodes have brought in.
    heard: BTreeMap<Member, Encoded>,
}

fn gone(members: &[Member], live: impl Fn(&Member) -> bool) -> usize {
    members.iter().filter(|m| !live(m)).count()
}

impl World {
    /// Brings into the vault what is to be there, if nothing else is under way.
    pub fn begin_round(&mut self) {
        let planner = &self.controller.planner;
        let images = planner.unguarded();
        let busy = self.controller.round.is_some() || !planner.placed();
        if busy || images.is_empty() {
            return;
        }
        let members = planner.keepers();
        if self.mutated(Mutation::LeftThin) {
            let there = |i: &&(u32, u32, Member)| self.vault.contains_key(&(i.0, i.1));
            let thin: Vec<(u32, u32)> = images.iter().filter(there).map(|i| (i.0, i.1)).collect();
            if !thin.is_empty() {
                return self.count_images(&thin, &members);
            }
        }
        self.controller.rounds += 1;
        let number = self.controller.rounds;
        for to in &members {
            let its = images.iter().filter(|i| i.2 == *to);
            let images = its.map(|(rank, generation, _)| (*rank, *generation)).collect();
            self.say_to(*to, ToNode::Vault { round: number, images });
        }
        let images: Vec<(u32, u32)> = images.into_iter().map(|i| (i.0, i.1)).collect();
        let heard = BTreeMap::new();
        let round = Round { number, images, members, heard };
        if self.mutated(Mutation::VaultedEarly) {
            self.count_round(&round);
        }
        self.controller.round = Some(round);
        self.fault_nearby(8);
    }

    /// A node is told to bring images in.
    pub fn encode(&mut self, at: Member, round: u64, images: &[(u32, u32)]) {
        let Some(node) = self.nodes.get(&at) else { return };
        let bad = images.iter().find(|i| node.disk.get(i).is_some_and(|s| s.bad)).copied();
        let found = images.iter().map(|(rank, generation)| {
            let stored = node.disk.get(&(*rank, *generation))?;
            Some((*rank, *generation, stored.image.clone()))
        });
        let found: Option<Encoded> = found.collect();
        if let Some((rank, generation)) = bad {
            self.tell(at, FromNode::ImageBad { rank, incarnation: 0, generation, at });
        }
        match found.filter(|_| bad.is_none()) {
            Some(images) => {
                let after = 50 + self.random.below(600);
                self.at(after, Event::Encoded { at, round, images });
            }
            None => self.tell(at, FromNode::Vaulted { round, images: None }),
        }
    }

    /// A node has brought in what it was to, or could not. All or nothing is in.
    pub fn encoded(&mut self, from: Member, number: u64, images: Option<Encoded>) {
        let Some(round) = self.controller.round.as_mut().filter(|r| r.number == number) else {
            return;
        };
        let Some(images) = images else {
            self.controller.round = None;
            return;
        };
        round.heard.insert(from, images);
        if round.heard.len() < round.members.len() {
            return;
        }
        let Some(round) = self.controller.round.take() else { return };
        for (rank, generation, image) in round.heard.values().flatten() {
            let entry = (image.clone(), round.members.clone());
            self.vault.insert((*rank, *generation), entry);
        }
        self.trace(|| format!("{:?} are in the vault", round.images));
        self.count_round(&round);
    }

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

    fn count_round(&mut self, round: &Round) {
        self.count_images(&round.images, &round.members);
    }

    fn count_images(&mut self, images: &[(u32, u32)], members: &[Member]) {
        for (rank, generation) in images.iter().copied() {
            let tolerates = VAULT_BEARS as usize;
            let guards = vec![Guard { members: members.to_vec(), tolerates }];
            self.planner(Input::Vaulted { rank, generation, guards });
        }
    }

    /// A node is gone, and with it what it was bringing in.
    pub fn vault_loses(&mut self, member: Member) {
        self.controller.round.take_if(|r| r.members.contains(&member));
    }

    pub fn forget_vault(&mut self) {
        self.controller.round = None;
        self.vault.clear();
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
