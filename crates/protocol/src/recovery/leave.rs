//! Nodes that leave while the job goes on, in order.
//!
//! The steps: *leaving* (nothing new is put on the node; every gate looks for replicas that stay,
//! and its node says when they have all: `Guarded`), *standing* (the controller brings its ranks to
//! stand, each with an image of that moment that counts), *moving* (their processes end; they come
//! back elsewhere as those of a lost node do, but the node is there to answer and to give images),
//! *gone* (nothing of the job hangs on it any more: it is dismissed). Members that are to leave
//! together do so as one *party*: the ranks of all of them move at one time. With a rank of a
//! recovery unit the whole unit does: all of it stands with one set, and comes back from that,
//! those of nodes that stay where they were. Where all ranks go back together all of them stand,
//! and go back to that set with other homes: nobody leaves a node in another way then. A member
//! that is dismissed may join again under another epoch: so ranks migrate from nodes that stay.
//!
//! Kept true: at each moment the node may be lost, or any other one, as if nothing left; a node is
//! dismissed only when all ranks are in their places, every image is as safe without the leaving
//! as it is to be, or, if only the vault has it, is still given by that, and every gate's outcomes
//! are held by nodes that stay. If nobody is left who stays, nobody leaves. Who waits only for
//! images to be kept no more can stay.

use super::{Action, COPIES, Input, Phase, Planner, Rule};
use crate::membership::Member;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How far a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Its ranks are brought to stand.
    Stopping,
    /// All of them stand for good.
    Standing,
    /// They come back elsewhere.
    Moving,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Leave {
    stage: Stage,
    party: u64,
}

/// The nodes that leave.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Leaves {
    nodes: BTreeMap<Member, Leave>,
    /// Number of the latest `Leaving`.
    round: u64,
    /// Who has not answered that.
    exposed: BTreeSet<Member>,
    /// Number of the latest party.
    party: u64,
    /// Where ranks are to go, best first, until they run on a node that stays.
    wishes: BTreeMap<u32, Vec<Member>>,
}

impl Planner {
    /// How far a member is that leaves.
    pub fn leaves(&self, member: &Member) -> Option<Stage> {
        self.leaves.nodes.get(member).map(|l| l.stage)
    }

    /// Those that leave.
    pub fn leaving(&self) -> impl Iterator<Item = Member> {
        self.leaves.nodes.keys().copied()
    }

    /// Those that stay.
    pub fn keepers(&self) -> Vec<Member> {
        self.members.iter().copied().filter(|m| self.leaves(m).is_none()).collect()
    }

    /// Those of them that ranks may be brought to.
    pub fn takers(&self) -> Vec<Member> {
        self.members.iter().copied().filter(|m| self.takes(m)).collect()
    }

    /// Whether a member stays and is no router.
    fn takes(&self, member: &Member) -> bool {
        self.leaves(member).is_none() && !self.units.log_at().is_router(member.node)
    }

    /// Whether every gate has replicas that stay.
    pub fn is_guarded(&self) -> bool {
        self.leaves.exposed.is_empty()
    }

    /// On how many of the nodes that stay images are to lie.
    fn enough_stay(&self) -> usize {
        let copies = match self.rule {
            Rule::Copies(copies) => copies,
            Rule::Vault { .. } => COPIES,
        };
        copies.min(self.keepers().len())
    }

    /// What concerns leaving.
    pub(super) fn take_leave(&mut self, input: &Input, todo: &mut Vec<Action>) {
        match *input {
            Input::Leave { ref members, ref wishes } => self.leave(members, wishes, todo),
            Input::Stay { member } if self.may_stay(&member) => {
                self.leaves.nodes.remove(&member);
                let home = |rank: &u32| self.ranks[*rank as usize].home;
                let other = self.leaves.wishes.keys().filter(|r| home(r) != member);
                let other: BTreeSet<u32> = other.copied().collect();
                self.leaves.wishes.retain(|rank, _| other.contains(rank));
                self.tell_leaving(todo);
                self.balance(todo);
            }
            Input::Stands { member } => {
                if let Some(leave) = self.leaves.nodes.get_mut(&member)
                    && leave.stage == Stage::Stopping
                {
                    leave.stage = Stage::Standing;
                }
            }
            Input::Guarded { from, round } if round == self.leaves.round => {
                self.leaves.exposed.remove(&from);
            }
            _ => {}
        }
    }

    /// All are going back, and only who does not leave then is of any meaning: by its node, as the
    /// epochs may be new ones already.
    pub(super) fn take_late(&mut self, input: &Input) {
        if let Input::Stay { member } = input {
            self.leaves.nodes.retain(|m, _| m.node != member.node);
        }
    }

    fn leave(
        &mut self,
        members: &[Member],
        wishes: &BTreeMap<u32, Vec<Member>>,
        todo: &mut Vec<Action>,
    ) {
        let known = |m: &&Member| self.members.contains(*m) && self.leaves(m).is_none();
        let going: BTreeSet<Member> = members.iter().filter(known).copied().collect();
        let stays = |m: &Member| !going.contains(m) && self.takes(m);
        if going.is_empty() || !self.members.iter().any(stays) {
            return;
        }
        self.leaves.party += 1;
        let party = self.leaves.party;
        for member in &going {
            self.leaves.nodes.insert(*member, Leave { stage: Stage::Stopping, party });
        }
        let home =
            |rank: &u32| self.ranks.get(*rank as usize).is_some_and(|r| going.contains(&r.home));
        let wishes = wishes.iter().filter(|w| home(w.0));
        self.leaves.wishes.extend(wishes.map(|(rank, to)| (*rank, to.clone())));
        self.tell_leaving(todo);
        self.balance(todo);
    }

    /// Whether a member that leaves can stay: its ranks have not set out yet, or are in their
    /// places.
    pub fn may_stay(&self, member: &Member) -> bool {
        let emptied = || self.placed() && self.is_empty(member);
        self.leaves(member).is_some_and(|s| s != Stage::Moving || emptied())
    }

    /// Whether no rank is there any more of which anything is needed.
    fn is_empty(&self, member: &Member) -> bool {
        !self.ranks.iter().any(|r| r.home == *member && r.phase != Phase::Released)
    }

    fn tell_leaving(&mut self, todo: &mut Vec<Action>) {
        self.leaves.round += 1;
        let (round, members) = (self.leaves.round, self.leaving().collect::<Vec<_>>());
        self.leaves.exposed = if members.is_empty() {
            BTreeSet::new()
        } else {
            self.members.iter().copied().collect()
        };
        todo.push(Action::Leaving { round, members });
    }

    /// All begin anew. If they go back together those that are to leave still are, with new epochs,
    /// and what was on them comes back elsewhere.
    pub(super) fn settle_leaves(&mut self) {
        let now = |m: &Member| self.members.iter().copied().find(|n| n.node == m.node);
        let renewed = |(m, leave): (&Member, &Leave)| {
            Some((now(m)?, Leave { stage: Stage::Moving, party: leave.party }))
        };
        self.leaves.nodes = self.leaves.nodes.iter().filter_map(renewed).collect();
        for wishes in self.leaves.wishes.values_mut() {
            *wishes = wishes.iter().filter_map(now).collect();
        }
        self.leaves.exposed.clear();
        if !self.units.are_one() || self.takers().is_empty() {
            self.forget_leaves();
        }
    }

    /// All go back to the beginning: nobody leaves.
    pub(super) fn forget_leaves(&mut self) {
        self.leaves.nodes.clear();
        self.leaves.exposed.clear();
        self.leaves.wishes.clear();
    }

    /// A rank runs at a node.
    pub(super) fn arrives(&mut self, rank: u32, at: Member) {
        if self.leaves(&at).is_none() {
            self.leaves.wishes.remove(&rank);
        }
    }

    /// What follows for those that leave, after each input.
    pub(super) fn see_off(&mut self, todo: &mut Vec<Action>) {
        if self.leaves.nodes.is_empty() {
            return;
        }
        if self.rolling_back {
            if !self.units.are_one() {
                self.forget_leaves();
            }
            return;
        }
        let members = &self.members;
        self.leaves.nodes.retain(|m, _| members.contains(m));
        self.leaves.exposed.retain(|m| members.contains(m));
        if self.takers().is_empty() {
            self.leaves.nodes.clear();
        }
        // Gates have exchanged replicas since, or nodes have come that know nothing.
        if todo.iter().any(|a| matches!(a, Action::Members(_))) {
            self.tell_leaving(todo);
        }
        self.set_out(todo);
        if self.rolling_back {
            return;
        }
        while let Some(member) = self.free_to_go() {
            self.leaves.nodes.remove(&member);
            todo.push(Action::Dismiss { member });
            self.node_died(member, todo);
            self.tell_leaving(todo);
        }
    }

    /// Ranks of a party all of which stand begin to move, as soon as every gate is guarded.
    fn set_out(&mut self, todo: &mut Vec<Action>) {
        self.stand_no_more();
        if !self.is_guarded() {
            return;
        }
        let leaves = || self.leaves.nodes.values();
        let waits = |party: u64| leaves().any(|l| l.party == party && l.stage == Stage::Stopping);
        let ready = |l: &(&Member, &Leave)| l.1.stage == Stage::Standing && !waits(l.1.party);
        let all: Vec<Member> = self.leaves.nodes.iter().filter(ready).map(|l| *l.0).collect();
        if self.units.are_one() && self.ranks.iter().any(|r| all.contains(&r.home)) {
            return self.roll_back(String::from("ranks go on elsewhere"), todo);
        }
        for member in &all {
            if let Some(leave) = self.leaves.nodes.get_mut(member) {
                leave.stage = Stage::Moving;
            }
            for rank in self.ranks.iter_mut().filter(|r| r.home == *member) {
                if matches!(rank.phase, Phase::Up | Phase::Done) {
                    rank.phase = Phase::Fetching;
                }
            }
            todo.push(Action::Vacate { member: *member });
        }
        if !all.is_empty() {
            // None of a recovery unit can be brought back alone.
            self.units_fall(todo);
            self.query(todo);
        }
    }

    /// Members that stood, and of whose ranks one has died since.
    fn stand_no_more(&mut self) {
        let stands = |m: &Member| self.leaves(m) == Some(Stage::Standing);
        let all: Vec<Member> = self.leaving().filter(stands).collect();
        for member in all {
            let comes_back = self.ranks.iter().any(|r| match r.phase {
                Phase::Restoring { at, .. } | Phase::Falling { at } | Phase::Down { at } => {
                    at == member
                }
                Phase::Fetching => r.home == member,
                Phase::Fetched | Phase::Up | Phase::Done | Phase::Released => false,
            });
            if comes_back && let Some(leave) = self.leaves.nodes.get_mut(&member) {
                leave.stage = Stage::Stopping;
            }
        }
    }

    /// Ranks that move have not come back yet. No image is copied meanwhile only because a node
    /// leaves that is still there: reading them whole takes cores and links from what those wait
    /// for.
    pub(super) fn are_on_the_way(&self) -> bool {
        let comes_back =
            |r: &super::Rank| !matches!(r.phase, Phase::Up | Phase::Done | Phase::Released);
        let mut stages = self.leaves.nodes.values().map(|l| l.stage);
        stages.any(|s| s == Stage::Moving) && self.ranks.iter().any(comes_back)
    }

    fn free_to_go(&self) -> Option<Member> {
        self.leaving().find(|m| self.may_go(m))
    }

    fn may_go(&self, member: &Member) -> bool {
        self.leaves(member) == Some(Stage::Moving)
            && self.is_guarded()
            && self.placed()
            && self.is_empty(member)
            && !self.is_copied_to(member)
            && self.unguarded().is_empty()
            && !self.leaves_some_stranded()
            && self.detained_by(member).is_none()
            && self
                .ranks
                .iter()
                .flat_map(super::Rank::everywhere)
                .all(|(g, holders)| *g == 0 || self.stays_safe(holders))
    }

    /// Whether a copy to it is under way. That one was made is told by the node's number: told
    /// late, it would count for the empty member that the node is then.
    fn is_copied_to(&self, member: &Member) -> bool {
        self.copying.keys().any(|(_, _, to)| to == member)
    }

    /// Whether those that leave wait for nothing but an image that only the vault has: ranks may
    /// be stopped together, as if nobody left. If that is of a snapshot, the next one frees them.
    pub fn only_detained(&self) -> bool {
        let waits = |m: Member| {
            let moved = self.leaves(&m) == Some(Stage::Moving) && self.is_empty(&m);
            moved && self.detained_by(&m).is_some()
        };
        self.placed() && self.leaving().all(waits)
    }

    /// Whether images are left that only nodes that leave have, and the vault needs.
    fn leaves_some_stranded(&self) -> bool {
        let of =
            |r: &super::Rank| r.everywhere().any(|(g, holders)| self.is_stranded(r, *g, holders));
        self.ranks.iter().any(of)
    }

    /// Whether an image with these holders is as safe as it is to be without those that leave. One
    /// that no node has is brought nowhere: see `detained_by`.
    fn stays_safe(&self, holders: &BTreeSet<Member>) -> bool {
        if !holders.iter().any(super::vault::is_node) {
            return !holders.is_empty();
        }
        if self.vaults() {
            return holders.contains(&super::VAULT);
        }
        let stay = |m: &&Member| super::vault::is_node(m) && self.leaves(m).is_none();
        holders.iter().filter(stay).count() >= self.enough_stay()
    }

    /// Where each rank on a leaving node is going to be placed, if nothing happens.
    fn refuges(&self) -> BTreeMap<u32, Member> {
        let mut all = BTreeMap::new();
        for (number, rank) in (0u32..).zip(&self.ranks) {
            let there = matches!(rank.phase, Phase::Up | Phase::Done);
            if there && self.leaves(&rank.home).is_some() {
                let at = self.beside_mates(number as usize, &all);
                let at = at.or_else(|| self.place_among(number as usize, &all));
                all.extend(at.map(|at| (number, at)));
            }
        }
        all
    }

    /// Where images of a rank go whose home leaves.
    pub(super) fn refuge(&self, rank: u32) -> Option<Member> {
        self.refuges().get(&rank).copied()
    }

    /// Where a rank is to go.
    pub(super) fn wish(&self, rank: u32) -> Option<Member> {
        let stays =
            |m: &&Member| self.members.contains(*m) && self.takes(m) && !self.is_unfit(rank, m);
        self.leaves.wishes.get(&rank)?.iter().find(stays).copied()
    }

    /// Where copies of a rank's images are to lie, best first; and on how many nodes at all, and of
    /// those that stay.
    pub(super) fn shelves(&self, number: u32, home: Member) -> (Vec<Member>, usize, usize) {
        let vaulted = self.vaults();
        let enough = if vaulted { 0 } else { self.enough() };
        let ring = self.neighbours.after(home.node, &self.members);
        let own = self.members.iter().copied().filter(|m| *m == home);
        if self.leaves.nodes.is_empty() {
            return (own.chain(ring).collect(), enough, enough);
        }
        let leaves = |m: &Member| self.leaves(m).is_some();
        let (go, stay): (Vec<Member>, Vec<Member>) = ring.into_iter().partition(leaves);
        let away = leaves(&home);
        let refuge = if away { self.refuge(number) } else { None };
        let all = own.chain(refuge).chain(stay).chain(go);
        // Of ranks that are still on a leaving node what is newer comes soon. The vault is of those
        // that stay: they bring it in.
        let least = match vaulted {
            true => usize::from(away),
            false if away || self.are_on_the_way() => 0,
            false => self.enough_stay(),
        };
        (all.collect(), enough, least)
    }
}

#[cfg(test)]
#[path = "leave_tests.rs"]
mod tests;
