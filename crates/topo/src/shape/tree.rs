//! Trees of switches, as Slurm's topology.conf tells them: each node at one switch, each switch
//! below at most one other. There is one way between two nodes.

use super::{Link, MOST_NODES, Node, Shape, Vertex};

/// Why switches and nodes are no tree. Numbers are of vertices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeError {
    /// There are no nodes, or too many.
    Nodes,
    /// The switches are above each other in a circle.
    Cycle(Vec<Vertex>),
    /// Two that have no switch in common.
    Apart(Vertex, Vertex),
}

#[derive(Debug, Clone)]
pub struct Tree {
    nodes: u32,
    /// Of nodes and switches; the topmost is its own.
    parents: Vec<Vertex>,
    /// Links between the topmost and a vertex.
    depths: Vec<u32>,
    /// Of the links between a vertex and its parent.
    speeds: Vec<f64>,
}

impl Tree {
    /// `parents`: of `nodes` nodes and then of switches. `speeds`: of the links to them.
    pub fn new(
        nodes: u32,
        parents: &[Option<Vertex>],
        speeds: Vec<f64>,
    ) -> Result<Tree, TreeError> {
        if nodes == 0 || nodes > MOST_NODES || parents.len() > 2 * MOST_NODES as usize {
            return Err(TreeError::Nodes);
        }
        debug_assert_eq!(parents.len(), speeds.len());
        let mut depths = vec![u32::MAX; parents.len()];
        let mut root = None;
        for vertex in 0..parents.len() {
            // Up to one whose depth is known, or to a top.
            let (mut way, mut at) = (Vec::new(), vertex);
            let depth = loop {
                if depths[at] < u32::MAX - 1 {
                    break depths[at];
                }
                if depths[at] == u32::MAX - 1 {
                    let start = way.iter().position(|v| *v == at as u32).unwrap_or(0);
                    return Err(TreeError::Cycle(way.split_off(start)));
                }
                depths[at] = u32::MAX - 1;
                way.push(at as u32);
                match parents[at] {
                    Some(parent) => at = parent as usize,
                    None => break u32::MAX,
                }
            };
            // The topmost of the way, if it ends at one, has depth 0.
            for (depth, one) in (depth.wrapping_add(1)..).zip(way.iter().rev()) {
                depths[*one as usize] = depth;
            }
            let top = way.last().copied().filter(|_| depth == u32::MAX);
            match (root, top) {
                (None, Some(top)) => root = Some((top, vertex as u32)),
                (Some((_, first)), Some(_)) => return Err(TreeError::Apart(first, vertex as u32)),
                (_, None) => {}
            }
        }
        let parents = parents.iter().enumerate().map(|(v, p)| p.unwrap_or(v as u32)).collect();
        Ok(Tree { nodes, parents, depths, speeds })
    }

    pub fn depth(&self, vertex: Vertex) -> u32 {
        self.depths[vertex as usize]
    }

    pub fn parent(&self, vertex: Vertex) -> Vertex {
        self.parents[vertex as usize]
    }
}

impl Shape for Tree {
    fn kind(&self) -> &'static str {
        "tree"
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn vertices(&self) -> u32 {
        self.parents.len() as u32
    }

    fn links(&self) -> u32 {
        self.vertices() * 2
    }

    fn ends(&self, link: Link) -> Option<(Vertex, Vertex)> {
        let vertex = link / 2;
        let parent = *self.parents.get(vertex as usize)?;
        (parent != vertex).then_some(if link % 2 == 1 {
            (vertex, parent)
        } else {
            (parent, vertex)
        })
    }

    fn capacity(&self, link: Link) -> f64 {
        self.speeds[(link / 2) as usize]
    }

    fn route(&self, from: Node, to: Node, _choice: u32, links: &mut Vec<Link>) {
        let (mut up, mut down) = (from, to);
        let start = links.len();
        while self.depth(up) > self.depth(down) {
            links.push(up * 2 + 1);
            up = self.parent(up);
        }
        let mut descent = Vec::new();
        while up != down {
            if self.depth(down) >= self.depth(up) {
                descent.push(down * 2);
                down = self.parent(down);
            } else {
                links.push(up * 2 + 1);
                up = self.parent(up);
            }
        }
        debug_assert!(start <= links.len());
        links.extend(descent.iter().rev());
    }

    fn neighbourhood(&self, node: Node) -> u32 {
        self.parent(node)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{path, routes_are_paths};
    use super::*;

    #[test]
    fn messages_go_up_and_down() {
        // Nodes 0-3, switches 4 and 5 below 6; node 3 at the upper switch itself.
        let parents = [Some(4), Some(4), Some(5), Some(6), Some(6), Some(6), None];
        let tree = Tree::new(4, &parents, vec![1.0; 7]).unwrap();
        assert_eq!(path(&tree, 0, 1, 0), [0, 4, 1]);
        assert_eq!(path(&tree, 0, 2, 0), [0, 4, 6, 5, 2]);
        assert_eq!(path(&tree, 3, 2, 0), [3, 6, 5, 2]);
        assert_eq!(path(&tree, 2, 3, 0), [2, 5, 6, 3]);
        assert_eq!((tree.depth(6), tree.depth(3), tree.depth(0)), (0, 1, 2));
        routes_are_paths(&tree);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let ones = |count| vec![1.0; count];
        let cycle = Tree::new(1, &[Some(1), Some(2), Some(3), Some(1)], ones(4));
        assert_eq!(cycle.err(), Some(TreeError::Cycle(vec![1, 2, 3])));
        let apart = Tree::new(2, &[Some(2), Some(3), None, None], ones(4));
        assert_eq!(apart.err(), Some(TreeError::Apart(0, 1)));
        assert_eq!(Tree::new(0, &[None], ones(1)).err(), Some(TreeError::Nodes));
    }
}
