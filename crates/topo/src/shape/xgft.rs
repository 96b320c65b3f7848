//! Fat trees: extended generalised fat trees XGFT(h; m1..mh; w1..wh), in which a vertex of level i
//! has m(i) children and w(i+1) parents.
//!
//! A message goes up to the lowest level that both ends have in common, and down. Which parents it
//! takes is decided by its target's number (d-mod-k), which spreads targets over them; the other
//! choices add to that number.

use super::{Link, MOST_NODES, Node, Shape, SizeError, Vertex, links_of, nodes_of};

/// Most levels of switches.
pub const MOST_LEVELS: usize = 8;

#[derive(Debug, Clone)]
pub struct Xgft {
    children: Vec<u32>,
    parents: Vec<u32>,
    /// For each level from 0: its first vertex.
    first_vertex: Vec<u32>,
    /// For each level from 0: the first link between it and the next.
    first_link: Vec<u32>,
    /// For each level: how many vertices of it share the children below (products of `parents`).
    copies: Vec<u32>,
    /// For each level: how many nodes are below a vertex (products of `children`).
    below: Vec<u32>,
    vertices: u32,
    links: u32,
}

impl Xgft {
    pub fn new(children: &[u32], parents: &[u32]) -> Result<Xgft, SizeError> {
        let levels = children.len();
        if levels == 0 || levels > MOST_LEVELS || parents.len() != levels {
            let given = if levels == 0 || levels > MOST_LEVELS { levels } else { parents.len() };
            let (least, most) = if given == levels { (1, MOST_LEVELS) } else { (levels, levels) };
            return Err(SizeError::Dimensions { given, least, most });
        }
        let nodes = nodes_of(children)?;
        nodes_of(parents)?;
        let product = |sizes: &[u32]| sizes.iter().map(|size| u64::from(*size)).product::<u64>();
        let (mut vertices, mut links) = (0u64, 0u64);
        let (mut first_vertex, mut first_link) = (Vec::new(), Vec::new());
        let (mut copies, mut below) = (Vec::new(), Vec::new());
        for level in 0..=levels {
            let copied = product(&parents[..level]);
            let here = u64::from(nodes) / product(&children[..level]) * copied;
            first_vertex.push(links_of(vertices)?);
            first_link.push(links_of(links)?);
            copies.push(links_of(copied)?);
            below.push(links_of(product(&children[..level]))?);
            vertices += here;
            links += here * parents.get(level).map_or(0, |count| u64::from(*count) * 2);
        }
        if vertices - u64::from(nodes) > u64::from(MOST_NODES) {
            return Err(SizeError::Switches);
        }
        let (vertices, links) = (links_of(vertices)?, links_of(links)?);
        let (children, parents) = (children.to_vec(), parents.to_vec());
        Ok(Xgft { children, parents, first_vertex, first_link, copies, below, vertices, links })
    }

    /// The usual fat tree of three levels made of switches with `ports` ports.
    pub fn fat_tree(ports: u32) -> Result<Xgft, SizeError> {
        if ports < 2 || !ports.is_multiple_of(2) {
            return Err(SizeError::Arity(ports));
        }
        let half = ports / 2;
        Xgft::new(&[half, half, ports], &[1, half, half])
    }

    pub fn levels(&self) -> usize {
        self.children.len()
    }

    pub fn children(&self) -> &[u32] {
        &self.children
    }

    pub fn parents(&self) -> &[u32] {
        &self.parents
    }

    /// The level of a vertex, nodes being at 0, and its number there.
    pub fn level(&self, vertex: Vertex) -> (usize, u32) {
        let above = self.first_vertex.partition_point(|first| *first <= vertex);
        let level = above.saturating_sub(1);
        (level, vertex - self.first_vertex[level])
    }

    /// The vertex of a level above a node that has the copy number `copy`.
    fn above(&self, node: Node, level: usize, copy: u32) -> u32 {
        node / self.below[level] * self.copies[level] + copy
    }

    /// The link between a vertex of a level and its parent of a number.
    fn link(&self, level: usize, lower: u32, parent: u32, up: bool) -> Link {
        self.first_link[level] + (lower * self.parents[level] + parent) * 2 + u32::from(up)
    }
}

impl Shape for Xgft {
    fn kind(&self) -> &'static str {
        "xgft"
    }

    fn nodes(&self) -> u32 {
        self.first_vertex[1]
    }

    fn vertices(&self) -> u32 {
        self.vertices
    }

    fn links(&self) -> u32 {
        self.links
    }

    fn ends(&self, link: Link) -> Option<(Vertex, Vertex)> {
        if link >= self.links {
            return None;
        }
        let level = self.first_link.partition_point(|first| *first <= link);
        // The last level has no links above, so its first is the end of those of the one before.
        let level = level.min(self.levels()) - 1;
        let (number, up) =
            ((link - self.first_link[level]) / 2, (link - self.first_link[level]) % 2);
        let (lower, parent) = (number / self.parents[level], number % self.parents[level]);
        let copy = lower % self.copies[level];
        let upper_copy = copy + parent * self.copies[level];
        let group = lower / self.copies[level] / self.children[level];
        let upper = group * self.copies[level + 1] + upper_copy;
        let (lower, upper) =
            (self.first_vertex[level] + lower, self.first_vertex[level + 1] + upper);
        Some(if up == 1 { (lower, upper) } else { (upper, lower) })
    }

    fn choices(&self) -> u32 {
        self.copies[self.levels()].min(64)
    }

    fn route(&self, from: Node, to: Node, choice: u32, links: &mut Vec<Link>) {
        let top =
            (0..=self.levels()).find(|level| from / self.below[*level] == to / self.below[*level]);
        let top = top.unwrap_or(self.levels());
        let mut copies = [0u32; MOST_LEVELS + 1];
        for level in 0..top {
            let spread =
                (to / self.copies[level] + choice / self.copies[level]) % self.parents[level];
            copies[level + 1] = copies[level] + spread * self.copies[level];
            let lower = self.above(from, level, copies[level]);
            links.push(self.link(level, lower, spread, true));
        }
        for level in (0..top).rev() {
            let parent = copies[level + 1] / self.copies[level];
            let lower = self.above(to, level, copies[level]);
            links.push(self.link(level, lower, parent, false));
        }
    }

    /// The first switch above the node, or the node itself if it has several.
    fn neighbourhood(&self, node: Node) -> u32 {
        if self.parents[0] == 1 { node / self.children[0] } else { node }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{hops, path, routes_are_paths};
    use super::*;

    #[test]
    fn a_fat_tree_of_four_port_switches() {
        let tree = Xgft::fat_tree(4).unwrap();
        // 16 nodes, 8 edge, 8 aggregation, 4 core switches; 48 links both ways.
        assert_eq!((tree.nodes(), tree.vertices(), tree.links()), (16, 36, 96));
        assert_eq!(tree.level(15), (0, 15));
        assert_eq!(tree.level(16), (1, 0));
        assert_eq!(tree.level(35), (3, 3));
        // Same edge switch, same pod, other pods.
        assert_eq!([hops(&tree, 0, 1), hops(&tree, 0, 2), hops(&tree, 0, 4)], [2, 4, 6]);
        // To node 5: to/1 % 2 = 1 and to/2 % 2 = 0 decide the parents.
        assert_eq!(path(&tree, 0, 5, 0), [0, 16, 25, 33, 27, 18, 5]);
    }

    #[test]
    fn targets_are_spread_over_parents() {
        let tree = Xgft::fat_tree(4).unwrap();
        let mut cores: Vec<_> = (4..8).map(|to| path(&tree, 0, to, 0)[3]).collect();
        cores.sort_unstable();
        cores.dedup();
        assert_eq!(cores.len(), 4);
        // All choices are different ways.
        let mut ways: Vec<_> = (0..tree.choices()).map(|by| path(&tree, 0, 15, by)).collect();
        ways.sort();
        ways.dedup();
        assert_eq!(ways.len(), 4);
    }

    #[test]
    fn routes_end_where_they_should() {
        for (children, parents) in [
            (&[4, 4][..], &[1, 2][..]),
            (&[2, 3, 2], &[1, 2, 3]),
            (&[2, 2], &[2, 2]),
            (&[5], &[1]),
            (&[3, 1, 2], &[1, 1, 2]),
        ] {
            let tree = Xgft::new(children, parents).unwrap();
            routes_are_paths(&tree);
            assert!((0..tree.links()).all(|link| tree.ends(link).is_some()));
            assert!(tree.ends(tree.links()).is_none());
        }
        routes_are_paths(&Xgft::fat_tree(4).unwrap());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(Xgft::new(&[], &[]).is_err());
        assert!(Xgft::new(&[4, 4], &[1]).is_err());
        assert_eq!(Xgft::new(&[4, 0], &[1, 1]).err(), Some(SizeError::Zero));
        assert_eq!(Xgft::new(&[4096, 4096], &[1, 1]).err(), Some(SizeError::Nodes));
        assert_eq!(Xgft::new(&[1024, 1024], &[64, 64]).err(), Some(SizeError::Links));
        // 1,024 * 1,024 switches of the first level, and as many of the second.
        assert_eq!(Xgft::new(&[1, 1024], &[1024, 1024]).err(), Some(SizeError::Links));
        assert_eq!(Xgft::new(&[4, 4], &[2048, 1024]).err(), Some(SizeError::Nodes));
        assert_eq!(Xgft::new(&[2, 2], &[1024, 1024]).err(), Some(SizeError::Switches));
        assert_eq!(Xgft::fat_tree(3).err(), Some(SizeError::Arity(3)));
        assert!(Xgft::fat_tree(u32::MAX - 1).is_err());
    }
}
