//! Slurm's topology.conf: `SwitchName` lines (topology/tree), `BlockName` lines (topology/block),
//! and a `TorusName` line as `scontrol show topology` prints one (topology/torus3d).
//!
//! Blocks are read as switches below one that links all of them. Keys that say nothing of the
//! network are passed over; Slurm's own keys only, so that a typing mistake is told.

use super::{Mistake, ReadError, expand, lines};
use crate::network::{Hardware, Lattice, Names, Network};
use crate::shape::{Grid, MOST_NODES, Shape, SizeError, Tree, TreeError};
use std::collections::HashMap;

/// What is linked to a switch, with the line that says so.
struct Switch {
    line: usize,
    name: String,
    nodes: Vec<String>,
    switches: Vec<String>,
    speed: f64,
}

/// The keys and values of a line, keys in small letters.
fn pairs(line: usize, text: &str) -> Result<Vec<(String, &str)>, ReadError> {
    let pair = |word: &'_ str| match word.split_once('=') {
        Some((key, _)) => Ok(key.to_ascii_lowercase()),
        None => Err(Mistake::Word(word.into()).at(line)),
    };
    let words = text.split_whitespace();
    words
        .map(|word| Ok((pair(word)?, word.split_once('=').map_or("", |(_, value)| value))))
        .collect()
}

pub fn read(text: &str) -> Result<Network, ReadError> {
    let mut switches: Vec<Switch> = Vec::new();
    let mut last = 1;
    for (line, text) in lines(text) {
        last = line;
        let pairs = pairs(line, text)?;
        let first = pairs.first().map(|(key, _)| key.as_str()).unwrap_or_default();
        match first {
            "switchname" | "blockname" => switches.extend(switch(line, &pairs)?),
            "torusname" if switches.is_empty() => return torus(line, &pairs),
            "blocksizes" => {}
            _ => return Err(Mistake::Word(first.into()).at(line)),
        }
    }
    if switches.is_empty() {
        return Err(Mistake::Nothing.at(last));
    }
    tree(&switches, text.to_ascii_lowercase().contains("blockname"))
}

/// The switches of a line: usually one.
fn switch(line: usize, pairs: &[(String, &str)]) -> Result<Vec<Switch>, ReadError> {
    let hosts = |list: &str| expand(list).map_err(|error| Mistake::from(error).at(line));
    let (mut nodes, mut switches, mut names, mut speed) = (Vec::new(), Vec::new(), Vec::new(), 1.0);
    for (key, value) in pairs {
        match key.as_str() {
            "switchname" | "blockname" => names = hosts(value)?,
            "nodes" => nodes = hosts(value)?,
            "switches" => switches = hosts(value)?,
            "linkspeed" => {
                let needs = Mistake::Value { word: "LinkSpeed", needs: "a number above 0" };
                let number =
                    value.parse::<f64>().ok().filter(|speed| (1e-3..=1e12).contains(speed));
                speed = number.ok_or_else(|| needs.at(line))?;
            }
            // `scontrol show topology` prints them too.
            "level" | "blockindex" | "blocksize" => {}
            _ => return Err(Mistake::Word(key.clone()).at(line)),
        }
    }
    if nodes.is_empty() && switches.is_empty() {
        return Err(Mistake::Value { word: "SwitchName", needs: "Nodes or Switches" }.at(line));
    }
    if names.len() > 1 {
        return Err(Mistake::Value { word: "SwitchName", needs: "one name" }.at(line));
    }
    Ok(names
        .into_iter()
        .map(|name| Switch { line, name, nodes: nodes.clone(), switches: switches.clone(), speed })
        .collect())
}

fn tree(switches: &[Switch], is_block: bool) -> Result<Network, ReadError> {
    let mut names: Vec<String> = Vec::new();
    let mut lines_of: HashMap<&str, usize> = HashMap::new();
    for switch in switches {
        // `scontrol show topology` also lists nodes of switches that have only switches below.
        let own = if switch.switches.is_empty() { switch.nodes.as_slice() } else { &[] };
        for name in own {
            if let Some(before) = lines_of.insert(name, switch.line) {
                return Err(Mistake::Again { name: name.clone(), before }.at(switch.line));
            }
            names.push(name.clone());
        }
        if names.len() > MOST_NODES as usize {
            let error = SizeError::Nodes;
            return Err(Mistake::Size { kind: String::from("tree"), error }.at(switch.line));
        }
    }
    let nodes = names.len() as u32;
    for switch in switches {
        if let Some(before) = lines_of.insert(&switch.name, switch.line) {
            return Err(Mistake::Again { name: switch.name.clone(), before }.at(switch.line));
        }
        names.push(switch.name.clone());
    }
    // What links all blocks.
    if is_block && switches.len() > 1 {
        names.push(String::from("(all blocks)"));
    }
    let first = switches.first().map_or(1, |switch| switch.line);
    let names =
        Names::new(names).map_err(|name| Mistake::Again { name, before: first }.at(first))?;
    let vertices = nodes as usize + switches.len() + usize::from(is_block && switches.len() > 1);
    let mut parents: Vec<Option<u32>> = vec![None; vertices];
    let least = switches.iter().map(|switch| switch.speed).fold(f64::INFINITY, f64::min);
    let mut speeds = vec![1.0; vertices];
    for (number, switch) in (nodes..).zip(switches) {
        let children = if switch.switches.is_empty() { &switch.nodes } else { &switch.switches };
        for child in children {
            let Some(vertex) = names.number(child) else {
                return Err(Mistake::Unknown(child.clone()).at(switch.line));
            };
            if let Some(other) = parents[vertex as usize].replace(number) {
                let (one, other) = (names.get(other), switch.name.clone());
                return Err(Mistake::Parents { child: child.clone(), one, other }.at(switch.line));
            }
            speeds[vertex as usize] = switch.speed / least;
        }
        if is_block && switches.len() > 1 {
            parents[number as usize] = Some(vertices as u32 - 1);
        }
    }
    let line_of = |vertex: u32| lines_of.get(names.get(vertex).as_str()).copied().unwrap_or(first);
    let tree = Tree::new(nodes, &parents, speeds).map_err(|error| match error {
        TreeError::Nodes => {
            Mistake::Value { word: "SwitchName", needs: "Nodes in some line" }.at(first)
        }
        TreeError::Cycle(all) => {
            let line = all.iter().map(|vertex| line_of(*vertex)).max().unwrap_or(first);
            Mistake::Cycle(all.iter().map(|vertex| names.get(*vertex)).collect()).at(line)
        }
        TreeError::Apart(one, other) => {
            Mistake::Unreachable(names.get(one), names.get(other)).at(line_of(other))
        }
    })?;
    Ok(Network { shape: Box::new(tree), names, hardware: Hardware::default(), lattice: None })
}

/// `TorusName=t Dims=4x4x4 Nodes=n[0-63]`: x counts fastest.
fn torus(line: usize, pairs: &[(String, &str)]) -> Result<Network, ReadError> {
    let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| *value);
    let known = ["torusname", "dims", "nodes"];
    if let Some((key, _)) = pairs.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        return Err(Mistake::Word(key.clone()).at(line));
    }
    let dims =
        value("dims").and_then(|text| text.split('x').map(|size| size.parse().ok()).collect());
    let needs = Mistake::Value { word: "TorusName", needs: "Dims=XxYxZ and Nodes=" };
    let dims: Vec<u32> =
        dims.filter(|dims: &Vec<u32>| dims.len() == 3).ok_or_else(|| needs.clone().at(line))?;
    let grid = Grid::new(&dims, &[true; 3]);
    let grid =
        grid.map_err(|error| Mistake::Size { kind: String::from("torus"), error }.at(line))?;
    let names = expand(value("nodes").ok_or_else(|| needs.at(line))?);
    let names = names.map_err(|error| Mistake::from(error).at(line))?;
    if names.len() != grid.nodes() as usize {
        return Err(Mistake::Names { names: names.len(), nodes: grid.nodes() }.at(line));
    }
    let names = Names::new(names).map_err(|name| Mistake::Again { name, before: line }.at(line))?;
    let own = (0..grid.nodes()).collect();
    let lattice = Some(Lattice::new(dims, grid.wraps().to_vec(), own));
    Ok(Network { shape: Box::new(grid), names, hardware: Hardware::default(), lattice })
}

#[cfg(test)]
mod tests {
    use super::super::read_topology;

    fn hops(text: &str, from: &str, to: &str) -> usize {
        let network = read_topology(text).unwrap();
        let number = |name| network.names.number(name).unwrap();
        let mut links = Vec::new();
        network.shape.route(number(from), number(to), 0, &mut links);
        links.len()
    }

    #[test]
    fn a_tree_is_read() {
        let text = "# tree\nSwitchName=s0 Nodes=n[0-3]\nswitchname=s1 nodes=n[4-7] LinkSpeed=2\n\
                    SwitchName=top Switches=s[0-1] LinkSpeed=4\n";
        assert_eq!((hops(text, "n0", "n3"), hops(text, "n0", "n4")), (2, 4));
        let network = read_topology(text).unwrap();
        assert_eq!((network.nodes(), network.shape.kind()), (8, "tree"));
        // Up from n4 to s1, and from s1 (number 9) to the top.
        assert_eq!((network.shape.capacity(9), network.shape.capacity(19)), (2.0, 4.0));
    }

    #[test]
    fn blocks_are_linked() {
        let text = "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockSizes=4,8\n";
        assert_eq!((hops(text, "n1", "n4"), hops(text, "n1", "n5")), (2, 4));
        assert_eq!(hops("BlockName=b1 Nodes=n[1-4]\n", "n1", "n4"), 2);
    }

    #[test]
    fn a_torus_is_read() {
        let text = "TorusName=t Dims=4x3x2 Nodes=n[0-23]\n";
        // n1 is one along x, n4 one along y, n12 one along z; n3 is beside n0 the other way round.
        let from = |to| hops(text, "n0", to);
        assert_eq!([from("n1"), from("n4"), from("n12"), from("n3"), from("n17")], [1, 1, 1, 1, 3]);
    }

    #[test]
    fn mistakes_are_told_with_line_and_name() {
        for (text, error) in [
            ("SwitchName=a\n", "line 1: 'SwitchName' needs Nodes or Switches"),
            ("SwitchName=a Nodes=n[0-\n", "line 1: 'n[0-': a bracket"),
            ("SwitchName=a Nods=n1\n", "line 1: 'nods' is unknown"),
            ("SwitchName=a Nodes=n1 x\n", "line 1: 'x' is unknown"),
            ("SwitchName=a Nodes=n1\nNodeName=n1\n", "line 2: 'nodename' is unknown"),
            (
                "SwitchName=a Nodes=n1\nSwitchName=b Switches=a,c\n",
                "line 2: 'c' is no node or switch",
            ),
            (
                "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n",
                "line 2: 'n1' was named before, in line 1",
            ),
            (
                "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n",
                "line 2: 'a' was named before, in line 1",
            ),
            (
                "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n",
                "line 2: no way between 'n1' and 'n2'",
            ),
            (
                "SwitchName=l Nodes=n1\nSwitchName=a Switches=l\nSwitchName=b Switches=l\n",
                "line 3: 'l' is below both 'a' and 'b'",
            ),
            (
                "SwitchName=l Nodes=n1\nSwitchName=a Switches=b\nSwitchName=b Switches=a\n",
                "line 3: switches are above each other in a circle: a, b",
            ),
            ("SwitchName=a Nodes=n[0-1048576]\n", "line 1: more than 1048576 names"),
            ("SwitchName=a Switches=a\n", "needs Nodes in some line"),
            ("SwitchName=a Nodes=n1 LinkSpeed=x\n", "line 1: 'LinkSpeed' needs a number"),
            ("BlockSizes=4\n", "line 1: the file describes no network"),
            ("TorusName=t Dims=4x4 Nodes=n[0-15]\n", "line 1: 'TorusName' needs Dims"),
            ("TorusName=t Dims=4x4x4 Nodes=n[0-62]\n", "line 1: 63 names for 64 nodes"),
            ("TorusName=t Dims=99999x99999x9 Nodes=n\n", "line 1: torus: more than"),
        ] {
            let found = read_topology(text).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(found.contains(error), "{text:?}: {found:?}, not {error:?}");
        }
    }
}
