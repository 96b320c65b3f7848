//! Planners for the tests of this module.

use super::Planner;
use crate::membership::Neighbours;
use crate::units::{Extent, Units};

/// One whose ranks begin on these nodes, and are units of this extent.
pub(super) fn planner(extent: Extent, map: Vec<u32>) -> Planner {
    Planner::new(Units::new(extent, &map, |node| node), map)
}

/// The same where the units are clusters.
pub(super) fn in_clusters(map: Vec<u32>, neighbours: Neighbours) -> Planner {
    let units = Units::new(Extent::Cluster, &map, |node| neighbours.cluster(node));
    Planner::new(units, map).with_neighbours(neighbours)
}
