//! Options that say where ranks are.

use clap::ValueEnum;

/// How ranks are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MapMode {
    /// The first ranks on the first node, the next on the second
    Block,
    /// One on each node in turn
    Cyclic,
}

/// What a rank is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BindMode {
    /// Nothing: the kernel moves it about
    None,
    /// One of a core's threads
    Hwthread,
    /// A core
    Core,
    /// The cores of a memory domain
    Numa,
    /// The cores of a socket
    Socket,
}
