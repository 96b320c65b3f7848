//! Meshes and tori of up to eight dimensions, with dimension-order routing: a message goes along
//! one dimension until it is where its target is, then along the next.
//!
//! The first coordinate counts fastest: in a mesh of 6x12 node 7 is at (1, 1).

use super::{Link, Node, Shape, SizeError, Vertex, links_of, nodes_of};

pub const MOST_DIMENSIONS: usize = 8;

/// Coordinates; those beyond the grid's dimensions are 0.
pub type Place = [u32; MOST_DIMENSIONS];

#[derive(Debug, Clone)]
pub struct Grid {
    dims: Vec<u32>,
    wraps: Vec<bool>,
    order: Vec<usize>,
    nodes: u32,
    links: u32,
}

impl Grid {
    /// `wraps`: along which dimensions the ends are linked. With two or less nodes along one they
    /// are not: there is one link between two nodes.
    pub fn new(dims: &[u32], wraps: &[bool]) -> Result<Grid, SizeError> {
        if dims.is_empty() || dims.len() > MOST_DIMENSIONS || wraps.len() != dims.len() {
            let given = dims.len();
            return Err(SizeError::Dimensions { given, least: 1, most: MOST_DIMENSIONS });
        }
        let nodes = nodes_of(dims)?;
        let links = links_of(u64::from(nodes) * dims.len() as u64 * 2)?;
        let wraps = dims.iter().zip(wraps).map(|(size, wraps)| *wraps && *size > 2).collect();
        let order = (0..dims.len()).collect();
        Ok(Grid { dims: dims.to_vec(), wraps, order, nodes, links })
    }

    /// With another order of dimensions than that in which they are named.
    #[must_use]
    pub fn ordered(self, order: Vec<usize>) -> Grid {
        debug_assert_eq!(order.len(), self.dims.len());
        Grid { order, ..self }
    }

    pub fn dims(&self) -> &[u32] {
        &self.dims
    }

    pub fn wraps(&self) -> &[bool] {
        &self.wraps
    }

    pub fn place(&self, node: Node) -> Place {
        let mut place = Place::default();
        let mut rest = node;
        for (at, size) in place.iter_mut().zip(&self.dims) {
            (*at, rest) = (rest % size, rest / size);
        }
        place
    }

    pub fn node(&self, place: &Place) -> Node {
        self.dims.iter().zip(place).rev().fold(0, |node, (size, at)| node * size + at)
    }

    /// The number of the link that leaves a node along a dimension.
    fn link(&self, node: Node, dim: usize, forward: bool) -> Link {
        (node * self.dims.len() as u32 + dim as u32) * 2 + u32::from(forward)
    }

    /// Goes along one dimension until `target`, the shorter way round, forward if both are equal.
    pub(super) fn walk(&self, at: &mut Place, dim: usize, target: u32, links: &mut Vec<Link>) {
        let size = self.dims[dim];
        let ahead = (target + size - at[dim]) % size;
        let forward = match self.wraps[dim] {
            true => ahead * 2 <= size,
            false => target > at[dim],
        };
        while at[dim] != target {
            links.push(self.link(self.node(at), dim, forward));
            at[dim] = match forward {
                true => (at[dim] + 1) % size,
                false => (at[dim] + size - 1) % size,
            };
        }
    }

    /// The node beyond a link that leaves `node`; none at the border of a mesh.
    pub fn beside(&self, node: Node, dim: usize, forward: bool) -> Option<Node> {
        let mut place = self.place(node);
        let size = self.dims[dim];
        let is_border = if forward { place[dim] + 1 == size } else { place[dim] == 0 };
        if is_border && !self.wraps[dim] {
            return None;
        }
        place[dim] = if forward { (place[dim] + 1) % size } else { (place[dim] + size - 1) % size };
        Some(self.node(&place))
    }
}

impl Shape for Grid {
    fn kind(&self) -> &'static str {
        if self.wraps.iter().any(|wraps| *wraps) { "torus" } else { "mesh" }
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn links(&self) -> u32 {
        self.links
    }

    fn ends(&self, link: Link) -> Option<(Vertex, Vertex)> {
        let (leaving, forward) = (link / 2, link % 2 == 1);
        let count = self.dims.len() as u32;
        let (node, dim) = (leaving / count, (leaving % count) as usize);
        (node < self.nodes).then(|| self.beside(node, dim, forward).map(|to| (node, to)))?
    }

    fn route(&self, from: Node, to: Node, _choice: u32, links: &mut Vec<Link>) {
        let mut at = self.place(from);
        let target = self.place(to);
        for dim in &self.order {
            self.walk(&mut at, *dim, target[*dim], links);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{hops, path, routes_are_paths};
    use super::*;

    fn mesh(dims: &[u32]) -> Grid {
        Grid::new(dims, &vec![false; dims.len()]).unwrap()
    }

    fn torus(dims: &[u32]) -> Grid {
        Grid::new(dims, &vec![true; dims.len()]).unwrap()
    }

    #[test]
    fn routes_go_along_one_dimension_after_the_other() {
        let grid = mesh(&[4, 3]);
        assert_eq!(grid.place(7)[..2], [3, 1]);
        // (0, 0) to (2, 2): x first.
        assert_eq!(path(&grid, 0, 10, 0), [0, 1, 2, 6, 10]);
        assert_eq!(path(&grid, 10, 0, 0), [10, 9, 8, 4, 0]);
        let other = mesh(&[4, 3]).ordered(vec![1, 0]);
        assert_eq!(path(&other, 0, 10, 0), [0, 4, 8, 9, 10]);
    }

    #[test]
    fn a_torus_takes_the_shorter_way_round() {
        let ring = torus(&[5]);
        assert_eq!(path(&ring, 0, 2, 0), [0, 1, 2]);
        assert_eq!(path(&ring, 0, 3, 0), [0, 4, 3]);
        // As long either way: forward.
        assert_eq!(path(&torus(&[4]), 3, 1, 0), [3, 0, 1]);
        // The farthest pair of an 8x8x8 torus is 12 hops apart, of a mesh 21.
        assert_eq!((0..512).map(|to| hops(&torus(&[8, 8, 8]), 0, to)).max(), Some(12));
        assert_eq!((0..512).map(|to| hops(&mesh(&[8, 8, 8]), 0, to)).max(), Some(21));
    }

    #[test]
    fn routes_end_where_they_should() {
        for shape in [mesh(&[4, 3]), torus(&[4, 3, 2]), mesh(&[1, 5]), torus(&[2, 2, 2, 2])] {
            routes_are_paths(&shape);
        }
        // 2 * (3 * 3 + 4 * 2) links of a 4x3 mesh; 2 * 2 a node of a 4x3 torus.
        let count = |grid: &Grid| (0..grid.links()).filter(|l| grid.ends(*l).is_some()).count();
        assert_eq!((count(&mesh(&[4, 3])), count(&torus(&[4, 3]))), (34, 48));
        // Two nodes have one link each way, also in a torus.
        assert_eq!(count(&torus(&[2])), 2);
    }

    #[test]
    fn what_is_too_large_is_refused() {
        assert_eq!(
            Grid::new(&[], &[]).err().map(|e| e.to_string()).as_deref(),
            Some("0 sizes, where 1 to 8 are possible")
        );
        assert_eq!(Grid::new(&[3, 0], &[true; 2]).err(), Some(SizeError::Zero));
        assert_eq!(Grid::new(&[u32::MAX, u32::MAX], &[true; 2]).err(), Some(SizeError::Nodes));
        assert_eq!(Grid::new(&[1 << 20, 2], &[true; 2]).err(), Some(SizeError::Nodes));
        assert!(Grid::new(&[1; 9], &[true; 9]).is_err());
        assert!(Grid::new(&[1024, 1024], &[true; 2]).is_ok());
    }
}
