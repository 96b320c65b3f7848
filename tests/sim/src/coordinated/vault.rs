//! The vault of a simulated job whose ranks go back together: rounds in which nodes bring the
//! images of a snapshot into it, and reading from it.
//!
//! Real: the planner. Modelled: an image is there as long as no more of the nodes of its round are
//! gone than the vault bears; what a round makes is there as a whole or not at all.

use super::world::{Mistake, World};
use super::*;
use eyrie_protocol::recovery::{Guard, Input, VAULT};

/// In the place of a node that has forgotten what it kept.
const NOBODY: u32 = u32::MAX;

/// Images that are being brought in.
#[derive(Debug, Clone)]
pub(super) struct Round {
    number: u64,
    images: Vec<Key>,
    members: Vec<Member>,
    heard: BTreeMap<u32, Encoded>,
}

/// An image in the vault, and the nodes that keep it.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    image: Rc<Image>,
    members: Vec<u32>,
}

impl World {
    /// How many nodes of a round may be gone.
    pub fn bears(&self) -> u64 {
        self.bears.unwrap_or(1)
    }

    /// How many of the nodes that keep an image are gone.
    fn gone(&self, kept: &Kept) -> u64 {
        kept.members.iter().filter(|n| !self.nodes.contains_key(n)).count() as u64
    }

    /// How many of the nodes that keep an image are gone, as far as the controller knows.
    pub fn gone_of(&self, key: &Key) -> u64 {
        let live = self.controller.planner.members();
        let gone = |n: &&u32| !live.iter().any(|m| m.node == **n);
        let all = |kept: &Kept| kept.members.iter().filter(gone).count() as u64;
        self.vault.get(key).map_or(u64::MAX, all)
    }

    /// Whether the vault gives an image, as far as the controller knows who is gone.
    pub fn is_given(&self, key: &Key) -> bool {
        self.gone_of(key) <= self.bears()
    }

    /// Whether the vault gives it, and no node is known to have it: then it is copied nowhere.
    pub fn is_only_given(&self, key: &Key) -> bool {
        self.controller.planner.holders(key.0, key.1).eq([VAULT]) && self.is_given(key)
    }

    /// How many losses the vault has borne already of the images of a snapshot, at most.
    pub fn borne_of(&self, generation: u32) -> u64 {
        let of = |rank| self.vault.get(&(rank, generation)).map_or(0, |kept| self.gone(kept));
        (0..self.ranks()).map(of).max().unwrap_or(0)
    }

    /// Whether a node is one of those that keep an image.
    pub fn is_kept_by(&self, key: &Key, node: u32) -> bool {
        self.vault.get(key).is_some_and(|kept| kept.members.contains(&node))
    }

    /// A node has forgotten all that it had.
    pub fn forget_in_vault(&mut self, node: u32) {
        let nodes = self.vault.values_mut().flat_map(|kept| &mut kept.members);
        nodes.filter(|n| **n == node).for_each(|n| *n = NOBODY);
    }

    /// A node is gone, and with it what it was bringing in.
    pub fn vault_loses(&mut self, member: Member) {
        self.controller.round.take_if(|round| round.members.contains(&member));
    }

    /// Whether all images of a snapshot can be read out of the vault.
    pub fn is_vaulted(&self, generation: u32) -> bool {
        let there = |rank| self.vault.get(&(rank, generation));
        let can = |rank| there(rank).is_some_and(|kept| self.gone(kept) <= self.bears());
        (0..self.ranks()).all(can)
    }

    /// Begins a round if there is something to bring in, and no snapshot is being written.
    pub fn begin_round(&mut self) {
        let c = &self.controller;
        let images = c.planner.unguarded();
        if c.round.is_some() || c.writes_snapshot() || !c.planner.placed() || images.is_empty() {
            return;
        }
        let members = c.planner.keepers();
        self.controller.rounds += 1;
        let number = self.controller.rounds;
        for to in &members {
            let its = images.iter().filter(|i| i.2 == *to).map(|i| (i.0, i.1)).collect();
            self.say_to(to.node, ToNode::Vault { round: number, images: its });
        }
        let images: Vec<Key> = images.into_iter().map(|i| (i.0, i.1)).collect();
        self.trace(|| format!("round {number} of {images:?}"));
        let round = Round { number, images, members, heard: BTreeMap::new() };
        if self.makes(Mistake::VaultedEarly) {
            self.count_images(&round);
        }
        if self.makes(Mistake::CollectedEarly)
            && let Some(oldest) = round.images.iter().map(|i| i.1).max()
        {
            self.vault.retain(|key, _| key.1 >= oldest);
        }
        self.controller.round = Some(round);
        self.fault_nearby(6);
    }

    /// A node is told to bring images in.
    pub fn encode(&mut self, at: Member, round: u64, images: &[Key]) {
        let Some(node) = self.nodes.get(&at.node) else { return };
        let bad = images.iter().find(|i| node.disk.get(i).is_some_and(|s| s.bad)).copied();
        let found = images.iter().map(|key| Some((*key, Rc::clone(&node.disk.get(key)?.image))));
        let found: Option<Encoded> = found.collect();
        if let Some((rank, generation)) = bad {
            self.say(at, FromNode::ImageBad { rank, incarnation: 0, generation, at });
        }
        match found.filter(|_| bad.is_none()) {
            Some(images) => {
                let after = 50 + self.random.below(600);
                self.at(after, Event::Encoded { at, round, images });
            }
            None => self.say(at, FromNode::Vaulted { round, images: None }),
        }
    }

    /// A node has made its part of a round.
    pub fn encoded(&mut self, at: Member, round: u64, images: Encoded) {
        if self.nodes.get(&at.node).is_some_and(|n| n.own == at) {
            self.say(at, FromNode::Vaulted { round, images: Some(images) });
        }
    }

    /// A node has brought in what it was to, or could not.
    pub fn heard_round(&mut self, from: Member, number: u64, images: Option<Encoded>) {
        let Some(round) = self.controller.round.as_mut().filter(|r| r.number == number) else {
            return;
        };
        let Some(images) = images else {
            self.controller.round = None;
            return;
        };
        round.heard.insert(from.node, images);
        if round.heard.len() < round.members.len() {
            return;
        }
        let Some(round) = self.controller.round.take() else { return };
        let members: Vec<u32> = round.members.iter().map(|m| m.node).collect();
        for (key, image) in round.heard.values().flatten() {
            let kept = Kept { image: Rc::clone(image), members: members.clone() };
            self.vault.insert(*key, kept);
        }
        self.report.rounds += 1;
        self.trace(|| format!("{:?} are in the vault", round.images));
        self.count_images(&round);
        let newest = self.controller.newest();
        let all = |rank| self.vault.get(&(rank, newest)).is_some_and(|k| self.gone(k) == 0);
        if newest > 0 && (0..self.ranks()).all(all) {
            self.losses = 0;
        }
    }

    fn count_images(&mut self, round: &Round) {
        for (rank, generation) in round.images.iter().copied() {
            let tolerates = self.bears() as usize;
            let guards = vec![Guard { members: round.members.clone(), tolerates }];
            self.input(Input::Vaulted { rank, generation, guards });
        }
    }

    /// A node reads the image that it was told to restore. Outer `None`: it is not known yet that
    /// too much is gone; inner: it is not there.
    pub fn unvault(&mut self, at: Member, order: &RestoreOrder) -> Option<Option<Rc<Image>>> {
        let Some(kept) = self.vault.get(&(order.rank, order.generation)) else {
            return Some(None);
        };
        if self.gone(kept) <= self.bears() {
            let image = Rc::clone(&kept.image);
            self.report.unvaulted += 1;
            return Some(Some(image));
        }
        let node = self.nodes.get(&at.node).filter(|n| n.own == at)?;
        let lost = |n: &&u32| node.members.iter().all(|m| m.node != **n);
        let known = kept.members.iter().filter(lost).count() as u64;
        if known <= self.bears() {
            self.at(100, Event::Fetched { at, order: order.clone() });
        }
        None
    }
}
