//! Which node each rank has its home on.
//!
//! Pure. Kept true: a rank's home is a live node, or the node it was lost with until it is placed
//! again - which `recovery` decides.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How ranks are laid out at the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
pub enum Map {
    /// The first ranks on the first node, the next on the second
    #[default]
    Block,
    /// One on each node in turn
    Cyclic,
}

/// The homes of all ranks.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

    /// The ranks have these homes, out of so many nodes.
    pub fn of(homes: Vec<u32>, nodes: u32) -> Placement {
        Placement { homes, live: vec![true; nodes as usize] }
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

/// Homes of ranks on nodes of which each may have room for so many only. Each rank counts as one on
/// a node in turn, where there is room; by block the first node then has the first ranks. `None`:
/// there is not room enough, and none is to be made (`over`).
pub fn lay_out(ranks: u32, room: &[Option<u32>], map: Map, over: bool) -> Option<Vec<u32>> {
    let mut counts = vec![0u32; room.len()];
    let mut turns = Vec::with_capacity(ranks as usize);
    let mut limited = true;
    while turns.len() < ranks as usize {
        let before = turns.len();
        for (node, count) in counts.iter_mut().enumerate() {
            let free = !limited || room[node].is_none_or(|most| *count < most);
            if free && turns.len() < ranks as usize {
                *count += 1;
                turns.push(node as u32);
            }
        }
        if turns.len() == before && !(over && std::mem::take(&mut limited)) {
            return None;
        }
    }
    if map == Map::Block {
        turns.sort_unstable();
    }
    Some(turns)
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
    fn nodes_get_no_more_ranks_than_they_have_room_for() {
        let (b, c) = (Map::Block, Map::Cyclic);
        let homes = |ranks, room: &[u32], map, over| {
            let room: Vec<_> = room.iter().map(|n| Some(*n).filter(|n| *n > 0)).collect();
            lay_out(ranks, &room, map, over)
        };
        assert_eq!(homes(5, &[4, 1], b, false), Some(vec![0, 0, 0, 0, 1]));
        assert_eq!(homes(5, &[4, 1], c, false), Some(vec![0, 1, 0, 0, 0]));
        assert_eq!(homes(4, &[4, 4], b, false), Some(vec![0, 0, 1, 1]));
        assert_eq!(homes(5, &[1, 0], b, false), Some(vec![0, 1, 1, 1, 1]));
        assert_eq!(homes(6, &[4, 1], b, false), None);
        assert_eq!(homes(7, &[4, 1], b, true), Some(vec![0, 0, 0, 0, 0, 1, 1]));
        assert_eq!(
            (homes(1, &[], b, true), homes(2, &[0, 0, 0], b, false)),
            (None, Some(vec![0, 1]))
        );
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
