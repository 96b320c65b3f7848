//! Pictures of networks: in letters for a terminal, and as SVG, with links coloured by how many
//! messages share them.

mod svg;
mod text;

pub use svg::svg;
pub use text::text;

use crate::network::Network;
use crate::shape::{Link, Node};
use crate::sharing::Sharing;
use crate::situation::{NOBODY, Situation};

/// Larger networks are told as tables only.
pub const MOST_PICTURED: u32 = 4096;

/// What a picture is of.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub network: &'a Network,
    pub situation: Option<&'a Situation>,
    pub sharing: Option<&'a Sharing>,
    pub lost: Option<Node>,
}

/// What a node is in a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Ranks,
    /// A spare, or one that has no ranks.
    Free,
    Lost,
}

impl View<'_> {
    fn marks(&self) -> Vec<Mark> {
        let nodes = self.network.nodes();
        let first = self.situation.map(|situation| situation.first_rank(nodes));
        let mark = |node: Node| match &first {
            _ if self.lost == Some(node) => Mark::Lost,
            Some(first) if first[node as usize] == NOBODY => Mark::Free,
            _ => Mark::Ranks,
        };
        (0..nodes).map(mark).collect()
    }

    fn messages(&self, link: Link) -> u32 {
        self.sharing.map_or(0, |sharing| sharing.messages[link as usize])
    }

    /// The links from a node to another one beside it, by what leaves them; most messages of both
    /// directions.
    fn between(&self, one: Node, other: Node) -> u32 {
        let mut links = Vec::new();
        self.network.shape.route(one, other, 0, &mut links);
        self.network.shape.route(other, one, 0, &mut links);
        // Cells beside each other are one hop apart, or their link is not drawn.
        if links.len() != 2 {
            return 0;
        }
        links.iter().map(|link| self.messages(*link)).max().unwrap_or(0)
    }
}
