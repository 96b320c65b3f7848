//! Losses that a job would not survive although it could: told before it begins.

use eyrie_control::JobSpec;
use eyrie_vault::Scheme;
use eyrie_vault::layout::{Level, Place, lay_out};

/// What of the domains and clusters that are named the vault does not outlive as a whole.
pub fn domain_is_a_risk(spec: &JobSpec) -> Option<String> {
    let (manner, clusters) = (&spec.storage.manner, &spec.placement.clusters);
    if !spec.is_vaulted() || (manner.domains.is_empty() && clusters.count() == 0) {
        return None;
    }
    let place = |node: u32| Place {
        cluster: clusters.of(node).to_string(),
        switch: manner.domain(node).to_string(),
        node,
    };
    let places: Vec<Place> = (0..spec.placement.nodes + spec.placement.spares).map(place).collect();
    let whole = if manner.domains.is_empty() { Level::Cluster } else { Level::Switch };
    too_close(spec.storage.vault, &places, whole)
}

pub fn too_close(scheme: Scheme, places: &[Place], whole: Level) -> Option<String> {
    let what = if whole == Level::Cluster { "cluster" } else { "domain" };
    let survives = lay_out(scheme, places).ok()?.survives?;
    (survives < whole).then(|| {
        format!(
            "--vault {scheme}: a {what} has more than {} nodes of a group, and its loss takes \
             images away: spread the hosts over more of them, or take more parity",
            scheme.tolerates()
        )
    })
}

/// That the loss of a cluster takes copies away which another one could have.
pub fn cluster_is_a_risk(spec: &JobSpec) -> Option<String> {
    let said = spec.placement.clusters.outside.is_some();
    (!said && eyrie_state::units::loses_a_cluster(spec)).then(|| {
        String::from(
            "the loss of a whole cluster sends all ranks back to the beginning: copies of images, \
             or of recorded outcomes, are on nodes of the same one; `--copies outside` has them in \
             another (`--copies inside` leaves it so)",
        )
    })
}

#[cfg(test)]
mod risk_tests {
    use super::*;

    #[test]
    fn what_is_not_borne_is_said() {
        let place = |node: u32, racks: u32| Place {
            cluster: String::new(),
            switch: (node % racks).to_string(),
            node,
        };
        let told = |scheme: &str, nodes, racks| {
            let places: Vec<Place> = (0..nodes).map(|node| place(node, racks)).collect();
            too_close(scheme.parse().unwrap(), &places, Level::Switch)
        };
        assert_eq!(told("rs:4+2", 6, 6), None);
        assert_eq!(told("rs:4+2", 6, 3), None, "two of a rack may be lost");
        let text = told("rs:4+2", 6, 2).unwrap();
        assert!(text.contains("domain has more than 2 nodes of a group"), "{text}");
    }
}
