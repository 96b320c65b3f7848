//! Has ranks know which of them are in which cluster when the job begins.
//!
//! Kept true: they are told by the environment, which a job keeps when it is saved and goes on, as
//! its communicators keep their groups wherever ranks are then.

use eyrie_control::JobSpec;
use eyrie_core::clusters::clusters_told;
use eyrie_core::dynamic::CLUSTERS_VARIABLE;
use eyrie_protocol::placement::{Map, Placement};

/// For all daemons that this command starts, here and elsewhere.
pub fn tell(spec: &JobSpec) {
    let clusters = clusters(spec);
    let several = clusters.windows(2).any(|pair| pair[0] != pair[1]);
    let rate = spec.placement.clusters.rate.unwrap_or(0);
    // SAFETY: this process has one thread.
    unsafe {
        match several {
            true => std::env::set_var(CLUSTERS_VARIABLE, clusters_told(&clusters, rate)),
            // Of a job around this one.
            false => std::env::remove_var(CLUSTERS_VARIABLE),
        }
    }
}

/// The cluster of each rank; none: there is but one.
fn clusters(spec: &JobSpec) -> Vec<u32> {
    let at = &spec.placement;
    if at.nodes == 0 || at.clusters.count() < 2 {
        return Vec::new();
    }
    let map = if at.cyclic { Map::Cyclic } else { Map::Block };
    let laid_out = match at.homes.is_empty() {
        true => Placement::new(spec.program.size, at.nodes, 0, map).homes().to_vec(),
        false => at.homes.clone(),
    };
    laid_out.into_iter().map(|node| at.clusters.of(node)).collect()
}
