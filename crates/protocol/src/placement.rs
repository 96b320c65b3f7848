//! Which node each rank has its home on.
//!
//! Pure. Kept true: a rank's home is a live node, or the node it was lost with until it is placed
//! again - which `recovery` decides.

use serde::{Deserialize, Serialize};

/// How ranks are laid out at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Map {
    /// The first ranks on the first node, the next on the second.
    #[default]
    Block,
    /// One on each node in turn.
    Cyclic,
}

/// The homes of all ranks.
#[derive(Debug, Clone)]
pub struct Placement {
    homes: Vec<u32>,
    /// By node.
    live: Vec<bool>,
}

impl Placement {
    /// `nodes` that ranks are laid out on, and `spares` behind them.
    pub fn new(ranks: u32, nodes: u32, spares: u32, map: Map) -> Placement {
        let home = |rank: u32| match map {
            Map::Block => (u64::from(rank) * u64::from(nodes) / u64::from(ranks)) as u32,
            Map::Cyclic => rank % nodes,
        };
        Placement {
            homes: (0..ranks).map(home).collect(),
            live: vec![true; (nodes + spares) as usize],
        }
    }

    pub fn home(&self, rank: u32) -> u32 {
        self.homes[rank as usize]
    }

    pub fn homes(&self) -> &[u32] {
        &self.homes
    }

    pub fn is_live(&self, node: u32) -> bool {
        self.live.get(node as usize).copied().unwrap_or(false)
    }

    /// Ranks that have their home on a node.
    pub fn ranks_on(&self, node: u32) -> Vec<u32> {
        (0u32..).zip(&self.homes).filter(|(_, home)| **home == node).map(|(rank, _)| rank).collect()
    }

    /// A node is there, from the beginning or later.
    pub fn join(&mut self, node: u32) {
        let node = node as usize;
        self.live.resize(self.live.len().max(node + 1), false);
        self.live[node] = true;
    }

    /// A node is gone.
    pub fn lose(&mut self, node: u32) {
        if let Some(live) = self.live.get_mut(node as usize) {
            *live = false;
        }
    }

    /// A rank has its home on another node from now on.
    pub fn move_to(&mut self, rank: u32, node: u32) {
        self.homes[rank as usize] = node;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_laid_out_in_blocks_or_in_turn() {
        let homes = |ranks, nodes, map| Placement::new(ranks, nodes, 0, map).homes().to_vec();
        assert_eq!(homes(6, 3, Map::Block), [0, 0, 1, 1, 2, 2]);
        assert_eq!(homes(5, 2, Map::Block), [0, 0, 0, 1, 1]);
        assert_eq!(homes(5, 2, Map::Cyclic), [0, 1, 0, 1, 0]);
        assert_eq!(homes(2, 4, Map::Block), [0, 2]);
    }

    #[test]
    fn what_a_node_had_stays_with_it_until_it_is_moved() {
        let mut p = Placement::new(6, 3, 1, Map::Block);
        p.lose(1);
        assert!(!p.is_live(1) && p.is_live(3));
        p.move_to(2, 3);
        assert!(!p.is_live(5));
        p.join(5);
        assert!(p.is_live(5) && !p.is_live(4) && !p.is_live(1));
        assert_eq!((p.homes(), p.ranks_on(1)), (&[0, 0, 3, 1, 2, 2][..], vec![3]));
    }
}
