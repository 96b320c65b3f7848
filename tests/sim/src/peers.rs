//! Connections between simulated nodes: made, found ended, and what was to be copied on them.

use crate::node::Peer;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;
use std::collections::BTreeMap;
use std::rc::Rc;

impl World {
    /// Two nodes connect, if both know each other as members.
    pub fn connect(&mut self, from: Member, to: Member) {
        if let Some(node) = self.nodes.get_mut(&from) {
            node.connecting.remove(&to);
        }
        let knows = |w: &World, a: Member, b: Member| {
            w.nodes.get(&a).is_some_and(|n| n.members.contains(&b))
        };
        if !knows(self, from, to) || !knows(self, to, from) {
            return self.wake_pump_later(from);
        }
        let conn = self.open(Endpoint::Node(from), Endpoint::Node(to));
        for (own, peer) in [(from, to), (to, from)] {
            let Some(node) = self.nodes.get_mut(&own) else { continue };
            let (next, told) = Default::default();
            node.peers.insert(peer, Peer { conn, next, told });
            let homes = &node.homes;
            node.standing.reconnected(|rank| homes[rank as usize] == Some(peer));
            node.gate.disconnected(peer);
            node.gate.connected(peer);
            let ranks: Vec<u32> = node.procs.keys().copied().collect();
            ranks.into_iter().for_each(|rank| self.want(own, rank, None));
            self.want_routed(own, |_| true);
            let orders: Vec<u32> = self.nodes[&own].orders.keys().copied().collect();
            orders.into_iter().for_each(|rank| self.try_order(own, rank));
            self.lost_copies(own, peer);
            self.wake_pump(own);
        }
    }

    /// A mutation: a node that begins anew goes on with the connections that it had.
    pub fn keep_links(&mut self, before: Member, now: Member, links: &BTreeMap<Member, Peer>) {
        for (peer, link) in links {
            let ends = &mut self.conns[link.conn].ends;
            ends.iter_mut().filter(|e| **e == Endpoint::Node(before)).for_each(|e| {
                *e = Endpoint::Node(now);
            });
            let kept = Peer { conn: link.conn, next: BTreeMap::new(), told: BTreeMap::new() };
            self.node(now).into_iter().for_each(|n| drop(n.peers.insert(*peer, kept.clone())));
            let Some(other) = self.nodes.get_mut(peer) else { continue };
            if let Some(link) = other.peers.remove(&before) {
                other.peers.insert(now, link);
            }
        }
    }

    fn wake_pump_later(&mut self, at: Member) {
        if let Some(node) = self.nodes.get_mut(&at)
            && !std::mem::replace(&mut node.pumping, true)
        {
            self.at(200, Event::Pump { at });
        }
    }

    /// A peer is gone, or does not have any more what was on its way there.
    pub fn lost_copies(&mut self, at: Member, peer: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let (lost, left) = node.copies.iter().partition(|c| c.0 == peer);
        node.copies = left;
        let lost: Vec<(Member, u32, u32)> = lost;
        let of = |t: &(&(u32, u32), &(Member, Rc<Image>))| t.1.0 == peer;
        let failed: Vec<(u32, u32)> = node.taken.iter().filter(of).map(|t| *t.0).collect();
        for (rank, generation) in failed {
            // It does not count, and nobody was told of it.
            if let Some(node) = self.nodes.get_mut(&at) {
                node.taken.remove(&(rank, generation));
                node.disk.remove(&(rank, generation));
            }
            // Of one that was given up since nobody is told; its rank may stand for another.
            if self.nodes.get(&at).is_some_and(|n| n.capturing.get(&rank) == Some(&generation)) {
                self.rank_goes_on(at, rank);
                self.tell(at, FromNode::NoCheckpoint { rank });
            }
        }
        for (to, rank, generation) in lost {
            self.tell(at, FromNode::NotCopied { rank, generation, to });
        }
    }

    pub fn peer_closed(&mut self, at: Member, peer: Member, conn: usize) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if node.peers.get(&peer).is_none_or(|p| p.conn != conn) {
            return;
        }
        node.peers.remove(&peer);
        node.gate.disconnected(peer);
        self.lost_copies(at, peer);
        self.wake_pump(at);
    }
}
