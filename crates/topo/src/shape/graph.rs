//! Any network: nodes and switches with links as somebody has listed them.
//!
//! A message takes a way with the fewest links. Where several neighbours are on one, the target's
//! number decides, as with static multipath routing; the other choices add to that number. All ways
//! are kept as tables, which is why there is a limit of vertices.

use super::{Link, Node, Shape, Vertex};
use std::collections::VecDeque;

/// Most nodes and switches: a table of as many squared links, twice, is what ways take.
pub const MOST_VERTICES: u32 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphError {
    /// No nodes, or more vertices than `MOST_VERTICES`.
    Vertices,
    /// No way between two nodes.
    Unreachable(Node, Node),
}

#[derive(Debug, Clone)]
pub struct Graph {
    nodes: u32,
    vertices: u32,
    ends: Vec<(Vertex, Vertex)>,
    speeds: Vec<f64>,
    /// For each vertex: the links that leave it, as a range of `leaving`.
    from: Vec<u32>,
    leaving: Vec<Link>,
    /// `hops[to * vertices + at]`.
    hops: Vec<u16>,
}

impl Graph {
    /// `links`: two vertices, nodes before switches, and the speed; each is a link in both
    /// directions.
    pub fn new(
        nodes: u32,
        vertices: u32,
        links: &[(Vertex, Vertex, f64)],
    ) -> Result<Graph, GraphError> {
        if nodes == 0 || vertices > MOST_VERTICES || nodes > vertices {
            return Err(GraphError::Vertices);
        }
        let both = links.iter().flat_map(|(a, b, speed)| [((*a, *b), *speed), ((*b, *a), *speed)]);
        let (ends, speeds): (Vec<_>, Vec<_>) = both.unzip();
        let mut leaving: Vec<Link> = (0..ends.len() as u32).collect();
        leaving.sort_by_key(|link| ends[*link as usize]);
        let start = |vertex| leaving.partition_point(|link| ends[*link as usize].0 < vertex) as u32;
        let from = (0..=vertices).map(start).collect();
        let mut graph = Graph { nodes, vertices, ends, speeds, from, leaving, hops: Vec::new() };
        graph.hops = vec![u16::MAX; nodes as usize * vertices as usize];
        for to in 0..nodes {
            graph.measure(to);
            let far = (0..nodes).find(|at| graph.distance(*at, to) == u16::MAX);
            if let Some(at) = far {
                return Err(GraphError::Unreachable(at.min(to), at.max(to)));
            }
        }
        Ok(graph)
    }

    /// Counts hops to `to` from everywhere. Links go both ways, so that it does not matter from
    /// where.
    fn measure(&mut self, to: Node) {
        let base = to as usize * self.vertices as usize;
        self.hops[base + to as usize] = 0;
        let mut queue = VecDeque::from([to]);
        while let Some(at) = queue.pop_front() {
            let here = self.hops[base + at as usize];
            // A message does not pass through other nodes where there are switches.
            if at < self.nodes && at != to && self.vertices > self.nodes {
                continue;
            }
            for link in self.of(at) {
                let next = self.ends[self.leaving[link] as usize].1;
                if self.hops[base + next as usize] == u16::MAX {
                    self.hops[base + next as usize] = here + 1;
                    queue.push_back(next);
                }
            }
        }
    }

    fn of(&self, vertex: Vertex) -> std::ops::Range<usize> {
        self.from[vertex as usize] as usize..self.from[vertex as usize + 1] as usize
    }

    fn distance(&self, at: Vertex, to: Node) -> u16 {
        self.hops[to as usize * self.vertices as usize + at as usize]
    }
}

impl Shape for Graph {
    fn kind(&self) -> &'static str {
        "graph"
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn vertices(&self) -> u32 {
        self.vertices
    }

    fn links(&self) -> u32 {
        self.ends.len() as u32
    }

    fn ends(&self, link: Link) -> Option<(Vertex, Vertex)> {
        self.ends.get(link as usize).copied()
    }

    fn capacity(&self, link: Link) -> f64 {
        self.speeds[link as usize]
    }

    fn choices(&self) -> u32 {
        let most = (0..self.vertices).map(|vertex| self.of(vertex).len()).max().unwrap_or(1);
        most.clamp(1, 16) as u32
    }

    fn route(&self, from: Node, to: Node, choice: u32, links: &mut Vec<Link>) {
        let mut at = from;
        while at != to {
            let left = self.distance(at, to);
            let nearer = |link: &&Link| {
                let next = self.ends[**link as usize].1;
                // A node that is passed on the way has no way on where there are switches.
                let passes = next == to || next >= self.nodes || self.vertices == self.nodes;
                passes && self.distance(next, to) < left
            };
            let ways = || self.leaving[self.of(at)].iter().filter(nearer);
            let count = ways().count().max(1);
            let Some(link) = ways().nth((to + choice) as usize % count) else { return };
            links.push(*link);
            at = self.ends[*link as usize].1;
        }
    }

    /// The first switch that a link leads to, or the node itself.
    fn neighbourhood(&self, node: Node) -> u32 {
        let next = self.of(node).map(|at| self.ends[self.leaving[at] as usize].1);
        next.filter(|vertex| *vertex >= self.nodes).min().unwrap_or(node)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{path, routes_are_paths};
    use super::*;

    #[test]
    fn messages_take_the_fewest_links() {
        // A ring of five nodes with a short cut.
        let links = [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 4, 1.0), (4, 0, 1.0), (0, 2, 1.0)];
        let graph = Graph::new(5, 5, &links).unwrap();
        assert_eq!(path(&graph, 0, 3, 0).len(), 3);
        assert_eq!(path(&graph, 1, 4, 0), [1, 0, 4]);
        routes_are_paths(&graph);
    }

    #[test]
    fn equal_ways_are_spread_by_target() {
        // Nodes 0-3 at two switches 4 and 5, which two others (6, 7) link.
        let links = [
            (0, 4, 1.0),
            (1, 4, 1.0),
            (2, 5, 1.0),
            (3, 5, 1.0),
            (4, 6, 1.0),
            (4, 7, 1.0),
            (5, 6, 1.0),
            (5, 7, 2.0),
        ];
        let graph = Graph::new(4, 8, &links).unwrap();
        assert_eq!(path(&graph, 0, 2, 0), [0, 4, 6, 5, 2]);
        assert_eq!(path(&graph, 0, 3, 0), [0, 4, 7, 5, 3]);
        assert_eq!(path(&graph, 0, 2, 1), [0, 4, 7, 5, 2]);
        assert_eq!(graph.neighbourhood(1), 4);
        assert_eq!(graph.capacity(14), 2.0);
        routes_are_paths(&graph);
    }

    #[test]
    fn nodes_do_not_pass_messages_on_where_there_are_switches() {
        // 0 - switch 3 - 1 - switch 4 - 2: node 1 has two links and forwards nothing.
        let links = [(0, 3, 1.0), (1, 3, 1.0), (1, 4, 1.0), (2, 4, 1.0)];
        assert_eq!(Graph::new(3, 5, &links).err(), Some(GraphError::Unreachable(0, 2)));
    }

    #[test]
    fn what_is_apart_or_too_large_is_refused() {
        let apart = Graph::new(4, 4, &[(0, 1, 1.0), (2, 3, 1.0)]);
        assert_eq!(apart.err(), Some(GraphError::Unreachable(0, 2)));
        assert_eq!(Graph::new(5000, 5000, &[]).err(), Some(GraphError::Vertices));
        assert_eq!(Graph::new(0, 3, &[]).err(), Some(GraphError::Vertices));
    }
}
