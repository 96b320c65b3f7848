//! What a simulated node does about a vault that the real controller leads.
//!
//! Real: the controller's rounds with their coordinator, and what it believes the vault to have.
//! Modelled: what nodes keep: the images of a round are there when all of its nodes have prepared
//! it, as long as no more of these are gone, or have dropped it, than the vault bears.

use crate::real::Happens;
use crate::types::*;
use crate::world::World;
use eyrie_control::VaultOrder;
use eyrie_control::VaultStep;
use eyrie_control::vault::Spent;
use eyrie_control::{self as control};
use eyrie_protocol::membership::Member;
use eyrie_vault::record::Summary;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Once in so many times that a node takes part in a round it dies; if it brings in what replaces
/// something, once in so many.
const IN_ROUND: u64 = 20;
const IN_LATER_ROUND: u64 = 5;

/// What a round has of an image, and the nodes that keep it.
type OfRound = (u64, Rc<Image>, Vec<Member>);

/// What nodes have prepared of each round, and who has.
#[derive(Clone, Default)]
pub struct Rounds {
    prepared: BTreeMap<u64, (Vec<Member>, Encoded)>,
    /// The round of each image that the vault has.
    of: BTreeMap<(u32, u32), u64>,
    /// What the round before has of it, as long as the later one may come to nothing.
    before: BTreeMap<(u32, u32), OfRound>,
}

impl World {
    pub fn obey_vault(&mut self, at: Member, order: VaultOrder) {
        match order {
            VaultOrder::Begin { generation, files, .. } => {
                self.rounds.prepared.entry(generation).or_default().0.retain(|m| *m != at);
                let older = |f: &(u32, u32)| self.vault.keys().any(|k| k.0 == f.0 && k.1 < f.1);
                let once = if files.iter().any(older) { IN_LATER_ROUND } else { IN_ROUND };
                if self.mutated(Mutation::CollectedEarly) {
                    let newer = |k: &(u32, u32)| files.iter().any(|f| f.0 == k.0 && f.1 > k.1);
                    self.vault.retain(|key, _| !newer(key));
                }
                self.begin_payload(at, generation, &files);
                if !files.is_empty() {
                    self.lose_in_round(at, once);
                }
            }
            VaultOrder::Encode { generation, .. } => {
                let summary = summary(at.node);
                let step = VaultStep::Prepared { summary, spent: Spent::default() };
                self.tell_vault(at, generation, step);
            }
            VaultOrder::Commit(commit) => {
                self.commit_round(commit.generation);
                self.tell_vault(at, commit.generation, VaultStep::Committed);
            }
            VaultOrder::Abort { generation } => self.drop_round(at, generation),
            VaultOrder::Drop { generations, .. } => {
                generations.into_iter().for_each(|generation| self.drop_round(at, generation));
            }
            VaultOrder::Scrub { .. } => {}
        }
    }

    /// A node that brings in what only it has: now and then it dies.
    fn lose_in_round(&mut self, at: Member, once: u64) {
        if self.faults_left > 0 && self.random.one_in(once) {
            let after = self.random.below(500);
            self.at(after, Event::Real(Happens::LoseThis { member: at }));
        }
    }

    pub fn tell_vault(&mut self, at: Member, generation: u64, step: VaultStep) {
        self.tell_real(at, control::FromNode::Vault { generation, step });
    }

    /// A node writes its payload: the files of these images.
    fn begin_payload(&mut self, at: Member, round: u64, files: &[(u32, u32)]) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let bad = files.iter().find(|f| node.disk.get(f).is_some_and(|s| s.bad)).copied();
        if let Some((rank, generation)) = bad {
            node.disk.remove(&(rank, generation));
            let why = String::from("its checksum is wrong");
            return self.tell_vault(at, round, VaultStep::Damaged { rank, generation, why });
        }
        let image = |f: &(u32, u32)| Some((f.0, f.1, node.disk.get(f)?.image.clone()));
        let Some(images) = files.iter().map(image).collect::<Option<Encoded>>() else {
            let why = String::from("an image is not there");
            return self.tell_vault(at, round, VaultStep::Failed(why));
        };
        let after = 50 + self.random.below(600);
        self.at(after, Event::Encoded { at, round, images });
    }

    /// It has.
    pub fn payload_written(&mut self, at: Member, round: u64, images: Encoded) -> VaultStep {
        let early = self.mutated(Mutation::VaultedEarly);
        // Brought in anew, as a node is gone or goes: for a mutation it is as safe as it was.
        let thin = self.mutated(Mutation::LeftThin) || self.mutated(Mutation::LeavesGuard);
        let again = |i: &(u32, u32, Rc<Image>)| thin && self.vault.contains_key(&(i.0, i.1));
        let images = images.into_iter().filter(|i| !early && !again(i)).collect::<Vec<_>>();
        if let Some(prepared) = self.rounds.prepared.get_mut(&round) {
            prepared.0.push(at);
            prepared.1.extend(images);
        }
        VaultStep::Offered { summary: summary(at.node), us: 100 }
    }

    /// All nodes of a round have prepared it, and one has the record that it exists.
    fn commit_round(&mut self, round: u64) {
        let Some((members, images)) = self.rounds.prepared.remove(&round) else { return };
        for (rank, generation, image) in images {
            let key = (rank, generation);
            let of = self.rounds.of.insert(key, round);
            let stored = self.vault.insert(key, (image, members.clone()));
            if let (Some(of), Some((image, members))) = (of.filter(|of| *of != round), stored) {
                self.rounds.before.insert(key, (of, image, members));
            }
        }
    }

    /// A node has nothing any more of a round.
    fn drop_round(&mut self, at: Member, round: u64) {
        self.rounds.prepared.remove(&round);
        let gives_up = |members: &mut Vec<Member>| {
            members.iter_mut().filter(|m| m.node == at.node).for_each(|m| m.epoch = 0);
        };
        let of_round = self.rounds.of.iter().filter(|(_, of)| **of == round);
        for image in of_round.map(|(image, _)| *image).collect::<Vec<_>>() {
            if let Some((of, stored, members)) = self.rounds.before.remove(&image) {
                self.rounds.of.insert(image, of);
                self.vault.insert(image, (stored, members));
            } else if let Some((_, members)) = self.vault.get_mut(&image) {
                gives_up(members);
            }
        }
        let before = self.rounds.before.values_mut().filter(|(of, ..)| *of == round);
        before.for_each(|(.., members)| gives_up(members));
    }

    /// A node keeps what it stored, and is this member from now on.
    pub fn renew_guard(&mut self, before: Member, now: Member) {
        let stored = self.vault.values_mut().map(|(_, members)| members);
        let earlier = self.rounds.before.values_mut().map(|(.., members)| members);
        let members = stored.chain(earlier).flatten();
        members.filter(|m| **m == before).for_each(|m| *m = now);
    }
}

fn summary(node: u32) -> Summary {
    let none = [0; 16];
    let (manifest_hash, parity_hash) = (none, none);
    Summary { node, payload: 10, manifest_bytes: 10, manifest_hash, parity_hash, needs: vec![] }
}
