//! Route control: messages of ranks that have moved take other ways than the network's own, so that
//! fewer of them share a link.
//!
//! Which ways there are is the network's (`Shape::choices`): first moves on Tofu, other parents in
//! fat trees, third groups in dragonflies. Each message takes the way whose busiest link has fewest
//! messages; all are gone through again until none changes.

use crate::network::Network;
use crate::pattern::Pattern;
use crate::shape::Link;
use crate::sharing::Sharing;
use crate::situation::Situation;
use std::collections::HashSet;

/// Each message is looked at so often at most.
const MOST_ROUNDS: usize = 8;

/// The situation with other ways for the messages of some ranks.
#[must_use]
pub fn controlled(
    network: &Network,
    pattern: &Pattern,
    situation: &Situation,
    ranks: &[u32],
) -> Situation {
    let ranks: HashSet<u32> = ranks.iter().copied().collect();
    let is_own = |rank: &u32| ranks.contains(rank);
    let own: Vec<_> =
        pattern.messages.iter().filter(|m| is_own(&m.from) || is_own(&m.to)).collect();
    let mut controlled = situation.clone();
    let mut counts = Sharing::of(network, pattern, situation).messages;
    let mut links: Vec<Link> = Vec::new();
    for _ in 0..MOST_ROUNDS {
        let mut is_changed = false;
        for message in &own {
            let key = (message.from, message.to);
            links.clear();
            controlled.route(network, message, &mut links);
            links.iter().for_each(|link| counts[*link as usize] -= 1);
            let now = controlled.ways.get(&key).copied().unwrap_or(0);
            let mut best = (cost(&counts, &links), now);
            for choice in (0..network.shape.choices()).filter(|choice| *choice != now) {
                controlled.ways.insert(key, choice);
                links.clear();
                controlled.route(network, message, &mut links);
                best = best.min((cost(&counts, &links), choice)).min(best);
            }
            // A way that is as good is no reason to change.
            is_changed |= best.1 != now;
            controlled.ways.insert(key, best.1);
            links.clear();
            controlled.route(network, message, &mut links);
            links.iter().for_each(|link| counts[*link as usize] += 1);
        }
        if !is_changed {
            break;
        }
    }
    controlled.ways.retain(|_, choice| *choice != 0);
    controlled
}

/// Most messages on a link of a way if one more takes it, and how many links there are.
fn cost(counts: &[u32], links: &[Link]) -> (u32, usize) {
    (links.iter().map(|link| counts[*link as usize] + 1).max().unwrap_or(0), links.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read_topology;
    use crate::situation::Move;

    #[test]
    fn other_ways_share_less() {
        // Four ranks of a pod send to the other pod: all targets are even, so that d-mod-k takes
        // the first parent for each.
        let network = read_topology("xgft 4,2 1,4").unwrap();
        let messages: Vec<_> = (0..4).map(|rank| format!("{rank} {} 1\n", 4 + rank)).collect();
        let pattern = Pattern::read(&messages.concat()).unwrap();
        let mut situation = Situation::new(&network, 8, &[]).unwrap();
        assert_eq!(Sharing::of(&network, &pattern, &situation).most(), 1);
        situation.ways = (0..4).map(|rank| ((rank, rank + 4), 4 - rank)).collect();
        assert_eq!(Sharing::of(&network, &pattern, &situation).most(), 4);
        let better = controlled(&network, &pattern, &situation, &[0, 1, 2, 3]);
        assert_eq!(Sharing::of(&network, &pattern, &better).most(), 1);
    }

    #[test]
    fn detours_of_a_dragonfly_leave_the_one_link_between_two_groups() {
        // Four nodes of the first group send to as many of the second, over the one link there is.
        let network = read_topology("dragonfly groups=5 routers=2 nodes=2 global=2").unwrap();
        let messages: Vec<_> = (0..4).map(|rank| format!("{rank} {} 1\n", 4 + rank)).collect();
        let pattern = Pattern::read(&messages.concat()).unwrap();
        let situation = Situation::new(&network, 8, &[]).unwrap();
        assert_eq!(Sharing::of(&network, &pattern, &situation).most(), 4);
        let better = controlled(&network, &pattern, &situation, &[0, 1, 2, 3]);
        let most = Sharing::of(&network, &pattern, &better).most();
        assert!(most <= 2, "{most} by {:?}", better.ways);
    }

    #[test]
    fn a_network_without_other_ways_stays_as_it_is() {
        let network = read_topology("mesh 4x4").unwrap();
        let pattern = Pattern::stencil(&[4, 3], false, 1.0);
        let situation = Situation::new(&network, 12, &[12, 13, 14, 15]).unwrap();
        let after = situation.after(&[Move { from: 0, to: 15 }], 0);
        assert_eq!(controlled(&network, &pattern, &after, &[0]), after);
    }
}
