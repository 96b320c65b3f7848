//! A node that leaves the job, or hears that others do.
//!
//! Kept true: a rank that was held for its image goes on if that does not come about; what a node
//! knows of its own ranks it answers for as long as it is there, after their processes have ended.

use super::Agent;
use super::consistent_cut::recorded;
use super::state::image_copy::Copy;
use super::state::leaving::There;
use crate::checkpoint::Pouring;
use eyrie_control::node::{Determinants, FromNode};
use eyrie_exchange::expected_images::Token;
use eyrie_exchange::image_files;
use eyrie_exchange::image_stream::ImageStream;
use eyrie_exchange::store_client::Client;
use eyrie_image::Tap;
use eyrie_process::reap;
use eyrie_process::stop_points;
use eyrie_protocol::membership::Member;
use eyrie_protocol::replicas::{Answer, Words, longest};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

impl Agent {
    /// These nodes leave: tells when nothing that is recorded here by now goes with them.
    pub(super) fn hear_leaving(&mut self, round: u64, nodes: &[u32]) {
        let Some(network) = &self.network else { return };
        let members = network.members.lock().unwrap_or_else(PoisonError::into_inner);
        let leaving = members.iter().filter(|m| nodes.contains(&m.0));
        let leaving: Vec<Member> =
            leaving.map(|&(node, epoch, _)| Member { node, epoch }).collect();
        drop(members);
        self.leaving.leaves = nodes.contains(&network.own.node);
        network.links.iter().for_each(|l| l.leaving(&leaving));
        self.let_out(FromNode::Guarded { round });
    }

    /// Images of ranks that leave go to their next home while they are written.
    pub(super) fn pouring(&self, rank: u32, generation: u32) -> Option<Pouring> {
        let network = self.network.as_ref().filter(|_| self.leaving.leaves)?;
        let copy = self.ranks[rank as usize].capture.copy.as_ref()?;
        let (to, key, poured) = (copy.partner?, copy.key?, Arc::clone(&copy.poured));
        let (own, members) = (network.own.clone(), Arc::clone(&network.members));
        let name = image_files::own_name(rank, generation);
        let together = network.homes.iter().filter(|home| **home == own.node).count();
        Some(Box::new(move || {
            let connect = move || Client::connect(&own, &members, to);
            let pour = connect().and_then(|client| {
                let pour = ImageStream::begin(client, &name, key, poured)?;
                pour.iter().for_each(|pour| {
                    let (connect, name) = (connect.clone(), name.clone());
                    pour.widen(together, Box::new(move || connect()?.beside(&name, key)));
                });
                Ok(pour)
            });
            match pour {
                Ok(pour) => pour.map(|pour| Box::new(pour) as Box<dyn Tap>),
                Err(error) => {
                    tracing::warn!(rank, to, %error, "an image is brought when it is written");
                    None
                }
            }
        }))
    }

    /// Generations of a rank that the node which its images go to is known to have.
    pub(super) fn known_there(&mut self, rank: u32, copy: &Copy) -> BTreeSet<u32> {
        let members = self.network.as_ref().filter(|_| self.leaving.leaves).map(|n| &n.members);
        let epoch = members.zip(copy.partner).and_then(|(members, to)| {
            let members = members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().find(|m| m.0 == to).map(|m| (to, m.1))
        });
        let there = &mut self.ranks[rank as usize].there;
        if epoch.is_none() || there.node != epoch {
            *there = There { node: epoch, ..There::default() };
        }
        there.coming.clone_from(&copy.missing);
        there.generations.clone()
    }

    /// An image has come to that node, with all that it needs.
    pub(super) fn is_there(&mut self, rank: u32, generation: u32) {
        let there = &mut self.ranks[rank as usize].there;
        let coming = std::mem::take(&mut there.coming);
        if there.node.is_some() {
            there.generations.extend(coming.into_iter().chain([generation]));
        }
    }

    /// An image comes here from the node that its rank leaves.
    pub(super) fn invite(&self, rank: u32, generation: u32, key: Token) {
        self.network.iter().for_each(|n| n.invited.invite(rank, generation, key));
    }

    /// A rank that is held goes on, or is not held if it is not yet.
    pub(super) fn let_rank_go(&mut self, rank: u32) {
        // It is not collected yet, if it is there.
        let r = self.rank(rank);
        if let (Some(hold), Some(_)) = (r.capture.hold.take(), &r.proc) {
            hold.let_go();
        }
    }

    /// The ranks here come back elsewhere: their processes end.
    pub(super) fn vacate(&mut self) {
        let Some(network) = &self.network else { return };
        let own = network.own.node;
        let here = (0u32..).zip(&network.homes).filter(|(_, home)| **home == own);
        self.leaving.vacated = here.map(|(rank, _)| rank).collect();
        self.leaving.vacating = true;
        self.give_up_starts();
        self.signal_all(libc::SIGKILL);
        self.tell_vacated();
    }

    /// Tells that no process of a rank is left, once that is so.
    pub(super) fn tell_vacated(&mut self) {
        if self.leaving.vacating
            && self.ranks.iter().all(|r| r.proc.is_none())
            && self.processes.ending.is_empty()
        {
            self.leaving.vacating = false;
            let left = reap::clear() as u64;
            stop_points::reach("leave-6");
            self.say(FromNode::Vacated { left });
        }
    }

    /// What is recorded here of ranks that leave this node.
    pub(super) fn answer_for_own(&self, ranks: &[u32], answer: &mut Answer) {
        let Some(network) = self.network.as_ref().filter(|_| !self.leaving.vacated.is_empty())
        else {
            return;
        };
        answer.in_step.push(Member { node: network.own.node, epoch: network.own.epoch });
        for rank in self.leaving.vacated.iter().filter(|r| ranks.contains(r)) {
            let Determinants { first, words, .. } = recorded(&self.segment, *rank);
            let own = Words { first, words };
            let held = answer.held.remove(rank);
            let longest = longest(held.into_iter().chain([own]));
            answer.held.extend(longest.map(|words| (*rank, words)));
        }
    }

    /// Nothing of the job hangs on this node any more.
    pub(super) fn depart(&mut self) {
        stop_points::reach("leave-7");
        self.leaving.departs = true;
        self.finish();
    }

    /// Whether its storage goes, too, whatever is to be kept at the job's end.
    pub fn departs(&self) -> bool {
        self.leaving.departs
    }
}
