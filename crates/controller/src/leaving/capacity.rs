//! Which of the nodes that ranks may move to have memory for them, and how long it takes to bring
//! that there, by what the nodes say when ranks are about to move.
//!
//! Kept true: no rank goes to where there is no memory for it and for those that go there with it
//! or are on their way there already; where all places have room for all, others decide as ever;
//! who says nothing has room.

use crate::Job;
use crate::leaving::model::Departure;
use crate::leaving::precopy;
use crate::recovery::model::Recovery;
use eyrie_protocol::membership::Member;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes in a millisecond between hosts, as long as nothing was measured: 1 Gbit/s.
const HOST_LINK_RATE: f64 = 125e3;
/// The same between nodes of one machine.
const LOCAL_LINK_RATE: f64 = 500e3;
/// Images of fewer bytes say nothing of the rate.
const LEAST_MEASURED_BYTES: u64 = 4 << 20;

/// Where ranks go, best first.
type Wishes = BTreeMap<u32, Vec<Member>>;

/// Where ranks may go.
#[derive(Debug, Clone)]
struct Place {
    member: Member,
    /// Bytes that its ranks may have besides, if that is limited.
    capacity: Option<u64>,
    machine: String,
    /// Ranks that are there, or go there.
    ranks: usize,
}

/// Takes off what ranks need that go to these places already, and are not there yet.
fn expect(coming: &[(Member, u64)], places: &mut [Place], machines: &mut BTreeMap<String, u64>) {
    for (to, bytes) in coming {
        let Some(place) = places.iter_mut().find(|place| place.member == *to) else { continue };
        place.ranks += 1;
        let machine = machines.get_mut(&place.machine);
        place
            .capacity
            .iter_mut()
            .chain(machine)
            .for_each(|capacity| *capacity = capacity.saturating_sub(*bytes));
    }
}

/// Where ranks of so many bytes go. `None`: each place has room for all of them. `Err`: the rank
/// that fits nowhere.
fn fit(
    ranks: &[(u32, u64)],
    mut places: Vec<Place>,
    mut machines: BTreeMap<String, u64>,
) -> Result<Option<Wishes>, (u32, u64)> {
    let has = |place: &Place, machines: &BTreeMap<String, u64>, bytes: u64| {
        let machine = machines.get(&place.machine);
        place.capacity.iter().chain(machine).all(|capacity| *capacity >= bytes)
    };
    let all = ranks.iter().map(|r| r.1).sum();
    if places.iter().all(|place| has(place, &machines, all)) {
        return Ok(None);
    }
    let mut ranks = ranks.to_vec();
    ranks.sort_by_key(|(rank, bytes)| (std::cmp::Reverse(*bytes), *rank));
    let mut found = BTreeMap::new();
    for (rank, bytes) in ranks {
        let fits = places.iter_mut().filter(|place| has(place, &machines, bytes));
        let best = fits.min_by_key(|place| (place.ranks, place.member)).ok_or((rank, bytes))?;
        best.ranks += 1;
        best.capacity.iter_mut().for_each(|capacity| *capacity -= bytes);
        machines.get_mut(&best.machine).into_iter().for_each(|capacity| *capacity -= bytes);
        found.insert(rank, vec![best.member]);
    }
    Ok(Some(found))
}

impl Recovery {
    /// Nodes that ranks may be brought to.
    pub fn takers(&self) -> impl Iterator<Item = Member> {
        self.planner.iter().flat_map(|p| p.takers())
    }
}

impl Job {
    /// Where the ranks of nodes go that have not room everywhere: among these, or if none are
    /// named, in their clusters, as long as nodes of those stay.
    pub(crate) fn wishes_by_capacity(
        &self,
        nodes: &BTreeSet<u32>,
        to: &BTreeSet<u32>,
    ) -> Result<Wishes, String> {
        let takers: Vec<Member> =
            self.recovery.takers().filter(|m| !nodes.contains(&m.node)).collect();
        if !to.is_empty() {
            let named: Vec<Member> = takers.into_iter().filter(|m| to.contains(&m.node)).collect();
            return self.capacity_among(nodes, &named);
        }
        let mut all = BTreeMap::new();
        for cluster in 0..self.spec.placement.clusters.count().max(1) {
            let here = |node: u32| self.spec.placement.clusters.of(node) == cluster;
            let going = nodes.iter().copied().filter(|n| here(*n)).collect();
            let stay: Vec<Member> = takers.iter().copied().filter(|m| here(m.node)).collect();
            all.extend(self.capacity_among(&going, if stay.is_empty() { &takers } else { &stay })?);
        }
        Ok(all)
    }

    fn capacity_among(&self, nodes: &BTreeSet<u32>, to: &[Member]) -> Result<Wishes, String> {
        let ranks = nodes.iter().flat_map(|n| self.nodes.placement.ranks_on(*n));
        let ranks: Vec<(u32, u64)> = ranks.map(|r| (r, self.ranks.needs(r))).collect();
        let machine =
            |node: u32| self.nodes.all[node as usize].host().unwrap_or_default().to_string();
        let place = |member: &Member| Place {
            member: *member,
            capacity: self.nodes.all[member.node as usize].look.left_bytes,
            machine: machine(member.node),
            ranks: self.nodes.placement.ranks_on(member.node).len(),
        };
        let there = |m: &Member| {
            Some((machine(m.node), self.nodes.all[m.node as usize].look.available_bytes?))
        };
        let mut machines = to.iter().filter_map(there).collect();
        let mut places: Vec<Place> = to.iter().map(place).collect();
        expect(&self.on_their_way(nodes), &mut places, &mut machines);
        let found = fit(&ranks, places, machines);
        let found = found.map_err(|(rank, bytes)| self.nodes.lacks_capacity(rank, bytes, to))?;
        Ok(found.unwrap_or_default())
    }

    /// Where ranks go that are leaving already, but for those of these nodes.
    fn on_their_way(&self, but: &BTreeSet<u32>) -> Vec<(Member, u64)> {
        let Some(planner) = &self.recovery.planner else { return Vec::new() };
        let going = planner.leaving().filter(|m| !but.contains(&m.node));
        let ranks = going.flat_map(|m| self.nodes.placement.ranks_on(m.node));
        ranks.filter_map(|rank| Some((planner.partner(rank)?, self.ranks.needs(rank)))).collect()
    }

    /// Somebody wants nodes to leave: first all say what memory there is.
    pub(crate) fn depart_when_looked(&mut self, departure: Departure) {
        self.leaving.waiting.push(departure);
        self.ask_looks();
    }

    /// How long a node may take to leave: a copy of its ranks, what has changed since, and starting
    /// elsewhere. By the last checkpoints of its ranks, or by the memory that they have.
    pub(crate) fn leave_estimate(&self, node: u32) -> Option<f64> {
        let rate = self.link_rate();
        let ranks =
            self.nodes.placement.ranks_on(node).into_iter().map(|r| &self.ranks.all[r as usize]);
        let of = |r: &crate::Rank| {
            precopy::time_to_move(r.moves.counted_ms, r.look.resident_bytes, rate)
        };
        ranks.filter_map(of).reduce(|a, b| a + b)
    }

    /// Bytes of an image that come from one node to another in a millisecond, as far as is known.
    pub(crate) fn link_rate(&self) -> f64 {
        let images = self.ranks.all.iter().filter_map(|r| {
            let bytes = r.latest.as_ref()?.taken.bytes;
            Some((bytes, r.moves.counted_ms?)).filter(|_| bytes >= LEAST_MEASURED_BYTES)
        });
        let measured = images.map(|(bytes, ms)| bytes as f64 / ms.max(1.0)).reduce(f64::max);
        let guess =
            if self.spec.placement.hosts.is_some() { HOST_LINK_RATE } else { LOCAL_LINK_RATE };
        measured.unwrap_or(guess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(node: u32, capacity: Option<u64>, machine: &str, ranks: usize) -> Place {
        let member = Member { node, epoch: 1 };
        Place { member, capacity, machine: machine.into(), ranks }
    }

    fn nodes(found: Option<Wishes>) -> Vec<(u32, u32)> {
        found.into_iter().flatten().map(|(rank, to)| (rank, to[0].node)).collect()
    }

    #[test]
    fn with_room_everywhere_others_decide() {
        let places = vec![place(1, None, "a", 0), place(2, Some(300), "b", 0)];
        let machines = BTreeMap::from([(String::from("b"), 300)]);
        assert_eq!(fit(&[(0, 100), (1, 200)], places, machines), Ok(None));
    }

    #[test]
    fn ranks_go_to_where_there_is_room_for_all_that_go_there() {
        let places = || vec![place(1, Some(150), "a", 0), place(2, Some(250), "b", 3)];
        let found = fit(&[(0, 100), (1, 100), (2, 120)], places(), BTreeMap::new());
        assert_eq!(nodes(found.unwrap()), [(0, 2), (1, 2), (2, 1)]);
        let found = fit(&[(0, 100), (1, 100), (2, 180)], places(), BTreeMap::new());
        assert_eq!(found, Err((1, 100)));
        assert_eq!(fit(&[(0, 1)], Vec::new(), BTreeMap::new()), Ok(None), "nobody to ask");
    }

    #[test]
    fn who_is_on_the_way_has_its_room() {
        let member = |node| Member { node, epoch: 1 };
        let mut places = vec![place(1, Some(150), "a", 0), place(2, Some(150), "b", 2)];
        let mut machines = BTreeMap::from([(String::from("a"), 120), (String::from("b"), 400)]);
        expect(&[(member(1), 60), (member(7), 900)], &mut places, &mut machines);
        assert_eq!((places[0].capacity, places[0].ranks, machines["a"]), (Some(90), 1, 60));
        assert_eq!((places[1].capacity, places[1].ranks, machines["b"]), (Some(150), 2, 400));
        let found = fit(&[(0, 80), (3, 50)], places, machines);
        assert_eq!(nodes(found.unwrap()), [(0, 2), (3, 1)]);
        let mut places = vec![place(1, Some(10), "a", 0)];
        expect(&[(member(1), 60)], &mut places, &mut BTreeMap::new());
        assert_eq!(places[0].capacity, Some(0));
    }

    #[test]
    fn nodes_of_one_machine_share_what_it_has() {
        let places = vec![place(1, None, "a", 0), place(2, None, "a", 0), place(3, None, "b", 9)];
        let machines = BTreeMap::from([(String::from("a"), 150), (String::from("b"), 150)]);
        let found = fit(&[(0, 100), (1, 100)], places, machines);
        assert_eq!(nodes(found.unwrap()), [(0, 1), (1, 3)]);
    }
}
