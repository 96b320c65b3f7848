//! What controller and nodes say about connections of ranks' own that lead from node to node
//! (`--ft coordinated`): at a checkpoint, and when the ranks come back.

pub use eyrie_protocol::cross_node_sockets::{MatchedEnd, SocketEnd};
pub use eyrie_protocol::socket_restore::{ImageEnd, Link, NodeEnds};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// An end that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub link: Link,
    pub own: SocketAddr,
    pub peer: SocketAddr,
    /// It calls; else it listens.
    pub calls: bool,
    /// What both ends show each other, made for this attempt alone.
    pub token: [u8; 32],
}

/// The sockets of ranks that come back from a set are to be made, in these steps. Each is answered
/// by `Rejoined` with the same number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejoin {
    pub generation: u32,
    pub turn: u64,
    pub step: RejoinStep,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RejoinStep {
    /// Which of them lead to other nodes? Those between these ranks are made.
    Look { ranks: Vec<u32> },
    /// Make these. `patient`: what is in the way may have to fade.
    Join { calls: Vec<Call>, patient: bool },
    /// Make all others: the ranks are started next.
    Settle,
}

/// How such a step came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejoined {
    /// What the node found in the images of its ranks.
    NodeEnds(NodeEnds),
    /// Those that could not be made, and why.
    Joined {
        failed: Vec<(Link, String)>,
    },
    Settled,
}
