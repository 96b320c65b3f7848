//! Which node each rank has its home on.
//!
//! Pure. Kept true: a rank's home is a live node, or the node it was lost with until it is placed
//! again; what one node loses goes to one spare as long as there is one, else to those with the
//! fewest ranks.

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
    /// For each node, the one that takes over its ranks.
    heirs: Vec<Option<u32>>,
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
            heirs: vec![None; (nodes + spares) as usize],
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

    /// Live nodes, in order.
    pub fn live(&self) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.live).filter(|(_, live)| **live).map(|(node, _)| node)
    }

    /// Ranks that have their home on a node.
    pub fn ranks_on(&self, node: u32) -> Vec<u32> {
        (0u32..).zip(&self.homes).filter(|(_, home)| **home == node).map(|(rank, _)| rank).collect()
    }

    /// A node is gone. Returns the ranks that are lost with it.
    pub fn lose(&mut self, node: u32) -> Vec<u32> {
        if let Some(live) = self.live.get_mut(node as usize) {
            *live = false;
        }
        self.ranks_on(node)
    }

    /// Gives a rank whose home is gone a new one; of nodes that are as good, one of `preferred` is
    /// taken. `None`: no node is left.
    pub fn place(&mut self, rank: u32, preferred: &[u32]) -> Option<u32> {
        let old = self.home(rank);
        if self.is_live(old) {
            return Some(old);
        }
        let heir = self.heirs[old as usize].filter(|heir| self.is_live(*heir));
        let home = match heir {
            Some(heir) => heir,
            None => {
                let load = |node: u32| self.homes.iter().filter(|h| **h == node).count();
                let order = |node: &u32| (load(*node), !preferred.contains(node), *node);
                let best = self.live().min_by_key(order)?;
                // A spare takes all of the dead node's ranks.
                if load(best) == 0 {
                    self.heirs[old as usize] = Some(best);
                }
                best
            }
        };
        self.homes[rank as usize] = home;
        Some(home)
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
    fn a_spare_takes_all_and_after_it_the_least_loaded() {
        let mut p = Placement::new(6, 3, 1, Map::Block);
        let lost = p.lose(1);
        assert_eq!(lost, [2, 3]);
        assert!(lost.iter().all(|r| p.place(*r, &[2]) == Some(3)));
        let lost = p.lose(3);
        assert_eq!(lost, [2, 3]);
        assert_eq!((p.place(2, &[2]), p.place(3, &[2])), (Some(2), Some(0)));
        assert_eq!(p.homes(), [0, 0, 2, 0, 2, 2]);
        p.lose(0);
        p.lose(2);
        assert_eq!(p.place(0, &[]), None);
    }
}
