//! Where ranks are at the start, and which of them are one recovery unit.

use crate::placement::{Map, Placement};
use eyrie_control::{Ft, JobSpec};
use eyrie_protocol::membership::Neighbours;
use eyrie_protocol::routing::Routing;
use std::collections::BTreeSet;

/// Where ranks are at the start.
pub(crate) fn first_placement(spec: &JobSpec) -> Placement {
    let map = if spec.cyclic { Map::Cyclic } else { Map::Block };
    match &spec.homes[..] {
        [] => Placement::new(spec.size, spec.nodes.max(1), spec.spares, map),
        homes => Placement::of(homes.to_vec(), spec.nodes + spec.spares),
    }
}

/// Which nodes log messages for which ranks.
pub(crate) fn routing(spec: &JobSpec) -> Routing {
    let routing = Routing::new(spec.router_nodes().collect(), spec.router_share);
    if spec.routers == 0 || spec.clusters.count() == 0 {
        return routing;
    }
    let cluster = |node: u32| spec.clusters.of.get(node as usize).copied().unwrap_or(0);
    let ranks = first_placement(spec).homes().iter().map(|home| cluster(*home)).collect();
    routing.divided(cluster, ranks)
}

/// The recovery unit of each rank, wherever it is: the node, or the cluster, that it began on.
/// Empty: each is its own, or all are one.
pub(crate) fn of(spec: &JobSpec) -> Vec<u32> {
    let homes = || first_placement(spec).homes().to_vec();
    match spec.ft {
        Ft::Node => homes(),
        Ft::Cluster { .. } => homes().iter().map(|node| spec.clusters.of(*node)).collect(),
        Ft::Logged | Ft::None | Ft::Verify | Ft::Coordinated => Vec::new(),
    }
}

/// Whether two descriptions of a job have the same recovery units, whatever they are called.
pub(crate) fn are_same(a: &JobSpec, b: &JobSpec) -> bool {
    let (a, b) = (of(a), of(b));
    let pairs: BTreeSet<(u32, u32)> = a.iter().copied().zip(b.iter().copied()).collect();
    let count = |all: &[u32]| all.iter().collect::<BTreeSet<_>>().len();
    a.len() == b.len() && pairs.len() == count(&a) && pairs.len() == count(&b)
}

/// Where copies are made, if clusters are recovery units.
pub(crate) fn neighbours(spec: &JobSpec) -> Neighbours {
    match spec.ft {
        Ft::Cluster { outside } => {
            Neighbours::new(spec.clusters.count(), spec.clusters.of.clone(), outside)
        }
        _ => Neighbours::default(),
    }
}
