//! What controller and nodes say about connections of ranks' own that lead from node to node
//! (`--ft coordinated`): at a checkpoint, and when the ranks come back.

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// An end of a connection that leads out of its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarEnd {
    /// Number of the socket on its machine.
    pub socket: u64,
    pub own: SocketAddr,
    pub peer: SocketAddr,
    /// What tells the network that it is in from others.
    pub network: Vec<u8>,
    /// Not all that it has sent has arrived.
    pub behind: bool,
}

/// An end whose other end was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarJoint {
    pub socket: u64,
    /// Number of the connection in the set.
    pub link: u64,
    /// Not all that the other end has sent has arrived.
    pub behind: bool,
}

/// What a connection of a set is known by.
pub type Link = [u64; 2];

/// An end in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackEnd {
    pub link: Link,
    pub own: SocketAddr,
    pub peer: SocketAddr,
    /// Whether its node has the address.
    pub has: bool,
}

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
    /// What tells the node's network from others, where it is reached there, and its ends.
    Place {
        network: Vec<u8>,
        here: IpAddr,
        ends: Vec<BackEnd>,
    },
    /// Those that could not be made, and why.
    Joined {
        failed: Vec<(Link, String)>,
    },
    Settled,
}
