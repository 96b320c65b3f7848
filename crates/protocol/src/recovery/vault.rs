//! Images in the vault: which losses of nodes it bears, and what it is to be given.
//!
//! Kept true: the vault counts among the holders of an image exactly as long as, of every group of
//! nodes that guards one of its files, no more are gone than that group bears; what is guarded by
//! less than that says, as nodes are gone or what they have is damaged, is brought in anew.

use super::{Action, Planner, Rank};
use crate::membership::Member;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Stands for the vault among the holders of an image. Never a live member, and behind all of
/// those.
pub const VAULT: Member = Member { node: u32::MAX - 1, epoch: 0 };

/// What makes an image safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rule {
    /// It lies on so many nodes.
    Copies(usize),
    /// The vault has it, as long as there are so many nodes; with fewer it lies on two.
    Vault { least: usize },
}

/// Nodes that together keep a file, and how many of them may be gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    pub members: Vec<Member>,
    pub tolerates: usize,
}

impl Guard {
    fn gone(&self, live: &[Member]) -> usize {
        self.members.iter().filter(|m| !live.contains(m)).count()
    }

    /// Nodes that were there `before` have new epochs, and keep what they stored. Who is gone stays
    /// as it was, also if an empty one has its number now.
    pub fn renew(&mut self, before: &[Member], live: &[Member]) {
        for member in self.members.iter_mut().filter(|m| before.contains(*m)) {
            let now = live.iter().find(|m| m.node == member.node);
            *member = now.copied().unwrap_or(*member);
        }
    }

    fn holds(&self, live: &[Member]) -> bool {
        self.gone(live) <= self.tolerates
    }
}

/// Whether a holder of an image is a node.
pub(super) fn is_node(member: &Member) -> bool {
    member.node < VAULT.node
}

impl Planner {
    /// The same with another rule than two copies.
    #[must_use]
    pub fn with_rule(self, rule: Rule) -> Planner {
        Planner { rule, ..self }
    }

    /// Whether images go to the vault, with the nodes that there are now.
    pub fn vaults(&self) -> bool {
        matches!(self.rule, Rule::Vault { least } if self.keepers().len() >= least)
    }

    /// On how many nodes images are to lie, if that is what makes them safe.
    pub(super) fn enough(&self) -> usize {
        let copies = match self.rule {
            Rule::Copies(copies) => copies,
            Rule::Vault { .. } => super::COPIES,
        };
        copies.min(self.members.len())
    }

    /// Whether an image with these holders is as safe as it is to be. One that only the vault has
    /// is not copied any more, also if there are too few nodes for that now.
    pub(super) fn is_safe(&self, holders: &BTreeSet<Member>) -> bool {
        let nodes = holders.iter().filter(|m| is_node(m)).count();
        let vaulted = holders.contains(&VAULT);
        if self.vaults() { vaulted } else { nodes >= self.enough() || (vaulted && nodes == 0) }
    }

    /// Images that the vault is to have, or to have anew because of what was lost or leaves since;
    /// each with a node that stays and has it.
    pub fn unguarded(&self) -> Vec<(u32, u32, Member)> {
        let mut all = Vec::new();
        let keepers = self.keepers();
        for (number, rank) in (0u32..).zip(&self.ranks).filter(|_| self.vaults()) {
            for (generation, holders) in rank.everywhere() {
                let mut stay = holders.iter().filter(|m| keepers.contains(m));
                let home = holders.get(&rank.home).filter(|m| keepers.contains(m));
                let Some(from) = home.or_else(|| stay.next()) else { continue };
                if *generation > 0 && !rank.is_guarded(*generation, &keepers) {
                    all.push((number, *generation, *from));
                }
            }
        }
        all
    }

    /// Whether the vault is to have an image anew without those that leave, and only they have it:
    /// it has to be copied to one that stays, which brings it in.
    pub(super) fn is_stranded(
        &self,
        rank: &Rank,
        generation: u32,
        holders: &BTreeSet<Member>,
    ) -> bool {
        let keepers = self.keepers();
        let stays = |m: &Member| keepers.contains(m);
        let leaves = |m: &Member| self.members.contains(m) && !stays(m);
        self.vaults()
            && generation > 0
            && holders.iter().any(leaves)
            && !holders.iter().any(stays)
            && !rank.is_guarded(generation, &keepers)
    }

    /// An image that only the vault has, and could not give without this member: rank and
    /// generation. Nothing reads it out but its rank's return, so the member stays until it is kept
    /// no more.
    pub fn detained_by(&self, member: &Member) -> Option<(u32, u32)> {
        let rest: Vec<Member> = self.members.iter().copied().filter(|m| m != member).collect();
        let of = |(number, rank)| {
            let all = Rank::everywhere(rank).filter(|i| i.1.iter().eq([&VAULT]));
            let mut needing = all.filter(|i| rank.is_broken(*i.0, &rest));
            needing.next().map(|(generation, _)| (number, *generation))
        };
        (0u32..).zip(&self.ranks).find_map(of)
    }

    /// The vault has an image: each of its files is kept by one of these.
    pub(super) fn vaulted(
        &mut self,
        rank: u32,
        generation: u32,
        guards: Vec<Guard>,
        todo: &mut Vec<Action>,
    ) {
        let r = &mut self.ranks[rank as usize];
        let mut known = r.holders_of(generation).peekable();
        // It may have been given up meanwhile, and nodes be gone.
        if known.peek().is_some() && guards.iter().all(|g| g.holds(&self.members)) {
            for holders in known {
                holders.insert(VAULT);
            }
            r.guards.insert(generation, guards);
            r.unsound.remove(&generation);
            self.balance(todo);
        }
    }

    /// The vault may not be able to give an image. It stays among those who have it: what is left
    /// is read when nobody else has it any more.
    pub(super) fn unsound(&mut self, rank: u32, generation: u32, todo: &mut Vec<Action>) {
        let r = &mut self.ranks[rank as usize];
        if r.guards.contains_key(&generation) {
            r.unsound.insert(generation);
            self.balance(todo);
        }
    }
}

impl Rank {
    /// Whether the vault had an image, and cannot give it with these nodes only.
    fn is_broken(&self, generation: u32, live: &[Member]) -> bool {
        let guards = self.guards.get(&generation);
        guards.is_some_and(|guards| guards.iter().any(|guard| !guard.holds(live)))
    }

    /// Whether the vault has an image, and all who guard it are among these, with what they stored.
    fn is_guarded(&self, generation: u32, live: &[Member]) -> bool {
        let whole = |g: &Guard| g.gone(live) == 0 && !self.unsound.contains(&generation);
        self.guards.get(&generation).is_some_and(|guards| guards.iter().all(whole))
    }

    /// Images that the vault cannot give any more, with the nodes that are left.
    pub(super) fn weaken(&mut self, live: &[Member]) {
        let broken = |g: &u32| self.is_broken(*g, live);
        let lost: Vec<u32> = self.guards.keys().copied().filter(broken).collect();
        lost.into_iter().for_each(|generation| self.unguard(generation));
    }

    pub(super) fn forget_guards(&mut self, generation: u32) {
        self.guards.remove(&generation);
        self.unsound.remove(&generation);
    }

    /// The vault has an image no more.
    pub(super) fn unguard(&mut self, generation: u32) {
        self.forget_guards(generation);
        for holders in self.holders_of(generation) {
            holders.remove(&VAULT);
        }
    }

    /// Who has an image, wherever that is noted.
    fn holders_of(&mut self, generation: u32) -> impl Iterator<Item = &mut BTreeSet<Member>> {
        let Rank { committed, pending, pinned, .. } = self;
        [committed, pending, pinned].into_iter().filter_map(move |all| all.get_mut(&generation))
    }
}

#[cfg(test)]
#[path = "vault_tests.rs"]
mod tests;
