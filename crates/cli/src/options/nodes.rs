//! Nodes without ranks that route, and networks of nodes' own: `--routers`, `--netns`.

use clap::Args;

/// Nodes that route, and networks of nodes' own.
#[derive(Debug, Args)]
pub struct NodeOptions {
    /// With --ft routed: a router, which is a node more, for each N ranks; of hosts the last
    /// [default: 4]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub routers: Option<u32>,
    /// Put each node into a network namespace of its own, joined by a bridge: the program reaches
    /// the other nodes and nothing else (root only; takes `ip` of iproute2)
    #[arg(long, requires = "nodes")]
    pub netns: bool,
}
