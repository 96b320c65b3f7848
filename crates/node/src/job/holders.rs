//! Which nodes have the images of which ranks.
//!
//! Kept true: a checkpoint completes with a copy on a partner, the next live node after its home;
//! when a holder is lost, or a rank has moved, another node becomes the partner and gets what is
//! kept; an image that no live node has is forgotten.

use super::Job;
use super::nodes::State;
use crate::membership::{Member, ring_after};
use eyrie_control::EventKind;
use eyrie_control::node::ToNode;
use std::collections::BTreeSet;

impl Job {
    /// The node that is to have copies of a rank's images.
    pub(super) fn partner(&self, rank: u32) -> Option<u32> {
        if !self.many() {
            return None;
        }
        let live = (0u32..).zip(&self.nodes).filter(|(_, n)| n.state == State::Live);
        let members: Vec<Member> = live.map(|(node, n)| Member { node, epoch: n.epoch }).collect();
        ring_after(self.placement.home(rank), &members).first().map(|m| m.node)
    }

    /// Live nodes that have something of a rank's images, those with most first.
    pub(super) fn holders(&self, rank: u32) -> Vec<u32> {
        let held = &self.ranks[rank as usize].held;
        let mut nodes: Vec<u32> = held.values().flatten().copied().collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.sort_by_key(|n| std::cmp::Reverse(held.values().filter(|h| h.contains(n)).count()));
        nodes
    }

    /// Generations that a node lacks.
    pub(super) fn missing(&self, rank: u32, node: u32) -> Vec<u32> {
        let r = &self.ranks[rank as usize];
        let has = |g: &u32| r.held.get(g).is_some_and(|nodes| nodes.contains(&node));
        r.retention.files().into_iter().filter(|g| !has(g)).collect()
    }

    /// These files are on that node now.
    pub(super) fn note_held(&mut self, rank: u32, generations: &[u32], node: u32) {
        for generation in generations {
            self.rank(rank).held.entry(*generation).or_default().insert(node);
        }
    }

    /// A node is lost: images that were only there are gone, others want another copy.
    pub(super) fn forget_holder(&mut self, node: u32) {
        for rank in 0..self.size() {
            let r = self.rank(rank);
            r.held.values_mut().for_each(|nodes| {
                nodes.remove(&node);
            });
            r.copying.take_if(|to| *to == node);
            let gone: Vec<u32> =
                r.held.iter().filter(|(_, nodes)| nodes.is_empty()).map(|(g, _)| *g).collect();
            for generation in gone {
                let unneeded = self.rank(rank).retention.damaged(generation);
                self.remove_images(rank, unneeded);
                self.rank(rank).held.remove(&generation);
            }
            self.copy_to_partner(rank);
        }
    }

    /// Has the kept images of a rank copied to its partner, if it lacks some.
    pub(super) fn copy_to_partner(&mut self, rank: u32) {
        let Some(to) = self.partner(rank) else { return };
        let generations = self.missing(rank, to);
        if generations.is_empty() || self.rank(rank).copying.is_some() {
            return;
        }
        let has_all = |node: &u32| self.missing(rank, *node).is_empty();
        let home = self.placement.home(rank);
        let mut from = self.holders(rank);
        from.sort_by_key(|n| *n != home);
        let Some(from) = from.into_iter().find(has_all) else { return };
        self.rank(rank).copying = Some(to);
        self.nodes[from as usize].send(ToNode::Copy { rank, generations, to });
    }

    /// Images were copied, or not.
    pub(super) fn copied(
        &mut self,
        rank: u32,
        generations: &[u32],
        to: u32,
        error: Option<String>,
    ) {
        self.rank(rank).copying.take_if(|node| *node == to);
        if self.nodes[to as usize].state != State::Live {
            return self.copy_to_partner(rank);
        }
        if let Some(error) = error {
            // The next checkpoint brings what is missing.
            return self.say(format!("images of rank {rank} are not copied to node {to}: {error}"));
        }
        let files: BTreeSet<u32> = self.rank(rank).retention.files().into_iter().collect();
        let (kept, late): (Vec<u32>, Vec<u32>) =
            generations.iter().partition(|g| files.contains(g));
        self.note_held(rank, &kept, to);
        if !late.is_empty() {
            self.nodes[to as usize].send(ToNode::Remove { rank, generations: late });
        }
        let mut event = self.event(EventKind::Copied);
        event.rank = Some(rank);
        event.node = Some(to);
        event.count = Some(kept.len() as u64);
        self.log_event(event);
    }
}
