//! The sockets of ranks that go back together, while they are made by the outer `sockets`.

use eyrie_control::cross_node_sockets::Rejoined;
use eyrie_image::{MadeSockets, SetConnections};

/// The set whose sockets were made, or why they could not be.
pub(crate) type Wired = Option<(u32, Result<(), String>)>;

/// The sockets of a set over nodes, while they are being made.
pub(crate) struct Work {
    pub(crate) generation: u32,
    /// The step that is under way, or was last.
    pub(crate) turn: u64,
    /// In the order of the images.
    pub(crate) ranks: Vec<u32>,
    /// None: a thread has it.
    pub(crate) rewiring: Option<SetConnections>,
}

/// What a thread has made of a step.
pub struct Stepped {
    pub(crate) generation: u32,
    pub(crate) turn: u64,
    pub(crate) rewiring: Option<SetConnections>,
    pub(crate) made: Vec<MadeSockets>,
    pub(crate) result: Result<Rejoined, String>,
}

/// The sockets of the ranks of a set that goes back.
#[derive(Default)]
pub(crate) struct Sockets {
    pub(crate) wired: Wired,
    /// Over nodes: they are being made.
    pub(crate) work: Option<Work>,
}
