//! Where ranks are at the start, and which of them are one recovery unit.

use eyrie_control::{CheckpointPolicy, Dedup, JobSpec, Protection};
use eyrie_protocol::membership::{Member, Neighbours};
use eyrie_protocol::placement::{Map, Placement};
use eyrie_protocol::routing::Routing;
use eyrie_protocol::units::Units;
use eyrie_vault::Scheme;
use std::collections::{BTreeMap, BTreeSet};

/// Where ranks are at the start.
pub fn first_placement(spec: &JobSpec) -> Placement {
    let map = if spec.placement.cyclic { Map::Cyclic } else { Map::Block };
    match &spec.placement.homes[..] {
        [] => Placement::new(
            spec.program.size,
            spec.placement.nodes.max(1),
            spec.placement.spares,
            map,
        ),
        homes => Placement::of(homes.to_vec(), spec.placement.nodes + spec.placement.spares),
    }
}

/// Which nodes log messages for which ranks.
pub fn routing(spec: &JobSpec) -> Routing {
    let routing = Routing::new(spec.router_nodes().collect(), spec.placement.router_share);
    if spec.placement.routers == 0 || spec.placement.clusters.count() == 0 {
        return routing;
    }
    let cluster = |node: u32| spec.placement.clusters.of.get(node as usize).copied().unwrap_or(0);
    let ranks = first_placement(spec).homes().iter().map(|home| cluster(*home)).collect();
    routing.divided(cluster, ranks)
}

/// The recovery units of a job.
pub fn recovery_units(spec: &JobSpec) -> Units {
    spec.units(first_placement(spec).homes())
}

/// The recovery unit of each rank, wherever it is: the node, or the cluster, that it began on.
/// Empty: each is its own, or all are one.
pub fn of(spec: &JobSpec) -> Vec<u32> {
    let units = recovery_units(spec);
    if units.are_groups() { units.by_rank().to_vec() } else { Vec::new() }
}

/// The mode that a job goes on in whose ranks come back alone, when some of them are to have memory
/// in common: the smallest units that all ranks of a node are in. None: it stays as it is, as it
/// has units already, or was told something that goes with ranks alone.
pub fn with_shared_memory(spec: &JobSpec) -> Option<Protection> {
    let Protection { ft, checkpoint_policy: policy, dedup, .. } = &spec.protection;
    if !ft.goes_back_alone() || spec.storage.keep || *dedup == Dedup::On {
        return None;
    }
    if spec.placement.nodes == 0 && *policy != CheckpointPolicy::Auto {
        return None;
    }
    let outside = spec.placement.clusters.outside.unwrap_or(false);
    let clusters = (spec.placement.clusters.count() > 1).then_some(outside);
    let ft = ft.with_whole_nodes(spec.placement.nodes > 0, clusters);
    Some(Protection { ft, ..spec.protection.clone() })
}

/// Has a job go on in this mode, with units by these homes. Routers are spares where nobody routes.
pub fn set_mode(spec: &mut JobSpec, protection: Protection, homes: Vec<u32>) {
    spec.protection = protection;
    spec.placement.homes = homes;
    if !spec.protection.ft.goes_back_alone() {
        spec.placement.routers = 0;
    }
}

/// By which nodes the ranks are counted as units that are on these: on one node then, on one now.
/// A unit has the number of one of the nodes that the job begins with: that of its own, or of one
/// that has no ranks any more. None: there are too many.
pub fn counted_by(homes: &[u32], spec: &JobSpec) -> Option<Vec<u32>> {
    let nodes = spec.placement.nodes;
    if spec.placement.clusters.count() > 1 {
        return homes.iter().all(|home| *home < nodes).then(|| homes.to_vec());
    }
    let all: BTreeSet<u32> = homes.iter().copied().collect();
    let mut free = (0..nodes).filter(|node| !all.contains(node));
    let mut number = BTreeMap::new();
    for &home in &all {
        number.insert(home, if home < nodes { home } else { free.next()? });
    }
    Some(homes.iter().map(|home| number[home]).collect())
}

/// Whether two descriptions of a job have the same recovery units, whatever they are called.
pub fn are_same(a: &JobSpec, b: &JobSpec) -> bool {
    let (a, b) = (of(a), of(b));
    let pairs: BTreeSet<(u32, u32)> = a.iter().copied().zip(b.iter().copied()).collect();
    let count = |all: &[u32]| all.iter().collect::<BTreeSet<_>>().len();
    a.len() == b.len() && pairs.len() == count(&a) && pairs.len() == count(&b)
}

/// What each node fails together with, by number; empty: that was not said.
pub fn domains(spec: &JobSpec) -> Vec<u32> {
    let names: Vec<(u32, &String)> = (0u32..)
        .zip(&spec.storage.manner.domains)
        .map(|(n, name)| (spec.placement.clusters.of(n), name))
        .collect();
    let first = |name| names.iter().position(|known| known == name).unwrap_or(0) as u32;
    names.iter().map(first).collect()
}

/// Where copies are made: in another domain, if these are known; and in the same cluster, or in
/// another one, if clusters are recovery units, or it was said.
pub fn neighbours(spec: &JobSpec) -> Neighbours {
    let outside = spec.protection.ft.copies_outside(spec.placement.clusters.outside);
    let of = |outside| {
        Neighbours::new(
            spec.placement.clusters.count(),
            spec.placement.clusters.of.clone(),
            outside,
        )
    };
    outside.map_or_else(Neighbours::default, of).with_domains(domains(spec))
}

/// Whether, where ranks come back alone, all copies of something lie in one cluster, whose loss
/// takes it away.
pub fn loses_a_cluster(spec: &JobSpec) -> bool {
    if !spec.protection.ft.goes_back_alone()
        || spec.placement.clusters.count() == 0
        || spec.storage.vault == Scheme::Local
    {
        return false;
    }
    let neighbours = neighbours(spec);
    let keepers = 0..spec.placement.nodes + spec.placement.spares
        - spec.placement.routers.min(spec.placement.spares);
    let members: Vec<Member> = keepers.map(|node| Member { node, epoch: 0 }).collect();
    let images = if spec.storage.vault == Scheme::Partner { 1 } else { usize::MAX };
    let copies = images.min(spec.protection.log_replicas.max(1) as usize);
    let cluster = |node: u32| spec.placement.clusters.of(node);
    members.iter().any(|own| {
        let after = neighbours.after(own.node, &members);
        after.iter().take(copies).all(|m| cluster(m.node) == cluster(own.node))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::Ft;
    use eyrie_control::gateway::Clusters;

    #[test]
    fn a_cluster_is_lost_with_both_copies_only_inside_of_it() {
        let spec = |nodes: u32, count: u32, outside| {
            let mut spec = crate::saved_job::testing::spec();
            spec.placement.nodes = nodes;
            spec.protection.log_replicas = 1;
            spec.placement.clusters = Clusters {
                names: (0..count).map(|c| c.to_string()).collect(),
                of: (0..nodes).map(|node| node * count.max(1) / nodes).collect(),
                outside,
                ..Clusters::default()
            };
            spec
        };
        assert!(loses_a_cluster(&spec(4, 2, None)), "node 0 has its copies on node 1");
        assert!(loses_a_cluster(&spec(4, 2, Some(false))));
        assert!(!loses_a_cluster(&spec(4, 2, Some(true))));
        assert!(!loses_a_cluster(&spec(2, 2, None)), "the next node is in the other cluster");
        assert!(!loses_a_cluster(&spec(4, 0, None)), "there are no clusters");
        let mut together = spec(4, 2, None);
        together.protection.ft = Ft::Coordinated;
        assert!(!loses_a_cluster(&together));
        assert!(neighbours(&spec(4, 2, Some(true))).are_outside());
        assert!(!neighbours(&together).are_known());
    }

    #[test]
    fn ranks_that_share_memory_are_the_smallest_units_that_have_all_of_a_node() {
        let mut spec = crate::saved_job::testing::spec();
        let mode = |spec: &JobSpec| with_shared_memory(spec).map(|p| p.ft.name());
        assert!(spec.protection.ft.goes_back_alone());
        spec.placement.nodes = 0;
        assert_eq!(mode(&spec), Some("coordinated"));
        spec.placement.nodes = 2;
        assert_eq!(mode(&spec), Some("node"));
        let mut many = spec.clone();
        let names = ["x", "y"].map(String::from).to_vec();
        many.placement.clusters = Clusters { names, of: vec![0, 1], ..Clusters::default() };
        assert_eq!(mode(&many), Some("cluster"));
        many.storage.keep = true;
        assert_eq!(mode(&many), None);
        (spec.placement.spares, spec.placement.routers) = (1, 1);
        let larger = with_shared_memory(&spec).unwrap();
        set_mode(&mut spec, larger, vec![1, 1, 0]);
        assert_eq!((spec.placement.routers, spec.mode()), (0, "node"));
        assert_eq!(mode(&spec), None, "they are units");
    }

    #[test]
    fn units_are_counted_by_nodes_that_the_job_begins_with() {
        let mut spec = crate::saved_job::testing::spec();
        spec.placement.nodes = 3;
        assert_eq!(counted_by(&[0, 0, 2, 1], &spec), Some(vec![0, 0, 2, 1]));
        // Node 1 is lost, and the spare, node 3, has its ranks.
        assert_eq!(counted_by(&[0, 3, 3, 2], &spec), Some(vec![0, 1, 1, 2]));
        assert_eq!(counted_by(&[0, 1, 2, 3], &spec), None, "there are more than nodes");
    }

    #[test]
    fn domains_of_the_same_name_in_two_clusters_are_two() {
        let mut spec = crate::saved_job::testing::spec();
        spec.placement.nodes = 4;
        assert!(domains(&spec).is_empty());
        spec.storage.manner.domains = ["a", "b", "b", "a"].map(String::from).to_vec();
        assert_eq!(domains(&spec), [0, 1, 1, 0]);
        let names = ["x", "y"].map(String::from).to_vec();
        spec.placement.clusters = Clusters { names, of: vec![0, 0, 1, 1], ..Clusters::default() };
        assert_eq!(domains(&spec), [0, 1, 2, 3]);
    }
}
