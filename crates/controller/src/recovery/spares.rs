//! Which node the ranks of a lost or leaving node go to, if the network between the nodes is known
//! (`--topology`).
//!
//! The planner says which nodes would do, `network` what each of them costs until the job ends:
//! what has to move there, and what the messages that ranks were seen to send are slower. Kept
//! true: without a network nothing is said to the planner; what is said to it is in the journal,
//! and why is an event.

use super::network::{MOST_ROUTED, Place, Scene, Topology, pattern};
use crate::Job;
use eyrie_control::{Event, EventKind};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Input;
use eyrie_topo::choice::running::Course;
use eyrie_topo::{Situation, shape};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A job is taken to go on as long as it has run, but no shorter.
const LEAST_REST_S: f64 = 60.0;
/// Nodes that the planner is told for a rank; behind them it goes on as without a network.
const NAMED: usize = 32;

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

impl Job {
    /// Has ranks of these nodes go to where they cost least, when they have to be placed: not to
    /// those that go.
    pub(crate) fn prefer(&mut self, nodes: &BTreeSet<u32>, going: &BTreeSet<u32>) {
        // Nobody comes back elsewhere otherwise.
        let moves = self.protected() && !self.spec.protection.ft.reports();
        let choices = if moves { self.choices(nodes, going, None) } else { Vec::new() };
        if choices.is_empty() {
            return;
        }
        self.tell_choices(&choices);
        let named = |choice: Choice| {
            let Choice { ranks, mut nodes, .. } = choice;
            nodes.truncate(NAMED);
            ranks.into_iter().map(move |rank| (rank, nodes.clone()))
        };
        self.plan(Input::Prefer { nodes: choices.into_iter().flat_map(named).collect() });
    }

    fn tell_choices(&mut self, choices: &[Choice]) {
        for choice in choices {
            let mut event: Event = self.clock.event(EventKind::Placed);
            event.node = Some(choice.from);
            event.rank = choice.ranks.first().copied().filter(|_| choice.is_one);
            event.count = choice.nodes.first().map(|node| u64::from(*node));
            event.text = choice.why.clone();
            self.journal.log_event(event);
        }
    }

    /// Where the ranks of nodes go if they are to go to these, which have none: each node's to the
    /// one that costs least. None: there is no network, or not one for each.
    pub(crate) fn nearest(
        &mut self,
        going: &BTreeSet<u32>,
        to: &BTreeSet<u32>,
    ) -> Option<BTreeMap<u32, Vec<Member>>> {
        let with_ranks = |node: &&u32| !self.nodes.placement.ranks_on(**node).is_empty();
        let all: usize = going.iter().filter(with_ranks).count();
        if all > to.len() || to.iter().any(|n| with_ranks(&n)) {
            return None;
        }
        let choices = self.choices(going, going, Some(to));
        // Too much would have to be looked at: some would go to others than these.
        let placed: BTreeSet<u32> = choices.iter().map(|choice| choice.from).collect();
        if choices.is_empty() || placed.len() < all {
            return None;
        }
        self.tell_choices(&choices);
        let wishes = choices.into_iter().flat_map(|choice| {
            let members: Vec<Member> =
                choice.nodes.iter().map(|node| self.nodes.member(*node)).collect();
            choice.ranks.into_iter().map(move |rank| (rank, members.clone()))
        });
        Some(wishes.collect())
    }

    fn seat(&self, topology: &Topology, node: u32) -> Option<shape::Node> {
        let hosts = self.spec.placement.hosts.as_ref();
        let name = hosts.map(|h| h.list.get(node as usize).map_or("", |host| host.name.as_str()));
        topology.seat(node, name)
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
        let sent = self.ranks.all.iter().map(|r| r.look.targets.as_slice());
        let elapsed_s = self.clock.age_ms() / 1e3;
        let mut loads = BTreeMap::new();
        homes.iter().flatten().for_each(|node| *loads.entry(*node).or_default() += 1);
        Scene {
            topology,
            pattern: pattern(sent, |rank| places.get(rank as usize).is_some_and(|p| p.is_some())),
            situation: Situation {
                node_of: places.iter().map(|place| place.unwrap_or(0)).collect(),
                spares: Vec::new(),
                ways: HashMap::new(),
            },
            course: Course { elapsed_s, rest_s: elapsed_s.max(LEAST_REST_S) },
            loads,
            homes,
            routed: MOST_ROUTED,
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

    /// Where the ranks of each of these nodes go: to some nodes, or as the planner's rules are, but
    /// not to those that go.
    fn choices(
        &self,
        nodes: &BTreeSet<u32>,
        going: &BTreeSet<u32>,
        among: Option<&BTreeSet<u32>>,
    ) -> Vec<Choice> {
        let (Some(topology), Some(planner)) = (&self.recovery.topology, &self.recovery.planner)
        else {
            return Vec::new();
        };
        let mut scene = self.scene(topology);
        let mut by_node: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, home) in (0u32..).zip(&scene.homes) {
            let home = home.filter(|home| nodes.contains(home));
            home.into_iter().for_each(|home| by_node.entry(home).or_default().push(rank));
        }
        let mut all = Vec::new();
        for (from, ranks) in by_node {
            let first = ranks.first().copied().unwrap_or(0);
            let takers: Vec<Member> = match among {
                Some(to) => planner.takers().into_iter().filter(|m| to.contains(&m.node)).collect(),
                None => planner.takers_for(first, |m| !going.contains(&m.node)),
            };
            let is_free =
                |m: &&Member| scene.load(m.node) == 0 && (among.is_some() || planner.is_spare(m));
            let spares: Vec<u32> = takers.iter().filter(is_free).map(|m| m.node).collect();
            let takers: Vec<u32> = takers.iter().map(|m| m.node).collect();
            let is_one = spares.is_empty() && !planner.stays_on_a_node();
            let parties = match is_one {
                false => vec![ranks],
                true => ranks.into_iter().map(|rank| vec![rank]).collect(),
            };
            for ranks in parties {
                let open = if spares.is_empty() { scene.emptiest(&takers) } else { spares.clone() };
                let target =
                    |node: &u32| (*node, self.seat(topology, *node), self.bytes_to(&ranks, *node));
                let targets: Vec<Place> = open.iter().map(target).collect();
                let Some((nodes, why)) = scene.choose(&ranks, &targets) else { return all };
                let Some(best) = nodes.first().copied() else { continue };
                scene.settle(&ranks, best, self.seat(topology, best));
                all.push(Choice { from, ranks, is_one, nodes, why });
            }
        }
        all
    }
}
