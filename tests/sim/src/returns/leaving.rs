//! Nodes that leave where there are snapshots.
//!
//! Real: the planner, which says when ranks move and when a node may go. Modelled: that ranks come
//! to stand with an image of that moment, that gates find replicas that stay, and what becomes of a
//! node that has left: it is as one that is gone, and may join again.

use super::{Done, Event, World};
use crate::random::Random;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Action, Input, Stage};
use std::collections::BTreeMap;

/// Ranks that stand on nodes that leave; with chances of its own, so that all else is as it is
/// without.
pub(super) struct Leaving {
    random: Random,
    /// Whether nodes leave in this run.
    comes: bool,
    /// The image of that moment, and whether it counts.
    standing: BTreeMap<u32, (u32, bool)>,
}

impl Leaving {
    pub fn new(seed: u64) -> Leaving {
        let mut random = Random::new(!seed);
        let comes = random.one_in(2);
        Leaving { random, comes, standing: BTreeMap::new() }
    }

    /// The rank does nothing until it runs elsewhere.
    pub fn stands(&self, rank: u32) -> bool {
        self.standing.contains_key(&rank)
    }

    /// It has died.
    pub fn forget(&mut self, rank: u32) {
        self.standing.remove(&rank);
    }

    pub fn forget_all(&mut self) {
        self.standing.clear();
    }

    /// An image counts.
    pub fn counts(&mut self, rank: u32, generation: u32) {
        let stands = self.standing.get_mut(&rank).filter(|s| s.0 == generation);
        stands.into_iter().for_each(|s| s.1 = true);
    }

    /// An image never will.
    pub fn discarded(&mut self, rank: u32, generation: u32) {
        self.standing.retain(|r, s| *r != rank || s.0 != generation);
    }
}

impl World {
    /// Somebody has nodes leave now and then; those that do get on.
    pub(super) fn leave_perhaps(&mut self) -> Done {
        let keepers = self.planner.keepers();
        if self.leaving.comes && keepers.len() > 1 && self.leaving.random.one_in(30) {
            let mut members: Vec<Member> = self.leaving.random.pick(&keepers).into_iter().collect();
            if keepers.len() > 2 && self.leaving.random.one_in(3) {
                let other = self.leaving.random.pick(&keepers);
                members.extend(other.filter(|m| !members.contains(m)));
            }
            let wishes = self.wishes(&members, &keepers);
            self.step(Input::Leave { members, wishes })?;
        }
        self.tend_leaves(true)
    }

    /// Where their ranks are to go, sometimes.
    fn wishes(&mut self, going: &[Member], all: &[Member]) -> BTreeMap<u32, Vec<Member>> {
        let stay: Vec<Member> = all.iter().copied().filter(|m| !going.contains(m)).collect();
        let Some(to) = self.leaving.random.pick(&stay).filter(|_| self.leaving.random.one_in(3))
        else {
            return BTreeMap::new();
        };
        let here = |rank: &u32| self.planner.home(*rank).is_some_and(|at| going.contains(&at));
        (0..self.ranks.len() as u32).filter(here).map(|rank| (rank, vec![to])).collect()
    }

    /// Brings ranks to stand; `wavers`: some stay after all.
    pub(super) fn tend_leaves(&mut self, wavers: bool) -> Done {
        let planner = &self.planner;
        let goes = |rank: u32| planner.home(rank).is_some_and(|at| planner.leaves(&at).is_some());
        self.leaving.standing.retain(|rank, _| goes(*rank));
        for member in self.planner.leaving().collect::<Vec<_>>() {
            if wavers && self.planner.may_stay(&member) && self.leaving.random.one_in(100) {
                self.step(Input::Stay { member })?;
                continue;
            }
            let stops = self.planner.leaves(&member) == Some(Stage::Stopping);
            if stops && self.bring_to_stand(member) {
                self.step(Input::Stands { member })?;
            }
        }
        Ok(())
    }

    /// Whether all ranks of a node stand.
    fn bring_to_stand(&mut self, member: Member) -> bool {
        let mut all = true;
        for rank in 0..self.ranks.len() as u32 {
            if self.planner.home(rank) != Some(member) {
                continue;
            }
            match self.leaving.standing.get(&rank) {
                Some((_, counts)) => all &= *counts,
                None => {
                    all = false;
                    self.order_stand(rank);
                }
            }
        }
        all
    }

    fn order_stand(&mut self, rank: u32) {
        let r = &mut self.ranks[rank as usize];
        let Some((incarnation, home)) = r.runs else { return };
        if r.writes.is_some() || self.under_way.is_some() {
            return;
        }
        let (generation, work) = (r.retention.begin(), r.work);
        r.writes = Some(generation);
        self.leaving.standing.insert(rank, (generation, false));
        let at: Vec<Member> = [home].into_iter().chain(self.planner.partner(rank)).collect();
        self.on_the_way.push(Event::Wrote { rank, incarnation, generation, at, work });
    }

    /// What the planner says about those that leave.
    pub(super) fn carry_out_leave(&mut self, action: Action) -> Done {
        match action {
            Action::Leaving { round, .. } => {
                let all = self.planner.members().iter();
                self.on_the_way.extend(all.map(|from| Event::Guard { from: *from, round }));
                Ok(())
            }
            Action::Vacate { member } => self.vacate(member),
            Action::Dismiss { member } => self.dismiss(member),
            other => Err(format!("{other:?} in a job without units")),
        }
    }

    /// The ranks of a node stand for good: their processes end.
    fn vacate(&mut self, member: Member) -> Done {
        for rank in 0..self.ranks.len() as u32 {
            let r = &mut self.ranks[rank as usize];
            if r.runs.is_none_or(|(_, at)| at != member) {
                continue;
            }
            if self.leaving.standing.get(&rank).is_none_or(|s| !s.1) {
                return Err(format!("rank {rank} is to leave {member}, and does not stand"));
            }
            r.runs = None;
        }
        Ok(())
    }

    /// A node goes: nothing that is relied on goes with it.
    fn dismiss(&mut self, member: Member) -> Done {
        if self.ranks.iter().any(|r| r.runs.is_some_and(|(_, at)| at == member)) {
            return Err(format!("{member} goes, and a rank runs there"));
        }
        let pinned = self.kept.as_ref().map(|s| s.generation);
        let mut relied = Vec::new();
        for rank in 0..self.ranks.len() as u32 {
            let newest = self.ranks[rank as usize].retention.newest().map(|k| k.generation);
            let here = pinned.into_iter().chain(newest).filter(|g| *g > 0);
            relied.extend(here.filter(|g| !self.is_lost(rank, *g)).map(|g| (rank, g)));
        }
        let (_, lives, disk) = &mut self.nodes[member.node as usize];
        *lives = false;
        disk.clear();
        self.report.left += 1;
        if let Some((rank, generation)) = relied.into_iter().find(|(r, g)| self.is_lost(*r, *g)) {
            return Err(format!("{member} goes, and image {generation} of rank {rank} with it"));
        }
        self.keep_in_step();
        Ok(())
    }

    /// All who leave have left at the end, but for who is held by an image that only the vault has.
    pub(super) fn check_left(&mut self) -> Done {
        let mut held = self.planner.leaving().map(|m| (m, self.planner.detained_by(&m)));
        match held.find(|(_, image)| image.is_none()) {
            Some((member, _)) => Err(format!("{member} does not leave, and nothing holds it")),
            None => Ok(()),
        }
    }
}
