//! The network between the nodes of a job, and what it costs to have ranks on one or another.
//!
//! Kept true: a node that the network does not have comes last, in the order of numbers. However
//! large job and network are, one decision takes no longer than `MOST_ROUTED` allows.

use eyrie_control::{JobSpec, Sent};
use eyrie_topo::choice::running::{self, Cost, Course, Target, costs};
use eyrie_topo::reader::{ReadError, read_topology};
use eyrie_topo::shape;
use eyrie_topo::{Message, Network, Pattern, Situation};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes whose costs are told.
const TOLD: usize = 4;
/// Routes of messages that are looked at for one decision, of which each takes about a microsecond.
pub(super) const MOST_ROUTED: usize = 500_000;
/// So many nodes are looked at for ranks that are looked at at all, whatever they send.
const LEAST_TARGETS: usize = 4;

/// The network between the nodes of a job.
#[derive(Debug)]
pub(crate) struct Topology {
    network: Network,
    /// Its nodes in the order in which those of a job on this machine are on them.
    order: Vec<shape::Node>,
}

/// A node that ranks may go to, the network's node if it has it, and bytes that have to move there.
pub(super) type Place = (u32, Option<shape::Node>, f64);

/// What is to be chosen from: where ranks are, or are going to be, and what they send.
pub(super) struct Scene<'a> {
    pub topology: &'a Topology,
    pub pattern: Pattern,
    pub situation: Situation,
    pub course: Course,
    /// The job's node of each rank, and how many ranks each node has.
    pub homes: Vec<Option<u32>>,
    pub loads: BTreeMap<u32, usize>,
    /// Routes that may still be looked at.
    pub routed: usize,
}

impl Topology {
    pub fn of(spec: &JobSpec) -> Result<Option<Topology>, ReadError> {
        if spec.placement.topology.is_empty() {
            return Ok(None);
        }
        let network = read_topology(&spec.placement.topology)?;
        let order = network.in_order();
        Ok(Some(Topology { network, order }))
    }

    /// The network's node that one of the job is: by the name of its host, or if it is on this
    /// machine by its number.
    pub fn seat(&self, node: u32, host: Option<&str>) -> Option<shape::Node> {
        match host {
            Some(name) => self.network.host(name),
            None => self.order.get(node as usize).copied(),
        }
    }
}

/// What ranks send each other that are somewhere in the network.
pub(super) fn pattern<'a>(
    sent: impl ExactSizeIterator<Item = &'a [Sent]>,
    is_there: impl Fn(u32) -> bool,
) -> Pattern {
    let (ranks, mut messages) = (sent.len() as u32, Vec::new());
    for (from, to) in (0u32..).zip(sent).filter(|(from, _)| is_there(*from)) {
        let others = to.iter().filter(|s| s.to != from && s.bytes > 0 && is_there(s.to));
        for (lane, Sent { to, bytes, .. }) in (0u32..).zip(others) {
            messages.push(Message { from, to: *to, bytes: *bytes as f64, lane });
        }
    }
    Pattern { ranks, messages }
}

fn seconds(s: f64) -> String {
    match s.abs() {
        s if s < 1e-3 => String::from("0 s"),
        s if s < 10.0 => format!("{s:.3} s"),
        s => format!("{s:.0} s"),
    }
}

/// What a node costs, for people.
fn told(node: u32, cost: &Cost) -> String {
    let slower = if cost.slow_s < -1e-3 { "faster" } else { "slower" };
    let sharing = match cost.sharing {
        1 => String::from("1 message on a link"),
        most => format!("{most} messages on a link"),
    };
    format!(
        "node {node} costs {} (to move {}, {slower} by {}: {:.2} times, {sharing})",
        seconds(cost.total_s().max(0.0)),
        seconds(cost.move_s),
        seconds(cost.slow_s),
        cost.slowdown,
    )
}

impl Scene<'_> {
    /// The nodes on which these ranks cost least together, best first, and why. None: too much was
    /// looked at already.
    pub fn choose(&mut self, ranks: &[u32], targets: &[Place]) -> Option<(Vec<u32>, String)> {
        let (mut there, elsewhere): (Vec<&Place>, Vec<&Place>) =
            targets.iter().partition(|t| t.1.is_some());
        let flows = self.afford(ranks, &mut there)?;
        let seated = there.iter().filter_map(|t| Some(Target { node: t.1?, bytes: t.2 }));
        let seated: Vec<Target> = seated.collect();
        let network = &self.topology.network;
        let (pattern, situation) = (&self.pattern, &self.situation);
        let found = costs(network, pattern, situation, ranks, &seated, self.course, flows);
        let best = found.iter().map(|cost| there[cost.target].0);
        let nodes: Vec<u32> = best.chain(elsewhere.iter().map(|t| t.0)).collect();
        let mut why: Vec<String> =
            found.iter().take(TOLD).map(|cost| told(there[cost.target].0, cost)).collect();
        if found.len() > TOLD {
            why.push(format!("{} others cost as much or more", found.len() - TOLD));
        }
        if self.pattern.messages.is_empty() {
            why.push(String::from("no messages were counted yet"));
        }
        Some((nodes, why.join("; ")))
    }

    /// Keeps as many nodes as can be looked at for these ranks, those that are nearest to where
    /// they were; whether flows can be simulated, too. None: nothing can.
    fn afford(&mut self, ranks: &[u32], there: &mut Vec<&Place>) -> Option<bool> {
        let all = self.pattern.messages.len();
        let moved: BTreeSet<u32> = ranks.iter().copied().collect();
        let moves = |m: &&Message| moved.contains(&m.from) || moved.contains(&m.to);
        let own = self.pattern.messages.iter().filter(moves).count().max(1);
        let least = all + there.len() + LEAST_TARGETS.min(there.len()) * own;
        self.routed = self.routed.checked_sub(least)?;
        let more = there.len().saturating_sub(LEAST_TARGETS).min(self.routed / own);
        let kept = there.len().min(LEAST_TARGETS + more);
        if kept < there.len() {
            let (shape, mut links) = (&self.topology.network.shape, Vec::new());
            let old = ranks.first().map_or(0, |rank| self.situation.node_of[*rank as usize]);
            there.sort_by_cached_key(|place| {
                links.clear();
                let node = place.1.filter(|node| *node != old);
                node.into_iter().for_each(|node| shape.route(old, node, 0, &mut links));
                (links.len(), place.0)
            });
            there.truncate(kept);
        }
        self.routed -= more * own;
        // Each that ends is a reason to look at all others again: a pair takes as long as a route.
        let flows = all * all;
        let simulates = all <= running::MOST_FLOWS && flows <= self.routed;
        self.routed -= if simulates { flows } else { 0 };
        Some(simulates)
    }

    /// Ranks are going to be on this node.
    pub fn settle(&mut self, ranks: &[u32], node: u32, seat: Option<shape::Node>) {
        for rank in ranks {
            let before = self.homes[*rank as usize].replace(node);
            if let Some(load) = before.and_then(|node| self.loads.get_mut(&node)) {
                *load = load.saturating_sub(1);
            }
            *self.loads.entry(node).or_default() += 1;
        }
        if let Some(seat) = seat {
            self.situation.settle(ranks, seat);
        }
    }

    pub fn load(&self, node: u32) -> usize {
        self.loads.get(&node).copied().unwrap_or(0)
    }

    /// Those of these nodes that have fewest ranks.
    pub fn emptiest(&self, nodes: &[u32]) -> Vec<u32> {
        let least = nodes.iter().map(|node| self.load(*node)).min();
        nodes.iter().copied().filter(|node| Some(self.load(*node)) == least).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn sent(to: u32, bytes: u64) -> Sent {
        Sent { to, messages: 1, bytes }
    }

    fn topology(text: &str) -> Topology {
        let mut spec = eyrie_state::saved_job::testing::spec();
        spec.placement.topology = text.into();
        Topology::of(&spec).unwrap().unwrap()
    }

    #[test]
    fn nodes_are_found_by_host_or_by_number() {
        let by_name = topology("mesh 2x2\nnames a[0-3]\n");
        assert_eq!(by_name.seat(7, Some("a2.cluster.example")), Some(2));
        assert_eq!((by_name.seat(0, Some("b0")), by_name.seat(0, Some("2"))), (None, None));
        assert_eq!((by_name.seat(3, None), by_name.seat(4, None)), (Some(3), None));
        let folded = topology("tofu 1x1x6x2x3x2\nfold b*a z*c\n");
        assert_eq!(folded.seat(1, None), Some(folded.order[1]));
    }

    #[test]
    fn a_network_that_is_none_is_no_beginning() {
        let mut spec = eyrie_state::saved_job::testing::spec();
        assert!(Topology::of(&spec).unwrap().is_none());
        spec.placement.topology = String::from("torus 0x3");
        assert!(Topology::of(&spec).is_err());
    }

    #[test]
    fn only_what_goes_between_known_places_counts() {
        let rows = [vec![sent(0, 9), sent(1, 5), sent(2, 7)], vec![sent(0, 0)], vec![sent(1, 3)]];
        let found = pattern(rows.iter().map(Vec::as_slice), |rank| rank != 2);
        assert_eq!(found.ranks, 3);
        let pairs: Vec<_> = found.messages.iter().map(|m| (m.from, m.to, m.bytes)).collect();
        assert_eq!(pairs, [(0, 1, 5.0)]);
    }

    /// A ring over a line of nodes, with a rank on each but the last ones.
    fn ring(topology: &Topology, ranks: u32) -> Scene<'_> {
        Scene {
            topology,
            pattern: Pattern::ring(ranks, 1.0),
            situation: Situation {
                node_of: (0..ranks).collect(),
                spares: Vec::new(),
                ways: HashMap::new(),
            },
            course: Course { elapsed_s: 10.0, rest_s: 100.0 },
            homes: (0..ranks).map(Some).collect(),
            loads: (0..ranks).map(|node| (node, 1)).collect(),
            routed: MOST_ROUTED,
        }
    }

    #[test]
    fn no_more_is_looked_at_than_there_is_time_for() {
        let topology = topology("mesh 40x1\nbandwidth 1\n");
        let targets: Vec<Place> = (10..40).map(|node| (node, Some(node), 0.0)).collect();
        let mut scene = ring(&topology, 10);
        assert_eq!(scene.choose(&[3], &targets).unwrap().0.len(), 30);
        // Each message and each node once, two messages to each node, and all pairs.
        assert_eq!(MOST_ROUTED - scene.routed, 10 + 30 + 30 * 2 + 10 * 10);
        scene.routed = 10 + 30 + 6 * 2;
        let (nodes, _) = scene.choose(&[9], &targets).unwrap();
        assert_eq!((nodes, scene.routed), ((10..16).collect::<Vec<u32>>(), 0));
        assert!(scene.choose(&[9], &targets).is_none());
    }

    #[test]
    fn a_choice_says_what_it_costs_and_leaves_strangers_last() {
        let topology = topology("mesh 5x1\nbandwidth 1\n");
        let messages = Pattern::stencil(&[3], false, 1.0);
        let mut scene = Scene {
            topology: &topology,
            pattern: messages,
            situation: Situation {
                node_of: vec![1, 2, 3],
                spares: Vec::new(),
                ways: HashMap::new(),
            },
            course: Course { elapsed_s: 10.0, rest_s: 100.0 },
            homes: vec![Some(1), Some(2), Some(3)],
            loads: BTreeMap::from([(1, 1), (2, 1), (3, 1)]),
            routed: MOST_ROUTED,
        };
        let targets = [(9, None, 0.0), (4, Some(4), 0.0), (0, Some(0), 3.0)];
        let (nodes, why) = scene.choose(&[0], &targets).unwrap();
        assert_eq!(nodes, [0, 4, 9]);
        let expected = "node 0 costs 3.000 s (to move 3.000 s, slower by 0 s: 1.00 times, \
                        1 message on a link); node 4 costs 10 s (to move 0 s, slower by 10 s: \
                        2.00 times, 2 messages on a link)";
        assert_eq!(why, expected);
        scene.settle(&[0], 0, Some(0));
        assert_eq!((scene.homes[0], scene.situation.node_of[0]), (Some(0), 0));
        assert_eq!((scene.load(0), scene.load(1), scene.emptiest(&[0, 1, 2])), (1, 0, vec![1]));
    }
}
