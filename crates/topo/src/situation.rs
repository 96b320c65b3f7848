//! Where a job's ranks are, which nodes are spare, and which ways messages take.

use crate::network::Network;
use crate::pattern::Message;
use crate::shape::{Link, Node};
use std::collections::HashMap;

/// Nobody's rank.
pub const NOBODY: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// Of each rank.
    pub node_of: Vec<Node>,
    /// Nodes that no rank is on and that work.
    pub spares: Vec<Node>,
    /// By rank of sender and receiver: the choice of way, where it is not the network's own.
    pub ways: HashMap<(u32, u32), u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SituationError {
    #[error("{ranks} ranks and {spares} spares, but {nodes} nodes")]
    Nodes { ranks: u32, spares: usize, nodes: u32 },
}

/// Ranks of a node that go to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    pub from: Node,
    pub to: Node,
}

impl Situation {
    /// One rank on each node that is not spare, in the network's order.
    pub fn new(
        network: &Network,
        ranks: u32,
        spares: &[Node],
    ) -> Result<Situation, SituationError> {
        let mut is_spare = vec![false; network.nodes() as usize];
        spares.iter().for_each(|node| is_spare[*node as usize] = true);
        let free = network.in_order().into_iter().filter(|node| !is_spare[*node as usize]);
        let node_of: Vec<Node> = free.take(ranks as usize).collect();
        if node_of.len() < ranks as usize {
            let (nodes, spares) = (network.nodes(), spares.len());
            return Err(SituationError::Nodes { ranks, spares, nodes });
        }
        Ok(Situation { node_of, spares: spares.to_vec(), ways: HashMap::new() })
    }

    /// After ranks have moved, and with a node lost.
    #[must_use]
    pub fn after(&self, moves: &[Move], lost: Node) -> Situation {
        let to: HashMap<Node, Node> = moves.iter().map(|each| (each.from, each.to)).collect();
        let node_of: Vec<Node> =
            self.node_of.iter().map(|node| to.get(node).copied().unwrap_or(*node)).collect();
        let taken: std::collections::HashSet<Node> = to.values().copied().collect();
        let given: Vec<Node> = to.keys().copied().filter(|node| !taken.contains(node)).collect();
        let stay =
            self.spares.iter().copied().filter(|node| !taken.contains(node) && *node != lost);
        let mut spares: Vec<Node> =
            stay.chain(given.into_iter().filter(|node| *node != lost)).collect();
        spares.sort_unstable();
        Situation { node_of, spares, ways: self.ways.clone() }
    }

    /// With these ranks on another node.
    #[must_use]
    pub fn with(&self, ranks: &[u32], node: Node) -> Situation {
        let mut after = self.clone();
        after.settle(ranks, node);
        after
    }

    /// These ranks are on another node from now on.
    pub fn settle(&mut self, ranks: &[u32], node: Node) {
        for rank in ranks {
            if let Some(home) = self.node_of.get_mut(*rank as usize) {
                *home = node;
            }
        }
        self.spares.retain(|spare| *spare != node);
    }

    /// Appends the links of a message.
    pub fn route(&self, network: &Network, message: &Message, links: &mut Vec<Link>) {
        let choice = match self.ways.is_empty() {
            true => 0,
            false => self.ways.get(&(message.from, message.to)).copied().unwrap_or(0),
        };
        let (from, to) = (self.node_of[message.from as usize], self.node_of[message.to as usize]);
        if from != to {
            network.shape.route(from, to, choice, links);
        }
    }

    /// For each node: the first of its ranks, or `NOBODY`.
    pub fn first_rank(&self, nodes: u32) -> Vec<u32> {
        let mut first = vec![NOBODY; nodes as usize];
        for (rank, node) in (0u32..).zip(&self.node_of) {
            let slot = &mut first[*node as usize];
            *slot = (*slot).min(rank);
        }
        first
    }
}
