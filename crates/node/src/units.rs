//! Where ranks are at the start, and which of them are one recovery unit.

use crate::placement::{Map, Placement};
use eyrie_control::{Ft, JobSpec};
use eyrie_protocol::routing::Routing;

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

/// The recovery unit of each rank, wherever it is: the node that it began on. Empty: each is its
/// own, or all are one.
pub(crate) fn of(spec: &JobSpec) -> Vec<u32> {
    match spec.ft {
        Ft::Node => first_placement(spec).homes().to_vec(),
        Ft::Logged | Ft::None | Ft::Verify | Ft::Coordinated => Vec::new(),
    }
}
