//! The part of a pass that looks into images as they lie on nodes, as files.
//!
//! Kept true: an image is looked into on every node that is said to have it; one that is found
//! damaged, and was not made anew there, counts there no more, also when nobody waits for that pass
//! any more; what was given up while a node looked into it does not stay there again.

use crate::vault::Job;
use crate::vault::model::{Images, Pass};
use eyrie_control::node::{Fetch, ToNode};
use eyrie_control::vault::{Condition, Inspected, Inspection, Report};
use eyrie_control::{EventKind, NodeMsg};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Input, VAULT};
use std::collections::{BTreeMap, BTreeSet};

impl Pass {
    fn tell_image(&self, (node, rank, generation): (u32, u32, u32), condition: Condition) {
        if let Some((_, client)) = &self.asker {
            client.send(&NodeMsg::Inspected(Inspected { node, rank, generation, condition }));
        }
    }
}

impl Job {
    /// Has these nodes look into all images that they have and that count.
    pub(crate) fn order_inspections(
        &mut self,
        live: &BTreeSet<Member>,
        pass: u64,
        write: bool,
        rate: u64,
    ) -> Images {
        let mut orders: BTreeMap<u32, Inspection> = BTreeMap::new();
        let mut images = Images::default();
        for rank in 0..self.size() {
            let kept = self.ranks.all[rank as usize].retention.newest_first();
            let kept: Vec<u32> = kept.map(|k| k.generation).filter(|g| *g > 0).collect();
            for generation in kept {
                let holders =
                    self.recovery.planner.iter().flat_map(|p| p.holders(rank, generation));
                let holders: BTreeSet<Member> = holders.collect();
                for at in holders.intersection(live) {
                    let fetch = self.inspected_from(rank, generation, *at, &holders);
                    images.left.insert((at.node, rank, generation));
                    let new = || Inspection::new(pass, write, rate);
                    orders.entry(at.node).or_insert_with(new).add(rank, generation, fetch);
                }
            }
        }
        for (node, order) in orders {
            self.nodes.all[node as usize].send(ToNode::Inspect(order));
        }
        images
    }

    /// Where a node finds what is damaged of an image there: in the vault, or on another node.
    fn inspected_from(
        &self,
        rank: u32,
        generation: u32,
        at: Member,
        holders: &BTreeSet<Member>,
    ) -> Fetch {
        let files = self.ranks.files_of(rank, generation);
        let vaulted = holders.contains(&VAULT);
        let other = holders.iter().find(|m| **m != at).map(|m| m.node);
        let from = if vaulted { Some(VAULT.node) } else { other };
        let vault = if vaulted { self.vaults.in_vault(rank, &files) } else { Vec::new() };
        // Where all go back together nothing is sent again.
        Fetch { files, from, log: self.checkpoints.coordinated.is_none(), vault }
    }

    /// Nodes that are lost are not waited for, nor what was given up.
    pub(crate) fn images_without_lost(&self, pass: &mut Pass, live: &BTreeSet<Member>) {
        for at in pass.images.left.clone() {
            let (node, rank, generation) = at;
            let lives = live.contains(&self.nodes.member(node));
            if lives && self.has_image(node, rank, generation) {
                continue;
            }
            pass.images.left.remove(&at);
            if !lives {
                pass.tell_image(at, Condition::Unread(String::from("the node is lost")));
            }
        }
    }

    fn has_image(&self, node: u32, rank: u32, generation: u32) -> bool {
        let at = self.nodes.member(node);
        self.recovery.planner.iter().any(|p| p.holders(rank, generation).any(|m| m == at))
    }

    /// A node has looked into an image.
    pub(crate) fn inspected(&mut self, node: u32, report: Report) {
        let Report { pass: number, rank, generation, write, files, sound, condition, .. } = report;
        let at = (node, rank, generation);
        if rank >= self.size() {
            return;
        }
        let kept = self.has_image(node, rank, generation);
        let pass = self.vaults.scrubs.pass.as_mut().filter(|pass| pass.number == number);
        if let Some(pass) = pass
            && pass.images.left.remove(&at)
            && kept
        {
            let found = &mut pass.images.found;
            match &condition {
                Condition::Sound => found.sound += 1,
                Condition::Repaired(_) => {
                    (found.damaged, found.repaired) = (found.damaged + 1, found.repaired + 1)
                }
                Condition::Damaged(_) => found.damaged += 1,
                Condition::Unread(_) => {}
            }
            pass.tell_image(at, condition.clone());
        }
        match condition {
            Condition::Repaired(why) if kept => self.tell_repaired(at, &why),
            Condition::Repaired(_) => self.remove_unneeded(node, rank, report.needs),
            Condition::Damaged(why) if kept && write => {
                self.tell_refused(rank, generation, Some(node), &why);
                let at = self.nodes.member(node);
                self.plan(Input::ImageBad { rank, incarnation: 0, generation, at });
                self.spoilt((node, rank), &files, &sound);
            }
            // The others may need it.
            Condition::Damaged(_) if write => {
                self.spoilt((node, rank), &files, &sound);
                self.remove_unneeded(node, rank, report.needs);
            }
            Condition::Damaged(why) if kept => {
                tracing::warn!(rank, generation, node, "an image is damaged: {why}");
            }
            Condition::Unread(why) => {
                tracing::warn!(rank, generation, node, "an image is not checked: {why}");
            }
            _ => {}
        }
        self.pass_without_lost();
    }

    /// These files of a rank are damaged on a node: what needs them does not count there, but for
    /// what was found sound.
    fn spoilt(&mut self, (node, rank): (u32, u32), files: &[u32], sound: &[u32]) {
        let r = &self.ranks.all[rank as usize];
        let kept = r.retention.newest_first().map(|kept| kept.generation);
        let all: Vec<u32> = kept.chain(r.pending.as_ref().map(|p| p.generation)).collect();
        let needs = |generation: u32| self.ranks.files_of(rank, generation);
        let bad = |generation: &u32| {
            let one = needs(*generation).iter().any(|file| files.contains(file));
            one && !sound.contains(generation) && self.has_image(node, rank, *generation)
        };
        let bad: Vec<u32> = all.into_iter().filter(bad).collect();
        let at = self.nodes.member(node);
        for generation in bad {
            let why = "it needs a file that is damaged there";
            self.tell_refused(rank, generation, Some(node), why);
            self.plan(Input::ImageBad { rank, incarnation: 0, generation, at });
        }
        if let Some(generation) = self.ranks.rank(rank).capture.generation {
            let its = files.iter().map(|file| (rank, generation, node, *file));
            self.vaults.scrubs.spoilt.extend(its);
        }
    }

    /// Nodes on which an image that was just taken needs a file that was found damaged meanwhile.
    pub(crate) fn spoilt_at(&mut self, rank: u32, generation: u32) -> BTreeSet<u32> {
        let files = self.ranks.files_of(rank, generation);
        let spoilt = &mut self.vaults.scrubs.spoilt;
        let its = |it: &&(u32, u32, u32, u32)| (it.0, it.1) == (rank, generation);
        let its = spoilt.iter().filter(its).filter(|it| files.contains(&it.3));
        let nodes = its.map(|it| it.2).collect();
        spoilt.retain(|it| it.0 != rank);
        nodes
    }

    fn tell_repaired(&mut self, (node, rank, generation): (u32, u32, u32), why: &str) {
        let mut event = self.clock.event(EventKind::Scrubbed);
        (event.node, event.rank, event.generation) = (Some(node), Some(rank), Some(generation));
        event.text =
            format!("checkpoint {generation} of rank {rank} was damaged ({why}): made anew");
        self.journal.log_event(event);
    }

    /// An image was given up while a node fetched it anew, with files that it `needs`.
    fn remove_unneeded(&mut self, node: u32, rank: u32, needs: Vec<u32>) {
        let r = &self.ranks.all[rank as usize];
        let pending = r.pending.iter().flat_map(|p| p.taken.needs.iter().copied());
        let kept: BTreeSet<u32> = r.retention.files().into_iter().chain(pending).collect();
        let generations = unneeded(needs, &kept);
        if !generations.is_empty() {
            self.nodes.all[node as usize].send(ToNode::Remove { rank, generations });
        }
    }
}

/// What an image that was given up needed, and none that is kept does.
fn unneeded(needs: Vec<u32>, kept: &BTreeSet<u32>) -> Vec<u32> {
    needs.into_iter().filter(|file| !kept.contains(file)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many there were before it.
    #[test]
    fn only_what_came_with_an_image_is_removed_with_it() {
        let kept = BTreeSet::from([99_997, 100_001]);
        assert_eq!(unneeded(vec![99_997, 99_998, 100_000], &kept), [99_998, 100_000]);
    }
}
