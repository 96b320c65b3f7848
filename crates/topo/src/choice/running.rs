//! Where ranks of a running job go that have to move: which of the nodes that would take them costs
//! least.
//!
//! Here the pattern is what was sent so far, in bytes, so that what it costs is known in seconds:
//! of the time since the job began the links needed at least so much, and need more or less of it
//! on other nodes. Nobody else moves, and memory and engines count as links do.

use super::loads::Loads;
use crate::flow;
use crate::network::Network;
use crate::pattern::Pattern;
use crate::shape::Node;
use crate::situation::Situation;

/// Patterns with more messages are not simulated as flows: a controller waits for the answer.
pub const MOST_FLOWS: usize = 400;
/// So many of the cheapest nodes are simulated.
const SIMULATED: usize = 4;
/// Costs that differ by less are equal.
const RESOLUTION_S: f64 = 1e-6;

/// What the job has done, and is going to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    /// In which the pattern was sent.
    pub elapsed_s: f64,
    /// How long it goes on.
    pub rest_s: f64,
}

/// A node that takes the ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    pub node: Node,
    /// What has to come to it over links: nothing, if it has the ranks' images.
    pub bytes: f64,
}

/// What it costs to have the ranks on one of the targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Its number among the targets.
    pub target: usize,
    /// Most messages on a link, afterwards.
    pub sharing: u32,
    /// How many times as long the pattern takes as before.
    pub slowdown: f64,
    /// Whether that was simulated as flows; otherwise it is by the busiest link, memory and engine.
    pub is_simulated: bool,
    pub move_s: f64,
    /// Over the rest of the run; less than nothing, if messages take less time than before.
    pub slow_s: f64,
}

impl Cost {
    pub fn total_s(&self) -> f64 {
        self.move_s + self.slow_s
    }
}

/// The costs of all targets, the cheapest first; of equals the one that was named first.
///
/// `ranks` move together, all to one target. `simulates`: the cheapest are simulated as flows, if
/// there are at most `MOST_FLOWS` messages.
pub fn costs(
    network: &Network,
    pattern: &Pattern,
    situation: &Situation,
    ranks: &[u32],
    targets: &[Target],
    course: Course,
    simulates: bool,
) -> Vec<Cost> {
    let speed = network.hardware.link_bytes_per_s;
    let weight = course.rest_s / course.elapsed_s.max(RESOLUTION_S) / speed;
    let mut loads = Loads::new(network, pattern, situation);
    let before = loads.before();
    let judged = |cost: Cost, before: f64, after: f64| Cost {
        slowdown: if before > 0.0 { after / before } else { 1.0 },
        slow_s: (after - before) * weight,
        ..cost
    };
    let cost = |(target, each): (usize, &Target)| {
        let (after, sharing) = loads.with_ranks(ranks, each.node);
        let (is_simulated, move_s) = (false, each.bytes / speed);
        let none = Cost { target, sharing, slowdown: 1.0, is_simulated, move_s, slow_s: 0.0 };
        judged(none, before, after)
    };
    let mut all: Vec<Cost> = targets.iter().enumerate().map(cost).collect();
    sort(&mut all);
    let messages = pattern.messages.len();
    if !simulates || messages > MOST_FLOWS || messages == 0 {
        return all;
    }
    let before = flow::simulate(network, pattern, situation).total;
    let simulated = all.len().min(SIMULATED);
    for cost in &mut all[..simulated] {
        let after = situation.with(ranks, targets[cost.target].node);
        *cost = judged(*cost, before, flow::simulate(network, pattern, &after).total);
        cost.is_simulated = true;
    }
    sort(&mut all[..simulated]);
    all
}

fn sort(all: &mut [Cost]) {
    let rounded = |cost: &Cost| (cost.total_s() / RESOLUTION_S).round();
    all.sort_by(|a, b| rounded(a).total_cmp(&rounded(b)).then(a.target.cmp(&b.target)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read_topology;

    const COURSE: Course = Course { elapsed_s: 10.0, rest_s: 100.0 };

    /// A ring of four on a line of eight nodes whose links have a byte a second.
    fn line(sends: f64) -> (Network, Pattern, Situation) {
        let network = read_topology("mesh 8x1\nbandwidth 1\n").unwrap();
        let pattern = Pattern::stencil(&[4], false, sends);
        let situation = Situation::new(&network, 4, &[4, 5, 6, 7]).unwrap();
        (network, pattern, situation)
    }

    fn targets(nodes: &[(Node, f64)]) -> Vec<Target> {
        nodes.iter().map(|(node, bytes)| Target { node: *node, bytes: *bytes }).collect()
    }

    fn order(costs: &[Cost]) -> Vec<usize> {
        costs.iter().map(|cost| cost.target).collect()
    }

    #[test]
    fn the_nearest_spare_costs_least_where_links_are_shared() {
        let (network, pattern, situation) = line(1.0);
        // Rank 3 is beside node 4; rank 0 is at the other end.
        let there = targets(&[(7, 0.0), (4, 0.0), (5, 0.0)]);
        let found = costs(&network, &pattern, &situation, &[0], &there, COURSE, true);
        // Wherever it goes: two messages each way from node 3 on, as many as before behind it.
        assert_eq!(found[0].sharing, 2);
        assert_eq!(order(&found), [0, 1, 2]);
        assert!((found[0].slowdown - 2.0).abs() < 1e-9 && found[0].is_simulated);
        // In ten seconds a byte more, in a hundred ten.
        assert!((found[0].slow_s - 10.0).abs() < 1e-6);
        let quick = costs(&network, &pattern, &situation, &[0], &there, COURSE, false);
        assert_eq!(order(&quick), [0, 1, 2]);
        assert!(quick.iter().all(|cost| !cost.is_simulated && cost.sharing == 2));
        // The one at the end goes on beside its neighbour, and costs nothing.
        let found = costs(&network, &pattern, &situation, &[3], &there, COURSE, true);
        assert!(found.iter().all(|cost| cost.slow_s.abs() < 1e-6));
    }

    #[test]
    fn what_has_to_move_counts_against_what_becomes_slower() {
        // Ranks on nodes 1 to 3 of five on a line, spares at both ends.
        let network = read_topology("mesh 5x1\nbandwidth 1\n").unwrap();
        let pattern = Pattern::stencil(&[3], false, 1.0);
        let situation = Situation::new(&network, 3, &[0, 4]).unwrap();
        let there = targets(&[(4, 0.0), (0, 0.0)]);
        let found = costs(&network, &pattern, &situation, &[0], &there, COURSE, true);
        assert_eq!((order(&found), found[0].slow_s, found[1].slow_s), (vec![1, 0], 0.0, 10.0));
        // With so much to move there the other one is cheaper, which has the image.
        let there = targets(&[(4, 0.0), (0, 50.0)]);
        let found = costs(&network, &pattern, &situation, &[0], &there, COURSE, true);
        assert_eq!((order(&found), found[1].total_s()), (vec![0, 1], 50.0));
    }

    #[test]
    fn without_messages_the_first_is_taken() {
        let (network, _, situation) = line(1.0);
        let none = Pattern { ranks: 4, messages: Vec::new() };
        let there = targets(&[(6, 0.0), (4, 0.0), (7, 0.0)]);
        let found = costs(&network, &none, &situation, &[1], &there, COURSE, true);
        assert_eq!(order(&found), [0, 1, 2]);
        assert!(found.iter().all(|cost| cost.slowdown == 1.0 && cost.total_s() == 0.0));
    }

    #[test]
    fn ranks_of_one_node_can_go_alone() {
        // Two ranks on each node; only one of them goes.
        let network = read_topology("mesh 4x1\nbandwidth 1\n").unwrap();
        let pattern = Pattern::ring(4, 1.0);
        let mut situation = Situation::new(&network, 0, &[]).unwrap();
        situation.node_of = vec![0, 0, 1, 1];
        let found = costs(
            &network,
            &pattern,
            &situation,
            &[1],
            &targets(&[(3, 0.0), (2, 0.0)]),
            COURSE,
            true,
        );
        // 0 to it, it to 2, and 3 to 0: two share the link from 1 to 0 no more than before.
        assert!(found.iter().all(|cost| cost.sharing == 1), "{found:?}");
        assert_eq!(order(&found), [0, 1]);
    }
}
