//! What the spare-node paper says of its runs on the K computer, counted on its own coordinates. It
//! does not say how its grids lie in Tofu's six dimensions: all ways that keep neighbours one hop
//! apart are tried.

#![allow(clippy::unwrap_used)] // it fails the test

use eyrie_topo::reader::read_topology;
use eyrie_topo::sharing::Sharing;
use eyrie_topo::situation::Move;
use eyrie_topo::{Pattern, Situation};
use std::collections::BTreeMap;

/// Most messages on a link before, and how many pairs of lost node and spare have how many after.
fn counted(network: &str, pattern: &Pattern) -> (u32, BTreeMap<u32, u32>) {
    let network = read_topology(network).unwrap();
    let spares = network.in_order().split_off(pattern.ranks as usize);
    let situation = Situation::new(&network, pattern.ranks, &spares).unwrap();
    let before = Sharing::of(&network, pattern, &situation).most();
    let mut pairs = BTreeMap::new();
    for lost in &situation.node_of {
        for spare in &spares {
            let after = situation.after(&[Move { from: *lost, to: *spare }], *lost);
            *pairs.entry(Sharing::of(&network, pattern, &after).most()).or_default() += 1;
        }
    }
    (before, pairs)
}

#[test]
fn two_dimensions_share_up_to_five_and_one_direction_two() {
    for fold in
        ["a*b z*c", "a*b c*z", "b*a z*c", "b*a c*z", "b*c z*a", "b*c a*z", "c*b z*a", "c*b a*z"]
    {
        let network = format!("tofu 1x1x6x2x3x2\nfold {fold}\n");
        let (before, one_way) = counted(&network, &Pattern::one_way(&[6, 11], 1.0));
        assert_eq!((before, one_way.keys().max()), (1, Some(&2)), "{fold}: {one_way:?}");
        let (before, stencil) = counted(&network, &Pattern::stencil(&[6, 11], false, 1.0));
        // Figure 8 has pairs with 2, 3, 4 and 5.
        assert_eq!((before, stencil.keys().max()), (1, Some(&5)), "{fold}: {stencil:?}");
        assert!((2..=5).all(|sharing| stencil[&sharing] > 0), "{fold}: {stencil:?}");
        assert_eq!(stencil.values().sum::<u32>(), 66 * 6);
    }
}

#[test]
fn three_dimensions_share_up_to_six() {
    let network = "tofu 3x2x3x2x3x2\nfold x*a y*b z*c\n";
    let (before, stencil) = counted(network, &Pattern::stencil(&[6, 6, 5], false, 1.0));
    assert_eq!(before, 1);
    assert_eq!(stencil, BTreeMap::from([(3, 792), (4, 2728), (5, 2600), (6, 360)]));
}
