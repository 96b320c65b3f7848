//! Which node the ranks of a lost or leaving node go to, if the network between the nodes is known
//! (`--topology`).
//!
//! The planner says which nodes would do, `eyrie-topo` what each of them costs until the job ends:
//! what has to move there, and what the messages that ranks were seen to send are slower. Kept
//! true: without a network nothing is said to the planner; what is said to it is in the journal,
//! and why is an event. A node that the network does not have comes last, in the order of numbers.

use crate::Job;
use eyrie_control::{Event, EventKind, JobSpec, Sent};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Input;
use eyrie_topo::choice::running::{Cost, Course, Target, costs};
use eyrie_topo::reader::{ReadError, read_topology};
use eyrie_topo::shape;
use eyrie_topo::{Message, Network, Pattern, Situation};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A job is taken to go on as long as it has run, but no shorter.
const LEAST_REST_S: f64 = 60.0;
/// Nodes whose costs are told.
const TOLD: usize = 4;

/// The network between the nodes of a job.
#[derive(Debug)]
pub(crate) struct Topology {
    network: Network,
    /// Its nodes in the order in which those of a job on this machine are on them.
    order: Vec<shape::Node>,
}

/// Where ranks of a node go.
#[derive(Debug, Clone, PartialEq)]
struct Choice {
    from: u32,
    /// All that move, or one of them, if there is no spare and each has a choice of its own.
    ranks: Vec<u32>,
    is_one: bool,
    /// Nodes, best first, and what is said of them.
    nodes: Vec<u32>,
    why: String,
}

/// A node that ranks may go to, the network's node if it has it, and bytes that have to move there.
type Place = (u32, Option<shape::Node>, f64);

/// What is to be chosen from: where ranks are, or are going to be, and what they send.
struct Scene<'a> {
    topology: &'a Topology,
    pattern: Pattern,
    situation: Situation,
    course: Course,
    /// The job's node of each rank, and nodes that have some.
    homes: Vec<Option<u32>>,
    busy: BTreeSet<u32>,
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
    fn seat(&self, node: u32, host: Option<&str>) -> Option<shape::Node> {
        match host {
            Some(name) => self.network.host(name),
            None => self.order.get(node as usize).copied(),
        }
    }
}

/// What ranks send each other that are somewhere in the network.
fn pattern(sent: &[Vec<Sent>], is_there: impl Fn(u32) -> bool) -> Pattern {
    let mut messages = Vec::new();
    for (from, to) in (0u32..).zip(sent).filter(|(from, _)| is_there(*from)) {
        let others = to.iter().filter(|s| s.to != from && s.bytes > 0 && is_there(s.to));
        for (lane, Sent { to, bytes, .. }) in (0u32..).zip(others) {
            messages.push(Message { from, to: *to, bytes: *bytes as f64, lane });
        }
    }
    Pattern { ranks: sent.len() as u32, messages }
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
    /// The nodes on which these ranks cost least together, best first, and why.
    fn choose(&self, ranks: &[u32], targets: &[Place]) -> (Vec<u32>, String) {
        let (there, elsewhere): (Vec<&Place>, Vec<&Place>) =
            targets.iter().partition(|t| t.1.is_some());
        let seated = there.iter().filter_map(|t| Some(Target { node: t.1?, bytes: t.2 }));
        let seated: Vec<Target> = seated.collect();
        let network = &self.topology.network;
        let found = costs(network, &self.pattern, &self.situation, ranks, &seated, self.course);
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
        (nodes, why.join("; "))
    }

    /// Ranks are going to be on this node.
    fn settle(&mut self, ranks: &[u32], node: u32, seat: Option<shape::Node>) {
        for rank in ranks {
            self.homes[*rank as usize] = Some(node);
        }
        self.busy.insert(node);
        if let Some(seat) = seat {
            self.situation = self.situation.with(ranks, seat);
        }
    }
}

impl Job {
    /// Has ranks of these nodes go to where they cost least, when they have to be placed.
    pub(crate) fn prefer(&mut self, going: &BTreeSet<u32>) {
        // Nobody comes back elsewhere otherwise.
        let moves = self.protected() && !self.spec.protection.ft.reports();
        let choices = if moves { self.choices(going, None) } else { Vec::new() };
        if choices.is_empty() {
            return;
        }
        let mut nodes = BTreeMap::new();
        for Choice { from, ranks, is_one, nodes: best, why } in choices {
            let mut event: Event = self.clock.event(EventKind::Placed);
            event.node = Some(from);
            event.rank = ranks.first().copied().filter(|_| is_one);
            event.count = best.first().map(|node| u64::from(*node));
            event.text = why;
            self.journal.log_event(event);
            nodes.extend(ranks.into_iter().map(|rank| (rank, best.clone())));
        }
        self.plan(Input::Prefer { nodes });
    }

    /// Where the ranks of nodes go if they are to go to these, which have none: each node's to the
    /// one that costs least. None: there is no network, or not one for each.
    pub(crate) fn nearest(
        &self,
        going: &BTreeSet<u32>,
        to: &BTreeSet<u32>,
    ) -> Option<BTreeMap<u32, Vec<Member>>> {
        let with_ranks = |node: &&u32| !self.nodes.placement.ranks_on(**node).is_empty();
        if going.iter().filter(with_ranks).count() > to.len() || to.iter().any(|n| with_ranks(&n)) {
            return None;
        }
        let choices = self.choices(going, Some(to));
        let wishes = choices.into_iter().flat_map(|choice| {
            let members: Vec<Member> =
                choice.nodes.iter().map(|node| self.nodes.member(*node)).collect();
            choice.ranks.into_iter().map(move |rank| (rank, members.clone()))
        });
        Some(wishes.collect::<BTreeMap<_, _>>()).filter(|wishes| !wishes.is_empty())
    }

    fn seat(&self, topology: &Topology, node: u32) -> Option<shape::Node> {
        topology.seat(node, self.nodes.all.get(node as usize)?.host())
    }

    /// Where ranks are now, or are going to be.
    fn scene<'a>(&self, topology: &'a Topology) -> Scene<'a> {
        let planner = self.recovery.planner.as_ref();
        let takers: BTreeSet<u32> = self.recovery.takers().map(|m| m.node).collect();
        let home = |rank: u32| {
            let there = planner.and_then(|p| p.home(rank)).map(|m| m.node);
            // One that waits to be placed goes where it was said to cost least.
            let soon = || planner?.preferred(rank).iter().copied().find(|n| takers.contains(n));
            there.or_else(soon).or(Some(self.nodes.placement.home(rank)))
        };
        let homes: Vec<Option<u32>> = (0..self.size()).map(home).collect();
        let mut seats = HashMap::new();
        let mut seat = |node: u32| *seats.entry(node).or_insert_with(|| self.seat(topology, node));
        let places: Vec<Option<shape::Node>> =
            homes.iter().map(|home| home.and_then(&mut seat)).collect();
        let sent: Vec<Vec<Sent>> = self.ranks.all.iter().map(|r| r.look.targets.clone()).collect();
        let elapsed_s = self.clock.age_ms() / 1e3;
        Scene {
            topology,
            pattern: pattern(&sent, |rank| places.get(rank as usize).is_some_and(|p| p.is_some())),
            situation: Situation {
                node_of: places.iter().map(|place| place.unwrap_or(0)).collect(),
                spares: Vec::new(),
                ways: HashMap::new(),
            },
            course: Course { elapsed_s, rest_s: elapsed_s.max(LEAST_REST_S) },
            busy: homes.iter().flatten().copied().collect(),
            homes,
        }
    }

    /// What has to come to a node if these ranks go there: images that it does not have.
    fn bytes_to(&self, ranks: &[u32], node: u32) -> f64 {
        let lacks = |rank: &&u32| {
            let newest = self.ranks.all[**rank as usize].retention.newest();
            let generation = newest.map_or(0, |kept| kept.generation);
            let mut holders =
                self.recovery.planner.iter().flat_map(|p| p.holders(**rank, generation));
            !holders.any(|m| m.node == node)
        };
        let image = |rank: &u32| {
            let latest = self.ranks.all[*rank as usize].latest.as_ref();
            latest.map_or(0.0, |latest| latest.taken.bytes as f64)
        };
        ranks.iter().filter(lacks).map(image).sum()
    }

    /// Where the ranks of each of these nodes go, among some nodes, or all that take ranks.
    fn choices(&self, going: &BTreeSet<u32>, among: Option<&BTreeSet<u32>>) -> Vec<Choice> {
        let Some(topology) = &self.recovery.topology else { return Vec::new() };
        let mut scene = self.scene(topology);
        let takers = self.recovery.takers().map(|m| m.node);
        let takers: Vec<u32> = takers
            .filter(|node| !going.contains(node) && among.is_none_or(|to| to.contains(node)))
            .collect();
        let mut all = Vec::new();
        for from in going {
            let here = (0u32..).zip(&scene.homes).filter(|(_, home)| **home == Some(*from));
            let ranks: Vec<u32> = here.map(|(rank, _)| rank).collect();
            let spares: Vec<u32> =
                takers.iter().copied().filter(|node| !scene.busy.contains(node)).collect();
            let is_one = spares.is_empty();
            let (targets, parties) = match is_one {
                false => (&spares, vec![ranks]),
                true => (&takers, ranks.into_iter().map(|rank| vec![rank]).collect()),
            };
            for ranks in parties.into_iter().filter(|ranks| !ranks.is_empty()) {
                let target =
                    |node: &u32| (*node, self.seat(topology, *node), self.bytes_to(&ranks, *node));
                let targets: Vec<Place> = targets.iter().map(target).collect();
                let (nodes, why) = scene.choose(&ranks, &targets);
                let Some(best) = nodes.first().copied() else { continue };
                scene.settle(&ranks, best, self.seat(topology, best));
                all.push(Choice { from: *from, ranks, is_one, nodes, why });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let found = pattern(&rows, |rank| rank != 2);
        assert_eq!(found.ranks, 3);
        let pairs: Vec<_> = found.messages.iter().map(|m| (m.from, m.to, m.bytes)).collect();
        assert_eq!(pairs, [(0, 1, 5.0)]);
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
            busy: BTreeSet::from([1, 2, 3]),
        };
        let targets = [(9, None, 0.0), (4, Some(4), 0.0), (0, Some(0), 3.0)];
        let (nodes, why) = scene.choose(&[0], &targets);
        assert_eq!(nodes, [0, 4, 9]);
        let expected = "node 0 costs 3.000 s (to move 3.000 s, slower by 0 s: 1.00 times, \
                        1 message on a link); node 4 costs 10 s (to move 0 s, slower by 10 s: \
                        2.00 times, 2 messages on a link)";
        assert_eq!(why, expected);
        scene.settle(&[0], 0, Some(0));
        assert_eq!((scene.homes[0], scene.situation.node_of[0]), (Some(0), 0));
        assert!(scene.busy.contains(&0));
    }
}
