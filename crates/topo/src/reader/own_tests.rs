//! Tests of Eyrie's own format.

use super::super::read_topology;

#[test]
fn each_kind_is_read() {
    for (text, kind, nodes) in [
        ("mesh 6x12", "mesh", 72),
        ("# a comment\n\n  torus 8x8x8 # another\n", "torus", 512),
        ("mesh 4x4\nwrap y\norder yx\n", "torus", 16),
        ("tofu 1x1x6x2x3x2", "tofu", 72),
        ("xgft 4,4 1,2", "xgft", 16),
        ("fat-tree 16", "xgft", 1024),
        ("dragonfly groups=9 routers=4 nodes=2 global=2", "dragonfly", 72),
        ("graph\nnode a[0-3]\nswitch s\nlink a[0-3] s\n", "graph", 4),
    ] {
        let network = read_topology(text).unwrap();
        assert_eq!((network.shape.kind(), network.nodes()), (kind, nodes), "{text}");
    }
}

#[test]
fn hardware_and_names_are_read() {
    let text = "mesh 2x2\nnames r[0-1]n[0-1]\nbandwidth 5G\nmemory 12.5G\nengines 4\n";
    let network = read_topology(text).unwrap();
    assert_eq!(network.names.get(2), "r1n0");
    let hardware = network.hardware;
    assert_eq!((hardware.link_bytes_per_s, hardware.memory_links, hardware.engines), (5e9, 2.5, 4));
    let plain = read_topology("mesh 2x2").unwrap();
    assert_eq!(plain.names.get(3), "n3");
    assert!(plain.hardware.memory_links.is_infinite());
    assert_eq!(read_topology("fat-tree 4").unwrap().names.get(16), "switch-0");
}

#[test]
fn a_fold_goes_to_and_fro() {
    let network = read_topology("tofu 1x1x6x2x3x2\nfold b*a z*c\n").unwrap();
    let lattice = network.lattice.as_ref().unwrap();
    assert_eq!(lattice.dims(), [6, 12]);
    // Neighbours in the grid are one hop apart in all six dimensions.
    for cell in 0..72 {
        for axis in 0..2 {
            let Some(next) = lattice.beside(cell, axis, true) else { continue };
            let mut links = Vec::new();
            network.shape.route(lattice.node(cell), lattice.node(next), 0, &mut links);
            assert_eq!(links.len(), 1, "cells {cell} and {next}");
        }
    }
    let mut nodes = network.in_order();
    nodes.sort_unstable();
    assert_eq!(nodes, (0..72).collect::<Vec<_>>());
}

#[test]
fn mistakes_are_told_with_their_line() {
    for (text, error) in [
        ("", "line 1: the file describes no network"),
        ("cube 3", "line 1: 'cube' is unknown"),
        ("\nmesh 4x4\nspeed 5\n", "line 3: 'speed' is unknown"),
        ("mesh", "line 1: 'mesh or torus' needs sizes"),
        ("mesh 4x4x\n", "needs sizes"),
        ("mesh 4x0", "line 1: mesh: a size is 0"),
        ("torus 99999x99999x99999", "line 1: torus: more than 1048576 nodes"),
        ("torus 4294967296", "needs sizes"),
        ("mesh 1x1x1x1x1x1x1x1x1", "9 sizes, where 1 to 8 are possible"),
        ("tofu 6x12", "tofu: 2 sizes, where 6 to 6 are possible"),
        ("xgft 4,4", "'xgft' needs children and parents"),
        ("xgft 4,4 1", "xgft: 1 sizes, where 2 to 2"),
        ("fat-tree 5", "fat-tree: 5 is odd"),
        ("dragonfly groups=3", "'dragonfly' needs sizes"),
        ("dragonfly groups=99 routers=2 nodes=1 global=1", "reach 3"),
        ("mesh 2x2\ntorus 2x2\n", "line 2: 'kind of network' is said twice"),
        ("mesh 2x2\nengines 2\nengines 3\n", "line 3: 'engines' is said twice"),
        ("mesh 2x2\nengines 0\n", "line 2: 'engines' needs a number"),
        ("mesh 2x2\nbandwidth 5Q\n", "line 2: 'bandwidth' needs bytes"),
        ("mesh 2x2\nbandwidth 0\n", "line 2: 'bandwidth' needs bytes"),
        ("mesh 2x2\nwrap q\n", "line 2: 'wrap' needs axes"),
        ("mesh 2x2\nwrap z\n", "line 2: 'wrap' needs axes"),
        ("mesh 2x2\norder xx\n", "line 2: 'order' needs all axes"),
        ("mesh 2x2\nfold x*y\n", "line 2: 'fold' is not for a mesh"),
        ("fat-tree 4\nwrap x\n", "line 2: 'wrap' is not for a fat-tree"),
        ("tofu 1x1x6x2x3x2\nfold a*b\n", "line 2: 'fold' needs all axes"),
        ("tofu 1x1x6x2x3x2\nfold a*a*b z*c\n", "line 2: 'fold' needs all axes"),
        ("mesh 2x2\nnames n[0-2]\n", "line 2: 3 names for 4 nodes"),
        ("mesh 2x2\nnames a,b,a,c\n", "line 2: 'a' was named before"),
        ("mesh 2x2\nnames n[0-\n", "line 2: 'n[0-': a bracket"),
        ("mesh 2x2\nnode a\n", "line 2: 'node' is not for a mesh"),
    ] {
        let found = read_topology(text).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(found.contains(error), "{text:?}: {found:?}, not {error:?}");
    }
}

#[test]
fn mistakes_in_graphs() {
    for (rest, error) in [
        ("", "line 1: 'graph' needs lines that name nodes"),
        ("node a b\nlink a c\n", "line 3: 'c' is no node or switch"),
        ("node a b\nlink a a\n", "line 3: 'a' is linked with itself"),
        ("node a b\nlink a\n", "line 3: 'link' needs two lists"),
        ("node a b\nlink a b 0\n", "line 3: 'link' needs two lists"),
        ("node a b\nlink a b nan\n", "line 3: 'link' needs two lists"),
        ("node a b\nswitch a\n", "line 3: 'a' was named before, in line 2"),
        ("node a\nnode b\n", "line 3: no way between 'a' and 'b'"),
        ("node n[0-9999]\n", "line 2: more than 4096 nodes and switches"),
        ("node a b\nlink a b\nnames c d\n", "line 4: 'names' is not for a graph"),
    ] {
        let found = read_topology(&format!("graph\n{rest}")).err().map(|e| e.to_string());
        let found = found.unwrap_or_default();
        assert!(found.contains(error), "{rest:?}: {found:?}, not {error:?}");
    }
}
