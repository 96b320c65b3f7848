//! Nodes that leave a job whose ranks go back together: all ranks stand with a snapshot, and go
//! back to that with other homes.

use super::world::{Mistake, World};
use super::*;
use eyrie_protocol::recovery::{Input, Stage};

impl World {
    /// Somebody wants a node, or two at once, to leave.
    pub fn drain(&mut self) {
        let after = 500 + self.random.below(4000);
        self.at(after, Event::Drain);
        let keepers = self.controller.planner.keepers();
        if !self.is_running() || keepers.len() < 2 {
            return;
        }
        let Some(member) = self.random.pick(&keepers) else { return };
        let mut members = vec![member];
        if keepers.len() > 2 && self.random.one_in(3) {
            members.extend(self.random.pick(&keepers).filter(|m| *m != member));
        }
        if !self.some_stay(&members) {
            return;
        }
        self.trace(|| format!("{members:?} are to leave"));
        self.input(Input::Leave { members, wishes: BTreeMap::new() });
    }

    /// Whether a node lives without these that nobody wants to leave.
    pub fn some_stay(&self, without: &[Member]) -> bool {
        let planner = &self.controller.planner;
        let leaves = |node: u32| planner.leaving().any(|m| m.node == node);
        let without = |node: u32| without.iter().any(|m| m.node == node);
        let joins = |node: u32| self.controller.emptied.contains(&node);
        let known = self.controller.known.keys().copied().filter(|n| !joins(*n));
        known.filter(|n| self.nodes.contains_key(n)).any(|n| !leaves(n) && !without(n))
    }

    /// Whether ranks are to stand for nodes that leave. If all do, these are told so.
    pub fn tend_leaves(&mut self) -> bool {
        let planner = &self.controller.planner;
        let stops = |m: &Member| planner.leaves(m) == Some(Stage::Stopping);
        let all: Vec<Member> = planner.leaving().filter(stops).collect();
        if self.controller.stands && self.controller.held.is_some() {
            let waits = planner.leaving().any(|m| planner.leaves(&m) != Some(Stage::Moving));
            if !waits {
                // Who was to leave is gone.
                let held = self.controller.held.unwrap_or(0);
                self.let_go_on(held);
            }
            for member in all {
                self.input(Input::Stands { member });
            }
            return false;
        }
        if self.random.one_in(100) {
            self.call_off();
        }
        !all.is_empty()
    }

    /// Somebody wants a node to stay whose ranks have gone already.
    fn call_off(&mut self) {
        let planner = &self.controller.planner;
        let emptied = |m: &Member| planner.leaves(m) == Some(Stage::Moving) && planner.may_stay(m);
        let member = planner.leaving().find(emptied);
        if let Some(member) = member {
            self.trace(|| format!("{member} stays after all"));
            self.input(Input::Stay { member });
        }
    }

    /// Ranks that stood for a snapshot go on.
    pub fn let_go_on(&mut self, generation: u32) {
        if self.controller.held == Some(generation) {
            self.controller.held = None;
            let all: Vec<u32> = self.nodes.keys().copied().collect();
            all.into_iter().for_each(|node| self.say_to(node, ToNode::GoOn));
        }
    }

    /// A node goes: no rank may be there, and each image that counts is as safe without it.
    pub fn dismiss(&mut self, member: Member) {
        self.trace(|| format!("{member} is dismissed"));
        self.report.left += 1;
        self.vault_loses(member);
        let stay = self.controller.planner.keepers().len();
        // Of one node there is one copy.
        self.losses += u64::from(stay < 2 && !self.vaulted);
        self.count_without(member);
        let kept = self.controller.kept_snapshots();
        let of_snapshot = |g: &u32| (0..self.ranks()).map(|rank| (rank, *g)).collect::<Vec<_>>();
        let keys: Vec<Key> = kept.iter().flat_map(of_snapshot).collect();
        for key in keys {
            let has = |n: &&Node| n.own.node != member.node && n.disk.contains_key(&key);
            let copies = self.nodes.values().filter(has).count();
            let known = self.controller.known.keys().filter(|n| **n != member.node);
            let dead = known.filter(|n| !self.nodes.contains_key(n)).count();
            if self.thins(&key, member) {
                self.fail(format!("{member} goes, and guards image {} of rank {}", key.1, key.0));
            }
            // What only the vault has is brought nowhere.
            let only_given = self.is_only_given(&key);
            let safe = match self.controller.planner.vaults() {
                true => self.is_given(&key),
                false => copies + dead >= 2.min(stay) || only_given,
            };
            if !safe {
                self.fail(format!("{member} goes, and image {} of rank {} with it", key.1, key.0));
            }
        }
        if self.random.one_in(2) {
            return self.empty(member);
        }
        self.controller.known.remove(&member.node);
        self.say_to(member.node, ToNode::Depart);
    }

    /// A node goes, and the vault, with so few nodes, does not get the newest snapshot anew: it
    /// bears less, or from here on nodes have that, and the next loss may be too much.
    fn count_without(&mut self, member: Member) {
        let newest = self.controller.newest();
        if !self.vaulted {
            return;
        }
        let gone = (0..self.ranks()).map(|rank| self.gone_of(&(rank, newest))).max().unwrap_or(0);
        if gone <= self.bears() {
            self.losses = self.losses.max(gone);
            return;
        }
        let good = |n: &&Node, rank: u32| {
            let stored = n.disk.get(&(rank, newest));
            n.own.node != member.node && stored.is_some_and(|s| !s.bad)
        };
        let copies = |rank| self.nodes.values().filter(|n| good(n, rank)).count() as u64;
        let fewest = (0..self.ranks()).map(copies).min().unwrap_or(0);
        let known = self.controller.known.keys().filter(|n| !self.nodes.contains_key(n));
        self.losses = known.count() as u64 + 2u64.saturating_sub(fewest);
        self.vaulted = false;
    }

    /// Ranks of a node have migrated: it forgets all, and joins again as a spare.
    fn empty(&mut self, member: Member) {
        let anew = Member { node: member.node, epoch: self.next_epoch };
        self.next_epoch += 1;
        self.controller.known.insert(anew.node, anew);
        self.controller.emptied.insert(anew.node);
        self.say_to(anew.node, ToNode::Reset(anew));
    }

    /// A node has forgotten all.
    pub fn is_emptied(&mut self, member: Member) {
        if self.is_running() && self.controller.emptied.remove(&member.node) {
            self.report.emptied += 1;
            self.input(Input::Joined { member, spare: true });
            self.tell_homes(member.node);
        }
    }

    /// Whether an image is kept by fewer than at first when a node goes, though it could be brought
    /// into the vault anew.
    fn thins(&self, key: &Key, without: Member) -> bool {
        let has = |n: &Node| n.disk.get(key).is_some_and(|stored| !stored.bad);
        self.controller.planner.vaults()
            && self.is_kept_by(key, without.node)
            && self.nodes.values().any(has)
    }

    /// A mutation: a node goes as soon as no rank is there.
    pub fn dismiss_early(&mut self) {
        let planner = &self.controller.planner;
        // Where images go to a vault: as soon as that has all, by whichever nodes.
        let brought = || {
            let kept = self.controller.kept_snapshots().into_iter();
            let mut all = kept.flat_map(|g| (0..self.ranks()).map(move |rank| (rank, g)));
            planner.vaults()
                && planner.unguarded().is_empty()
                && all.all(|key| self.vault.contains_key(&key))
        };
        let early = self.makes(Mistake::LeavesGuard) && brought();
        if !(early || self.makes(Mistake::LeavesEarly)) || !planner.placed() {
            return;
        }
        let empty = |m: &Member| (0..self.ranks()).all(|r| planner.home(r) != Some(*m));
        let moving = |m: &Member| planner.leaves(m) == Some(Stage::Moving);
        let early = planner.leaving().find(|m| moving(m) && empty(m));
        if let Some(member) = early {
            self.dismiss(member);
            self.input(Input::NodeDied { member });
        }
    }

    /// All go back because all stand for nodes that leave: nobody has done anything since.
    pub fn check_nothing_since(&mut self, snapshot: u32) {
        for rank in 0..self.ranks() {
            let image = self.images.get(&(rank, snapshot));
            if image.is_some_and(|i| i.state != self.truth[rank as usize]) {
                self.fail(format!("rank {rank} goes on elsewhere, and stood no more"));
            }
        }
    }
}
