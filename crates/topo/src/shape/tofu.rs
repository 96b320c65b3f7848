//! Tofu, the network of the K computer: six dimensions X, Y, Z, A, B, C.
//!
//! A packet goes along X, Y, Z, A, C, B in this order. Before that it can be asked to go along B,
//! C, A to another place of its group of 12: that is the network's own way of route control, and
//! here the routes after the first one. A and C have two nodes and no way round, B has three and
//! one.

use super::grid::{Grid, Place};
use super::{Link, Node, Shape, SizeError, Vertex};

/// Places in `dims` of the axes that a group of nodes has.
const A: usize = 3;
const B: usize = 4;
const C: usize = 5;

#[derive(Debug, Clone)]
pub struct Tofu {
    grid: Grid,
}

impl Tofu {
    /// X, Y, Z, A, B, C. `wraps`: of X, Y, Z; a part of a machine usually has no way round there.
    pub fn new(dims: &[u32], wraps: [bool; 3]) -> Result<Tofu, SizeError> {
        if dims.len() != 6 {
            return Err(SizeError::Dimensions { given: dims.len(), least: 6, most: 6 });
        }
        let [x, y, z] = wraps;
        let grid = Grid::new(dims, &[x, y, z, false, true, false])?;
        Ok(Tofu { grid: grid.ordered(vec![0, 1, 2, A, C, B]) })
    }

    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// The route that first goes to A, B, C of `via`.
    pub fn route_through(&self, from: Node, to: Node, via: [u32; 3], links: &mut Vec<Link>) {
        let mut at = self.grid.place(from);
        let [a, b, c] = via;
        self.grid.walk(&mut at, B, b, links);
        self.grid.walk(&mut at, C, c, links);
        self.grid.walk(&mut at, A, a, links);
        self.grid.route(self.grid.node(&at), to, 0, links);
    }

    /// Which choice of `route` goes through A, B, C of `via`.
    pub fn choice(&self, via: [u32; 3]) -> u32 {
        let [a, b, c] = via;
        let dims = self.grid.dims();
        1 + (c * dims[B] + b) * dims[A] + a
    }

    fn via(&self, choice: u32) -> [u32; 3] {
        let dims = self.grid.dims();
        let cell = choice - 1;
        [cell % dims[A], cell / dims[A] % dims[B], cell / dims[A] / dims[B]]
    }

    pub fn place(&self, node: Node) -> Place {
        self.grid.place(node)
    }

    /// A, B, C of a node.
    pub fn group_place(&self, node: Node) -> [u32; 3] {
        let place = self.grid.place(node);
        [place[A], place[B], place[C]]
    }
}

impl Shape for Tofu {
    fn kind(&self) -> &'static str {
        "tofu"
    }

    fn nodes(&self) -> u32 {
        self.grid.nodes()
    }

    fn links(&self) -> u32 {
        self.grid.links()
    }

    fn ends(&self, link: Link) -> Option<(Vertex, Vertex)> {
        self.grid.ends(link)
    }

    fn choices(&self) -> u32 {
        1 + self.grid.dims()[A..].iter().product::<u32>()
    }

    fn route(&self, from: Node, to: Node, choice: u32, links: &mut Vec<Link>) {
        match choice {
            0 => self.grid.route(from, to, 0, links),
            _ => self.route_through(from, to, self.via(choice), links),
        }
    }

    /// The group of twelve: all nodes with the same X, Y, Z.
    fn neighbourhood(&self, node: Node) -> u32 {
        node % self.grid.dims()[..A].iter().product::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::routes_are_paths;
    use super::*;

    fn places(tofu: &Tofu, links: &[Link]) -> Vec<[u32; 6]> {
        let place = |node| tofu.place(node)[..6].try_into().unwrap();
        links.iter().filter_map(|link| tofu.ends(*link)).map(|(_, to)| place(to)).collect()
    }

    fn node(tofu: &Tofu, at: [u32; 6]) -> Node {
        let mut place = Place::default();
        place[..6].copy_from_slice(&at);
        tofu.grid.node(&place)
    }

    #[test]
    fn axes_are_gone_along_in_tofus_order() {
        let tofu = Tofu::new(&[2, 2, 2, 2, 3, 2], [false; 3]).unwrap();
        let (from, to) = (node(&tofu, [0; 6]), node(&tofu, [1, 1, 1, 1, 1, 1]));
        let mut links = Vec::new();
        tofu.route(from, to, 0, &mut links);
        let expected = [
            [1, 0, 0, 0, 0, 0],
            [1, 1, 0, 0, 0, 0],
            [1, 1, 1, 0, 0, 0],
            [1, 1, 1, 1, 0, 0],
            [1, 1, 1, 1, 0, 1],
            [1, 1, 1, 1, 1, 1],
        ];
        assert_eq!(places(&tofu, &links), expected);
    }

    #[test]
    fn a_first_move_goes_along_b_c_a() {
        let tofu = Tofu::new(&[2, 1, 1, 2, 3, 2], [false; 3]).unwrap();
        let (from, to) = (node(&tofu, [0; 6]), node(&tofu, [1, 0, 0, 0, 0, 0]));
        let mut links = Vec::new();
        tofu.route(from, to, tofu.choice([1, 2, 1]), &mut links);
        let expected = [
            // B is a ring of three: backwards is one hop.
            [0, 0, 0, 0, 2, 0],
            [0, 0, 0, 0, 2, 1],
            [0, 0, 0, 1, 2, 1],
            [1, 0, 0, 1, 2, 1],
            [1, 0, 0, 0, 2, 1],
            [1, 0, 0, 0, 2, 0],
            [1, 0, 0, 0, 0, 0],
        ];
        assert_eq!(places(&tofu, &links), expected);
        for via in [[0, 0, 0], [1, 0, 0], [0, 2, 0], [1, 1, 1]] {
            assert_eq!(tofu.via(tofu.choice(via)), via);
        }
    }

    #[test]
    fn routes_end_where_they_should() {
        routes_are_paths(&Tofu::new(&[1, 1, 6, 2, 3, 2], [false; 3]).unwrap());
        routes_are_paths(&Tofu::new(&[3, 1, 3, 2, 3, 2], [true; 3]).unwrap());
        assert!(Tofu::new(&[6, 12], [false; 3]).is_err());
    }
}
