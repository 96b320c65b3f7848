//! What links have to carry, and how that changes if some nodes' ranks are elsewhere: only messages
//! of those ranks are looked at, which is what makes it quick among many nodes.

use super::{Candidate, Costs, Method};
use crate::network::Network;
use crate::pattern::Pattern;
use crate::shape::{Link, Node};
use crate::sharing::Sharing;
use crate::situation::{Move, Situation};
use std::collections::{HashMap, HashSet};

pub struct Loads<'a> {
    network: &'a Network,
    pattern: &'a Pattern,
    situation: &'a Situation,
    sharing: Sharing,
    /// Links, those first that are busy longest, and those first that most messages share.
    by_time: Vec<Link>,
    by_messages: Vec<Link>,
    /// How long memory and engines take at least; where a rank is does not matter for that.
    at_nodes: f64,
    before: f64,
    /// Of each rank: its part of `messages`.
    start: Vec<u32>,
    messages: Vec<u32>,
    /// Ranks of a node: its part of `ranks`.
    first: Vec<u32>,
    ranks: Vec<u32>,
    // While a candidate is looked at: what changes on links, and which messages were seen.
    changes: HashMap<Link, (f64, i64)>,
    seen: Vec<u32>,
    round: u32,
}

/// Numbers by the key that they belong to: where each key's begin, and all of them.
fn grouped(keys: usize, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> (Vec<u32>, Vec<u32>) {
    let mut start = vec![0u32; keys + 1];
    pairs.clone().for_each(|(key, _)| start[key as usize + 1] += 1);
    for key in 0..keys {
        start[key + 1] += start[key];
    }
    let (mut next, mut all) = (start.clone(), vec![0; start[keys] as usize]);
    for (key, value) in pairs {
        all[next[key as usize] as usize] = value;
        next[key as usize] += 1;
    }
    (start, all)
}

impl<'a> Loads<'a> {
    pub fn new(network: &'a Network, pattern: &'a Pattern, situation: &'a Situation) -> Loads<'a> {
        let sharing = Sharing::of(network, pattern, situation);
        let busy = |link: &Link| sharing.messages[*link as usize] > 0;
        let used: Vec<Link> = (0..network.shape.links()).filter(busy).collect();
        let time = |link: Link| sharing.bytes[link as usize] / network.shape.capacity(link);
        let mut by_time = used.clone();
        by_time.sort_by(|a, b| time(*b).total_cmp(&time(*a)));
        let mut by_messages = used;
        by_messages.sort_by_key(|link| u32::MAX - sharing.messages[*link as usize]);
        let ends = (0u32..)
            .zip(&pattern.messages)
            .flat_map(|(number, m)| [(m.from, number), (m.to, number)]);
        let (start, messages) = grouped(pattern.ranks as usize, ends);
        let homes = (0u32..).zip(&situation.node_of).map(|(rank, node)| (*node, rank));
        let (first, ranks) = grouped(network.nodes() as usize, homes);
        let at_nodes = at_nodes(network, pattern);
        let before = at_nodes.max(sharing.busiest(network));
        let seen = vec![0; pattern.messages.len()];
        let changes = HashMap::new();
        Loads {
            network,
            pattern,
            situation,
            sharing,
            by_time,
            by_messages,
            at_nodes,
            before,
            start,
            messages,
            first,
            ranks,
            changes,
            seen,
            round: 0,
        }
    }

    /// How long it takes until all ranks are where they go. The lost node's come from others'
    /// storage, of which this knows nothing: their own link is what counts.
    pub fn move_s(&self, moves: &[Move], lost: Node, costs: &Costs) -> f64 {
        let mut carried: HashMap<Link, f64> = HashMap::new();
        let mut links = Vec::new();
        for each in moves.iter().filter(|each| each.from != lost) {
            links.clear();
            self.network.shape.route(each.from, each.to, 0, &mut links);
            for link in &links {
                *carried.entry(*link).or_default() += 1.0 / self.network.shape.capacity(*link);
            }
        }
        let most = carried.values().copied().fold(1.0, f64::max);
        most * costs.state_bytes / self.network.hardware.link_bytes_per_s
    }

    pub fn candidate(
        &mut self,
        method: Method,
        moves: Vec<Move>,
        lost: Node,
        costs: &Costs,
    ) -> Candidate {
        self.change(&moves);
        let (time, sharing) = (self.busiest().max(self.at_nodes), self.most());
        let move_s = self.move_s(&moves, lost, costs);
        let mut candidate = Candidate {
            method,
            moves,
            sharing,
            slowdown: 1.0,
            is_simulated: false,
            move_s,
            slow_s: 0.0,
        };
        candidate.judge(time / self.before, costs);
        candidate
    }

    /// How long the pattern takes at least as it is, in bytes at the speed of a link.
    pub fn before(&self) -> f64 {
        self.before
    }

    /// The same with these ranks on another node, and most messages on a link then.
    pub fn with_ranks(&mut self, ranks: &[u32], to: Node) -> (f64, u32) {
        let moves: HashSet<u32> = ranks.iter().copied().collect();
        let place = |rank: u32, node: Node| if moves.contains(&rank) { to } else { node };
        self.change_ranks(ranks, place);
        (self.busiest().max(self.at_nodes), self.most())
    }

    /// Notes what changes on links.
    fn change(&mut self, moves: &[Move]) {
        let to: HashMap<Node, Node> = moves.iter().map(|each| (each.from, each.to)).collect();
        let of = |node: Node| self.first[node as usize]..self.first[node as usize + 1];
        let on_nodes = moves.iter().flat_map(|each| of(each.from));
        let ranks: Vec<u32> = on_nodes.map(|at| self.ranks[at as usize]).collect();
        self.change_ranks(&ranks, |_, node| to.get(&node).copied().unwrap_or(node));
    }

    /// The same of ranks; `place`: where a rank of a node is afterwards.
    fn change_ranks(&mut self, ranks: &[u32], place: impl Fn(u32, Node) -> Node) {
        self.changes.clear();
        self.round += 1;
        let node_of = &self.situation.node_of;
        let place = |rank: u32| place(rank, node_of[rank as usize]);
        let mut links = Vec::new();
        for rank in ranks.iter().filter(|rank| **rank < self.pattern.ranks) {
            let own = self.start[*rank as usize]..self.start[*rank as usize + 1];
            for number in own.map(|at| self.messages[at as usize]) {
                if std::mem::replace(&mut self.seen[number as usize], self.round) == self.round {
                    continue;
                }
                let message = &self.pattern.messages[number as usize];
                links.clear();
                self.situation.route(self.network, message, &mut links);
                for link in links.drain(..) {
                    let change = self.changes.entry(link).or_default();
                    *change = (change.0 - message.bytes, change.1 - 1);
                }
                let (from, to) = (place(message.from), place(message.to));
                if from != to {
                    self.network.shape.route(from, to, 0, &mut links);
                }
                for link in links.drain(..) {
                    let change = self.changes.entry(link).or_default();
                    *change = (change.0 + message.bytes, change.1 + 1);
                }
            }
        }
    }

    /// How long the busiest link is busy after the changes.
    fn busiest(&self) -> f64 {
        let time = |link: &Link, more: f64| {
            (self.sharing.bytes[*link as usize] + more) / self.network.shape.capacity(*link)
        };
        let changed = self.changes.iter().map(|(link, change)| time(link, change.0));
        let other = self.by_time.iter().find(|link| !self.changes.contains_key(link));
        changed.chain(other.map(|link| time(link, 0.0))).fold(0.0, f64::max)
    }

    /// Most messages on a link after the changes.
    fn most(&self) -> u32 {
        let count =
            |link: &Link, more: i64| i64::from(self.sharing.messages[*link as usize]) + more;
        let changed = self.changes.iter().map(|(link, change)| count(link, change.1));
        let other = self.by_messages.iter().find(|link| !self.changes.contains_key(link));
        changed.chain(other.map(|link| count(link, 0))).max().unwrap_or(0) as u32
    }
}

/// The longest that a rank's memory or one of its engines is busy.
fn at_nodes(network: &Network, pattern: &Pattern) -> f64 {
    let (engines, memory) = (network.hardware.engines as usize, network.hardware.memory_links);
    let ranks = pattern.ranks as usize;
    let (mut sent, mut taken) = (vec![0.0; ranks], vec![0.0; ranks]);
    let mut by_engine = vec![0.0; ranks * engines * 2];
    for message in &pattern.messages {
        sent[message.from as usize] += message.bytes;
        taken[message.to as usize] += message.bytes;
        if engines > 0 {
            let lane = message.lane as usize % engines;
            by_engine[message.from as usize * engines + lane] += message.bytes;
            by_engine[(ranks + message.to as usize) * engines + lane] += message.bytes;
        }
    }
    let most = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    (most(&sent).max(most(&taken)) / memory).max(most(&by_engine))
}
