//! Nodes that are there and well, and that ranks cannot be brought back at for a while: the disk is
//! full, no process can be started.

use crate::random::Random;
use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;
use std::collections::BTreeMap;

/// A node that was unfit is fit for so long at least.
const FIT: Time = 1_000;

/// When which nodes are so; with chances of its own, so that all else is as it is without.
#[derive(Clone)]
pub struct Unfit {
    random: Random,
    /// Whether that comes in this run.
    comes: bool,
    until: BTreeMap<Member, (Time, Stumble)>,
}

impl Unfit {
    pub fn new(seed: u64) -> Unfit {
        let mut random = Random::new(!seed);
        let comes = !random.one_in(4);
        Unfit { random, comes, until: BTreeMap::new() }
    }

    /// It does not.
    pub fn never(&mut self) {
        self.comes = false;
    }
}

impl World {
    /// Whether a rank that is ordered at a node now does not come there.
    pub fn stumbles(&mut self, at: Member) -> Option<Stumble> {
        if !self.unfit.comes {
            return None;
        }
        let now = self.now;
        let unfit = &mut self.unfit;
        let fit_again = unfit.until.get(&at).is_none_or(|u| u.0 + FIT < now);
        if fit_again && unfit.random.one_in(3) {
            let why = if unfit.random.one_in(2) { Stumble::NoImage } else { Stumble::NoStart };
            unfit.until.insert(at, (now + 200 + unfit.random.below(3000), why));
        }
        unfit.until.get(&at).filter(|u| u.0 > now).map(|u| u.1)
    }

    /// The rank is brought back elsewhere: what is recorded of it here is told who asks.
    pub fn yield_rank(&mut self, at: Member, rank: u32) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.orders.remove(&rank);
        node.vacated.yields(rank);
    }
}
