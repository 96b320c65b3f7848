//! Routers in the simulation: what goes by them, what they keep, and what follows when they die.
//!
//! Real: who is the router of whom, and which way streams go (`protocol::routing`). Modelled: the
//! router's log, which is its part of the segment. Checkpoints of ranks with routers: `pausing`.

use crate::node::{Node, Peer};
use crate::program::Channel;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;
use eyrie_protocol::routing::NOWHERE;

impl Node {
    /// The node that messages to a rank go to from here.
    pub fn target(&self, rank: u32) -> u32 {
        match self.paths.router(rank) {
            NOWHERE => self.paths.home(rank),
            router if router == self.member.node => self.paths.home(rank),
            router => router,
        }
    }

    /// Whether messages to a rank go to `peer` now, which wants them.
    pub fn goes_to(&self, rank: u32, peer: Member) -> bool {
        self.paths.router(rank) == NOWHERE || self.target(rank) == peer.node
    }

    /// Forgets who wanted messages that go elsewhere now. Where there are routers, one end may
    /// know of a change before the other: what it wants counts from when both do.
    pub fn redirect(&mut self, rank: u32) {
        if self.paths.router(rank) != NOWHERE {
            return;
        }
        let target = self.target(rank);
        let others = self.peers.iter_mut().filter(|(peer, _)| peer.node != target);
        others.for_each(|(_, link)| link.next.retain(|channel, _| channel.1 != rank));
    }

    /// Position up to which a router has a channel.
    fn logged(&self, channel: Channel) -> u64 {
        let mut end = self.floor(channel);
        let log = self.segment.streams.get(&channel);
        while log.is_some_and(|s| s.messages.contains_key(&end)) {
            end += 1;
        }
        end
    }

    /// Puts a message into a router's log, if it is the next.
    pub fn log(&mut self, channel: Channel, position: u64, message: Message) {
        if position == self.logged(channel) {
            let stream = self.segment.streams.entry(channel).or_default();
            stream.messages.insert(position, message);
        }
    }

    /// What a router has heard of receptions, and has not told to the senders on `peer` yet.
    pub fn relay(&mut self, peer: Member) -> Vec<PeerMsg> {
        let Node { peers, segment, paths, homes, .. } = self;
        let Some(link) = peers.get_mut(&peer) else { return Vec::new() };
        let mut out = Vec::new();
        for (&channel, stream) in &segment.streams {
            if !paths.routes(channel.1) || homes[channel.0 as usize] != Some(peer) {
                continue;
            }
            let told = link.told.entry(channel).or_default();
            if *told < stream.taken {
                *told = stream.taken;
                out.push(PeerMsg::Taken { channel, upto: stream.taken });
            }
        }
        out
    }
}

impl World {
    /// A rank has another home: its node may have said what it wants before that was known here,
    /// and before another home was, so that it was forgotten. As the product does, ranks here ask.
    pub fn ask_home(&mut self, at: Member, rank: u32, home: Member) {
        let Some(node) = self.nodes.get(&at).filter(|_| home != at) else { return };
        let wanted = |link: &Peer| link.next.keys().any(|c| c.1 == rank);
        if node.paths.router(rank) != NOWHERE || node.peers.get(&home).is_none_or(wanted) {
            return;
        }
        let here = (0u32..).zip(&node.homes).filter(|(_, of)| **of == Some(at));
        let here: Vec<u32> = here.map(|(from, _)| from).collect();
        for from in here {
            self.tell_peer(at, home, PeerMsg::Open { from, inner: false });
        }
    }

    /// The members have changed, and with them the routers perhaps.
    pub fn new_routers(&mut self, at: Member) {
        let ranks = self.ranks();
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let routers = self.routing.all(ranks, &node.members);
        let changed = node.paths.set_routers(&routers);
        for &(rank, was) in &changed {
            node.redirect(rank);
            node.standing.forget(rank);
            // The new one knows nothing of what was received.
            node.peers.values_mut().for_each(|link| link.told.retain(|c, _| c.1 != rank));
            if was == at.node || node.paths.routes(rank) {
                // It begins at the floor, or is nobody's business here any more.
                let streams = node.segment.streams.iter_mut().filter(|(c, _)| c.1 == rank);
                streams.for_each(|(_, stream)| stream.messages.clear());
            }
        }
        for (rank, _) in changed {
            self.want(at, rank, None);
            self.want_routed(at, |channel| channel.1 == rank);
        }
    }

    /// The node that a channel comes from, for a receiver at `at` or one that it routes for.
    pub fn origin(&self, at: Member, channel: Channel) -> Option<Member> {
        let node = self.nodes.get(&at)?;
        let origin = node.paths.origin((channel.0, channel.1));
        node.members.iter().copied().find(|m| m.node == origin)
    }

    /// A router says from where on it wants these channels.
    pub fn want_routed(&mut self, at: Member, which: impl Fn(Channel) -> bool) {
        let ranks = self.ranks();
        let Some(node) = self.nodes.get(&at) else { return };
        let mut wants = Vec::new();
        for rank in (0..ranks).filter(|rank| node.paths.routes(*rank)) {
            for from in (0..ranks).filter(|from| *from != rank) {
                let Some(origin) = self.origin(at, (from, rank, 0)) else { continue };
                for channel in [(from, rank, 0), (from, rank, 1)] {
                    if which(channel) {
                        wants.push((origin, channel, node.logged(channel)));
                    }
                }
            }
        }
        for (origin, channel, position) in wants {
            self.tell_peer(at, origin, PeerMsg::Have { channel, position, life: 0 });
        }
    }

    /// A router gives up what is not needed any more of the channels to `rank`; where it has
    /// nothing it goes on from there.
    pub fn routed_trim(&mut self, at: Member, rank: u32) {
        let Some(node) = self.nodes.get(&at).filter(|n| n.paths.routes(rank)) else { return };
        let empty = |c: &Channel| node.segment.streams.get(c).is_none_or(|s| s.messages.is_empty());
        let ranks = self.ranks();
        let all = (0..ranks).flat_map(|from| [(from, rank, 0), (from, rank, 1)]);
        let behind: Vec<Channel> = all.filter(empty).collect();
        self.want_routed(at, |channel| behind.contains(&channel));
    }
}
