//! Where to put spare nodes, before any is needed.

use crate::network::Network;
use crate::shape::Node;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The last line of the grid along its first axis, and those before it.
    Row,
    /// The last face: all nodes with the highest last coordinate, and those before it.
    Face,
    /// Evenly over all nodes.
    Spread,
    /// The same number, one if possible, at each switch, router or group.
    PerSwitch,
}

impl Policy {
    pub const ALL: [Policy; 4] = [Policy::Row, Policy::Face, Policy::Spread, Policy::PerSwitch];

    pub fn name(self) -> &'static str {
        match self {
            Policy::Row => "row",
            Policy::Face => "face",
            Policy::Spread => "spread",
            Policy::PerSwitch => "per-switch",
        }
    }

    pub fn parse(text: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|policy| policy.name() == text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SparesError {
    #[error("{count} spares of {nodes} nodes leave none for ranks")]
    Count { count: u32, nodes: u32 },
    #[error("a {kind} has no rows and faces: use spread or per-switch")]
    NoGrid { kind: &'static str },
}

/// `count` spares, rounded up to what the policy has together: whole rows, whole faces, one a
/// switch.
pub fn choose(network: &Network, policy: Policy, count: u32) -> Result<Vec<Node>, SparesError> {
    let nodes = network.nodes();
    let whole = |unit: u32| count.div_ceil(unit).checked_mul(unit);
    let spares: Vec<Node> = match (policy, &network.lattice) {
        (Policy::Row | Policy::Face, None) => {
            return Err(SparesError::NoGrid { kind: network.shape.kind() });
        }
        (Policy::Row | Policy::Face, Some(lattice)) => {
            let dims = lattice.dims();
            let unit = match policy {
                Policy::Row => dims[0],
                _ => dims[..dims.len() - 1].iter().product(),
            };
            let rounded = whole(unit).filter(|rounded| *rounded < nodes);
            let rounded = rounded.ok_or(SparesError::Count { count, nodes })?;
            (nodes - rounded..nodes).map(|cell| lattice.node(cell)).collect()
        }
        _ if count >= nodes => Vec::new(),
        (Policy::Spread, _) => {
            let order = network.in_order();
            let at = |number: u32| {
                (u64::from(number) * 2 + 1) * u64::from(nodes) / (u64::from(count) * 2)
            };
            (0..count).map(|number| order[at(number) as usize]).collect()
        }
        (Policy::PerSwitch, _) => per_switch(network, count),
    };
    if spares.len() >= nodes as usize || spares.len() < count as usize {
        return Err(SparesError::Count { count, nodes });
    }
    Ok(spares)
}

/// The last nodes of each neighbourhood, as many of each.
fn per_switch(network: &Network, count: u32) -> Vec<Node> {
    let mut by_switch: Vec<(u32, Node)> =
        (0..network.nodes()).map(|node| (network.shape.neighbourhood(node), node)).collect();
    by_switch.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    // In round k the k-th of each that has so many.
    let mut rounds = Vec::with_capacity(by_switch.len());
    let (mut switch, mut round) = (u32::MAX, 0);
    for (at, node) in by_switch {
        round = if at == switch { round + 1 } else { 0 };
        switch = at;
        rounds.push((round, at, node));
    }
    rounds.sort_unstable();
    let last =
        count.checked_sub(1).and_then(|at| rounds.get(at as usize)).map(|(round, ..)| *round);
    let chosen = rounds.iter().take_while(|(round, ..)| last.is_some_and(|last| *round <= last));
    let mut chosen: Vec<Node> = chosen.map(|(_, _, node)| *node).collect();
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::read_topology;

    fn chosen(text: &str, policy: Policy, count: u32) -> Vec<Node> {
        choose(&read_topology(text).unwrap(), policy, count).unwrap()
    }

    #[test]
    fn rows_and_faces_are_whole() {
        assert_eq!(chosen("mesh 4x3", Policy::Row, 4), [8, 9, 10, 11]);
        assert_eq!(chosen("mesh 4x3", Policy::Row, 1), [8, 9, 10, 11]);
        assert_eq!(chosen("mesh 4x3", Policy::Row, 5), (4..12).collect::<Vec<_>>());
        assert_eq!(chosen("torus 3x3x3", Policy::Row, 3), [24, 25, 26]);
        assert_eq!(chosen("torus 3x3x3", Policy::Face, 3), (18..27).collect::<Vec<_>>());
    }

    #[test]
    fn others_are_where_ranks_are() {
        assert_eq!(chosen("mesh 4x3", Policy::Spread, 3), [2, 6, 10]);
        // Of the eight edge switches of a fat tree of four ports each its second node.
        assert_eq!(chosen("fat-tree 4", Policy::PerSwitch, 1), [1, 3, 5, 7, 9, 11, 13, 15]);
        assert_eq!(chosen("xgft 3,2 1,1", Policy::PerSwitch, 3), [1, 2, 4, 5]);
    }

    #[test]
    fn some_nodes_are_left_for_ranks() {
        let network = read_topology("mesh 4x3").unwrap();
        for policy in Policy::ALL {
            for count in [12, 13, u32::MAX] {
                let error = choose(&network, policy, count).unwrap_err();
                assert_eq!(error, SparesError::Count { count, nodes: 12 }, "{policy:?}");
            }
        }
        let tree = read_topology("fat-tree 4").unwrap();
        assert_eq!(choose(&tree, Policy::Row, 1), Err(SparesError::NoGrid { kind: "xgft" }));
    }
}
