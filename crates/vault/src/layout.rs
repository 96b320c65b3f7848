//! Layout: which nodes are a group, and which member of a group holds parity of which others.
//!
//! A group's data are cut into stripes, as many as it has members: in each, `m` members hold parity
//! of what the others contribute. So every member contributes and every member holds parity, and
//! nothing is gathered in one place. Which stripe a member's first bytes belong to moves on with
//! each generation.
//!
//! Kept true: nodes of one domain (cluster, or switch) are spread over groups as evenly as can be:
//! no group has two of them as long as there are as many groups as that domain has nodes.

use crate::scheme::Scheme;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a node is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub cluster: String,
    pub switch: String,
    pub node: u32,
}

impl Place {
    /// A node of which nothing is known.
    pub fn of(node: u32) -> Place {
        Place { cluster: String::new(), switch: String::new(), node }
    }
}

/// What fails as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Node,
    Switch,
    Cluster,
}

/// Groups of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Each with its nodes in order.
    pub groups: Vec<Vec<u32>>,
    /// The largest domains of which no group has two members.
    pub apart: Level,
    /// The largest domains that may be lost as a whole without loss of data; `None`: not even a
    /// node.
    pub survives: Option<Level>,
}

/// Why there is no layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    #[error("{scheme} needs {need} nodes at least, and there are {have}")]
    TooFew { scheme: Scheme, need: usize, have: usize },
    #[error("node {0} is named twice")]
    Twice(u32),
}

/// Lays groups over nodes.
pub fn lay_out(scheme: Scheme, places: &[Place]) -> Result<Layout, LayoutError> {
    let mut sorted: Vec<&Place> = places.iter().collect();
    sorted.sort();
    let mut nodes: Vec<u32> = places.iter().map(|p| p.node).collect();
    nodes.sort_unstable();
    if let Some(pair) = nodes.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(LayoutError::Twice(pair[0]));
    }
    let have = sorted.len();
    if have < scheme.least() {
        return Err(LayoutError::TooFew { scheme, need: scheme.least(), have });
    }
    // As few groups as their size allows, but none too small.
    let most = scheme.most().unwrap_or(have);
    let count = have.div_ceil(most).min(have / scheme.least()).max(1);
    // Nodes of a domain stand one behind the other, and are dealt out in turn.
    let dealt = |group: usize| sorted.iter().skip(group).step_by(count).copied();
    let groups: Vec<Vec<&Place>> = (0..count).map(|group| dealt(group).collect()).collect();
    let most_together = |domain: &dyn Fn(&Place) -> String| {
        let in_group = |group: &Vec<&Place>| {
            let mut count: BTreeMap<String, usize> = BTreeMap::new();
            group.iter().for_each(|place| *count.entry(domain(place)).or_default() += 1);
            count.into_values().max().unwrap_or(0)
        };
        groups.iter().map(in_group).max().unwrap_or(0)
    };
    let clusters = most_together(&|p| p.cluster.clone());
    let switches = most_together(&|p| format!("{}\0{}", p.cluster, p.switch));
    let level = |most: usize| match () {
        () if clusters <= most => Some(Level::Cluster),
        () if switches <= most => Some(Level::Switch),
        () if most > 0 => Some(Level::Node),
        () => None,
    };
    Ok(Layout {
        apart: level(1).unwrap_or(Level::Node),
        survives: survives(scheme, level),
        groups: groups.iter().map(|g| g.iter().map(|p| p.node).collect()).collect(),
    })
}

fn survives(scheme: Scheme, level: impl Fn(usize) -> Option<Level>) -> Option<Level> {
    level(scheme.tolerates())
}

/// Members of a group that belong together: parity of `data` lies with `coding`. Members are
/// numbered within their group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stripe {
    pub data: Vec<usize>,
    pub coding: Vec<usize>,
}

/// The stripes of a group of `members` in a generation.
pub fn stripes(scheme: Scheme, members: usize, generation: u64) -> Vec<Stripe> {
    let (coding, data, apart) = match scheme {
        Scheme::Local => return Vec::new(),
        // Neighbours are in the same domain, those half way round are not if that can be.
        Scheme::Partner => (1, 1, members - members / 2),
        Scheme::Rs { .. } | Scheme::Xor { .. } => {
            (scheme.tolerates(), members - scheme.tolerates(), scheme.tolerates())
        }
    };
    let turn = (generation % members as u64) as usize;
    let member = |n: usize| n % members;
    (0..members)
        .map(|stripe| Stripe {
            coding: (0..coding).map(|i| member(stripe + turn + i)).collect(),
            data: (0..data).map(|i| member(stripe + turn + apart + i)).collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(clusters: usize, switches: usize, nodes: usize) -> Vec<Place> {
        let all = clusters * switches * nodes;
        let place = |n: usize| Place {
            cluster: format!("c{}", n % clusters),
            switch: format!("s{}", n / clusters % switches),
            node: n as u32,
        };
        (0..all).map(place).collect()
    }

    fn scheme(text: &str) -> Scheme {
        text.parse().unwrap()
    }

    #[test]
    fn no_domain_has_two_members_of_a_group_where_that_can_be() {
        // Six clusters, and as many groups as each has nodes.
        let layout = lay_out(scheme("rs:4+2"), &places(6, 2, 2)).unwrap();
        assert_eq!(layout.groups.len(), 4);
        assert_eq!((layout.apart, layout.survives), (Level::Cluster, Some(Level::Cluster)));
        // Six switches in two clusters: a cluster has three of each group.
        let layout = lay_out(scheme("rs:4+2"), &places(2, 3, 4)).unwrap();
        assert_eq!((layout.apart, layout.survives), (Level::Switch, Some(Level::Switch)));
        // Three switches: each has two of each group, and may still be lost.
        let layout = lay_out(scheme("rs:4+2"), &places(1, 3, 2)).unwrap();
        assert_eq!((layout.apart, layout.survives), (Level::Node, Some(Level::Switch)));
        let layout = lay_out(scheme("local"), &places(1, 2, 2)).unwrap();
        assert_eq!(layout.survives, None);
    }

    #[test]
    fn groups_are_as_even_as_can_be_and_never_too_small() {
        for nodes in 3..60 {
            let layout = lay_out(scheme("rs:4+2"), &places(1, 1, nodes)).unwrap();
            let sizes: Vec<usize> = layout.groups.iter().map(Vec::len).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            assert!(most - least <= 1 && *least >= 3, "{nodes}: {sizes:?}");
            let mut all = layout.groups.concat();
            all.sort_unstable();
            assert_eq!(all, (0..nodes as u32).collect::<Vec<_>>());
        }
        let few = lay_out(scheme("rs:4+2"), &places(1, 1, 2)).unwrap_err();
        assert_eq!(few.to_string(), "rs:4+2 needs 3 nodes at least, and there are 2");
        let twice = lay_out(scheme("partner"), &[Place::of(3), Place::of(3)]).unwrap_err();
        assert_eq!(twice, LayoutError::Twice(3));
    }

    #[test]
    fn every_group_can_be_encoded() {
        let rs = (1..=6).flat_map(|k| (1..=4).map(move |m| Scheme::Rs { k, m }));
        for scheme in rs.chain((1..=9).map(|k| Scheme::Xor { k })) {
            for nodes in scheme.least()..40 {
                for group in lay_out(scheme, &places(1, 1, nodes)).unwrap().groups {
                    let payloads = vec![5; group.len()];
                    let geometry = crate::geometry::Geometry::new(scheme, 1, &payloads);
                    let coded = geometry.is_some_and(|g| g.code().is_some());
                    assert!(coded, "{scheme} over {nodes} nodes: a group of {}", group.len());
                }
            }
        }
    }

    #[test]
    fn each_member_holds_as_much_parity_as_the_others() {
        for (text, members) in [("rs:4+2", 6), ("rs:4+2", 4), ("xor:8", 9), ("partner", 5)] {
            let scheme = scheme(text);
            for generation in 0..10 {
                let all = stripes(scheme, members, generation);
                assert_eq!(all.len(), members);
                for member in 0..members {
                    let coded = all.iter().filter(|s| s.coding.contains(&member)).count();
                    assert_eq!(coded, scheme.tolerates());
                    let data = all.iter().filter(|s| s.data.contains(&member)).count();
                    let expected = if text == "partner" { 1 } else { members - coded };
                    assert_eq!(data, expected);
                }
                let shared = |s: &Stripe| s.data.iter().any(|d| s.coding.contains(d));
                assert!(!all.iter().any(shared));
            }
            let first = |generation| stripes(scheme, members, generation)[0].coding[0];
            assert_ne!(first(4), first(5), "coding members move on");
        }
    }

    #[test]
    fn a_partner_is_in_another_domain_where_that_can_be() {
        for (clusters, nodes) in [(2, 1), (2, 5), (3, 2), (4, 1), (5, 3)] {
            let all = places(clusters, 1, nodes);
            let group = lay_out(Scheme::Partner, &all).unwrap().groups.remove(0);
            let cluster = |member: usize| &all[group[member] as usize].cluster;
            for stripe in stripes(Scheme::Partner, group.len(), 7) {
                assert_ne!(cluster(stripe.data[0]), cluster(stripe.coding[0]));
            }
        }
    }
}
