//! Which processors ranks are to run on, as it is asked for.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a rank is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ValueEnum)]
pub enum Bind {
    /// As `Own` where a batch system or a cpuset has given the job cores of its own, else nothing.
    #[default]
    #[value(skip)]
    Auto,
    /// Nothing: the kernel moves it about
    None,
    /// One of a core's threads
    #[value(name = "hwthread")]
    Thread,
    /// A core
    Core,
    /// The cores of a memory domain
    Numa,
    /// The cores of a socket
    Socket,
    /// A core each if a node has as many ranks as cores, a memory domain if it has fewer, and
    /// nothing if it has more.
    #[value(skip)]
    Own,
}

/// Cores of a node, of those that its daemon may use, counted from 0: all in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slot {
    /// They are counted within this socket.
    pub socket: Option<u32>,
    pub first: u32,
    /// `u32::MAX`: up to the last there is.
    pub last: u32,
}

impl std::fmt::Display for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(socket) = self.socket {
            write!(f, "{socket}:")?;
        }
        match (self.first, self.last) {
            (0, u32::MAX) => f.write_str("*"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}
