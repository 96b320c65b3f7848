//! A network as a file describes it: its kind, the names of its nodes, how fast its parts are, and
//! the grid that a program's ranks see in it.

use crate::shape::{Node, Shape, Vertex};
use std::collections::HashMap;

/// Speeds of what messages pass. Times are told in what one message takes that has a link to
/// itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    /// Of a link in one direction.
    pub link_bytes_per_s: f64,
    /// How many messages a node sends at one time; the others wait. 0: any number.
    pub engines: u32,
    /// What a node's memory gives, and takes, at one time, in links; infinite if it is no limit.
    pub memory_links: f64,
}

impl Default for Hardware {
    /// 100 Gbit/s, and links are the only limit.
    fn default() -> Self {
        Hardware { link_bytes_per_s: 12.5e9, engines: 0, memory_links: f64::INFINITY }
    }
}

/// Names of nodes and switches.
#[derive(Debug, Clone, Default)]
pub struct Names {
    all: Vec<String>,
    numbers: HashMap<String, Vertex>,
}

impl Names {
    /// The first name that comes twice is an error.
    pub fn new(all: Vec<String>) -> Result<Names, String> {
        let mut numbers = HashMap::with_capacity(all.len());
        for (number, name) in (0u32..).zip(&all) {
            if numbers.insert(name.clone(), number).is_some() {
                return Err(name.clone());
            }
        }
        Ok(Names { all, numbers })
    }

    pub fn get(&self, vertex: Vertex) -> String {
        self.all.get(vertex as usize).cloned().unwrap_or_else(|| format!("#{vertex}"))
    }

    pub fn number(&self, name: &str) -> Option<Vertex> {
        self.numbers.get(name).copied()
    }
}

/// A grid over all nodes: which node is in which of its cells. Cells count as nodes of a mesh do:
/// the first coordinate fastest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lattice {
    dims: Vec<u32>,
    wraps: Vec<bool>,
    nodes: Vec<Node>,
    cells: Vec<u32>,
}

impl Lattice {
    /// `nodes`: of each cell; each node once.
    pub fn new(dims: Vec<u32>, wraps: Vec<bool>, nodes: Vec<Node>) -> Lattice {
        let mut cells = vec![0; nodes.len()];
        for (cell, node) in (0u32..).zip(&nodes) {
            cells[*node as usize] = cell;
        }
        Lattice { dims, wraps, nodes, cells }
    }

    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    pub fn node(&self, cell: u32) -> Node {
        self.nodes[cell as usize]
    }

    pub fn cell(&self, node: Node) -> u32 {
        self.cells[node as usize]
    }

    /// The coordinate of a cell along an axis.
    pub fn coordinate(&self, cell: u32, axis: usize) -> u32 {
        cell / self.stride(axis) % self.dims[axis]
    }

    pub fn stride(&self, axis: usize) -> u32 {
        self.dims[..axis].iter().product()
    }

    /// The cell after one along an axis, or before it.
    pub fn beside(&self, cell: u32, axis: usize, forward: bool) -> Option<u32> {
        let (at, size, stride) = (self.coordinate(cell, axis), self.dims[axis], self.stride(axis));
        match (forward, at) {
            (true, at) if at + 1 < size => Some(cell + stride),
            (false, at) if at > 0 => Some(cell - stride),
            (true, _) if self.wraps[axis] => Some(cell - stride * (size - 1)),
            (false, _) if self.wraps[axis] => Some(cell + stride * (size - 1)),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub struct Network {
    pub shape: Box<dyn Shape>,
    pub names: Names,
    pub hardware: Hardware,
    /// None where nodes are in no grid: trees, dragonflies, graphs.
    pub lattice: Option<Lattice>,
}

impl Network {
    pub fn nodes(&self) -> u32 {
        self.shape.nodes()
    }

    /// Nodes in the order in which ranks are put on them.
    pub fn in_order(&self) -> Vec<Node> {
        match &self.lattice {
            Some(lattice) => (0..self.nodes()).map(|cell| lattice.node(cell)).collect(),
            None => (0..self.nodes()).collect(),
        }
    }

    /// The cell of a node, or its number where there are none: how users count nodes.
    pub fn cell(&self, node: Node) -> u32 {
        self.lattice.as_ref().map_or(node, |lattice| lattice.cell(node))
    }

    /// The node that is called so: by its name, by its cell (`7`), or by the cell's coordinates
    /// (`1,1`).
    pub fn find(&self, text: &str) -> Option<Node> {
        if let Some(number) = self.names.number(text) {
            return (number < self.nodes()).then_some(number);
        }
        let cell = match text.split_once(',') {
            None => text.parse().ok()?,
            Some(_) => self.cell_at(text)?,
        };
        let node = |cell| self.lattice.as_ref().map_or(cell, |lattice| lattice.node(cell));
        (cell < self.nodes()).then(|| node(cell))
    }

    /// The node that is a host: by its name, or what of that is before the first dot.
    pub fn host(&self, name: &str) -> Option<Node> {
        let short = name.split('.').next().unwrap_or_default();
        let named = self.names.number(name).or_else(|| self.names.number(short));
        named.filter(|node| *node < self.nodes())
    }

    fn cell_at(&self, text: &str) -> Option<u32> {
        let lattice = self.lattice.as_ref()?;
        let place: Vec<u32> =
            text.split(',').map(|word| word.trim().parse()).collect::<Result<_, _>>().ok()?;
        let is_inside = place.len() == lattice.dims.len()
            && place.iter().zip(&lattice.dims).all(|(at, size)| at < size);
        is_inside.then(|| (0..place.len()).map(|axis| place[axis] * lattice.stride(axis)).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Grid;

    #[test]
    fn nodes_are_found_by_name_cell_and_place() {
        let names = (0..12).map(|n| format!("n{n}")).collect();
        let lattice = Lattice::new(vec![4, 3], vec![false, true], (0..12).rev().collect());
        let network = Network {
            shape: Box::new(Grid::new(&[4, 3], &[false, true]).unwrap()),
            names: Names::new(names).unwrap(),
            hardware: Hardware::default(),
            lattice: Some(lattice),
        };
        assert_eq!(network.find("n5"), Some(5));
        assert_eq!(network.find("5"), Some(6));
        assert_eq!(network.find("1,1"), Some(6));
        assert_eq!(network.find("3, 2"), Some(0));
        for wrong in ["12", "n12", "4,0", "0,3", "0,0,0", "x,1", "", "-1"] {
            assert_eq!(network.find(wrong), None, "{wrong}");
        }
        assert_eq!(network.cell(6), 5);
        assert_eq!(network.in_order()[0], 11);
    }

    #[test]
    fn cells_have_neighbours() {
        let lattice = Lattice::new(vec![4, 3], vec![false, true], (0..12).collect());
        assert_eq!(lattice.beside(5, 0, true), Some(6));
        assert_eq!(lattice.beside(7, 0, true), None);
        assert_eq!(lattice.beside(4, 0, false), None);
        assert_eq!(lattice.beside(9, 1, true), Some(1));
        assert_eq!(lattice.beside(1, 1, false), Some(9));
        assert_eq!((lattice.coordinate(6, 0), lattice.coordinate(6, 1)), (2, 1));
    }

    #[test]
    fn a_name_comes_once() {
        let names = |all: &[&str]| Names::new(all.iter().map(|n| n.to_string()).collect());
        assert_eq!(names(&["a", "b", "a"]).err().as_deref(), Some("a"));
        assert_eq!(names(&["a", "b"]).unwrap().get(7), "#7");
    }
}
