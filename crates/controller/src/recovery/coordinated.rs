//! `--ft coordinated` over nodes: ranks come back when all of them can, and when the connections
//! that they had between nodes are there again (`protocol::barrier`, `protocol::socket_restore`).
//!
//! Kept true: no rank of a set is started before all of that is done; if it cannot be, the set is
//! like one with a damaged image; what nodes say of an earlier attempt counts for nothing. All of
//! it is in the journal, what was found of each rank with the rank: a successor goes on.

use crate::Job;
use crate::outside::Machine;
use crate::recovery::model::UnderWay;
use eyrie_control::Meta;
use eyrie_control::cross_node_sockets::{self, RejoinStep, Rejoined};
use eyrie_control::node::{FromNode, ToNode};
use eyrie_protocol::barrier::RestoreBarrier;
use eyrie_protocol::socket_restore::Call;
use eyrie_protocol::socket_restore::SocketRestore;
use eyrie_protocol::socket_restore::Step;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

impl Job {
    /// Over nodes: the image of a rank is at its home. With the last one all come back.
    pub(crate) fn image_found(&mut self, rank: u32, meta: Box<Meta>) {
        let set = meta.generation;
        self.await_ranks(rank, set);
        self.ranks.rank(rank).restore.found = Some(meta);
        let muster = self.checkpoints.coordinated.as_mut().and_then(|t| t.back.muster.as_mut());
        let Some(ranks) = muster.and_then(|m| m.found(rank, set)) else { return };
        let nodes: BTreeSet<u32> =
            ranks.iter().map(|rank| self.nodes.placement.home(*rank)).collect();
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        coordinated.back.turn += 1;
        let rejoin = SocketRestore::new(nodes, coordinated.back.turn);
        coordinated.back.under_way = Some(UnderWay { set, ranks, rejoin });
        self.outside.reach("back-2");
        self.take_step(Step::Look);
    }

    /// The ranks of a set are awaited: all of them; once more, if they were there already, those
    /// that did not start, as a copy of an image turned out to be damaged.
    fn await_ranks(&mut self, rank: u32, set: u32) {
        let known = self.checkpoints.coordinated.as_ref().and_then(|t| t.back.muster.as_ref());
        let known = known.filter(|muster| muster.snapshot() == set);
        let again = known.is_some_and(RestoreBarrier::is_over);
        if known.is_some() && !again {
            return;
        }
        let waits = |r: &u32| !again || *r == rank || self.recovery.monitor.may_start(*r);
        let awaited: Vec<u32> = (0..self.size()).filter(waits).collect();
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        let mut muster = RestoreBarrier::new(set, awaited);
        for rank in coordinated.back.under_way.take().into_iter().flat_map(|u| u.ranks) {
            muster.found(rank, set);
        }
        coordinated.back.muster = Some(muster);
    }

    /// What a node says of ranks that stand, and of connections to others.
    pub(crate) fn hear_far(&mut self, node: u32, said: FromNode) {
        match said {
            FromNode::Stands { generation, result, sent } => {
                self.node_stands(node, generation, result, sent);
            }
            FromNode::HasRead { generation, result } => {
                self.node_has_read(node, generation, result);
            }
            FromNode::Rejoined { generation, turn, result } => {
                self.step_done(node, generation, turn, result);
            }
            _ => {}
        }
    }

    /// A node has done a step.
    fn step_done(
        &mut self,
        node: u32,
        generation: u32,
        turn: u64,
        result: Result<Rejoined, String>,
    ) {
        let under_way =
            self.checkpoints.coordinated.as_mut().and_then(|t| t.back.under_way.as_mut());
        let this = |u: &&mut UnderWay| u.set == generation && u.rejoin.turn() == turn;
        let Some(under_way) = under_way.filter(this) else { return };
        let rejoin = &mut under_way.rejoin;
        let step = match result {
            Ok(Rejoined::NodeEnds(place)) => rejoin.looked(node, turn, place),
            Ok(Rejoined::Joined { failed }) => rejoin.joined(node, turn, failed),
            Ok(Rejoined::Settled) => rejoin.settled(node, turn),
            Err(why) => Some(Step::Refused { node, why }),
        };
        if let Some(step) = step {
            self.take_step(step);
        }
    }

    fn take_step(&mut self, step: Step) {
        let Some(coordinated) = &mut self.checkpoints.coordinated else { return };
        let back = &mut coordinated.back;
        let Some(under_way) = &mut back.under_way else { return };
        let (generation, rejoin) = (under_way.set, &under_way.rejoin);
        let (turn, patient) = (rejoin.turn(), rejoin.is_slow());
        let nodes: Vec<u32> = rejoin.nodes().collect();
        back.turn = turn;
        let order = |step| ToNode::Rejoin(cross_node_sockets::Rejoin { generation, turn, step });
        match step {
            Step::Look => {
                for node in nodes {
                    let here = |rank: &u32| self.nodes.placement.home(*rank) == node;
                    let ranks = (0..self.size()).filter(here).collect();
                    self.nodes.all[node as usize].send(order(RejoinStep::Look { ranks }));
                }
            }
            Step::Join(all) => match with_tokens(all, &*self.outside.machine) {
                Ok(all) => {
                    for (node, calls) in all {
                        let step = RejoinStep::Join { calls, patient };
                        self.nodes.all[node as usize].send(order(step));
                    }
                }
                Err(error) => self.cannot_restart_coordinated(nodes[0], &error.to_string()),
            },
            Step::Settle => {
                for node in nodes {
                    self.nodes.all[node as usize].send(order(RejoinStep::Settle));
                }
            }
            Step::Over => {
                let ranks = back.under_way.take().map(|u| u.ranks).unwrap_or_default();
                self.outside.reach("back-3");
                for rank in ranks {
                    let meta = self.ranks.rank(rank).restore.found.take();
                    if let Some(meta) = meta.filter(|_| self.recovery.monitor.may_start(rank)) {
                        self.start_ordered(rank, *meta);
                    }
                }
            }
            Step::Refused { node, why } => self.cannot_restart_coordinated(node, &why),
        }
    }

    /// The set cannot be used: what failed did so at a node, and counts for a rank of that.
    fn cannot_restart_coordinated(&mut self, node: u32, why: &str) {
        let back = self.checkpoints.coordinated.as_mut().map(|t| &mut t.back);
        let Some(under_way) = back.and_then(|b| b.under_way.take()) else { return };
        let of_node = |rank: &u32| self.nodes.placement.home(*rank) == node;
        let rank = under_way.ranks.iter().copied().find(of_node).unwrap_or(0);
        if let Some(incarnation) =
            self.ranks.all[rank as usize].restore.order.as_ref().map(|o| o.incarnation)
        {
            self.ranks.rank(rank).incarnation = incarnation;
        }
        let (incarnation, why) =
            (self.ranks.rank(rank).incarnation, format!("the sockets of the ranks: {why}"));
        self.unrestorable(rank, incarnation, under_way.set, &why);
    }
}

/// What is to be made by whom. The two ends of each connection show each other what nobody else
/// knows, and what counts in this attempt only.
fn with_tokens(
    all: BTreeMap<u32, Vec<Call>>,
    machine: &dyn Machine,
) -> io::Result<Vec<(u32, Vec<cross_node_sockets::Call>)>> {
    let mut tokens: BTreeMap<cross_node_sockets::Link, [u8; 32]> = BTreeMap::new();
    let mut orders = Vec::new();
    for (node, calls) in all {
        let mut told = Vec::new();
        for Call { link, own, peer, calls } in calls {
            let token = match tokens.entry(link) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => *new.insert(machine.key()?),
            };
            told.push(cross_node_sockets::Call { link, own, peer, calls, token });
        }
        orders.push((node, told));
    }
    Ok(orders)
}
