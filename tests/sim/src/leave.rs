//! Nodes that leave in the simulation.
//!
//! Real: the planner, which says when ranks move and when a node may go, and the gates. Modelled:
//! what the controller does about it (`job::leaving`) and what a node does that is told so.

use crate::types::*;
use crate::world::{VAULT_BEARS, World};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Action, Input, Stage};
use eyrie_protocol::replicas::Answer;
use eyrie_protocol::vacated::Vacated;
use std::collections::{BTreeMap, BTreeSet};

/// A node that nothing disturbs has left after so long.
const LONGEST: Time = 40_000;

/// What the controller knows of ranks that are to stand.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// The image of that moment, and whether it counts.
    ranks: BTreeMap<u32, (u32, bool)>,
    /// Since when each node leaves.
    since: BTreeMap<Member, Time>,
    /// Those that forget all, and are to join again.
    emptied: BTreeSet<Member>,
}

impl World {
    /// Somebody wants a node to leave.
    pub fn drain(&mut self) {
        let keepers = self.controller.planner.keepers();
        if self.controller.rolling_back.is_none()
            && !self.over
            && keepers.len() > 1
            && let Some(member) = self.random.pick(&keepers)
        {
            self.count_anew();
            let mut members = vec![member];
            let cluster = |m: &Member| self.neighbours.cluster(m.node);
            let whole = self.neighbours.are_known() && self.random.one_in(3);
            if whole && keepers.iter().any(|m| cluster(m) != cluster(&member)) {
                members =
                    keepers.iter().copied().filter(|m| cluster(m) == cluster(&member)).collect();
            } else if keepers.len() > 2 && self.random.one_in(3) {
                members.extend(self.random.pick(&keepers).filter(|m| *m != member));
            }
            let wishes = self.wishes(&members, &keepers);
            for member in &members {
                self.trace(|| format!("{member} is to leave"));
                self.controller.standing.since.insert(*member, self.now);
            }
            self.planner(Input::Leave { members, wishes });
            self.bear_less();
            self.fault_nearby(3);
        }
        if self.small {
            // One is enough, if it came about.
            return if self.report.left == 0 {
                self.at(3_000, Event::Drain)
            };
        }
        let after = 500 + self.random.below(6000);
        self.at(after, Event::Drain);
    }

    /// Where the ranks of those that leave are to go, sometimes.
    fn wishes(&mut self, going: &[Member], all: &[Member]) -> BTreeMap<u32, Vec<Member>> {
        if !self.random.one_in(3) {
            return BTreeMap::new();
        }
        let at = |rank: &u32| self.controller.planner.home(*rank);
        let ranks = (0..self.ranks()).filter(|r| at(r).is_some_and(|at| going.contains(&at)));
        let ranks: Vec<u32> = ranks.collect();
        let mut to: Vec<(Member, usize)> =
            all.iter().filter(|m| !going.contains(m)).map(|m| (*m, 0)).collect();
        to.truncate(1 + self.random.below(to.len() as u64) as usize);
        eyrie_protocol::recovery::spread(&ranks, &to)
    }

    /// Fewer nodes bear less.
    pub fn bear_less(&mut self) {
        let stay = self.controller.planner.takers().len() as u64;
        let most = if self.controller.planner.vaults() { self.truth.bears } else { 1 };
        let least = self.truth.bears - most.min(stay.saturating_sub(1));
        self.truth.deaths = self.truth.deaths.max(least);
    }

    /// Goes on with those that leave as far as it can.
    pub fn tend_leaves(&mut self) {
        self.let_go_on();
        self.dismiss_early();
        let all: Vec<Member> = self.controller.planner.leaving().collect();
        for member in all {
            let late = self.controller.standing.since.get(&member);
            if late.is_some_and(|at| at + LONGEST < self.now) && self.report.faults == 0 {
                self.fail(format!("{member} does not leave, and nothing disturbs it"));
            }
            let stops = self.controller.planner.leaves(&member) == Some(Stage::Stopping);
            if !stops && !self.controller.planner.may_stay(&member) {
                continue;
            }
            if self.random.one_in(200) {
                self.trace(|| format!("{member} stays after all"));
                self.planner(Input::Stay { member });
                continue;
            }
            if !stops {
                continue;
            }
            let stands = match self.units.is_empty() {
                true => Some(self.bring_to_stand(member)),
                false => self.bring_units_to_stand(member),
            };
            match stands {
                Some(true) => self.planner(Input::Stands { member }),
                Some(false) => {}
                None => {
                    self.trace(|| format!("{member} cannot leave, as there are no sets any more"));
                    self.planner(Input::Stay { member });
                }
            }
        }
    }

    /// Whether all ranks of a node stand.
    fn bring_to_stand(&mut self, member: Member) -> bool {
        let mut all = true;
        for rank in 0..self.ranks() {
            if self.controller.planner.home(rank) != Some(member) {
                continue;
            }
            if self.controller.done.contains_key(&rank) {
                continue;
            }
            match self.controller.standing.ranks.get(&rank) {
                Some((_, counts)) => all &= counts,
                None => {
                    all = false;
                    self.order_stand(rank);
                }
            }
        }
        all
    }

    /// The same where ranks are in recovery units: all of a unit stands. None: a rank of one has
    /// ended, so there is no snapshot of it.
    fn bring_units_to_stand(&mut self, member: Member) -> Option<bool> {
        let here = (0..self.ranks()).filter(|r| self.controller.planner.home(*r) == Some(member));
        let units: BTreeSet<u32> = here.map(|rank| self.slot(rank)).collect();
        let mut all = true;
        for unit in units {
            let ranks = self.ranks_of(unit);
            let done = ranks.iter().filter(|r| self.controller.done.contains_key(r)).count();
            if done == ranks.len() {
                continue;
            }
            if done > 0 {
                return None;
            }
            let counts = |r: &u32| self.controller.standing.ranks.get(r).map(|s| s.1);
            all &= ranks.iter().all(|r| counts(r) == Some(true));
            let now = self.ranks_time();
            if ranks.iter().all(|r| counts(r).is_none())
                && self.controller.scheduler.begin(unit, now)
                && !self.order_snapshot(unit, true)
            {
                self.controller.scheduler.finished(unit, now);
            }
        }
        Some(all)
    }

    /// A rank is to stand for good, when this image of it is taken.
    pub fn hold(&mut self, rank: u32, generation: u32) {
        self.controller.standing.ranks.insert(rank, (generation, false));
    }

    fn order_stand(&mut self, rank: u32) {
        let now = self.ranks_time();
        if !self.controller.scheduler.begin(rank, now) {
            return;
        }
        let generation = self.controller.retention[rank as usize].begin();
        self.controller.capturing.insert(rank, generation);
        self.controller.standing.ranks.insert(rank, (generation, false));
        self.trace(|| format!("rank {rank} is to stand, with image {generation}"));
        self.begin_pause(rank, generation, true);
        self.fault_nearby(6);
    }

    /// An image counts (or never will): a rank that stands for it stands for good, or goes on.
    pub fn stands(&mut self, rank: u32, generation: u32, counts: bool) {
        match self.controller.standing.ranks.get_mut(&rank) {
            Some(stands) if stands.0 == generation && counts => stands.1 = true,
            Some(stands) if stands.0 == generation => self.go_on(rank),
            _ => {}
        }
    }

    /// It has died, or its image did not come about.
    pub fn stands_no_more(&mut self, rank: u32) {
        self.controller.standing.ranks.remove(&rank);
    }

    fn go_on(&mut self, rank: u32) {
        self.controller.standing.ranks.remove(&rank);
        self.controller.pauses.let_go(rank);
        if let Some(at) = self.controller.planner.home(rank) {
            self.say_to(at, ToNode::GoOn { rank });
        }
    }

    /// Ranks that stand on a node that stays.
    fn let_go_on(&mut self) {
        let planner = &self.controller.planner;
        let goes = |rank: &u32| planner.home(*rank).is_some_and(|at| planner.leaves(&at).is_some());
        // With one all of its unit stand.
        let mates = |rank: u32| match self.units.is_empty() {
            true => vec![rank],
            false => self.ranks_of(self.slot(rank)),
        };
        let stays = |rank: &u32| !mates(*rank).iter().any(goes);
        let all: Vec<u32> = self.controller.standing.ranks.keys().copied().filter(stays).collect();
        all.into_iter().for_each(|rank| self.go_on(rank));
    }

    /// A mutation: a node goes as soon as its ranks are elsewhere.
    fn dismiss_early(&mut self) {
        if !self.mutated(Mutation::LeavesEarly) {
            return;
        }
        let planner = &self.controller.planner;
        let empty = |m: &Member| (0..self.ranks()).all(|r| planner.home(r) != Some(*m));
        let moving = |m: &Member| planner.leaves(m) == Some(Stage::Moving);
        let early = planner.leaving().find(|m| moving(m) && empty(m) && planner.placed());
        if let Some(member) = early {
            self.dismiss(member);
            self.planner(Input::NodeDied { member });
        }
    }

    /// What the planner says about those that leave.
    pub fn carry_out_leave(&mut self, action: Action) {
        match action {
            Action::Leaving { round, members } => {
                for to in self.controller.planner.members().to_vec() {
                    let members = members.clone();
                    self.say_to(to, ToNode::Leaving { round, members });
                    if self.mutated(Mutation::LeavesUnguarded) {
                        self.planner(Input::Guarded { from: to, round });
                    }
                }
            }
            Action::Vacate { member } => {
                for rank in 0..self.ranks() {
                    if self.controller.planner.home(rank).is_none() {
                        self.truth.hurt.insert(self.slot(rank));
                        self.rank_down(rank);
                    }
                }
                self.say_to(member, ToNode::Vacate);
                self.fault_nearby(2);
            }
            Action::Dismiss { member } => self.dismiss(member),
            _ => {}
        }
    }

    fn dismiss(&mut self, member: Member) {
        self.trace(|| format!("{member} is dismissed"));
        self.check_left(member);
        self.report.left += 1;
        self.controller.standing.since.remove(&member);
        if self.random.one_in(2) {
            // Its ranks have migrated: it forgets all, and joins again as a spare.
            let anew = Member { node: member.node, epoch: self.next_epoch };
            self.next_epoch += 1;
            self.controller.standing.emptied.insert(anew);
            self.say_to(member, ToNode::Reset(anew));
        } else {
            self.say_to(member, ToNode::Depart);
        }
        self.bear_less();
        self.fault_nearby(2);
    }

    /// A node has forgotten all.
    pub fn is_emptied(&mut self, member: Member) {
        if self.controller.standing.emptied.remove(&member)
            && self.controller.rolling_back.is_none()
        {
            self.report.emptied += 1;
            self.planner(Input::Joined { member, spare: true });
            self.tell_floors(member);
            self.tell_suspend(member);
        }
    }

    /// If all is whole, as many nodes may be lost from now on as is to be survived.
    pub fn count_anew(&mut self) {
        if self.is_whole() {
            let members = self.controller.planner.takers().len() as u64;
            let most = if self.controller.planner.vaults() { VAULT_BEARS } else { 1 };
            let most = most.min(self.truth.bears);
            self.truth.deaths = self.truth.bears - most.min(members.saturating_sub(1));
        }
    }

    /// A node hears who leaves.
    pub fn hear_leaving(&mut self, at: Member, round: u64, members: &[Member]) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let all = node.members.clone();
        node.gate.set_leaving(members, &all);
        if self.mutated(Mutation::LeavesUnguarded) {
            return self.tell(at, FromNode::Guarded { round });
        }
        self.leave(at, FromNode::Guarded { round });
    }

    /// The ranks of a node stand for good: their processes end.
    pub fn vacate(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let procs = std::mem::take(&mut node.procs);
        node.orders.clear();
        let homes = (0u32..).zip(&node.homes).filter(|(_, home)| **home == Some(at));
        node.vacated = Vacated::all(homes.map(|(rank, _)| rank));
        for (rank, proc) in procs.into_iter().filter(|(_, p)| !p.done) {
            self.stood.insert(rank, proc.state.at);
        }
    }

    /// A rank goes on that stood.
    pub fn rank_goes_on(&mut self, at: Member, rank: u32) {
        if !self.mutated(Mutation::HeldLater) {
            self.hold_no_more(at, rank);
        }
        let Some(proc) = self.nodes.get_mut(&at).and_then(|n| n.procs.get_mut(&rank)) else {
            return;
        };
        if std::mem::take(&mut proc.held) {
            proc.waits = false;
            let incarnation = proc.incarnation;
            self.at(5, Event::Step { at, rank, incarnation });
        }
    }

    /// A node that leaves knows the outcomes of its own ranks.
    pub fn own_answer(&self, at: Member, ranks: &[u32], answer: &mut Answer) {
        let Some(node) = self.nodes.get(&at) else { return };
        let recorded = |rank| node.segment.det.get(&rank).cloned().unwrap_or_default();
        node.vacated.answer(at, ranks, recorded, answer);
    }

    /// A node goes: all images that are kept must be as safe without it as they are to be, and
    /// every node's outcomes held by another, dead nodes that nobody has noticed included.
    pub fn check_left(&mut self, gone: Member) {
        let keepers = self.controller.planner.keepers();
        let stay: Vec<Member> = keepers.into_iter().filter(|m| *m != gone).collect();
        let vaults = self.controller.planner.vaults();
        self.check_left_to(gone, &stay, vaults);
    }

    /// The same, when these stayed as it was dismissed. A turn of the real controller may go on
    /// after that, and images may count by then that are no matter of the node.
    pub fn check_left_to(&mut self, gone: Member, stay: &[Member], vaults: bool) {
        let in_step = |of: &Member, with: &Member| {
            let answer = self.nodes.get(of).map(|n| n.replicas.answer(&[]));
            answer.is_none_or(|a| a.in_step.contains(with))
        };
        let knows = stay.len() > 1 && !self.together;
        for own in stay.iter().filter(|m| knows && self.nodes.contains_key(m)) {
            if !stay.iter().any(|m| m != own && in_step(m, own)) {
                return self.fail(format!("{gone} goes, and nobody else knows {own}"));
            }
        }
        for rank in 0..self.ranks() {
            let kept = self.controller.retention[rank as usize].newest_first();
            let kept: Vec<u32> = kept.map(|k| k.generation).filter(|g| *g > 0).collect();
            for generation in kept {
                let image = (rank, generation);
                let has =
                    |m: &&Member| self.nodes.get(m).is_none_or(|n| n.disk.contains_key(&image));
                let is_there = self.nodes.get(&gone).is_some_and(|n| n.disk.contains_key(&image));
                let copies = stay.iter().filter(has).count() >= 2.min(stay.len());
                // What only the vault has is brought nowhere.
                let only_given = self.is_only_given(&image);
                let safe = match vaults {
                    true => self.is_given(&image),
                    false => copies || only_given,
                };
                if vaults && self.thins(&image, gone) {
                    self.fail(format!("{gone} goes, and guards image {generation} of rank {rank}"));
                }
                if !safe && (is_there || !self.real) {
                    self.fail(format!(
                        "{gone} goes, and image {generation} of rank {rank} with it"
                    ));
                }
            }
        }
    }

    /// Whether an image of ranks that go back together is kept by fewer than at first when a node
    /// goes, though it could be brought into the vault anew.
    fn thins(&self, image: &(u32, u32), without: Member) -> bool {
        let has = |n: &crate::node::Node| n.disk.get(image).is_some_and(|stored| !stored.bad);
        let guards = self.vault.get(image).is_some_and(|(_, members)| members.contains(&without));
        self.together && guards && self.nodes.values().any(has)
    }

    /// A rank that left its node starts where it stood, if nothing else has happened.
    pub fn check_nothing_again(&mut self, rank: u32, from: usize) {
        if let Some(stood) = self.stood.remove(&rank)
            && stood != from
            && self.report.faults + self.report.unfit == 0
        {
            self.fail(format!("rank {rank} stood at {stood} and begins at {from} again"));
        }
    }
}
