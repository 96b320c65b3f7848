//! Checkpoints of ranks that have routers: the ten steps of `protocol::router_pause`, and who dies
//! in them.
//!
//! Real: both ends of the pause. Modelled: the connections that the marks go on.

use crate::program::Channel;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;

/// Once in so many steps somebody who takes part dies.
const STRIKES: u64 = 25;

impl World {
    /// Whoever routes for a rank, as the controller sees it.
    pub fn router_of(&self, rank: u32) -> Option<Member> {
        let members = self.controller.planner.members();
        let lives = |node: u32| members.iter().any(|m| m.node == node);
        let node = self.routing.router(rank, lives)?;
        members.iter().copied().find(|m| m.node == node)
    }

    /// At a router: nothing goes to the rank from now on.
    pub fn pause(&mut self, at: Member, rank: u32, generation: u32) {
        let early = self.mutated(Mutation::StandsUnanswered);
        let Some(node) = self.nodes.get_mut(&at).filter(|n| n.paths.routes(rank)) else { return };
        if let Some(before) = node.standing.stands_for(rank).filter(|g| *g < generation) {
            let why = format!("{at} still stands for checkpoint {before} of rank {rank}");
            return self.fail(why);
        }
        if node.standing.pause(rank, generation) {
            if early {
                self.tell(at, FromNode::Paused { rank, generation });
            }
            self.strike_nearby(rank);
        }
    }

    /// Sends the marks that are to go to ranks on `peer`, behind all that was sent there.
    pub fn send_marks(&mut self, at: Member, peer: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let there = |rank: &u32| node.homes[*rank as usize] == Some(peer);
        let ranks: Vec<u32> = node.standing.unmarked().filter(there).collect();
        for rank in ranks {
            let marked = self.nodes.get_mut(&at).and_then(|n| n.standing.mark(rank));
            if let Some(generation) = marked {
                self.tell_peer(at, peer, PeerMsg::Mark { rank, generation });
                self.strike_nearby(rank);
            }
        }
    }

    /// The rank's node has all that was sent before the mark.
    pub fn mark_answered(&mut self, at: Member, rank: u32, generation: u32) {
        let early = self.mutated(Mutation::StandsUnanswered);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if !node.standing.answered(rank, generation) || early {
            return;
        }
        self.tell(at, FromNode::Paused { rank, generation });
        self.strike_nearby(rank);
    }

    /// The rank runs again: its node lets its router go on.
    pub fn goes_on(&mut self, at: Member, rank: u32, generation: u32) {
        let Some(node) = self.nodes.get(&at) else { return };
        let router = node.paths.router(rank);
        if let Some(router) = node.members.iter().copied().find(|m| m.node == router) {
            self.tell_peer(at, router, PeerMsg::GoOn { rank, generation });
            self.strike_nearby(rank);
        }
    }

    /// What is on its way from one end of a connection between nodes.
    fn under_way(&self, conn: usize, from: Member) -> impl Iterator<Item = &PeerMsg> {
        let conn = &self.conns[conn];
        let queue = conn.side(Endpoint::Node(from)).map(|side| &conn.queues[side]);
        queue.into_iter().flatten().filter_map(|(_, packet)| match packet {
            Packet::Peer(said) => Some(said),
            _ => None,
        })
    }

    /// While an image is taken nothing is on its way from the router that stands: all that it had
    /// sent is there, or its receiver has asked for it again.
    pub fn check_quiet(&mut self, at: Member, rank: u32, router: Option<Member>) {
        let Some(router) = router.and_then(|r| self.nodes.get(&r)) else { return };
        let Some(node) = self.nodes.get(&at) else { return };
        let Some(proc) = node.procs.get(&rank) else { return };
        // Another one may route for it by now, or the rank may be another process.
        let heedless = self.mutated(Mutation::SendsWhilePaused);
        if !router.standing.holds(rank) && !heedless {
            return;
        }
        let Some(link) = router.peers.get(&at).filter(|_| router.paths.routes(rank)) else {
            return;
        };
        let comes = self.under_way(link.conn, router.member).find_map(|said| match said {
            PeerMsg::Data { channel, position, .. } if channel.1 == rank => {
                Some(format!("{position} of {channel:?} comes"))
            }
            _ => None,
        });
        // What came while its sender was at the same node was not taken. When the sender leaves
        // that, the node says anew from where on it wants the channel; until the router hears so,
        // what it believes to have sent counts for nothing (in `protocol::link` it bears an earlier
        // serial). If the connection broke, it may not hear so on that. Said before the mark was
        // answered, it would have been heard.
        let (settled, broken) = (router.standing.is_settled(rank), self.conns[link.conn].broken);
        let asked = |c: &Channel| {
            let mut said = self.under_way(link.conn, at);
            let anew = |s: &PeerMsg| matches!(s, PeerMsg::Have { channel, .. } if channel == c);
            settled && (broken || said.any(anew))
        };
        let mut wrong = comes;
        for (channel, next) in link.next.iter().filter(|(c, _)| c.1 == rank) {
            let held = node.segment.streams.get(channel);
            let mut end = proc.state.next(channel.0, channel.2);
            while held.is_some_and(|s| s.messages.contains_key(&end)) {
                end += 1;
            }
            let here = node.homes[channel.0 as usize] == Some(at);
            if *next > end && !here && !asked(channel) {
                wrong = Some(format!("{channel:?} is on its way from {end} to {next}"));
            }
        }
        if let Some(what) = wrong {
            self.fail(format!("rank {rank} is checkpointed while {what}"));
        }
    }

    /// A step of a checkpoint: once in so many somebody who takes part in it dies right now.
    fn strike_nearby(&mut self, rank: u32) {
        if self.faults_left > 0 && self.random.one_in(STRIKES) {
            let after = self.random.below(30);
            self.at(after, Event::Strike { rank });
        }
    }
}
