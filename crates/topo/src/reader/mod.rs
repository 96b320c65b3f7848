//! Reads descriptions of networks, given as text: Eyrie's own format and Slurm's topology.conf.
//!
//! Kept true: what is read is bounded (`shape::MOST_NODES`) before anything is made of it; an error
//! names the line and what is wrong in it. A network that is read has a way between any two nodes.

mod hostlist;
mod own;
mod slurm;

pub use hostlist::{HostlistError, expand};

use crate::network::Network;
use crate::shape::SizeError;

/// Most bytes of a file.
pub const MOST_BYTES: usize = 64 << 20;

/// Why a file describes no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {mistake}")]
pub struct ReadError {
    /// From 1.
    pub line: usize,
    pub mistake: Mistake,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mistake {
    #[error("the file describes no network: begin for example with 'torus 8x8x8'")]
    Nothing,
    #[error("more than {MOST_BYTES} bytes")]
    TooLong,
    #[error("'{0}' is unknown")]
    Word(String),
    #[error("'{word}' needs {needs}")]
    Value { word: &'static str, needs: &'static str },
    #[error("'{0}' is said twice")]
    Twice(String),
    #[error("'{word}' is not for a {kind}")]
    NotFor { word: String, kind: String },
    #[error("{kind}: {error}")]
    Size { kind: String, error: SizeError },
    #[error("{0}")]
    Hosts(#[from] HostlistError),
    #[error("{names} names for {nodes} nodes")]
    Names { names: usize, nodes: u32 },
    #[error("'{name}' was named before, in line {before}")]
    Again { name: String, before: usize },
    #[error("'{0}' is no node or switch of this file")]
    Unknown(String),
    #[error("'{0}' is linked with itself")]
    Loop(String),
    #[error("switches are above each other in a circle: {}", .0.join(", "))]
    Cycle(Vec<String>),
    #[error("'{child}' is below both '{one}' and '{other}'")]
    Parents { child: String, one: String, other: String },
    #[error("no way between '{0}' and '{1}'")]
    Unreachable(String, String),
    #[error("more than {0} nodes and switches, where ways are not given by a kind of network")]
    Graph(u32),
}

impl Mistake {
    fn at(self, line: usize) -> ReadError {
        ReadError { line, mistake: self }
    }
}

/// The network that a file describes. Slurm's is told by its first word.
pub fn read_topology(text: &str) -> Result<Network, ReadError> {
    if text.len() > MOST_BYTES {
        return Err(Mistake::TooLong.at(1));
    }
    let first = lines(text).next();
    let is_slurm = first.is_some_and(|(_, line)| {
        let word = line.split('=').next().unwrap_or_default().to_ascii_lowercase();
        line.contains('=')
            && ["switchname", "blockname", "torusname", "blocksizes"].contains(&word.trim())
    });
    if is_slurm { slurm::read(text) } else { own::read(text) }
}

/// Lines that say something, with their numbers, without comments.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let all = (1..).zip(text.lines());
    all.map(|(number, line)| (number, line.split('#').next().unwrap_or_default().trim()))
        .filter(|(_, line)| !line.is_empty())
}
