//! The kinds of networks: how many nodes and links each has, and which links a message takes.
//!
//! Kept true: routes are decided by their ends and the choice alone, as in networks with static
//! routing. Vertices are numbered nodes first, then switches; links have a direction.

mod dragonfly;
mod graph;
mod grid;
mod tofu;
mod tree;
mod xgft;

pub use dragonfly::Dragonfly;
pub use graph::{Graph, GraphError, MOST_VERTICES};
pub use grid::{Grid, MOST_DIMENSIONS};
pub use tofu::Tofu;
pub use tree::{Tree, TreeError};
pub use xgft::Xgft;

use std::fmt::Debug;

/// A node's number: from 0.
pub type Node = u32;
/// A vertex's number: nodes first, then switches.
pub type Vertex = u32;
/// A link's number. It has a direction; the other direction is another link.
pub type Link = u32;

/// Most nodes of a network: seven times the largest machine of 2026.
pub const MOST_NODES: u32 = 1 << 20;
/// Most links of a network, both directions counted.
pub const MOST_LINKS: u32 = 1 << 25;

/// A network that is too large or has a size that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    #[error("a size is 0")]
    Zero,
    #[error("more than {MOST_NODES} nodes")]
    Nodes,
    #[error("more than {MOST_NODES} switches")]
    Switches,
    #[error("more than {MOST_LINKS} links")]
    Links,
    #[error("{given} sizes, where {least} to {most} are possible")]
    Dimensions { given: usize, least: usize, most: usize },
    #[error("{groups} groups, where {routers} routers with {global} global links reach {most}")]
    Groups { groups: u32, routers: u32, global: u32, most: u64 },
    #[error("{0} is odd, or less than 2")]
    Arity(u32),
}

/// A kind of network with its sizes.
pub trait Shape: Debug + Send + Sync {
    /// What it is called in files.
    fn kind(&self) -> &'static str;

    fn nodes(&self) -> u32;

    /// Nodes and switches.
    fn vertices(&self) -> u32 {
        self.nodes()
    }

    /// Numbers of links are below this; some may be of no link (`ends`).
    fn links(&self) -> u32;

    /// From where to where a link goes.
    fn ends(&self, link: Link) -> Option<(Vertex, Vertex)>;

    /// How many times the usual speed.
    fn capacity(&self, _link: Link) -> f64 {
        1.0
    }

    /// How many ways `route` has from a node to another. The first is what the network takes if it
    /// is not asked.
    fn choices(&self) -> u32 {
        1
    }

    /// Appends the links from a node to another. None, if they are one.
    fn route(&self, from: Node, to: Node, choice: u32, links: &mut Vec<Link>);

    /// The part of the network that nodes share closest: a switch, or the node itself.
    fn neighbourhood(&self, node: Node) -> u32 {
        node
    }
}

/// The product of sizes, if a network may be so large.
fn nodes_of(sizes: &[u32]) -> Result<u32, SizeError> {
    let mut product = 1u32;
    for size in sizes {
        if *size == 0 {
            return Err(SizeError::Zero);
        }
        product =
            product.checked_mul(*size).filter(|n| *n <= MOST_NODES).ok_or(SizeError::Nodes)?;
    }
    Ok(product)
}

/// `count`, if a network may have so many links.
fn links_of(count: u64) -> Result<u32, SizeError> {
    u32::try_from(count).ok().filter(|links| *links <= MOST_LINKS).ok_or(SizeError::Links)
}

#[cfg(test)]
pub(crate) mod testing {
    //! What holds of every kind of network.

    use super::*;

    /// Each route is a path of links from its one end to the other, and no link comes twice.
    pub fn routes_are_paths(shape: &dyn Shape) {
        let mut links = Vec::new();
        for from in 0..shape.nodes() {
            for to in 0..shape.nodes() {
                for choice in 0..shape.choices() {
                    links.clear();
                    shape.route(from, to, choice, &mut links);
                    let mut at = from;
                    for link in &links {
                        let (start, end) = shape.ends(*link).expect("a link");
                        assert_eq!(start, at, "{shape:?} {from}-{to} by {choice}: {links:?}");
                        at = end;
                    }
                    assert_eq!(at, to, "{shape:?} {from}-{to} by {choice}: {links:?}");
                    assert!(choice > 0 || from != to || links.is_empty());
                    let count = links.len();
                    let mut once = links.clone();
                    once.sort_unstable();
                    once.dedup();
                    assert!(choice > 0 || once.len() == count, "{shape:?}: {links:?}");
                }
            }
        }
    }

    pub fn hops(shape: &dyn Shape, from: Node, to: Node) -> usize {
        let mut links = Vec::new();
        shape.route(from, to, 0, &mut links);
        links.len()
    }

    /// The vertices that a route passes, both ends among them.
    pub fn path(shape: &dyn Shape, from: Node, to: Node, choice: u32) -> Vec<Vertex> {
        let mut links = Vec::new();
        shape.route(from, to, choice, &mut links);
        let ends = links.iter().filter_map(|link| shape.ends(*link)).map(|(_, end)| end);
        std::iter::once(from).chain(ends).collect()
    }
}
